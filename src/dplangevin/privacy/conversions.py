"""Conversions between currencies of privacy: GDP, Renyi, zCDP, pure, bounded range and (eps, delta).

Every function rounds to the private side where it rounds at all, and answers infinity (epsilon) or 1 (delta)
when a number overflows: never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import erfcx, ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisected, grown_until

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


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_TINY = 5e-324
_ROUNDING = 1e-15  # four units of round-off, relative to the largest term of a sum
_SMALL_MU = 1.0


def square_over(value: float, divisor: float) -> float:
    """value^2 / divisor, rounded up: never zero for a positive value."""
    return 0.0 if value == 0 else max(value * value / divisor * (1 + 4e-16), _TINY)


def times_up(value: float, factor: int) -> float:
    """value times a whole number, rounded up."""
    near = value * factor
    if not math.isfinite(near) or Fraction(near) >= Fraction(value) * factor:
        return near
    return math.nextafter(near, math.inf)


def gdp_group_delta(mu: float, extra_delta: float, size: int) -> float:
    """What an additive delta beside mu-GDP becomes for `size` records, rounded up; beside it stands (size mu)-GDP.

    One record raises the probability of an event from a to at most g(a) + x, g(a) = Phi(Phi^-1(a) + mu). g is concave
    with g(0) = 0, so g(a + b) <= g(a) + g(b), and `size` records give g^size(a) + sum over j < size of g^j(x), where
    g^j has j mu in the place of mu (docs/theory/privacy_filter.md).
    """
    if extra_delta <= 0:
        return 0.0
    if extra_delta >= 1 or not math.isfinite(mu):
        return 1.0
    start = float(ndtri(extra_delta))
    terms = [extra_delta, *(float(ndtr(start + j * mu)) for j in range(1, size))]
    return min(1.0, math.fsum(terms) * (1 + 1e-12))


def gdp_delta(mu: float, epsilon: ArrayLike, *, quick: bool = False) -> Floats:
    """delta(eps) of mu-GDP: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), rounded up.

    With x = eps/mu - mu/2, the Mills ratio m and density phi this is phi(x) (m(x) - m(x + mu)); for mu < 1 the
    difference is the integral of e^{-xt - t^2/2} (1 - e^{-mu t}) over t > 0, in which nothing cancels. Where doubles
    underflow the answer is the smallest positive one, never zero.

    quick : for many points. Where mu is not very small the difference is taken as it stands, with both ratios rounded
        apart by far more than their errors: an upper bound that is within 1e-8 of the other where it matters.
    """
    eps = np.asarray(epsilon, float)
    if mu == 0:
        return np.where(eps >= 0, 0.0, -np.expm1(np.minimum(eps, 0)))
    if not math.isfinite(mu):
        return np.ones_like(eps)
    with np.errstate(under="ignore", over="ignore", invalid="ignore", divide="ignore"):
        size = np.abs(eps)
        ratio = np.minimum(size / mu, 1e300)
        # three units of rounding down: for large mu the subtraction loses absolute digits
        near = ratio - mu / 2 - 3 * np.spacing(np.maximum(ratio, mu / 2))
        near = np.minimum(near, 1e3)
        if mu >= _SMALL_MU:
            above = _gdp_large(mu, near)
        else:
            above = _gdp_quick(mu, near) if quick and mu >= 0.01 else _gdp_small(mu, near)
        above = np.where(np.isinf(size), 0.0, np.maximum(above * (1 + 5e-12), _TINY))
        # the other side of eps = 0, by symmetry: 1 - e^eps + e^eps delta(-eps)
        result = np.where(eps >= 0, above, (-np.expm1(-size) + np.exp(-size) * above) * (1 + 1e-15))
    return np.asarray(np.where(np.isnan(result), 1.0, np.clip(result, 0.0, 1.0)))


def _gdp_quick(mu: float, near: Floats) -> Floats:
    """As _gdp_large, for x >= -mu/2 > -1; erfcx errs by less than 1e-13 of its value."""
    difference = _mills(near) * (1 + 1e-13) - _mills(near + mu) * (1 - 1e-13)
    return np.asarray(np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi) * difference)


def _gdp_large(mu: float, near: Floats) -> Floats:
    """phi(x) (m(x) - m(x + mu)), with Phi(-x) for the first product where x is negative."""
    density = np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    far = _mills(near + mu)
    return np.where(near > 0, density * (_mills(np.maximum(near, 0.0)) - far), ndtr(-near) - density * far)


def _mills(x: Floats) -> Floats:
    """Phi(-x) / phi(x)."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


