"""Draws from exp(-beta F): the exponential, the Gibbs and the iterated exponential mechanism."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry, PlannerEntry

_DRAW_THEOREMS = ("ExponentialMechanismTheorem", "StronglyConvexGibbs")
_INVERSE_TEMPERATURE = CalibrationTarget("inverse_temperature", increases_privacy=False)
MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "ExponentialSpec",
        _DRAW_THEOREMS,
        "ExponentialMechanism",
        planners=(PlannerEntry("exponential", rank=6),),
        options=("exponential",),
        calibration_target=_INVERSE_TEMPERATURE,
    ),
    MechanismEntry(
        "GibbsSpec",
        _DRAW_THEOREMS,
        "ExponentialMechanism",
        planners=(PlannerEntry("gibbs", removed_capabilities=("pure",)),),
        options=("gibbs",),
        calibration_target=_INVERSE_TEMPERATURE,
    ),
    MechanismEntry(
        "IteratedExponentialSpec",
        ("IteratedExponential",),
        "IteratedExponentialMechanism",
        planners=(PlannerEntry("iterated-exponential"),),
    ),
)
