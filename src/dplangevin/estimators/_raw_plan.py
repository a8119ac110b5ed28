"""The plan of a fit from a raw table: what is learned of the schema and what is fitted, under one promise.

Shares are a public rule: a tenth of mu^2 (of epsilon for a pure promise) learns the schema, half of it to find the
powers of two and the common categories, half to refine the ranges; a tenth of delta covers rare categories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from dplangevin import _check
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.families.learned_schema.cells import CELLS, FINE
from dplangevin.families.learned_schema.schedule import LearnedSchemaSchedule, calibrated_learning
from dplangevin.planner.choose import chosen
from dplangevin.planner.recipe import Recipe
from dplangevin.planner.request import Request
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.people import to_people
from dplangevin.privacy.plan import Price
from dplangevin.problem.constants import Adjacency
from dplangevin.schema import SchemaToLearn

LEARNING_SHARE = 0.1
TAIL_SHARE = 0.1
NOTHING_LEFT = (
    "nothing of epsilon = {:g} is left for the fit; raise epsilon, or leave mechanism and theorem out."
)
WHOSE = (
    "the promise above is that of a row which is added or removed: at most {} rows of a person are used, and the whole "
    "keeps its promise to persons; rows of nobody (no person, or a number of 2^53 or more) are left out"
)


@dataclass(frozen=True, kw_only=True)
class People:
    """To whom is promised. by_rows : rows are chosen, so their number is private; else the bound is believed."""

    rows: int
    adjacency: Adjacency
    by_rows: bool

    def promised(self, guarantee: Guarantee) -> Guarantee:
        """What a fit's guarantee is worth to a person."""
        if self.by_rows:
            return to_people(guarantee, self.rows, self.adjacency)
        return guarantee.group(self.rows)

    @property
    def factor(self) -> int:
        """How many times the cost of a row a person costs."""
        return self.rows * (2 if self.by_rows and self.adjacency == "replace-one" else 1)


@dataclass(frozen=True, kw_only=True)
class RawPlan:
    """The prices of what is learned, in order, and the recipe of the fit: charged together.

    recipe : for the widest schema that may be learned. The fit may run another plan that promises at least as much.
    words : what is said of rows and of learning, the first of the recipe's reasons.
    """

    learning: tuple[Price, ...]
    recipe: Recipe
    people: People
    delta: float
    words: tuple[str, ...] = ()
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        total = self.people.promised(self.recipe.plan.guarantee)
        for price in self.learning:
            total = total + price.guarantee
        _check.put(self, guarantee=replace(total, at_delta=self.delta, composition=None))

    def may_run(self, recipe: Recipe) -> bool:
        """Whether a fit promises at least what was charged: both are GDP, and its mu is no larger."""
        planned, other = self.recipe.plan.guarantee, recipe.plan.guarantee
        if planned.mu is None or other.mu is None or planned.adjacency != other.adjacency:
            return False
        return other.mu <= planned.mu


def raw_plan(request: Request, raw: SchemaToLearn | None, people: People, epsilon: float) -> RawPlan:
    """The plan whose composed promise to a person is (epsilon, request.delta). Nothing here depends on the data."""
    delta = request.delta
    if people.by_rows:
        request = replace(request, adjacency="add-remove", more_rows=True)
    if delta == 0:
        return _pure_plan(request, raw, people, epsilon)
    tail = TAIL_SHARE * delta if raw is not None and raw.categories else 0.0
    goal = cv.gdp_mu(epsilon, delta - tail * (1 + 1e-6)) * (1 - 1e-7)
    share = 0.0 if raw is None else LEARNING_SHARE
    learning = () if raw is None else _learning(raw, people, delta, share * goal**2, tail)
    left = math.sqrt(1 - share) * goal
    for _ in range(40):  # a fit that is not Gaussian composes a little worse
        fit = math.nextafter(cv.gdp_epsilon(left / people.factor, delta), 0.0)
        plan = _made(replace(request, epsilon=fit), learning, people, raw, epsilon)
        if plan.guarantee.epsilon(delta) <= epsilon:
            return plan
        left *= 0.98
    raise CalibrationFailed(NOTHING_LEFT.format(epsilon))


