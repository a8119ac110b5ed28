"""Excess risk and uniform stability with explicit constants: what a plan may tell a user to expect.

Bounds in expectation, for public parameters; never statements about privacy. p is the dimension, beta the
inverse temperature, L the Lipschitz constant of one record's loss (data term), L_F that of the full F, m
and M strong convexity and smoothness of F, D0 a bound on the distance from the start to the minimiser, mu
a GDP budget. Proofs: docs/theory/langevin_and_gibbs.md. Papers: Ganesh, Thakurta and Upadhyay (2022),
sections D to F.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import gammaincc, gammaln

from dplangevin import _check
from dplangevin.errors import AssumptionFailed


def exponential_excess(dimension: int, inverse_temperature: float, threshold: float = 0.0) -> float:
    """E[F] - F* of exp(-beta max{F, F* + psi}) for convex F on a convex set: psi + p / beta (equality for cones)."""
    return _check.nonnegative("threshold", threshold) + dimension / _check.positive(
        "inverse_temperature", inverse_temperature
    )


def exponential_tail(dimension: int, inverse_temperature: float, excess: float) -> float:
    """P(F - F* > x) <= Q(p, beta x) for convex F: F - F* is dominated by Gamma(p, rate beta)."""
    return float(gammaincc(dimension, inverse_temperature * _check.nonnegative("excess", excess)))


def nonconvex_excess(
    dimension: int, inverse_temperature: float, full_lipschitz: float, diameter: float
) -> float:
    """E[F] - F* for a Lipschitz F, convex set: min over r of r L_F diam + (p log(1/r) + 1)/beta, at most L_F diam."""
    span = full_lipschitz * diameter
    r = min(1.0, dimension / (inverse_temperature * span))
    return min(span, r * span + (dimension * math.log(1 / r) + 1) / inverse_temperature)


def regularised_exponential(
    dimension: int, inverse_temperature: float, ridge: float, reach: float, lipschitz: float, n: int
) -> float:
    """Population excess risk of exp(-beta (F + ridge |theta - c|^2 / 2)): p/beta + m r^2/2 + 2 L^2/(m n)."""
    return dimension / inverse_temperature + ridge * reach**2 / 2 + gibbs_stability(lipschitz, ridge, n)


def regularised_exponential_ridge(lipschitz: float, reach: float, n: int) -> float:
    """The ridge with the smallest bound above: 2 L / (r sqrt(n))."""
    return 2 * lipschitz / (reach * math.sqrt(n))


def regularised_gibbs(
    dimension: int, mu: float, gradient_sensitivity: float, reach: float, stability: float = 0.0
) -> tuple[float, float]:
    """(ridge, bound) for a convex loss drawn from a mu-GDP Gibbs law with an added ridge.

    With beta = m mu^2 / Delta^2 the bound is p Delta^2/(m mu^2) + m r^2/2 + stability/m; stability = 2
    L^2/n gives population risk, 0 empirical risk: ridge = sqrt(2 (p Delta^2/mu^2 + stability)) / r, bound
    = r times the root.
    """
    root = math.sqrt(2 * (dimension * (gradient_sensitivity / mu) ** 2 + stability))
    return root / reach, root * reach


def langevin_average(dimension: int, inverse_temperature: float, distance: float, time: float) -> float:
    """Uniform time average of the diffusion, convex F: p/beta + D0^2/(2 beta T) (eq. 32)."""
    return dimension / inverse_temperature + distance**2 / (2 * inverse_temperature * time)


def langevin_last(
    dimension: int, inverse_temperature: float, distance: float, time: float, full_lipschitz: float
) -> float:
    """Last point of the diffusion, convex F: (p/beta)(2.5 + log+(2 beta^2 L^2 T/p)) + D0^2/(2 beta T)."""
    inner = 2 * (inverse_temperature * full_lipschitz) ** 2 * time / dimension
    lead = dimension / inverse_temperature * (2.5 + max(0.0, math.log(inner)))
    return lead + distance**2 / (2 * inverse_temperature * time)


def langevin_convex(dimension: int, mu: float, n: int, lipschitz: float, distance: float) -> float:
    """Best mu-GDP diffusion average, convex F: 2 L D0 sqrt(p) / (mu n), at T = D0^2/(2p)."""
    return 2 * lipschitz * distance * math.sqrt(dimension) / (mu * n)


def langevin_convex_population(dimension: int, mu: float, n: int, lipschitz: float, distance: float) -> float:
    """Population version: 2 L D0 sqrt(p/(mu n)^2 + 1/n), at T = D0^2 / (2 (p + mu^2 n))."""
    return 2 * lipschitz * distance * math.sqrt(dimension / (mu * n) ** 2 + 1 / n)


def langevin_weighted(
    dimension: int,
    inverse_temperature: float,
    distance: float,
    time: float,
    strong_convexity: float,
    exponent: float = 0.0,
) -> float:
    """Weighted average of the diffusion at beta_t = beta (t / T)^a, m-strongly convex F, weights d e^{m B_t}.

    (m/2) D0^2 / (e^l - 1) + m p T K / (e^l - 1), l = m B_T = m beta T / (a + 1), K the mean of e^{l u^(a + 1)} over
    u in [0, 1]; for a = 0 the second term is p / beta.
    """
    power = 1 + _check.nonnegative("exponent", exponent)
    length = strong_convexity * inverse_temperature * time / power
    if length > 600:  # both terms at their limits, the first one rounded up
        return strong_convexity * distance**2 * math.exp(-600) + dimension / inverse_temperature * (
            1 + 2 / length
        )
    held = math.expm1(length)
    # the integral of e^{l (u^(a+1) - 1)}, near u = 1 for long runs
    nodes, weights = np.polynomial.legendre.leggauss(64)
    edges = np.concatenate([[0.0], 1 - np.geomspace(1.0, 1e-4, 40)[1:], [1.0]])
    half = np.diff(edges)[:, None] / 2
    places = edges[:-1, None] + half * (nodes + 1)
    mean = float((half * weights * np.exp(length * (places**power - 1))).sum()) * math.exp(length)
    return strong_convexity * (distance**2 / 2 + dimension * time * mean) / held


def langevin_strongly_convex(
    dimension: int,
    mu: float,
    gradient_sensitivity: float,
    distance: float,
    strong_convexity: float,
    exponent: float = 0.0,
) -> tuple[float, float, float]:
    """(beta, T, bound) of the best mu-GDP weighted average with beta_t = beta (t / T)^a.

    mu^2 = Delta^2 beta^2 T / (2 (2a + 1)). With l = m beta T / (a + 1): beta = 2 (2a + 1) m mu^2/(Delta^2 (a + 1) l); l
    minimises the bound. Rising temperatures help: for long runs the bound falls as (a + 1) / (2a + 1).
    """
    m = _check.positive("strong_convexity", strong_convexity)
    power = 1 + _check.nonnegative("exponent", exponent)

    def scales(log_length: float) -> tuple[float, float]:
        length = math.exp(log_length)
        beta = 2 * (2 * power - 1) * m * (mu / gradient_sensitivity) ** 2 / (power * length)
        return beta, length * power / (m * beta)

    def bound(log_length: float) -> float:
        beta, time = scales(log_length)
        return langevin_weighted(dimension, beta, distance, time, m, exponent)

    found = minimize_scalar(bound, bounds=(-10.0, 6.0), method="bounded", options={"xatol": 1e-10})
    return (*scales(float(found.x)), float(found.fun))


def langevin_strongly_convex_population(
    dimension: int,
    mu: float,
    n: int,
    lipschitz: float,
    distance: float,
    strong_convexity: float,
    exponent: float = 0.0,
) -> float:
    """Population version: the bound above with Delta = 2 L / n, and stability 2 L^2/(m n), the average's too."""
    sensitivity = 2 * lipschitz / n
    bound = langevin_strongly_convex(dimension, mu, sensitivity, distance, strong_convexity, exponent)[2]
    return bound + gibbs_stability(lipschitz, strong_convexity, n)


