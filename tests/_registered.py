"""The registry of mechanisms, as tests over all of them read it."""

from __future__ import annotations

from dplangevin.accounting.registry import mechanism_for, spec_types, theorems_for
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec

THEOREMS_BY_SPEC = {kind: theorems_for(kind) for kind in spec_types()}
THEOREMS = theorems_for(NoisyGradientSpec)
MECHANISMS = {kind: mechanism for kind in spec_types() if (mechanism := mechanism_for(kind)) is not None}
