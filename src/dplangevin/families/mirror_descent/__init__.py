"""Mirror descent in the geometry of public data."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (Member("PublicMirrorSchedule", ("PublicMirrorDescentTheorem",)),)
