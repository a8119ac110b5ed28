"""Objective and output perturbation by their options, for `account` and `calibrate`."""

from __future__ import annotations

import math

from dplangevin.families._minimiser import stated_tolerance, total_ridge
from dplangevin.families._stated import of_problem
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
    PerturbationNoise,
)
from dplangevin.problem.constants import Constants

SOLVER_EPSILON = 0.01
"""What the inexact minimiser of objective perturbation costs, unless release_density_scale is stated."""


@of_problem("smoothness strong_convexity dimension", "diameter", hessian_rank=1)
def objective_perturbation(
    constants: Constants,
    *,
    density_scale: float,
    noise: PerturbationNoise = "gaussian",
    tolerance: float | None = None,
    release_density_scale: float | None = None,
) -> ObjectivePerturbationSchedule:
    """The minimiser of a randomly tilted objective, in units of the SUM of losses."""
    dimension = constants.dimension or 1
    tilt = density_scale * (dimension + math.sqrt(70 * dimension) + 35)
    tolerance = stated_tolerance(constants, tolerance, tilt)
    if release_density_scale is None:
        ridge = total_ridge(constants) if constants.strong_convexity > 0 else 1.0
        release_density_scale = 2 * tolerance / (ridge * SOLVER_EPSILON)
    return ObjectivePerturbationSchedule(
        density_scale=density_scale,
        tolerance=tolerance,
        release_density_scale=release_density_scale,
        noise=noise,
    )


@of_problem("smoothness strong_convexity", "dimension diameter")
def output_perturbation(
    constants: Constants,
    *,
    density_scale: float,
    noise: PerturbationNoise = "gaussian",
    tolerance: float | None = None,
) -> OutputPerturbationSchedule:
    """The minimiser plus noise."""
    tolerance = stated_tolerance(constants, tolerance)
    return OutputPerturbationSchedule(density_scale=density_scale, tolerance=tolerance, noise=noise)
