"""Underdamped Langevin dynamics as a mechanism."""

from __future__ import annotations

import math

import numpy as np

from dplangevin._progress import iterate_with_progress
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput
from dplangevin.mechanisms.underdamped.spec import UnderdampedSpec
from dplangevin.problem import Problem, WholeSpace
from dplangevin.sampling.langevin import UnderdampedStep


class UnderdampedLangevin(FitMechanism[UnderdampedSpec]):
    """Underdamped Langevin dynamics from x = 0 and a velocity N(0, u I); the last position is released.

    Privacy
    -------
    The guarantee is mu-GDP and covers every position and velocity of the path.

    References
    ----------
    Ganesh (2022), section 3.4 and Theorem 65.
    """

    supported_record_losses = "all"

    def check_problem(self, spec: UnderdampedSpec, problem: Problem) -> None:
        """Refuse constraints, and parameters for which the noise of a step underflows."""
        UnderdampedStep.from_parameters(spec.friction, spec.inverse_mass, spec.step_size)
        if not isinstance(problem.constraint, WholeSpace):
            raise InvalidParameter(
                "underdamped Langevin runs on the whole space: projection is not defined for the velocity. Leave the "
                "constraint out, or use Langevin diffusion."
            )

    def execute(self, inputs: MechanismInput[UnderdampedSpec]) -> MechanismOutput:
        """Run exact Gaussian steps with the gradient frozen during each step."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        problem, beta = data.problem, spec.inverse_temperature
        step = UnderdampedStep.from_parameters(spec.friction, spec.inverse_mass, spec.step_size)
        x = np.zeros((problem.dimension, 1))
        v = math.sqrt(spec.inverse_mass) * rng.standard_normal(x.shape)
        for _ in iterate_with_progress(range(spec.n_steps), "underdamped Langevin"):
            gradient = data.gradient_sum(problem.loss, x) / problem.n + problem.ridge * x
            x, v = step.sample_step(x, v, beta * gradient, rng)
        return MechanismOutput(value=x[:, 0], n_steps=spec.n_steps)
