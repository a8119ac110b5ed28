"""Lower bounds for random batches and secret orders whose projection is not felt, by `free_walk` (L2).

The record has slope Delta when it takes part. Poisson batches: the other data set lacks it (add-remove), or the two
records jump by s/2 either way, s = eta Delta / b (replace-one). Batches of fixed size (replace-one): without a bounded
set all other records and the replacement push equally, so only the first record jumps, by s; on a bounded set the
others are flat and the two records jump by s/2 either way.

Rounding jumps down is always allowed: the tests are half lines, and both their errors are monotone in Z.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr

from dplangevin._arrays import Floats
from dplangevin.families.noisy_gradient.free_walk import (
    BernoulliJumps,
    EpochJumps,
    Jumps,
    Tails,
    bernstein,
    epsilons_of,
    gaussian_tails,
    mixture_tails,
    walk_tails,
)
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.problem.constants import Constants

_MOST_WEIGHTS = 20_000
_MOST_CELLS = 400_000
_CUTS = 161


def free_walk_epsilon(constants: Constants, schedule: NoisyGradientSchedule, delta: float) -> float | None:
    """eps of the free walk at a finite number of steps; None where a jump may point backwards or cannot be followed."""
    size = schedule.divisor(constants.n)
    steps = np.atleast_1d(np.asarray(schedule.step_size, float))
    factors = 1 - steps * constants.strong_convexity
    if not (np.all(factors >= 0) and np.all(factors <= 1)):
        return None
    bounded = math.isfinite(constants.diameter)
    if bounded and math.isinf(schedule.n_steps):
        return None
    variance = _variance(constants, schedule)
    if math.isinf(variance):
        return math.inf  # no contraction and no end: the mean outgrows the deviation
    jumps = _jumps(constants, schedule, steps, factors, size, math.sqrt(variance))
    if jumps is None:
        return None
    halves = constants.adjacency == "replace-one" and (bounded or schedule.sampling == "poisson")
    felt = _felt(constants, schedule, jumps, size) if bounded else 0.0
    if not felt < 0.1:
        return None
    deviation = math.sqrt(variance)
    top = _largest(jumps)
    cuts = np.linspace(-9 * deviation, top + 9 * deviation, _CUTS)
    found = 0.0
    for _ in range(2):  # then again around the best cut
        pair = _pair(jumps, variance, cuts, halves)
        if pair is None:
            return None
        values = epsilons_of(*pair, delta, felt)
        place = int(np.argmax(values))
        found = max(found, float(values[place]))
        step = cuts[1] - cuts[0]
        cuts = np.linspace(cuts[place] - step, cuts[place] + step, 41)
    return found


def _pair(
    jumps: Jumps | tuple[Floats, Floats], variance: float, cuts: Floats, halves: bool
) -> tuple[Tails, Tails] | None:
    if isinstance(jumps, tuple):
        shifts, odds = jumps
        if not halves:
            return mixture_tails(shifts, odds, variance, cuts), gaussian_tails(cuts, variance)
        return mixture_tails(shifts / 2, odds, variance, cuts), mixture_tails(
            -shifts / 2, odds, variance, cuts
        )
    if not halves:
        first = walk_tails(jumps, variance, cuts)
        return None if first is None else (first, gaussian_tails(cuts, variance))
    half = jumps.scaled(0.5)
    first, mirror = walk_tails(half, variance, cuts), walk_tails(half, variance, -cuts)
    if first is None or mirror is None:
        return None
    return first, Tails(cuts=cuts, above=mirror.below, below=mirror.above, error=mirror.error)


def _largest(jumps: Jumps | tuple[Floats, Floats]) -> float:
    return float(np.max(jumps[0])) if isinstance(jumps, tuple) else jumps.largest()


def _geometric(ratio: float, count: float) -> float:
    return count if ratio == 1 else (1 - ratio**count) / (1 - ratio)


def _variance(constants: Constants, schedule: NoisyGradientSchedule) -> float:
    """V = sum (C_t v_t)^2 + (C_0 start_scale)^2."""
    if schedule.constant:
        step = float(np.max(schedule.step_size))
        factor = 1 - step * constants.strong_convexity
        spread = (step * float(np.max(schedule.noise_std))) ** 2 * _geometric(factor**2, schedule.n_steps)
        return spread + (factor**schedule.n_steps * schedule.start_scale) ** 2
    steps = schedule.step_sizes()
    tails = _tail_products(1 - steps * constants.strong_convexity)
    spread = float(np.sum((tails[1:] * steps * schedule.noise_stds()) ** 2))
    return spread + (float(tails[0]) * schedule.start_scale) ** 2


def _tail_products(factors: Floats) -> Floats:
    """C_0, C_1, ..., C_T = 1."""
    return np.append(np.cumprod(factors[::-1])[::-1], 1.0)


def _jumps(
    constants: Constants,
    schedule: NoisyGradientSchedule,
    steps: Floats,
    factors: Floats,
    size: int,
    deviation: float,
) -> Jumps | tuple[Floats, Floats] | None:
    """Z of the schedule's sampling, or its (values, odds) when one permutation serves every epoch."""
    scale = constants.gradient_sensitivity / size
    if schedule.sampling in ("poisson", "without-replacement"):
        rate = size / constants.n
        if schedule.constant:
            return _constant_jumps(
                rate, float(steps[0]) * scale, float(factors[0]), schedule.n_steps, deviation
            )
        return _listed(rate, _tail_products(_spread(factors, schedule))[1:] * schedule.step_sizes() * scale)
    length = math.ceil(constants.n / size)
    count = schedule.n_steps
    if math.isinf(count):  # a claim for every number of steps is one for this number of whole epochs
        forgets = math.ceil(-45 / math.log(factors[0])) if 0 < factors[0] < 1 else 1
        count = math.ceil(forgets / length) * length
    if count > _MOST_CELLS:
        return None
    weights = np.zeros(math.ceil(count / length) * length)
    every = np.broadcast_to(steps, (int(count),))
    weights[: int(count)] = _tail_products(1 - every * constants.strong_convexity)[1:] * every * scale
    rows = weights.reshape(-1, length)
    odds = np.minimum(size, constants.n - size * np.arange(length)) / constants.n
    if schedule.sampling == "cyclic":
        return rows.sum(axis=0), odds
    if np.all(rows[:-1] == rows[0, 0]):  # only the last epoch may depend on the place
        return float(np.sum(rows[:-1, 0])) * (1 - 1e-15) + rows[-1], odds
    return EpochJumps(rows=rows, odds=odds)


