"""Objective perturbation: minimise a randomly tilted objective once, and release its minimiser.

Output perturbation: the minimiser of the problem plus noise.
"""

from __future__ import annotations

import numpy as np

from dplangevin.families._minimise import Objective, minimise
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.perturbation._noise import perturbation
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)


class ObjectivePerturbation(FitMechanism[ObjectivePerturbationSchedule]):
    """argmin sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus the release noise.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 2; Kifer, Smith and Thakurta (2012).
    """

    family = ObjectivePerturbationSchedule

    def draw(self, run: Fit[ObjectivePerturbationSchedule]) -> Draw:
        """The perturbed minimiser."""
        schedule, data, rng = run.schedule, run.data, run.rng
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

    def draw(self, run: Fit[OutputPerturbationSchedule]) -> Draw:
        """The noisy minimiser."""
        schedule, data, rng = run.schedule, run.data, run.rng
        problem = data.problem
        noise = perturbation(schedule.noise, problem.dimension, schedule.noise_scale, rng)
        objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=np.zeros(problem.dimension))
        found = minimise(objective, schedule.tolerance, schedule.iterations)
        return Draw(value=problem.constraint.project(found + noise))
