"""The least noise, or the most steps, of a noisy gradient run; rounded to the private side and certified again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dplangevin._search import grown_until, whole_bisected
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.plan import Plan, Price, told
from dplangevin.privacy.registry import theorem_named, theorems_for
from dplangevin.privacy.target import Target, target
from dplangevin.privacy.theorem import Theorem
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Problem

P = TypeVar("P", bound=Price)
QUICK = 1e-9
PATIENT = 1e-3
SLOW_THEOREMS = ("block-recursion", "dobrushin", "participation-start", "block-sgd")
MONOTONE_IN_STEPS = ("composition", "optimal-shift", "hidden-state-sgd")


def least_noise(
    constants: Constants, schedule: NoisyGradientSchedule, wanted: Target, theorem: str | None
) -> Price:
    """The price with the least noise meeting the target; a varying noise keeps its shape and is scaled."""
    found, name = _least(constants, schedule, wanted, theorem)
    return _met(Price(constants=constants, schedule=found, delta=wanted.delta, theorem=name), wanted)


def least_noise_plan(
    problem: Problem,
    schedule: NoisyGradientSchedule,
    *,
    epsilon: float,
    delta: float,
    theorem: str | None = None,
) -> Plan:
    """As least_noise, for a problem: a plan that can run."""
    wanted = target(epsilon=epsilon, delta=delta)
    found, name = _least(problem.constants, schedule, wanted, theorem)
    return _met(Plan(problem=problem, schedule=found, delta=delta, theorem=name), wanted)


def _met(plan: P, wanted: Target) -> P:
    if not wanted.cost(plan.guarantee) <= wanted.goal:
        raise CalibrationFailed(f"the calibrated run spends {wanted.cost(plan.guarantee)!r}, not {wanted}.")
    return plan


def _least(
    constants: Constants, schedule: NoisyGradientSchedule, wanted: Target, theorem: str | None
) -> tuple[NoisyGradientSchedule, str]:
    """The schedule with the least noise, and the theorem that allows it."""
    names = (
        [*theorems_for(type(schedule))] if theorem is None else [theorem_named(theorem, type(schedule)).name]
    )
    best: tuple[float, str] | None = None
    reasons: dict[str, str] = {}
    refused = False
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        try:
            factor = _least_factor(
                theorem_named(name, type(schedule)),
                constants,
                schedule,
                wanted,
                None if best is None else best[0],
            )
        except (AssumptionFailed, CalibrationFailed) as error:
            reasons[name] = str(error)
            refused = isinstance(error, AssumptionFailed)
            continue
        if factor is not None and (best is None or factor < best[0]):
            best = (factor, name)
    if best is None:
        if theorem is not None and refused:
            raise AssumptionFailed(reasons[names[0]])
        raise CalibrationFailed("\n - ".join(("no theorem covers this run at any noise:", *told(reasons))))
    return _scaled(schedule, best[0]), best[1]


def _scaled(schedule: NoisyGradientSchedule, factor: float) -> NoisyGradientSchedule:
    noise = schedule.noise_std
    scaled = tuple(factor * value for value in noise) if isinstance(noise, tuple) else factor * noise
    return replace(schedule, noise_std=scaled)


def _least_factor(
    theorem: Theorem[NoisyGradientSchedule],
    constants: Constants,
    schedule: NoisyGradientSchedule,
    wanted: Target,
    known: float | None,
) -> float | None:
    """Smallest factor on the noise found to meet the target, or None when `known` cannot be improved."""

    def cost(factor: float) -> float:
        return wanted.cost(theorem.certify(constants, _scaled(schedule, factor)))

    slow = theorem.name in SLOW_THEOREMS or schedule.sampling in ("without-replacement", "poisson")
    high = known if known is not None and slow else _guess(constants, schedule, wanted.goal)
    spent = cost(high)
    if known is not None and slow and spent > wanted.goal:
        return None
    rounds = 0
    while not spent <= wanted.goal:
        high, rounds = high * (4 if rounds < 6 else 100), rounds + 1
        if rounds > 40:
            raise CalibrationFailed(f"{theorem.name} reaches no {wanted} at any noise.")
        spent = cost(high)
    return descend(cost, high, spent, wanted.goal, PATIENT if slow else QUICK)


def _guess(constants: Constants, schedule: NoisyGradientSchedule, epsilon: float) -> float:
    """Noise of the order of one step's sensitivity over epsilon."""
    largest = max(schedule.noise_std) if isinstance(schedule.noise_std, tuple) else schedule.noise_std
    return constants.gradient_sensitivity / (schedule.divisor(constants.n) * min(epsilon, 10.0) * largest)


