"""The schedule of repeat-and-select: what one attempt may cost, and the law of the number of attempts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from dplangevin import _check
from dplangevin._search import bisected
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_answers.schedule import AnswerSchedule
from dplangevin.privacy.schedule import Capabilities

Law = Literal["poisson", "geometric", "logarithmic"]
LAWS: tuple[Law, ...] = ("poisson", "geometric", "logarithmic")
FEWEST = 5.0  # a Poisson number of this mean is 0 with probability 0.007


@dataclass(frozen=True, kw_only=True)
class RepeatedSelectionSchedule(AnswerSchedule):
    """K attempts, K from the stated law and secret; each is mu-GDP; the attempt with the largest score is released.

    Parameters
    ----------
    mu : of one attempt, its score included. repetitions : the mean of K.
    law : "poisson" (concentrated; K may be 0), "geometric" or "logarithmic" (K is at least 1, with long tails).
    """

    mechanism: ClassVar[str] = "repeat-and-select"
    capabilities: ClassVar[Capabilities] = Capabilities(needs_no_problem=True)
    release: str = field(default="draw", init=False, repr=False)
    mu: float
    repetitions: float
    law: Law = "geometric"

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.put(self, mu=_check.scale("mu", self.mu), law=_check.choice("law", self.law, LAWS))
        _check.each(self, repetitions=_check.positive)
        if not 1 <= self.repetitions <= 1e6:
            raise InvalidParameter(
                f"repetitions, their mean number, must be from 1 to a million; got {self.repetitions:g}."
            )
        if self.law == "poisson" and self.repetitions < FEWEST:
            raise InvalidParameter(
                f"a Poisson number of mean {self.repetitions:g} is 0 too often; take repetitions >= {FEWEST:g}, or "
                "law='geometric'."
            )
        if self.law == "logarithmic" and self.repetitions == 1:
            raise InvalidParameter("a logarithmic number of mean 1 is always 1; take repetitions > 1.")
        if self.secure:
            raise InvalidParameter("repeat-and-select has no secure form; leave secure out.")

    @property
    def gamma(self) -> float:
        """The parameter of the truncated negative binomial laws with this mean."""
        if self.law == "geometric":
            return 1 / self.repetitions

        def mean(logarithm: float) -> float:  # of log(1 / gamma)
            return math.expm1(logarithm) / logarithm

        return math.exp(-bisected(lambda at: mean(at) >= self.repetitions, 50.0, 1e-12, rounds=200))

    def number(self, rng: np.random.Generator) -> int:
        """K, drawn."""
        if self.law == "poisson":
            return int(rng.poisson(self.repetitions))
        if self.law == "geometric":
            return int(rng.geometric(self.gamma))
        return int(rng.logseries(-math.expm1(math.log(self.gamma))))
