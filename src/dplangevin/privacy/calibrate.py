"""calibrate: the least noise, or the most steps, for a guarantee; rounded to the private side and certified again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.privacy.accountant import certify_other, described, described_other
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.other_runs import OTHER_MECHANISMS, Described, knob_of
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.registry import THEOREMS, theorem_named
from dplangevin.privacy.target import Target, target
from dplangevin.privacy.theorem import Theorem
from dplangevin.privacy.theorems.generalized_gaussian import NoisyAnswers
from dplangevin.problem.constants import Constants
from dplangevin.problem.problem import Problem
from dplangevin.schedules import NoisyGradientSchedule

QUICK = 1e-9
PATIENT = 1e-3
SLOW_THEOREMS = ("block-recursion", "dobrushin", "participation-start", "block-sgd")
MONOTONE_IN_STEPS = ("composition", "optimal-shift", "hidden-state-sgd")


def calibrate(
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    rdp: tuple[float, float] | None = None,
    mu: float | None = None,
    zcdp: float | None = None,
    theorem: str | None = None,
    steps: int | float | None = None,
    **options: object,
) -> Plan | AnswersPlan:
    """The plan with the least noise that meets the target, or, given noise_scale and no steps, the most steps.

    The target is (epsilon, delta), or rdp = (order, value), or mu, or zcdp; with those delta only says where epsilon is
    reported (default 1e-6). Other options are those of `account`, mechanism included; steps may be infinity. For
    mechanisms without steps the number that is found is left out: noise_scale, or inverse_temperature.

    Examples
    --------
    >>> from dplangevin import calibrate
    >>> plan = calibrate(n=10_000, lipschitz=1.0, smoothness=0.26, strong_convexity=0.01, step_size=1.0,
    ...                  steps=float("inf"), epsilon=1.0, delta=1e-6)
    >>> round(plan.schedule.noise_scale, 6), plan.guarantee.theorem
    (0.011919, 'optimal-shift')
    """
    mechanism = options.get("mechanism")
    wanted = target(
        epsilon=epsilon, delta=delta, rdp=rdp, mu=mu, zcdp=zcdp, pure=mechanism in OTHER_MECHANISMS
    )
    if mechanism in OTHER_MECHANISMS:
        if steps is not None:
            raise InvalidParameter(f"steps has no meaning for mechanism={mechanism!r}; leave it out.")
        return _other(wanted, theorem, options)
    noise = options.pop("noise_scale", None)
    if steps is None and noise is None:
        raise InvalidParameter(
            "give steps to get the least noise_scale, or noise_scale to get the most steps."
        )
    if steps is not None and noise is not None:
        raise InvalidParameter(
            "noise_scale and steps are both given, so nothing is left to find; use account."
        )
    start = 1.0 if noise is None else noise
    constants, schedule = described({"noise_scale": start, "steps": 1 if steps is None else steps, **options})
    if steps is None:
        return most_steps(constants, schedule, wanted=wanted, theorem=theorem)
    return least_noise(constants, schedule, wanted=wanted, theorem=theorem)


@dataclass(frozen=True, kw_only=True)
class AnswersPlan:
    """Noise for counting queries with its guarantee."""

    noise: NoisyAnswers
    guarantee: Guarantee


def _other(wanted: Target, theorem: str | None, options: dict[str, object]) -> Plan | AnswersPlan:
    """The least noise (or the highest inverse temperature) of a mechanism without steps."""
    knob = knob_of(options["mechanism"])
    if options.get(knob.name) is not None:
        raise InvalidParameter(f"{knob.name} is what calibrate finds; leave it out, or use account.")

    def run(factor: float) -> Described:
        return described_other({**options, knob.name: knob.at(factor)})

    def cost(factor: float) -> float:
        return wanted.cost(certify_other(*run(factor), delta=wanted.delta, theorem=theorem))

    high, rounds = 1.0, 0
    spent = cost(high)
    while not spent <= wanted.goal:
        high, rounds = high * (4 if rounds < 6 else 100), rounds + 1
        if rounds > 40:
            raise CalibrationFailed(f"no {knob.name} reaches {wanted}; change the bounds or the target.")
        spent = cost(high)
    numeric = options["mechanism"] == "rashomon" or options.get("p", 2) not in (1, 2)
    constants, subject = run(_descend(cost, high, spent, wanted.goal, PATIENT if numeric else QUICK))
    if isinstance(subject, NoisyAnswers):
        return AnswersPlan(noise=subject, guarantee=certify_other(None, subject, delta=wanted.delta))
    assert constants is not None
    return Plan(schedule=subject, delta=wanted.delta, theorem=theorem, constants=constants)


def least_noise(
    constants: Constants,
    schedule: NoisyGradientSchedule,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    theorem: str | None = None,
    problem: Problem | None = None,
    wanted: Target | None = None,
) -> Plan:
    """The plan with the least noise meeting the target; a varying noise keeps its shape and is scaled."""
    wanted = wanted or target(epsilon=epsilon, delta=delta)
    names = [theorem_named(theorem, schedule).name] if theorem is not None else list(THEOREMS)
    best: tuple[float, str] | None = None
    reasons: list[str] = []
    refused = False
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        try:
            factor = _least_factor(
                THEOREMS[name], constants, schedule, wanted, None if best is None else best[0]
            )
        except (AssumptionFailed, CalibrationFailed) as error:
            reasons.append(str(error))
            refused = isinstance(error, AssumptionFailed)
            continue
        if factor is not None and (best is None or factor < best[0]):
            best = (factor, name)
    if best is None:
        if theorem is not None and refused:
            raise AssumptionFailed(reasons[0])
        raise CalibrationFailed("no theorem covers this run at any noise: " + " ".join(reasons))
    plan = _plan(constants, _scaled(schedule, best[0]), wanted.delta, best[1], problem)
    if not wanted.cost(plan.guarantee) <= wanted.goal:
        raise CalibrationFailed(f"the calibrated run spends {wanted.cost(plan.guarantee)!r}, not {wanted}.")
    return plan


def _plan(
    constants: Constants, schedule: NoisyGradientSchedule, delta: float, theorem: str, problem: Problem | None
) -> Plan:
    return Plan(
        schedule=schedule,
        delta=delta,
        theorem=theorem,
        problem=problem,
        constants=None if problem else constants,  # type: ignore[arg-type]
    )


def _scaled(schedule: NoisyGradientSchedule, factor: float) -> NoisyGradientSchedule:
    noise = schedule.noise_scale
    scaled = tuple(factor * value for value in noise) if isinstance(noise, tuple) else factor * noise
    return replace(schedule, noise_scale=scaled)


def _least_factor(
    theorem: Theorem,
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
    return _descend(cost, high, spent, wanted.goal, PATIENT if slow else QUICK)


def _guess(constants: Constants, schedule: NoisyGradientSchedule, epsilon: float) -> float:
    """Noise of the order of one step's sensitivity over epsilon."""
    largest = max(schedule.noise_scale) if isinstance(schedule.noise_scale, tuple) else schedule.noise_scale
    return constants.gradient_sensitivity / (schedule.divisor(constants.n) * min(epsilon, 10.0) * largest)


