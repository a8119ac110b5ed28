"""Epsilon against the number of steps: rows of answers of the accountant, to be drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dplangevin.errors import AssumptionFailed, NotPrivateError
from dplangevin.families.account import account
from dplangevin.families.noisy_gradient import lower_bounds
from dplangevin.families.noisy_gradient.options import described
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems.composition import Composition
from dplangevin.families.plateau import Options, Plateau, at_steps, epoch_steps, plateau, varies
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import Constants

_TOO_LONG = 10**7  # the exact law of an unbounded walk is summed step by step

__all__ = [
    "CurveRow", "Plateau", "at_steps", "composition_epsilon", "describe", "lower_bound", "plateau", "row", "rows",
    "step_grid", "varies",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CurveRow:
    """Epsilon after `steps` steps by each account; None where an account has nothing to say."""

    steps: float
    composition: float | None = None
    bound: float | None = None
    lower: float | None = None
    theorem: str = ""


def describe(options: Options) -> tuple[Constants, NoisyGradientSchedule]:
    """The public values of a run, from the options of `account`."""
    return described(options)


def composition_epsilon(guarantee: Guarantee, steps: float, delta: float) -> float | None:
    """Epsilon of plain composition of the same run: infinite for infinitely many steps, None where unknown."""
    if math.isinf(steps):
        return math.inf
    beside = guarantee if guarantee.theorem == Composition.name else guarantee.composition
    return beside.epsilon(delta) if beside is not None and 0 < delta < 1 else None


def lower_bound(options: Options, delta: float) -> float | None:
    """Epsilon that some run with these public numbers really has; None when no exact walk is known."""
    if not 0 < delta < 1 or _TOO_LONG < options["steps"] < math.inf:
        return None
    return lower_bounds.lower_bound_epsilon(*describe(options), delta)


def row(
    options: Options, steps: float, delta: float, *, lower: bool = True, level: Plateau | None = None
) -> CurveRow:
    """The three accounts of a run of `steps` steps.

    Past a known plateau its epsilon stands for every number of steps, and only composition is asked again.
    """
    run = at_steps(options, steps, delta)
    floor = lower_bound(run, delta) if lower else None
    past = level is not None and level.steps is not None and steps >= level.steps
    try:
        guarantee = account(**({**run, "theorem": Composition.name} if past else run))
    except (AssumptionFailed, NotPrivateError):
        return CurveRow(steps=steps, lower=floor)
    beside = composition_epsilon(guarantee, steps, delta)
    bound, theorem = guarantee.epsilon(delta), guarantee.theorem
    if past and level is not None and level.epsilon < bound:
        bound, theorem = level.epsilon, level.theorem
    return CurveRow(
        steps=steps, composition=_finite(beside), bound=_finite(bound), lower=floor, theorem=theorem
    )


def rows(options: Options, steps: Iterable[float], delta: float) -> list[CurveRow]:
    """One row per number of steps."""
    return [row(options, count, delta) for count in steps]


def step_grid(options: Options, last: float, points: int) -> tuple[int, ...]:
    """Increasing steps, evenly spaced on a log axis; whole epochs where a record takes part once an epoch."""
    epoch = epoch_steps(options)
    ratio = math.ceil(last / epoch) ** (1 / max(points - 1, 1))
    return tuple(sorted({epoch * round(ratio**i) for i in range(points)}))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
