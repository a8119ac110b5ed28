"""Release a region of good models once: a centre, the curvature of a majorant, and one number, the slack."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry("SlackSpec", ("SlackTheorem",), "NoisySlack"),
)
