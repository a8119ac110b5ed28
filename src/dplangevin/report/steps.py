"""Epsilon of a plan against its number of steps: the plan's theorem, plain composition and a lower bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dplangevin.errors import DplangevinError
from dplangevin.families.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.plan import Price
from dplangevin.privacy.registry import plain_composition, theorems_for
from dplangevin.report.curve import CurveRow

_POINTS, _LOWER_POINTS, _ENDLESS, _LONGEST = 17, 5, 1000, 10**5


def steps_rows(plan: Price, delta: float, rows_per_person: int = 1) -> list[CurveRow]:
    """One row per number of steps, up to three times the plan's; empty for plans that touch the data once."""
    schedule: Any = plan.schedule
    steps = getattr(schedule, "n_steps", None)
    if steps is None or not 0 < delta < 1 or getattr(schedule, "checkpoints", None):
        return []
    varying = isinstance(schedule.step_size, tuple) or isinstance(schedule.noise_std, tuple)
    last = _ENDLESS if math.isinf(steps) else int(steps) * (1 if varying else 3)
    epoch = 1
    if getattr(schedule, "sampling", "full") in ("cyclic", "shuffle"):
        epoch = math.ceil(plan.constants.n / schedule.divisor(plan.constants.n))
        epoch = 1 if epoch > last else epoch
    ratio = (last / epoch) ** (1 / (_POINTS - 1))
    grid = {epoch * max(1, round(ratio**i)) for i in range(_POINTS)}
    if math.isfinite(steps):
        grid.add(int(steps))
    chosen = sorted(count for count in grid if count <= last)
    lower = set(chosen[:: max(1, len(chosen) // _LOWER_POINTS)]) | {int(steps) if math.isfinite(steps) else 0}
    return [_row(plan, count, delta, rows_per_person, lower=count in lower) for count in chosen]


def plan_at(plan: Price, steps: float) -> Any:
    """The plan's schedule with another number of steps."""
    schedule: Any = plan.schedule
    changes: dict[str, Any] = {"n_steps": steps}
    for name in ("step_size", "noise_std"):
        if isinstance(getattr(schedule, name), tuple):
            changes[name] = getattr(schedule, name)[: int(steps)]
    if getattr(schedule, "average_from", 0):
        changes["average_from"] = min(schedule.average_from, int(steps) - 1)
    return replace(schedule, **changes)


def lower_bound(plan: Price, steps: float, delta: float) -> float | None:
    """What some run with these public numbers really costs a record; None when no exact walk is known."""
    schedule = plan.schedule
    if not isinstance(schedule, NoisyGradientSchedule) or not 0 < delta < 1 or _LONGEST < steps < math.inf:
        return None
    try:
        return lower_bound_epsilon(plan.constants, plan_at(plan, steps), delta)
    except DplangevinError:
        return None


def _row(plan: Price, steps: int, delta: float, rows_per_person: int, *, lower: bool) -> CurveRow:
    found: dict[str, float | None] = {}
    composition = plain_composition(type(plan.schedule))
    for key, name in (("bound", plan.theorem), ("composition", composition)):
        found[key] = None
        if name is None:
            continue
        try:
            theorem = theorems_for(type(plan.schedule))[name]
            guarantee: Guarantee = theorem.certify(plan.constants, plan_at(plan, steps))
            value = guarantee.group(rows_per_person).epsilon(delta)
        except DplangevinError:
            continue
        found[key] = value if math.isfinite(value) else None
    floor = lower_bound(plan, steps, delta) if lower and rows_per_person == 1 else None
    return CurveRow(steps=steps, lower=floor, theorem=plan.theorem or "", **found)
