"""Noisy second moments: least squares from released sufficient statistics."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (
    Member(
        schedule="schedule:SufficientStatisticsSchedule",
        theorems=("theorem:SufficientStatisticsTheorem",),
        mechanism="mechanism:SufficientStatistics",
        recipes={"sufficient-statistics": "recipe:sufficient_statistics"},
    ),
)
