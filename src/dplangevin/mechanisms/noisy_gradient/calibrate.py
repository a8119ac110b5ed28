"""Calibration of noisy gradient runs: the least noise or the most steps, rounded to the private side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dplangevin._search import bisect_integers, expand_bracket
from dplangevin.accounting.plan import CertifiedSpec, Plan, format_refusals
from dplangevin.accounting.registry import find_theorem, theorems_for
from dplangevin.accounting.target import PrivacyTarget, make_target
from dplangevin.accounting.theorem import Theorem
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Problem

P = TypeVar("P", bound=CertifiedSpec)
FAST_TOLERANCE = 1e-9
SLOW_TOLERANCE = 1e-3
SLOW_THEOREMS = ("block-recursion", "dobrushin", "participation-start", "block-sgd")
STEP_MONOTONE_THEOREMS = ("composition", "optimal-shift", "hidden-state-sgd")


def calibrate_noise(
    constants: Constants, spec: NoisyGradientSpec, target: PrivacyTarget, theorem: str | None
) -> CertifiedSpec:
    """Return the certified spec with the least noise that meets the target; per-step noise is scaled as a whole."""
    calibrated, name = _find_least_noise(constants, spec, target, theorem)
    return _check_target_met(
        CertifiedSpec(constants=constants, spec=calibrated, delta=target.delta, theorem=name), target
    )


def calibrate_plan(
    problem: Problem,
    spec: NoisyGradientSpec,
    *,
    epsilon: float,
    delta: float,
    theorem: str | None = None,
) -> Plan:
    """Return the plan, for a problem, with the least noise that meets (epsilon, delta); see `calibrate_noise`."""
    target_cost = make_target(epsilon=epsilon, delta=delta)
    calibrated, name = _find_least_noise(problem.constants, spec, target_cost, theorem)
    return _check_target_met(Plan(problem=problem, spec=calibrated, delta=delta, theorem=name), target_cost)


def _check_target_met(plan: P, target: PrivacyTarget) -> P:
    if not target.cost(plan.guarantee) <= target.goal:
        raise CalibrationFailed(f"the calibrated run spends {target.cost(plan.guarantee)!r}, not {target}.")
    return plan


def _find_least_noise(
    constants: Constants, spec: NoisyGradientSpec, target: PrivacyTarget, theorem: str | None
) -> tuple[NoisyGradientSpec, str]:
    """Return the spec with the least noise, and the name of the theorem that certifies it."""
    names = [*theorems_for(type(spec))] if theorem is None else [find_theorem(theorem, type(spec)).name]
    best: tuple[float, str] | None = None
    reasons: dict[str, str] = {}
    refused = False
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        try:
            factor = _find_least_factor(
                find_theorem(name, type(spec)),
                constants,
                spec,
                target,
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
        raise CalibrationFailed(
            "\n - ".join(("no theorem covers this run at any noise:", *format_refusals(reasons)))
        )
    return _scale_noise(spec, best[0]), best[1]


def _scale_noise(spec: NoisyGradientSpec, factor: float) -> NoisyGradientSpec:
    noise = spec.noise_std
    scaled = tuple(factor * value for value in noise) if isinstance(noise, tuple) else factor * noise
    return replace(spec, noise_std=scaled)


def _find_least_factor(
    theorem: Theorem[NoisyGradientSpec],
    constants: Constants,
    spec: NoisyGradientSpec,
    target: PrivacyTarget,
    best_factor: float | None,
) -> float | None:
    """Return the smallest factor on the noise found to meet the target; None if not below `best_factor`."""

    def cost(factor: float) -> float:
        return target.cost(theorem.certify(constants, _scale_noise(spec, factor)))

    slow = theorem.name in SLOW_THEOREMS or spec.sampling in ("without-replacement", "poisson")
    high = best_factor if best_factor is not None and slow else _guess_factor(constants, spec, target.goal)
    spent = cost(high)
    if best_factor is not None and slow and spent > target.goal:
        return None
    rounds = 0
    while not spent <= target.goal:
        high, rounds = high * (4 if rounds < 6 else 100), rounds + 1
        if rounds > 40:
            raise CalibrationFailed(f"{theorem.name} reaches no {target} at any noise.")
        spent = cost(high)
    return bisect_cost(cost, high, spent, target.goal, SLOW_TOLERANCE if slow else FAST_TOLERANCE)


def _guess_factor(constants: Constants, spec: NoisyGradientSpec, epsilon: float) -> float:
    """Return a first guess: noise of the order of one step's sensitivity over epsilon."""
    largest = max(spec.noise_std) if isinstance(spec.noise_std, tuple) else spec.noise_std
    return constants.gradient_sensitivity / (spec.divisor(constants.n) * min(epsilon, 10.0) * largest)


