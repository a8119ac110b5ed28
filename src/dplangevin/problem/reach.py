"""How large theta can be on a constraint set, and how steep and how high the FULL objective is there.

Two constants must not be confused. Sensitivities use L of one record's loss (`constants.lipschitz`): the ridge is the
same for neighbours and cancels. What measures F itself, regulariser included, uses L_F = L + ridge * max |theta|:
the divergence of a uniform start, the slope of a ramp score, risk bounds in terms of values.
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin.problem.constraints import Ball, Box, ConstraintSet, WholeSpace
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


def largest_excess(problem: Problem) -> float:
    """sup F - inf F over the set, F the full objective: at most L diameter + (ridge / 2) max |theta|^2.

    Examples
    --------
    >>> from dplangevin.problem import Ball, DataBounds, Logistic
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=1000, n_features=3,
    ...                   constraint=Ball(2.0), ridge=0.5, fit_intercept=False)
    >>> round(largest_excess(problem), 6)
    5.0
    """
    constants = problem.constants
    if math.isinf(constants.diameter) or problem.more_rows:
        return math.inf
    penalty = problem.ridge / 2 * largest_norm(problem.constraint, problem.dimension) ** 2
    return (constants.lipschitz * constants.diameter + penalty) * (1 + 1e-12)


def interior_minimisers(problem: Problem) -> bool:
    """Whether every data set's minimiser over the set is a zero of the gradient: |theta*| <= L / ridge stays inside.

    At the unconstrained minimiser the ridge's gradient ridge theta* equals minus a mean of record gradients, of norm
    at most L; a minimiser on the sphere |theta| = L / ridge is still a zero of the gradient. Known for balls around 0
    and for the whole space, with a ridge.
    """
    if problem.ridge <= 0 or not problem.constants.convex or problem.more_rows:
        return False
    if isinstance(problem.constraint, WholeSpace):
        return True
    needed = problem.constants.lipschitz / problem.ridge
    return isinstance(problem.constraint, Ball) and problem.constraint.radius >= needed
