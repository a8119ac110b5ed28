"""Whitened descent: the second moment of the rows bought once, then few noisy steps in its coordinates."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:WhitenedSchedule",
        theorems=("theorem:WhitenedComposition",),
        mechanism="mechanism:WhitenedDescent",
        recipes={"whitened-gd": "recipe:whitened_gd"},
    ),
)
