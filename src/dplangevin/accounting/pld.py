"""Privacy loss distributions: those of dp-accounting, and sums of independent losses by an exponentially tilted FFT.

For independent losses L_i under P, delta(eps) = E[(1 - e^{eps - sum L_i})_+]. Tilting by e^{theta l} moves the mass
to the losses that matter, so the result has relative accuracy at any delta. Everything that the transform may miss is
bounded and added: the wrapped upper tail (Chernoff), the mass at infinity, and round-off. dp-accounting is imported
on first use, because its import alone takes a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft

from dplangevin._arrays import Floats
from dplangevin.accounting.sampled_gaussian import directed_hockey_stick
from dplangevin.errors import CalibrationFailed

LOSS_GRID = 1e-4


@lru_cache(maxsize=64)
def gaussian_pld(mu: float, grid: float) -> Any:
    """Return dp-accounting's distribution of mu-GDP."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=grid)


@lru_cache(maxsize=64)
def sampled_gaussian_pld(rate: float, noise_multiplier: float, grid: float) -> Any:
    """Return the distribution of one Poisson-sampled Gaussian step under add-remove, a record removed and one added.

    dp-accounting's distribution: its range and its dots (Doroshenko, Ghazi, Kamath, Kumar and Manurangsi, 2022), which
    it finds one by one.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution as pld, privacy_loss_mechanism as losses

    masses = []
    for kind in (losses.AdjacencyType.REMOVE, losses.AdjacencyType.ADD):
        loss = losses.GaussianPrivacyLoss(noise_multiplier, sampling_prob=rate, adjacency_type=kind)
        bounds = loss.connect_dots_bounds()
        low, high = math.floor(bounds.epsilon_lower / grid), math.ceil(bounds.epsilon_upper / grid)
        epsilons = np.arange(low, high + 1) * grid
        removed = kind == losses.AdjacencyType.REMOVE
        deltas = directed_hockey_stick(rate, noise_multiplier, epsilons, removed=removed)
        falling = np.maximum.accumulate(deltas[::-1])[::-1]
        masses.append(pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, low, high, falling))
    return pld.PrivacyLossDistribution(*masses)


@lru_cache(maxsize=64)
def pure_pld(epsilon: float, delta: float, grid: float) -> Any:
    """Return dp-accounting's distribution of (epsilon, delta)-DP."""
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, delta), grid)


def symmetric_pld(hockey_stick: Callable[[Floats], Floats], span: float, grid: float) -> Any:
    """Return the pessimistic distribution of a curve H(e^eps), eps of either sign, that holds in both directions."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution as pld

    top = int(np.ceil(span / grid))
    index = np.arange(-top, top + 1)
    deltas = np.clip(hockey_stick(index.astype(np.float64) * grid), 0.0, 1.0)
    deltas = np.minimum.accumulate(deltas)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(grid, index, deltas))


def connect_the_dots(epsilons: Floats, deltas: Floats, grid: float) -> Any | None:
    """Return a dominating distribution of any delta(eps) curve that is valid in both directions.

    The true curve is convex in e^eps, so the greatest convex minorant of valid points is valid too; below
    eps = 0 it is 1 - g + g h(1/g), g = e^eps (the other direction). None where nearly all losses are huge.
    """
    first = np.concatenate([[0.0], epsilons]) if epsilons[0] > 0 else epsilons
    level = np.concatenate([[1.0], deltas]) if epsilons[0] > 0 else deltas
    in_range = first <= 690.0
    if not in_range.all():  # beyond it e^eps overflows: the last chord is replaced by a level line
        first, level = first[in_range], level[in_range]
    if level[-1] > 0.9:
        return None
    ratio = np.exp(first)
    # the mirror image of a chord is a chord, so the corners are enough
    ratios = np.concatenate([1 / ratio[:0:-1], ratio])
    values = np.concatenate([(1 - 1 / ratio + level / ratio)[:0:-1], level])
    hull = lower_hull(ratios, values)
    corners: Floats = ratios[hull]
    heights: Floats = values[hull]
    span = max(float(first[-1]), grid)

    def minorant(eps: Floats) -> Floats:
        inside = np.interp(np.exp(np.clip(eps, -690.0, 690.0)), corners, heights)
        return np.where(
            eps < -first[-1], np.maximum(-np.expm1(eps) + np.exp(eps) * level[-1], heights[0]), inside
        )

    return symmetric_pld(minorant, span, grid)


def lower_hull(x: Floats, y: Floats) -> NDArray[np.intp]:
    """Return the indices of the corners of the greatest convex minorant of the points."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return np.array(corners, dtype=np.intp)


