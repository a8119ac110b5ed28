"""Conversions between privacy definitions: GDP, Renyi DP, zCDP, pure DP, bounded range and (eps, delta)-DP.

Every function rounds to the safe side, and returns infinity (epsilon) or 1 (delta), never zero, when a number
overflows.

Equal pure releases compose exactly, whatever their number: k adaptive eps0-DP releases are dominated by k randomised
responses (Kairouz, Oh and Viswanath, 2015), whose losses are (2J - k) eps0 with J ~ Bin(k, p), p = 1/(1 + e^{-eps0}).
So delta(eps) = sum_j P[J = j] (1 - e^{eps - (2j - k) eps0})_+. The sum is taken over blocks of j: the largest
probability and the largest loss in a block bound its terms from above, and Okamoto's inequality (p >= 1/2) bounds the
rest beyond the last block. Time and memory do not grow with k.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfcx, ndtr, ndtri

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side, expand_bracket, find_root

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
"""Renyi orders: the epsilon over them is within 0.04% of the continuous optimum for mu in [0.3, 3]."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
_MIN_DELTA = 5e-324
_ROUNDING_SLACK = 1e-15  # four units of round-off, relative to the largest term of a sum
_SMALL_MU = 1.0


def square_ratio_up(value: float, divisor: float) -> float:
    """Return value^2 / divisor, rounded up: never zero for a positive value."""
    return 0.0 if value == 0 else max(value * value / divisor * (1 + 4e-16), _MIN_DELTA)


def multiply_up(value: float, factor: int) -> float:
    """Return value times a whole number, rounded up."""
    near = value * factor
    if not math.isfinite(near) or Fraction(near) >= Fraction(value) * factor:
        return near
    return math.nextafter(near, math.inf)


def divide_up(value: float, divisor: float) -> float:
    """Return value / divisor, rounded up where it is not a double."""
    near = value / divisor
    if not math.isfinite(near) or Fraction(near) * Fraction(divisor) >= Fraction(value):
        return near
    return math.nextafter(near, math.inf)


def gdp_group_delta(mu: float, extra_delta: float, size: int) -> float:
    """Return the additive delta for a group of `size` records, rounded up; the GDP part becomes (size mu)-GDP.

    `extra_delta` is the additive delta x of a release that is otherwise mu-GDP. One record raises the probability of
    an event from a to at most g(a) + x, g(a) = Phi(Phi^-1(a) + mu). g is concave with g(0) = 0, so g(a + b) <= g(a) +
    g(b), and `size` records give g^size(a) + sum over j < size of g^j(x), where g^j has j mu in place of mu
    (docs/theory/privacy_filter.md).
    """
    if extra_delta <= 0:
        return 0.0
    if extra_delta >= 1 or not math.isfinite(mu):
        return 1.0
    start = float(ndtri(extra_delta))
    terms = [extra_delta, *(float(ndtr(start + j * mu)) for j in range(1, size))]
    return min(1.0, math.fsum(terms) * (1 + 1e-12))


