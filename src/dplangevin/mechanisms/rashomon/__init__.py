"""Private draws from a Rashomon set, the set of almost optimal models."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry

_INVERSE_TEMPERATURE = CalibrationTarget("inverse_temperature", increases_privacy=False, is_slow=True)
MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "RashomonSpec",
        ("RashomonDrawsTheorem", "RashomonLocalTheorem"),
        "RashomonDraws",
        options=("rashomon",),
        calibration_target=_INVERSE_TEMPERATURE,
    ),
    MechanismEntry("RashomonChainSpec", ("RashomonChainsTheorem",), "RashomonChains"),
)
