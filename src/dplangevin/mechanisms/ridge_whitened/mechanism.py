"""Ridge-whitened descent: release second moments while they pay, then descend in the coordinates that they give."""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.data.dataset import Dataset
from dplangevin.data.exact_sums import ExactSums
from dplangevin.data.integer_grids import Dyadic, RowGrid, to_integers
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.constant_model import (
    constant_coefficients,
    estimate_model_shares,
    fit_constant,
    release_mean_counts,
)
from dplangevin.mechanisms.exact_gradient import limit_records, public_row_grid, release_gradient
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput, NoiseDraws
from dplangevin.mechanisms.moments.mechanism import sample_symmetric_noise
from dplangevin.mechanisms.ridge_whitened.coordinates import FLOOR, RidgeCoordinates
from dplangevin.mechanisms.ridge_whitened.spec import PlannedDescent, RidgeWhitenedSpec
from dplangevin.mechanisms.whitened.whitening import row_weights, second_moment_sum
from dplangevin.problem import Problem, WholeSpace
from dplangevin.sampling.exact_noise import add_symmetric_gaussian_noise

FEW_SCORES = 10
"""Scores beyond which a larger cap of steps is not taken into account when further moments are decided."""
MIN_FLOOR_OF_COARSE_ROWS = 1e-11
"""Smallest floor, in squared row norms, at which rows are rounded to 20 instead of 24 binary digits: truncation of the
former adds about 3e-13 to a second moment."""


class RidgeWhitenedDescent(FitMechanism[RidgeWhitenedSpec]):
    """Noisy second moments of the rows, then noisy gradient descent in coordinates that are white above a floor.

    Privacy
    -------
    Noise is added to the counts, the moments and the gradients, and nowhere else. What is computed from them
    (coordinates, weights of rows, numbers of releases and of steps, step sizes, means of iterates) is post-processing.
    It is not covered by a guarantee about the last iterate alone.

    References
    ----------
    docs/theory/wide_probes.md; docs/theory/exact_sums.md.
    """

    def check_problem(self, spec: RidgeWhitenedSpec, problem: Problem) -> None:
        """Refuse a ridge or a constraint: whitened coordinates would change a ridge or a ball."""
        if problem.ridge or not isinstance(problem.constraint, WholeSpace):
            raise InvalidParameter(
                "ridge-whitened-gd fits without a ridge and on the whole space; leave alpha and radius out, or use "
                "noisy gradient descent."
            )
        if spec.count_noise_std is not None and problem.constant is None:
            raise InvalidParameter("counts of the classes need a column that is known to be constant.")
        if spec.secure:
            row_grid(spec, problem)

    def row_grid(self, spec: RidgeWhitenedSpec, problem: Problem) -> RowGrid:
        return row_grid(spec, problem)

    def execute(self, inputs: MechanismInput[RidgeWhitenedSpec]) -> MechanismOutput:
        """Release counts and moments, run the descent, and return its last iterate, or the mean of the last ones."""
        spec, data, draws = inputs.spec, inputs.data, NoiseDraws.of(inputs)
        grid = row_grid(spec, data.problem) if spec.secure else None
        if grid is not None:
            data = data.with_rounded_rows(grid, in_place=inputs.owns_data)
        start = release_start(spec, data, draws)
        coordinates = release_coordinates(spec, data, grid, draws)
        descent = plan_descent(spec, coordinates)
        value = run_descent(descent, data, coordinates, grid, start, draws)
        auxiliary = {} if coordinates.above_noise is None else {"resolved": coordinates.above_noise}
        return MechanismOutput(value=value.ravel(), n_steps=descent.n_steps, auxiliary=auxiliary)


def row_grid(spec: RidgeWhitenedSpec, problem: Problem) -> RowGrid:
    """Return the grid to which the rows of an exact run are rounded; further moments see below the first floor."""
    floor = FLOOR * spec.moment_noise_std * (2 * problem.n_columns) ** 0.5
    least = floor ** min(spec.max_moment_releases, 2)
    return public_row_grid(problem, row_bits=24 if least < MIN_FLOOR_OF_COARSE_ROWS else 20)


def release_start(spec: RidgeWhitenedSpec, data: Dataset, draws: NoiseDraws) -> Floats:
    """Return theta [p, K] of the constant model of released counts, or 0 without them."""
    problem = data.problem
    if spec.count_noise_std is None:
        return np.zeros((problem.n_columns, problem.loss.score_dimension))
    counts = release_mean_counts(data, draws, spec.count_noise_std, is_exact=spec.secure)
    estimate = estimate_model_shares(problem, counts, spec.count_noise_std)
    return constant_coefficients(problem, fit_constant(problem, estimate.shares).scores)


