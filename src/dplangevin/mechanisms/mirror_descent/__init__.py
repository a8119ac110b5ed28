"""Private mirror descent with a mirror map made from public data."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry("PublicMirrorSpec", ("PublicMirrorDescentTheorem",)),
)