UNIT_ROUNDOFF = 2.3e-16
MAX_TRANSFORM_SIZE = 2**22
MAX_TILT = 2.0**30
LOSS_ROUNDING = 1e-13
"""Bound on the effect of round-off in the masses on the mean of one loss, with a margin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DiscretePLD:
    """A discrete privacy loss: P[L = step (first + i)] = mass[i], P[L = infinity] = infinity, used `count` times."""

    step: float
    first: int
    mass: Floats
    infinity: float
    count: int

    @property
    def values(self) -> Floats:
        """The losses that carry the masses."""
        return self.step * (self.first + np.arange(self.mass.size, dtype=float))


def _dot_without_blas(a: Floats, b: Floats) -> float:
    """Return the dot product without BLAS, whose threads cost more than they gain here."""
    return float(np.einsum("i,i->", a, b))


class LossSum:
    """The sum of independent discrete losses on one common grid, each repeated `count` times.

    `slack` is added to every sum: it covers round-off in the masses themselves.
    """

    def __init__(self, *losses: DiscretePLD) -> None:
        self.losses = losses
        self.slack = LOSS_ROUNDING * sum(loss.count for loss in losses)
        self.step = losses[0].step
        if any(loss.step != self.step for loss in losses):
            raise ValueError("all losses must share one grid")
        self.infinity = math.fsum(loss.count * loss.infinity for loss in losses)
        with np.errstate(divide="ignore"):
            self._logs = tuple((np.log(loss.mass), loss.values, loss.count) for loss in losses)
        self._largest = math.fsum(count * values[-1] for _, values, count in self._logs)

    def cumulants(self, theta: float) -> tuple[float, float, float]:
        """Return K(theta) = log E[e^{theta sum}; finite], its derivative and its second derivative."""
        value = mean = variance = 0.0
        for logs, losses, count in self._logs:
            exponent = logs + theta * losses
            top = float(np.max(exponent))
            weights = np.exp(exponent - top)
            total = float(weights.sum())
            centre = _dot_without_blas(weights, losses) / total
            value += count * (top + math.log(total))
            mean += count * centre
            variance += count * _dot_without_blas(weights, (losses - centre) ** 2) / total
        return value, mean, variance

    def find_tilt(self, target: float) -> float:
        """Return theta >= 0 that minimises K(theta) - theta target (the tilted mean is then the target)."""
        if self.cumulants(0.0)[1] >= target:
            return 0.0
        if target > self._largest * (1 + 1e-12):  # no tilt has such a mean
            return MAX_TILT
        low, high = 0.0, 1.0
        while self.cumulants(high)[1] < target:
            low, high = high, 2 * high
            if high >= MAX_TILT:
                return high
        theta = 0.5 * (low + high)
        for _ in range(60):
            _, mean, variance = self.cumulants(theta)
            if mean < target:
                low = theta
            else:
                high = theta
            step = theta + (target - mean) / variance if variance > 0 else math.inf
            middle = step if low < step < high else 0.5 * (low + high)
            if abs(middle - theta) <= 1e-9 * (1 + theta):
                break
            theta = middle
        return theta

    def tail_bound(self, level: float) -> float:
        """Return the Chernoff bound on P[level <= sum < infinity]."""
        theta = self.find_tilt(level)
        return math.exp(min(0.0, self.cumulants(theta)[0] - theta * level))

    def delta(self, epsilon: float) -> float:
        """Return an upper bound on delta(epsilon)."""
        if self.infinity >= 1 or any(not loss.mass.any() for loss in self.losses):
            return 1.0
        target = epsilon - self.slack
        if target >= self._largest:
            return self.infinity
        theta = self.find_tilt(target)
        _, mean, variance = self.cumulants(theta)
        best = 1.0
        for deviations in (12, 24, 48, 96, 192, 384):
            span = deviations * math.sqrt(variance) + 32 * self.step
            size = next_fast_len(int(2 * span / self.step), real=True)
            if size > MAX_TRANSFORM_SIZE:
                break
            wide = 4 * span / self.step > MAX_TRANSFORM_SIZE or deviations == 384
            if not wide and self._lower_tail_bound(theta, mean - span) > 1e-6:
                continue
            value, missed = self._window_bound(target, theta, math.floor(mean / self.step) - size // 2, size)
            best = min(best, value)
            if missed <= 1e-6 * value:
                break
        return best

    def _window_bound(self, target: float, theta: float, lowest: int, size: int) -> tuple[float, float]:
        """Return the bound from the transform on `size` points from `lowest` on, and its part for the upper tail."""
        weights, error = self._convolve_tilted(theta, size, lowest)
        losses = self.step * (lowest + np.arange(size, dtype=float))
        above = losses > target
        gap = losses[above] - target
        exponent = self.cumulants(theta)[0] - theta * target
        if not exponent < 1:  # at the minimum it is at most 0
            return 1.0, 1.0
        prefactor = math.exp(exponent)
        core = prefactor * _dot_without_blas(weights[above], np.exp(-theta * gap) * -np.expm1(-gap))
        missed = self.tail_bound(self.step * (lowest + size))
        total = core + missed + self.infinity + prefactor * error
        if not (math.isfinite(total) and core >= 0):
            return 1.0, 1.0
        return min(total, 1.0), missed

    def _lower_tail_bound(self, theta: float, level: float) -> float:
        """Return the Chernoff bound on the tilted probability below `level`, which the transform wraps upwards."""
        value, mean, variance = self.cumulants(theta)
        best = 1.0
        for fraction in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32):
            move = fraction * (mean - level) / max(variance, self.step**2)
            best = min(best, math.exp(min(0.0, self.cumulants(theta - move)[0] - value + move * level)))
            if best <= 1e-6:
                break
        return best

    def _convolve_tilted(self, theta: float, size: int, lowest: int) -> tuple[Floats, float]:
        """Return tilted masses of the sum at indices lowest ... lowest + size - 1 (cyclic), and an l1 error bound.

        Mass outside the window is wrapped into it, which can only add. Each spectrum value is off by a few
        units u of rounding, so its count-th power by count u |power|; Parseval turns that into the bound.
        """
        spectrum = np.ones(size // 2 + 1, dtype=complex)
        count = 0
        for loss, (logs, losses, uses) in zip(self.losses, self._logs, strict=True):
            exponent = logs + theta * losses
            weights = np.exp(exponent - np.max(exponent))
            index = (loss.first + np.arange(weights.size)) % size
            folded = np.bincount(index, weights=weights / weights.sum(), minlength=size)
            spectrum *= rfft(folded) ** uses
            count += uses
        result = np.roll(irfft(spectrum, size), -(lowest % size))
        energy = math.sqrt(2 * float(np.sum(np.abs(spectrum) ** 2)))
        error = UNIT_ROUNDOFF * (
            16 * count * energy + 40 * math.sqrt(size * _dot_without_blas(result, result))
        )
        return np.maximum(result, 0.0), error

    def distribution(self) -> tuple[Floats, Floats, float]:
        """Return (losses, masses, mass at infinity) of a distribution that dominates the sum's, without tilting."""
        if self.infinity >= 1 or any(not loss.mass.any() for loss in self.losses):
            return np.zeros(1), np.zeros(1), 1.0
        _, mean, variance = self.cumulants(0.0)
        for deviations in (10, 20, 40, 80):
            span = deviations * math.sqrt(variance) + 32 * self.step
            size = next_fast_len(int(2 * span / self.step), real=True)
            lowest = math.floor(mean / self.step) - size // 2
            tail = self.tail_bound(self.step * (lowest + size))
            if tail <= 1e-16 or 4 * span / self.step > MAX_TRANSFORM_SIZE:
                break
        masses, error = self._convolve_tilted(0.0, size, lowest)
        losses = self.step * (lowest + np.arange(size, dtype=float)) + self.slack
        return losses, masses, min(1.0, tail + error + self.infinity)


