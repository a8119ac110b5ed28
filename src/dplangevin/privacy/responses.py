"""Many randomised responses at once: the exact composition of equal pure promises, whatever their number.

k adaptive eps0-DP releases are dominated by k randomised responses (Kairouz, Oh and Viswanath, 2015), whose losses
are (2J - k) eps0 with J ~ Bin(k, p), p = 1/(1 + e^{-eps0}). So delta(eps) = sum_j P[J = j] (1 - e^{eps - (2j - k)
eps0})_+. The sum is taken over blocks of j: the largest probability and the largest loss in a block bound its terms
from above, and Okamoto's inequality (p >= 1/2) what lies beyond the last block. Time and memory do not grow with k.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from dplangevin._arrays import Floats

BLOCKS = 6000
_REACH = 40.0  # standard deviations: beyond them lies less than any delta that doubles can hold
_ROUNDING = 1e-9
_LARGEST_COUNT = 2**52


def response_delta(epsilon0: float, count: int, epsilon: float) -> float:
    """delta at eps of `count` eps0-DP releases, rounded up."""
    if epsilon >= count * epsilon0:
        return 0.0
    if count > _LARGEST_COUNT or not epsilon0 < 700:
        return 1.0
    p, q = 1 / (1 + math.exp(-epsilon0)), 1 / (1 + math.exp(epsilon0))
    # the first j with a loss above eps, one too early rather than too late (its term is then clipped at 0)
    first = max(0, math.floor((epsilon / epsilon0 + count) / 2 * (1 - 1e-15)))
    spread = math.sqrt(count * p * q) + 1
    last = min(count, math.ceil(max(count * p, first) + _REACH * spread))
    edges = _edges(first, last, count * p, spread)
    left, right = edges[:-1], edges[1:] - 1
    mode = min(count, math.floor((count + 1) * p))
    top = np.where(left > mode, left, np.where(right < mode, right, float(mode)))
    log_mass = _log_binomial(top, count, p, q, epsilon0)
    loss = epsilon0 * (2 * right - count)
    gain = -np.expm1(np.minimum(epsilon - loss - 1e-15 * (np.abs(loss) + epsilon), 0.0))
    total = float(np.sum((right - left + 1) * np.exp(log_mass) * gain))
    return min(1.0, total * (1 + _ROUNDING) + (1e-300 if last < count else 0.0))


@lru_cache(maxsize=256)
def response_epsilon(epsilon0: float, count: int, delta: float) -> float:
    """eps at delta of `count` eps0-DP releases, rounded up."""
    most = count * epsilon0
    if delta <= 1e-290 or response_delta(epsilon0, count, math.nextafter(most, 0.0)) > delta:
        return most
    if response_delta(epsilon0, count, 0.0) <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        return math.log(max(response_delta(epsilon0, count, epsilon), 1e-300) / delta)

    low, high = 0.0, min(most, count * epsilon0 * math.tanh(epsilon0 / 2) + 40 * epsilon0 * math.sqrt(count))
    while high < most and excess(high) > 0:
        high = min(most, 2 * high)
    found = float(brentq(excess, low, high, xtol=1e-300, rtol=1e-12))
    step = max(found, 1e-300) * 1e-12
    while found < high and response_delta(epsilon0, count, found) > delta:
        found, step = found + step, 2 * step
    return min(found, most)


def _edges(first: int, last: int, mean: float, spread: float) -> Floats:
    """Whole numbers from first to last + 1: every j where there are few, else blocks, finest where the mass is."""
    if last - first < BLOCKS:
        return np.arange(first, last + 2, dtype=np.float64)
    near = np.linspace(first, min(last, max(first, mean) + 10 * spread), BLOCKS)
    after = np.linspace(near[-1], last + 1, BLOCKS // 8)
    return np.unique(np.concatenate([[first], np.floor(near), np.floor(after), [last + 1]]))


def _log_binomial(j: Floats, count: int, p: float, q: float, epsilon0: float) -> Floats:
    """log P[Bin(count, p) = j] by Loader's saddle point, rounded up but for a relative error below 1e-9."""
    rest = count - j
    inside = (j > 0) & (rest > 0)
    safe, other = np.where(inside, j, 1.0), np.where(inside, rest, 1.0)
    # j - count p = count q - (count - j): the one deviation, from the difference that is exact in doubles
    away = (j - count / 2) - count / 2 * math.tanh(epsilon0 / 2)
    value = (
        _stirling_error(np.asarray(float(count)))
        - _stirling_error(safe)
        - _stirling_error(other)
        - _deviance(away, count * p)
        - _deviance(-away, count * q)
        + 0.5 * np.log(count / (2 * math.pi * safe * other))
    )
    ends = np.where(j == 0, count * math.log(q), count * math.log1p(-q))
    # what rounding of count p, count q and of the deviation can change, to first order and doubled
    unsure = 1e-15 * count * (np.abs(np.log(safe / (count * p))) + np.abs(np.log(other / (count * q))))
    return np.where(inside, value + unsure + 1e-15 * np.abs(away), ends)


def _deviance(away: Floats, mean: float) -> Floats:
    """x log(x/mean) - x + mean at x = mean + away, from a series where x is close to the mean."""
    ratio = away / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = np.where(ratio > -1, (1 + ratio) * np.log1p(ratio) - ratio, 1.0)
    small = np.where(np.abs(ratio) < 0.05, ratio, 0.0)
    series = sum((-small) ** k / (k * (k - 1)) for k in range(2, 16))
    return mean * np.where(np.abs(ratio) < 0.05, series, plain)


def _stirling_error(n: Floats) -> Floats:
    """log n! - log(sqrt(2 pi n) (n/e)^n)."""
    exact = _EXACT[np.minimum(n, 15).astype(int)]
    x = np.maximum(n, 15.0)
    square = x * x
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / x
    return np.asarray(np.where(n < 16, exact, series))


_EXACT = np.array(
    [0.0] + [math.lgamma(n + 1) - 0.5 * math.log(2 * math.pi * n) - n * math.log(n) + n for n in range(1, 16)]
)
