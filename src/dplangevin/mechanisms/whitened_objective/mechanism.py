"""Whitened objective perturbation: a noisy second moment, whitened and weighted rows, one perturbed minimisation.

Also estimates of its excess risk: from public numbers before a fit, and from the released values after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.data.exact_sums import ExactSums
from dplangevin.data.integer_grids import IntegerTransform, RowGrid, to_integers
from dplangevin.mechanisms.constant_model import (
    ConstantModel,
    constant_coefficients,
    constant_of_counts,
    count_scale,
    has_balanced_classes,
    sum_class_weights,
)
from dplangevin.mechanisms.exact_gradient import public_row_grid
from dplangevin.mechanisms.exact_minimizer import check_exact_minimizer, limit_squares, release_minimizer
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput, NoiseDraws
from dplangevin.mechanisms.newton import TiltedObjective, minimize_certified, scale_to_norm
from dplangevin.mechanisms.perturbation.mechanism import make_objective, sample_perturbation
from dplangevin.mechanisms.target_center import TargetCenter, constant_of_center, release_target_center
from dplangevin.mechanisms.whitened.postprocessing import (
    MIN_COUNT_DOUBT,
    DescentStart,
    ScoreVariance,
    round_to_two_digits,
    shrink_to_constant,
)
from dplangevin.mechanisms.whitened.whitening import Spectrum, noisy_spectrum, second_moment_sum
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec
from dplangevin.planner.rules import PURE_EDGE_FACTOR
from dplangevin.problem import Loss, Problem
from dplangevin.sampling.float_noise import sample_wishart_difference
from dplangevin.sampling.lazy_noise import add_rounded_gamma_noise, add_rounded_wishart_noise

PLANNED_FACTORS, RELEASED_FACTORS = (3.0, 1.0), (2.0, 4.0)
"""Factors on the noise and the bias of the quadratic model; chosen on generated tables."""
TYPICAL_SCORES, MAX_SCORE = {"logistic": 1.0, "affine": 0.15}, 6.0
"""Root mean square of the scores assumed before a fit (for a target scaled to [-1, 1]), and the largest one used."""


def predict_excess(spec: WhitenedObjectiveSpec, problem: Problem) -> float | None:
    """Predict the excess risk from public numbers, as if all eigenvalues stood above the noise."""
    if (kind := _curvature_kind(problem.loss)) is None:
        return None
    white = np.full(problem.n_columns, 1 / problem.n_columns)
    return _quadratic_excess(
        spec, problem, white, np.full_like(white, TYPICAL_SCORES[kind] ** 2), PLANNED_FACTORS
    )


def estimate_excess(
    spec: WhitenedObjectiveSpec, problem: Problem, spectrum: Spectrum, q: Floats, power: float
) -> float | None:
    """Estimate the excess risk from the released spectrum and minimiser; eigenvalues below the noise are guesses."""
    if _curvature_kind(problem.loss) is None:
        return None
    moments = spectrum.values ** (1 - 2 * power)
    return _quadratic_excess(
        spec, problem, moments / moments.sum(), (q * problem.row_norm) ** 2, RELEASED_FACTORS
    )


def _quadratic_excess(
    spec: WhitenedObjectiveSpec,
    problem: Problem,
    moments: Floats,
    squares: Floats,
    factors: tuple[float, float],
) -> float:
    """Return the expected excess of the mean loss for a quadratic risk, rows of norm 1.

    With curvature h = n k moment in q, the minimiser of h (q - q*)^2 / 2 + Lambda q^2 / 2 + b q is off by
    (Lambda q* + b) / (h + Lambda).
    """
    curvature = _mean_curvature(problem.loss, min(float(np.sqrt(moments @ squares)), MAX_SCORE))
    unit = problem.row_norm * problem.bounds.weight_bound
    h, ridge = problem.n * curvature * moments, problem.n * spec.ridge / (unit * problem.row_norm)
    noise = (spec.density_scale / unit) ** 2 * (len(moments) + 1)
    losses = h / (h + ridge) ** 2 * (factors[0] * noise + factors[1] * ridge**2 * squares)
    return float(losses.sum() / (2 * problem.n))


def _curvature_kind(loss: Loss) -> str | None:
    """Return the kind of a loss whose curvature is known from its scores; None for other losses."""
    slope_formula = None if loss.score_dimension > 1 else loss.slope_formula
    if slope_formula is None or slope_formula.kind not in TYPICAL_SCORES:
        return None
    is_known = slope_formula.kind == "logistic" or loss.unclipped_loss.is_quadratic
    return slope_formula.kind if is_known else None


def _mean_curvature(loss: Loss, score: float) -> float:
    """Return the mean curvature of the loss for normal scores of this root mean square and labels to match."""
    slope_formula = loss.slope_formula
    assert slope_formula is not None
    if slope_formula.kind == "affine":
        return slope_formula.scale
    nodes = np.linspace(-8, 8, 2001)
    weights, scores = np.exp(-(nodes**2) / 2), score * nodes
    probabilities = expit(scores)
    curvatures = [slope_formula.curvature(scores, np.full(len(nodes), label)) for label in (0.0, 1.0)]
    return float(
        weights @ ((1 - probabilities) * curvatures[0] + probabilities * curvatures[1]) / weights.sum()
    )


MAX_BYTES_IN_MEMORY = 1 << 30
"""Largest size of whitened rows that are stored besides the records; larger ones are recomputed at every pass."""


def whiten_and_weight(rows: Floats, basis: Floats, bound: float) -> tuple[Floats, Floats]:
    """Return w = min(1, (bound / |z|)^2) and z = T' x, with w |z|^2 <= bound^2, so that w |z| <= bound as well.

    A weight depends on its own row and on released values only. The guarantee rests on the final comparison, which
    holds for every T and row, finite or not.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        z = rows @ basis
        squares = np.einsum("ij,ij->i", z, z)
        weights = np.minimum(1.0, bound**2 / squares)
        inside = weights * squares <= bound**2 * (1 + 1e-12)
    z[~inside] = 0.0
    return np.where(inside, weights, 0.0), z