def smallest_epsilon(delta_of: Callable[[float], float], delta: float, start: float) -> float:
    """Return an eps with delta_of(eps) <= delta, within 1e-7 of the smallest; delta_of is nonincreasing."""
    if delta_of(0.0) <= delta:
        return 0.0
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return max(math.log(max(delta_of(max(epsilon, 0.0)), 1e-320)) - target, -4.0)

    return find_decreasing_root(excess, start, -20.0 / start, 1e-7 * start, start)[0]


def find_decreasing_root(
    excess: Callable[[float], float], start: float, slope: float, tolerance: float, span: float = 1.0
) -> tuple[float, float]:
    """Return x with excess(x) <= 0 within the tolerance of the root, and the slope there, by bracketed secant steps.

    `excess` is decreasing; a step is at most `span` and aims half a tolerance to the negative side.
    """
    low, high, x, last = -math.inf, math.inf, start, None
    for iteration in range(200):
        value = excess(x)
        if value > 0:
            low = max(low, x)
        else:
            high = min(high, x)
        if last is not None and x != last[0]:
            secant = (value - last[1]) / (x - last[0])
            slope = secant if secant < 0 else slope
        if high - low <= tolerance or 0 <= -value <= tolerance * abs(slope):
            return high, slope
        last = (x, value)
        x -= (value + 0.5 * tolerance * abs(slope)) / slope
        x = min(max(x, last[0] - span), last[0] + span)
        closed = math.isfinite(high - low)
        # regular bisections end the search whatever the function
        if closed and (iteration % 4 == 3 or not low < x < high):
            x = 0.5 * (low + high)
        elif not low < x < high:
            x = last[0] + math.copysign(span / 10, value)
    raise CalibrationFailed("the search did not converge; choose another epsilon, delta or p.")
