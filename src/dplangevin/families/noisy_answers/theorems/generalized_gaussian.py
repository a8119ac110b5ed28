"""The promise of generalised Gaussian noise on bounded answers, minted from the certified accountant."""

from __future__ import annotations

import math

from dplangevin.families.noisy_answers.schedule import (
    CorrectedAnswersSchedule,
    CountedAnswers,
    NoisyAnswersSchedule,
)
from dplangevin.privacy.generalized_gaussian_part import CorrectedNoise, GeneralizedGaussian
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part
from dplangevin.privacy.theorem import COMMON_ASSUMPTIONS, Theorem, noise_words

NAME = "worst-shift"
REFERENCE = "Ganesh (2022), chapter 2; Dong, Roth and Su (2022), tensor products of trade-off functions"


class WorstShift(Theorem[NoisyAnswersSchedule], name=NAME, proof="docs/theory/thesis.md, Worst shift"):
    """The worst neighbour moves `changed` answers by the whole sensitivity: GDP for p = 2, else certified losses."""

    reference = REFERENCE

    def promise(self, constants: None, schedule: NoisyAnswersSchedule) -> Guarantee:
        if schedule.p == 2:
            shift = schedule.sensitivity / schedule.sigma
            return _minted(self, schedule, Gaussian(mu=math.sqrt(2 * schedule.changed) * shift * (1 + 1e-14)))
        return _minted(self, schedule, _noise(schedule))


class CorrectedWorstShift(
    Theorem[CorrectedAnswersSchedule], name=NAME, proof="docs/theory/thesis.md, Worst shift"
):
    """The noise and all sparse-vector corrections, in one sum of losses."""

    reference = REFERENCE

    def promise(self, constants: None, schedule: CorrectedAnswersSchedule) -> Guarantee:
        part = CorrectedNoise(
            noise=_noise(schedule.noise),
            hits=schedule.hits,
            search_epsilon=schedule.search_epsilon,
            answer_epsilon=schedule.answer_epsilon,
        )
        words = (
            "the threshold, the number of corrections and the order of the answers do not depend on the data"
        )
        return _minted(self, schedule.noise, part, words)


def _noise(schedule: NoisyAnswersSchedule) -> GeneralizedGaussian:
    return GeneralizedGaussian(
        p=schedule.p,
        shift=schedule.sensitivity / schedule.sigma,
        changed=schedule.changed,
        answers=schedule.answers,
    )


def _minted(
    theorem: WorstShift | CorrectedWorstShift, schedule: NoisyAnswersSchedule, part: Part, *words: str
) -> Guarantee:
    said = answer_words(schedule, "the queries, p and sigma are public", *words)
    return theorem.of_answers(schedule, part, said, rows_per_person=schedule.rows_per_person)


def answer_words(schedule: CountedAnswers, public: str, *words: str) -> tuple[str, ...]:
    """What a promise about noisy counts assumes."""
    rows = schedule.rows_per_person
    if rows > 1:
        words = (*words, f"holds for all rows of a person who owns at most {rows}")
    return (
        f"neighbouring data sets change at most {schedule.changed} of {schedule.answers} answers, "
        f"each by at most {schedule.sensitivity:g}",
        noise_words(COMMON_ASSUMPTIONS, secure=schedule.secure)[0],
        f"{public} and not chosen from the private data",
        *schedule.assumptions,
        *words,
    )
