"""Whitened descent: a noisy second-moment release, then a few noisy gradient steps in whitened coordinates."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry, PlannerEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry(
        "WhitenedSpec",
        ("WhitenedComposition",),
        "WhitenedDescent",
        planners=(PlannerEntry("whitened-gd", rank=1, suitability="prefers_whitening"),),
    ),
)
