"""Objective and output perturbation: one exact minimisation, noise before or after."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:ObjectivePerturbationSchedule",
        theorems=(
            "theorems.objective:ObjectivePerturbationTheorem",
            "theorems.objective:GaussianObjectivePerturbation",
        ),
        mechanism="mechanism:ObjectivePerturbation",
        recipes={"objective-perturbation": "recipe:objective_perturbation"},
        options={"objective-perturbation": "options:objective_perturbation"},
    ),
    Member(
        schedule="schedule:OutputPerturbationSchedule",
        theorems=("theorems.output:OutputPerturbationTheorem",),
        mechanism="mechanism:OutputPerturbation",
        recipes={"output-perturbation": "recipe:output_perturbation"},
        options={"output-perturbation": "options:output_perturbation"},
    ),
)
