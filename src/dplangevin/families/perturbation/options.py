"""Objective and output perturbation by their options, for `account` and `calibrate`."""

from __future__ import annotations

import math

from dplangevin.families._minimiser import stated_tolerance, total_ridge
from dplangevin.families._stated import stated_constants
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants

SOLVER_EPSILON = 0.01
"""What the inexact minimiser of objective perturbation costs, unless release_noise is stated."""


def objective_perturbation(
    *,
    n: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    dimension: int,
    noise_scale: float,
    hessian_rank: int = 1,
    noise: str = "gaussian",
    tolerance: float | None = None,
    release_noise: float | None = None,
    diameter: float = math.inf,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """The minimiser of a randomly tilted objective, in units of the SUM of losses."""
    constants = stated_constants(
        n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension, hessian_rank
    )
    tilt = noise_scale * (dimension + math.sqrt(70 * dimension) + 35)
    tolerance = stated_tolerance(constants, tolerance, tilt)
    if release_noise is None:
        ridge = total_ridge(constants) if strong_convexity > 0 else 1.0
        release_noise = 2 * tolerance / (ridge * SOLVER_EPSILON)
    return constants, ObjectivePerturbationSchedule(
        noise_scale=noise_scale,
        tolerance=tolerance,
        release_noise=release_noise,
        noise=noise,  # type: ignore[arg-type]
    )


def output_perturbation(
    *,
    n: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    noise_scale: float,
    dimension: int | None = None,
    noise: str = "gaussian",
    tolerance: float | None = None,
    diameter: float = math.inf,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """The minimiser plus noise."""
    constants = stated_constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    tolerance = stated_tolerance(constants, tolerance)
    return constants, OutputPerturbationSchedule(
        noise_scale=noise_scale,
        tolerance=tolerance,
        noise=noise,  # type: ignore[arg-type]
    )
