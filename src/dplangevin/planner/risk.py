"""Predict the excess risk of a plan: an estimate from public quantities.

It is the expected excess of the empirical risk if that risk were quadratic, every curvature were the worst one for
the run, and every coefficient (rows scaled to norm 1) had the size `coef_bound / 2` that the rules expect. For a
quadratic risk with coefficients of that size it is an upper bound; for other losses it is an estimate, which on the
benchmark data is one to four times what is measured. Sampling error is not part of it.
"""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.planner.rules import DescentPlan


def descent_risk(
    descent: DescentPlan, *, curvature: float, noise: float, size: float, dimension: int
) -> float:
    """Return (p / 2) max_h h ((1 - phi(h))^2 size^2 + noise^2 sum_t q_t(h)^2) over curvatures h in (0, M].

    phi(h) is the fraction of the minimiser that the released mean reaches and q_t(h) the weight of step t's noise in
    it, both computed exactly for Nesterov's recursion. `noise` is the standard deviation on the mean gradient.
    """
    grid = curvature * np.geomspace(1e-9, 1.0, 73)
    reached, weights = _descent_response(descent, grid)
    risks = grid * ((1 - reached) ** 2 * size**2 + noise**2 * (weights**2).sum(axis=0))
    return float(dimension / 2 * risks.max())


def _descent_response(descent: DescentPlan, grid: Floats) -> tuple[Floats, Floats]:
    """Return phi(h), from the recursion towards 1, and q_t(h), from the recursion backwards from the mean."""
    steps, eta = descent.n_steps, descent.step_size
    weight = 1 / (steps - descent.average_from)
    theta = previous = reached = np.zeros_like(grid)
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous, theta = theta, point - eta * grid * (point - 1)
        if t >= descent.average_from:
            reached = reached + weight * theta
    weights = np.zeros((steps, len(grid)))
    # derivatives of the mean in iterates t + 1 and t + 2, without their own direct weight
    current = later = np.zeros_like(grid)
    for t in reversed(range(steps)):
        total = current + (weight if t >= descent.average_from else 0.0)
        weights[t] = eta * total
        propagated = (1 - eta * grid) * total
        current, later = (1 + t / (t + 3)) * propagated + later, -t / (t + 3) * propagated
    return reached, weights


def ridge_risk(*, ridge: float, noise_square: float, size: float, dimension: int, n: int) -> float:
    """Return (Lambda p size^2 + E|b|^2 / Lambda) / (8 n), for objective perturbation.

    Ridge Lambda and tilt b are on the SUM of losses.

    In a direction of curvature h the bias costs h (Lambda / (h + Lambda))^2 / 2 and the noise h / (h + Lambda)^2 / 2
    per unit of squared coefficient and of squared tilt, at most Lambda / 8 and 1 / (8 Lambda).
    """
    return (ridge * dimension * size**2 + noise_square / ridge) / (8 * n)
