"""The base of theorems about noisy gradient runs."""

from __future__ import annotations

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.theorem import Theorem


class NoisyGradientTheorem(Theorem[NoisyGradientSchedule]):
    """One published result about noisy gradient runs."""
