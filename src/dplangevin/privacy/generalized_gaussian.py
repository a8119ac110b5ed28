"""Generalised Gaussian noise: its law, its privacy loss, a certified delta(eps) for many coordinates, the least sigma.

GGauss(p, sigma) on R^k has density proportional to exp(-(|x|_p / sigma)^p): k independent coordinates with density
p / (2 sigma Gamma(1/p)) exp(-|t/sigma|^p). p = 1 is Laplace(sigma), p = 2 is N(0, sigma^2 / 2).

Worst shift. For p >= 1 the density is log-concave, so among all shifts v with |v|_inf <= 1 and at most m non-zero
entries the pair (GG, GG + v) is dominated by m ones: one coordinate has monotone likelihood ratio and a trade-off
curve that falls with the size of the shift; products keep the order (Dong, Roth and Su, 2022); signs do not matter.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammainccinv, gammaln

from dplangevin._arrays import Floats
from dplangevin.errors import CalibrationFailed
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.loss_sum import (
    LARGEST_TRANSFORM,
    LOSS_ROUNDING,
    LossSum,
    PrivacyLoss,
    decreasing_root,
)

RESOLUTION, ROUGH = 256, 24
TAIL = 1e-30
"""Probability of each tail of one coordinate that is moved to an infinite loss."""
MARGIN = 3e-7
"""Relative room left in eps, so that asking the guarantee for its eps gives the requested one or less."""


def fisher_information(p: float) -> float:
    """I(p) = p^2 Gamma(2 - 1/p) / Gamma(1/p), of the location of GGauss(p, 1)."""
    return p * p * math.exp(float(gammaln(2 - 1 / p) - gammaln(1 / p)))


def absolute_moment(p: float, order: float) -> float:
    """E|x|^q = Gamma((q + 1)/p) / Gamma(1/p) for sigma = 1."""
    return math.exp(float(gammaln((order + 1) / p) - gammaln(1 / p)))


def lower_tail(x: ArrayLike, p: float) -> Floats:
    """P[X <= x] for sigma = 1, with full relative accuracy where x <= 0."""
    point = np.asarray(x, float)
    half = 0.5 * gammaincc(1 / p, np.abs(point) ** p)
    return np.asarray(np.where(point <= 0, half, 1 - half))


def loss(x: ArrayLike, p: float, shift: float) -> Floats:
    """Privacy loss |x - s|^p - |x|^p at x <= s, without cancellation; it falls with x."""
    point = np.asarray(x, float)
    far = np.abs(point) > shift
    base = np.where(far, -point, 1.0)
    outside = base**p * np.expm1(p * np.log1p(shift / base))
    inside = (shift - point) ** p - np.abs(point) ** p
    return np.asarray(np.where(far, outside, inside))


def cut_points(losses: Floats, p: float, shift: float, lowest: float) -> Floats:
    """x in [lowest, s/2] with loss(x) = losses >= 0, by bracketed Newton steps.

    Losses above loss(lowest) get `lowest`; for p = 1 no x has them, so they get -infinity.
    """
    table = np.unique(
        np.concatenate([np.linspace(lowest, shift / 2, 4097), np.linspace(-shift, shift / 2, 257)])
    )
    table = table[table >= lowest]
    heights = loss(table, p, shift)[::-1]
    beyond = losses > heights[-1]
    place = np.clip(np.searchsorted(heights, losses), 1, table.size - 1)
    low, high = table[::-1][place], table[::-1][place - 1]
    result, left = 0.5 * (low + high), np.flatnonzero(~beyond)
    low, high, goal, x = low[left], high[left], losses[left], result[left]
    for _ in range(60):
        gap = loss(x, p, shift) - goal
        slope = -p * ((shift - x) ** (p - 1) + np.sign(x) * np.abs(x) ** (p - 1))
        low, high = np.where(gap > 0, x, low), np.where(gap > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = x - gap / slope
        # a step as short as round-off has arrived, on whichever side of the bracket it lies
        arrived = np.abs(newton - x) <= 1e-14 * np.maximum(np.abs(x), shift)
        new = np.where(arrived | ((newton >= low) & (newton <= high)), newton, 0.5 * (low + high))
        result[left] = new
        moving = ~arrived & (np.abs(new - x) > 1e-15 * np.maximum(np.abs(x), shift))
        left, low, high, goal, x = left[moving], low[moving], high[moving], goal[moving], new[moving]
        if left.size == 0:
            break
    return np.where(beyond, -np.inf if p == 1 else table[0], result)


def coordinate_loss(
    p: float, shift: float, step: float, cap: float, count: int = 1, tail: float = TAIL
) -> PrivacyLoss:
    """One coordinate's loss on the grid of `step`, rounded by connecting the dots; `cap` bounds the finite part.

    Cell [e_j, e_{j+1}] of the loss has masses P_j and Q_j; b = (P_j - e^{e_j} Q_j) / (1 - e^{-h}) of P_j goes to
    the right end and the rest to the left end, which keeps P_j and Q_j: a mean-preserving spread of the
    likelihood ratio, so the result dominates. The pair is symmetric, so mass[-j] = e^{-e_j} mass[j].
    """
    lowest = tail_point(p, tail)
    cells = math.ceil(min(float(loss(lowest, p, shift)), cap) / step) + 1
    edges = step * np.arange(cells + 1, dtype=np.float64)
    cuts = cut_points(edges, p, shift, lowest)
    upper, lower = lower_tail(cuts, p), lower_tail(cuts - shift, p)
    masses, others = np.maximum(upper[:-1] - upper[1:], 0.0), np.maximum(lower[:-1] - lower[1:], 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        right = (masses - np.exp(edges[:-1]) * others) / -math.expm1(-step)
    right = np.where(edges[:-1] > 700, masses, np.clip(right, 0.0, masses))
    half = np.zeros(cells + 1)
    half[:-1] += masses - right
    half[1:] += right
    mirrored = (half * np.exp(-edges))[:0:-1]
    mirrored[0] += lower[-1]
    mass = np.concatenate([mirrored, [2 * half[0]], half[1:]])
    return PrivacyLoss(step=step, first=-cells, mass=mass, infinity=float(upper[-1]), count=count)


def tail_point(p: float, probability: float) -> float:
    """x < 0 with P[X <= x] = probability for sigma = 1."""
    return -math.pow(float(gammainccinv(1 / p, 2 * probability)), 1 / p)


def single_delta(p: float, shift: float, epsilon: float) -> float:
    """delta(eps) of one coordinate, exact: F(x*) - e^eps F(x* - s) with loss(x*) = eps; eps >= 0, rounded up."""
    lowest = tail_point(p, TAIL)
    if float(loss(lowest, p, shift)) < epsilon:
        return 0.0 if p == 1 else TAIL
    cut = cut_points(np.array([epsilon]), p, shift, lowest)
    upper, lower = float(lower_tail(cut, p)[0]), float(lower_tail(cut - shift, p)[0])
    subtracted = math.exp(epsilon) * lower if epsilon <= 700 else 0.0
    return min(1.0, max(0.0, upper - subtracted) + 1e-13 * upper)


def certified_delta(
    p: float, shift: float, count: int, epsilon: float, *, resolution: int = RESOLUTION
) -> float:
    """Upper bound on delta(eps) when `count` coordinates move by `shift` standard units (sensitivity / sigma).

    `resolution` is the number of grid cells per standard deviation of one coordinate's loss; the bound is above
    the truth by a relative 1e-4 or less at 256, and valid at any resolution.
    """
    if p == 1 and epsilon >= count * shift:
        return 0.0
    if count == 1:
        return single_delta(p, shift, epsilon)
    single = shift * math.sqrt(fisher_information(p))
    cap, best = epsilon + 40 + 12 * math.sqrt(count) * single, 1.0
    step = grid_step(p, shift, count, epsilon, cap, resolution)
    for _ in range(5):
        total = LossSum(coordinate_loss(p, shift, step, cap, count))
        best = min(best, total.delta(epsilon))
        if total.infinity <= 1e-6 * best or total.losses[0].values[-1] < cap:
            break
        cap *= 2
    return best


def grid_step(p: float, shift: float, count: int, epsilon: float, cap: float, resolution: int) -> float:
    """Step that resolves one coordinate's loss, both as it is and tilted to epsilon, within the largest sizes."""
    single = shift * math.sqrt(fisher_information(p))
    largest = min(float(loss(tail_point(p, TAIL), p, shift)), cap)
    rough = LossSum(coordinate_loss(p, shift, single / 32, cap, count))
    if not rough.losses[0].mass.any() or count * largest <= epsilon:
        return single / 32
    variance = rough.cumulants(rough.tilt(epsilon))[2]
    finest = max(96 * math.sqrt(variance), 32 * largest) / LARGEST_TRANSFORM
    tilted = max(math.sqrt(variance / count), single / 64)
    step = max(min(single, tilted) / resolution, finest)
    return shift / math.ceil(shift / step) if p == 1 else step


