"""How much a run really leaks on an admissible worst case: lower bounds, never guarantees (L1).

The instance is one-dimensional: losses that are linear with slopes of at most L, plus the ridge of
curvature m, on an interval. The data sets differ in one record of slope +Delta/2 or -Delta/2 (replace-one),
or in one record of slope Delta that is present or absent (add-remove). The other records push with a common
drift, which is scanned. Every valid upper bound for the same constants is at least the value returned here.

Without a projection the path is Gaussian given the batches and the value is exact for the instance (`free_walk_bounds`
averages over random batches and secret orders); a projection that is almost never felt costs its probability;
otherwise the law is computed by `exact_walk`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.special import ndtr

from dplangevin import _check
from dplangevin.families.noisy_gradient.exact_walk import Maps, affine, epsilon_between, exact_laws
from dplangevin.families.noisy_gradient.free_walk_bounds import free_walk_epsilon
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy import conversions as cv
from dplangevin.problem.constants import Constants

Bound = Callable[[Constants, NoisyGradientSchedule, float], float | None]
WALKS = ("full", "without-replacement", "poisson")
"""Samplings whose walk on an interval is computed."""
_LOOKS = (0.2, 0.3, 0.4, 0.5, 0.65, 0.85, 1.2)
"""When an endless run is looked at, in units of the time (D / v)^2 that noise needs to cross the interval."""
WIDEST = 64.0
"""Largest D / v whose walk is computed (about 450 nodes); wider sets become a box with a shorter side."""


def lower_bound_epsilon(constants: Constants, schedule: NoisyGradientSchedule, delta: float) -> float | None:
    """An eps that no correct (eps, delta) claim about this run can be below; None when no instance is known.

    n_steps = infinity asks for claims that hold for every number of steps. Averages and momentum have no instance
    here. A walk stands for the last iterate (the last checkpoint) alone, which
    bounds checkpoints and trajectories too.

    Examples
    --------
    >>> constants = Constants(n=100, lipschitz=1.0, smoothness=1.0, strong_convexity=0.5)
    >>> schedule = NoisyGradientSchedule(step_size=0.2, noise_std=0.05, n_steps=50)
    >>> round(lower_bound_epsilon(constants, schedule, 1e-5), 3)
    8.4
    """
    _check.open_unit("delta", delta)
    if schedule.momentum or schedule.release == "average" or not _implemented(constants, schedule):
        return None
    schedule = _until_released(schedule)
    public = schedule.sampling == "full" or (schedule.sampling == "cyclic" and schedule.order == "public")
    free = _longest(_free_epsilon if public else free_walk_epsilon)
    found = [free(constants, schedule, delta)]
    if schedule.sampling in WALKS and schedule.constant and math.isfinite(constants.diameter):
        found.append(_walk_epsilon(constants, schedule, delta))
    known = [value for value in found if value is not None]
    return max(0.0, max(known) * (1 - 1e-9) - 1e-12) if known else None


def _longest(bound: Bound) -> Bound:
    """The bound; for an endless run on a bounded set the largest over numbers of steps: all have to be covered."""

    def best(constants: Constants, schedule: NoisyGradientSchedule, delta: float) -> float | None:
        if math.isfinite(schedule.n_steps) or math.isinf(constants.diameter):
            return bound(constants, schedule, delta)

        @cache
        def after(steps: int) -> float:
            return bound(constants, replace(schedule, n_steps=steps), delta) or 0.0

        crossing = min(constants.diameter**2 / _variance(schedule), 1e15)
        centre = max((max(int(crossing / 2**i), 1) for i in range(16)), key=after)
        low, high = max(centre // 2, 1), 2 * centre
        while high - low > 2:
            third = max((high - low) // 3, 1)
            if after(low + third) < after(high - third):
                low += third
            else:
                high -= third
        return max(after(steps) for steps in (low, low + 1, high, centre)) or None

    return best


def _implemented(constants: Constants, schedule: NoisyGradientSchedule) -> bool:
    return schedule.sampling in ("full", "poisson") or constants.adjacency == "replace-one"


def _until_released(schedule: NoisyGradientSchedule) -> NoisyGradientSchedule:
    """The run up to its last checkpoint: nothing later is seen."""
    if not schedule.checkpoints:
        return schedule
    last = schedule.checkpoints[-1]
    step, noise = schedule.step_size, schedule.noise_std
    return replace(
        schedule,
        n_steps=last,
        step_size=step[:last] if isinstance(step, tuple) else step,
        noise_std=noise[:last] if isinstance(noise, tuple) else noise,
    )


def _free_epsilon(constants: Constants, schedule: NoisyGradientSchedule, delta: float) -> float | None:
    """eps of the Gaussian path, less what the probability of ever meeting the projection can hide."""
    factor = float(np.max(np.abs(1 - np.asarray(schedule.step_size) * constants.strong_convexity)))
    if factor > 1:
        return None  # the path explodes
    if math.isinf(constants.diameter):
        mu = gaussian_mu(constants, schedule)
        return math.inf if math.isinf(mu) else cv.gdp_epsilon(mu, delta)
    mu = gaussian_mu(constants, schedule)
    met = projection_probability(constants, schedule)
    if not met < 0.5:
        return None
    cuts = np.linspace(-8, 38, 4001)  # the test of size Phi(-cut) and power Phi(mu - cut)
    gain = ndtr(mu - cuts) - met - delta
    ratio = np.where(gain > 0, gain, 0.0) / (ndtr(-cuts) + met + 1e-300)
    best = float(np.max(ratio))
    return math.log(best) if best > 1 else None


def _variance(schedule: NoisyGradientSchedule) -> float:
    """v^2, the largest variance of the noise on the iterate in one step."""
    return float(np.max(np.multiply(schedule.step_size, schedule.noise_std))) ** 2


def gaussian_mu(constants: Constants, schedule: NoisyGradientSchedule) -> float:
    """mu of the linear instance without projection; a cyclic run has the record in the last batch used.

    Last iterate: |sum C_t s_t| / sqrt(sum (C_t v_t)^2 + (C_0 start_scale)^2), C_t = prod_{i>t} (1 - eta_i m).
    Trajectory: sqrt(sum_t (s_t / v_t)^2). Checkpoints: the segments between them, from a common point each.
    """
    if math.isinf(schedule.n_steps):
        return _endless_mu(constants, schedule)
    return (_constant_mu if schedule.constant else _varying_mu)(constants, schedule)


def _constant_mu(constants: Constants, schedule: NoisyGradientSchedule) -> float:
    step, deviation, last = (
        float(np.max(schedule.step_size)),
        math.sqrt(_variance(schedule)),
        int(schedule.n_steps),
    )
    factor = 1 - step * constants.strong_convexity
    size = schedule.divisor(constants.n)
    shift, period = step * constants.gradient_sensitivity / size, math.ceil(constants.n / size)
    if schedule.release == "trajectory":
        uses, lost = 1 + (last - 1) // period, 0.0
        if (last - 1) % period == 0:  # the first step also carries the spread of the start
            lost = 1 - 1 / (1 + (factor * schedule.start_scale / deviation) ** 2)
        return math.sqrt(uses - lost) * shift / deviation
    total, begin, spread = 0.0, 0, schedule.start_scale
    for end in schedule.checkpoints or (last,):
        idle = (end - last) % period  # steps since the record was last used
        uses = max(0, (end - idle - begin - 1) // period + 1)
        mean = shift * factor**idle * _geometric(factor**period, uses)
        variance = deviation**2 * _geometric(factor**2, end - begin) + (factor ** (end - begin) * spread) ** 2
        total += mean**2 / variance
        begin, spread = end, 0.0
    return math.sqrt(total)


def _geometric(ratio: float, count: int) -> float:
    """1 + ratio + ... + ratio^(count - 1)."""
    return count if ratio == 1 else (1 - ratio**count) / (1 - ratio)


def _varying_mu(constants: Constants, schedule: NoisyGradientSchedule) -> float:
    steps = schedule.step_sizes()
    factors = 1 - steps * constants.strong_convexity
    noises = steps * schedule.noise_stds()
    size = schedule.divisor(constants.n)
    takes_part = (len(steps) - 1 - np.arange(len(steps))) % math.ceil(constants.n / size) == 0
    shifts = np.where(takes_part, steps * constants.gradient_sensitivity / size, 0.0)
    if schedule.release == "trajectory":
        noises[0] = math.hypot(noises[0], factors[0] * schedule.start_scale)
        return float(np.linalg.norm(shifts / noises))
    total, begin, spread = 0.0, 0, schedule.start_scale
    for end in schedule.checkpoints or (len(steps),):
        tail = np.append(np.cumprod(factors[begin:end][::-1])[::-1], 1.0)
        mean = float(tail[1:] @ shifts[begin:end])
        variance = float(np.sum((tail[1:] * noises[begin:end]) ** 2)) + (float(tail[0]) * spread) ** 2
        total += mean**2 / variance
        begin, spread = end, 0.0
    return math.sqrt(total)


def _endless_mu(constants: Constants, schedule: NoisyGradientSchedule) -> float:
    """What some number of steps attains or tends to; a schedule of infinitely many steps is constant."""
    step, noise = float(np.max(schedule.step_size)), float(np.max(schedule.noise_std))
    factor = 1 - step * constants.strong_convexity
    size = schedule.divisor(constants.n)
    ratio = constants.gradient_sensitivity / (size * noise)
    if factor == 1 or schedule.release == "trajectory":
        return math.inf
    if factor < 1e-12 - 1:
        return ratio / math.hypot(1.0, factor * schedule.start_scale / (step * noise))  # one step
    period = math.ceil(constants.n / size)
    return ratio / (1 - factor**period) * math.sqrt((1 - factor) * (1 + factor))


def projection_probability(constants: Constants, schedule: NoisyGradientSchedule) -> float:
    """Bound on the probability that either path ever leaves the interval, placed around both; |1 - eta m| <= 1.

    The two means are at most `reach` apart, so each has (D - reach) / 2 to either side. Without contraction a path
    exceeds a level with at most twice the probability of its end doing so (Levy); otherwise every step is charged.
    """
    if math.isinf(schedule.n_steps):
        return 1.0
    steps = np.asarray(schedule.step_size)
    size = schedule.divisor(constants.n)
    factor = float(np.max(np.abs(1 - steps * constants.strong_convexity)))
    period = math.ceil(constants.n / size)
    shift = float(np.max(steps)) * constants.gradient_sensitivity / size
    variances = np.multiply(steps, schedule.noise_std) ** 2
    reach, spread = math.ceil(schedule.n_steps / period) * shift, schedule.n_steps * float(np.mean(variances))
    if factor < 1:
        reach = min(reach, shift / (1 - factor**period))
        spread = min(spread, float(np.max(variances)) / (1 - factor**2))
    deviation = math.hypot(math.sqrt(spread), schedule.start_scale)
    times = 2.0 if constants.strong_convexity == 0 else schedule.n_steps + 1.0
    return min(1.0, 2 * times * float(ndtr((reach - constants.diameter) / 2 / deviation)))


def _walk_epsilon(constants: Constants, schedule: NoisyGradientSchedule, delta: float) -> float | None:
    """Best eps over a few common drifts of the walk on an interval, from its middle and from the end it drifts off.

    The set is any interval around the start, where the ridge has its minimum.
    """
    noise, n_steps = math.sqrt(_variance(schedule)), schedule.n_steps
    width = _width(constants, schedule, noise, n_steps)
    if width is None:
        return None
    factor = 1 - float(np.max(schedule.step_size)) * constants.strong_convexity
    crossing, settled = (width / noise) ** 2, False
    looks: list[tuple[float, Sequence[float]]] = [(0.0, (n_steps,)), (-width / 2, (n_steps,))]
    if abs(factor) <= 1 and n_steps > 12 * crossing + 50:  # it has forgotten its start to within e^-59
        looks, settled = [(0.0, (math.inf,))], True
    if settled and math.isinf(n_steps):  # a claim for every number of steps covers shorter ones too
        looks.append((-width / 2, [math.ceil(share * crossing) for share in _LOOKS]))
    found = []
    for drift in _drifts(constants, schedule, noise, width, delta):
        for start, lengths in looks:
            pair = instance(constants, schedule, drift, offset=(1 - factor) * start)
            try:
                laws = [
                    exact_laws(maps, noise, width, lengths, start_scale=schedule.start_scale, start=start)
                    for maps in pair
                ]
            except ArithmeticError:
                continue
            found += [epsilon_between(first, second, delta) for first, second in zip(*laws, strict=True)]
    return max(found, default=None)


def _width(
    constants: Constants, schedule: NoisyGradientSchedule, noise: float, n_steps: float
) -> float | None:
    """Length of the interval: D, or less where D is too wide to compute.

    In two dimensions or more a box (or strip) of diameter D may have any shorter first side, and only that
    side matters; in one dimension there is no such set.
    """
    if constants.diameter <= WIDEST * noise:
        return constants.diameter
    if constants.dimension == 1:
        return None
    factor = abs(1 - float(np.max(schedule.step_size)) * constants.strong_convexity)
    steps = min(n_steps, 1 / (1 - factor**2) if factor < 1 else math.inf)
    return noise * min(WIDEST, 20 * math.sqrt(steps) + 20 * schedule.start_scale / noise)


def _drifts(
    constants: Constants, schedule: NoisyGradientSchedule, noise: float, width: float, delta: float
) -> list[float]:
    """Common drifts worth trying: those that leave the far end of the interval a little more than delta."""
    if schedule.sampling == "poisson":
        return [0.0]  # with other records in it, the size of the batch would be random too
    step = float(np.max(schedule.step_size))
    largest = step * constants.gradient_sensitivity * (1 - 1 / constants.n)
    if constants.adjacency == "replace-one":
        largest /= 2
    shares = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9) if width < 24 * noise else (0.0, 0.7)
    drifts = {min(-share * math.log(delta) * noise**2 / (2 * width), largest) for share in shares}
    if schedule.sampling == "without-replacement":
        drifts.add(largest)  # a mixture against a single Gaussian
    return sorted(drifts)


def instance(
    constants: Constants, schedule: NoisyGradientSchedule, drift: float, *, offset: float = 0.0
) -> tuple[Maps, Maps]:
    """The two walks of a constant schedule; `drift` is the step that a batch of other records makes.

    `offset` is (1 - c) times the place of the ridge's minimum, when that is not the middle of the interval.
    """
    step = float(np.max(schedule.step_size))
    factor = 1 - step * constants.strong_convexity
    size = schedule.divisor(constants.n)
    shift = step * constants.gradient_sensitivity / size
    low, high = (-shift / 2, shift / 2) if constants.adjacency == "replace-one" else (0.0, shift)
    if schedule.sampling == "full":
        return (
            [(1.0, affine(factor, offset + drift + high))],
            [(1.0, affine(factor, offset + drift + low))],
        )
    rate = size / constants.n
    others = drift * (1 - 1 / size) if schedule.sampling == "without-replacement" else drift

    def walk(jump: float) -> Maps:
        return [(1 - rate, affine(factor, offset + drift)), (rate, affine(factor, offset + others + jump))]

    return walk(high), walk(low)
