"""Epsilon against the number of steps: rows of questions to the accountant, and where they stop growing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dplangevin.errors import AssumptionFailed, NotPrivateError
from dplangevin.privacy import accountant, lower_bounds
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import Constants
from dplangevin.schedules import NoisyGradientSchedule

Options = Mapping[str, Any]
_TARGETS = ("epsilon", "rdp", "mu", "zcdp")
_FAR = 10**9
_TOO_LONG = 10**7  # the exact law of an unbounded walk is summed step by step
_NEARLY = 0.99


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """Where more steps stop costing privacy: from about `steps` on, at `epsilon`, by `theorem`."""

    epsilon: float
    theorem: str
    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """Epsilon after `steps` steps by each account; None where an account has nothing to say."""

    steps: float
    composition: float | None = None
    bound: float | None = None
    lower: float | None = None
    theorem: str = ""


def describe(options: Options) -> tuple[Constants, NoisyGradientSchedule]:
    """The public values of a run, from the options of `account`."""
    return accountant.described(options)


def varies(options: Options) -> bool:
    """True when step size or noise is stated per step, so that another number of steps has no meaning."""
    return not all(isinstance(options.get(name), int | float) for name in ("step_size", "noise_scale"))


def at_steps(options: Options, steps: float, delta: float) -> dict[str, Any]:
    """The same question about another number of steps."""
    return {
        **{name: value for name, value in options.items() if name not in _TARGETS},
        "steps": steps,
        "delta": delta,
    }


def composition_epsilon(guarantee: Guarantee, steps: float, delta: float) -> float | None:
    """Epsilon of plain composition of the same run: infinite for infinitely many steps, None where unknown."""
    if math.isinf(steps):
        return math.inf
    beside = guarantee if guarantee.theorem == "composition" else guarantee.composition
    return beside.epsilon(delta) if beside is not None and 0 < delta < 1 else None


def lower_bound(options: Options, delta: float) -> float | None:
    """Epsilon that some run with these public numbers really has; None when no exact walk is known."""
    if not 0 < delta < 1 or _TOO_LONG < options["steps"] < math.inf:
        return None
    return lower_bounds.lower_bound_epsilon(*describe(options), delta)


def row(
    options: Options, steps: float, delta: float, *, lower: bool = True, level: Plateau | None = None
) -> Row:
    """The three accounts of a run of `steps` steps.

    Past a known plateau its epsilon stands for every number of steps, and only composition is asked again.
    """
    run = at_steps(options, steps, delta)
    floor = lower_bound(run, delta) if lower else None
    past = level is not None and level.steps is not None and steps >= level.steps
    try:
        guarantee = accountant.account(**({**run, "theorem": "composition"} if past else run))
    except (AssumptionFailed, NotPrivateError):
        return Row(steps=steps, lower=floor)
    beside = composition_epsilon(guarantee, steps, delta)
    bound, theorem = guarantee.epsilon(delta), guarantee.theorem
    if past and level is not None and level.epsilon < bound:
        bound, theorem = level.epsilon, level.theorem
    return Row(steps=steps, composition=_finite(beside), bound=_finite(bound), lower=floor, theorem=theorem)


def rows(options: Options, steps: Iterable[float], delta: float) -> list[Row]:
    """One row per number of steps."""
    return [row(options, count, delta) for count in steps]


def step_grid(options: Options, last: float, points: int) -> tuple[int, ...]:
    """Increasing steps, evenly spaced on a log axis; whole epochs where a record takes part once an epoch."""
    epoch = _epoch(options)
    ratio = math.ceil(last / epoch) ** (1 / max(points - 1, 1))
    return tuple(sorted({epoch * round(ratio**i) for i in range(points)}))


def plateau(options: Options, delta: float) -> Plateau | None:
    """The epsilon that holds for every number of steps, and about where it is reached; None without one."""
    if not 0 < delta < 1 or options.get("release", "last-iterate") != "last-iterate" or varies(options):
        return None
    try:
        guarantee = accountant.account(**at_steps(options, math.inf, delta))
    except (AssumptionFailed, NotPrivateError):
        return None
    limit = guarantee.epsilon(delta)
    if not math.isfinite(limit):
        return None
    return Plateau(epsilon=limit, theorem=guarantee.theorem, steps=_first_near(options, delta, limit))


def _first_near(options: Options, delta: float, limit: float) -> int | None:
    """About the smallest number of steps that costs 99% of the limit; None when it is out of sight."""
    epoch = _epoch(options)

    def near(count: int) -> bool:
        run = at_steps(options, count * epoch, delta)
        if (
            options.get("theorem") is None
        ):  # the cheaper question first: the best answer is never above composition
            plain = accountant.account(**{**run, "theorem": "composition"})
            if plain.epsilon(delta) < _NEARLY * limit:
                return False
        return accountant.account(**run).epsilon(delta) >= _NEARLY * limit

    high = 1
    while not near(high):
        high *= 10
        if high * epoch > _FAR:
            return None
    low = max(high // 10, 1)
    while high - low > max(1, low // 20):
        middle = round(math.sqrt(low * high))
        if middle in (low, high):
            break
        low, high = (low, middle) if near(middle) else (middle, high)
    return _two_digits(high) * epoch


def _two_digits(count: int) -> int:
    """Rounded up to two digits: 5233 -> 5300."""
    unit = int(10 ** max(len(str(count)) - 2, 0))
    return -(-count // unit) * unit


def _epoch(options: Options) -> int:
    if options.get("sampling", "full") not in ("cyclic", "shuffle"):
        return 1
    return math.ceil(float(options["n"]) / float(options["batch_size"]))


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
