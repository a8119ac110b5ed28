"""Chapter 4 of Ganesh (2022), mirror descent with public data: its quantities with explicit constants.

These are bounds on risk, never on privacy (`calibrate_mirror_noise` calibrates the noise). Q is a convex body around 0,
|Q| its largest Euclidean norm, G_Q its Gaussian width E max_{x in Q} <g, x>, g ~ N(0, I).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check


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
