"""Stochastic gradient Langevin dynamics: theta <- project(theta - eta_t beta_t grad F(theta) + N(0, 2 eta_t I)).

A discretised, projected Langevin diffusion whose own noise is the privacy (see
privacy.theorems.langevin_process): it is not an exact sampler of exp(-beta F) and nothing here says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.potential import Potential


@dataclass(frozen=True, kw_only=True)
class LangevinRun:
    """Last iterate [p, k]; weighted average of the iterates 0 .. K-1 and kept iterates when asked for.

    `iterates` maps a step number (0 is the start) to theta[p, k]. What may be released is decided by the
    guarantee. n_steps is the number of steps made.
    """

    last: Floats
    average: Floats | None
    iterates: dict[int, Floats]
    n_steps: int


def sgld(
    potential: Potential,
    start: ArrayLike,
    step_size: ArrayLike,
    inverse_temperature: ArrayLike,
    n_steps: int,
    rng: np.random.Generator,
    project: Callable[[Floats], Floats] | None = None,
    weights: ArrayLike | None = None,
    keep: tuple[int, ...] = (),
    stop: Callable[[int, Floats], bool] | None = None,
    resume: LangevinRun | None = None,
    after: Callable[[LangevinRun], None] | None = None,
) -> LangevinRun:
    """Run the k chains in the columns of `start` side by side, each with its own noise.

    Parameters
    ----------
    potential : F itself (inverse temperature not included); only its gradient is used.
    step_size, inverse_temperature : eta_t and beta_t, a number or one per step.
    project : onto the constraint set after every step; None leaves the chain free.
    weights : averaging weights of the iterates 0 .. n_steps - 1; None keeps no average.
    keep : step numbers whose iterates are kept.
    stop : called with the step number and theta after every step; True ends the run.
    resume, after : the run so far instead of `start`, and what is told of the run after every step but a stopped one.
    """
    n_steps = _check.count("n_steps", n_steps)
    steps = _per_step("step_size", step_size, n_steps)
    temperatures = _per_step("inverse_temperature", inverse_temperature, n_steps)
    theta = np.array(start, float)
    if theta.ndim != 2:
        raise InvalidParameter(f"start must have shape [p, k], got {theta.shape}.")
    share = None if weights is None else running_shares(weights, n_steps)
    average = None if share is None else np.zeros_like(theta)
    kept, done = {0: theta.copy()} if 0 in keep else {}, 0
    if resume is not None:
        theta, average, kept, done = resume.last, resume.average, resume.iterates, resume.n_steps
    for t in _progress.progress(range(done, n_steps), "Langevin steps"):
        if average is not None and share is not None:
            average += share[t] * (theta - average)
        noise = np.sqrt(2 * steps[t]) * rng.standard_normal(theta.shape)
        theta = theta - steps[t] * temperatures[t] * potential.gradient(theta) + noise
        if project is not None:
            theta = project(theta)
        done = t + 1
        if done in keep:
            kept[done] = theta.copy()
        if stop is not None and stop(done, theta):
            break
        if after is not None:
            after(LangevinRun(last=theta, average=average, iterates=kept, n_steps=done))
    return LangevinRun(last=theta, average=average, iterates=kept, n_steps=done)


def geometric_weights(learning_rate: ArrayLike, strong_convexity: float, n_steps: int) -> Floats:
    """Weights a_t / ((1 - a_0 m) ... (1 - a_t m)), t < n_steps, scaled to end at 1: (1 - a m)^-(t + 1) for one a."""
    rates = _per_step("learning_rate", learning_rate, n_steps)
    shrink = 1 - rates * _check.nonnegative("strong_convexity", strong_convexity)
    if not shrink.min() > 0:
        raise InvalidParameter("learning_rate * strong_convexity must be below 1; take smaller steps.")
    later = np.append(np.cumprod(shrink[:0:-1])[::-1], 1.0)
    return np.asarray(rates / rates[-1] * later)


def _per_step(name: str, value: ArrayLike, n_steps: int) -> Floats:
    numbers = np.asarray(value, float)
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != n_steps):
        raise InvalidParameter(f"{name} must be one number or {n_steps}, got shape {numbers.shape}.")
    if not np.all(numbers > 0) or not np.all(np.isfinite(numbers)):
        raise InvalidParameter(f"{name} must be positive and finite, got {value!r}.")
    return np.broadcast_to(numbers, (n_steps,))


def running_shares(weights: ArrayLike, n_steps: int) -> Floats:
    """w_t over the sum of the weights up to t, for a running average."""
    numbers = np.asarray(weights, float)
    if numbers.shape != (n_steps,) or np.any(numbers < 0) or not numbers.sum() > 0:
        raise InvalidParameter(f"weights must be {n_steps} numbers that are not negative and not all zero.")
    total = np.cumsum(numbers)
    return np.asarray(np.divide(numbers, total, out=np.zeros_like(numbers), where=total > 0))
