"""Objective and output perturbation: one exact minimisation, noise before or after."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member

MEMBERS: tuple[Member, ...] = (
    Member(
        "ObjectivePerturbationSchedule",
        (
            "theorems.objective:ObjectivePerturbationTheorem",
            "theorems.objective:GaussianObjectivePerturbation",
        ),
        "ObjectivePerturbation",
        recipes=("objective-perturbation",),
        options=("objective-perturbation",),
        knob=Knob("density_scale"),
    ),
    Member(
        "OutputPerturbationSchedule",
        ("theorems.output:OutputPerturbationTheorem",),
        "OutputPerturbation",
        recipes=("output-perturbation",),
        options=("output-perturbation",),
        knob=Knob("density_scale"),
    ),
)
