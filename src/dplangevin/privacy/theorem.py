"""Theorem: (constants, schedule) -> Guarantee, or AssumptionFailed naming the hypothesis and the fix."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar, final

from dplangevin.errors import AssumptionFailed
from dplangevin.privacy.conditions import Condition
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Part
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants

S = TypeVar("S", bound=Schedule)


class Theorem(ABC, Generic[S]):
    """One published result about one family of runs.

    `promise` checks every hypothesis on the very constants and schedule that will run; it never assumes one.
    A theorem is a class with keywords: `name`, and `proof`, where this project proves it ("docs/theory/PAGE.md, section
    1"; "" for a statement used as its paper has it). Bases that several share have neither.
    """

    name: ClassVar[str]
    proof: ClassVar[str]
    reference: ClassVar[str]
    beyond_n: ClassVar[str] = ""
    """Why the proof holds when the data hold more records than the public divisor n; "" when it does not."""
    is_plain_composition: ClassVar[bool] = False
    """Whether it composes the steps of a run as if each were released: what sharper theorems are compared with."""
    former_names: ClassVar[tuple[str, ...]] = ()
    """Names in plan files of older versions, of theorems that this one is at least as good as."""

    def __init_subclass__(cls, *, name: str | None = None, proof: str | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if (name is None) != (proof is None):
            raise TypeError(f"{cls.__name__}: a theorem states both its name and its proof.")
        if name is not None and proof is not None:
            cls.name, cls.proof = name, proof
        if "certify" in vars(cls):  # it would pass by the question about more than n records
            raise TypeError(f"{cls.__name__}: a theorem writes its promise in `promise`, not in `certify`.")

    @final
    def certify(self, constants: Any, schedule: S) -> Guarantee:
        """The promise about this run; raises AssumptionFailed when a hypothesis does not hold.

        constants : those of the problem; None for noisy answers, whose schedules state their own neighbours.
        """
        more = isinstance(constants, Constants) and constants.more_rows
        # integer sums of secure forms are sized for n records, so no secure form is offered beyond
        if more and (not self.any_number(schedule) or schedule.secure):
            raise self.refuse(
                "its proof needs at most n records, and these data may hold more than the stated n",
                "Leave n= out (the number of rows is then public), or use another mechanism.",
            )
        try:
            return self.promise(constants, schedule)
        except ArithmeticError:  # numbers so extreme that a formula overflows prove nothing
            raise self.refuse(
                "a formula of its proof overflows for these numbers", "Take less extreme ones."
            ) from None

    @abstractmethod
    def promise(self, constants: Any, schedule: S) -> Guarantee:
        """What the proof gives, once every hypothesis is checked; `certify` asks before about more than n records."""

    def any_number(self, schedule: S) -> bool:
        """Whether the proof holds when the data hold more records than the public divisor n."""
        return bool(self.beyond_n)

    def refuse(self, hypothesis: str, fix: str) -> AssumptionFailed:
        """The error for a hypothesis that does not hold."""
        return AssumptionFailed(f"{self.name} does not apply: {hypothesis}. {fix}")

    def row_norm(self, constants: Constants) -> float:
        """The largest norm of a row, without which nothing is known of sums over rows."""
        if constants.row_norm is None:
            raise self.refuse(
                "the largest row norm is not stated", "Build the plan from a Problem, or state row_norm."
            )
        return constants.row_norm

    def guarantee(
        self,
        constants: Constants,
        schedule: S,
        parts: tuple[Part, ...],
        assumptions: tuple[str, ...] = (),
        extra_delta: float = 0.0,
        conditions: tuple[Condition, ...] = (),
    ) -> Guarantee:
        """Mint the guarantee with what every report shows."""
        return Guarantee(
            parts=parts,
            adjacency=constants.adjacency,
            release=schedule.release,
            theorem=self.name,
            reference=self.reference,
            assumptions=(
                *constants.assumptions,
                *assumptions,
                *noise_words(COMMON_ASSUMPTIONS, secure=schedule.secure),
            ),
            arithmetic="discrete-grid" if schedule.secure else "real",
            extra_delta=extra_delta,
            conditions=conditions,
        )

    def of_answers(self, schedule: Any, part: Part, assumptions: tuple[str, ...], **stated: Any) -> Guarantee:
        """Mint the guarantee of noisy answers, whose schedules state their own neighbours."""
        return Guarantee(
            parts=(part,),
            adjacency=schedule.adjacency,
            release=schedule.release,
            theorem=self.name,
            assumptions=assumptions,
            conditions=schedule.conditions,
            arithmetic="discrete-grid" if schedule.secure else "real",
            **{"reference": self.reference, **stated},
        )


COMMON_ASSUMPTIONS = (
    "noise is ideal real-valued noise from a secret seed",
    "n, bounds, step sizes, noise and number of steps are public and not chosen from the private data",
)

ANSWER_ASSUMPTIONS = (
    "noise is ideal noise from a secret seed",
    "the bounds of a contribution, the noise and the bins are public and not chosen from the private data",
)

SECURE_NOISE = (
    "noise is drawn exactly as ideal noise looks after rounding to a public grid, from the operating system's "
    "cryptographic generator; no real arithmetic is assumed"
)


def public_grid(scale: float, *, whole: bool = False) -> float:
    """The power of two about 2^-20 of the noise, to which answers are rounded; at most 1 for whole numbers."""
    grid = float(2.0 ** (math.floor(math.log2(scale)) - 20))
    return min(grid, 1.0) if whole else grid


def noise_words(assumptions: tuple[str, str], *, secure: bool) -> tuple[str, ...]:
    """COMMON_ASSUMPTIONS or ANSWER_ASSUMPTIONS, with what secure mode has instead of ideal noise."""
    return (SECURE_NOISE, assumptions[1]) if secure else assumptions


def inflated(value: float) -> float:
    """value (1 + 1e-9) + 1e-12: covers rounding in double precision; NaN becomes infinity, never zero."""
    if math.isnan(value):
        return math.inf
    return value if value == 0 else value * (1 + 1e-9) + 1e-12
