"""Generalised Gaussian noise with exponent p: its distribution, certified delta(eps), least sigma, and privacy parts.

GGauss(p, sigma) on R^k has density proportional to exp(-(|x|_p / sigma)^p): k independent coordinates with density
p / (2 sigma Gamma(1/p)) exp(-|t/sigma|^p). p = 1 is Laplace(sigma), p = 2 is N(0, sigma^2 / 2).

Worst shift. For p >= 1 the density is log-concave, so among all shifts v with |v|_inf <= 1 and at most m non-zero
entries the pair (GG, GG + v) is dominated by m ones: one coordinate has monotone likelihood ratio and a trade-off
curve that falls with the size of the shift; products keep the order (Dong, Roth and Su, 2022); signs do not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammainccinv, gammaln

from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.parts import PrivacyPart
from dplangevin.accounting.pld import (
    LOSS_ROUNDING,
    MAX_TRANSFORM_SIZE,
    DiscretePLD,
    LossSum,
    find_decreasing_root,
    smallest_epsilon,
)
from dplangevin.errors import CalibrationFailed

FINE_RESOLUTION, ROUGH_RESOLUTION = 256, 24
TAIL_PROBABILITY = 1e-30
"""Probability of each tail of one coordinate that is moved to an infinite loss."""
SAFETY_MARGIN = 3e-7
"""Relative margin in eps, so that the eps of the resulting guarantee is the requested one or less."""


def fisher_information(p: float) -> float:
    """Return the Fisher information of the location of GGauss(p, 1): p^2 Gamma(2 - 1/p) / Gamma(1/p)."""
    return p * p * math.exp(float(gammaln(2 - 1 / p) - gammaln(1 / p)))


def absolute_moment(p: float, order: float) -> float:
    """Return E|x|^q = Gamma((q + 1)/p) / Gamma(1/p) for sigma = 1, q the order."""
    return math.exp(float(gammaln((order + 1) / p) - gammaln(1 / p)))


def lower_tail(x: ArrayLike, p: float) -> Floats:
    """Return P[X <= x] for sigma = 1, with full relative accuracy where x <= 0."""
    point = np.asarray(x, float)
    half = 0.5 * gammaincc(1 / p, np.abs(point) ** p)
    return np.asarray(np.where(point <= 0, half, 1 - half))


def privacy_loss(x: ArrayLike, p: float, shift: float) -> Floats:
    """Return the privacy loss |x - s|^p - |x|^p at x <= s, without cancellation; it falls with x."""
    point = np.asarray(x, float)
    far = np.abs(point) > shift
    base = np.where(far, -point, 1.0)
    outside = base**p * np.expm1(p * np.log1p(shift / base))
    inside = (shift - point) ** p - np.abs(point) ** p
    return np.asarray(np.where(far, outside, inside))


def cut_points(losses: Floats, p: float, shift: float, lowest: float) -> Floats:
    """Return x in [lowest, s/2] with loss(x) = losses >= 0, by bracketed Newton steps.

    Losses above loss(lowest) get `lowest`; for p = 1 no x has them, so they get -infinity.
    """
    table = np.unique(
        np.concatenate([np.linspace(lowest, shift / 2, 4097), np.linspace(-shift, shift / 2, 257)])
    )
    table = table[table >= lowest]
    heights = privacy_loss(table, p, shift)[::-1]
    beyond = losses > heights[-1]
    index = np.clip(np.searchsorted(heights, losses), 1, table.size - 1)
    low, high = table[::-1][index], table[::-1][index - 1]
    result, left = 0.5 * (low + high), np.flatnonzero(~beyond)
    low, high, goal, x = low[left], high[left], losses[left], result[left]
    for _ in range(60):
        gap = privacy_loss(x, p, shift) - goal
        slope = -p * ((shift - x) ** (p - 1) + np.sign(x) * np.abs(x) ** (p - 1))
        low, high = np.where(gap > 0, x, low), np.where(gap > 0, high, x)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = x - gap / slope
        # a step as short as round-off has converged, on whichever side of the bracket it lies
        converged = np.abs(newton - x) <= 1e-14 * np.maximum(np.abs(x), shift)
        new = np.where(converged | ((newton >= low) & (newton <= high)), newton, 0.5 * (low + high))
        result[left] = new
        moving = ~converged & (np.abs(new - x) > 1e-15 * np.maximum(np.abs(x), shift))
        left, low, high, goal, x = left[moving], low[moving], high[moving], goal[moving], new[moving]
        if left.size == 0:
            break
    return np.where(beyond, -np.inf if p == 1 else table[0], result)


def coordinate_loss(
    p: float, shift: float, step: float, cap: float, count: int = 1, tail: float = TAIL_PROBABILITY
) -> DiscretePLD:
    """Return one coordinate's loss on a grid of `step`, rounded by connecting the dots; `cap` bounds the finite part.

    Cell [e_j, e_{j+1}] of the loss has masses P_j and Q_j; b = (P_j - e^{e_j} Q_j) / (1 - e^{-h}) of P_j goes to
    the right end and the rest to the left end, which keeps P_j and Q_j: a mean-preserving spread of the
    likelihood ratio, so the result dominates. The pair is symmetric, so mass[-j] = e^{-e_j} mass[j].
    """
    lowest = tail_point(p, tail)
    cells = math.ceil(min(float(privacy_loss(lowest, p, shift)), cap) / step) + 1
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
    return DiscretePLD(step=step, first=-cells, mass=mass, infinity=float(upper[-1]), count=count)


def tail_point(p: float, probability: float) -> float:
    """Return x < 0 with P[X <= x] = probability for sigma = 1."""
    return -math.pow(float(gammainccinv(1 / p, 2 * probability)), 1 / p)


def single_delta(p: float, shift: float, epsilon: float) -> float:
    """Return delta(eps) of one coordinate: F(x*) - e^eps F(x* - s) with loss(x*) = eps; eps >= 0, rounded up."""
    lowest = tail_point(p, TAIL_PROBABILITY)
    if float(privacy_loss(lowest, p, shift)) < epsilon:
        return 0.0 if p == 1 else TAIL_PROBABILITY
    cut = cut_points(np.array([epsilon]), p, shift, lowest)
    upper, lower = float(lower_tail(cut, p)[0]), float(lower_tail(cut - shift, p)[0])
    subtracted = math.exp(epsilon) * lower if epsilon <= 700 else 0.0
    return min(1.0, max(0.0, upper - subtracted) + 1e-13 * upper)


def certified_delta(
    p: float, shift: float, count: int, epsilon: float, *, resolution: int = FINE_RESOLUTION
) -> float:
    """Return an upper bound on delta(eps) when `count` coordinates move by `shift` (sensitivity / sigma).

    resolution : number of grid cells per standard deviation of one coordinate's loss. The bound is valid at any
        resolution; at 256 it is above the exact value by a relative 1e-4 or less.
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
    """Return a step fine enough for one coordinate's loss, untilted and tilted to epsilon, within the size limits."""
    single = shift * math.sqrt(fisher_information(p))
    largest = min(float(privacy_loss(tail_point(p, TAIL_PROBABILITY), p, shift)), cap)
    rough = LossSum(coordinate_loss(p, shift, single / 32, cap, count))
    if not rough.losses[0].mass.any() or count * largest <= epsilon:
        return single / 32
    variance = rough.cumulants(rough.find_tilt(epsilon))[2]
    finest = max(96 * math.sqrt(variance), 32 * largest) / MAX_TRANSFORM_SIZE
    tilted = max(math.sqrt(variance / count), single / 64)
    step = max(min(single, tilted) / resolution, finest)
    return shift / math.ceil(shift / step) if p == 1 else step


