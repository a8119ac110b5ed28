"""The table of families, as tests over all of them read it."""

from __future__ import annotations

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.registry import mechanism_for, schedule_types, theorems_for

FAMILIES = {kind: theorems_for(kind) for kind in schedule_types()}
THEOREMS = theorems_for(NoisyGradientSchedule)
MECHANISMS = {kind: mechanism for kind in schedule_types() if (mechanism := mechanism_for(kind)) is not None}
