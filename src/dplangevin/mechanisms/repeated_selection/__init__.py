"""Repeat and select: a random number of private attempts, of which the best one is released."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry.from_stem("RepeatedSelection", lower_bound="spec"),
)
