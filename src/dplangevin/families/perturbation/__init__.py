"""Objective and output perturbation: one exact minimisation, noise before or after."""

from __future__ import annotations

from dplangevin.privacy.registry import Member, RecipeEntry

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
    ),
    Member(
        "OutputPerturbationSchedule",
        ("theorems.output:OutputPerturbationTheorem",),
        "OutputPerturbation",
        recipes=(RecipeEntry("output-perturbation"),),
        options=("output-perturbation",),
    ),
)
