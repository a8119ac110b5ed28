"""delta(eps) of a sum of independent privacy losses on one grid, by an exponentially tilted FFT.

For independent losses L_i under P, delta(eps) = E[(1 - e^{eps - sum L_i})_+]. Tilting by e^{theta l} moves the mass
to the loss that matters, so the answer has relative accuracy at any delta. Everything the transform may miss is
bounded and added: the wrapped upper tail (Chernoff), the mass at infinity, and round-off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from dplangevin._arrays import Floats
from dplangevin.errors import CalibrationFailed

UNIT = 2.3e-16
LARGEST_TRANSFORM = 2**22
LARGEST_TILT = 2.0**30
LOSS_ROUNDING = 1e-13
"""What round-off in the masses can change in the mean of one loss, with a margin."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyLoss:
    """P[L = step (first + i)] = mass[i], P[L = infinity] = infinity, used `count` times."""

    step: float
    first: int
    mass: Floats
    infinity: float
    count: int

    @property
    def values(self) -> Floats:
        """The losses that carry the masses."""
        return self.step * (self.first + np.arange(self.mass.size, dtype=float))


def _dot(a: Floats, b: Floats) -> float:
    """Without BLAS, whose threads cost more than they give here."""
    return float(np.einsum("i,i->", a, b))


