"""Noisy second moments: least squares from released sufficient statistics."""

from __future__ import annotations

from dplangevin.privacy.registry import Member, RecipeEntry

MEMBERS: tuple[Member, ...] = (
    Member.named("SufficientStatistics", recipes=(RecipeEntry("sufficient-statistics"),)),
)