def _spread(factors: Floats, schedule: NoisyGradientSchedule) -> Floats:
    return np.asarray(np.broadcast_to(factors, (int(schedule.n_steps),)))


def _constant_jumps(
    rate: float, shift: float, factor: float, n_steps: float, deviation: float
) -> BernoulliJumps:
    if factor == 1:
        return BernoulliJumps(rate=rate, weights=np.array([shift]), counts=np.array([float(n_steps)]))
    if factor == 0:
        return BernoulliJumps(rate=rate, weights=np.array([shift]), counts=np.ones(1))
    large = 100 * shift / deviation
    listed = min(n_steps, math.ceil(math.log(large) / -math.log(factor)) if large > 1 else 0)
    blocks = np.unique(np.linspace(0, listed, min(int(listed), _MOST_WEIGHTS) + 1).astype(int))
    return BernoulliJumps(
        rate=rate,
        weights=shift * factor ** (blocks[1:] - 1.0),  # the smallest of each block
        counts=np.diff(blocks).astype(float),
        tail_first=shift * factor**listed,
        tail_ratio=factor,
        tail_count=n_steps - listed,
    )


def _listed(rate: float, weights: Floats) -> BernoulliJumps:
    """Listed jumps, in at most a few thousand groups that each take their smallest."""
    ordered = np.sort(weights)
    if len(ordered) <= _MOST_WEIGHTS:
        return BernoulliJumps(rate=rate, weights=ordered, counts=np.ones(len(ordered)))
    begins = np.unique(np.linspace(0, len(ordered), _MOST_WEIGHTS + 1).astype(int))
    return BernoulliJumps(rate=rate, weights=ordered[begins[:-1]], counts=np.diff(begins).astype(float))


def _felt(
    constants: Constants, schedule: NoisyGradientSchedule, jumps: Jumps | tuple[Floats, Floats], size: int
) -> float:
    """Bound on the probability that a walk ever meets the projection, the interval placed around both walks.

    Without contraction a driftless path exceeds a level with at most twice the probability of its end doing so; with
    contraction every step is charged. Jumps are bounded without contraction where it varies.
    """
    count = float(schedule.n_steps)
    flat = constants.strong_convexity == 0
    shift = constants.gradient_sensitivity / size * np.asarray(schedule.step_size)
    noise = np.multiply(schedule.step_size, schedule.noise_std)
    if schedule.constant:
        factor = 1 - float(np.max(schedule.step_size)) * constants.strong_convexity
        lengths, squares = _geometric(factor, count), _geometric(factor**2, count)
    else:
        lengths = squares = 1.0
    spread = float(np.sum(np.broadcast_to(noise**2, (1,) if schedule.constant else (int(count),)))) * squares
    if isinstance(jumps, BernoulliJumps):
        shift = np.broadcast_to(shift, (1,) if schedule.constant else (int(count),))
        first, second = float(shift.sum()) * lengths, float((shift**2).sum()) * squares
        reach = bernstein(jumps.rate * first, jumps.rate * second, float(shift.max()), first)
    else:
        reach = _largest(jumps)
        if not (flat or schedule.constant):
            return 1.0
    deviation = math.hypot(math.sqrt(spread), schedule.start_scale)
    times = 2.0 if flat else count + 1
    return min(1.0, 2 * times * float(ndtr((reach - constants.diameter) / 2 / deviation)) + count * 5e-18)
