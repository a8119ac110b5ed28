"""Underdamped Langevin: gradient steps with a velocity, private by the noise of the dynamics."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "UnderdampedSpec",
        ("UnderdampedTheorem",),
        "UnderdampedLangevin",
        options=("underdamped",),
        calibration_target=CalibrationTarget("inverse_temperature", increases_privacy=False),
        lower_bound="spec",
    ),
)
