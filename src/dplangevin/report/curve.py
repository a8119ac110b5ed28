"""Epsilon against the number of steps: a theorem's bound, plain composition and a lower bound, row by row."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.accounting.registry import plain_composition_theorem, theorems_for
from dplangevin.errors import AssumptionFailed, DplangevinError, NotPrivateError
from dplangevin.mechanisms.account import (
    Options,
    Plateau,
    account,
    find_plateau,
    has_varying_steps,
    steps_per_epoch,
    with_n_steps,
)
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.noisy_gradient import lower_bounds
from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.mechanisms.noisy_gradient.options import read_descent_options
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import Composition
from dplangevin.problem.constants import Constants

_MAX_WALK_STEPS = 10**7  # the exact distribution of an unbounded random walk is summed step by step

__all__ = [
    "CurveRow",
    "Plateau",
    "composition_epsilon",
    "curve_row",
    "curve_rows",
    "describe_run",
    "epsilon_lower_bound",
    "find_plateau",
    "has_varying_steps",
    "step_grid",
    "with_n_steps",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CurveRow:
    """Epsilon after `steps` steps by composition, theorem and lower bound; None where one does not apply."""

    steps: float
    composition: float | None = None
    bound: float | None = None
    lower: float | None = None
    theorem: str = ""


def describe_run(options: Options) -> tuple[Constants, NoisyGradientSpec]:
    """Return the constants and the spec of a run, from the options of `account`."""
    return read_descent_options(options)


def composition_epsilon(guarantee: Guarantee, steps: float, delta: float) -> float | None:
    """Return epsilon by plain composition of the same run: infinite for infinitely many steps, None if unknown."""
    if math.isinf(steps):
        return math.inf
    composition = guarantee if guarantee.theorem == Composition.name else guarantee.composition
    return composition.epsilon(delta) if composition is not None and 0 < delta < 1 else None


def epsilon_lower_bound(options: Options, delta: float) -> float | None:
    """Return an epsilon that some run with these public parameters attains; None where no exact bound is known."""
    if not 0 < delta < 1 or _MAX_WALK_STEPS < options["n_steps"] < math.inf:
        return None
    return lower_bounds.lower_bound_epsilon(*describe_run(options), delta)


def curve_row(
    options: Options, steps: float, delta: float, *, lower: bool = True, level: Plateau | None = None
) -> CurveRow:
    """Return the three epsilons of a run of `steps` steps.

    Past a known plateau its epsilon holds for every number of steps, and only composition is computed again.
    """
    run = with_n_steps(options, steps, delta)
    floor = epsilon_lower_bound(run, delta) if lower else None
    past_plateau = level is not None and level.n_steps is not None and steps >= level.n_steps
    try:
        guarantee = account(**({**run, "theorem": Composition.name} if past_plateau else run))
    except (AssumptionFailed, NotPrivateError):
        return CurveRow(steps=steps, lower=floor)
    composition = composition_epsilon(guarantee, steps, delta)
    bound, theorem = guarantee.epsilon(delta), guarantee.theorem
    if past_plateau and level is not None and level.epsilon < bound:
        bound, theorem = level.epsilon, level.theorem
    return CurveRow(
        steps=steps,
        composition=_finite_or_none(composition),
        bound=_finite_or_none(bound),
        lower=floor,
        theorem=theorem,
    )


def curve_rows(options: Options, steps: Iterable[float], delta: float) -> list[CurveRow]:
    """Return one row per number of steps."""
    return [curve_row(options, count, delta) for count in steps]


def step_grid(options: Options, last: float, points: int) -> tuple[int, ...]:
    """Return increasing numbers of steps, evenly spaced on a log axis; whole epochs for cyclic or shuffled batches."""
    epoch = steps_per_epoch(options)
    ratio = math.ceil(last / epoch) ** (1 / max(points - 1, 1))
    return tuple(sorted({epoch * round(ratio**i) for i in range(points)}))


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


_N_POINTS, _N_LOWER_POINTS, _STEPS_FOR_INFINITE_RUNS, _MAX_STEPS = 17, 5, 1000, 10**5


def steps_rows(plan: CertifiedSpec, delta: float, rows_per_person: int = 1) -> list[CurveRow]:
    """Return rows for up to three times the plan's number of steps.

    None for plans without steps, and for those whose first steps set the noise of the others, so that any number of
    them costs the same.
    """
    spec: Any = plan.spec
    steps = getattr(spec, "n_steps", None)
    if steps is None or not 0 < delta < 1 or getattr(spec, "checkpoints", None):
        return []
    if getattr(spec, "n_approach_steps", 0):
        return []
    varying = isinstance(spec.step_size, tuple) or isinstance(spec.noise_std, tuple)
    last = _STEPS_FOR_INFINITE_RUNS if math.isinf(steps) else int(steps) * (1 if varying else 3)
    epoch = 1
    if getattr(spec, "sampling", "full") in ("cyclic", "shuffle"):
        epoch = math.ceil(plan.constants.n / spec.divisor(plan.constants.n))
        epoch = 1 if epoch > last else epoch
    ratio = (last / epoch) ** (1 / (_N_POINTS - 1))
    grid = {epoch * max(1, round(ratio**i)) for i in range(_N_POINTS)}
    if math.isfinite(steps):
        grid.add(int(steps))
    counts = sorted(count for count in grid if count <= last)
    lower = set(counts[:: max(1, len(counts) // _N_LOWER_POINTS)]) | {
        int(steps) if math.isfinite(steps) else 0
    }
    return [_steps_row(plan, count, delta, rows_per_person, lower=count in lower) for count in counts]


def plan_with_steps(plan: CertifiedSpec, steps: float) -> Any:
    """Return the plan's spec with another number of steps."""
    spec: Any = plan.spec.to_descent() if isinstance(plan.spec, LangevinSpec) else plan.spec
    changes: dict[str, Any] = {"n_steps": steps}
    for name in ("step_size", "noise_std"):
        if isinstance(getattr(spec, name), tuple):
            changes[name] = getattr(spec, name)[: int(steps)]
    if getattr(spec, "average_from", 0):
        changes["average_from"] = min(spec.average_from, int(steps) - 1)
    return replace(spec, **changes)


def plan_lower_bound(plan: CertifiedSpec, steps: float, delta: float) -> float | None:
    """Return an epsilon that some run with these public parameters attains; None where no exact bound is known."""
    if not isinstance(plan.spec, NoisyGradientSpec) or not 0 < delta < 1 or _MAX_STEPS < steps < math.inf:
        return None
    try:
        return lower_bound_epsilon(plan.constants, plan_with_steps(plan, steps), delta)
    except DplangevinError:
        return None


def _steps_row(
    plan: CertifiedSpec, steps: int, delta: float, rows_per_person: int, *, lower: bool
) -> CurveRow:
    epsilons: dict[str, float | None] = {}
    composition = plain_composition_theorem(type(plan.spec))
    for key, name in (("bound", plan.theorem), ("composition", composition)):
        epsilons[key] = None
        if name is None:
            continue
        try:
            theorem = theorems_for(type(plan.spec))[name]
            guarantee: Guarantee = theorem.certify(plan.constants, plan_with_steps(plan, steps))
            value = guarantee.group(rows_per_person).epsilon(delta)
        except DplangevinError:
            continue
        epsilons[key] = value if math.isfinite(value) else None
    floor = plan_lower_bound(plan, steps, delta) if lower and rows_per_person == 1 else None
    return CurveRow(steps=steps, lower=floor, theorem=plan.theorem or "", **epsilons)
