"""The schedule of a learned schema: noisy counts of public cells, and of the labels that reach a threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from scipy.special import ndtr, ndtri

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.families.noisy_answers.schedule import AnswerSchedule
from dplangevin.privacy.schedule import Capabilities, Schedule

LearnedNoise = Literal["gaussian", "geometric"]


@dataclass(frozen=True, kw_only=True)
class LearnedSchemaSchedule(AnswerSchedule):
    """Counts of rows in public cells of number columns, and counts of labels in category columns, released together.

    A row is in at most one cell of each number column and has at most one label in each category column. Every cell's
    count gets noise. Labels are not public: only those that occur get noise, and only those whose noisy count is at
    least `threshold` are released, with it.

    Parameters
    ----------
    numbers, cells : number columns, and public cells of each. categories : category columns.
    noise, scale : "gaussian" with this standard deviation, or "geometric", P(k) proportional to exp(-|k| / scale).
    threshold : on noisy counts of labels; None without category columns.
    rows_per_person : neighbours differ in all rows of a person, at most so many.
    """

    mechanism: ClassVar[str] = "learned-schema"
    capabilities: ClassVar[Capabilities] = Capabilities(pure=True, needs_no_problem=True)
    numbers: int
    cells: int
    categories: int
    noise: LearnedNoise
    scale: float
    threshold: float | None = None
    rows_per_person: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("numbers", "cells", "categories"):
            _check.put(self, **{name: _check.count(name, getattr(self, name), least=0)})
        _check.put(self, noise=_check.choice("noise", self.noise, ("gaussian", "geometric")))
        sized = _check.integer_scale if self.noise == "geometric" else _check.scale
        _check.each(self, scale=sized, rows_per_person=_check.count)
        if self.columns < 1 or (self.numbers > 0 and self.cells < 2):
            raise InvalidParameter("a learned schema has a column to learn, and at least two cells a number.")
        if self.categories and self.noise != "gaussian":
            raise InvalidParameter(
                "categories cannot be learned with a pure promise: that a label occurs at all would be told with "
                "certainty or never, so some delta is needed. State a delta, or the categories."
            )
        if (self.threshold is not None) != (self.categories > 0):
            raise InvalidParameter("threshold belongs to learned categories, and they need one.")
        if self.threshold is not None:
            _check.each(self, threshold=_check.positive)
        if self.secure:
            raise InvalidParameter(
                "learned schemas have no secure form: state ranges and categories with secure=True."
            )

    @property
    def columns(self) -> int:
        """All learned columns."""
        return self.numbers + self.categories

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers' cells; how many labels are released is not public."""
        return (self.numbers * self.cells,)

    @property
    def reach(self) -> float:
        """The largest move of all counts between neighbours: Euclidean for Gaussian noise, l1 for geometric noise."""
        sides = 2 if self.adjacency == "replace-one" else 1
        moved = sides * self.columns
        return self.rows_per_person * (math.sqrt(moved) if self.noise == "gaussian" else moved)

    @property
    def tail(self) -> float:
        """The largest probability that a label which only one of two neighbours holds is released."""
        if self.threshold is None:
            return 0.0
        rows, k = self.rows_per_person, self.categories
        # never 0, however far the threshold is: where doubles underflow there is still a chance
        seen = [max(float(ndtr((a - self.threshold) / self.scale)), 1e-300) for a in range(1, rows + 1)]
        if rows == 1:
            return -math.expm1(k * math.log1p(-seen[0])) if seen[0] < 1 else 1.0
        return min(1.0, k * rows * max(chance / a for a, chance in enumerate(seen, 1)))


def calibrated_learning(
    *, categories: int, mu: float = 0.0, tail: float = 0.0, epsilon: float = 0.0, **stated: Any
) -> LearnedSchemaSchedule:
    """The least noise for mu-GDP with an additive delta of `tail` (which categories need), or for pure epsilon."""
    pure = mu == 0
    budget = epsilon if pure else mu**2 - appearing(tail) ** 2
    if not budget > 1e-18:
        raise CalibrationFailed(
            "the promise leaves nothing to learn the schema with; raise epsilon or delta."
        )
    base = LearnedSchemaSchedule(
        categories=categories, noise="geometric" if pure else "gaussian", scale=1.0,
        threshold=1.0 if categories else None, **stated,
    )  # fmt: skip
    scale = base.reach / (budget if pure else math.sqrt(budget)) * (1 + 1e-8)
    threshold = None
    if categories:
        k, rows = categories, base.rows_per_person
        chances = (
            [-math.expm1(math.log1p(-tail) / k)]
            if rows == 1
            else [a * tail / (k * rows) for a in range(1, rows + 1)]
        )
        needed = [a - scale * float(ndtri(min(chance, 0.5))) for a, chance in enumerate(chances, 1)]
        threshold = max(needed) * (1 + 1e-9)
    return replace(base, scale=scale, threshold=threshold)


def appearing(tail: float) -> float:
    """mu of GDP of what a neighbour learns from labels that do NOT appear: -log(1 - tail) of pure epsilon, at most.

    eps-DP implies mu-GDP with Phi(-mu / 2) = 1 / (1 + e^eps): the Gaussian trade-off curve is convex and meets
    that of randomised response at its end points and at its kink.
    """
    from scipy.special import erfinv

    if not 0 <= tail < 1:
        return math.inf
    return 2 * math.sqrt(2) * float(erfinv(math.tanh(-math.log1p(-tail) / 2)))


def deviation(schedule: Schedule) -> float:
    """The standard deviation of the noise on a count, as the rule that reads ranges off counts takes it.

    For geometric noise, whose tails are longer, that of the Gaussian noise which passes 4.5 deviations as rarely.
    """
    assert isinstance(schedule, LearnedSchemaSchedule)
    if schedule.noise == "gaussian":
        return schedule.scale
    return schedule.scale * -math.log(2 * float(ndtr(-4.5))) / 4.5