class LossSum:
    """The sum of all losses of `losses` (one common step), each repeated `count` times.

    `slack` is added to every loss sum: it pays for round-off in the masses themselves.
    """

    def __init__(self, *losses: PrivacyLoss) -> None:
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
        """K(theta) = log E[e^{theta sum}; finite], its derivative and its second derivative."""
        value = mean = variance = 0.0
        for logs, losses, count in self._logs:
            exponent = logs + theta * losses
            top = float(np.max(exponent))
            weights = np.exp(exponent - top)
            total = float(weights.sum())
            centre = _dot(weights, losses) / total
            value += count * (top + math.log(total))
            mean += count * centre
            variance += count * _dot(weights, (losses - centre) ** 2) / total
        return value, mean, variance

    def tilt(self, target: float) -> float:
        """theta >= 0 that minimises K(theta) - theta target (the tilted mean is then the target)."""
        if self.cumulants(0.0)[1] >= target:
            return 0.0
        if target > self._largest * (1 + 1e-12):  # no tilt has such a mean
            return LARGEST_TILT
        low, high = 0.0, 1.0
        while self.cumulants(high)[1] < target:
            low, high = high, 2 * high
            if high >= LARGEST_TILT:
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

    def tail(self, level: float) -> float:
        """Chernoff bound on P[level <= sum < infinity]."""
        theta = self.tilt(level)
        return math.exp(min(0.0, self.cumulants(theta)[0] - theta * level))

    def delta(self, epsilon: float) -> float:
        """Upper bound on delta(epsilon)."""
        if self.infinity >= 1 or any(not loss.mass.any() for loss in self.losses):
            return 1.0
        target = epsilon - self.slack
        if target >= self._largest:
            return self.infinity
        theta = self.tilt(target)
        _, mean, variance = self.cumulants(theta)
        best = 1.0
        for deviations in (12, 24, 48, 96, 192, 384):
            reach = deviations * math.sqrt(variance) + 32 * self.step
            size = next_fast_len(int(2 * reach / self.step), real=True)
            if size > LARGEST_TRANSFORM:
                break
            wide = 4 * reach / self.step > LARGEST_TRANSFORM or deviations == 384
            if not wide and self._below(theta, mean - reach) > 1e-6:
                continue
            value, missed = self._window(target, theta, math.floor(mean / self.step) - size // 2, size)
            best = min(best, value)
            if missed <= 1e-6 * value:
                break
        return best

    def _window(self, target: float, theta: float, lowest: int, size: int) -> tuple[float, float]:
        """(bound from the transform on `size` points from `lowest` on, the part that pays for the tail above)."""
        weights, error = self._convolved(theta, size, lowest)
        losses = self.step * (lowest + np.arange(size, dtype=float))
        above = losses > target
        gap = losses[above] - target
        exponent = self.cumulants(theta)[0] - theta * target
        if not exponent < 1:  # at the minimum it is at most 0
            return 1.0, 1.0
        prefactor = math.exp(exponent)
        core = prefactor * _dot(weights[above], np.exp(-theta * gap) * -np.expm1(-gap))
        missed = self.tail(self.step * (lowest + size))
        total = core + missed + self.infinity + prefactor * error
        if not (math.isfinite(total) and core >= 0):
            return 1.0, 1.0
        return min(total, 1.0), missed

    def _below(self, theta: float, level: float) -> float:
        """Chernoff bound on the tilted probability of sums below `level`, which the transform wraps upwards."""
        value, mean, variance = self.cumulants(theta)
        best = 1.0
        for share in (1, 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32):
            move = share * (mean - level) / max(variance, self.step**2)
            best = min(best, math.exp(min(0.0, self.cumulants(theta - move)[0] - value + move * level)))
            if best <= 1e-6:
                break
        return best

    def _convolved(self, theta: float, size: int, lowest: int) -> tuple[Floats, float]:
        """Tilted masses of the sum at indices lowest ... lowest + size - 1 (cyclic), and an l1 bound on their error.

        Mass outside the window is wrapped into it, which can only add. Each spectrum value is off by a few
        units u of rounding, so its count-th power by count u |power|; Parseval turns that into the bound.
        """
        spectrum = np.ones(size // 2 + 1, dtype=complex)
        count = 0
        for loss, (logs, losses, uses) in zip(self.losses, self._logs, strict=True):
            exponent = logs + theta * losses
            weights = np.exp(exponent - np.max(exponent))
            place = (loss.first + np.arange(weights.size)) % size
            folded = np.bincount(place, weights=weights / weights.sum(), minlength=size)
            spectrum *= rfft(folded) ** uses
            count += uses
        result = np.roll(irfft(spectrum, size), -(lowest % size))
        energy = math.sqrt(2 * float(np.sum(np.abs(spectrum) ** 2)))
        error = UNIT * (16 * count * energy + 40 * math.sqrt(size * _dot(result, result)))
        return np.maximum(result, 0.0), error

    def distribution(self) -> tuple[Floats, Floats, float]:
        """(losses, masses, mass at infinity) of a distribution that dominates the sum's, without tilting."""
        if self.infinity >= 1 or any(not loss.mass.any() for loss in self.losses):
            return np.zeros(1), np.zeros(1), 1.0
        _, mean, variance = self.cumulants(0.0)
        for deviations in (10, 20, 40, 80):
            reach = deviations * math.sqrt(variance) + 32 * self.step
            size = next_fast_len(int(2 * reach / self.step), real=True)
            lowest = math.floor(mean / self.step) - size // 2
            tail = self.tail(self.step * (lowest + size))
            if tail <= 1e-16 or 4 * reach / self.step > LARGEST_TRANSFORM:
                break
        masses, error = self._convolved(0.0, size, lowest)
        losses = self.step * (lowest + np.arange(size, dtype=float)) + self.slack
        return losses, masses, min(1.0, tail + error + self.infinity)


def smallest_epsilon(delta_of: Callable[[float], float], delta: float, start: float) -> float:
    """An eps with delta_of(eps) <= delta, within 1e-7 of the smallest; delta_of is nonincreasing."""
    if delta_of(0.0) <= delta:
        return 0.0
    target = math.log(delta)

    def excess(epsilon: float) -> float:
        return max(math.log(max(delta_of(max(epsilon, 0.0)), 1e-320)) - target, -4.0)

    return decreasing_root(excess, start, -20.0 / start, 1e-7 * start, start)[0]


def decreasing_root(
    excess: Callable[[float], float], start: float, slope: float, tolerance: float, reach: float = 1.0
) -> tuple[float, float]:
    """(x with excess(x) <= 0 within the tolerance of the root, slope there): secant steps inside a bracket.

    `excess` is decreasing; a step is at most `reach` and aims half a tolerance to the negative side.
    """
    low, high, x, last = -math.inf, math.inf, start, None
    for turn in range(200):
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
        x = min(max(x, last[0] - reach), last[0] + reach)
        closed = math.isfinite(high - low)
        if closed and (
            turn % 4 == 3 or not low < x < high
        ):  # bisections end the search whatever the function
            x = 0.5 * (low + high)
        elif not low < x < high:
            x = last[0] + math.copysign(reach / 10, value)
    raise CalibrationFailed("the search did not end; choose another epsilon, delta or p.")
