"""The slack with its noise. The exact number is handed over as a function that reads the records once it is called."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.mechanism import AnswerMechanism
from dplangevin.families.rashomon_region.schedule import SlackSchedule


class NoisySlack(AnswerMechanism[SlackSchedule]):
    """The largest total (or the vector) plus Gaussian noise of the schedule's scale."""

    def draw(
        self, schedule: SlackSchedule, exact: Sequence[Floats], rng: np.random.Generator
    ) -> tuple[Floats, ...]:
        return (exact[0] + schedule.scale * rng.standard_normal(schedule.answers),)
