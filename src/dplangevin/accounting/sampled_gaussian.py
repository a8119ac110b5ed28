"""Privacy of one step of the Gaussian mechanism on a random batch: Renyi divergences and hockey-stick divergences.

Units: the noise has standard deviation nm (the noise multiplier); the differing record moves the mean by 1 and is in
the batch with probability q (the rate). N0 = N(0, nm^2) with density phi, mix = (1 - q) N0 + q N(1, nm^2), and

    r(x) = mix / N0 = 1 - q + q exp((2x - 1) / (2 nm^2)),      r(1/2) = 1.

Moments are computed as E[r^p] - 1 = int phi (r^p - 1 - p (r - 1)), a positive integrand (int phi (r - 1) = 0), so
that tiny values keep their relative precision. Results are raised by one part in 1e9, more than the error of the
numerics.

References
----------
Mironov, Talwar and Zhang (2019), Renyi differential privacy of the sampled Gaussian mechanism.
Dong, Roth and Su (2022), Gaussian differential privacy, section 4 (the operator C_q).
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, log_ndtr, ndtr

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter

_ROUNDING_FACTOR = 1 + 1e-9
_MAX_SUMMED_ORDER = 20_000  # larger orders take the bound without sampling, alpha / (2 nm^2)
_BANDS = (1.0, 2.0, 4.0, 16.0)  # fractional orders are integrated band by band; above, they are interpolated
MAX_NODES = 20_000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def renyi_poisson(orders: ArrayLike, rate: float, noise_multiplier: float) -> Floats:
    """Return D_alpha(mix || N0): one step of Poisson sampling under add-remove, in both directions.

    log sum_k C(alpha, k) (1 - q)^{alpha - k} q^k exp(k (k - 1) / (2 nm^2)) / (alpha - 1) for whole alpha. The other
    direction, `renyi_reversed`, is never larger (Mironov, Talwar and Zhang 2019).

    Examples
    --------
    >>> print(f"{renyi_poisson([2.0], 0.01, 1.0)[0]:.6e}")
    1.718134e-04
    """
    alpha, noise_multiplier = _check_arguments(orders, rate, noise_multiplier)
    moments = None if rate == 1 else _log_moments(alpha, rate, noise_multiplier)
    return _divergences_up(alpha, moments, noise_multiplier)


def renyi_without_replacement(orders: ArrayLike, rate: float, noise_multiplier: float) -> Floats:
    """Return the Renyi curve of C_q(G_{1/nm}): one step on a uniform subset of fixed size under replace-one.

    (alpha - 1) D = log(1 + int_{x > 1/2} phi [h(alpha) + h(1 - alpha)]) with h(p) = r^p - 1 - p (r - 1).

    It follows from `sampled_hockey_stick`, which holds when the gradients of ANY two admissible records differ by at
    most the sensitivity, not only those of the two neighbours. `renyi_poisson` is smaller and not valid here.

    Examples
    --------
    >>> print(f"{renyi_without_replacement([2.0], 0.01, 1.0)[0]:.6e}")
    2.806393e-04
    """
    alpha, noise_multiplier = _check_arguments(orders, rate, noise_multiplier)
    moments = None
    if rate < 1:
        moments = _symmetrized_log_moments(
            alpha, _log_moments(alpha, rate, noise_multiplier), rate, noise_multiplier
        )
    return _divergences_up(alpha, moments, noise_multiplier)


def renyi_reversed(orders: ArrayLike, rate: float, noise_multiplier: float) -> Floats:
    """Return D_alpha(N0 || mix), the direction of Altschuler and Talwar (2022), Definition 2.5. NEVER a guarantee.

    It is below the true divergence of a step: 0.0033 against 10.74 at alpha = 8, q = 0.01, nm = 0.5. It serves tests
    and comparisons with that paper; orders up to about 64.
    """
    alpha, noise_multiplier = _check_arguments(orders, rate, noise_multiplier)
    if rate == 1:
        return _divergences_up(alpha, None, noise_multiplier)
    return np.asarray(_log_moments_by_integral(1 - alpha, 1.0, rate, noise_multiplier) / (alpha - 1))


def sampled_hockey_stick(rate: float, noise_multiplier: float, epsilon: ArrayLike) -> Floats:
    """Return H_g(mix || N0) for g = e^eps >= 1 and H_g(N0 || mix) for g < 1, H_g(P || Q) = sup_S P(S) - g Q(S).

    For g >= 1 it is q H_{g'}(N(1, nm^2) || N0), g' = 1 + (g - 1)/q; below, 1 - g + g H_{1/g}(mix || N0). This profile
    holds in both directions for Poisson sampling (add-remove) and for subsets of fixed size (replace-one); for the
    latter the plain pair (mix, N0) does not compose to a valid bound. Never below 1e-300.
    """
    nm = _check_arguments(2.0, rate, noise_multiplier)[1]
    eps = np.asarray(epsilon, float)
    size = np.abs(eps)
    upper, fraction = _gaussian_hockey_stick(_log_ratio(rate, size), nm)
    with np.errstate(over="ignore", invalid="ignore"):
        above = rate * np.exp(upper) * fraction * _ROUNDING_FACTOR
    above = np.where(upper < -680, 1e-300, np.where(np.isnan(above), 1.0, above))
    below = -np.expm1(-size) + np.exp(-size) * above
    return np.asarray(np.clip(np.where(eps >= 0, above, below), 1e-300, 1.0))


def directed_hockey_stick(rate: float, noise_multiplier: float, epsilon: Floats, *, removed: bool) -> Floats:
    """Return H_g(mix || N0), a record removed, or H_g(N0 || mix), one added, g = e^eps of either sign of eps.

    mix - g N0 = q (N1 - g' N0) with g' = 1 + (g - 1) / q, and N0 - g mix = (q g / g'') (N0 - g'' N1) with
    g'' = 1 / (1 + (1 / g - 1) / q), N1 = N(1, nm^2): H of two normal laws, and 1 - g or 0 where these are not positive.
    """
    sign = 1.0 if removed else -1.0
    eps = np.asarray(epsilon, float)
    one_sign = sign * eps <= math.log1p(-rate)  # of the difference everywhere
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        log_ratio = sign * _log_ratio(rate, np.where(one_sign, 0.0, sign * eps))
        upper, fraction = _gaussian_hockey_stick(log_ratio, noise_multiplier)
        log_factor = math.log(rate) + (0.0 if removed else eps - log_ratio)
        values = np.exp(upper + log_factor) * fraction
        trivial = np.maximum(-np.expm1(eps), 0.0)
    values = np.where(one_sign, trivial, np.maximum(np.where(np.isnan(values), 1.0, values), trivial))
    return np.asarray(np.clip(values, 0.0, 1.0))


def _log_ratio(rate: float, epsilon: Floats) -> Floats:
    """Return log(1 + (e^eps - 1) / q), precise near 0 and where e^eps overflows."""
    near = np.log1p(np.expm1(np.minimum(epsilon, 30.0)) / rate)
    far = epsilon + np.log1p(-(1 - rate) * np.exp(-np.maximum(epsilon, 0.0))) - math.log(rate)
    return np.where(epsilon < 30, near, far)


def _gaussian_hockey_stick(log_ratio: Floats, noise_multiplier: float) -> tuple[Floats, Floats]:
    """Return (u, f) with H_g(N(1, nm^2) || N0) at most e^u f and nearly equal to it, g = e^log_ratio."""
    nm = noise_multiplier
    with np.errstate(over="ignore", invalid="ignore"):
        upper = log_ndtr(0.5 / nm - log_ratio * nm)
        lower = log_ratio + log_ndtr(-0.5 / nm - log_ratio * nm)
        slack = 1e-15 * (
            2 + np.abs(upper) + np.abs(lower) + np.abs(log_ratio)
        )  # rounding of the two logarithms
        return upper, -np.expm1(np.minimum(lower - upper, 0.0) - slack)


def max_sampled_loss(rate: float, noise_multiplier: float) -> float:
    """Return an eps above which `sampled_hockey_stick` is below 1e-30.

    From H_{e^y}(N(mu, 1) || N(0, 1)) <= exp(-(y / mu - mu / 2)^2 / 2) with mu = 1 / nm.
    """
    mu = 1 / _check_arguments(2.0, rate, noise_multiplier)[1]
    log_ratio = mu * (mu / 2 + math.sqrt(2 * max(math.log(rate) + 30 * math.log(10), 0.0)))
    return log_ratio if rate == 1 else float(np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio))


def _check_arguments(orders: ArrayLike, rate: float, noise_multiplier: float) -> tuple[Floats, float]:
    """Check the arguments; return the orders as an array, and the noise multiplier, capped to a finite square."""
    alpha = np.atleast_1d(np.asarray(orders, float))
    if not np.all((alpha > 1) & np.isfinite(alpha)):
        raise InvalidParameter(f"orders must be finite and above 1, got {orders!r}.")
    noise = min(_check.check_positive("noise_multiplier", noise_multiplier), 1e100)
    if not 0 < rate <= 1:
        raise InvalidParameter(f"rate must be in (0, 1], got {rate!r}; it is batch_size / n.")
    return alpha, noise


def _divergences_up(alpha: Floats, log_moments: Floats | None, noise_multiplier: float) -> Floats:
    """Return divergences, rounded up and at most those of the Gaussian mechanism on all records."""
    with np.errstate(over="ignore", divide="ignore"):
        unsampled = alpha / noise_multiplier / noise_multiplier / 2
    if log_moments is None:
        return np.asarray(unsampled)
    value = np.fmin(log_moments / (alpha - 1) * _ROUNDING_FACTOR, unsampled)
    return np.asarray(np.maximum(value, 1e-300))


def _log_moments(alpha: Floats, rate: float, noise_multiplier: float) -> Floats:
    """Return log E[r^alpha]: a sum for whole orders, an integral for small fractional ones, chords for the others.

    log E[r^alpha] is convex in alpha and 0 at alpha = 1, so a chord between whole orders is above it.
    """
    result = np.full(alpha.shape, np.inf)
    whole = (alpha == np.rint(alpha)) & (alpha <= _MAX_SUMMED_ORDER)
    chord = ~whole & (alpha < _MAX_SUMMED_ORDER)
    for low, high in pairwise(_BANDS):
        band = ~whole & (alpha > low) & (alpha < high)
        if band.any() and trapezoid_grid(float(alpha[band].max()), 1.0, noise_multiplier)[1] <= MAX_NODES:
            result[band] = _log_moments_by_integral(
                alpha[band], float(alpha[band].max()), rate, noise_multiplier
            )
            chord &= ~band
    needed = np.unique(np.concatenate([alpha[whole], np.floor(alpha[chord]), np.ceil(alpha[chord])]))
    needed = needed[needed > 1].astype(int)
    if needed.size:
        sums = np.zeros(needed[-1] + 1)
        sums[needed] = _log_moments_by_sum(tuple(needed.tolist()), rate, noise_multiplier)
        result[whole] = sums[alpha[whole].astype(int)]
        floor = np.floor(alpha[chord]).astype(int)
        with np.errstate(invalid="ignore"):
            result[chord] = sums[floor] + (alpha[chord] - floor) * (sums[floor + 1] - sums[floor])
    return result


@lru_cache(maxsize=16)
def _binomial_terms(orders: tuple[int, ...]) -> tuple[NDArray[np.int64], Floats, Floats, Floats]:
    """Return, for k = 2..alpha of all orders in one array: the start of each order, k, alpha - k, log C(alpha, k)."""
    sizes = np.array(orders) - 1
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    alpha = np.repeat(np.array(orders, float), sizes)
    k = np.arange(sizes.sum()) - np.repeat(starts, sizes) + 2.0
    return starts, k, alpha - k, gammaln(alpha + 1) - gammaln(k + 1) - gammaln(alpha - k + 1)


def _log_moments_by_sum(orders: tuple[int, ...], rate: float, noise_multiplier: float) -> Floats:
    """Return log E[r^alpha] = log(1 + sum_k Binom(k; alpha, q) (exp(k(k - 1)/(2 nm^2)) - 1)), every term positive."""
    starts, k, rest, log_choose = _binomial_terms(orders)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        power = k * (k - 1) / noise_multiplier / noise_multiplier / 2
        terms = log_choose + k * math.log(rate) + rest * math.log1p(-rate)
        terms += power + np.log(-np.expm1(-power))
        largest = np.maximum.reduceat(terms, starts)
        total = np.add.reduceat(np.exp(terms - np.repeat(largest, np.array(orders) - 1)), starts)
        result = np.where(np.isneginf(largest), -np.inf, largest + np.log(total))
    return np.asarray(np.logaddexp(0.0, np.where(np.isnan(result), np.inf, result)))


def trapezoid_grid(top: float, fraction: float, noise_multiplier: float) -> tuple[float, float]:
    """Return the step and the number of nodes of the trapezoid rule on [-14 nm, top + 14 nm].

    phi r^p is analytic for |Im x| < pi nm^2, where r has its zeros, and there at most e^{Im(x)^2 / (2 nm^2)} times
    its value at Re x for p > 0; with this step the relative error of the rule is therefore below e^{-55}.
    """
    step = min(0.3 * noise_multiplier**2, noise_multiplier / 3) * fraction
    return step, (top + 28 * noise_multiplier) / step if step > 0 else math.inf


def log_density_ratio(x: Floats, rate: float, noise_multiplier: float) -> Floats:
    """Return log r(x), precise near 0."""
    y = (x - 0.5) / noise_multiplier**2
    near = np.log1p(rate * np.expm1(np.minimum(y, 30.0)))
    return np.where(y < 30, near, np.logaddexp(math.log1p(-rate), math.log(rate) + y))


def _log_moments_by_integral(powers: Floats, top: float, rate: float, noise_multiplier: float) -> Floats:
    """Return log E[r^p] by the trapezoid rule; with half the step for negative p (r^p grows near its zeros)."""
    step, nodes = trapezoid_grid(float(top), 1.0 if powers[0] > 0 else 0.5, noise_multiplier)
    x = -14 * noise_multiplier + step * np.arange(math.ceil(nodes) + 1, dtype=np.float64)
    return moments_by_rule(
        powers, log_density_ratio(x, rate, noise_multiplier), log_normal_weights(x, step, noise_multiplier)
    )


def log_normal_weights(x: Floats, step: float, noise_multiplier: float) -> Floats:
    """Return the log weights of the trapezoid rule against phi."""
    scale = math.log(step / noise_multiplier / math.sqrt(2 * math.pi))
    return np.asarray(scale - (x / noise_multiplier) ** 2 / 2)


def moments_by_rule(powers: Floats, log_r: Floats, log_weight: Floats) -> Floats:
    """Return log E[r^p] for every p by a quadrature rule, from log r and log weights; r has mean 1 under it."""
    if np.max(log_weight + powers.max() * log_r) < 600:
        return np.log1p(_excess_moments(powers, log_r, log_weight))
    largest = np.array([np.max(log_weight + p * log_r) for p in powers])
    small, result = largest < 600, np.empty_like(powers)
    result[small] = np.log1p(_excess_moments(powers[small], log_r, log_weight))
    for i in np.flatnonzero(~small):
        result[i] = largest[i] + np.log(np.exp(log_weight + powers[i] * log_r - largest[i]).sum())
    return result


def _excess_moments(powers: Floats, log_r: Floats, log_weight: Floats) -> Floats:
    """Return the sum of weight (r^p - 1 - p (r - 1)) over the nodes, by a power series where |p log r| < 0.3."""
    result = np.zeros_like(powers)
    if powers.size == 0:
        return result
    tiny = np.abs(log_r) * max(1.0, float(np.abs(powers).max())) < 0.3
    near, weight = log_r[tiny], np.exp(log_weight[tiny])
    for j in range(2, 14):
        result += (powers**j - powers) * (float(weight @ near**j) / math.factorial(j))
    far, log_weight = log_r[~tiny], log_weight[~tiny]
    weight = np.exp(log_weight)
    lost = float(weight.sum()), float(np.sum(np.exp(log_weight + far) - weight))
    result += np.exp(log_weight + np.multiply.outer(powers, far)).sum(axis=1) - lost[0] - powers * lost[1]
    return result


def _gauss_legendre_panels(low: float, high: float, noise_multiplier: float) -> tuple[Floats, Floats]:
    """Return nodes and log weights (with phi) of a Gauss-Legendre rule, on panels short against the zeros of r."""
    width = min(3 * noise_multiplier, 4 * noise_multiplier**2)
    count = math.ceil((high - low) / width)
    half = (high - low) / count / 2
    x = (low + half * (2 * np.arange(count)[:, None] + 1 + _NODES)).ravel()
    scale = math.log(half / noise_multiplier / math.sqrt(2 * math.pi))
    return x, np.tile(np.log(_WEIGHTS) + scale, count) - (x / noise_multiplier) ** 2 / 2


def _symmetrized_log_moments(
    alpha: Floats, log_moments: Floats, rate: float, noise_multiplier: float
) -> Floats:
    """Return log moments of C_q(G): in the integral for alpha, x < 1/2 is replaced by x > 1/2 of that for 1 - alpha.

    The added part is at most (alpha - 1) q. Where the moment is large, or the noise so small that N0 and N1 hardly
    overlap, that bound is added and nothing is subtracted.
    """
    added = (alpha - 1) * rate * (2 * ndtr(0.5 / noise_multiplier) - 1)
    removed = np.zeros_like(alpha)
    if noise_multiplier >= 0.1:
        right, right_weight = _gauss_legendre_panels(0.5, 1.5 + 14 * noise_multiplier, noise_multiplier)
        left, left_weight = _gauss_legendre_panels(-14 * noise_multiplier, 0.5, noise_multiplier)
        right, left = (
            log_density_ratio(right, rate, noise_multiplier),
            log_density_ratio(left, rate, noise_multiplier),
        )
        for low, high in ((1.0, 4.0), (4.0, 64.0), (64.0, math.inf)):  # one series threshold each
            band = (log_moments < 30) & (alpha > low) & (alpha <= high)
            added[band] = _excess_moments(1 - alpha[band], right, right_weight)
            removed[band] = _excess_moments(alpha[band], left, left_weight)
    with np.errstate(over="ignore"):
        moderate = np.log1p(np.expm1(np.minimum(log_moments, 40.0)) - removed + added)
        large = log_moments + added * np.exp(-log_moments)
    return np.where(log_moments < 40, moderate, large)
