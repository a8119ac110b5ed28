"""The promises of noise on counts: generalised Gaussian, from the certified accountant, and of the largest norm."""

from __future__ import annotations

import math
from typing import Any

from dplangevin.families.noisy_answers.schedule import (
    CorrectedAnswersSchedule,
    CountedAnswers,
    LargestNormSchedule,
    NoisyAnswersSchedule,
)
from dplangevin.privacy.generalized_gaussian_part import CorrectedNoise, GeneralizedGaussian
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, Pure
from dplangevin.privacy.theorem import COMMON_ASSUMPTIONS, Theorem, inflated, noise_words

NAME = "worst-shift"
REFERENCE = "Ganesh (2022), chapter 2; Dong, Roth and Su (2022), tensor products of trade-off functions"


class WorstShift(Theorem[NoisyAnswersSchedule], name=NAME, proof="docs/theory/thesis.md, Worst shift"):
    """The worst neighbour moves `changed` answers by the whole sensitivity: GDP for p = 2, else certified losses."""

    reference = REFERENCE

    def promise(self, constants: None, schedule: NoisyAnswersSchedule) -> Guarantee:
        said = _said(schedule, "the queries, p and sigma are public")
        if schedule.p == 2:
            shift = schedule.sensitivity / schedule.sigma
            part: Part = Gaussian(mu=math.sqrt(2 * schedule.changed) * shift * (1 + 1e-14))
        else:
            part = _noise(schedule)
        return self.of_answers(schedule, part, **said)


class CorrectedWorstShift(
    Theorem[CorrectedAnswersSchedule], name=NAME, proof="docs/theory/thesis.md, Worst shift"
):
    """The noise and all sparse-vector corrections, in one sum of losses."""

    reference = REFERENCE

    def promise(self, constants: None, schedule: CorrectedAnswersSchedule) -> Guarantee:
        said = _said(
            schedule.noise,
            "the queries, p and sigma are public",
            "the threshold, the number of corrections and the order of the answers do not depend on the data",
        )
        part = CorrectedNoise(
            noise=_noise(schedule.noise),
            hits=schedule.hits,
            search_epsilon=schedule.search_epsilon,
            answer_epsilon=schedule.answer_epsilon,
        )
        return self.of_answers(schedule.noise, part, **said)


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
        said = _said(schedule, "the queries and the scale are public")
        cost = schedule.sensitivity / schedule.scale
        part: Part = GeneralizedGaussian(p=1.0, shift=cost, changed=1, answers=1)
        if schedule.secure:
            part = Pure(value=inflated(cost))
        return self.of_answers(schedule, part, **said)


def _noise(schedule: NoisyAnswersSchedule) -> GeneralizedGaussian:
    return GeneralizedGaussian(
        p=schedule.p,
        shift=schedule.sensitivity / schedule.sigma,
        changed=schedule.changed,
        answers=schedule.answers,
    )


def _said(schedule: CountedAnswers, public: str, *words: str) -> dict[str, Any]:
    """What a promise about noisy counts assumes, and to whom it is made."""
    rows = schedule.rows_per_person
    if rows > 1:
        words = (*words, f"holds for all rows of a person who owns at most {rows}")
    assumptions = (
        f"neighbouring data sets change at most {schedule.changed} of {schedule.answers} answers, "
        f"each by at most {schedule.sensitivity:g}",
        noise_words(COMMON_ASSUMPTIONS, secure=schedule.secure)[0],
        f"{public} and not chosen from the private data",
        *schedule.assumptions,
        *words,
    )
    return {"assumptions": assumptions, "rows_per_person": rows}
