"""The region of good models, released once: a centre, a majorising curvature, and one number, the slack."""

from __future__ import annotations

from dplangevin.privacy.registry import Member

MEMBERS: tuple[Member, ...] = (Member("SlackSchedule", ("SlackTheorem",), "NoisySlack"),)
