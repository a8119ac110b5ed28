"""What a schema would state, learned under the promise: ranges from noisy cells, lists by private selection."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (Member("LearnedSchemaSchedule", ("LearnedSchemaTheorem",), "LearnedCounts"),)
