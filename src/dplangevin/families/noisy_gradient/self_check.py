"""The accountant against itself: no claim may be below what a run within the same constants is known to leak.

Closed forms are compared at every call: the Gaussian path of linear losses and a ridge without a projection, and the
first step from an unknown start. With DPLANGEVIN_SELF_CHECK=full in the environment every claim is also compared
with the exact walk on an interval, which may take seconds.
"""

from __future__ import annotations

import math
import os

import numpy as np
from scipy.special import ndtr

from dplangevin.families.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.problem.constants import Constants

VARIABLE = "DPLANGEVIN_SELF_CHECK"
_MOST_STEPS = 100_000  # of a varying schedule whose closed form is evaluated at every call


def known_leak(
    constants: Constants, schedule: NoisyGradientSchedule, delta: float, *, full: bool | None = None
) -> float | None:
    """An epsilon that some run within these numbers attains; None when none is known (or none at once)."""
    found = [first_step_leak(constants, schedule, delta)]
    full = os.environ.get(VARIABLE) == "full" if full is None else full
    if full or _closed_form(constants, schedule):
        found.append(lower_bound_epsilon(constants, schedule, delta))
    return max((value for value in found if value is not None), default=None)


def _closed_form(constants: Constants, schedule: NoisyGradientSchedule) -> bool:
    short = schedule.constant or schedule.n_steps <= _MOST_STEPS
    return short and schedule.sampling in ("full", "cyclic") and math.isinf(constants.diameter)


def first_step_leak(constants: Constants, schedule: NoisyGradientSchedule, delta: float) -> float | None:
    """Two unknown starts at the ends of an interval, the same data, one step, a threshold inside the interval.

    Without a gradient of the data the ends are |1 - eta m| D apart after the step. An endless run may have one step.
    """
    if schedule.start != "unknown" or math.isinf(constants.diameter) or schedule.momentum:
        return None
    seen = schedule.checkpoints[0] if schedule.checkpoints else schedule.n_steps
    if not (seen == 1 or (math.isinf(seen) and schedule.release != "average")):
        return None
    step, noise = float(np.ravel(schedule.step_size)[0]), float(np.ravel(schedule.noise_std)[0])
    apart = abs(1 - step * constants.strong_convexity) * constants.diameter
    cuts = np.linspace(-0.5, 0.5, 203)[1:-1] * constants.diameter
    with np.errstate(over="ignore"):
        power, size = (ndtr((sign * apart / 2 - cuts) / (step * noise)) for sign in (1, -1))
    gain = power * (1 - 1e-12) - delta
    best = float(np.max(np.where(gain > 0, gain, 0.0) / (size * (1 + 1e-12) + 1e-300)))
    return math.log(best) if best > 1 else 0.0