def gdp_delta(mu: float, epsilon: ArrayLike, *, fast: bool = False) -> Floats:
    """Return delta(eps) of mu-GDP: Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2), rounded up.

    With x = eps/mu - mu/2, the Mills ratio m and density phi this is phi(x) (m(x) - m(x + mu)); for mu < 1 the
    difference is the integral of e^{-xt - t^2/2} (1 - e^{-mu t}) over t > 0, in which nothing cancels. Where doubles
    underflow the result is the smallest positive double, never zero.

    fast : for many points. Where mu is not very small the difference is computed directly, with both ratios rounded
        apart by far more than their errors: an upper bound that is within 1e-8 of the slow one where it matters.
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
            above = _gdp_delta_mills(mu, near)
        else:
            above = _gdp_delta_fast(mu, near) if fast and mu >= 0.01 else _gdp_delta_quadrature(mu, near)
        above = np.where(np.isinf(size), 0.0, np.maximum(above * (1 + 5e-12), _MIN_DELTA))
        # the other side of eps = 0, by symmetry: 1 - e^eps + e^eps delta(-eps)
        result = np.where(eps >= 0, above, (-np.expm1(-size) + np.exp(-size) * above) * (1 + 1e-15))
    return np.asarray(np.where(np.isnan(result), 1.0, np.clip(result, 0.0, 1.0)))


def _gdp_delta_fast(mu: float, near: Floats) -> Floats:
    """Compute as `_gdp_delta_mills`, for x >= -mu/2 > -1; the relative error of erfcx is below 1e-13."""
    difference = _mills_ratio(near) * (1 + 1e-13) - _mills_ratio(near + mu) * (1 - 1e-13)
    return np.asarray(np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi) * difference)


def _gdp_delta_mills(mu: float, near: Floats) -> Floats:
    """Return phi(x) (m(x) - m(x + mu)), with Phi(-x) for the first product where x is negative."""
    density = np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi)
    far = _mills_ratio(near + mu)
    return np.where(
        near > 0, density * (_mills_ratio(np.maximum(near, 0.0)) - far), ndtr(-near) - density * far
    )


def _mills_ratio(x: Floats) -> Floats:
    """Return Phi(-x) / phi(x)."""
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


def _gdp_delta_quadrature(mu: float, near: Floats) -> Floats:
    """Return phi(x) int e^{-xt - t^2/2} (1 - e^{-mu t}) dt; the part beyond 48 e-foldings is below 1e-18."""
    x = near[..., None]
    top = 96 / (x + np.sqrt(x**2 + 96))
    t = top * (1 + _NODES) / 2
    small = mu * t
    ratio = np.where(small > 1e-17, -np.expm1(-small) / np.maximum(small, 1e-300), 1.0)
    total = np.sum(top / 2 * _WEIGHTS * t * ratio * np.exp(-x * t - t**2 / 2), axis=-1)
    return np.asarray(mu * (np.exp(-(near**2) / 2) / math.sqrt(2 * math.pi) * total))


def _invert_decreasing(delta_of: Callable[[float], float], delta: float, start: float = 1.0) -> float:
    """Return the smallest eps found with delta_of(eps) <= delta, on the safe side; delta_of is nonincreasing."""
    if delta_of(0.0) <= delta:
        return 0.0

    def is_private_enough(epsilon: float) -> bool:
        return delta_of(epsilon) <= delta

    high = expand_bracket(is_private_enough, start, 1e300)
    return (
        math.inf
        if high is None
        else bisect_safe_side(is_private_enough, high, 0.0, rounds=200, relative=1e-15)
    )


def _log_excess(mu: float, target: float, epsilon: float) -> float:
    """Return log delta(eps) of mu-GDP minus the target."""
    return math.log(max(float(gdp_delta(mu, epsilon)), _MIN_DELTA)) - target


@lru_cache(maxsize=4096)
def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the eps with gdp_delta(mu, eps) = delta, rounded up; 0 when delta(0) is small enough already."""
    if mu == 0:
        return 0.0
    if not math.isfinite(mu) or delta < 1e-300:  # smaller deltas underflow: treated as delta = 0
        return math.inf
    if float(gdp_delta(mu, 0.0)) <= delta:
        return 0.0
    if mu > 1e6:  # delta <= Phi(-eps/mu + mu/2), practically exact here and without cancellation
        with np.errstate(over="ignore"):
            return float(np.float64(mu) * (np.float64(mu) / 2 + max(-ndtri(delta), 0.0)) * (1 + 4e-15))
    high = expand_bracket(lambda eps: float(gdp_delta(mu, eps)) <= delta, mu * mu / 2 + mu, 1e300)
    if high is None:
        return math.inf
    excess = partial(_log_excess, mu, math.log(delta))
    root = float(find_root(excess, 0.0, high, xtol=1e-300, rtol=1e-14))
    step = max(abs(root), 1e-300) * 1e-14
    while float(gdp_delta(mu, root)) > delta and root < high:
        root += step
        step *= 2
    return min(root, high)


@lru_cache(maxsize=4096)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with gdp_delta(mu, eps) <= delta, rounded down."""
    _check.check_open_unit("delta", delta)
    _check.check_nonnegative("epsilon", epsilon)
    high = 1.0
    while float(gdp_delta(high, epsilon)) <= delta:
        high *= 2
    low = high / 2
    while float(gdp_delta(low, epsilon)) > delta:
        low /= 2
        if low < 1e-300:
            return 0.0
    given = (math.log(delta), epsilon)
    root = float(find_root(lambda mu: _log_excess(mu, *given), low, high, xtol=1e-300, rtol=1e-14))
    step = root * 1e-14
    while float(gdp_delta(root, epsilon)) > delta and root > low:
        root -= step
        step *= 2
    return max(root, low)


def rdp_epsilon(orders: ArrayLike, values: ArrayLike, delta: float) -> float:
    """Convert RDP to eps: min over alpha of r + log(1 - 1/alpha) - (log delta + log alpha)/(alpha - 1), or 0."""
    if delta <= 0:
        return math.inf
    alpha, r = np.asarray(orders, float), np.asarray(values, float)
    r = np.where(np.isnan(r), np.inf, r)
    tail = (math.log(delta) + np.log(alpha)) / (alpha - 1)
    eps = r + np.log1p(-1 / alpha) - tail
    best = float(np.min(eps + _ROUNDING_SLACK * (r + np.abs(tail) + 1)))
    return max(best, 0.0)


def rdp_delta(orders: ArrayLike, values: ArrayLike, epsilon: float) -> float:
    """Convert RDP to delta: min over alpha of exp((alpha - 1)(r - eps + log(1 - 1/alpha)) - log alpha)."""
    alpha, r = np.asarray(orders, float), np.asarray(values, float)
    r = np.where(np.isnan(r), np.inf, r)
    log_delta = (alpha - 1) * (r - epsilon + np.log1p(-1 / alpha)) - np.log(alpha)
    log_delta = log_delta + _ROUNDING_SLACK * ((alpha - 1) * (r + epsilon + 1) + np.log(alpha))
    return float(min(1.0, max(math.exp(min(0.0, float(np.min(log_delta)))) * (1 + 1e-15), _MIN_DELTA)))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Convert rho-zCDP to eps through its Renyi curve r(alpha) = rho alpha, with orders scaled to rho."""
    orders = zcdp_orders(rho, delta)
    return rdp_epsilon(orders, rho * orders, delta)


