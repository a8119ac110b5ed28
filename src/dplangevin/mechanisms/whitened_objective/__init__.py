"""Whitened objective perturbation: a pure second-moment release, then one perturbed minimisation."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry, PlannerEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry.from_stem(
        "WhitenedObjective",
        planners=(PlannerEntry("whitened-objective", rank=2, suitability="prefers_pure_whitening"),),
    ),
)
