"""Canonical units of a noisy gradient run, and the hypotheses that several theorems share."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplangevin.errors import InvalidParameter
from dplangevin.privacy.theorem import Theorem
from dplangevin.problem.constants import Constants
from dplangevin.schedules import NoisyGradientSchedule


@dataclass(frozen=True, kw_only=True)
class Units:
    """One constant step: shift s by the differing record, noise v on the iterate, contraction c, diameter D."""

    shift: float
    noise: float
    contraction: float
    diameter: float


def check_meaningful(constants: Constants, schedule: NoisyGradientSchedule) -> None:
    """Refuse combinations for which no theorem exists, whatever the numbers."""
    sampling, adjacency, size = schedule.sampling, constants.adjacency, schedule.batch_size
    if size is not None and size > constants.n:
        raise InvalidParameter(f"batch_size = {size} is larger than n = {constants.n}; lower batch_size.")
    if sampling in ("cyclic", "shuffle", "without-replacement") and adjacency == "add-remove":
        raise InvalidParameter(
            f"sampling={sampling!r} is not defined under adjacency='add-remove' (removing a record moves the others "
            "between batches); use adjacency='replace-one', or sampling='poisson' or 'full'."
        )


def contraction(constants: Constants, step_size: float) -> float:
    """Contraction constant, rounded up by one unit in the last place where it is below 1."""
    value = constants.contraction(step_size)
    return float(np.nextafter(value, 1.0)) if value < 1 else value


def units(constants: Constants, schedule: NoisyGradientSchedule) -> Units:
    """Units of a constant schedule, with an inexact projection charged at every step."""
    assert schedule.constant
    step, noise = float(schedule.step_size), float(schedule.noise_scale)  # type: ignore[arg-type]
    lipschitz = contraction(constants, step)
    error = constants.projection_error
    shift = step * constants.gradient_sensitivity / schedule.divisor(constants.n)
    return Units(
        shift=shift + 2 * max(1.0, lipschitz) * error if error else shift,
        noise=step * noise,
        contraction=lipschitz,
        diameter=constants.diameter + 2 * error,
    )


def require_hidden_state(theorem: Theorem, constants: Constants, schedule: NoisyGradientSchedule) -> None:
    """The hypotheses of every bound that looks at fewer iterates than all."""
    if schedule.momentum:
        raise theorem.refuse(
            "momentum makes the step depend on two iterates", "Use plain steps, or composition."
        )
    if schedule.release in ("average", "trajectory"):
        raise theorem.refuse(
            f"release={schedule.release!r} is a function of the whole path",
            "Release the last iterate or checkpoints, or use composition.",
        )
    if math.isinf(constants.smoothness):
        raise theorem.refuse(
            "no smoothness constant is known (the loss is not smooth, or its clipped gradient is not a gradient)",
            "State smoothness, smooth the loss, or use composition.",
        )
