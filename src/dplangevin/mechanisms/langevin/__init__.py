"""Langevin diffusion: the discretised run, stated by inverse temperature and time, and the continuous process."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry, PlannerEntry

_BETA = CalibrationTarget("inverse_temperature", increases_privacy=False)

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "LangevinSpec",
        ("Composition", "OptimalShift", "BlockRecursion", "Dobrushin", "LogSobolevTheorem"),
        "LangevinDynamics",
        planners=(PlannerEntry("langevin", rank=5, removed_capabilities=("holds_beyond_n",)),),
        planning="mechanism",
        options=("langevin",),
        calibration_target=_BETA,
        lower_bound="spec",
    ),
    MechanismEntry(
        "DiffusionSpec",
        ("DiffusionPathTheorem", "DiffusionEndTheorem", "LogSobolevTheorem"),
        options=("langevin-diffusion",),
        calibration_target=_BETA,
        lower_bound="spec",
    ),
)
