"""Noisy second moments: least squares from released sufficient statistics."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry, PlannerEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry.from_stem(
        "SufficientStatistics", planners=(PlannerEntry("sufficient-statistics"),), planning="mechanism"
    ),
)
