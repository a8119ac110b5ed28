"""The base of theorems about noisy gradient runs."""

from __future__ import annotations

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.privacy.theorem import Theorem
from dplangevin.problem.constants import Constants


class NoisyGradientTheorem(Theorem[NoisyGradientSchedule]):
    """One published result about noisy gradient runs."""

    def only_for(self, sampling: str, schedule: NoisyGradientSchedule) -> None:
        """Refuse other ways to draw batches."""
        if schedule.sampling != sampling:
            meant = "full batch" if sampling == "full" else sampling
            raise self.refuse(
                f"sampling={schedule.sampling!r} is not {meant}", "Use the bound for that sampling."
            )

    def public_start(self, schedule: NoisyGradientSchedule, fix: str) -> None:
        """Refuse a start that may depend on the private data."""
        if schedule.start != "data-independent":
            raise self.refuse("the starting point may depend on the private data", fix)

    def exact_projection(self, constants: Constants, instead: str = "") -> None:
        """Refuse projections with errors."""
        if constants.projection_error > 0:
            raise self.refuse(
                f"the projection is inexact (projection_error = {constants.projection_error!r})",
                f"Use an exact projection{instead}.",
            )
