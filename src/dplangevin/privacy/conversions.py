"""Conversions between currencies of privacy: GDP, Renyi, zCDP, pure, bounded range and (eps, delta).

Every function rounds to the private side where it rounds at all, and answers infinity (epsilon) or 1 (delta)
when a number overflows: never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtri

from dplangevin import _check

Floats = NDArray[np.float64]

ORDERS: Floats = np.unique(
    np.concatenate(
        [
            np.arange(101, 200) / 100,
            np.arange(20, 101) / 10,
            np.arange(10, 65),
            [72, 80, 96, 128, 160, 192, 256, 384, 512, 1024, 2048, 4096],
        ]
    )
)
"""Renyi orders: within 0.04% of the continuous optimum for mu in [0.3, 3]."""


def gdp_delta(mu: float, epsilon: ArrayLike) -> Floats:
    """delta(eps) of mu-GDP: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), without cancellation."""
    eps = np.asarray(epsilon, float)
    if mu == 0:
        return np.where(eps >= 0, 0.0, -np.expm1(np.minimum(eps, 0)))
    if not math.isfinite(mu):
        return np.ones_like(eps)
    near, far = eps / mu - mu / 2, eps / mu + mu / 2
    upper = log_ndtr(-near)
    # e^eps phi(far) = phi(near): the second term through the Mills ratio, so that large mu loses no digits
    with np.errstate(under="ignore", over="ignore", invalid="ignore", divide="ignore"):
        mills = np.where(
            far > 0,
            np.log(math.sqrt(math.pi / 2) * erfcx(np.maximum(far, 0.0) / math.sqrt(2))),
            log_ndtr(-far) + far**2 / 2 + math.log(2 * math.pi) / 2,
        )
        lower = -(near**2) / 2 - math.log(2 * math.pi) / 2 + mills
        gap = np.where(np.isneginf(upper), 0.0, np.minimum(lower - upper, 0.0))
        result = np.where(np.isneginf(upper), 0.0, np.exp(upper) * -np.expm1(gap))
    return np.asarray(np.clip(result, 0.0, 1.0))


def _invert_decreasing(delta_of: Callable[[float], float], delta: float, start: float = 1.0) -> float:
    """Smallest eps found with delta_of(eps) <= delta, on the safe side; delta_of is nonincreasing."""
    if delta_of(0.0) <= delta:
        return 0.0
    high = start
    while delta_of(high) > delta:
        high *= 2
        if high > 1e300:
            return math.inf
    low = 0.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high) or high - low <= 1e-15 * high:
            break
        if delta_of(middle) > delta:
            low = middle
        else:
            high = middle
    return high


@lru_cache(maxsize=4096)
def gdp_epsilon(mu: float, delta: float) -> float:
    """The eps with gdp_delta(mu, eps) = delta, rounded up; 0 when delta(0) is small enough already."""
    if mu == 0:
        return 0.0
    if not math.isfinite(mu) or delta < 1e-300:  # below that curves underflow: as good as no delta
        return math.inf
    if float(gdp_delta(mu, 0.0)) <= delta:
        return 0.0
    if mu > 1e6:  # delta <= Phi(-eps/mu + mu/2), as good as exact here and safe from cancellation
        with np.errstate(over="ignore"):
            return float(np.float64(mu) * (np.float64(mu) / 2 + max(-ndtri(delta), 0.0)) * (1 + 1e-15))
    high = mu * mu / 2 + mu
    while float(gdp_delta(mu, high)) > delta:
        high *= 2
        if high > 1e300:
            return math.inf
    target = math.log(delta)

    def log_delta(eps: float) -> float:
        return math.log(max(float(gdp_delta(mu, eps)), 1e-320)) - target

    root = float(brentq(log_delta, 0.0, high, xtol=1e-300, rtol=1e-14))
    step = max(abs(root), 1e-300) * 1e-14
    while float(gdp_delta(mu, root)) > delta and root < high:
        root += step
        step *= 2
    return min(root, high)


@lru_cache(maxsize=4096)
def gdp_mu(epsilon: float, delta: float) -> float:
    """The largest mu with gdp_delta(mu, eps) <= delta, rounded down."""
    _check.open_unit("delta", delta)
    _check.nonnegative("epsilon", epsilon)
    high = 1.0
    while float(gdp_delta(high, epsilon)) <= delta:
        high *= 2
    low = high / 2
    while float(gdp_delta(low, epsilon)) > delta:
        low /= 2
        if low < 1e-300:
            return 0.0
    target = math.log(delta)

    def log_delta(mu: float) -> float:
        return math.log(max(float(gdp_delta(mu, epsilon)), 1e-320)) - target

    root = float(brentq(log_delta, low, high, xtol=1e-300, rtol=1e-14))
    step = root * 1e-14
    while float(gdp_delta(root, epsilon)) > delta and root > low:
        root -= step
        step *= 2
    return max(root, low)


def rdp_epsilon(orders: ArrayLike, values: ArrayLike, delta: float) -> float:
    """Tight RDP -> eps: min over alpha of r + log(1 - 1/alpha) - (log delta + log alpha)/(alpha - 1), at least 0."""
    if delta <= 0:
        return math.inf
    alpha, r = np.asarray(orders, float), np.asarray(values, float)
    r = np.where(np.isnan(r), np.inf, r)
    eps = r + np.log1p(-1 / alpha) - (math.log(delta) + np.log(alpha)) / (alpha - 1)
    best = float(np.min(eps))
    return max(best, 0.0)


def rdp_delta(orders: ArrayLike, values: ArrayLike, epsilon: float) -> float:
    """Tight RDP -> delta: min over alpha of exp((alpha - 1)(r - eps + log(1 - 1/alpha)) - log alpha)."""
    alpha, r = np.asarray(orders, float), np.asarray(values, float)
    r = np.where(np.isnan(r), np.inf, r)
    log_delta = (alpha - 1) * (r - epsilon + np.log1p(-1 / alpha)) - np.log(alpha)
    return float(min(1.0, math.exp(min(0.0, float(np.min(log_delta))))))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """rho-zCDP -> eps through its Renyi line r(alpha) = rho alpha, with orders scaled to rho."""
    orders = zcdp_orders(rho, delta)
    return rdp_epsilon(orders, rho * orders, delta)


def zcdp_orders(rho: float, delta: float) -> Floats:
    """A fine grid of orders around the optimum 1 + sqrt(log(1/delta)/rho) of a Renyi line."""
    if not rho > 0 or not math.isfinite(rho):
        return ORDERS
    centre = math.sqrt(max(math.log(1 / delta), 1e-3) / rho)
    return np.asarray(1 + centre * np.geomspace(0.02, 50, 2001))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """rho-zCDP -> delta at eps."""
    if not rho > 0 or not math.isfinite(rho):
        return 0.0 if rho == 0 else 1.0
    centre = max((epsilon / rho + 1) / 2 - 1, 1e-3)
    orders = 1 + centre * np.geomspace(0.02, 50, 2001)
    return rdp_delta(orders, rho * orders, epsilon)


def pure_delta(epsilon0: float, epsilon: float) -> float:
    """delta at eps of an epsilon0-DP mechanism (attained by randomised response)."""
    if epsilon >= epsilon0:
        return 0.0
    return -math.expm1(epsilon - epsilon0) / (1 + math.exp(-epsilon0))


def pure_epsilon(epsilon0: float, delta: float) -> float:
    """eps at delta of an epsilon0-DP mechanism."""
    return _invert_decreasing(lambda eps: pure_delta(epsilon0, eps), delta, start=max(epsilon0, 1e-300))


def pure_rdp(epsilon0: float, orders: ArrayLike) -> Floats:
    """Renyi curve of randomised response, the worst epsilon0-DP mechanism."""
    alpha = np.asarray(orders, float)
    log_p = -np.logaddexp(0.0, -epsilon0)
    log_q = log_p - epsilon0
    value = np.logaddexp(alpha * log_p + (1 - alpha) * log_q, alpha * log_q + (1 - alpha) * log_p) / (
        alpha - 1
    )
    return np.asarray(np.minimum(value, epsilon0))


def bounded_range_delta(epsilon0: float, epsilon: float) -> float:
    """delta at eps of one epsilon0-bounded-range mechanism: (1 - e^{-(e0 - e)/2})^2 / (1 - e^{-e0})."""
    if epsilon >= epsilon0:
        return 0.0
    return math.expm1(-(epsilon0 - epsilon) / 2) ** 2 / -math.expm1(-epsilon0)


def bounded_range_epsilon(epsilon0: float, delta: float) -> float:
    """eps at delta of one epsilon0-bounded-range mechanism."""
    return _invert_decreasing(
        lambda eps: bounded_range_delta(epsilon0, eps), delta, start=max(epsilon0, 1e-300)
    )
