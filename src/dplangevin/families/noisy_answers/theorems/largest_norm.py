"""The promise of noise with density exp(-|x|_K / scale) on bounded answers: one Laplace mechanism, whatever k is."""

from __future__ import annotations

from dplangevin.families.noisy_answers.schedule import LargestNormSchedule
from dplangevin.families.noisy_answers.theorems.generalized_gaussian import answer_words
from dplangevin.privacy.generalized_gaussian_part import GeneralizedGaussian
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Part, Pure
from dplangevin.privacy.theorem import Theorem, inflated


class LargestNormTheorem(
    Theorem[LargestNormSchedule], name="norm noise", proof="docs/theory/thesis.md, Norm noise"
):
    """Pure (sensitivity / scale), and no easier to attack than one Laplace answer of that epsilon.

    |x|_K = max(|x|_inf, |x|_1 / changed) is the norm whose unit ball is the convex hull of the moves: at most `changed`
    coordinates, each by at most 1. Along the line of a move the log density is concave and has slopes of at most
    |move|_K / scale, so its trade-off function is above the Laplace one. In secure mode answers move by whole steps of
    the grid, at most D = sensitivity / grid in the norm, and so does the norm rounded up: pure D grid / scale.

    Examples
    --------
    >>> schedule = LargestNormSchedule(answers=100, changed=100, sensitivity=1.0, scale=2.0)
    >>> round(LargestNormTheorem().certify(None, schedule).epsilon(), 6)
    0.5
    """

    reference = "Hardt and Talwar (2010), K-norm mechanism; Ganesh (2022), section 2.1"

    def promise(self, constants: None, schedule: LargestNormSchedule) -> Guarantee:
        cost = schedule.sensitivity / schedule.scale
        part: Part = GeneralizedGaussian(p=1.0, shift=cost, changed=1, answers=1)
        if schedule.secure:
            part = Pure(value=inflated(cost))
        words = answer_words(schedule, "the queries and the scale are public")
        return self.of_answers(schedule, part, words, rows_per_person=schedule.rows_per_person)
