"""Draws by their options, for `account` and `calibrate`."""

from __future__ import annotations

import math
from collections.abc import Callable

from dplangevin.families._stated import stated_constants
from dplangevin.families.draws.schedule import ExponentialSchedule, GibbsSchedule
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants


def _reader(law: type[ExponentialSchedule | GibbsSchedule]) -> Callable[..., tuple[Constants, Schedule]]:
    def read(
        *,
        n: int,
        lipschitz: float,
        inverse_temperature: float,
        smoothness: float = math.inf,
        strong_convexity: float = 0.0,
        diameter: float = math.inf,
        dimension: int | None = None,
        tier: str = "exact",
        step_size: float = 0.0,
        steps: int = 0,
        adjacency: str = "replace-one",
    ) -> tuple[Constants, Schedule]:
        constants = stated_constants(
            n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension
        )
        return constants, law(
            inverse_temperature=inverse_temperature,
            tier=tier,  # type: ignore[arg-type]
            step_size=step_size,
            n_steps=steps,
        )

    return read


exponential = _reader(
    ExponentialSchedule
)  # a bounded set, or strong convexity and delta > 0: the theorems ask
gibbs = _reader(GibbsSchedule)