def sgld_average(
    dimension: int,
    inverse_temperature: ArrayLike,
    distance: float,
    learning_rate: ArrayLike,
    n_steps: int,
    smoothness: float,
    strong_convexity: float = 0.0,
) -> float:
    """Weighted average of SGLD, a_t = eta_t beta_t < 1/M, weights w_t = a_t / ((1 - a_0 m) ... (1 - a_t m)).

    [D0^2/2 + p sum (w_t / beta_t)] / ((1 - max a M) sum w_t); for one a and beta [D0^2/(2 sum w) + p/beta] / (1 - a M).
    """
    a = np.broadcast_to(np.asarray(learning_rate, float), (n_steps,))
    beta = np.broadcast_to(np.asarray(inverse_temperature, float), (n_steps,))
    steepest = float(a.max()) * smoothness
    if steepest >= 1 or not a.min() > 0:
        raise AssumptionFailed(f"the bound needs learning_rate in (0, 1/M), 1/M = {1 / smoothness!r}.")
    # relative to the last weight: nothing overflows
    later = np.append(np.cumsum(np.log1p(-a * strong_convexity)[:0:-1])[::-1], 0.0)
    last = math.exp(
        float(later[0]) + math.log1p(-float(a[0]) * strong_convexity)
    )  # its product over all steps
    weights = a * np.exp(later)
    total = float(weights.sum())
    return (distance**2 * last / 2 + dimension * float((weights / beta).sum())) / ((1 - steepest) * total)


