"""Whitened descent: the second moment of the rows bought once, then few noisy steps in its coordinates."""

from __future__ import annotations

from dplangevin.privacy.registry import Member, RecipeEntry

MEMBERS: tuple[Member, ...] = (
    Member(
        "WhitenedSchedule",
        ("WhitenedComposition",),
        "WhitenedDescent",
        recipes=(RecipeEntry("whitened-gd", rank=1, suits="second_moments_pay"),),
    ),
)