def single_renyi(p: float, shift: float, orders: Floats) -> Floats:
    """Upper bound on the Renyi divergence of one coordinate at each order; infinity where the tail is not bounded.

    E_P[e^{(alpha - 1) loss}] over the dominating grid distribution, plus the tail x < -y: with
    c = alpha - (alpha - 1)(1 + s/y)^p > 0 it is at most (1/2) Q(1/p, c y^p) c^{-1/p}.
    """
    tail = 1e-100
    step = shift * math.sqrt(fisher_information(p)) / 128
    far = -tail_point(p, tail)
    grid = coordinate_loss(p, shift, max(step, float(loss(-far, p, shift)) / 2**17), math.inf, tail=tail)
    with np.errstate(divide="ignore"):
        logs, values = np.log(grid.mass), grid.values
    result = np.full(orders.shape, np.inf)
    for i, order in enumerate(orders):
        exponent = logs + (order - 1) * values
        top = float(np.max(exponent))
        moment = top + math.log(float(np.exp(exponent - top).sum()))
        decay = order - (order - 1) * (1 + shift / far) ** p
        if p > 1 and decay > 0:
            rest = 0.5 * float(gammaincc(1 / p, decay * far**p)) * decay ** (-1 / p)
            moment = float(np.logaddexp(moment, math.log(max(rest, 1e-300))))
        if p == 1 or decay > 0:
            result[i] = max(moment, 0.0) / (order - 1) + LOSS_ROUNDING * (1 + 1 / (order - 1))
    return result


