"""Objective and output perturbation: one exact minimisation, noise before or after."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

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
    ),
    Member(
        "OutputPerturbationSchedule",
        ("theorems.output:OutputPerturbationTheorem",),
        "OutputPerturbation",
        recipes=("output-perturbation",),
        options=("output-perturbation",),
    ),
)
