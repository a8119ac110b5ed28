"""Projected noisy (stochastic) gradient descent: the private rail meets the plan here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dplangevin._check import count
from dplangevin._rng import generator
from dplangevin.data.dataset import Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.release import Release
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.schedules import NoisyGradientSchedule

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


class NoisyGradientDescent:
    """theta <- project(theta - eta_t (G_t + Z_t)), exactly as the plan's schedule says.

    References
    ----------
    Altschuler and Talwar (2022), Algorithm 1; Chourasia, Ye and Shokri (2021), Algorithm 1.
    """

    def run(
        self,
        plan: Plan,
        data: Dataset,
        random_state: object = None,
        *,
        n_steps: int | None = None,
        ledger: Spender | None = None,
    ) -> Release:
        """Run the plan on the data and release what it covers.

        n_steps is needed only for a plan that covers every number of steps; it is a public choice.
        """
        problem, schedule = plan.problem, plan.schedule
        if not isinstance(schedule, NoisyGradientSchedule):
            raise InvalidParameter(f"this plan is for {schedule.mechanism}, not for noisy gradient descent.")
        steps = self._steps(plan, schedule, n_steps)
        if problem is None:
            raise InvalidParameter("this plan has constants but no problem, so it can be priced but not run.")
        if data.problem != problem:
            raise InvalidParameter(
                "the data set was prepared for another problem than the plan's; build it from plan.problem."
            )
        token = ledger.reserve(plan) if ledger is not None else None
        rng, seeded = generator(random_state)
        release = self._descend(plan, schedule, data, steps, seeded, rng)
        if ledger is not None and token is not None:
            ledger.commit(token, release.digest())
        return release

    @staticmethod
    def _steps(plan: Plan, schedule: NoisyGradientSchedule, n_steps: int | None) -> int:
        planned = schedule.n_steps
        if math.isfinite(planned):
            if n_steps is not None and n_steps != planned:
                raise InvalidParameter(
                    f"n_steps = {n_steps} differs from the plan's {planned}; leave it out."
                )
            return int(planned)
        if n_steps is None:
            raise InvalidParameter("the plan covers every number of steps; say how many to run with n_steps.")
        steps = count("n_steps", n_steps)
        epoch = math.ceil(plan.constants.n / schedule.divisor(plan.constants.n))
        if schedule.sampling == "shuffle" and steps % epoch:
            raise InvalidParameter(
                f"n_steps = {steps} stops inside an epoch of {epoch} steps, which this guarantee does not cover; "
                f"use a multiple of {epoch}."
            )
        return steps

    def _descend(
        self,
        plan: Plan,
        schedule: NoisyGradientSchedule,
        data: Dataset,
        steps: int,
        seeded: bool,
        rng: np.random.Generator,
    ) -> Release:
        problem = plan.problem
        assert problem is not None
        project, divisor = problem.constraint.project, schedule.divisor(problem.n)
        etas = np.broadcast_to(np.asarray(schedule.step_size, float), (steps,))
        noises = np.broadcast_to(np.asarray(schedule.noise_scale, float), (steps,))
        keep = _kept(schedule, steps)
        batches = _batches(schedule, data.n_samples, divisor, problem.n, rng)
        theta = (
            project(schedule.start_scale * rng.standard_normal(problem.dimension))
            if schedule.start_scale
            else project(np.zeros(problem.dimension))
        )
        previous, total = theta, np.zeros(problem.dimension)
        iterates: dict[int, Floats] = {}
        for t in range(steps):
            point = theta + (t / (t + 3)) * (theta - previous) if schedule.momentum else theta
            gradient = data.gradient_sum(problem.loss, point[:, None], next(batches))[:, 0] / divisor
            noisy = gradient + problem.ridge * point + noises[t] * rng.standard_normal(problem.dimension)
            previous, theta = theta, project(point - etas[t] * noisy)
            if t >= schedule.average_from:
                total += theta
            if t + 1 in keep:
                iterates[t + 1] = theta
        value = total / (steps - schedule.average_from) if schedule.release == "average" else theta
        if schedule.release == "checkpoints":
            value = iterates[schedule.checkpoints[-1]]
        return Release(value=value, plan=plan, seeded=seeded, n_steps=steps, iterates=iterates)


def _kept(schedule: NoisyGradientSchedule, steps: int) -> frozenset[int]:
    """The steps whose iterates the guarantee covers."""
    if schedule.release == "trajectory":
        return frozenset(range(1, steps + 1))
    if schedule.release == "checkpoints":
        return frozenset(schedule.checkpoints)
    return frozenset({steps}) if schedule.release == "last-iterate" else frozenset()


def _batches(
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
            yield np.flatnonzero(rng.random(n_rows) < size / n)
    order = rng.permutation(n_rows) if schedule.order == "secret" else np.arange(n_rows)
    while True:
        if schedule.sampling == "shuffle":
            order = rng.permutation(n_rows)
        for first in range(0, n_rows, size):
            yield order[first : first + size]
