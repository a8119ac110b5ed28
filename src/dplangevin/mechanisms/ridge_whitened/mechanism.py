"""Ridge-whitened descent: release second moments while they pay, then descend in the coordinates that they give.

Coordinates from noisy second moments with a floor under their eigenvalues: functions of released values alone.

With e the estimated second moments along the directions U of a release and f the edge of its noise, B = U (e + f / 4)
^ -1/2. Directions far above the floor become white; what noise hides is scaled by one number, so that rows do not get
long there, however many columns there are. R^2 = sum e / (e + f / 4) is an effective dimension.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.data.dataset import Dataset
from dplangevin.data.exact_sums import ExactSums
from dplangevin.data.integer_grids import Dyadic, IntegerTransform, RowGrid, to_integers
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
from dplangevin.mechanisms.ridge_whitened.spec import PlannedDescent, RidgeWhitenedSpec
from dplangevin.mechanisms.whitened.whitening import WhiteningTransform, row_weights, second_moment_sum
from dplangevin.problem import Problem, WholeSpace
from dplangevin.sampling.exact_noise import add_symmetric_gaussian_noise

FLOOR = 0.25
"""The floor under eigenvalues, in units of the edge of the noise."""
MAX_FURTHER_EDGE = 2.0
"""Largest edge of the noise of a further moment, in coordinates whose floor is 1, at which it is worth its budget."""
MIN_SCORE_NOISE, MAX_SCORE_NOISE = 0.09, 0.19
"""The noise that a step may give to a score, for an even spectrum and for one with all of the second moment in few
directions: a steep spectrum leaves more to be learned late. Without a release it is their mean."""
VISIBLE_EDGE, HIDDEN_POWER = 20.0, 0.25
"""The edge of a single release, in mean eigenvalues, beyond which that noise is less, and by which power: where most
directions are hidden, steps that go on mostly learn noise."""
REDUCTION_IN_WHITE_ROWS = 0.6
"""By how much of itself this noise is less where all directions are white: then little is left for more time."""
EIGENVALUES_PER_BLOCK = 256


class MomentEstimate(NamedTuple):
    """Estimated second moments along the eigenvectors of a noisy release.

    Parameters
    ----------
    values : u' M u for each eigenvector u of the release, M the second moment without noise. vectors : in columns.
    above_noise : which eigenvalues of the release are beyond the edge of the noise. edge : f = noise_std sqrt(2 p).
    """

    values: Floats
    vectors: Floats
    above_noise: NDArray[np.bool_]
    edge: float


def estimate_moments(noisy: Floats, noise_std: float) -> MomentEstimate:
    """Estimate the second moments along the directions of a release, for spectra of any shape.

    Let v_i, u_i be the eigenvalues and eigenvectors of M + N. By Stein's identity E u_i' N u_i = noise_std^2 E sum_j 1
    / (v_i - v_j) over j other than i, so that v_i less this sum estimates u_i' M u_i without bias, and all of them add
    up to the trace. Close pairs make single estimates noisy and move them towards each other's side; second moments
    rise with v, so that an isotonic regression pools such pairs, where their errors cancel.
    """
    size = len(noisy)
    edge = noise_std * math.sqrt(2 * size)
    eigenvalues, vectors = np.linalg.eigh(noisy)
    # signs are arbitrary; fix them, so that sums in another order give the same coordinates up to rounding
    vectors *= np.where(np.cos(1.0 + np.arange(size)) @ vectors < 0, -1.0, 1.0)
    shifts = np.empty(size)
    for start in range(0, size, EIGENVALUES_PER_BLOCK):
        block = slice(start, start + EIGENVALUES_PER_BLOCK)
        gaps = eigenvalues[block, None] - eigenvalues
        shifts[block] = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps != 0).sum(axis=1)
    from scipy.optimize import isotonic_regression  # slow to import, and a plan asks for the spec alone

    values = isotonic_regression(eigenvalues - noise_std**2 * shifts).x
    return MomentEstimate(np.maximum(values, edge / (2 * size)), vectors, eigenvalues > edge, edge)


@dataclass(frozen=True, kw_only=True, eq=False)
class RidgeCoordinates:
    """Coordinates q with theta = B q / row_norm.

    Parameters
    ----------
    transform : B and the bound R on rows of norm at most 1 in these coordinates; None for the rows as they are, where
        B = 1 and R = 1.
    effective_dimension : the expected squared length of a row.
    above_noise : which directions of the last release stand above its noise.
    integer_transform : the same in integers, for rows on a grid; else None.
    n_releases : how many second moments they are made of.
    unevenness : of the second moments that the first of them shows, from 0 (even, or hidden by noise) to 1.
    edge : of the noise of the first of them, in mean eigenvalues.
    """

    n_columns: int
    transform: WhiteningTransform | None = None
    effective_dimension: float = 1.0
    above_noise: Floats | None = None
    integer_transform: IntegerTransform | None = None
    n_releases: int = 0
    unevenness: float = 0.5
    edge: float = 0.0

    @property
    def bound(self) -> float:
        """R."""
        return 1.0 if self.transform is None else self.transform.bound

    @property
    def score_noise(self) -> float:
        """Standard deviation of the noise that a step may give to a score."""
        white = self.effective_dimension / self.n_columns
        spread = MIN_SCORE_NOISE + (MAX_SCORE_NOISE - MIN_SCORE_NOISE) * self.unevenness
        if self.n_releases == 1 and self.edge > VISIBLE_EDGE:
            spread *= (VISIBLE_EDGE / self.edge) ** HIDDEN_POWER
        return spread * (1 - REDUCTION_IN_WHITE_ROWS * white)

    def refine(self, noisy: Floats, noise_std: float, grid: RowGrid | None) -> RidgeCoordinates:
        """Return the coordinates that another release gives: the second moment of rows over R in the present ones."""
        estimate = estimate_moments(noisy, noise_std)
        scales = (estimate.values + FLOOR * estimate.edge) ** -0.5
        dimension = float(estimate.values @ scales**2)
        basis = estimate.vectors * scales
        if self.transform is not None:
            basis = (self.transform.basis / self.transform.bound) @ basis
        refined = replace(
            self,
            transform=WhiteningTransform(basis, math.sqrt(dimension)),
            effective_dimension=dimension,
            above_noise=estimate.above_noise.astype(float),
            n_releases=self.n_releases + 1,
            unevenness=self.unevenness if self.n_releases else measure_unevenness(estimate.values),
            edge=self.edge if self.n_releases else estimate.edge * self.n_columns / estimate.values.sum(),
        )
        return refined if grid is None else refined._round_to_integers(grid)

    def _round_to_integers(self, grid: RowGrid) -> RidgeCoordinates:
        """Return these coordinates rounded to few binary digits: from here on B and R are the rounded ones."""
        assert self.transform is not None
        # about half of the rows are longer than R, so that a filter for short ones would not save time
        rounded = IntegerTransform(self.transform.basis, self.transform.bound, grid, has_filter=False)
        transform = WhiteningTransform(rounded.real, rounded.unit_bound)
        return replace(self, transform=transform, integer_transform=rounded)

    def are_refinable(self, further_noise_std: float) -> bool:
        """Return whether a further moment, with this noise in units of R^2, would show what the floor still hides."""
        edge = further_noise_std * math.sqrt(2 * self.n_columns)
        return self.effective_dimension * edge <= MAX_FURTHER_EDGE


def measure_unevenness(moments: Floats) -> float:
    """Return 1 less the fraction of directions that as many equal ones with the same sums and squares would be."""
    return float(1 - moments.sum() ** 2 / (len(moments) * (moments**2).sum()))


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
