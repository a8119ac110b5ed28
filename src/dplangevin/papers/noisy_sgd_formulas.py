"""Noisy SGD formulas of the papers as printed, for comparison and reproduction; never guarantees.

Chourasia, Ye and Shokri (2021) write the step theta - eta grad + sqrt(2 eta) sigma N(0, I); `sigma` below is theirs,
noise_std = sigma sqrt(2 / eta) is the library's. Renyi divergences are for replace-one adjacency with
gradient_sensitivity S_g = sup |grad loss(x) - grad loss(x')|. The theorems in `mechanisms.noisy_gradient.theorems` are
sharper than every privacy bound here; the formulas whose names start with `printed` are false as printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar

from dplangevin._arrays import Floats
from dplangevin.accounting.sampled_gaussian import renyi_reversed


def chourasia_composition(
    *, order: float, gradient_sensitivity: float, n: int, step_size: float, sigma: float, n_steps: float
) -> float:
    """Theorem 1 with S_v = S_g / n: alpha S_g^2 eta K / (4 sigma^2 n^2), the composition baseline."""
    return order * (gradient_sensitivity / (n * sigma)) ** 2 * step_size * n_steps / 4


def chourasia_isoperimetric(
    *,
    order: float,
    gradient_sensitivity: float,
    n: int,
    step_size: float,
    sigma: float,
    n_steps: float,
    log_sobolev: float,
) -> float:
    """Theorem 2: alpha S_g^2 / (2 c sigma^4 n^2) (1 - exp(-sigma^2 c eta K)) under a log-Sobolev constant c.

    Equation (56) prints eta^2 for n^2; the proof, equation (66), has n^2.
    """
    rate = sigma**2 * log_sobolev
    reached = -math.expm1(-rate * step_size * n_steps)
    return order * (gradient_sensitivity / (n * sigma)) ** 2 / (2 * rate) * reached


def chourasia_strongly_convex(*, strong_convexity: float, sigma: float, **run: Any) -> float:
    """Corollary 1, Theorem 2 with c = m / (2 sigma^2): alpha S_g^2 / (m sigma^2 n^2) (1 - exp(-m eta K / 2)).

    Needs step_size < 1 / smoothness and the start projection(N(0, 2 sigma^2 / m)).
    """
    return chourasia_isoperimetric(sigma=sigma, log_sobolev=strong_convexity / (2 * sigma**2), **run)


def chourasia_quadratic(
    *, order: float, gradient_sensitivity: float, n: int, step_size: float, sigma: float, n_steps: float
) -> float:
    """Corollary 2: alpha S_g^2 / ((2 - eta) sigma^2 n^2) (1 - e^{-(2 - eta) eta K / 2}) for |theta - x|^2 / 2."""
    reached = -math.expm1(-(2 - step_size) * step_size * n_steps / 2)
    return order * (gradient_sensitivity / (n * sigma)) ** 2 / (2 - step_size) * reached


def chourasia_quadratic_lower(
    *, order: float, gradient_sensitivity: float, n: int, step_size: float, sigma: float, n_steps: float
) -> float:
    """Theorem 3, a lower bound for the same loss: alpha S_g^2 / (4 sigma^2 n^2) (1 - e^{-eta K}); eta < 1."""
    return order * (gradient_sensitivity / (n * sigma)) ** 2 / 4 * -math.expm1(-step_size * n_steps)


def quadratic_exact(
    *, order: float, gradient_sensitivity: float, n: int, step_size: float, sigma: float, n_steps: float
) -> float:
    """Return the exact divergence in the example of Theorem 3 (eta < 1); the optimal shift bound equals it.

    alpha S_g^2 / (4 sigma^2 n^2) (2 - eta) (1 - a) / (1 + a), a = (1 - eta)^K.
    """
    left = math.exp(n_steps * math.log1p(-step_size))
    scale = order * (gradient_sensitivity / (n * sigma)) ** 2 / 4
    return scale * (2 - step_size) * (1 - left) / (1 + left)


def propagate_log_sobolev(start: float, contractions: ArrayLike, variances: ArrayLike) -> Floats:
    """Return log-Sobolev constants along x <- T_t(x) + N(0, v_t I), T_t with Lipschitz constant L_t (Lemmas 8 and 9).

    A map divides the constant by L_t^2 and noise adds its variance to the inverse: 1 / c' = L_t^2 / c + v_t, so a point
    has start = infinity, and a projection afterwards has L = 1. With L = 1 - eta m and v = 2 eta sigma^2, the constants
    stay above m / (2 sigma^2) if they start there: Lemma 5, for which the printed start has the wrong variance.

    Examples
    --------
    >>> propagate_log_sobolev(math.inf, [0.5, 0.5], [1.0, 1.0]).tolist()  # exact for Gaussians: variances 1 and 1.25
    [1.0, 0.8]
    """
    inverse, constants = 1 / start, []
    for contraction, variance in np.broadcast(np.asarray(contractions, float), np.asarray(variances, float)):
        inverse = contraction**2 * inverse + variance
        constants.append(1 / inverse)
    return np.array(constants)


def log_sobolev_information(order: float, divergence: float, slope: float, log_sobolev: float) -> float:
    """Lemma 3: I_a / E_a is at least (2 c / a^2) (R + a (a - 1) dR/da), c the constant of the second law.

    I_a / E_a is the mean of |grad log(p / p')|^2 under the law proportional to p^a p'^(1 - a). Equality for shifted
    Gaussians: it turns the decay of divergence into a differential inequality (Theorem 2).
    """
    return 2 * log_sobolev / order**2 * (divergence + order * (order - 1) * slope)


def lemma_2_6(order: float, rate: float, noise_multiplier: float) -> float:
    """Altschuler and Talwar (2022), Lemma 2.6: 2 a q^2 / z^2 for q < 1/5, z >= 4 and 1 < a <= a*, else infinity.

    Examples
    --------
    >>> lemma_2_6(8.0, 0.01, 4.0), lemma_2_6(80.0, 0.01, 4.0)
    (0.0001, inf)
    """
    if not (
        rate < 0.2 and noise_multiplier >= 4 and 1 < order <= lemma_2_6_max_order(rate, noise_multiplier)
    ):
        return math.inf
    return 2 * order * (rate / noise_multiplier) ** 2


def lemma_2_6_max_order(rate: float, noise_multiplier: float) -> float:
    """Return a*(q, z), the largest order of Lemma 2.6, found by bisection; 1 when no order is allowed.

    a <= M z^2 / 2 - log z^2 and a <= (M^2 z^2 / 2 - log 5 z^2) / (M + log q a + 1 / (2 z^2)), with
    M = log(1 + 1 / (q (a - 1))): M falls in a, so every order below an allowed one is allowed.
    """

    def slack(order: float) -> float:
        m, variance = math.log1p(1 / (rate * (order - 1))), noise_multiplier**2
        first = m * variance / 2 - math.log(variance) - order
        spread = m + math.log(rate * order) + 1 / (2 * variance)
        return min(first, m**2 * variance / 2 - math.log(5 * variance) - order * spread)

    low, high = 1 + 1e-9, 2.0
    if slack(low) < 0:
        return 1.0
    while slack(high) > 0:
        high *= 2
    return float(brentq(slack, low, high, xtol=1e-9)) * (1 - 1e-8)


def renyi_from_profile(order: float, epsilons: ArrayLike, deltas: ArrayLike) -> float:
    """Bound the Renyi divergence of an order above 1 by a delta(eps) profile that holds in both directions.

    E (p/q)^a = 1 + a (a - 1) int_0^inf (e^((a - 1) eps) + e^(-a eps)) delta(eps) d eps, since x^a is a line plus a
    mixture of hockey sticks. Each delta is taken at the left end of its interval; the last one must be 0, else the
    result is infinity. On the plateau of Theorem 3.1 with full batches this is 3.42 where shifts prove 8 (order 2).
    """
    eps, delta = np.asarray(epsilons, float), np.asarray(deltas, float)[:-1]
    if np.ravel(deltas)[-1] > 0:
        return math.inf
    with np.errstate(over="ignore"):
        grown = np.diff(np.exp((order - 1) * eps)) / (order - 1) - np.diff(np.exp(-order * eps)) / order
    with np.errstate(invalid="ignore"):
        total = float(np.sum(np.where(delta > 0, grown * delta, 0.0)))
    return math.log1p(order * (order - 1) * total) / (order - 1)


def lemma_6_risk(
    *,
    lipschitz: float,
    strong_convexity: float,
    smoothness: float,
    dimension: int,
    sigma_squared: float,
    step_size: float,
    n_steps: float,
    tightened: bool = False,
) -> float:
    """Lemma 6, expected excess risk: (2 beta L^2 / lambda^2) e^{-lambda eta K} + 2 beta d sigma^2 / lambda.

    Needs step_size <= lambda / (2 beta^2) and a minimiser in the relative interior of the set. On the
    boundary only F - F* <= L sqrt(E |theta_K - theta*|^2) is justified. tightened : with the recursion (79) unrolled
    exactly, the noise term is half as large.
    """
    start = 2 * smoothness * (lipschitz / strong_convexity) ** 2
    noise = smoothness * dimension * sigma_squared / strong_convexity
    forgotten = start * math.exp(-strong_convexity * step_size * n_steps)
    return forgotten + (noise if tightened else 2 * noise)


@dataclass(frozen=True, kw_only=True)
class UtilityPlan:
    """The parameters of Theorem 4 and its bound on the excess risk."""

    sigma_squared: float
    step_size: float
    n_steps: float
    risk: float


def theorem_4_renyi(
    *,
    lipschitz: float,
    strong_convexity: float,
    smoothness: float,
    dimension: int,
    n: int,
    order: float,
    epsilon: float,
) -> UtilityPlan:
    """Theorem 4 for (alpha, eps')-Renyi privacy.

    sigma^2 = 4 alpha L^2 / (lambda eps' n^2), K* = (2 beta^2 / lambda^2) log(n^2 eps' / (alpha d)) (at
    least 1), risk <= 10 alpha beta d L^2 / (lambda^2 eps' n^2).
    """
    ratio = order / (epsilon * n**2)
    steps = 2 * (smoothness / strong_convexity) ** 2 * math.log(1 / (ratio * dimension))
    return UtilityPlan(
        sigma_squared=4 * ratio * lipschitz**2 / strong_convexity,
        step_size=strong_convexity / (2 * smoothness**2),
        n_steps=max(1.0, steps),
        risk=10 * ratio * smoothness * dimension * (lipschitz / strong_convexity) ** 2,
    )


def theorem_4(
    *,
    lipschitz: float,
    strong_convexity: float,
    smoothness: float,
    dimension: int,
    n: int,
    epsilon: float,
    delta: float,
) -> UtilityPlan:
    """Theorem 4 for (eps, delta), eps <= 2 log(1/delta).

    sigma^2 = 8 L^2 (eps + 2 log(1/delta)) / (lambda eps^2 n^2), K* = (2 beta^2 / lambda^2) log(n^2 eps^2 /
    (4 d log(1/delta))) (at least 1), risk <= 80 beta d L^2 log(1/delta) / (lambda^2 eps^2 n^2).
    """
    log_term = math.log(1 / delta)
    scale = (epsilon * n) ** 2
    steps = 2 * (smoothness / strong_convexity) ** 2 * math.log(scale / (4 * dimension * log_term))
    return UtilityPlan(
        sigma_squared=8 * lipschitz**2 * (epsilon + 2 * log_term) / (strong_convexity * scale),
        step_size=strong_convexity / (2 * smoothness**2),
        n_steps=max(1.0, steps),
        risk=80 * smoothness * dimension * (lipschitz / strong_convexity) ** 2 * log_term / scale,
    )


def printed_definition_2_5(*, order: float, rate: float, noise_multiplier: float) -> float:
    """Altschuler and Talwar (2022), Definition 2.5 as printed: D_alpha(N(0, z^2) || (1-q) N(0, z^2) + q N(1, z^2)).

    It is the smaller direction: never more than alpha / (alpha - 1) log(1 / (1 - q)), even without noise. At
    q = 0.01, z = 0.5, alpha = 8 it is 0.0033 while one step can leak 10.737.
    """
    return float(renyi_reversed([order], rate, noise_multiplier)[0])


def printed_equation_3_3(
    *,
    order: float,
    n: int,
    batch_size: int,
    lipschitz: float,
    step_size: float,
    noise_std: float,
    diameter: float,
    n_steps: float,
) -> float:
    """Altschuler and Talwar (2022), equation (3.3) with Definition 2.5, both as printed; best split and k.

    min(T S(1), min_{k <= T, rho} k S(1 - rho) + alpha D^2 / (2 eta^2 sigma^2 rho k)), where S(u) is
    Definition 2.5 at noise multiplier b sigma sqrt(u) / (2 L). NOT a privacy guarantee: see
    `printed_definition_2_5`.
    """
    multiplier = batch_size * noise_std / (2 * lipschitz)

    def one_step(share: float) -> float:
        scale = multiplier * math.sqrt(share)
        return printed_definition_2_5(order=order, rate=batch_size / n, noise_multiplier=scale)

    def value(rho: float) -> float:
        cost = one_step(1 - rho)
        forget = order * (diameter / (step_size * noise_std)) ** 2 / (2 * rho)
        best = min(max(math.sqrt(forget / cost), 1.0), n_steps)
        return min(k * cost + forget / k for k in {math.floor(best), min(math.ceil(best), n_steps)})

    grid = np.linspace(0.02, 0.98, 49)
    centre = float(grid[int(np.argmin([value(rho) for rho in grid]))])
    refined = minimize_scalar(value, bounds=(centre - 0.02, centre + 0.02), method="bounded")
    return min(n_steps * one_step(1.0), value(centre), float(refined.fun))
