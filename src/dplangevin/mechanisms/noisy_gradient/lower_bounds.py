"""Lower bounds on the epsilon of noisy gradient runs, on an admissible worst-case instance (L1).

The instance is one-dimensional: losses that are linear with slopes of at most L, plus the ridge of
curvature m, on an interval. The data sets differ in one record of slope +Delta/2 or -Delta/2 (replace-one),
or in one record of slope Delta that is present or absent (add-remove). The other records push with a common
drift, which is scanned. Every valid upper bound for the same constants is at least the value returned here.

Without a projection the path is Gaussian given the batches and the value is exact for the instance (`free_walk`
averages over random batches and secret orders); a projection that is rarely active costs the probability that it is;
otherwise the law is computed by `walk_laws`.

The accountant compares every guarantee with the closed forms (the Gaussian path without projection, and the first
step from an unknown start). With DPLANGEVIN_SELF_CHECK=full in the environment it also compares with the exact walk
on an interval, which may take seconds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.special import ndtr

from dplangevin import _check
from dplangevin.accounting import conversions as cv
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.walk_laws import (
    StepMaps,
    affine_map,
    compute_walk_laws,
    epsilon_between,
    free_walk_epsilon,
)
from dplangevin.problem.constants import Constants

EpsilonBound = Callable[[Constants, NoisyGradientSpec, float], float | None]
INTERVAL_WALK_SAMPLINGS = ("full", "without-replacement", "poisson")
"""Samplings for which the walk on an interval is computed."""
_CROSSING_FRACTIONS = (0.2, 0.3, 0.4, 0.5, 0.65, 0.85, 1.2)
"""Numbers of steps tried for an endless run, in units of (D / v)^2, the time noise needs to cross the interval."""
MAX_WIDTH_RATIO = 64.0
"""Largest D / v for which the walk is computed (about 450 nodes); wider sets become a box with a shorter side."""


def lower_bound_epsilon(constants: Constants, spec: NoisyGradientSpec, delta: float) -> float | None:
    """Return an eps below which no (eps, delta) guarantee of this run can be correct; None when no instance is known.

    n_steps = infinity is about guarantees that hold for every number of steps. Averages and momentum have no instance
    here. A walk represents the last iterate (the last checkpoint) alone, which bounds checkpoints and trajectories
    too.

    Examples
    --------
    >>> constants = Constants(n=100, lipschitz=1.0, smoothness=1.0, strong_convexity=0.5)
    >>> spec = NoisyGradientSpec(step_size=0.2, noise_std=0.05, n_steps=50)
    >>> round(lower_bound_epsilon(constants, spec, 1e-5), 3)
    8.4
    """
    _check.check_open_unit("delta", delta)
    if spec.momentum or spec.release == "average" or not _has_instance(constants, spec):
        return None
    spec = _truncate_at_last_release(spec)
    public = spec.sampling == "full" or (spec.sampling == "cyclic" and spec.order == "public")
    free = _maximize_over_steps(_gaussian_path_epsilon if public else free_walk_epsilon)
    bounds = [free(constants, spec, delta)]
    if spec.sampling in INTERVAL_WALK_SAMPLINGS and spec.is_constant and math.isfinite(constants.diameter):
        bounds.append(_walk_epsilon(constants, spec, delta))
    available = [value for value in bounds if value is not None]
    return max(0.0, max(available) * (1 - 1e-9) - 1e-12) if available else None


def _maximize_over_steps(bound: EpsilonBound) -> EpsilonBound:
    """Extend a bound to endless runs on a bounded set: its largest value over numbers of steps."""

    def best_bound(constants: Constants, spec: NoisyGradientSpec, delta: float) -> float | None:
        if math.isfinite(spec.n_steps) or math.isinf(constants.diameter):
            return bound(constants, spec, delta)

        @cache
        def epsilon_after(steps: int) -> float:
            return bound(constants, replace(spec, n_steps=steps), delta) or 0.0

        crossing = min(constants.diameter**2 / _step_variance(spec), 1e15)
        center = max((max(int(crossing / 2**i), 1) for i in range(16)), key=epsilon_after)
        low, high = max(center // 2, 1), 2 * center
        while high - low > 2:
            third = max((high - low) // 3, 1)
            if epsilon_after(low + third) < epsilon_after(high - third):
                low += third
            else:
                high -= third
        return max(epsilon_after(steps) for steps in (low, low + 1, high, center)) or None

    return best_bound


def _has_instance(constants: Constants, spec: NoisyGradientSpec) -> bool:
    return spec.sampling in ("full", "poisson") or constants.adjacency == "replace-one"


def _truncate_at_last_release(spec: NoisyGradientSpec) -> NoisyGradientSpec:
    """Return the run up to its last checkpoint; nothing later is released."""
    if not spec.checkpoints:
        return spec
    last = spec.checkpoints[-1]
    step, noise = spec.step_size, spec.noise_std
    return replace(
        spec,
        n_steps=last,
        step_size=step[:last] if isinstance(step, tuple) else step,
        noise_std=noise[:last] if isinstance(noise, tuple) else noise,
    )


def _gaussian_path_epsilon(constants: Constants, spec: NoisyGradientSpec, delta: float) -> float | None:
    """Return eps of the Gaussian path, reduced by the probability of ever meeting the projection."""
    factor = float(np.max(np.abs(1 - np.asarray(spec.step_size) * constants.strong_convexity)))
    if factor > 1:
        return None  # the path diverges
    if math.isinf(constants.diameter):
        mu = gaussian_path_mu(constants, spec)
        return math.inf if math.isinf(mu) else cv.gdp_epsilon(mu, delta)
    mu = gaussian_path_mu(constants, spec)
    projection_chance = projection_probability(constants, spec)
    if not projection_chance < 0.5:
        return None
    cuts = np.linspace(-8, 38, 4001)  # the test of size Phi(-cut) and power Phi(mu - cut)
    gain = ndtr(mu - cuts) - projection_chance - delta
    ratio = np.where(gain > 0, gain, 0.0) / (ndtr(-cuts) + projection_chance + 1e-300)
    best = float(np.max(ratio))
    return math.log(best) if best > 1 else None


def _step_variance(spec: NoisyGradientSpec) -> float:
    """Return v^2, the largest variance of the noise on the iterate in one step."""
    return float(np.max(np.multiply(spec.step_size, spec.noise_std))) ** 2


def gaussian_path_mu(constants: Constants, spec: NoisyGradientSpec) -> float:
    """Return mu of the linear instance without projection; in a cyclic run the record is in the last batch used.

    Last iterate: |sum C_t s_t| / sqrt(sum (C_t v_t)^2 + (C_0 start_scale)^2), C_t = prod_{i>t} (1 - eta_i m).
    Trajectory: sqrt(sum_t (s_t / v_t)^2). Checkpoints: the segments between them, from a common point each.
    """
    if math.isinf(spec.n_steps):
        return _unbounded_run_mu(constants, spec)
    return (_constant_mu if spec.is_constant else _varying_mu)(constants, spec)


def _constant_mu(constants: Constants, spec: NoisyGradientSpec) -> float:
    step, deviation, last = (
        float(np.max(spec.step_size)),
        math.sqrt(_step_variance(spec)),
        int(spec.n_steps),
    )
    factor = 1 - step * constants.strong_convexity
    size = spec.divisor(constants.n)
    shift, period = step * constants.gradient_sensitivity / size, math.ceil(constants.n / size)
    if spec.release == "trajectory":
        n_uses, lost_fraction = 1 + (last - 1) // period, 0.0
        if (last - 1) % period == 0:  # the first step also carries the spread of the start
            lost_fraction = 1 - 1 / (1 + (factor * spec.start_scale / deviation) ** 2)
        return math.sqrt(n_uses - lost_fraction) * shift / deviation
    total, first_step, spread = 0.0, 0, spec.start_scale
    for end in spec.checkpoints or (last,):
        n_idle_steps = (end - last) % period  # steps since the record was last used
        n_uses = max(0, (end - n_idle_steps - first_step - 1) // period + 1)
        mean = shift * factor**n_idle_steps * _geometric_series(factor**period, n_uses)
        variance = (
            deviation**2 * _geometric_series(factor**2, end - first_step)
            + (factor ** (end - first_step) * spread) ** 2
        )
        total += mean**2 / variance
        first_step, spread = end, 0.0
    return math.sqrt(total)


def _geometric_series(ratio: float, count: int) -> float:
    """Return 1 + ratio + ... + ratio^(count - 1)."""
    return count if ratio == 1 else (1 - ratio**count) / (1 - ratio)


def _varying_mu(constants: Constants, spec: NoisyGradientSpec) -> float:
    steps = spec.step_sizes()
    factors = 1 - steps * constants.strong_convexity
    noises = steps * spec.noise_stds()
    size = spec.divisor(constants.n)
    takes_part = (len(steps) - 1 - np.arange(len(steps))) % math.ceil(constants.n / size) == 0
    shifts = np.where(takes_part, steps * constants.gradient_sensitivity / size, 0.0)
    if spec.release == "trajectory":
        noises[0] = math.hypot(noises[0], factors[0] * spec.start_scale)
        return float(np.linalg.norm(shifts / noises))
    total, first_step, spread = 0.0, 0, spec.start_scale
    for end in spec.checkpoints or (len(steps),):
        tail = np.append(np.cumprod(factors[first_step:end][::-1])[::-1], 1.0)
        mean = float(tail[1:] @ shifts[first_step:end])
        variance = float(np.sum((tail[1:] * noises[first_step:end]) ** 2)) + (float(tail[0]) * spread) ** 2
        total += mean**2 / variance
        first_step, spread = end, 0.0
    return math.sqrt(total)


def _unbounded_run_mu(constants: Constants, spec: NoisyGradientSpec) -> float:
    """Return the mu that some number of steps attains or tends to; an endless run has constant steps."""
    step, noise = float(np.max(spec.step_size)), float(np.max(spec.noise_std))
    factor = 1 - step * constants.strong_convexity
    size = spec.divisor(constants.n)
    ratio = constants.gradient_sensitivity / (size * noise)
    if factor == 1 or spec.release == "trajectory":
        return math.inf
    if factor < 1e-12 - 1:
        return ratio / math.hypot(1.0, factor * spec.start_scale / (step * noise))  # one step
    period = math.ceil(constants.n / size)
    return ratio / (1 - factor**period) * math.sqrt((1 - factor) * (1 + factor))


def projection_probability(constants: Constants, spec: NoisyGradientSpec) -> float:
    """Bound the probability that either path ever leaves the interval, placed around both; |1 - eta m| <= 1.

    The two means are at most r apart, so each has (D - r) / 2 to either side. Without contraction a path exceeds a
    level with at most twice the probability of its end doing so (Levy); otherwise a union bound over steps is used.
    """
    if math.isinf(spec.n_steps):
        return 1.0
    steps = np.asarray(spec.step_size)
    size = spec.divisor(constants.n)
    factor = float(np.max(np.abs(1 - steps * constants.strong_convexity)))
    period = math.ceil(constants.n / size)
    shift = float(np.max(steps)) * constants.gradient_sensitivity / size
    variances = np.multiply(steps, spec.noise_std) ** 2
    max_distance, spread = math.ceil(spec.n_steps / period) * shift, spec.n_steps * float(np.mean(variances))
    if factor < 1:
        max_distance = min(max_distance, shift / (1 - factor**period))
        spread = min(spread, float(np.max(variances)) / (1 - factor**2))
    deviation = math.hypot(math.sqrt(spread), spec.start_scale)
    n_crossings = 2.0 if constants.strong_convexity == 0 else spec.n_steps + 1.0
    return min(1.0, 2 * n_crossings * float(ndtr((max_distance - constants.diameter) / 2 / deviation)))


def _walk_epsilon(constants: Constants, spec: NoisyGradientSpec, delta: float) -> float | None:
    """Return the best eps over a few common drifts of the walk on an interval, from its middle and from one end.

    The set is any interval around the start, where the ridge has its minimum.
    """
    noise, n_steps = math.sqrt(_step_variance(spec)), spec.n_steps
    width = _interval_width(constants, spec, noise, n_steps)
    if width is None:
        return None
    factor = 1 - float(np.max(spec.step_size)) * constants.strong_convexity
    crossing, is_stationary = (width / noise) ** 2, False
    starts_and_lengths: list[tuple[float, Sequence[float]]] = [(0.0, (n_steps,)), (-width / 2, (n_steps,))]
    if abs(factor) <= 1 and n_steps > 12 * crossing + 50:  # the start is forgotten to within e^-59
        starts_and_lengths, is_stationary = [(0.0, (math.inf,))], True
    if is_stationary and math.isinf(n_steps):  # a guarantee for every number of steps covers shorter runs too
        starts_and_lengths.append(
            (-width / 2, [math.ceil(fraction * crossing) for fraction in _CROSSING_FRACTIONS])
        )
    epsilons = []
    for drift in _candidate_drifts(constants, spec, noise, width, delta):
        for start, lengths in starts_and_lengths:
            pair = worst_case_maps(constants, spec, drift, offset=(1 - factor) * start)
            try:
                laws = [
                    compute_walk_laws(maps, noise, width, lengths, start_scale=spec.start_scale, start=start)
                    for maps in pair
                ]
            except ArithmeticError:
                continue
            epsilons += [epsilon_between(first, second, delta) for first, second in zip(*laws, strict=True)]
    return max(epsilons, default=None)


def _interval_width(
    constants: Constants, spec: NoisyGradientSpec, noise: float, n_steps: float
) -> float | None:
    """Return the length of the interval: D, or less where D is too wide to compute.

    In two dimensions or more a box (or strip) of diameter D may have any shorter first side, and only that
    side matters; in one dimension there is no such set.
    """
    if constants.diameter <= MAX_WIDTH_RATIO * noise:
        return constants.diameter
    if constants.dimension == 1:
        return None
    factor = abs(1 - float(np.max(spec.step_size)) * constants.strong_convexity)
    steps = min(n_steps, 1 / (1 - factor**2) if factor < 1 else math.inf)
    return noise * min(MAX_WIDTH_RATIO, 20 * math.sqrt(steps) + 20 * spec.start_scale / noise)


def _candidate_drifts(
    constants: Constants, spec: NoisyGradientSpec, noise: float, width: float, delta: float
) -> list[float]:
    """Return the common drifts to try: those that leave the far end of the interval a little more than delta."""
    if spec.sampling == "poisson":
        return [0.0]  # with other records in it, the size of the batch would be random too
    step = float(np.max(spec.step_size))
    largest = step * constants.gradient_sensitivity * (1 - 1 / constants.n)
    if constants.adjacency == "replace-one":
        largest /= 2
    fractions = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9) if width < 24 * noise else (0.0, 0.7)
    drifts = {min(-fraction * math.log(delta) * noise**2 / (2 * width), largest) for fraction in fractions}
    if spec.sampling == "without-replacement":
        drifts.add(largest)  # a mixture against a single Gaussian
    return sorted(drifts)


def worst_case_maps(
    constants: Constants, spec: NoisyGradientSpec, drift: float, *, offset: float = 0.0
) -> tuple[StepMaps, StepMaps]:
    """Return the step maps of both walks, constant steps; `drift` is the step made by a batch of other records.

    `offset` is (1 - c) times the minimiser of the ridge, when that is not the middle of the interval.
    """
    step = float(np.max(spec.step_size))
    factor = 1 - step * constants.strong_convexity
    size = spec.divisor(constants.n)
    shift = step * constants.gradient_sensitivity / size
    low, high = (-shift / 2, shift / 2) if constants.adjacency == "replace-one" else (0.0, shift)
    if spec.sampling == "full":
        return (
            [(1.0, affine_map(factor, offset + drift + high))],
            [(1.0, affine_map(factor, offset + drift + low))],
        )
    rate = size / constants.n
    others = drift * (1 - 1 / size) if spec.sampling == "without-replacement" else drift

    def make_maps(jump: float) -> StepMaps:
        return [
            (1 - rate, affine_map(factor, offset + drift)),
            (rate, affine_map(factor, offset + others + jump)),
        ]

    return make_maps(high), make_maps(low)


SELF_CHECK_VARIABLE = "DPLANGEVIN_SELF_CHECK"
_MAX_CLOSED_FORM_STEPS = 100_000  # of varying steps, whose closed form is evaluated at every call


def epsilon_lower_bound(
    constants: Constants, spec: NoisyGradientSpec, delta: float, *, full: bool | None = None
) -> float | None:
    """Return an epsilon that some run within these constants attains; None when none is known in closed form."""
    epsilons = [first_step_epsilon(constants, spec, delta)]
    full = os.environ.get(SELF_CHECK_VARIABLE) == "full" if full is None else full
    if full or _has_closed_form(constants, spec):
        epsilons.append(lower_bound_epsilon(constants, spec, delta))
    return max((value for value in epsilons if value is not None), default=None)


def _has_closed_form(constants: Constants, spec: NoisyGradientSpec) -> bool:
    short = spec.is_constant or spec.n_steps <= _MAX_CLOSED_FORM_STEPS
    return short and spec.sampling in ("full", "cyclic") and math.isinf(constants.diameter)


def first_step_epsilon(constants: Constants, spec: NoisyGradientSpec, delta: float) -> float | None:
    """Return eps of one step from two unknown starts, at the ends of an interval, tested by a threshold inside it.

    Without a gradient of the data the starts are |1 - eta m| D apart after the step. An endless run may have one
    step.
    """
    if spec.start != "unknown" or math.isinf(constants.diameter) or spec.momentum:
        return None
    first_release = spec.checkpoints[0] if spec.checkpoints else spec.n_steps
    if not (first_release == 1 or (math.isinf(first_release) and spec.release != "average")):
        return None
    step, noise = float(np.ravel(spec.step_size)[0]), float(np.ravel(spec.noise_std)[0])
    distance = abs(1 - step * constants.strong_convexity) * constants.diameter
    cuts = np.linspace(-0.5, 0.5, 203)[1:-1] * constants.diameter
    with np.errstate(over="ignore"):
        power, size = (ndtr((sign * distance / 2 - cuts) / (step * noise)) for sign in (1, -1))
    gain = power * (1 - 1e-12) - delta
    best = float(np.max(np.where(gain > 0, gain, 0.0) / (size * (1 + 1e-12) + 1e-300)))
    return math.log(best) if best > 1 else 0.0
