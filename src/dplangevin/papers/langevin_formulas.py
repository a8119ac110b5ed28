"""Langevin and Gibbs formulas of the papers as printed, for reproduction and regression tests; never guarantees.

A is Ganesh, Thakurta and Upadhyay (2022), B is Ganesh, Thakurta and Upadhyay (2023), the version with Rashomon
sets; "thesis" is Ganesh (2022). Each docstring names its erratum in docs/theory/langevin_and_gibbs.md. The library
never calibrates with these.
"""

from __future__ import annotations

import math


def paper_exponential_temperature(epsilon: float, n: int, lipschitz: float, diameter: float) -> float:
    """B theorem 2.1, eps n / (L diam) (E4): the factor 2 is missing, so this is 2 eps-DP under replace-one."""
    return epsilon * n / (lipschitz * diameter)


def paper_sgld_temperature(
    epsilon: float, delta: float, gradient_sensitivity: float, step_size: float, n_steps: int
) -> float:
    """B lemma 3.1, 2 eps / (Delta sqrt(T eta log(1/delta))) (E7): too large; for (1, 1e-6) the true eps is 1.672."""
    return 2 * epsilon / (gradient_sensitivity * math.sqrt(n_steps * step_size * math.log(1 / delta)))


def safe_sgld_temperature(
    epsilon: float, delta: float, gradient_sensitivity: float, step_size: float, n_steps: int
) -> float:
    """Lemma 3.1 repaired: sqrt(2) eps / (Delta sqrt(K eta (eps + 2 log(1/delta)))). Valid, loose."""
    length = n_steps * step_size * (epsilon + 2 * math.log(1 / delta))
    return math.sqrt(2) * epsilon / (gradient_sensitivity * math.sqrt(length))


def paper_gibbs_temperature(
    epsilon: float, delta: float, strong_convexity: float, lipschitz: float, n: int, m_psi: float = 0.0
) -> float:
    """B theorem 2.7, eps m / (100 max{L^2/n^2, M psi} log(1/delta)) (E11): must be eps^2; false for small eps."""
    return epsilon * strong_convexity / (100 * max((lipschitz / n) ** 2, m_psi) * math.log(1 / delta))


def paper_threshold_sensitivity(lipschitz: float, n: int, smoothness: float, threshold: float) -> float:
    """B equation (9), 3 max{L/n, sqrt(M psi/2)} (E5, E6): should be 2L/n and sqrt(2 M psi), minimisers interior."""
    return 3 * max(lipschitz / n, math.sqrt(smoothness * threshold / 2))


def paper_threshold_temperature(
    epsilon: float, delta: float, lipschitz: float, n: int, smoothness: float, threshold: float, time: float
) -> float:
    """B equation (10), eps / (6 sqrt(2) max{L/n, sqrt(M psi/2)} sqrt(t log(1/delta))) (E5): extra slack hides E5."""
    largest = max(lipschitz / n, math.sqrt(smoothness * threshold / 2))
    return epsilon / (6 * math.sqrt(2) * largest * math.sqrt(time * math.log(1 / delta)))


def paper_convex_temperature(epsilon: float, delta: float, n: int, lipschitz: float, time: float) -> float:
    """A equation (34), eps n / (L sqrt(8 T log(1/delta))) (E10): valid iff eps <= 2 log(1/delta), then conservative."""
    return epsilon * n / (lipschitz * math.sqrt(8 * time * math.log(1 / delta)))


def paper_squared_integral(epsilon: float, delta: float, n: int, lipschitz: float) -> float:
    """A equation (43), int beta^2 <= eps^2 n^2 / (4 L^2 log(1/delta)) (E9): the right side should be halved."""
    return (epsilon * n / (2 * lipschitz)) ** 2 / math.log(1 / delta)


def paper_dp_sgd_noise(epsilon: float, delta: float, lipschitz: float, n_steps: int) -> float:
    """A algorithm 1, sigma = sqrt(8 T L^2 log(1/delta)) / eps (E9): fails beyond eps = 8.35 at delta = 1e-6."""
    return math.sqrt(8 * n_steps * math.log(1 / delta)) * lipschitz / epsilon


def paper_last_iterate_divergence(
    order: float,
    inverse_temperature: float,
    gradient_sensitivity: float,
    strong_convexity: float,
    time: float,
) -> float:
    """A lemma I.2, a beta Delta^2 / m (1 - e^{-beta m T/2}) (E24): valid, at least twice too large at both ends."""
    lead = order * inverse_temperature * gradient_sensitivity**2 / strong_convexity
    return lead * -math.expm1(-inverse_temperature * strong_convexity * time / 2)


def paper_long_time_divergence(
    order: float,
    inverse_temperature: float,
    strong_convexity: float,
    smoothness: float,
    dimension: int,
    optimum_norm: float,
    time: float,
    stationary_divergence: float,
) -> float:
    """Bound the Renyi divergence of order a between two diffusions at a late time by A lemma I.1, corrected (E23).

    Both start at N(0, I / (beta m)) and have no constraint. The bound is infinite before the time
    t0 = log(2 (3a - 1) max{2, kappa}) / (2 beta m), kappa = M/m; afterwards it decreases to 4/3 of
    `stationary_divergence`, the divergence of order 3a between the two Gibbs distributions. The lemma prints t0 without
    a unit of time, 30 where 37.5 is needed, and 3p where 6p is.
    """
    kappa, rate = smoothness / strong_convexity, inverse_temperature * strong_convexity
    start = math.log(2 * (3 * order - 1) * max(2.0, kappa)) / (2 * rate)
    if time < start:
        return math.inf
    offset = rate * optimum_norm**2 * (max(37.5, 5 * kappa**2 + 10 * kappa) + 18 * order - 3) / 6
    offset += (5 * kappa + 6) * dimension * math.log(kappa) / 6
    return offset * math.exp(-(time - start) * rate / (3 * order)) + 4 / 3 * stationary_divergence


def paper_last_iterate_risk(
    dimension: int, inverse_temperature: float, distance: float, time: float
) -> float:
    """A equation (33), 2p/beta + D^2/(beta T) (E25): its integral diverges, so it is not proved."""
    return 2 * dimension / inverse_temperature + distance**2 / (inverse_temperature * time)


def paper_stage_product(stages: int) -> float:
    """A equation (7): 2^{sum_{0 < j < k} (j + 1) 2^{-j}}, below 8 for every k (the iterated mechanism's constant)."""
    return float(2 ** sum((j + 1) * 2.0**-j for j in range(1, stages)))


def thesis_moment_factor(gamma: float) -> float:
    """Thesis lemma 51 corrected: K = (g^{1/(1+g)} + g^{-g/(1+g)})^{(1+g)/2} 2/(1 - g), 0 < g < 1."""
    power = 1 / (1 + gamma)
    return float((gamma**power + gamma ** (-gamma * power)) ** ((1 + gamma) / 2) * 2 / (1 - gamma))
