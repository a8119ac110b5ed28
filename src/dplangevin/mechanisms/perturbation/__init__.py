"""Objective and output perturbation: one exact minimisation, with noise in the objective or on the minimiser."""

from __future__ import annotations

from dplangevin.accounting.registry import CalibrationTarget, MechanismEntry, PlannerEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "ObjectivePerturbationSpec",
        (
            "ObjectivePerturbationTheorem",
            "GaussianObjectivePerturbation",
        ),
        "ObjectivePerturbation",
        planners=(
            PlannerEntry("objective-perturbation", rank=3, suitability="prefers_objective_perturbation"),
        ),
        options=("objective-perturbation",),
        calibration_target=CalibrationTarget("density_scale"),
    ),
    MechanismEntry(
        "OutputPerturbationSpec",
        ("OutputPerturbationTheorem",),
        "OutputPerturbation",
        planners=(PlannerEntry("output-perturbation"),),
        options=("output-perturbation",),
        calibration_target=CalibrationTarget("density_scale"),
    ),
)
