"""Underdamped Langevin by its options, for `account` and `calibrate`."""

from __future__ import annotations

from dplangevin.families._stated import stated_constants
from dplangevin.families.underdamped.schedule import UnderdampedSchedule
from dplangevin.problem.constants import Constants


def underdamped(
    *,
    n: int,
    lipschitz: float,
    inverse_temperature: float,
    step_size: float,
    steps: int,
    friction: float = 2.0,
    inverse_mass: float = 1.0,
    adjacency: str = "replace-one",
) -> tuple[Constants, UnderdampedSchedule]:
    """The constants and the schedule."""
    return stated_constants(n, lipschitz, adjacency), UnderdampedSchedule(
        inverse_temperature=inverse_temperature,
        friction=friction,
        inverse_mass=inverse_mass,
        step_size=step_size,
        n_steps=steps,
    )
