"""Objective perturbation (minimise a randomly tilted objective) and output perturbation (minimiser plus noise)."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.plan import public_noise_grid
from dplangevin.data.dataset import Dataset
from dplangevin.data.integer_grids import IntegerTransform, RowGrid
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.exact_gradient import public_row_grid, round_records
from dplangevin.mechanisms.exact_minimizer import (
    IdealObjective,
    check_exact_minimizer,
    minimizer_grid,
    release_minimizer,
)
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput, NoiseDraws
from dplangevin.mechanisms.newton import TiltedObjective, minimize_certified, scale_to_norm
from dplangevin.mechanisms.perturbation.spec import ObjectivePerturbationSpec, OutputPerturbationSpec
from dplangevin.problem import Problem, WholeSpace
from dplangevin.sampling.exact_noise import ByteSource, add_rounded_noise, gaussian_density_scale
from dplangevin.sampling.float_noise import sample_gamma_norm
from dplangevin.sampling.lazy_noise import LazyNoise, add_rounded_gamma_noise


def sample_perturbation(noise: str, dimension: int, scale: float, rng: np.random.Generator) -> Floats:
    """Sample Gaussian noise, or noise with density proportional to exp(-|z| / scale)."""
    if noise == "gaussian":
        return scale * rng.standard_normal(dimension)
    return sample_gamma_norm(dimension, scale, 1, rng)[:, 0]


class ObjectivePerturbation(FitMechanism[ObjectivePerturbationSpec]):
    """Objective perturbation: argmin sum_i weight_i loss_i + (n ridge / 2) |theta|^2 + <b, theta>, plus noise.

    Privacy
    -------
    The minimiser alone is released: pure epsilon with Gamma-norm noise, (epsilon, delta) with Gaussian noise. A run
    whose solver misses its tolerance releases nothing. An exact run releases the minimiser rounded to a public grid.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 2; Kifer, Smith and Thakurta (2012).
    """

    def check_problem(self, spec: ObjectivePerturbationSpec, problem: Problem) -> None:
        """Refuse a minimiser that cannot be rounded exactly, where that was stated."""
        if spec.secure:
            check_exact_minimizer(problem)

    def row_grid(self, spec: ObjectivePerturbationSpec, problem: Problem) -> RowGrid:
        return public_row_grid(problem)

    def execute(self, inputs: MechanismInput[ObjectivePerturbationSpec]) -> MechanismOutput:
        """Return the perturbed minimiser."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        problem = data.problem
        if spec.secure:
            grid = public_row_grid(problem)
            data = round_records(data, grid, in_place=inputs.owns_data)
            objective = make_objective(spec, data, grid, problem.ridge, NoiseDraws.of(inputs).source)
            return MechanismOutput(value=scale_to_norm(release_minimizer(objective), spec.coef_bound))
        tilt = sample_perturbation(spec.noise, problem.dimension, spec.density_scale, rng)
        tilted = TiltedObjective(data=data, ridge=problem.n * problem.ridge, tilt=tilt)
        release_noise = sample_perturbation("gamma", problem.dimension, spec.release_density_scale, rng)
        minimizer = minimize_certified(tilted, spec.tolerance, spec.n_iterations, spec.coef_bound)
        return MechanismOutput(value=problem.constraint.project(minimizer + release_noise))


def make_objective(
    spec: ObjectivePerturbationSpec,
    data: Dataset,
    grid: RowGrid,
    ridge: float,
    source: ByteSource,
    transform: IntegerTransform | None = None,
    center: Floats | None = None,
) -> IdealObjective:
    """Return the perturbed objective of records on the grid whose weights are limits, with fresh noise."""
    problem = data.problem
    spread = math.sqrt(problem.dimension + 1) if spec.noise == "gamma" else 1.0
    return IdealObjective(
        data=data,
        grid=grid,
        noise=LazyNoise(problem.dimension, Fraction(spec.density_scale), spec.noise, source),
        ridge=problem.n * Fraction(ridge),
        cell=minimizer_grid(problem, spread * spec.density_scale, ridge),
        transform=transform,
        center=center,
    )


class OutputPerturbation(FitMechanism[OutputPerturbationSpec]):
    """Output perturbation: project(argmin of the problem over its set + noise).

    Privacy
    -------
    The noisy minimiser alone is released: pure epsilon with Gamma-norm noise, GDP with Gaussian noise. A run whose
    solver misses its tolerance releases nothing.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Algorithm 1.
    """

    def check_problem(self, spec: OutputPerturbationSpec, problem: Problem) -> None:
        """Refuse a constraint in secure mode: the rounding of a projection is not bounded."""
        if spec.secure and not isinstance(problem.constraint, WholeSpace):
            raise AssumptionFailed(
                "secure output perturbation is for unconstrained problems; leave the constraint out."
            )

    def execute(self, inputs: MechanismInput[OutputPerturbationSpec]) -> MechanismOutput:
        """Return the noisy minimiser."""
        spec, data, rng = inputs.spec, inputs.data, inputs.rng
        problem = data.problem
        objective = TiltedObjective(
            data=data, ridge=problem.n * problem.ridge, tilt=np.zeros(problem.dimension)
        )
        if spec.secure:
            minimizer = minimize_certified(objective, spec.tolerance, spec.n_iterations)
            return MechanismOutput(
                value=problem.constraint.project(
                    _add_exact_noise(minimizer, spec, NoiseDraws.of(inputs).source)
                )
            )
        noise = sample_perturbation(spec.noise, problem.dimension, spec.density_scale, rng)
        minimizer = minimize_certified(objective, spec.tolerance, spec.n_iterations)
        return MechanismOutput(value=problem.constraint.project(minimizer + noise))


def _add_exact_noise(minimizer: Floats, spec: OutputPerturbationSpec, source: ByteSource) -> Floats:
    """Round the minimiser to the public grid, and add noise that is exact on it."""
    grid, scale = public_noise_grid(spec.density_scale), spec.density_scale
    integers = np.rint(minimizer / grid)
    if not np.abs(integers).max() <= 2.0**52:
        raise InvalidParameter(
            "the norm of the minimiser is too large for the grid of secure noise; raise the ridge."
        )
    if spec.noise == "gamma":
        return add_rounded_gamma_noise(integers.astype(np.int64), Fraction(grid), Fraction(scale), source)
    return add_rounded_noise(integers.astype(np.int64), grid, gaussian_density_scale(scale), 2.0, source)