def single_renyi(p: float, shift: float, orders: Floats) -> Floats:
    """Return an upper bound on the Renyi divergence of one coordinate at each order; infinity where none is known.

    E_P[e^{(alpha - 1) loss}] over the dominating grid distribution, plus the tail x < -y: with
    c = alpha - (alpha - 1)(1 + s/y)^p > 0 it is at most (1/2) Q(1/p, c y^p) c^{-1/p}.
    """
    tail = 1e-100
    step = shift * math.sqrt(fisher_information(p)) / 128
    far = -tail_point(p, tail)
    grid = coordinate_loss(
        p, shift, max(step, float(privacy_loss(-far, p, shift)) / 2**17), math.inf, tail=tail
    )
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


def round_up_digits(value: float, digits: int = 6) -> float:
    """Return the value rounded up to `digits` significant digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    result = float(f"{math.ceil(value / unit) * unit:.{digits}g}")
    return result if result >= value else float(f"{(math.ceil(value / unit) + 1) * unit:.{digits}g}")


@lru_cache(maxsize=512)
def smallest_sigma(p: float, count: int, epsilon: float, delta: float, *, coarse: bool = False) -> float:
    """Return the least sigma with certified delta(eps) <= delta for `count` answers that change by 1, to six digits.

    It is rounded up. With `coarse` the certificate is computed on a coarse grid: also valid, about 0.1% larger.
    """
    if delta == 0:
        sigma = round_up_digits(count / epsilon)
        return sigma if count / sigma <= epsilon else round_up_digits(sigma * (1 + 1e-7))
    if p == 2:
        return round_up_digits(math.sqrt(2 * count) / cv.gdp_mu(epsilon, delta) * (1 + 1e-12))
    epsilon *= 1 - SAFETY_MARGIN
    log_sigma, slope = math.log(math.sqrt(count * fisher_information(p)) / cv.gdp_mu(epsilon, delta)), -20.0
    if p == 1:
        log_sigma = min(log_sigma, math.log(count / epsilon))
    for resolution, tolerance in (
        ((ROUGH_RESOLUTION, 1e-4),) if coarse else ((ROUGH_RESOLUTION, 1e-4), (FINE_RESOLUTION, 2e-6))
    ):
        excess = partial(_log_delta_excess, p, count, epsilon, math.log(delta), resolution)
        try:
            log_sigma, slope = find_decreasing_root(excess, log_sigma, slope, tolerance)
        except CalibrationFailed:
            if p == 1:  # Laplace noise has a pure guarantee, whatever delta
                return smallest_sigma(p, count, epsilon, 0.0)
            raise
    sigma = round_up_digits(math.exp(log_sigma))
    if (
        not certified_delta(
            p, 1 / sigma, count, epsilon, resolution=ROUGH_RESOLUTION if coarse else FINE_RESOLUTION
        )
        <= delta
    ):
        raise CalibrationFailed(
            f"no sigma was certified for p = {p}, epsilon = {epsilon}, delta = {delta} and {count} counts; "
            "choose another p or a larger delta."
        )
    return sigma


def norm_scale(epsilon: float, delta: float, *, secure: bool = False) -> float:
    """Return the least scale of the noise exp(-|x|_K / scale): that of one Laplace answer; secure noise is pure."""
    if secure:  # slightly more, for the rounding of the cost
        return smallest_sigma(1.0, 1, epsilon, 0.0) * (1 + 2e-9)
    return smallest_sigma(1.0, 1, epsilon, delta)


def _log_delta_excess(
    p: float, count: int, epsilon: float, target: float, resolution: int, log_sigma: float
) -> float:
    value = certified_delta(p, 1 / math.exp(log_sigma), count, epsilon, resolution=resolution)
    # clipped where delta is far too small, so that secant steps stay reasonable
    return max(math.log(max(value, 1e-300)) - target, -4.0)


@dataclass(frozen=True, kw_only=True)
class GeneralizedGaussian(PrivacyPart):
    """GGauss(p, sigma) noise on `answers` answers; a record moves `changed` of them by at most `shift` sigma each."""

    kind: ClassVar[str] = "pld"
    p: float
    shift: float
    changed: int
    answers: int

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.pure_epsilon():
            return 0.0
        if self._is_laplace:
            return min(1.0, -math.expm1((epsilon - self.shift) / 2) * (1 + 1e-15))
        return _certified_delta(self.p, self.shift, self.changed, epsilon)

    def epsilon(self, delta: float) -> float:
        if delta <= 0:
            return self.pure_epsilon()
        if self._is_laplace:  # 1 - e^((eps - s) / 2) = delta, rounded up
            exact = self.shift + 2 * math.log1p(-delta)
            return min(self.shift, max(0.0, exact + 1e-15 * (self.shift + delta)))
        spread = math.sqrt(self.changed * fisher_information(self.p)) * self.shift
        return min(self.pure_epsilon(), smallest_epsilon(self.delta, delta, _initial_epsilon(spread, delta)))

    @property
    def _is_laplace(self) -> bool:
        """Whether it is one Laplace answer, whose curve is known in closed form."""
        return self.p == 1 and self.changed == 1

    def pure_epsilon(self) -> float:
        return self.changed * self.shift if self.p == 1 else math.inf

    def rdp(self, orders: Floats) -> Floats:
        return self.changed * np.asarray(
            _coordinate_renyi(self.p, self.shift, tuple(float(order) for order in orders))
        )

    def pld(self, grid: float) -> Any:
        spread = math.sqrt(fisher_information(self.p)) * self.shift
        step = max(spread / 64, 20 * math.sqrt(self.changed) * spread / 2**19)
        cap = 50 + 40 * spread * math.sqrt(self.changed)
        return _to_pld(LossSum(coordinate_loss(self.p, self.shift, step, cap, self.changed)), grid)

    def group(self, size: int) -> PrivacyPart:
        return replace(
            self, shift=cv.multiply_up(self.shift, size), changed=min(self.answers, self.changed * size)
        )


@dataclass(frozen=True, kw_only=True)
class CorrectedNoise(PrivacyPart):
    """Generalised Gaussian noise, then `n_corrections` sparse-vector searches with Laplace answers, composed.

    Each search is search_epsilon-DP (dominated by randomised response), each answer answer_epsilon-DP (Laplace).
    """

    kind: ClassVar[str] = "pld"
    noise: GeneralizedGaussian
    n_corrections: int
    search_epsilon: float
    answer_epsilon: float

    def losses(self, step: float, cap: float) -> LossSum:
        """Return the sum of all privacy losses on one grid."""
        noise = self.noise
        return LossSum(
            coordinate_loss(noise.p, noise.shift, step, cap, noise.changed),
            response_loss(self.search_epsilon, step, self.n_corrections),
            coordinate_loss(1.0, self.answer_epsilon, step, cap, self.n_corrections),
        )

    def delta(self, epsilon: float) -> float:
        return self.losses(*self._loss_sum(epsilon)).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        return smallest_epsilon(self.delta, delta, _initial_epsilon(self._loss_std(), delta))

    def pld(self, grid: float) -> Any:
        return _to_pld(self.losses(*self._loss_sum(0.0)), grid)

    def _loss_std(self) -> float:
        noise = self.noise
        extra = self.n_corrections * (self.search_epsilon**2 + self.answer_epsilon**2)
        return math.sqrt(noise.changed * fisher_information(noise.p) * noise.shift**2 + extra)

    def _loss_sum(self, epsilon: float) -> tuple[float, float]:
        single = math.sqrt(fisher_information(self.noise.p)) * self.noise.shift
        return max(single / 128, 24 * self._loss_std() / 2**19), epsilon + 40 + 12 * self._loss_std()


def _initial_epsilon(spread: float, delta: float) -> float:
    """Return the epsilon of Gaussian noise, but not much less than one loss: the search takes steps of its size."""
    return max(cv.gdp_epsilon(spread, delta), 0.05 * spread) + 1e-9


def response_loss(epsilon: float, step: float, count: int) -> DiscretePLD:
    """Return the loss of randomised response, the worst eps-DP mechanism: +-eps with odds e^eps : 1, rounded up."""
    cells = math.ceil(epsilon / step - 1e-9)
    mass = np.zeros(2 * cells + 1)
    level = cells * step
    mass[-1], mass[0] = 1 / (1 + math.exp(-level)), 1 / (1 + math.exp(level))
    return DiscretePLD(step=step, first=-cells, mass=mass, infinity=0.0, count=count)


@lru_cache(maxsize=4096)
def _certified_delta(p: float, shift: float, changed: int, epsilon: float) -> float:
    return certified_delta(p, shift, changed, epsilon)


@lru_cache(maxsize=64)
def _coordinate_renyi(p: float, shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(single_renyi(p, shift, np.asarray(orders)))


def _to_pld(total: LossSum, grid: float) -> Any:
    """Convert to dp-accounting's distribution: each mass is split over two grid points, by connecting the dots."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution as pld

    losses, masses, infinity = total.distribution()
    nonzero = masses > 0
    losses, masses = losses[nonzero], masses[nonzero]
    cell = np.floor(losses / grid)
    right = masses * np.expm1(-(losses - cell * grid)) / math.expm1(-grid)
    right = np.clip(right, 0.0, masses)
    first = int(cell[0]) if cell.size else 0
    index = (cell - first).astype(int)
    size = int(index[-1]) + 2 if index.size else 2
    table = np.bincount(index, masses - right, size) + np.bincount(index + 1, right, size)
    pmf = pld_pmf.DensePLDPmf(grid, first, table, infinity, pessimistic_estimate=True)
    return pld.PrivacyLossDistribution(pmf)