def zcdp_orders(rho: float, delta: float) -> Floats:
    """Return a fine grid of orders around the optimum 1 + sqrt(log(1/delta)/rho) of a linear Renyi curve."""
    if not rho > 0 or not math.isfinite(rho):
        return ORDERS
    centre = math.sqrt(max(math.log(1 / delta), 1e-3) / rho)
    return np.asarray(1 + centre * np.geomspace(0.02, 50, 2001))


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Convert rho-zCDP to delta at eps."""
    if not rho > 0 or not math.isfinite(rho):
        return 0.0 if rho == 0 else 1.0
    centre = max((epsilon / rho + 1) / 2 - 1, 1e-3)
    coarse = 1 + centre * np.geomspace(0.02, 50, 41)
    value = (coarse - 1) * (rho * coarse - epsilon + np.log1p(-1 / coarse)) - np.log(coarse)
    orders = 1 + (coarse[int(np.argmin(value))] - 1) * np.geomspace(0.8, 1.25, 301)
    return rdp_delta(orders, rho * orders, epsilon)


def pure_delta(epsilon0: float, epsilon: float) -> float:
    """Return delta at eps of an epsilon0-DP mechanism (attained by randomised response)."""
    if epsilon >= epsilon0:
        return 0.0
    return min(1.0, -math.expm1(epsilon - epsilon0) / (1 + math.exp(-epsilon0)) * (1 + 1e-15))


def pure_epsilon(epsilon0: float, delta: float) -> float:
    """Return eps at delta of an epsilon0-DP mechanism."""
    return _invert_decreasing(lambda eps: pure_delta(epsilon0, eps), delta, start=max(epsilon0, 1e-300))


def pure_rdp(epsilon0: float, orders: ArrayLike) -> Floats:
    """Return the Renyi curve of randomised response, the worst epsilon0-DP mechanism."""
    alpha = np.asarray(orders, float)
    log_p = -np.logaddexp(0.0, -epsilon0)
    log_q = log_p - epsilon0
    value = np.logaddexp(alpha * log_p + (1 - alpha) * log_q, alpha * log_q + (1 - alpha) * log_p) / (
        alpha - 1
    )
    return np.asarray(np.minimum(value, epsilon0))


def bounded_range_delta(epsilon0: float, epsilon: float) -> float:
    """Return delta at eps of one epsilon0-bounded-range mechanism: (1 - e^{-(e0 - e)/2})^2 / (1 - e^{-e0})."""
    if epsilon >= epsilon0:
        return 0.0
    return min(1.0, math.expm1(-(epsilon0 - epsilon) / 2) ** 2 / -math.expm1(-epsilon0) * (1 + 2e-15))


def bounded_range_epsilon(epsilon0: float, delta: float) -> float:
    """Return eps at delta of one epsilon0-bounded-range mechanism."""
    return _invert_decreasing(
        lambda eps: bounded_range_delta(epsilon0, eps), delta, start=max(epsilon0, 1e-300)
    )


N_BLOCKS = 6000
_SPAN = 40.0  # standard deviations: the probability beyond is less than any delta that doubles can hold
_RESPONSE_ROUNDING = 1e-9
_MAX_RESPONSE_COUNT = 2**52


def response_delta(epsilon0: float, count: int, epsilon: float) -> float:
    """Return delta at eps of `count` eps0-DP releases, rounded up."""
    if epsilon >= count * epsilon0:
        return 0.0
    if count > _MAX_RESPONSE_COUNT or not epsilon0 < 700:
        return 1.0
    p, q = 1 / (1 + math.exp(-epsilon0)), 1 / (1 + math.exp(epsilon0))
    # the first j with a loss above eps, one too early rather than too late (its term is then clipped at 0)
    first = max(0, math.floor((epsilon / epsilon0 + count) / 2 * (1 - 1e-15)))
    spread = math.sqrt(count * p * q) + 1
    last = min(count, math.ceil(max(count * p, first) + _SPAN * spread))
    edges = _block_edges(first, last, count * p, spread)
    left, right = edges[:-1], edges[1:] - 1
    mode = min(count, math.floor((count + 1) * p))
    top = np.where(left > mode, left, np.where(right < mode, right, float(mode)))
    log_mass = _log_binomial(top, count, p, q, epsilon0)
    loss = epsilon0 * (2 * right - count)
    gain = -np.expm1(np.minimum(epsilon - loss - 1e-15 * (np.abs(loss) + epsilon), 0.0))
    total = float(np.sum((right - left + 1) * np.exp(log_mass) * gain))
    return min(1.0, total * (1 + _RESPONSE_ROUNDING) + (1e-300 if last < count else 0.0))


@lru_cache(maxsize=256)
def response_epsilon(epsilon0: float, count: int, delta: float) -> float:
    """Return eps at delta of `count` eps0-DP releases, rounded up."""
    max_epsilon = count * epsilon0
    if delta <= 1e-290 or response_delta(epsilon0, count, math.nextafter(max_epsilon, 0.0)) > delta:
        return max_epsilon
    if response_delta(epsilon0, count, 0.0) <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        return math.log(max(response_delta(epsilon0, count, epsilon), 1e-300) / delta)

    mean_loss = count * epsilon0 * math.tanh(epsilon0 / 2)
    low, high = 0.0, min(max_epsilon, mean_loss + 40 * epsilon0 * math.sqrt(count))
    while high < max_epsilon and excess(high) > 0:
        high = min(max_epsilon, 2 * high)
    result = float(find_root(excess, low, high, xtol=1e-300, rtol=1e-12))
    step = max(result, 1e-300) * 1e-12
    while result < high and response_delta(epsilon0, count, result) > delta:
        result, step = result + step, 2 * step
    return min(result, max_epsilon)


def _block_edges(first: int, last: int, mean: float, spread: float) -> Floats:
    """Return block edges from first to last + 1: every j where there are few, else blocks, finest near the mean."""
    if last - first < N_BLOCKS:
        return np.arange(first, last + 2, dtype=np.float64)
    near = np.linspace(first, min(last, max(first, mean) + 10 * spread), N_BLOCKS)
    after = np.linspace(near[-1], last + 1, N_BLOCKS // 8)
    return np.unique(np.concatenate([[first], np.floor(near), np.floor(after), [last + 1]]))


def _log_binomial(j: Floats, count: int, p: float, q: float, epsilon0: float) -> Floats:
    """Return log P[Bin(count, p) = j] by Loader's saddle point, rounded up except for a relative error below 1e-9."""
    rest = count - j
    inside = (j > 0) & (rest > 0)
    safe, other = np.where(inside, j, 1.0), np.where(inside, rest, 1.0)
    # j - count p = count q - (count - j), from a difference that is exact in doubles
    deviation = (j - count / 2) - count / 2 * math.tanh(epsilon0 / 2)
    value = (
        _stirling_error(np.asarray(float(count)))
        - _stirling_error(safe)
        - _stirling_error(other)
        - _binomial_deviance(deviation, count * p)
        - _binomial_deviance(-deviation, count * q)
        + 0.5 * np.log(count / (2 * math.pi * safe * other))
    )
    ends = np.where(j == 0, count * math.log(q), count * math.log1p(-q))
    # an upper bound on the effect of rounding count p, count q and the deviation, to first order and doubled
    rounding = 1e-15 * count * (np.abs(np.log(safe / (count * p))) + np.abs(np.log(other / (count * q))))
    return np.where(inside, value + rounding + 1e-15 * np.abs(deviation), ends)


def _binomial_deviance(deviation: Floats, mean: float) -> Floats:
    """Return x log(x/mean) - x + mean at x = mean + deviation, from a series where x is close to the mean."""
    ratio = deviation / mean
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = np.where(ratio > -1, (1 + ratio) * np.log1p(ratio) - ratio, 1.0)
    small = np.where(np.abs(ratio) < 0.05, ratio, 0.0)
    series = sum((-small) ** k / (k * (k - 1)) for k in range(2, 16))
    return mean * np.where(np.abs(ratio) < 0.05, series, plain)


def _stirling_error(n: Floats) -> Floats:
    """Return log n! - log(sqrt(2 pi n) (n/e)^n)."""
    exact = _EXACT_STIRLING_ERRORS[np.minimum(n, 15).astype(int)]
    x = np.maximum(n, 15.0)
    square = x * x
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / x
    return np.asarray(np.where(n < 16, exact, series))


_EXACT_STIRLING_ERRORS = np.array(
    [0.0] + [math.lgamma(n + 1) - 0.5 * math.log(2 * math.pi * n) - n * math.log(n) + n for n in range(1, 16)]
)
