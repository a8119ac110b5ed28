"""Formulas of the papers as printed, for comparison, reproduction and regression tests; never guarantees.

A is Ganesh, Thakurta and Upadhyay (2022), B is Ganesh, Thakurta and Upadhyay (2023), the version with Rashomon
sets; "thesis" is Ganesh (2022). Each docstring names its erratum in docs/theory/langevin_and_gibbs.md. The library
never calibrates with these.

Chourasia, Ye and Shokri (2021) write the step theta - eta grad + sqrt(2 eta) sigma N(0, I); `sigma` below is theirs,
noise_std = sigma sqrt(2 / eta) is the library's. Renyi divergences are for replace-one adjacency with
gradient_sensitivity S_g = sup |grad loss(x) - grad loss(x')|. The theorems in `mechanisms.noisy_gradient.theorems` are
sharper than every privacy bound here; the formulas whose names start with `printed` are false as printed.

These are bounds on risk, never on privacy (`calibrate_mirror_noise` calibrates the noise). Q is a convex body around 0,
|Q| its largest Euclidean norm, G_Q its Gaussian width E max_{x in Q} <g, x>, g ~ N(0, I).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.sampled_gaussian import renyi_reversed


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
    result is infinity. On the plateau of Theorem 3.1 with full batches this is 2.07 where shifts prove 8 (order 2).
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


def public_gradient_radius(n_public: int, delta: float, gradient_bound: float = 1.0) -> float:
    """Return r with |grad Psi(theta*)| <= r with probability 1 - delta: G (1 + sqrt(2 log(1/delta))) / sqrt(n_pub).

    Lemma 78 with its constant: the mean of n vectors of norm at most G with mean 0 has expected norm at most
    G / sqrt(n), and replacing one moves it by at most 2 G / n (McDiarmid). The shrunken set of Theorem 76 is
    {|grad Psi| <= r}.
    """
    log_term = math.sqrt(2 * math.log(1 / _check.check_open_unit("delta", delta)))
    return gradient_bound * (1 + log_term) / math.sqrt(_check.check_count("n_public", n_public))


def chi_factor(eigenvalues: ArrayLike, n_public: int, delta: float) -> float:
    """Theorem 76: max(1 / l_min, l_max n_pub) sum_i min(1, log(1/delta) / (l_i^2 n_pub)), in place of k / l_min.

    Examples
    --------
    >>> round(chi_factor(np.full(10, 0.1), 10**6, 0.01), 6)  # log(100) k^2, whatever n_pub
    460.517019
    """
    values = np.asarray(eigenvalues, float)
    terms = np.minimum(1.0, math.log(1 / delta) / (values**2 * n_public))
    return float(max(1 / values.min(), values.max() * n_public) * terms.sum())


def regression_risk(
    eigenvalues: ArrayLike, n_public: int, n_private: int, epsilon: float, delta: float
) -> tuple[float, float]:
    """The two terms of Theorem 76 without constants and logarithms: chi log(1/delta) / (eps n)^2, 1 / (l_min n)."""
    least = float(np.min(np.asarray(eigenvalues, float)))
    privacy = chi_factor(eigenvalues, n_public, delta) * math.log(1 / delta) / (epsilon * n_private) ** 2
    return privacy, 1 / (least * n_private)


def best_public_rows(eigenvalues: ArrayLike) -> float:
    """Return the number of public rows at which chi of Theorem 76 is smallest: 1 / (l_min l_max).

    Below it the factor max(1 / l_min, l_max n) is constant and every term of the sum falls; above it every
    n min(1, a / n) grows. Whether it is smaller than k / l_min, what no public rows cost, depends on the spectrum.

    Examples
    --------
    >>> k = 50
    >>> round(best_public_rows([k**-1.5, *[1 / k] * (k - 1)]) / k**2.5, 9)  # the example of the thesis
    1.0
    """
    values = np.asarray(eigenvalues, float)
    return float(1 / (values.min() * values.max()))


@dataclass(frozen=True, kw_only=True)
class PublicRowsNeeded:
    """How many public rows are enough, by Theorem 83 with its constant, and what they are worth.

    Parameters
    ----------
    enough : from here on the start is nearer than the private bound's, and mirror descent has the smaller bound.
    too_many : from here on private steps no longer lower the bound below that of the public minimiser; infinity where
        public rows of another distribution are never enough alone.
    shift_allowed : the largest |E grad l_pub(theta*)| at which public rows help at all, however many there are.
    risk : the bound with n_public rows. private_risk : the bound of the same steps from a start at distance D0.
    """

    enough: float
    too_many: float
    shift_allowed: float
    risk: float
    private_risk: float


def count_public_rows(
    *,
    n_public: int,
    gradient_deviation: float,
    strong_convexity: float,
    distance: float,
    noise_rate: float,
    shift: float = 0.0,
) -> PublicRowsNeeded:
    """Compare public rows with none: the start's Bregman divergence A is what they change in Theorem 83.

    In the limit of many short steps the bound is A / t + t C, t the sum of the step sizes and C = (G_Q^2 + |Q|^2)
    (Delta / (n mu))^2, which is 2 sqrt(A C) at the best t. With Psi the m-strongly convex public loss started at its
    minimiser, A = |grad Psi(theta*)|^2 / (2 m), of mean (V^2 / n_pub + b^2) / (2 m); b = |E grad l_pub(theta*)| is
    the shift of public rows from another distribution (0: the same one; section 4.1 of the thesis leaves it open).
    Without public rows Psi = m |theta|^2 / 2 and A = m D0^2 / 2. Q = {|x| <= 1 / sqrt(m)} in both, so C is the same
    and A alone decides.

    Parameters
    ----------
    n_public : public rows. gradient_deviation : V. strong_convexity : m. distance : D0, of 0 from theta*.
    noise_rate : sqrt(C) = sqrt((p + 1) / m) Delta / (n mu), Delta the sensitivity of the gradient sum.
    shift : b.

    Examples
    --------
    >>> rows = count_public_rows(
    ...     n_public=400, gradient_deviation=1.0, strong_convexity=0.1, distance=1.0, noise_rate=0.01)
    >>> round(rows.enough), round(rows.too_many), round(rows.shift_allowed, 3), round(rows.risk / rows.private_risk, 3)
    (100, 12500, 0.1, 0.5)
    """
    m = strong_convexity
    start = (gradient_deviation**2 / n_public + shift**2) / (2 * m)
    room = (m * distance) ** 2 - shift**2
    alone = 8 * m * noise_rate**2 - shift**2  # public alone, A, is below 2 sqrt(A C) where A < 4 C
    return PublicRowsNeeded(
        enough=gradient_deviation**2 / room if room > 0 else math.inf,
        too_many=gradient_deviation**2 / alone if alone > 0 else math.inf,
        shift_allowed=m * distance,
        risk=2 * math.sqrt(start) * noise_rate,
        private_risk=2 * math.sqrt(m / 2) * distance * noise_rate,
    )


def noise_along(direction: ArrayLike, eigenvalues: ArrayLike, step_size: float, noise_std: float) -> float:
    """Theorem 81, exact: E |<theta^ - theta-, v>| = eta sigma sqrt((2 / pi) sum (a_i / l_i)^2), v = sum a_i v_i."""
    ratios = np.asarray(direction, float) / np.asarray(eigenvalues, float)
    return step_size * noise_std * math.sqrt(2 / math.pi) * float(np.linalg.norm(ratios))


def printed_noise_along(
    direction: ArrayLike, least_weights: ArrayLike, step_size: float, noise_std: float
) -> float:
    """Theorem 87 as printed, without its tail term: the Euclidean norm of a_i / w_i. FALSE for five directions or more.

    Fixed eigenvectors make Psi a sum of functions of one coordinate each. If its curvature is w on the side a_i > 0 and
    huge on the other, noise moves the iterate to one side only, and k such moves add up instead of cancelling.
    """
    return noise_along(direction, least_weights, step_size, noise_std)


def varying_noise_along(
    direction: ArrayLike, least_weights: ArrayLike, step_size: float, noise_std: float
) -> float:
    """What holds in place of Theorem 87: eta sigma sqrt(2 / pi) sum |a_i| / w_i, w_i the least curvature along i.

    Along eigenvector i the gradient moves by eta b_i, so the iterate by at most eta |b_i| / w_i; add the moves up.
    """
    ratios = np.abs(np.asarray(direction, float)) / np.asarray(least_weights, float)
    return step_size * noise_std * math.sqrt(2 / math.pi) * float(ratios.sum())


def mirror_risk(
    *,
    gradient_deviation: float,
    strong_convexity: float,
    step_size: float,
    n_steps: int,
    n_public: int,
    lipschitz: float,
    noise_std: float,
    width: float,
    body_norm: float,
) -> float:
    """Theorem 83 with its constant: V^2 / (2 m eta T n_pub) + eta (L^2 |Q|^2 + sigma^2 (G_Q^2 + |Q|^2)).

    Mirror descent costs (eta / 2) E |g + b|_*^2 a step, |z|_* = max_{x in Q} <z, x>; |g|_* <= L |Q|, and |b|_* has mean
    sigma G_Q and variance at most sigma^2 |Q|^2. The square of a sum is at most twice the sum of squares.
    """
    start = gradient_deviation**2 / (2 * strong_convexity * step_size * n_steps * n_public)
    drift = (lipschitz * body_norm) ** 2 + noise_std**2 * (width**2 + body_norm**2)
    return start + step_size * drift


def mirror_population_risk(
    empirical: float, *, lipschitz: float, diameter: float, n_private: int, epsilon: float, delta: float
) -> float:
    """Theorem 86 with constants: Theorem 83, Lemma 84 (L D / sqrt n) and Lemma 85 as L D (e^eps - 1 + delta).

    The last term is the generalisation gap of an (eps, delta)-private algorithm when losses vary by at most L D;
    epsilon is given, never chosen for utility.
    """
    span = lipschitz * diameter
    return empirical + span / math.sqrt(n_private) + span * (math.expm1(epsilon) + delta)


def ellipsoid_width(axes: ArrayLike) -> float:
    """Gaussian width of an ellipsoid, at most the root of the sum of squared half axes (its exact order)."""
    return float(np.linalg.norm(np.asarray(axes, float)))


def cross_polytope_width(dimension: int) -> float:
    """Gaussian width of the l1 ball, at most sqrt(2 log(2 k)); the thesis prints log k."""
    return math.sqrt(2 * math.log(2 * _check.check_count("dimension", dimension)))
