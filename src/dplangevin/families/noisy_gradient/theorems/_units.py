"""Canonical units of a noisy gradient run, and the hypotheses that several theorems share."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.problem.constants import Constants

ROUNDING = 2.0**-52


@dataclass(frozen=True, kw_only=True)
class Units:
    """One constant step: shift s by the differing record, noise v on the iterate, contraction c, diameter D."""

    shift: float
    noise: float
    contraction: float
    diameter: float


def contraction(constants: Constants, step_size: float) -> float:
    """Contraction constant, rounded up where it is below 1: 1 - eta m is known to 2^-52 and no better."""
    value = constants.contraction(step_size)
    return min(1.0, value + ROUNDING) if value < 1 else value


def released_segments(schedule: NoisyGradientSchedule) -> tuple[int | float, list[tuple[int, int]]]:
    """Steps before the first release, which inherit the start, and (length, how many) of those between releases.

    Given a released iterate both runs continue from it, so every later segment has a common start.
    """
    if schedule.release != "checkpoints":
        return schedule.n_steps, []
    first, *_ = schedule.checkpoints
    gaps = Counter(b - a for a, b in pairwise(schedule.checkpoints))
    return first, sorted(gaps.items())


def units(constants: Constants, schedule: NoisyGradientSchedule) -> Units:
    """Units of a constant schedule, with an inexact projection charged at every step."""
    assert schedule.constant
    step, noise = float(schedule.step_size), float(schedule.noise_std)  # type: ignore[arg-type]
    lipschitz = contraction(constants, step)
    error = constants.projection_error
    shift = step * constants.gradient_sensitivity / schedule.divisor(constants.n)
    return Units(
        shift=shift + 2 * max(1.0, lipschitz) * error if error else shift,
        noise=step * noise,
        contraction=lipschitz,
        diameter=constants.diameter + 2 * error,
    )


def require_hidden_state(
    theorem: NoisyGradientTheorem, constants: Constants, schedule: NoisyGradientSchedule
) -> None:
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