def _gdp_small(mu: float, near: Floats) -> Floats:
    """phi(x) times the integral of e^{-xt - t^2/2} (1 - e^{-mu t}); the part beyond 48 e-foldings is below 1e-18."""
    x = near[..., None]
    top = 96 / (x + np.sqrt(x**2 + 96))
    t = top * (1 + _NODES) / 2
    small = mu * t
    share = np.where(small > 1e-17, -np.expm1(-small) / np.maximum(small, 1e-300), 1.0)
    total = np.sum(top / 2 * _WEIGHTS * t * share * np.exp(-x * t - t**2 / 2), axis=-1)
    return np.asarray(mu * (np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi) * total))


def _invert_decreasing(delta_of: Callable[[float], float], delta: float, start: float = 1.0) -> float:
    """Smallest eps found with delta_of(eps) <= delta, on the safe side; delta_of is nonincreasing."""
    if delta_of(0.0) <= delta:
        return 0.0

    def enough(epsilon: float) -> bool:
        return delta_of(epsilon) <= delta

    high = grown_until(enough, start, 1e300)
    return math.inf if high is None else bisected(enough, high, 0.0, rounds=200, relative=1e-15)


def _log_excess(mu: float, target: float, epsilon: float) -> float:
    """log delta(eps) of mu-GDP over its target."""
    return math.log(max(float(gdp_delta(mu, epsilon)), _TINY)) - target


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
            return float(np.float64(mu) * (np.float64(mu) / 2 + max(-ndtri(delta), 0.0)) * (1 + 4e-15))
    high = grown_until(lambda eps: float(gdp_delta(mu, eps)) <= delta, mu * mu / 2 + mu, 1e300)
    if high is None:
        return math.inf
    excess = partial(_log_excess, mu, math.log(delta))
    root = float(brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14))
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
    root = float(brentq(_log_excess, low, high, (math.log(delta), epsilon), xtol=1e-300, rtol=1e-14))
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
    tail = (math.log(delta) + np.log(alpha)) / (alpha - 1)
    eps = r + np.log1p(-1 / alpha) - tail
    best = float(np.min(eps + _ROUNDING * (r + np.abs(tail) + 1)))
    return max(best, 0.0)


def rdp_delta(orders: ArrayLike, values: ArrayLike, epsilon: float) -> float:
    """Tight RDP -> delta: min over alpha of exp((alpha - 1)(r - eps + log(1 - 1/alpha)) - log alpha)."""
    alpha, r = np.asarray(orders, float), np.asarray(values, float)
    r = np.where(np.isnan(r), np.inf, r)
    log_delta = (alpha - 1) * (r - epsilon + np.log1p(-1 / alpha)) - np.log(alpha)
    log_delta = log_delta + _ROUNDING * ((alpha - 1) * (r + epsilon + 1) + np.log(alpha))
    return float(min(1.0, max(math.exp(min(0.0, float(np.min(log_delta)))) * (1 + 1e-15), _TINY)))


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
    coarse = 1 + centre * np.geomspace(0.02, 50, 41)
    value = (coarse - 1) * (rho * coarse - epsilon + np.log1p(-1 / coarse)) - np.log(coarse)
    orders = 1 + (coarse[int(np.argmin(value))] - 1) * np.geomspace(0.8, 1.25, 301)
    return rdp_delta(orders, rho * orders, epsilon)


def pure_delta(epsilon0: float, epsilon: float) -> float:
    """delta at eps of an epsilon0-DP mechanism (attained by randomised response)."""
    if epsilon >= epsilon0:
        return 0.0
    return min(1.0, -math.expm1(epsilon - epsilon0) / (1 + math.exp(-epsilon0)) * (1 + 1e-15))


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
    return min(1.0, math.expm1(-(epsilon0 - epsilon) / 2) ** 2 / -math.expm1(-epsilon0) * (1 + 2e-15))


def bounded_range_epsilon(epsilon0: float, delta: float) -> float:
    """eps at delta of one epsilon0-bounded-range mechanism."""
    return _invert_decreasing(
        lambda eps: bounded_range_delta(epsilon0, eps), delta, start=max(epsilon0, 1e-300)
    )
