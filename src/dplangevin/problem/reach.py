"""How large theta can be on a constraint set, and the Lipschitz constant of the FULL objective that follows.

Two constants must not be confused. Sensitivities use L of one record's loss (`constants.lipschitz`): the ridge is the
same for neighbours and cancels. What measures F itself, regulariser included, uses L_F = L + ridge * max |theta|:
the divergence of a uniform start, the slope of a ramp score, risk bounds in terms of values.
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin.problem.constraints import Ball, Box, ConstraintSet
from dplangevin.problem.problem import Problem


def largest_norm(constraint: ConstraintSet, dimension: int) -> float:
    """An upper bound of |theta| on the set (attained for balls and boxes); infinity when it is unbounded."""
    if isinstance(constraint, Ball):
        return constraint.radius
    if isinstance(constraint, Box):
        sides = np.maximum(np.abs(np.asarray(constraint.low)), np.abs(np.asarray(constraint.high)))
        return math.hypot(*np.broadcast_to(sides, (dimension,)).tolist())
    nearest = float(np.linalg.norm(constraint.project(np.zeros(dimension))))
    return nearest + constraint.diameter(dimension)


def full_lipschitz(problem: Problem) -> float:
    """L_F, the Lipschitz constant of F = (1/n) sum of losses + (ridge/2) |theta|^2 on the set.

    Examples
    --------
    >>> from dplangevin.problem import DataBounds, Logistic
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=1000, n_features=3,
    ...                   constraint=Ball(2.0), ridge=0.5, fit_intercept=False)
    >>> problem.constants.lipschitz, full_lipschitz(problem)
    (1.0, 2.0)
    """
    if problem.more_rows:  # N / n is not bounded
        return math.inf
    if problem.ridge == 0:
        return problem.constants.lipschitz
    return problem.constants.lipschitz + problem.ridge * largest_norm(problem.constraint, problem.dimension)
