"""Draws by their options, for `account` and `calibrate`."""

from __future__ import annotations

import math

from dplangevin.families._stated import stated_constants
from dplangevin.families.draws.schedule import ExponentialSchedule, GibbsSchedule
from dplangevin.privacy.schedule import Schedule
from dplangevin.problem.constants import Constants


def exponential(
    *,
    n: int,
    lipschitz: float,
    diameter: float,
    inverse_temperature: float,
    smoothness: float = math.inf,
    strong_convexity: float = 0.0,
    dimension: int | None = None,
    tier: str = "exact",
    step_size: float = 0.0,
    steps: int = 0,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """One draw of exp(-inverse_temperature F) on a bounded set."""
    constants = stated_constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    return constants, ExponentialSchedule(
        inverse_temperature=inverse_temperature,
        tier=tier,  # type: ignore[arg-type]
        step_size=step_size,
        n_steps=steps,
    )


def gibbs(
    *,
    n: int,
    lipschitz: float,
    strong_convexity: float,
    inverse_temperature: float,
    smoothness: float = math.inf,
    diameter: float = math.inf,
    dimension: int | None = None,
    tier: str = "exact",
    step_size: float = 0.0,
    steps: int = 0,
    adjacency: str = "replace-one",
) -> tuple[Constants, Schedule]:
    """One draw of exp(-inverse_temperature F) for a strongly convex F."""
    constants = stated_constants(n, lipschitz, adjacency, smoothness, strong_convexity, diameter, dimension)
    return constants, GibbsSchedule(
        inverse_temperature=inverse_temperature,
        tier=tier,  # type: ignore[arg-type]
        step_size=step_size,
        n_steps=steps,
    )
