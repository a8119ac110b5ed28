"""The base of theorems about noisy gradient runs."""

from __future__ import annotations

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.theorem import Theorem


class NoisyGradientTheorem(Theorem[NoisyGradientSchedule]):
    """One published result about noisy gradient runs."""

    def only_for(self, sampling: str, schedule: NoisyGradientSchedule) -> None:
        """Refuse other ways to draw batches."""
        if schedule.sampling != sampling:
            meant = "full batch" if sampling == "full" else sampling
            raise self.refuse(
                f"sampling={schedule.sampling!r} is not {meant}", "Use the bound for that sampling."
            )
