"""Repeat and select: a random number of private attempts, of which the best one leaves."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:RepeatedSelectionSchedule",
        theorems=("theorem:RepeatedSelectionTheorem",),
        known_leak="self_check:known_leak",
        mechanism="mechanism:RepeatedSelection",
    ),
)
