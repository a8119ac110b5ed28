"""Objective perturbation: minimise a randomly tilted objective once, and release its minimiser.

Output perturbation: the minimiser of the problem plus noise.
"""

from __future__ import annotations

import numpy as np

from dplangevin.data.dataset import Dataset
from dplangevin.families._minimise import Objective, minimise
from dplangevin.families.mechanism import Draw, FitMechanism
from dplangevin.families.perturbation._noise import perturbation
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)
from dplangevin.families.run_state import RunState


class ObjectivePerturbation(FitMechanism[ObjectivePerturbationSchedule]):
    """argmin sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus the release noise.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 2; Kifer, Smith and Thakurta (2012).
    """

    family = ObjectivePerturbationSchedule

    def draw(
        self,
        schedule: ObjectivePerturbationSchedule,
        data: Dataset,
        saved: RunState | None,
        rng: np.random.Generator,
    ) -> Draw:
        """The perturbed minimiser."""
        problem = data.problem
        tilt = perturbation(schedule.noise, problem.dimension, schedule.noise_scale, rng)
        objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=tilt)
        blur = perturbation("gamma", problem.dimension, schedule.release_noise, rng)
        found = minimise(objective, schedule.tolerance, schedule.iterations, schedule.reach)
        return Draw(value=problem.constraint.project(found + blur))


class OutputPerturbation(FitMechanism[OutputPerturbationSchedule]):
    """project(argmin of the problem over its set + noise).

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 1.
    """

    family = OutputPerturbationSchedule

    def draw(
        self,
        schedule: OutputPerturbationSchedule,
        data: Dataset,
        saved: RunState | None,
        rng: np.random.Generator,
    ) -> Draw:
        """The noisy minimiser."""
        problem = data.problem
        noise = perturbation(schedule.noise, problem.dimension, schedule.noise_scale, rng)
        objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=np.zeros(problem.dimension))
        found = minimise(objective, schedule.tolerance, schedule.iterations)
        return Draw(value=problem.constraint.project(found + noise))
