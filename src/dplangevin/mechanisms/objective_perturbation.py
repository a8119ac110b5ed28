"""Objective perturbation: minimise a randomly tilted objective once, and release its minimiser."""

from __future__ import annotations

from dplangevin.mechanisms._minimise import Objective, minimise
from dplangevin.mechanisms._perturbed import perturbation
from dplangevin.mechanisms.mechanism import Draw, Fit, FitMechanism
from dplangevin.schedules import ObjectivePerturbationSchedule


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
