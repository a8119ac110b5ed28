"""Projected noisy (stochastic) gradient descent: the private rail meets the plan here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin._check import count
from dplangevin._progress import progress
from dplangevin.errors import InvalidParameter
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.noisy_gradient.gated import alike, gate
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.run_state import Position, RunState
from dplangevin.problem import Problem
from dplangevin.samplers.sgld import geometric_weights, running_shares

Rows = NDArray[np.intp]
Stop = Callable[[int, Floats], bool]


class NoisyGradientDescent(FitMechanism[NoisyGradientSchedule]):
    """theta <- project(theta - eta_t (G_t + Z_t)), exactly as the plan's schedule says.

    Parameters
    ----------
    n_steps : needed only for a plan that covers every number of steps; a public choice.
    stop : stop(step, theta) may look at every iterate and end the run early, for plans with release="trajectory": they
        are charged in full whenever they stop. A run that goes on from a file asks it about the steps that are left.

    References
    ----------
    Altschuler and Talwar (2022), Algorithm 1; Chourasia, Ye and Shokri (2021), Algorithm 1; Ganesh, Thakurta and
    Upadhyay (2022), Lemma C.1 and section F (Langevin diffusion, discretised).
    """

    whole_records = "all"

    def __init__(self, n_steps: int | None = None, *, stop: Stop | None = None) -> None:
        self.n_steps, self.stop = n_steps, stop

    def check(self, schedule: NoisyGradientSchedule, problem: Problem) -> None:
        """The number of steps is known, and a stopping rule sees no more than the promise covers."""
        self._steps(schedule, problem)
        if self.stop is not None and schedule.release != "trajectory":
            raise InvalidParameter(
                f"stop looks at every iterate, but the promise is for release={schedule.release!r}; plan with "
                "release='trajectory'."
            )

    def _settings(self) -> tuple[object, ...]:
        return () if self.n_steps is None else (self.n_steps,)

    def _steps(self, schedule: NoisyGradientSchedule, problem: Problem) -> int:
        planned, n_steps = schedule.n_steps, self.n_steps
        if math.isfinite(planned):
            if n_steps is not None and n_steps != planned:
                raise InvalidParameter(
                    f"n_steps = {n_steps} differs from the plan's {planned}; leave it out."
                )
            return int(planned)
        if n_steps is None:
            raise InvalidParameter(
                "the plan covers every number of steps; say how many to run: NoisyGradientDescent(n_steps=...)."
            )
        steps = count("n_steps", n_steps)
        epoch = math.ceil(problem.n / schedule.divisor(problem.n))
        if schedule.sampling == "shuffle" and steps % epoch:
            raise InvalidParameter(
                f"n_steps = {steps} stops inside an epoch of {epoch} steps, which this guarantee does not cover; "
                f"use a multiple of {epoch}."
            )
        return steps

    def draw(self, run: Fit[NoisyGradientSchedule]) -> Draw:
        """Descend; the release is the last iterate, the average or the checkpoints."""
        schedule, data, saved, rng = run.schedule, run.data, run.saved, run.rng
        problem = data.problem
        steps = self._steps(schedule, problem)
        project, divisor = problem.constraint.project, schedule.divisor(problem.n)
        etas = np.broadcast_to(np.asarray(schedule.step_size, float), (steps,))
        noises = np.broadcast_to(np.asarray(schedule.noise_std, float), (steps,))
        batches = drawn_batches(schedule, data.n_samples, divisor, problem.n, rng)
        start = (
            project(schedule.start_scale * rng.standard_normal(problem.dimension))
            if schedule.start_scale
            else project(np.zeros(problem.dimension))
        )

        def noisy(t: int, point: Floats) -> Floats:
            total: Floats = data.gradient_sum(problem.loss, point[:, None], next(batches))[:, 0] / divisor
            if problem.ridge:
                total += problem.ridge * point
            total += noises[t] * rng.standard_normal(problem.dimension)
            return total

        def draws() -> None:
            next(batches)
            rng.standard_normal(problem.dimension)

        position = None if saved is None else redrawn(saved, draws, rng)
        after = None if saved is None else partial(saved.after, rng=rng)
        shares = average_shares(schedule, problem.ridge, steps)
        value, iterates = walk(
            schedule, steps, start, etas, noisy, project, position, after, shares, self.stop
        )
        if schedule.weights == "gated":
            value = _gated(schedule, problem, value)
        made = steps if self.stop is None else max(iterates)
        return Draw(value=value, n_steps=made, iterates=iterates)


def _gated(schedule: NoisyGradientSchedule, problem: Problem, means: Floats) -> Floats:
    """The windows' means, weighted; for rows and weights of at most 1."""
    weight = problem.bounds.weight_bound
    step = float(np.asarray(schedule.step_size)) * problem.row_norm**2 * weight
    noise = float(np.asarray(schedule.noise_std)) / (problem.row_norm * weight)
    found = gate(problem.row_norm * means, step, noise, int(schedule.n_steps))
    return means[-1] if found.openness == 0 else np.asarray(found.weights @ means)


