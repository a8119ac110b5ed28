"""Spec of repeat-and-select: the guarantee of one attempt, and the law of the number of attempts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from dplangevin import _check
from dplangevin._search import bisect_safe_side
from dplangevin.accounting.theorem import Capabilities
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.noisy_answers.spec import AnswerSpec

RepetitionLaw = Literal["poisson", "geometric", "logarithmic"]
REPETITION_LAWS: tuple[RepetitionLaw, ...] = ("poisson", "geometric", "logarithmic")
MIN_POISSON_REPETITIONS = 5.0  # a Poisson number of this mean is 0 with probability 0.007


@dataclass(frozen=True, kw_only=True)
class RepeatedSelectionSpec(AnswerSpec):
    """K attempts, K from the stated law and secret; each is mu-GDP; the attempt with the largest score is released.

    Parameters
    ----------
    mu : of one attempt, its score included, for a person. repetitions : the mean of K.
    law : "poisson" (concentrated; K may be 0), "geometric" or "logarithmic" (K is at least 1, with long tails).
    rows_per_person : the most rows of a person, all of which the mu of an attempt covers.
    secure : attempts are exact; so is the number of them in every case.
    """

    mechanism: ClassVar[str] = "repeat-and-select"
    capabilities: ClassVar[Capabilities] = Capabilities(secure=True, needs_no_problem=True)
    release: str = field(default="draw", init=False, repr=False)
    mu: float
    repetitions: float
    law: RepetitionLaw = "geometric"
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.set_frozen(
            self,
            mu=_check.check_scale("mu", self.mu),
            law=_check.check_choice("law", self.law, REPETITION_LAWS),
        )
        _check.validate_fields(self, repetitions=_check.check_positive)
        if not 1 <= self.repetitions <= 1e6:
            raise InvalidParameter(
                f"repetitions, their mean number, must be from 1 to a million; got {self.repetitions:g}."
            )
        if self.law == "poisson" and self.repetitions < MIN_POISSON_REPETITIONS:
            raise InvalidParameter(
                f"a Poisson number of mean {self.repetitions:g} is 0 too often; take repetitions >= "
                f"{MIN_POISSON_REPETITIONS:g}, or law='geometric'."
            )
        if self.law == "logarithmic" and self.repetitions == 1:
            raise InvalidParameter("a logarithmic number of mean 1 is always 1; take repetitions > 1.")
        _check.validate_fields(self, rows_per_person=_check.check_count)

    @property
    def gamma(self) -> float:
        """The parameter of the truncated negative binomial laws with this mean."""
        if self.law == "geometric":
            return 1 / self.repetitions

        def mean_repetitions(logarithm: float) -> float:  # as a function of log(1 / gamma)
            return math.expm1(logarithm) / logarithm

        return math.exp(
            -bisect_safe_side(lambda at: mean_repetitions(at) >= self.repetitions, 50.0, 1e-12, rounds=200)
        )
