"""Predicted excess risk: an estimate from public quantities.

It is the expected excess of the empirical risk if that risk were quadratic, every curvature were the worst one for the
run, and every coefficient (rows scaled to norm 1) had the size `reach / 2` the rules expect. For a quadratic risk with
coefficients of that size it is an upper bound; for other losses it is an estimate, which on the benchmark data is one
to four times what is measured. Sampling error is not part of it.
"""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.planner.rules import Descent


def descent_risk(descent: Descent, *, curvature: float, noise: float, size: float, dimension: int) -> float:
    """(p / 2) max_h h ((1 - phi(h))^2 size^2 + noise^2 sum_t q_t(h)^2) over curvatures h in (0, M].

    phi(h) is the share of the minimiser that the released mean reaches and q_t(h) the weight of step t's noise in it,
    both computed exactly for Nesterov's recursion. `noise` is the standard deviation on the mean gradient.
    """
    grid = curvature * np.geomspace(1e-9, 1.0, 73)
    reached, weights = _response(descent, grid)
    each = grid * ((1 - reached) ** 2 * size**2 + noise**2 * (weights**2).sum(axis=0))
    return float(dimension / 2 * each.max())


def _response(descent: Descent, grid: Floats) -> tuple[Floats, Floats]:
    """phi(h) by running the recursion towards 1, and q_t(h) by running it backwards from the mean."""
    steps, eta = descent.n_steps, descent.step_size
    share = 1 / (steps - descent.average_from)
    theta = previous = reached = np.zeros_like(grid)
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous, theta = theta, point - eta * grid * (point - 1)
        if t >= descent.average_from:
            reached = reached + share * theta
    weights = np.zeros((steps, len(grid)))
    current = later = np.zeros_like(
        grid
    )  # sensitivity of the mean to iterates t + 1 and t + 2, without its own share
    for t in reversed(range(steps)):
        total = current + (share if t >= descent.average_from else 0.0)
        weights[t] = eta * total
        passed = (1 - eta * grid) * total
        current, later = (1 + t / (t + 3)) * passed + later, -t / (t + 3) * passed
    return reached, weights


def ridge_risk(*, ridge: float, noise_square: float, size: float, dimension: int, n: int) -> float:
    """(Lambda p size^2 + E|b|^2 / Lambda) / (8 n): objective perturbation, ridge and tilt b on the SUM of losses.

    In a direction of curvature h the bias costs h (Lambda / (h + Lambda))^2 / 2 and the noise h / (h + Lambda)^2 / 2
    per unit of squared coefficient and of squared tilt, at most Lambda / 8 and 1 / (8 Lambda).
    """
    return (ridge * dimension * size**2 + noise_square / ridge) / (8 * n)
