"""Objective and output perturbation: one exact minimisation, noise before or after."""

from __future__ import annotations

from dplangevin.privacy.registry import Knob, Member, RecipeEntry

MEMBERS: tuple[Member, ...] = (
    Member(
        "ObjectivePerturbationSchedule",
        (
            "theorems.objective:ObjectivePerturbationTheorem",
            "theorems.objective:GaussianObjectivePerturbation",
        ),
        "ObjectivePerturbation",
        recipes=(RecipeEntry("objective-perturbation", rank=3, suits="gamma_noise_pays"),),
        options=("objective-perturbation",),
        knob=Knob("density_scale"),
    ),
    Member(
        "OutputPerturbationSchedule",
        ("theorems.output:OutputPerturbationTheorem",),
        "OutputPerturbation",
        recipes=(RecipeEntry("output-perturbation"),),
        options=("output-perturbation",),
        knob=Knob("density_scale"),
    ),
)