def redrawn(saved: RunState, draws: Callable[[], object], rng: np.random.Generator) -> Position | None:
    """The saved position, after what its steps have drawn was drawn again: orders of batches live in the draws."""
    fields = saved.position()
    if fields is None:
        return None
    position = Position(**fields)
    for _ in range(position.step):
        draws()
    saved.check_generator(rng)
    return position


def walk(
    schedule: NoisyGradientSchedule,
    steps: int,
    start: Floats,
    etas: Floats,
    noisy: Callable[[int, Floats], Floats],
    project: Callable[[Floats], Floats],
    position: Position | None = None,
    after: Callable[[Position], None] | None = None,
    shares: Floats | None = None,
    stop: Stop | None = None,
) -> tuple[Floats, dict[int, Floats]]:
    """The descent itself, given noisy gradients: what is released, and the iterates that the release covers.

    It begins at `position`, or else at `start`; `after` sees every position, and `stop` may end it. With `shares` the
    total is the running average of the iterates that the steps start from, otherwise the sum of those they lead to.
    With gated weights the means of the windows are released, [3, p].
    """
    keep = _kept(schedule, steps)
    share = _window_shares(schedule, steps)
    empty = np.zeros_like(start) if share is None else np.zeros((share.shape[1], *start.shape))
    at = position or Position(step=0, theta=start, previous=start, total=empty)
    for t in progress(range(at.step, steps), "noisy gradient descent"):
        if shares is not None:
            at.total += shares[t] * (at.theta - at.total)
        point = at.theta + (t / (t + 3)) * (at.theta - at.previous) if schedule.momentum else at.theta
        at.previous, at.theta = at.theta, project(point - etas[t] * noisy(t, point))
        at.step = t + 1
        if share is not None:
            at.total += share[t][:, None] * at.theta
        elif shares is None and t >= schedule.average_from:
            at.total += at.theta
        if at.step in keep:
            at.iterates[at.step] = at.theta
        if stop is not None and stop(at.step, at.theta.copy()):
            break
        if after is not None:
            after(at)
    value = at.theta
    if share is not None:
        value = at.total / share.sum(axis=0)[:, None]
    elif schedule.release == "average":
        value = at.total if shares is not None else at.total / (steps - schedule.average_from)
    elif schedule.release == "checkpoints":
        value = at.iterates[schedule.checkpoints[-1]]
    return value, at.iterates


def _window_shares(schedule: NoisyGradientSchedule, steps: int) -> Floats | None:
    """Which windows an iterate belongs to, [steps, windows]; None for one mean."""
    if schedule.weights != "gated":
        return None
    *early, last = alike(steps).windows
    seen = (*early, last._replace(first=schedule.average_from))
    return np.array([[float(w.first <= t < w.last) for w in seen] for t in range(steps)])


def average_shares(schedule: NoisyGradientSchedule, ridge: float, steps: int) -> Floats | None:
    """Each step's share in the running average of the iterates that steps start from; None for sums."""
    if schedule.weights in ("uniform", "gated"):
        return None
    if schedule.weights == "leading":
        return running_shares(np.ones(steps), steps)
    return running_shares(geometric_weights(schedule.step_size, ridge, steps), steps)


def _kept(schedule: NoisyGradientSchedule, steps: int) -> frozenset[int]:
    """The steps whose iterates the guarantee covers."""
    if schedule.release == "trajectory":
        return frozenset(range(1, steps + 1))
    if schedule.release == "checkpoints":
        return frozenset(schedule.checkpoints)
    return frozenset({steps}) if schedule.release == "last-iterate" else frozenset()


def drawn_batches(
    schedule: NoisyGradientSchedule, n_rows: int, size: int, n: int, rng: np.random.Generator
) -> Iterator[Rows | None]:
    """Batches with exactly the law the accountant assumes; None is the whole data set."""
    if schedule.sampling == "full":
        while True:
            yield None
    elif schedule.sampling == "without-replacement":
        while True:
            yield rng.choice(n_rows, size, replace=False, shuffle=False)
    elif schedule.sampling == "poisson":
        while True:
            yield poisson_rows(n_rows, size / n, rng)
    order = rng.permutation(n_rows) if schedule.order == "secret" else np.arange(n_rows)
    while True:
        if schedule.sampling == "shuffle":
            order = rng.permutation(n_rows)
        for first in range(0, n_rows, size):
            yield order[first : first + size]


def poisson_rows(n_rows: int, rate: float, rng: np.random.Generator) -> Rows:
    """Each row independently with this probability; a million draws at a time, so that memory does not grow with n."""
    parts = [
        first + np.flatnonzero(rng.random(min(1 << 20, n_rows - first)) < rate)
        for first in range(0, n_rows, 1 << 20)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.intp)
