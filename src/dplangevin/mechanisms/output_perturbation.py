"""Output perturbation: the minimiser of the problem plus noise."""

from __future__ import annotations

import numpy as np

from dplangevin.data.dataset import Dataset
from dplangevin.mechanisms._minimise import Objective, minimise
from dplangevin.mechanisms._perturbed import perturbation
from dplangevin.mechanisms.mechanism import Draw, FitMechanism
from dplangevin.mechanisms.run_state import RunState
from dplangevin.schedules import OutputPerturbationSchedule


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