def _pure_plan(request: Request, raw: SchemaToLearn | None, people: People, epsilon: float) -> RawPlan:
    if raw is not None and raw.categories:
        raise InvalidParameter(
            "categories cannot be learned under a pure promise: a label that a single person brings would be told with "
            "certainty or never. State a delta, or the lists of "
            f"{', '.join(column.name for column in raw.categories)}."
        )
    share = 0.0 if raw is None else LEARNING_SHARE
    learning: tuple[Price, ...] = ()
    if raw is not None:
        pure: dict[str, Any] = {
            "categories": 0,
            "adjacency": people.adjacency,
            "rows_per_person": people.rows,
        }
        each = share * epsilon / 2 * (1 - 1e-9)
        made = [
            calibrated_learning(numbers=len(raw.numbers), cells=cells, epsilon=each, **pure)
            for cells in (CELLS, FINE)
        ]
        learning = tuple(Price(schedule=schedule, delta=0.0) for schedule in made)
    fit = (1 - share) * epsilon / people.factor * (1 - 1e-9)
    plan = _made(replace(request, epsilon=fit), learning, people, raw, epsilon)
    if not plan.guarantee.epsilon(0.0) <= epsilon:
        raise CalibrationFailed(NOTHING_LEFT.format(epsilon))
    return plan


def _learning(
    raw: SchemaToLearn, people: People, delta: float, square: float, tail: float
) -> tuple[Price, ...]:
    """What learns the schema for this much of mu^2: one release for all columns, then one for the ranges."""
    parts = 2 if raw.numbers else 1
    stated: dict[str, Any] = {"adjacency": people.adjacency, "rows_per_person": people.rows}
    stated |= {"mu": math.sqrt(square / parts), "numbers": len(raw.numbers)}
    first = calibrated_learning(categories=len(raw.categories), cells=CELLS, tail=tail, **stated)
    schedules = [first]
    if raw.numbers:
        schedules.append(calibrated_learning(categories=0, cells=FINE, **stated))
    return tuple(Price(schedule=schedule, delta=delta) for schedule in schedules)


def _made(
    request: Request,
    learning: tuple[Price, ...],
    people: People,
    raw: SchemaToLearn | None,
    epsilon: float,
) -> RawPlan:
    recipe = chosen(request)
    sampling = getattr(recipe.plan.schedule, "sampling", "full")
    if people.by_rows and sampling != "full":
        raise InvalidParameter(
            f"person= takes full batches only: a batch by {sampling} draws rows, not persons. Leave mechanism='auto'."
        )
    words = () if raw is None else _reasons(raw, learning, request, people, epsilon)
    if people.by_rows:
        words = (*words, WHOSE.format(people.rows))
    recipe = replace(recipe, reasons=(*words, *recipe.reasons))
    return RawPlan(learning=learning, recipe=recipe, people=people, delta=request.delta, words=words)


def _reasons(
    raw: SchemaToLearn, learning: tuple[Price, ...], request: Request, people: People, epsilon: float
) -> tuple[str, ...]:
    first = learning[0].schedule
    assert isinstance(first, LearnedSchemaSchedule)
    kind = "mu^2" if request.delta else "epsilon"
    learned = {"range": len(raw.numbers), "list": len(raw.categories)}
    what = [f"{count} {word}{'s' * (count > 1)}" for word, count in learned.items() if count]
    words = [
        f"learning {' and '.join(what)} takes {LEARNING_SHARE:.0%} of {kind} (noise {first.scale:.3g} on each count): "
        f"the fit gets epsilon = {_of_person(request, people):.4g}; a hand-written "
        f"schema would leave it {epsilon:.4g}"
    ]
    if first.threshold is not None:
        words.append(
            f"a category is listed from a noisy count of {first.threshold:.0f} on; rarer ones are 'other', and "
            f"{TAIL_SHARE:.0%} of delta covers them"
        )
    return tuple(words)


def _of_person(request: Request, people: People) -> float:
    """The fit's epsilon to a person, from that to a row."""
    if request.delta == 0:
        return people.factor * request.epsilon
    return cv.gdp_epsilon(people.factor * cv.gdp_mu(request.epsilon, request.delta), request.delta)