def descend(
    cost: Callable[[float], float], high: float, spent: float, target: float, tolerance: float
) -> float:
    """Bisection (in log) from a factor that meets the target; the returned factor has been checked to meet it."""
    ratio = 2.0
    low = high / ratio
    below = cost(low)
    while below <= target:
        if below == 0 and low < 1e-12 * high:
            break
        high, spent = low, below
        ratio = min(ratio * ratio, 1e6)
        low = high / ratio
        if low < 1e-250:
            raise CalibrationFailed("the target is met with no noise at all; check the bounds.")
        below = cost(low)
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        if 0 < spent < math.inf and 0 < below < math.inf and below > target:
            # epsilon is close to a power of the noise: interpolate, kept inside the bracket
            slope = math.log(below / spent) / math.log(high / low)
            step = math.log(target / spent) / slope if slope > 0 else 0.0
            guess = high * math.exp(-step * (1 - 1e-3)) if step > 0 else high
            inside = low * (high / low) ** 0.02 < guess < high * (low / high) ** 0.02
            middle = guess if inside else middle
        value = cost(middle)
        if value <= target:
            high, spent = middle, value
        else:
            low, below = middle, value
        if high <= low * (1 + 4e-16):
            break
    return high


def most_steps(
    constants: Constants, schedule: NoisyGradientSchedule, wanted: Target, theorem: str | None
) -> Price:
    """The price with the most steps meeting the target at the given noise; infinity when the bound stays below.

    Searched by bisection only where the bound is monotone in the number of steps.
    """
    if not schedule.constant:
        raise InvalidParameter(
            "the most steps of a varying schedule are not defined; use one step_size and noise_std."
        )
    names = (
        [theorem_named(theorem, type(schedule)).name]
        if theorem is not None
        else [*theorems_for(NoisyGradientSchedule)]
    )
    length = (
        math.ceil(constants.n / schedule.divisor(constants.n))
        if schedule.sampling in ("cyclic", "shuffle")
        else 1
    )
    best: tuple[float, str] | None = None
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        count = _most(theorem_named(name, NoisyGradientSchedule), constants, schedule, wanted, length)
        if count > 0 and (best is None or count > best[0]):
            best = (count, name)
        if best is not None and math.isinf(best[0]):
            break
    if best is None:
        raise CalibrationFailed(
            f"not even {'one epoch' if length > 1 else 'one step'} meets {wanted}; raise noise_std or {wanted.name}."
        )
    return Price(
        constants=constants, schedule=replace(schedule, n_steps=best[0]), delta=wanted.delta, theorem=best[1]
    )


def _most(
    theorem: Theorem[NoisyGradientSchedule],
    constants: Constants,
    schedule: NoisyGradientSchedule,
    wanted: Target,
    length: int,
) -> float:
    def fits(count: float) -> bool:
        try:
            guarantee = theorem.certify(constants, replace(schedule, n_steps=count))
        except AssumptionFailed:
            return False
        return wanted.cost(guarantee) <= wanted.goal

    if fits(math.inf):
        return math.inf
    if (theorem.name not in MONOTONE_IN_STEPS and length == 1) or not fits(length):
        return 0
    many = grown_until(lambda epochs: not fits(epochs * length), 2, 2**60)
    if many is None:
        return 2**60 * length
    return whole_bisected(lambda epochs: fits(epochs * length), many // 2, many) * length
