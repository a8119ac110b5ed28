"""What linear losses leak by the last position of underdamped Langevin, in closed form."""

from __future__ import annotations

import math

from dplangevin.families.underdamped.schedule import UnderdampedSchedule
from dplangevin.privacy.conversions import gdp_epsilon
from dplangevin.problem.constants import Constants


def known_leak(constants: Constants, schedule: UnderdampedSchedule, delta: float) -> float:
    """The gradient does not depend on x, so steps of any length end in one law: with r = g T - 1 + e^(-g T) the last
    position moves by (u beta Delta / g^2) r and has the variance (2 u / g^2) r."""
    gamma, mass = schedule.friction, schedule.inverse_mass
    time = gamma * schedule.step_size * schedule.n_steps
    # the series where the difference would cancel
    spread = time + math.expm1(-time) if time > 1e-3 else time * time / 2 * (1 - time / 3)
    strength = schedule.inverse_temperature * constants.gradient_sensitivity / constants.n
    return gdp_epsilon(strength * math.sqrt(mass * spread / 2) / gamma * (1 - 1e-9), delta)