def make_whitened_dataset(data: Dataset, basis: Floats) -> Dataset:
    """Return the records as rows T' x with w(x) times their weights, computed once where they fit in memory."""
    if 8 * data.n_samples * data.problem.n_columns > MAX_BYTES_IN_MEMORY:
        return WhitenedDataset(data, basis)
    try:
        return data.with_transformed_rows(_whiten_block, basis)
    except MemoryError:  # its message could reveal the number of records
        return WhitenedDataset(data, basis)


def _whiten_block(data: Dataset, block: Block, basis: Floats) -> tuple[Floats, Floats]:
    return whiten_and_weight(block.rows, basis, data.problem.row_norm)


class WhitenedDataset(Dataset):
    """A data set of whitened rows that are recomputed, block by block, at every pass.

    Parameters
    ----------
    data : the records.
    basis : T.
    """

    within_bounds = False  # a row may be longer than the problem's bound; its weight compensates for it

    def __init__(self, data: Dataset, basis: Floats) -> None:
        self._data = data
        self._basis = basis
        self.n_samples, self.n_bytes = data.n_samples, data.n_bytes

    @property
    def problem(self) -> Problem:
        return self._data.problem

    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        for block in self._data.blocks(rows):
            weights, z = _whiten_block(self._data, block, self._basis)
            combined_weights = weights if block.weights is None else weights * block.weights
            yield Block(z, block.labels, combined_weights)

    def sum_over_blocks(
        self, task: Callable[..., NDArray[Any]], *arguments: Any, whole: bool = False
    ) -> NDArray[Any]:
        return self._data.sum_over_blocks(_apply_to_whitened, self._basis, task, *arguments)

    def gradient_sum(self, loss: Loss, theta: Floats, rows: ArrayLike | None = None) -> Floats:
        return self.sum_over_blocks(Dataset.gradient_sum, loss, theta)

    def loss_sum(self, loss: Loss, theta: Floats) -> Floats:
        return self.sum_over_blocks(Dataset.loss_sum, loss, theta)


