"""Objective perturbation: minimise a randomly tilted objective once, and release its minimiser."""

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
from dplangevin.schedules import ObjectivePerturbationSchedule


class ObjectivePerturbation:
    """argmin sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus the release noise.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 2; Kifer, Smith and Thakurta (2012).
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
        """Run the plan on the data and release the perturbed minimiser."""
        return release_once(
            plan, data, ObjectivePerturbationSchedule, _answer, random_state, ledger, RunState.at(state, plan)
        )


def _answer(
    schedule: ObjectivePerturbationSchedule, data: Dataset, rng: np.random.Generator
) -> NDArray[np.float64]:
    problem = data.problem
    tilt = perturbation(schedule.noise, problem.dimension, schedule.noise_scale, rng)
    objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=tilt)
    blur = perturbation("gamma", problem.dimension, schedule.release_noise, rng)
    return minimise(objective, schedule.tolerance, schedule.iterations, schedule.reach) + blur
