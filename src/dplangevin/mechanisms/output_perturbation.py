"""Output perturbation: the minimiser of the problem plus noise."""

from __future__ import annotations

import numpy as np

from dplangevin.mechanisms._minimise import Objective, minimise
from dplangevin.mechanisms._perturbed import perturbation
from dplangevin.mechanisms.mechanism import Draw, Fit, FitMechanism
from dplangevin.schedules import OutputPerturbationSchedule


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
