"""Which exact sampler a problem has: a rule about the public problem, never about its data."""

from __future__ import annotations

import math
from typing import Literal

from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem import Ball, Box, Clipped, Huber, Logistic, Loss, Problem, Squared
from dplangevin.problem.reach import largest_norm

Method = Literal["grid", "line", "gaussian", "logistic"]
MOST_POINTS = 1_000_000


def exact_method(problem: Problem, grid: int = 0) -> Method:
    """The exact sampler of exp(-beta F) for this problem, or AssumptionFailed naming the fix.

    grid: any loss, on a public grid of at most a million points. line: one parameter, convex (adaptive rejection).
    gaussian: a loss that is quadratic on the whole set. logistic: elliptical or active-ball envelope, with a ridge.
    """
    if not math.isfinite(problem.constants.diameter):
        raise AssumptionFailed(
            "no exact draw: the parameter set is unbounded. Constrain the parameter to a ball or box."
        )
    if not isinstance(problem.constraint, Ball | Box):
        raise AssumptionFailed(
            f"no exact draw is known on the {problem.constraint.name}; use a ball or a box."
        )
    if grid:
        if grid**problem.dimension > MOST_POINTS:
            raise InvalidParameter(
                f"grid = {grid} points on {problem.dimension} axes are more than {MOST_POINTS}; take fewer, or another "
                "tier for so many parameters."
            )
        return "grid"
    if not problem.constants.convex:
        raise AssumptionFailed(
            "no exact draw: the loss is not convex. Give grid= (few parameters), or use mechanism='langevin'."
        )
    if problem.dimension == 1:
        return "line"
    if problem.ridge > 0 and _quadratic(problem):
        return "gaussian"
    if problem.ridge > 0 and isinstance(problem.loss, Logistic) and isinstance(problem.constraint, Ball):
        return "logistic"
    raise AssumptionFailed(
        f"no exact draw is known for the {problem.loss.name} loss with ridge = {problem.ridge:g} on the "
        f"{problem.constraint.name} in {problem.dimension} dimensions; use tier='pure' or 'certified'."
    )


def _quadratic(problem: Problem) -> bool:
    """Whether no residual can reach the point where the loss stops being (score - y)^2 / 2."""
    low, high = problem.bounds.label_range
    residual = problem.row_norm * largest_norm(problem.constraint, problem.dimension) + max(
        abs(low), abs(high)
    )
    return _turn(problem.loss) >= residual


def _turn(loss: Loss) -> float:
    if isinstance(loss, Huber):
        return loss.transition
    if isinstance(loss, Clipped) and isinstance(loss.loss, Squared | Huber):
        return min(loss.bound, _turn(loss.loss))
    return math.inf if isinstance(loss, Squared) else 0.0