def bisect_cost(
    cost: Callable[[float], float], high: float, spent: float, target: float, tolerance: float
) -> float:
    """Find, by bisection in log scale from `high`, a small factor that was checked to meet the target."""
    ratio = 2.0
    low = high / ratio
    cost_at_low = cost(low)
    while cost_at_low <= target:
        if cost_at_low == 0 and low < 1e-12 * high:
            break
        high, spent = low, cost_at_low
        ratio = min(ratio * ratio, 1e6)
        low = high / ratio
        if low < 1e-250:
            raise CalibrationFailed("the target is met without any noise; check the bounds.")
        cost_at_low = cost(low)
    while high > low * (1 + tolerance):
        middle = math.sqrt(low * high)
        if 0 < spent < math.inf and 0 < cost_at_low < math.inf and cost_at_low > target:
            # epsilon is close to a power of the noise: interpolate, kept inside the bracket
            slope = math.log(cost_at_low / spent) / math.log(high / low)
            step = math.log(target / spent) / slope if slope > 0 else 0.0
            guess = high * math.exp(-step * (1 - 1e-3)) if step > 0 else high
            inside = low * (high / low) ** 0.02 < guess < high * (low / high) ** 0.02
            middle = guess if inside else middle
        value = cost(middle)
        if value <= target:
            high, spent = middle, value
        else:
            low, cost_at_low = middle, value
        if high <= low * (1 + 4e-16):
            break
    return high


def calibrate_steps(
    constants: Constants, spec: NoisyGradientSpec, target: PrivacyTarget, theorem: str | None
) -> CertifiedSpec:
    """Return the certified spec with the most steps that meets the target; infinity if any number of steps does.

    Bisection is used only for theorems whose bound is monotone in the number of steps.
    """
    if not spec.is_constant:
        raise InvalidParameter(
            "the most steps are not defined for varying step size or noise; use one step_size and one noise_std."
        )
    names = (
        [find_theorem(theorem, type(spec)).name]
        if theorem is not None
        else [*theorems_for(NoisyGradientSpec)]
    )
    length = (
        math.ceil(constants.n / spec.divisor(constants.n)) if spec.sampling in ("cyclic", "shuffle") else 1
    )
    best: tuple[float, str] | None = None
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        count = _find_max_steps(find_theorem(name, NoisyGradientSpec), constants, spec, target, length)
        if count > 0 and (best is None or count > best[0]):
            best = (count, name)
        if best is not None and math.isinf(best[0]):
            break
    if best is None:
        raise CalibrationFailed(
            f"not even {'one epoch' if length > 1 else 'one step'} meets {target}; raise noise_std or {target.name}."
        )
    return CertifiedSpec(
        constants=constants, spec=replace(spec, n_steps=best[0]), delta=target.delta, theorem=best[1]
    )


def _find_max_steps(
    theorem: Theorem[NoisyGradientSpec],
    constants: Constants,
    spec: NoisyGradientSpec,
    target: PrivacyTarget,
    length: int,
) -> float:
    def meets_target(count: float) -> bool:
        try:
            guarantee = theorem.certify(constants, replace(spec, n_steps=count))
        except AssumptionFailed:
            return False
        return target.cost(guarantee) <= target.goal

    if meets_target(math.inf):
        return math.inf
    if (theorem.name not in STEP_MONOTONE_THEOREMS and length == 1) or not meets_target(length):
        return 0
    failing_epochs = expand_bracket(lambda epochs: not meets_target(epochs * length), 2, 2**60)
    if failing_epochs is None:
        return 2**60 * length
    return (
        bisect_integers(lambda epochs: meets_target(epochs * length), failing_epochs // 2, failing_epochs)
        * length
    )
