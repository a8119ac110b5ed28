"""Draws of good models by their options, for `account` and `calibrate`."""

from __future__ import annotations

from dplangevin.families._minimiser import stated_tolerance
from dplangevin.families._stated import of_problem
from dplangevin.families.rashomon.schedule import RashomonSchedule
from dplangevin.problem.constants import Constants


@of_problem("smoothness strong_convexity diameter dimension")
def rashomon(
    constants: Constants,
    *,
    models: int,
    threshold: float,
    inverse_temperature: float,
    excess: float | None = None,
    ramp: float = 0.0,
    tolerance: float | None = None,
) -> RashomonSchedule:
    """Exact draws of good models: exp(-inverse_temperature h(F - F*)), h flat up to the threshold."""
    if excess is None:  # sup F - inf F over the set, from the slope of one loss and of the ridge
        steepest = constants.lipschitz + constants.strong_convexity * constants.diameter
        excess = steepest * constants.diameter
    return RashomonSchedule(
        n_models=models,
        threshold=threshold,
        inverse_temperature=inverse_temperature,
        tolerance=stated_tolerance(constants, tolerance),
        excess=excess,
        ramp=ramp,
    )
