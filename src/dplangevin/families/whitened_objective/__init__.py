"""Whitened objective perturbation: the second moment of the rows bought purely, then one tilted minimisation."""

from __future__ import annotations

from dplangevin.privacy.registry import Member, RecipeEntry

MEMBERS: tuple[Member, ...] = (
    Member.named(
        "WhitenedObjective",
        recipes=(RecipeEntry("whitened-objective", rank=2, suits="second_moment_pays"),),
    ),
)
