"""Underdamped Langevin by its options, for `account` and `calibrate`."""

from __future__ import annotations

from dplangevin.families._stated import fields_of, of_problem
from dplangevin.families.underdamped.schedule import UnderdampedSchedule

underdamped = of_problem()(
    fields_of(UnderdampedSchedule, "inverse_temperature step_size n_steps friction inverse_mass")
)
