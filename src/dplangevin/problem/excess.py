"""How far apart two values of the objective can be on the set, for every data set."""

from __future__ import annotations

import math

from dplangevin.problem.problem import Problem
from dplangevin.problem.reach import largest_norm


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
    from dplangevin.problem.constraints import Ball, WholeSpace

    if problem.ridge <= 0 or not problem.constants.convex or problem.more_rows:
        return False
    if isinstance(problem.constraint, WholeSpace):
        return True
    needed = problem.constants.lipschitz / problem.ridge
    return isinstance(problem.constraint, Ball) and problem.constraint.radius >= needed