def _apply_to_whitened(
    data: Dataset, basis: Floats, task: Callable[..., NDArray[Any]], *arguments: Any
) -> NDArray[Any]:
    return task(WhitenedDataset(data, basis), *arguments)


WHITENING_POWER = 0.25
"""Power of the spectrum in the coordinates: less than 1/2, since a ridge on fully whitened coefficients shrinks the
leading directions, which tend to matter most; it makes little difference on ill-conditioned tables."""


class WhitenedObjective(FitMechanism[WhitenedObjectiveSpec]):
    """Objective perturbation in coordinates from a noisy second moment: T q, with q the perturbed minimiser.

    Privacy
    -------
    Noise is added to the moment, to the objective and to its minimiser; pure costs add up. What is computed from the
    moment (which eigenvalues stand above the noise, T) is post-processing.

    References
    ----------
    docs/theory/converging_fits.md, section 6.
    """

    spec_type = WhitenedObjectiveSpec

    def check_problem(self, spec: WhitenedObjectiveSpec, problem: Problem) -> None:
        """Refuse a minimiser that cannot be rounded exactly, where that was stated."""
        if spec.secure:
            check_exact_minimizer(problem)

    def row_grid(self, spec: WhitenedObjectiveSpec, problem: Problem) -> RowGrid:
        return public_row_grid(problem)

    def execute(self, inputs: MechanismInput[WhitenedObjectiveSpec]) -> MechanismOutput:
        """Release counts and moment, whiten, and return the perturbed minimiser, or the constant model."""
        spec, data, draws = inputs.spec, inputs.data, NoiseDraws.of(inputs)
        if spec.secure:
            data = data.with_rounded_rows(public_row_grid(data.problem), in_place=inputs.owns_data)
        counts = release_counts(spec, data, spec.count_density_scale, draws)
        constant = None
        if counts is not None:
            constant = constant_of_counts(data.problem, *counts)
        elif (scales := spec.center_scales) is not None:
            released = release_target_center(data, draws, scales, is_exact=spec.secure)
            spec, data = suit_targets(spec, data, released)
            constant = constant_of_center(data.problem, released, scales.center)
        moment = release_second_moment(spec, data, draws)
        spectrum = moment_spectrum(spec, moment)
        basis = whitening_basis(spectrum)
        # The moment and coordinates are not released: as floating-point numbers they could reveal the exact sum.
        auxiliary = {"resolved": spectrum.above_noise.astype(float)}
        is_balanced = counts is not None and has_balanced_classes(data.problem, *counts)
        has_classes = data.problem.loss.score_dimension > 1
        needs_no_center = is_balanced and not has_classes and not spectrum.above_noise.all()
        if constant is None or needs_no_center:
            q = minimize_perturbed(spec, data, basis, draws)
        else:
            is_even = has_classes and is_balanced
            center = ConstantCenter.build(data.problem, constant, spectrum, basis, is_even)
            if center.is_all_to_learn(spec, data.problem):
                assert spec.recount_density_scale is not None
                again = release_counts(spec, data, spec.recount_density_scale, draws)
                assert counts is not None
                assert again is not None
                constant = constant_of_counts(data.problem, *combine_counts(counts, again))
                center = ConstantCenter.build(data.problem, constant, spectrum, basis)
                return MechanismOutput(value=(basis @ center.start.center).ravel(), auxiliary=auxiliary)
            deviation = minimize_perturbed(spec, data, basis, draws, center.center)
            q = center.center + center.limit(deviation, spec, data.problem)
        theta = basis @ q.reshape(data.problem.n_columns, -1)
        excess = estimate_excess(spec, data.problem, spectrum, q, WHITENING_POWER)
        return MechanismOutput(
            value=theta.ravel(),
            auxiliary=auxiliary
            if excess is None
            else auxiliary | {"excess_risk": round_to_two_digits(excess)},
        )


