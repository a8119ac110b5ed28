"""Langevin steps: noisy gradient steps written in temperatures."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule, ReleaseMode

Average = Literal["uniform", "geometric"]
AVERAGES: tuple[Average, ...] = ("uniform", "geometric")


def LangevinSchedule(
    *,
    inverse_temperature: ArrayLike,
    step_size: ArrayLike,
    n_steps: int | float,
    release: ReleaseMode = "last-iterate",
    weights: Average = "uniform",
    checkpoints: tuple[int, ...] = (),
) -> NoisyGradientSchedule:
    """theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)), full batch, from theta = 0 projected.

    This is the noisy gradient step with learning rate a_t = eta_t beta_t and noise sqrt(2 / eta_t) / beta_t on the
    mean gradient, and that schedule is returned: `inverse_temperature` and `time_step` of it read beta_t and eta_t.

    Parameters
    ----------
    inverse_temperature : beta_t, a number or one per step (see `power_temperatures`).
    step_size : eta_t, a number or one per step.
    n_steps, release, checkpoints : as in `NoisyGradientSchedule`.
    weights : of the average of the iterates 0 .. n_steps - 1: "uniform", or "geometric", proportional to
        a_t / ((1 - a_0 ridge) ... (1 - a_t ridge)), for strongly convex objectives.

    Examples
    --------
    >>> schedule = LangevinSchedule(inverse_temperature=100.0, step_size=0.01, n_steps=50)
    >>> schedule.step_size, round(schedule.noise_std, 6), round(schedule.inverse_temperature, 6)
    (1.0, 0.141421, 100.0)
    """
    beta = _check.per_step("inverse_temperature", inverse_temperature)
    eta = _check.per_step("step_size", step_size)
    for name, value in (("inverse_temperature", beta), ("step_size", eta)):
        if isinstance(value, tuple) and len(value) != n_steps:
            raise InvalidParameter(f"{name} has {len(value)} entries, but n_steps is {n_steps}.")
    average = _check.choice("weights", weights, AVERAGES)
    rate = np.multiply(eta, beta)
    noise = np.sqrt(np.divide(2.0, eta)) / beta
    return NoisyGradientSchedule(
        step_size=rate.tolist(),
        noise_std=noise.tolist(),
        n_steps=n_steps,
        release=release,
        checkpoints=checkpoints,
        weights="uniform" if release != "average" else "geometric" if average == "geometric" else "leading",
    )


def power_temperatures(peak: float, exponent: float, n_steps: int) -> tuple[float, ...]:
    """beta_t = peak ((t + 1) / K)^exponent, t < K: the schedule b (t/T)^a of the diffusion, for exponent > -1/2."""
    peak, steps = _check.positive("peak", peak), _check.count("n_steps", n_steps)
    if not exponent > -0.5:
        raise InvalidParameter(
            f"exponent must exceed -1/2 (the privacy integral diverges), got {exponent!r}."
        )
    shares: NDArray[np.float64] = (np.arange(1, steps + 1) / steps) ** exponent
    return tuple((peak * shares).tolist())
