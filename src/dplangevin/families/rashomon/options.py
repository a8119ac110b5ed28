"""Draws of good models by their options, for `account` and `calibrate`."""

from __future__ import annotations

from dplangevin.families._minimiser import stated_tolerance
from dplangevin.families._stated import stated_constants
from dplangevin.families.rashomon.schedule import RashomonSchedule
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants


def rashomon(
    *,
    n: int,
    lipschitz: float,
    smoothness: float,
    strong_convexity: float,
    diameter: float,
    dimension: int,
    models: int,
    threshold: float,
    inverse_temperature: float,
    excess: float | None = None,
    ramp: float = 0.0,
    tolerance: float | None = None,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """Exact draws of good models: exp(-inverse_temperature h(F - F*)), h flat up to the threshold."""
    constants = stated_constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    tolerance = stated_tolerance(constants, tolerance)
    return constants, RashomonSchedule(
        n_models=models,
        threshold=threshold,
        inverse_temperature=inverse_temperature,
        tolerance=tolerance,
        # sup F - inf F over the set, from the slope of one loss and of the ridge
        excess=excess if excess is not None else (lipschitz + strong_convexity * diameter) * diameter,
        ramp=ramp,
    )
