"""How far the proximal sampler is from its target after k steps: explicit bounds, no data.

P, the x-kernel, is reversible and positive, and contracts mean-zero functions in L2(pi) by
rho = 1 / (1 + step_size / C), C the Poincare constant of pi. With a start law of density at most e^w times pi:

    total variation <= sqrt(e^w - 1) rho^k / 2,
    sup |d mu_k / d pi - 1| <= exp(D^2 / (2 step_size)) rho^(k - 1) sqrt(e^w - 1)   on a body of diameter D.

References: Lee, Shen and Tian (2021) for the chain; Chen, Chewi, Salim and Wibisono (2022) for the
rate; Payne and Weinberger (1960) and Brascamp and Lieb (1976) for C. The sup-norm bound is proved in
docs/theory/proximal_sampler.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplangevin import _check
from dplangevin.errors import AssumptionFailed

START_GAP = 1.0
"""How far from optimal the centre of a start may be: <gradient of V, centre - x> over the body."""


def poincare_constant(strong_convexity: float, diameter: float) -> float:
    """A Poincare constant of exp(-V): the smaller of 1/strong_convexity and diameter^2 / pi^2 (V convex).

    Examples
    --------
    >>> round(poincare_constant(50.0, 2.0), 6), round(poincare_constant(0.0, 2.0), 6)
    (0.02, 0.405285)
    """
    curvature = _check.nonnegative("strong_convexity", strong_convexity)
    width = _check.positive("diameter", diameter, infinite=True)
    constant = min(1 / curvature if curvature > 0 else math.inf, (width / math.pi) ** 2)
    if math.isinf(constant):
        raise AssumptionFailed(
            "no Poincare constant is proved for a potential that is only convex on an unbounded set; add a ridge or "
            "bound the set."
        )
    return constant


def contraction(step_size: float, poincare: float) -> float:
    """rho = 1 / (1 + step_size / C).

    Examples
    --------
    >>> round(contraction(0.01, 0.02), 6), round(contraction(0.05, poincare_constant(0.0, 2.0)), 6)
    (0.666667, 0.890179)
    """
    return 1 / (1 + _check.positive("step_size", step_size) / _check.positive("poincare", poincare))


def uniform_start_ratio(lipschitz: float, diameter: float) -> float:
    """w of the uniform start: lipschitz * diameter, lipschitz of the FULL V, regulariser included."""
    return _check.positive("lipschitz", lipschitz) * _check.positive("diameter", diameter)


def warm_start_ratio(
    smoothness: float, strong_convexity: float, dimension: int, diameter: float, gap: float = 0.0
) -> float:
    """w of the start exp(-<g, x - c> - M |x - c|^2 / 2) on a convex body, c near the minimiser of V, g = grad V(c).

    gap bounds <g, c - x> over the body (0 at the exact minimiser). Scaling the body towards c by s <= 1 gives
    w <= p log(1/s) + (M s^2 - m)+ D^2 / 2 + (1 - s) gap, here with the best s: at most (p/2) log(M/m) + gap.
    A property of V, M, m and D alone, so it is the same for every admissible data set.

    Examples
    --------
    >>> round(warm_start_ratio(1950.0, 75.0, 20, 2.0), 4), round(warm_start_ratio(1875.0, 0.0, 20, 2.0), 4)
    (32.581, 69.2693)
    """
    high, low = (
        _check.positive("smoothness", smoothness),
        _check.nonnegative("strong_convexity", strong_convexity),
    )
    p, width = _check.count("dimension", dimension), _check.positive("diameter", diameter, infinite=True)
    if low == 0 and math.isinf(width):
        raise AssumptionFailed(
            "no start is certified for a potential that is only convex on an unbounded set; add a ridge or "
            "bound the set."
        )
    wide = low >= p / width**2
    square = min(1.0, (low if wide else p / width**2) / high)
    extra = 0.0 if wide else max(high * square - low, 0.0) * width**2 / 2
    left = (1 - math.sqrt(square)) * _check.nonnegative("gap", gap)
    return (p / 2 * math.log(1 / square) + extra + left) * (1 + 1e-12)


def log_chi(log_density_ratio: float) -> float:
    """log sqrt(e^w - 1), a bound on log of the L2 distance of the start."""
    w = _check.nonnegative("log_density_ratio", log_density_ratio)
    return -math.inf if w == 0 else 0.5 * (w + math.log(-math.expm1(-w)))


def total_variation_after(n_steps: int, log_density_ratio: float, step_size: float, poincare: float) -> float:
    """Bound on the total variation distance to the target after n_steps, at most 1."""
    rate = _rate(step_size, poincare)
    exponent = log_chi(log_density_ratio) - n_steps * rate - math.log(2)
    return 1.0 if exponent >= 0 else math.exp(exponent)


def total_variation_steps(
    total_variation: float, log_density_ratio: float, step_size: float, poincare: float
) -> int:
    """Smallest proved number of steps with total variation at most `total_variation`."""
    goal = math.log(2 * _check.open_unit("total_variation", total_variation))
    return _steps(log_chi(log_density_ratio) - goal, step_size, poincare, least=1)


def sup_norm_after(
    n_steps: int, log_density_ratio: float, step_size: float, poincare: float, diameter: float
) -> float:
    """Bound on sup |density / target density - 1| after n_steps; infinity when it overflows."""
    rate = _rate(step_size, poincare)
    exponent = _log_smoothing(step_size, diameter) + log_chi(log_density_ratio) - (n_steps - 1) * rate
    return math.inf if exponent > 700 else math.exp(exponent)


def sup_norm_steps(
    sup_norm: float, log_density_ratio: float, step_size: float, poincare: float, diameter: float
) -> int:
    """Smallest proved number of steps with sup |density / target density - 1| at most `sup_norm`."""
    goal = math.log(_check.open_unit("sup_norm", sup_norm))
    distance = _log_smoothing(step_size, diameter) + log_chi(log_density_ratio) - goal
    return 1 + _steps(distance, step_size, poincare, least=1)


def _log_smoothing(step_size: float, diameter: float) -> float:
    """log of sup_x |p_1(x, .)| in L2(pi): at most diameter^2 / (2 step_size)."""
    width = _check.positive("diameter", diameter, infinite=True)
    if math.isinf(width):
        raise AssumptionFailed(
            "a pure guarantee needs a bounded set: constrain the parameter to a ball or box."
        )
    return width**2 / (2 * _check.positive("step_size", step_size))


def _steps(distance: float, step_size: float, poincare: float, least: int) -> int:
    if distance == -math.inf:
        return least
    return max(least, math.ceil(distance / _rate(step_size, poincare) * (1 + 1e-12) + 1e-9))


def _rate(step_size: float, poincare: float) -> float:
    """-log rho, without the cancellation of log(1 / (1 + x))."""
    return math.log1p(_check.positive("step_size", step_size) / _check.positive("poincare", poincare))


def expected_proposals(
    step_size: float, strong_convexity: float, mean_curvature: float, dimension: int
) -> float:
    """About how many proposals one backward step takes: ((1/eta + h) / (1/eta + m))^(p/2), h the mean curvature of V.

    Exact for a quadratic with equal curvatures far from the boundary; a planning figure, not a bound.
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
    """The step size with the least expected work, steps * (1 gradient + proposals).

    `steps` maps a step size to the certified number of steps, so the certificate is respected whatever is
    chosen.
    """
    grid = poincare * np.geomspace(1e-4, 1e3, 141)
    cost = [
        steps(float(eta)) * (1 + expected_proposals(float(eta), strong_convexity, mean_curvature, dimension))
        for eta in grid
    ]
    return float(grid[int(np.argmin(cost))])
