"""Learn a schema privately: column ranges from noisy histograms, category lists by thresholding noisy counts."""

from __future__ import annotations

from dplangevin.accounting.registry import MechanismEntry

MECHANISM_ENTRIES: tuple[MechanismEntry, ...] = (
    MechanismEntry("LearnedSchemaSpec", ("LearnedSchemaTheorem",), "LearnedSchemaMechanism"),
)