def _descend(
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
    constants: Constants,
    schedule: NoisyGradientSchedule,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    theorem: str | None = None,
    problem: Problem | None = None,
    wanted: Target | None = None,
) -> Plan:
    """The plan with the most steps meeting the target at the given noise; infinity when the bound stays below.

    Searched by bisection only where the bound is monotone in the number of steps.
    """
    wanted = wanted or target(epsilon=epsilon, delta=delta)
    if not schedule.constant:
        raise InvalidParameter(
            "the most steps of a varying schedule are not defined; use one step_size and noise_scale."
        )
    names = [theorem_named(theorem, schedule).name] if theorem is not None else list(THEOREMS)
    length = (
        math.ceil(constants.n / schedule.divisor(constants.n))
        if schedule.sampling in ("cyclic", "shuffle")
        else 1
    )
    best: tuple[float, str] | None = None
    for name in sorted(names, key=lambda item: item in SLOW_THEOREMS):
        count = _most(THEOREMS[name], constants, schedule, wanted, length)
        if count > 0 and (best is None or count > best[0]):
            best = (count, name)
        if best is not None and math.isinf(best[0]):
            break
    if best is None:
        raise CalibrationFailed(
            f"not even {'one epoch' if length > 1 else 'one step'} meets {wanted}; raise noise_scale or {wanted.name}."
        )
    return _plan(constants, replace(schedule, n_steps=best[0]), wanted.delta, best[1], problem)


def _most(
    theorem: Theorem,
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
    low, high = 1, 2
    while fits(high * length):
        low, high = high, 2 * high
        if high > 2**60:
            return low * length
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle * length) else (low, middle)
    return low * length