def suit_targets(
    spec: WhitenedObjectiveSpec, data: Dataset, released: TargetCenter
) -> tuple[WhitenedObjectiveSpec, Dataset]:
    """Return the spec and the data set with the loss that suits the spread of the targets: post-processing.

    Its noise is in the same proportion to the bound on its slopes, its ridge to that on its curvature, and the
    tolerance of its minimiser to the ridge.
    """
    old, new = data.problem.loss, data.problem.loss.suit_spread(released.spread)
    slopes = new.slope_bound / old.slope_bound * (1 + 1e-15)
    curvature = new.curvature_bound / old.curvature_bound * (1 + 1e-15)
    spec = replace(
        spec,
        density_scale=slopes * spec.density_scale,
        ridge=curvature * spec.ridge,
        tolerance=curvature * spec.tolerance * (1 - 1e-14),
    )
    return spec, data.with_loss(new)


class NoisyClassMeans(NamedTuple):
    """Means of weight x indicator of the classes with noise, and the standard deviation of the noise on each."""

    means: Floats
    noise_std: float


def release_counts(
    spec: WhitenedObjectiveSpec, data: Dataset, density_scale: float | None, draws: NoiseDraws
) -> NoisyClassMeans | None:
    """Release the means of weight x indicator with noise of this scale; None without one."""
    if density_scale is None:
        return None
    whole, scale = data.sum_over_blocks(sum_class_weights, whole=True), count_scale(data.problem)
    noise_std = density_scale * math.sqrt(len(whole) + 1)
    if spec.secure:
        noisy = add_rounded_gamma_noise(whole, Fraction(1), Fraction(density_scale * scale), draws.source)
        return NoisyClassMeans(noisy / scale, noise_std)
    noise = sample_perturbation("gamma", len(whole), density_scale, draws.rng)
    return NoisyClassMeans(whole / scale + noise, noise_std)


def combine_counts(first: NoisyClassMeans, second: NoisyClassMeans) -> NoisyClassMeans:
    """Return the mean of two releases, weighted by the inverses of their variances."""
    weights = np.array([first.noise_std, second.noise_std]) ** -2
    means = (weights[0] * first.means + weights[1] * second.means) / weights.sum()
    return NoisyClassMeans(means, float(weights.sum() ** -0.5))