def release_coordinates(
    spec: RidgeWhitenedSpec, data: Dataset, grid: RowGrid | None, draws: NoiseDraws
) -> RidgeCoordinates:
    """Release second moments, each in the coordinates of those before it, while they show more than they cost."""
    coordinates = RidgeCoordinates(n_columns=data.problem.n_columns)
    while wants_moment(spec, coordinates, data.problem.loss.score_dimension):
        noise_std = spec.further_noise_std if coordinates.n_releases else spec.moment_noise_std
        noisy = release_moment(data, coordinates, grid, noise_std, draws)
        coordinates = coordinates.refine(noisy, noise_std, grid)
    return coordinates


def wants_moment(spec: RidgeWhitenedSpec, coordinates: RidgeCoordinates, n_scores: int) -> bool:
    """Return whether another moment is released: the first always, a further one where time limits the descent.

    The cap of steps grows with the number of scores, and what a moment is worth does not, so that the cap of few scores
    decides. It is a function of public numbers and of what was released.
    """
    n_releases = coordinates.n_releases
    if not n_releases or n_releases >= spec.max_moment_releases:
        return n_releases < spec.max_moment_releases
    excess = plan_descent(spec, coordinates).excess * max(n_scores / FEW_SCORES, 1.0)
    return excess > 1 and coordinates.are_refinable(spec.further_noise_std)


def plan_descent(spec: RidgeWhitenedSpec, coordinates: RidgeCoordinates) -> PlannedDescent:
    """Return the descent in these coordinates, with what their moments have left of the budget."""
    n_further_moments = max(coordinates.n_releases - 1, 0)
    return spec.plan_descent(coordinates.effective_dimension, coordinates.score_noise, n_further_moments)


def release_moment(
    data: Dataset, coordinates: RidgeCoordinates, grid: RowGrid | None, noise_std: float, draws: NoiseDraws
) -> Floats:
    """Release the second moment of rows over R in these coordinates; exact where rows are on a grid."""
    problem = data.problem
    if grid is None:
        exact = data.sum_over_blocks(second_moment_sum, coordinates.transform) / problem.n
        noise = noise_std * sample_symmetric_noise(problem.n_columns, draws.rng)
        return np.asarray((exact + exact.T) / 2 + noise)
    sums, transform = ExactSums(data, grid), coordinates.integer_transform
    total = (
        Dyadic(to_integers(sums.second_moment()), np.asarray(0))
        if transform is None
        else sums.shortened_second_moment(transform)
    )
    scale = sums.moment_scale(problem.n, transform)
    return add_symmetric_gaussian_noise(total.whole, total.exponents, noise_std * scale, draws.source) / scale


def run_descent(
    descent: PlannedDescent,
    data: Dataset,
    coordinates: RidgeCoordinates,
    grid: RowGrid | None,
    start: Floats,
    draws: NoiseDraws,
) -> Floats:
    """Run the descent from theta = start [p, K], and return the theta that is released."""
    problem, bound, transform = data.problem, coordinates.bound, coordinates.transform
    weighted = weight_rows(data, coordinates, grid)
    position = previous = mean = np.zeros_like(start)
    for t in iterate_with_progress(range(descent.n_steps), "ridge-whitened descent"):
        momentum = t / (t + 3) if descent.is_accelerated else 0.0
        point = position + momentum * (position - previous)
        theta = start + _to_theta(problem, coordinates, point)
        if grid is not None:
            gradient = release_gradient(
                weighted,
                grid,
                theta,
                descent.noise_std,
                divisor=problem.n,
                transform=coordinates.integer_transform,
                source=draws.source,
            )
        else:
            total = weighted.gradient_sum(problem.loss, theta.reshape(-1, 1)).reshape(theta.shape)
            turned = total if transform is None else transform.basis.T @ total
            noise = descent.noise_std * draws.rng.standard_normal(theta.shape)
            gradient = turned / (problem.row_norm * bound * problem.n) + noise
        previous, position = position, point - descent.step_size * bound * gradient
        if t >= descent.average_from:
            mean = mean + position / (descent.n_steps - descent.average_from)
    return start + _to_theta(problem, coordinates, mean)


def weight_rows(data: Dataset, coordinates: RidgeCoordinates, grid: RowGrid | None) -> Dataset:
    """Return the records with the weights that bound their gradients; integers where sums are exact."""
    if grid is not None:
        return data.with_weights(limit_records, grid, coordinates.integer_transform)
    if coordinates.transform is None:
        return data
    return data.with_scaled_weights(row_weights, coordinates.transform)


def _to_theta(problem: Problem, coordinates: RidgeCoordinates, q: Floats) -> Floats:
    turned = q if coordinates.transform is None else coordinates.transform.basis @ q
    return np.asarray(turned / problem.row_norm)