def sgld_average_nonsmooth(
    dimension: int,
    inverse_temperature: float,
    distance: float,
    learning_rate: float,
    n_steps: int,
    full_lipschitz: float,
) -> float:
    """Uniform average of SGLD for a Lipschitz convex F: D0^2/(2 a K) + p/beta + a L_F^2/2."""
    start = distance**2 / (2 * learning_rate * n_steps)
    return start + dimension / inverse_temperature + learning_rate * full_lipschitz**2 / 2


def sgld_stationary(
    dimension: int, inverse_temperature: float, learning_rate: float, smoothness: float
) -> float:
    """Excess of the stationary law of SGLD: p / (beta (1 - a M))."""
    if learning_rate * smoothness >= 1:
        raise AssumptionFailed(
            f"the bound needs learning_rate < 1/M = {1 / smoothness!r}, got {learning_rate!r}."
        )
    return dimension / (inverse_temperature * (1 - learning_rate * smoothness))


def gibbs_stability(lipschitz: float, strong_convexity: float, n: int) -> float:
    """Uniform stability of a strongly convex Gibbs law, 2 L^2/(m n); add it to empirical risk for population risk."""
    return 2 * lipschitz**2 / (_check.positive("strong_convexity", strong_convexity) * n)


def langevin_stability(
    lipschitz: float, strong_convexity: float, n: int, temperature_integral: float
) -> float:
    """Uniform stability of the diffusion at B_t = int beta: (2 L^2/(m n))(1 - e^{-m B}); m = 0 gives (2 L^2/n) B."""
    if strong_convexity == 0:
        return 2 * lipschitz**2 / n * temperature_integral
    return gibbs_stability(lipschitz, strong_convexity, n) * -math.expm1(
        -strong_convexity * temperature_integral
    )


def sgld_distance(
    gradient_sensitivity: float, learning_rate: float, strong_convexity: float, n_steps: int
) -> float:
    """Distance of two coupled SGLD chains on neighbours, a <= 1/M: (Delta/m)(1 - (1 - a m)^k); a Delta k when m = 0."""
    if strong_convexity == 0:
        return learning_rate * gradient_sensitivity * n_steps
    forgotten = -math.expm1(n_steps * math.log1p(-learning_rate * strong_convexity))
    return gradient_sensitivity / strong_convexity * forgotten


def hit_probability(dimension: int, scaled_threshold: float, interior_quadratic: bool = False) -> float:
    """Lower bound on P(F <= F* + psi) under exp(-beta max{F, F* + psi}): x^p e^-x / Gamma(p + 1, x), x = beta psi.

    interior_quadratic : F is quadratic and its unconstrained minimiser lies in the set; then p/2 replaces p.

    Examples
    --------
    >>> round(hit_probability(20, 75.0), 4), round(hit_probability(20, 1.0) * 1e19, 2)
    (0.738, 1.51)
    """
    shape = _check.count("dimension", dimension) / (2 if interior_quadratic else 1)
    x = _check.nonnegative("scaled_threshold", scaled_threshold)
    if x == 0:
        return 0.0
    # Gamma(p + 1, x) = p Gamma(p, x) + x^p e^-x
    upper = float(gammaincc(shape, x))
    if upper == 0.0:
        return max(0.0, 1 - shape / (x - shape)) if x > 2 * shape else 0.0
    exponent = math.log(shape) + float(gammaln(shape)) + math.log(upper) - shape * math.log(x) + x
    return 1 / (1 + math.exp(exponent)) if exponent < 700 else 0.0


def moreau_excess(lipschitz: float, smoothness: float) -> float:
    """Largest gap between an L-Lipschitz convex loss and its Moreau envelope of smoothness M: L^2 / (2 M).

    The envelope min_u l(u) + (M/2) |u - theta|^2 lies below the loss; a minimiser of its mean over the records is
    within this gap of the minimum of the losses themselves.
    """
    return _check.positive("lipschitz", lipschitz) ** 2 / (2 * _check.positive("smoothness", smoothness))


def gaussian_smoothing_excess(lipschitz: float, smoothness: float, dimension: int) -> float:
    """Largest gap between an L-Lipschitz convex loss and E l(theta + N(0, s^2 I)) of smoothness M: L^2 sqrt(p) / M.

    The smoothed loss lies above by at most L s sqrt(p), and its gradient has the Lipschitz constant L / s.
    """
    width = _check.positive("lipschitz", lipschitz) / _check.positive("smoothness", smoothness)
    return lipschitz * width * math.sqrt(_check.count("dimension", dimension))


def thresholded_stability(lipschitz: float, strong_convexity: float, n: int, threshold: float) -> float:
    """Uniform stability of exp(-beta max{F, F* + psi}), F m-strongly convex: L sqrt(2 psi / m) + 2 L^2 / (m n)."""
    flat = lipschitz * math.sqrt(2 * _check.nonnegative("threshold", threshold) / strong_convexity)
    return flat + gibbs_stability(lipschitz, strong_convexity, n)
