"""Objective perturbation: minimise a randomly tilted objective once, and release its minimiser.

Output perturbation: the minimiser of the problem plus noise.
"""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.families._minimise import Objective, minimise
from dplangevin.families.mechanism import Draw, Fit, FitMechanism
from dplangevin.families.perturbation._noise import perturbation
from dplangevin.families.perturbation.schedule import (
    ObjectivePerturbationSchedule,
    OutputPerturbationSchedule,
)
from dplangevin.privacy.theorem import public_grid
from dplangevin.problem import Problem, WholeSpace
from dplangevin.samplers.rounded import gaussian_scale, rounded_sums


class ObjectivePerturbation(FitMechanism[ObjectivePerturbationSchedule]):
    """argmin sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus the release noise.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 2; Kifer, Smith and Thakurta (2012).
    """

    def draw(self, run: Fit[ObjectivePerturbationSchedule]) -> Draw:
        """The perturbed minimiser."""
        schedule, data, rng = run.schedule, run.data, run.rng
        problem = data.problem
        tilt = perturbation(schedule.noise, problem.dimension, schedule.density_scale, rng)
        objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=tilt)
        blur = perturbation("gamma", problem.dimension, schedule.release_density_scale, rng)
        found = minimise(objective, schedule.tolerance, schedule.iterations, schedule.reach)
        return Draw(value=problem.constraint.project(found + blur))


class OutputPerturbation(FitMechanism[OutputPerturbationSchedule]):
    """project(argmin of the problem over its set + noise).

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 1.
    """

    def check(self, schedule: OutputPerturbationSchedule, problem: Problem) -> None:
        """The rounding of a projection is not bounded."""
        if schedule.secure and not isinstance(problem.constraint, WholeSpace):
            raise AssumptionFailed(
                "secure output perturbation is for unconstrained problems; leave the constraint out."
            )

    def draw(self, run: Fit[OutputPerturbationSchedule]) -> Draw:
        """The noisy minimiser."""
        schedule, data, rng = run.schedule, run.data, run.rng
        problem = data.problem
        objective = Objective(data=data, ridge=problem.n * problem.ridge, tilt=np.zeros(problem.dimension))
        if schedule.secure:
            found = minimise(objective, schedule.tolerance, schedule.iterations)
            return Draw(value=problem.constraint.project(_secure(found, schedule.density_scale)))
        noise = perturbation(schedule.noise, problem.dimension, schedule.density_scale, rng)
        found = minimise(objective, schedule.tolerance, schedule.iterations)
        return Draw(value=problem.constraint.project(found + noise))


def _secure(found: Floats, deviation: float) -> Floats:
    """The minimiser in whole steps of the public grid, with noise that is exact there."""
    grid = public_grid(deviation)
    whole = np.rint(found / grid)
    if not np.abs(whole).max() <= 2.0**52:
        raise InvalidParameter("the minimiser is too long for the grid of secure noise; raise the ridge.")
    return rounded_sums(whole.astype(np.int64), grid, gaussian_scale(deviation), 2.0)
