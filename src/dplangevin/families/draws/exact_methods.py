"""Which exact sampler a problem has: a rule about the public problem, never about its data."""

from __future__ import annotations

import math
from typing import Literal

from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem import Ball, Box, Problem
from dplangevin.problem.reach import largest_norm

Method = Literal["grid", "line", "gaussian", "logistic", "cells"]
MOST_POINTS = 1_000_000
MOST_CELLS = {1: 100_000, 2: 401, 3: 55}
"""Cells per axis of an envelope, at most, by the number of parameters."""
MOST_SLACK = 14.0
"""The envelope of a cell is above the law by at most this much in the exponent: worse is not worth running."""


def exact_method(problem: Problem, grid: int = 0) -> Method:
    """The exact sampler of exp(-beta F) for this problem, or AssumptionFailed naming the fix.

    grid: any loss, on a public grid of at most a million points. line: one parameter, convex (adaptive rejection).
    gaussian: a loss that is quadratic on the whole set. logistic: elliptical or active-ball envelope, with a ridge.
    cells: a loss that is not convex, up to three parameters, by the Lipschitz constants of F and its gradient.
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
        if problem.dimension in MOST_CELLS:
            return "cells"
        raise AssumptionFailed(
            "no exact draw: the loss is not convex, and an envelope of cells is for up to three parameters. Give grid= "
            "(few parameters), or use Langevin diffusion."
        )
    if problem.dimension == 1:
        return "line"
    if problem.ridge > 0 and _quadratic(problem):
        return "gaussian"
    if problem.ridge > 0 and problem.loss.ball_envelope and isinstance(problem.constraint, Ball):
        return "logistic"
    raise AssumptionFailed(
        f"no exact draw is known for the {problem.loss.name} loss with ridge = {problem.ridge:g} on the "
        f"{problem.constraint.name} in {problem.dimension} dimensions; use tier='pure' or 'certified'."
    )


def box_lipschitz(problem: Problem) -> float:
    """Lipschitz constant of F on the smallest box around the set, whose corners may lie outside it."""
    corner = largest_norm(problem.constraint, problem.dimension)
    if isinstance(problem.constraint, Ball):
        corner *= math.sqrt(problem.dimension)
    return problem.constants.lipschitz + problem.ridge * corner


def envelope_slack(problem: Problem, inverse_temperature: float, cells: int) -> float:
    """How far the envelope of so many cells per axis lies above the law at a cell's centre, in the exponent."""
    radius = problem.constants.diameter * math.sqrt(problem.dimension) / (2 * cells)
    flat = box_lipschitz(problem) * radius
    return inverse_temperature * min(flat, problem.constants.smoothness * radius**2 / 2)


def cells_per_axis(problem: Problem, inverse_temperature: float) -> int:
    """The fewest cells whose envelope is within 1 of the law in the exponent, or as many as are allowed."""
    most, slack = MOST_CELLS[problem.dimension], math.inf
    for cells in sorted({min(most, round(8 * 1.25**k)) for k in range(60)}):
        slack = envelope_slack(problem, inverse_temperature, cells)
        if slack <= 1:
            return cells
    if slack > MOST_SLACK:
        raise AssumptionFailed(
            f"no exact draw: at inverse temperature {inverse_temperature:.4g} an envelope of {most} cells per axis "
            "would reject almost everything. Lower epsilon, give grid=, or smooth the loss."
        )
    return most


def _quadratic(problem: Problem) -> bool:
    """Whether no residual can reach the point where the loss stops being (score - y)^2 / 2."""
    low, high = problem.bounds.label_range
    residual = problem.row_norm * largest_norm(problem.constraint, problem.dimension) + max(
        abs(low), abs(high)
    )
    return problem.loss.quadratic_radius >= residual
