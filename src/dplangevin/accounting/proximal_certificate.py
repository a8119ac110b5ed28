"""Explicit bounds on the distance of the proximal sampler from its target after k steps, independent of the data.

P, the x-kernel, is reversible and positive, and contracts mean-zero functions in L2(pi) by rho = 1 / (1 + step_size /
C), C the Poincare constant of pi. With a start distribution of density at most e^w times pi:

    total variation <= sqrt(e^w - 1) rho^k / 2,
    sup |d mu_k / d pi - 1| <= exp(D^2 / (2 step_size)) rho^(k - 1) sqrt(e^w - 1)   on a body of diameter D.

References: Lee, Shen and Tian (2021) for the chain; Chen, Chewi, Salim and Wibisono (2022) for the rate; Payne and
Weinberger (1960) and Brascamp and Lieb (1976) for C. The sup-norm bound is proved in docs/theory/proximal_sampler.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplangevin import _check
from dplangevin.errors import AssumptionFailed

MAX_START_GAP = 1.0
"""Largest allowed <gradient of V, centre - x> over the body for the centre of a start: 0 at the minimiser."""


def poincare_constant(strong_convexity: float, diameter: float) -> float:
    """Return a Poincare constant of exp(-V): the smaller of 1/strong_convexity and diameter^2 / pi^2 (V convex).

    Examples
    --------
    >>> round(poincare_constant(50.0, 2.0), 6), round(poincare_constant(0.0, 2.0), 6)
    (0.02, 0.405285)
    """
    curvature = _check.check_nonnegative("strong_convexity", strong_convexity)
    width = _check.check_positive("diameter", diameter, infinite=True)
    constant = min(1 / curvature if curvature > 0 else math.inf, (width / math.pi) ** 2)
    if math.isinf(constant):
        raise AssumptionFailed(
            "no Poincare constant is proved for a potential that is only convex on an unbounded set; add a "
            "ridge or bound the set."
        )
    return constant


def contraction_factor(step_size: float, poincare: float) -> float:
    """Return the contraction factor per step, rho = 1 / (1 + step_size / C), C the Poincare constant.

    Examples
    --------
    >>> round(contraction_factor(0.01, 0.02), 6), round(contraction_factor(0.05, poincare_constant(0.0, 2.0)), 6)
    (0.666667, 0.890179)
    """
    return 1 / (
        1 + _check.check_positive("step_size", step_size) / _check.check_positive("poincare", poincare)
    )


def uniform_start_ratio(lipschitz: float, diameter: float) -> float:
    """Return w of the uniform start: lipschitz * diameter, lipschitz of the FULL V, regulariser included."""
    return _check.check_positive("lipschitz", lipschitz) * _check.check_positive("diameter", diameter)


def warm_start_ratio(
    smoothness: float, strong_convexity: float, dimension: int, diameter: float, gap: float = 0.0
) -> float:
    """Return w of the start exp(-<g, x - c> - M |x - c|^2 / 2) on a convex body, c near argmin V, g = grad V(c).

    gap bounds <g, c - x> over the body (0 at the exact minimiser). Scaling the body towards c by s <= 1 gives
    w <= p log(1/s) + (M s^2 - m)+ D^2 / 2 + (1 - s) gap, here with the best s: at most (p/2) log(M/m) + gap.
    It depends only on p, M, m, D and gap, so it is the same for every admissible data set.

    Examples
    --------
    >>> round(warm_start_ratio(1950.0, 75.0, 20, 2.0), 4), round(warm_start_ratio(1875.0, 0.0, 20, 2.0), 4)
    (32.581, 69.2693)
    """
    high, low = (
        _check.check_positive("smoothness", smoothness),
        _check.check_nonnegative("strong_convexity", strong_convexity),
    )
    p, width = (
        _check.check_count("dimension", dimension),
        _check.check_positive("diameter", diameter, infinite=True),
    )
    if low == 0 and math.isinf(width):
        raise AssumptionFailed(
            "no start is certified for a potential that is only convex on an unbounded set; add a ridge or "
            "bound the set."
        )
    wide = low >= p / width**2
    square = min(1.0, (low if wide else p / width**2) / high)
    extra = 0.0 if wide else max(high * square - low, 0.0) * width**2 / 2
    left = (1 - math.sqrt(square)) * _check.check_nonnegative("gap", gap)
    return (p / 2 * math.log(1 / square) + extra + left) * (1 + 1e-12)


def log_chi(log_density_ratio: float) -> float:
    """Return log sqrt(e^w - 1), a bound on the logarithm of the L2 distance of the start."""
    w = _check.check_nonnegative("log_density_ratio", log_density_ratio)
    return -math.inf if w == 0 else 0.5 * (w + math.log(-math.expm1(-w)))


def total_variation_after(n_steps: int, log_density_ratio: float, step_size: float, poincare: float) -> float:
    """Return a bound on the total variation distance to the target after n_steps, at most 1."""
    rate = _contraction_rate(step_size, poincare)
    exponent = log_chi(log_density_ratio) - n_steps * rate - math.log(2)
    return 1.0 if exponent >= 0 else math.exp(exponent)


def total_variation_steps(
    total_variation: float, log_density_ratio: float, step_size: float, poincare: float
) -> int:
    """Return the smallest proved number of steps with total variation at most `total_variation`."""
    goal = math.log(2 * _check.check_open_unit("total_variation", total_variation))
    return _steps_until(log_chi(log_density_ratio) - goal, step_size, poincare)


def sup_norm_after(
    n_steps: int, log_density_ratio: float, step_size: float, poincare: float, diameter: float
) -> float:
    """Return a bound on sup |density / target density - 1| after n_steps; infinity when it overflows."""
    rate = _contraction_rate(step_size, poincare)
    exponent = _log_smoothing(step_size, diameter) + log_chi(log_density_ratio) - (n_steps - 1) * rate
    return math.inf if exponent > 700 else math.exp(exponent)


def sup_norm_steps(
    sup_norm: float, log_density_ratio: float, step_size: float, poincare: float, diameter: float
) -> int:
    """Return the smallest proved number of steps with sup |density / target density - 1| at most `sup_norm`."""
    goal = math.log(_check.check_open_unit("sup_norm", sup_norm))
    distance = _log_smoothing(step_size, diameter) + log_chi(log_density_ratio) - goal
    return 1 + _steps_until(distance, step_size, poincare)


def _log_smoothing(step_size: float, diameter: float) -> float:
    """Return a bound on log sup_x |p_1(x, .)| in L2(pi): diameter^2 / (2 step_size)."""
    width = _check.check_positive("diameter", diameter, infinite=True)
    if math.isinf(width):
        raise AssumptionFailed(
            "a pure guarantee needs a bounded set: constrain the parameter to a ball or box."
        )
    return width**2 / (2 * _check.check_positive("step_size", step_size))


def _steps_until(distance: float, step_size: float, poincare: float) -> int:
    """Return the number of steps, at least 1, that reduce a log distance by `distance`."""
    if distance == -math.inf:
        return 1
    return max(1, math.ceil(distance / _contraction_rate(step_size, poincare) * (1 + 1e-12) + 1e-9))


def _contraction_rate(step_size: float, poincare: float) -> float:
    """Return -log rho, without the cancellation of log(1 / (1 + x))."""
    return math.log1p(
        _check.check_positive("step_size", step_size) / _check.check_positive("poincare", poincare)
    )


def expected_proposals(
    step_size: float, strong_convexity: float, mean_curvature: float, dimension: int
) -> float:
    """Estimate the proposals per backward step: ((1/eta + h) / (1/eta + m))^(p/2), h the mean curvature of V.

    It is exact for a quadratic with equal curvatures far from the boundary; an estimate for planning, not a bound.
    """
    ratio = (1 + step_size * mean_curvature) / (1 + step_size * strong_convexity)
    return math.exp(min(0.5 * dimension * math.log(max(ratio, 1.0)), 700.0))


def best_step_size(
    steps: Callable[[float], int],
    poincare: float,
    strong_convexity: float,
    mean_curvature: float,
    dimension: int,
) -> float:
    """Return the step size with the least expected work, steps * (1 gradient + proposals).

    `steps` maps a step size to the certified number of steps, so the certificate holds for any choice.
    """
    grid = poincare * np.geomspace(1e-4, 1e3, 141)
    cost = [
        steps(float(eta)) * (1 + expected_proposals(float(eta), strong_convexity, mean_curvature, dimension))
        for eta in grid
    ]
    return float(grid[int(np.argmin(cost))])
