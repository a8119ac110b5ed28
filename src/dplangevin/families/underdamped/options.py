"""Underdamped Langevin by its options, for `account` and `calibrate`."""

from __future__ import annotations

from dplangevin.families._stated import of_problem
from dplangevin.families.underdamped.schedule import UnderdampedSchedule
from dplangevin.problem.constants import Constants


@of_problem()
def underdamped(
    _: Constants,
    *,
    inverse_temperature: float,
    step_size: float,
    steps: int,
    friction: float = 2.0,
    inverse_mass: float = 1.0,
) -> UnderdampedSchedule:
    """The chain of positions and velocities."""
    return UnderdampedSchedule(
        inverse_temperature=inverse_temperature,
        friction=friction,
        inverse_mass=inverse_mass,
        step_size=step_size,
        n_steps=steps,
    )