def rounded_up(value: float, digits: int = 6) -> float:
    """value with `digits` significant digits, never below it."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    result = float(f"{math.ceil(value / unit) * unit:.{digits}g}")
    return result if result >= value else float(f"{(math.ceil(value / unit) + 1) * unit:.{digits}g}")


@lru_cache(maxsize=512)
def smallest_sigma(p: float, count: int, epsilon: float, delta: float, *, rough: bool = False) -> float:
    """sigma with certified delta(eps) <= delta for `count` answers that change by 1, rounded up to six digits.

    With `rough` the certificate is taken on a coarse grid: a valid sigma too, a little larger (about 0.1%).
    """
    if delta == 0:
        sigma = rounded_up(count / epsilon)
        return sigma if count / sigma <= epsilon else rounded_up(sigma * (1 + 1e-7))
    if p == 2:
        return rounded_up(math.sqrt(2 * count) / cv.gdp_mu(epsilon, delta) * (1 + 1e-12))
    epsilon *= 1 - MARGIN
    place, slope = math.log(math.sqrt(count * fisher_information(p)) / cv.gdp_mu(epsilon, delta)), -20.0
    if p == 1:
        place = min(place, math.log(count / epsilon))
    for resolution, tolerance in ((ROUGH, 1e-4),) if rough else ((ROUGH, 1e-4), (RESOLUTION, 2e-6)):
        excess = partial(_excess, p, count, epsilon, math.log(delta), resolution)
        place, slope = decreasing_root(excess, place, slope, tolerance)
    sigma = rounded_up(math.exp(place))
    if not certified_delta(p, 1 / sigma, count, epsilon, resolution=ROUGH if rough else RESOLUTION) <= delta:
        raise CalibrationFailed(
            f"no sigma was certified for p = {p}, epsilon = {epsilon}, delta = {delta} and {count} counts; "
            "choose another p or a larger delta."
        )
    return sigma


def norm_scale(epsilon: float, delta: float, *, secure: bool = False) -> float:
    """The smallest scale of the noise exp(-|x|_K / scale): that of one Laplace answer; on a grid it is pure."""
    if secure:  # a hair more, for the rounding of the cost
        return smallest_sigma(1.0, 1, epsilon, 0.0) * (1 + 2e-9)
    return smallest_sigma(1.0, 1, epsilon, delta)


def _excess(p: float, count: int, epsilon: float, target: float, resolution: int, log_sigma: float) -> float:
    value = certified_delta(p, 1 / math.exp(log_sigma), count, epsilon, resolution=resolution)
    return max(
        math.log(max(value, 1e-300)) - target, -4.0
    )  # flat where delta is far too small: keeps secants sane