MAX_SCORE_NOISE = 0.4
"""Variance that noise gives to the scores from which a fit has nothing to add to the constant model; for a target in
[-1, 1], whose scores are smaller, in units of their typical variance."""
UNSEEN_MOMENT_FRACTION = 0.35
"""Of a second moment that is below the noise of its release, the fraction that the guard counts on: within stated
ranges, which are wide, features have less than their even share (by measurement)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ConstantCenter:
    """The constant model towards which the ridge draws, in q: post-processing of noisy counts and moment.

    Parameters
    ----------
    start : the model, the unit score, mean curvature and uncertainty, as for a descent.
    moments : expected second moment of each coordinate of T' x.
    scores : of the model.
    above_noise : which second moments stand above the noise of their release; the others may be far smaller.
    is_seen_feature : those among them that are not mostly the constant column's.
    is_even : whether there are several scores and no class is rare: what is seen of them is kept, however little.
    """

    start: DescentStart
    moments: Floats
    scores: Floats
    above_noise: NDArray[np.bool_]
    is_seen_feature: NDArray[np.bool_]
    is_even: bool = False

    @classmethod
    def build(
        cls,
        problem: Problem,
        constant: ConstantModel,
        spectrum: Spectrum,
        basis: Floats,
        is_even: bool = False,
    ) -> ConstantCenter:
        """Return a constant model in the coordinates T."""
        column = constant_coefficients(problem, np.ones(problem.loss.score_dimension))[:, 0]
        unit = np.asarray(np.linalg.solve(basis, column), np.float64)
        start = DescentStart(
            unit[:, None] * constant.scores,
            unit,
            constant.curvature_fraction,
            constant.uncertainty,
            constant.is_best,
            target_variance=constant.target_variance,
        )
        moments = spectrum.values ** (1 - 2 * WHITENING_POWER)
        return cls(
            start=start,
            moments=problem.row_norm**2 * moments / moments.sum(),
            scores=constant.scores,
            above_noise=spectrum.above_noise,
            is_seen_feature=spectrum.above_noise & (spectrum.vectors[-1] ** 2 < 0.5),
            is_even=is_even,
        )

    @property
    def center(self) -> Floats:
        """The constant model in q, flat [p K]."""
        return np.asarray(self.start.center.ravel())

    def _curvature(self, problem: Problem) -> Floats:
        """Return n times the mean curvature of the loss in each score at the constant model."""
        curvatures = self.start.mean_curvature * problem.loss.step_curvature * np.ones(1)
        if problem.loss.score_dimension > 1:
            shares = softmax(self.scores)
            curvatures = shares * (1 - shares)
        return np.asarray(problem.n * curvatures)

    def noise(
        self, spec: WhitenedObjectiveSpec, problem: Problem, group: NDArray[np.bool_], moment_fraction: float
    ) -> ScoreVariance:
        """Return what noise alone does to the scores of a group of coordinates, with this fraction of their moments.

        b has the variance (dimension + 1) density_scale^2. In a coordinate of curvature h the minimiser is off by b /
        (h + Lambda), and Lambda shrinks it by h / (h + Lambda).
        """
        curvature, moments = self._curvature(problem), self.moments[group]
        weights = curvature / curvature.mean()
        h, ridge = np.multiply.outer(moments, curvature), problem.n * spec.ridge
        variances = (
            weights * (problem.dimension + 1) * spec.density_scale**2 / (moment_fraction * h + ridge) ** 2
        )
        parts = moments[:, None] * variances
        kept = float(moments @ (h / (h + ridge)) @ weights) / float(moments.sum() * weights.sum())
        # of directions, and of |b|^2 for |b| ~ Gamma(dimension)
        size, total = problem.dimension, float(parts.sum())
        relative = 2 * float((parts**2).sum()) / total**2 + (4 * size + 6) / (size * (size + 1))
        return ScoreVariance(weights, total, relative, kept)

    def mean_noise(self, spec: WhitenedObjectiveSpec, problem: Problem) -> float:
        """Return the variance that noise gives to the mean score.

        Along its direction u it is |u|^2 Var b / (h + Lambda |u|^2)^2, with the curvature h of the score itself, which
        no second moment has to tell.
        """
        square = float(self.start.unit @ self.start.unit)
        variance = (problem.dimension + 1) * spec.density_scale**2
        curvature = float(self._curvature(problem).mean())
        return square * variance / (curvature + problem.n * spec.ridge * square) ** 2

    def is_all_to_learn(self, spec: WhitenedObjectiveSpec, problem: Problem) -> bool:
        """Return whether the rest of the budget is better spent on counting the classes again.

        That is where noise would hide what features add, and the share of the rarest class is more uncertain than the
        noise on one coordinate of the scores.
        """
        if spec.recount_density_scale is None or self.is_even:
            return False
        group, fraction = (
            (self.is_seen_feature, 1.0)
            if self.is_seen_feature.any()
            else (np.ones(len(self.moments), bool), UNSEEN_MOMENT_FRACTION)
        )
        variance = self.noise(spec, problem, group, fraction).total / problem.loss.score_dimension
        variance *= len(group) / np.count_nonzero(group)
        is_doubtful = self.start.uncertainty**2 >= MIN_COUNT_DOUBT * variance / len(self.moments)
        is_scaled = problem.bounds.classes is None and not problem.loss.unclipped_loss.log_link
        typical = TYPICAL_SCORES["affine" if is_scaled else "logistic"] ** 2
        return bool(variance > MAX_SCORE_NOISE * typical and is_doubtful)

    def limit(self, deviation: Floats, spec: WhitenedObjectiveSpec, problem: Problem) -> Floats:
        """Return the deviation [p K], no longer than its James-Stein estimate (see `whitened.postprocessing`).

        Coordinates whose second moments stand above the noise are one group, the others another one.
        """
        groups = []
        for group, fraction in ((self.above_noise, 1.0), (~self.above_noise, UNSEEN_MOMENT_FRACTION)):
            if group.any():
                noise = self.noise(spec, problem, group, fraction)
                groups.append((group, noise._replace(relative_variance=0.0) if self.is_even else noise))
        total = self.noise(spec, problem, np.ones(len(self.moments), bool), 1.0).total
        mean_variance = max(total / problem.dimension, self.mean_noise(spec, problem))
        deviation = deviation.reshape(-1, problem.loss.score_dimension)
        return np.asarray(
            shrink_to_constant(deviation, self.start, self.moments, groups, mean_variance).ravel()
        )


def release_second_moment(spec: WhitenedObjectiveSpec, data: Dataset, draws: NoiseDraws) -> Floats:
    """Release the noisy second moment of the rows over the largest norm. Labels and sample weights are not used.

    The rows of an exact run must be on their grid.
    """
    if spec.secure:
        grid = public_row_grid(data.problem)
        sums = ExactSums(data, grid)
        scale = Fraction(spec.moment_density_scale) * data.problem.n * Fraction(grid.max_norm) ** 2
        noisy = add_rounded_wishart_noise(to_integers(sums.second_moment()), scale, draws.source)
        return noisy / sums.moment_scale(data.problem.n)
    exact = data.sum_over_blocks(second_moment_sum, None) / data.problem.n
    noise = sample_wishart_difference(data.problem.n_columns, spec.moment_density_scale, draws.rng)
    return np.asarray((exact + exact.T) / 2 + noise)


def moment_spectrum(spec: WhitenedObjectiveSpec, moment: Floats) -> Spectrum:
    """Estimate the spectrum by `noisy_spectrum`, with the standard deviation of Gaussian noise with the same edge."""
    size = len(moment)
    return noisy_spectrum(
        moment, spec.moment_density_scale * PURE_EDGE_FACTOR * (size + 1) / math.sqrt(2 * size), False
    )


def whitening_basis(spectrum: Spectrum) -> Floats:
    """Return T = U e^-power / R, R^2 = sum e^(1 - 2 power): the expected squared norm of rows stays at its bound."""
    size = math.sqrt(float((spectrum.values ** (1 - 2 * WHITENING_POWER)).sum()))
    return np.asarray(spectrum.vectors * spectrum.values**-WHITENING_POWER / size)


def minimize_perturbed(
    spec: WhitenedObjectiveSpec,
    data: Dataset,
    basis: Floats,
    draws: NoiseDraws,
    center: Floats | None = None,
) -> Floats:
    """Return the perturbed minimiser q over rows T' x, relative to the center where there is one.

    The rows of an exact run must be on their grid.
    """
    problem, rng = data.problem, draws.rng
    if spec.secure:
        grid = public_row_grid(problem)
        transform = IntegerTransform(basis, 1.0, grid)
        limited = data.with_weights(limit_squares, grid, transform)
        ideal = make_objective(
            spec.objective_spec, limited, grid, spec.ridge, draws.source, transform, center
        )
        return scale_to_norm(release_minimizer(ideal), spec.coef_bound)
    tilt = sample_perturbation("gamma", problem.dimension, spec.density_scale, rng)
    objective = TiltedObjective(
        data=make_whitened_dataset(data, basis), ridge=problem.n * spec.ridge, tilt=tilt, center=center
    )
    release_noise = sample_perturbation("gamma", problem.dimension, spec.release_density_scale, rng)
    return minimize_certified(objective, spec.tolerance, spec.n_iterations, spec.coef_bound) + release_noise
