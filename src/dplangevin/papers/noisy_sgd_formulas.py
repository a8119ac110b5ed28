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
from scipy.optimize import minimize_scalar

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
