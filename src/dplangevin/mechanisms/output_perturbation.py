"""Output perturbation: the minimiser of the problem plus noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Dataset
from dplangevin.mechanisms._minimise import Objective, minimise
from dplangevin.mechanisms._perturbed import perturbation, release_once
from dplangevin.mechanisms.release import Release
from dplangevin.mechanisms.run_state import RunState, StatePath
from dplangevin.privacy.plan import Plan
from dplangevin.privacy.spender import Spender
from dplangevin.schedules import OutputPerturbationSchedule


class OutputPerturbation:
    """project(argmin of the problem over its set + noise).

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 1.
    """

    def run(
        self,
        plan: Plan,
        data: Dataset,
        random_state: object = None,
        *,
        ledger: Spender | None = None,
        state: StatePath = None,
    ) -> Release:
        """Run the plan on the data and release the noisy minimiser."""
        return release_once(
            plan, data, OutputPerturbationSchedule, _answer, random_state, ledger, RunState.at(state, plan)
        )


def _answer(
    schedule: OutputPerturbationSchedule, data: Dataset, rng: np.random.Generator
) -> NDArray[np.float64]:
    problem = data.problem
    noise = perturbation(schedule.noise, problem.dimension, schedule.noise_scale, rng)
    objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=np.zeros(problem.dimension))
    return minimise(objective, schedule.tolerance, schedule.iterations) + noise
