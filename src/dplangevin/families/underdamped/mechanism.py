"""Underdamped Langevin as a mechanism."""

from __future__ import annotations

import math

import numpy as np

from dplangevin._progress import progress
from dplangevin.errors import InvalidParameter
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.underdamped.schedule import UnderdampedSchedule
from dplangevin.problem import Problem, WholeSpace
from dplangevin.samplers.underdamped_chain import UnderdampedStep


class UnderdampedLangevin(FitMechanism[UnderdampedSchedule]):
    """The chain from x = 0 and a velocity N(0, u I); the last position is released.

    References
    ----------
    Ganesh (2022), section 3.4 and Theorem 65.
    """

    whole_records = "all"

    def check(self, schedule: UnderdampedSchedule, problem: Problem) -> None:
        """Positions are not projected, and the noise of a step is a double of the right size."""
        UnderdampedStep.exact(schedule.friction, schedule.inverse_mass, schedule.step_size)
        if not isinstance(problem.constraint, WholeSpace):
            raise InvalidParameter(
                "underdamped Langevin runs on the whole space: a projection would not know what to do with the "
                "velocity. Leave the constraint out, or use Langevin diffusion."
            )

    def draw(self, run: Fit[UnderdampedSchedule]) -> Draw:
        """Exact Gaussian steps with frozen gradients."""
        schedule, data, rng = run.schedule, run.data, run.rng
        problem, beta = data.problem, schedule.inverse_temperature
        step = UnderdampedStep.exact(schedule.friction, schedule.inverse_mass, schedule.step_size)
        x = np.zeros((problem.dimension, 1))
        v = math.sqrt(schedule.inverse_mass) * rng.standard_normal(x.shape)
        for _ in progress(range(schedule.n_steps), "underdamped Langevin"):
            gradient = data.gradient_sum(problem.loss, x) / problem.n + problem.ridge * x
            x, v = step.move(x, v, beta * gradient, rng)
        return Draw(value=x[:, 0], n_steps=schedule.n_steps)
