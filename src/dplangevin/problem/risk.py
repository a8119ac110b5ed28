"""Bounds on excess risk and uniform stability with explicit constants, which plans report.

They hold in expectation, for public parameters, and say nothing about privacy. p is the dimension, beta the
inverse temperature, L the Lipschitz constant of one record's loss (data term), L_F that of the full F, m
and M strong convexity and smoothness of F, D0 a bound on the distance from the start to the minimiser, mu
a GDP budget. Proofs: docs/theory/langevin_and_gibbs.md. Papers: Ganesh, Thakurta and Upadhyay (2022),
sections D to F.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaincc, gammaln

from dplangevin import _check
from dplangevin.errors import AssumptionFailed


def exponential_excess(dimension: int, inverse_temperature: float, threshold: float = 0.0) -> float:
    """Bound E[F] - F* under exp(-beta max{F, F* + psi}), F and set convex: psi + p / beta (tight for cones)."""
    return _check.check_nonnegative("threshold", threshold) + dimension / _check.check_positive(
        "inverse_temperature", inverse_temperature
    )


def exponential_tail(dimension: int, inverse_temperature: float, excess: float) -> float:
    """Bound P(F - F* > x) by Q(p, beta x) for convex F: F - F* is dominated by Gamma(p, rate beta)."""
    return float(gammaincc(dimension, inverse_temperature * _check.check_nonnegative("excess", excess)))


def nonconvex_excess(
    dimension: int, inverse_temperature: float, full_lipschitz: float, diameter: float
) -> float:
    """Bound E[F] - F* for a Lipschitz F on a convex set.

    It is the minimum over r of r L_F diam + (p log(1/r) + 1)/beta, at most L_F diam.
    """
    span = full_lipschitz * diameter
    r = min(1.0, dimension / (inverse_temperature * span))
    return min(span, r * span + (dimension * math.log(1 / r) + 1) / inverse_temperature)


def regularized_exponential_excess(
    dimension: int, inverse_temperature: float, ridge: float, radius: float, lipschitz: float, n: int
) -> float:
    """Bound the population excess of exp(-beta (F + ridge |theta - c|^2 / 2)): p/beta + m r^2/2 + 2 L^2/(m n)."""
    return dimension / inverse_temperature + ridge * radius**2 / 2 + gibbs_stability(lipschitz, ridge, n)


def regularized_exponential_ridge(lipschitz: float, radius: float, n: int) -> float:
    """Return the ridge that minimizes regularized_exponential_excess: 2 L / (r sqrt(n))."""
    return 2 * lipschitz / (radius * math.sqrt(n))


def regularized_gibbs_ridge(
    dimension: int, mu: float, gradient_sensitivity: float, radius: float, stability: float = 0.0
) -> tuple[float, float]:
    """Return (ridge, risk bound) of a draw from a mu-GDP Gibbs law of a convex loss with an added ridge.

    With beta = m mu^2 / Delta^2 the bound is p Delta^2/(m mu^2) + m r^2/2 + stability/m; stability = 2
    L^2/n gives population risk, 0 empirical risk: ridge = sqrt(2 (p Delta^2/mu^2 + stability)) / r, bound
    = r times the root.
    """
    root = math.sqrt(2 * (dimension * (gradient_sensitivity / mu) ** 2 + stability))
    return root / radius, root * radius


def langevin_average_excess(
    dimension: int, inverse_temperature: float, distance: float, time: float
) -> float:
    """Bound the excess of the uniform time average of the diffusion, convex F: p/beta + D0^2/(2 beta T) (eq. 32)."""
    return dimension / inverse_temperature + distance**2 / (2 * inverse_temperature * time)


def langevin_last_excess(
    dimension: int, inverse_temperature: float, distance: float, time: float, full_lipschitz: float
) -> float:
    """Bound the excess of the last point of the diffusion, convex F.

    (p/beta)(2.5 + log+(2 beta^2 L^2 T/p)) + D0^2/(2 beta T).
    """
    inner = 2 * (inverse_temperature * full_lipschitz) ** 2 * time / dimension
    lead = dimension / inverse_temperature * (2.5 + max(0.0, math.log(inner)))
    return lead + distance**2 / (2 * inverse_temperature * time)


def langevin_convex_excess(dimension: int, mu: float, n: int, lipschitz: float, distance: float) -> float:
    """Bound the excess of the best mu-GDP diffusion average, convex F: 2 L D0 sqrt(p) / (mu n), at T = D0^2/(2p)."""
    return 2 * lipschitz * distance * math.sqrt(dimension) / (mu * n)


def langevin_convex_population_excess(
    dimension: int, mu: float, n: int, lipschitz: float, distance: float
) -> float:
    """Bound the population version of it: 2 L D0 sqrt(p/(mu n)^2 + 1/n), at T = D0^2 / (2 (p + mu^2 n))."""
    return 2 * lipschitz * distance * math.sqrt(dimension / (mu * n) ** 2 + 1 / n)


def langevin_weighted_excess(
    dimension: int,
    inverse_temperature: float,
    distance: float,
    time: float,
    strong_convexity: float,
    exponent: float = 0.0,
) -> float:
    """Bound the excess of the weighted average of the diffusion at beta_t = beta (t / T)^a, m-strongly convex F.

    With weights d e^{m B_t} it is (m/2) D0^2 / (e^l - 1) + m p T K / (e^l - 1), l = m B_T = m beta T / (a + 1), K the
    mean of e^{l u^(a + 1)} over u in [0, 1]; for a = 0 the second term is p / beta.
    """
    power = 1 + _check.check_nonnegative("exponent", exponent)
    length = strong_convexity * inverse_temperature * time / power
    if length > 600:  # both terms at their limits, the first one rounded up
        return strong_convexity * distance**2 * math.exp(-600) + dimension / inverse_temperature * (
            1 + 2 / length
        )
    weight_total = math.expm1(length)
    # the integral of e^{l (u^(a+1) - 1)}, near u = 1 for long runs
    nodes, weights = np.polynomial.legendre.leggauss(64)
    edges = np.concatenate([[0.0], 1 - np.geomspace(1.0, 1e-4, 40)[1:], [1.0]])
    half = np.diff(edges)[:, None] / 2
    nodes_on_panels = edges[:-1, None] + half * (nodes + 1)
    mean = float((half * weights * np.exp(length * (nodes_on_panels**power - 1))).sum()) * math.exp(length)
    return strong_convexity * (distance**2 / 2 + dimension * time * mean) / weight_total


def langevin_strongly_convex_excess(
    dimension: int,
    mu: float,
    gradient_sensitivity: float,
    distance: float,
    strong_convexity: float,
    exponent: float = 0.0,
) -> tuple[float, float, float]:
    """Return (beta, T, bound) of the best mu-GDP weighted average with beta_t = beta (t / T)^a.

    mu^2 = Delta^2 beta^2 T / (2 (2a + 1)). With l = m beta T / (a + 1): beta = 2 (2a + 1) m mu^2/(Delta^2 (a + 1) l);
    l minimizes the bound. An increasing beta_t helps: for long runs the bound decreases as (a + 1) / (2a + 1).
    """
    m = _check.check_positive("strong_convexity", strong_convexity)
    power = 1 + _check.check_nonnegative("exponent", exponent)

    def temperature_and_time(log_length: float) -> tuple[float, float]:
        length = math.exp(log_length)
        beta = 2 * (2 * power - 1) * m * (mu / gradient_sensitivity) ** 2 / (power * length)
        return beta, length * power / (m * beta)

    def bound(log_length: float) -> float:
        beta, time = temperature_and_time(log_length)
        return langevin_weighted_excess(dimension, beta, distance, time, m, exponent)

    from scipy.optimize import minimize_scalar  # slow to import, and few fits ask

    optimum = minimize_scalar(bound, bounds=(-10.0, 6.0), method="bounded", options={"xatol": 1e-10})
    return (*temperature_and_time(float(optimum.x)), float(optimum.fun))


def langevin_strongly_convex_population_excess(
    dimension: int,
    mu: float,
    n: int,
    lipschitz: float,
    distance: float,
    strong_convexity: float,
    exponent: float = 0.0,
) -> float:
    """Bound the population version of it: Delta = 2 L / n, plus the stability 2 L^2/(m n), also of the average."""
    sensitivity = 2 * lipschitz / n
    bound = langevin_strongly_convex_excess(dimension, mu, sensitivity, distance, strong_convexity, exponent)[
        2
    ]
    return bound + gibbs_stability(lipschitz, strong_convexity, n)


def sgld_average_excess(
    dimension: int,
    inverse_temperature: ArrayLike,
    distance: float,
    learning_rate: ArrayLike,
    n_steps: int,
    smoothness: float,
    strong_convexity: float = 0.0,
) -> float:
    """Bound the excess of the weighted average of SGLD over the points that steps lead to, a_t = eta_t beta_t < 1/M.

    With weights w_t = a_t / ((1 - a_0 m) ... (1 - a_t m)) it is [D0^2/2 + p sum (w_t / (beta_t (1 - a_t M)))] / sum
    w_t, whether or not the minimiser lies on the boundary of the set; for constant a and beta D0^2/(2 sum w) + p/(beta
    (1 - a M)).
    """
    a = np.broadcast_to(np.asarray(learning_rate, float), (n_steps,))
    beta = np.broadcast_to(np.asarray(inverse_temperature, float), (n_steps,))
    if float(a.max()) * smoothness >= 1 or not a.min() > 0:
        raise AssumptionFailed(f"the bound needs learning_rate in (0, 1/M), 1/M = {1 / smoothness!r}.")
    # weights relative to the last one, so that nothing overflows
    later = np.append(np.cumsum(np.log1p(-a * strong_convexity)[:0:-1])[::-1], 0.0)
    # the product of (1 - a_t m) over all steps
    product = math.exp(float(later[0]) + math.log1p(-float(a[0]) * strong_convexity))
    weights = a * np.exp(later)
    noise = dimension * float((weights / (beta * (1 - a * smoothness))).sum())
    return (distance**2 * product / 2 + noise) / float(weights.sum())


def sgld_nonsmooth_average_excess(
    dimension: int,
    inverse_temperature: float,
    distance: float,
    learning_rate: float,
    n_steps: int,
    full_lipschitz: float,
) -> float:
    """Bound the excess of the uniform average of SGLD for a Lipschitz convex F: D0^2/(2 a K) + p/beta + a L_F^2/2."""
    start = distance**2 / (2 * learning_rate * n_steps)
    return start + dimension / inverse_temperature + learning_rate * full_lipschitz**2 / 2


def sgld_stationary_excess(
    dimension: int, inverse_temperature: float, learning_rate: float, smoothness: float
) -> float:
    """Bound the excess of the stationary law of SGLD: p / (beta (1 - a M))."""
    if learning_rate * smoothness >= 1:
        raise AssumptionFailed(
            f"the bound needs learning_rate < 1/M = {1 / smoothness!r}, got {learning_rate!r}."
        )
    return dimension / (inverse_temperature * (1 - learning_rate * smoothness))


def sgld_last_excess(
    dimension: int,
    inverse_temperature: float,
    distance: float,
    learning_rate: float,
    n_steps: int,
    smoothness: float,
    strong_convexity: float,
    full_lipschitz: float,
) -> float:
    """Bound the excess of the last iterate of SGLD, m-strongly convex F: e + min(L_F w, sqrt(2 M e) w + M w^2 / 2).

    e = p / (beta (1 - a M)) bounds that of the stationary law, and w = (1 - a m)^K (D0 + sqrt(2 e / m)) the distance
    to it in a coupling with the same noise. The second term of the minimum needs the whole space (L_F is infinite
    there).
    """
    stationary = sgld_stationary_excess(dimension, inverse_temperature, learning_rate, smoothness)
    spread = distance + math.sqrt(2 * stationary / strong_convexity)
    width = spread * math.exp(n_steps * math.log1p(-learning_rate * strong_convexity))
    if math.isfinite(full_lipschitz):
        return stationary + full_lipschitz * width
    return stationary + math.sqrt(2 * smoothness * stationary) * width + smoothness * width**2 / 2


def gibbs_stability(lipschitz: float, strong_convexity: float, n: int) -> float:
    """Return the uniform stability of a strongly convex Gibbs law, 2 L^2/(m n): population minus empirical risk."""
    return 2 * lipschitz**2 / (_check.check_positive("strong_convexity", strong_convexity) * n)


def langevin_stability(
    lipschitz: float, strong_convexity: float, n: int, temperature_integral: float
) -> float:
    """Return the uniform stability of the diffusion at B = int beta.

    It is (2 L^2/(m n))(1 - e^{-m B}), and (2 L^2/n) B for m = 0.
    """
    if strong_convexity == 0:
        return 2 * lipschitz**2 / n * temperature_integral
    return gibbs_stability(lipschitz, strong_convexity, n) * -math.expm1(
        -strong_convexity * temperature_integral
    )


def sgld_coupling_distance(
    gradient_sensitivity: float, learning_rate: float, strong_convexity: float, n_steps: int
) -> float:
    """Bound the distance of two coupled SGLD chains on neighbours, a <= 1/M.

    (Delta/m)(1 - (1 - a m)^k); a Delta k when m = 0.
    """
    if strong_convexity == 0:
        return learning_rate * gradient_sensitivity * n_steps
    factor = -math.expm1(n_steps * math.log1p(-learning_rate * strong_convexity))
    return gradient_sensitivity / strong_convexity * factor


def hit_probability(dimension: int, scaled_threshold: float, interior_quadratic: bool = False) -> float:
    """Bound P(F <= F* + psi) under exp(-beta max{F, F* + psi}) from below: x^p e^-x / Gamma(p + 1, x), x = beta psi.

    interior_quadratic : F is quadratic and its unconstrained minimiser lies in the set; then p/2 replaces p.

    Examples
    --------
    >>> round(hit_probability(20, 75.0), 4), round(hit_probability(20, 1.0) * 1e19, 2)
    (0.738, 1.51)
    """
    shape = _check.check_count("dimension", dimension) / (2 if interior_quadratic else 1)
    x = _check.check_nonnegative("scaled_threshold", scaled_threshold)
    if x == 0:
        return 0.0
    # Gamma(p + 1, x) = p Gamma(p, x) + x^p e^-x
    upper = float(gammaincc(shape, x))
    if upper == 0.0:
        return max(0.0, 1 - shape / (x - shape)) if x > 2 * shape else 0.0
    exponent = math.log(shape) + float(gammaln(shape)) + math.log(upper) - shape * math.log(x) + x
    return 1 / (1 + math.exp(exponent)) if exponent < 700 else 0.0


def moreau_excess(lipschitz: float, smoothness: float) -> float:
    """Bound the gap between an L-Lipschitz convex loss and its Moreau envelope of smoothness M: L^2 / (2 M).

    The envelope min_u l(u) + (M/2) |u - theta|^2 lies below the loss; a minimiser of its mean over the records is
    within this gap of the minimum of the losses themselves.
    """
    return _check.check_positive("lipschitz", lipschitz) ** 2 / (
        2 * _check.check_positive("smoothness", smoothness)
    )


def gaussian_smoothing_excess(lipschitz: float, smoothness: float, dimension: int) -> float:
    """Bound the gap between an L-Lipschitz convex loss and E l(theta + N(0, s^2 I)) of smoothness M: L^2 sqrt(p) / M.

    The smoothed loss lies above by at most L s sqrt(p), and its gradient has the Lipschitz constant L / s.
    """
    width = _check.check_positive("lipschitz", lipschitz) / _check.check_positive("smoothness", smoothness)
    return lipschitz * width * math.sqrt(_check.check_count("dimension", dimension))


def thresholded_stability(lipschitz: float, strong_convexity: float, n: int, threshold: float) -> float:
    """Bound the uniform stability of exp(-beta max{F, F* + psi}), F m-strongly convex.

    L sqrt(2 psi / m) + 2 L^2 / (m n).
    """
    flat = lipschitz * math.sqrt(2 * _check.check_nonnegative("threshold", threshold) / strong_convexity)
    return flat + gibbs_stability(lipschitz, strong_convexity, n)
