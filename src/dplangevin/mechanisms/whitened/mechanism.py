"""Whitened descent: release second moments, whiten and weight the rows, descend, and average the iterates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._progress import iterate_with_progress
from dplangevin.data.dataset import Dataset
from dplangevin.data.exact_sums import ExactSums, QuadraticSums
from dplangevin.data.integer_grids import Dyadic, RowGrid, to_integers
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.constant_model import (
    ConstantModel,
    constant_coefficients,
    constant_of_counts,
    estimate_model_shares,
    estimate_shares,
    fit_constant,
    has_balanced_classes,
    release_mean_counts,
)
from dplangevin.mechanisms.exact_gradient import (
    has_full_limits,
    limit_records,
    public_row_grid,
    release_gradient,
)
from dplangevin.mechanisms.mechanism import FitMechanism, MechanismInput, MechanismOutput, NoiseDraws
from dplangevin.mechanisms.moments.mechanism import sample_symmetric_noise
from dplangevin.mechanisms.run_state import RunState
from dplangevin.mechanisms.target_center import TargetCenter, constant_of_center, release_target_center
from dplangevin.mechanisms.whitened.curvature import (
    WhitenedCurvature,
    check_curvature_problem,
    limit_curvature,
    release_curvature,
)
from dplangevin.mechanisms.whitened.one_step import DescentRecord, estimate_one_step
from dplangevin.mechanisms.whitened.postprocessing import (
    DescentStart,
    ScoreNoise,
    ShrinkageResult,
    calibrate_clipped_scores,
    estimate_excess,
    is_better_counted,
    last_third_start,
    limit_class_deviation,
    limit_deviation,
    round_to_two_digits,
    shrink_tail,
    shrink_windows,
)
from dplangevin.mechanisms.whitened.spec import DescentPath, WhitenedSpec, Window, window_response
from dplangevin.mechanisms.whitened.whitening import (
    WhitenedGeometry,
    make_short_row_filter,
    row_weights,
    second_moment_sum,
    transformed_second_moment,
    whiten_first_release,
    whiten_second_release,
)
from dplangevin.problem import Problem, WholeSpace
from dplangevin.sampling.exact_noise import ByteSource, add_symmetric_gaussian_noise

MAX_HIDDEN_Z = 1.0
"""Estimated second moment below the noise of a first release, in standard deviations, that counts as nothing."""
ALLOWANCE_POWER_IF_HIDDEN = 1 / 3
"""Power of the row norm factor that is left where something seems to be hidden there."""
MIN_EDGE_OF_COARSE_ROWS = 2e-9
"""Edge of the spectrum of the noise below which rows are rounded to 24 instead of 20 binary digits: truncation of the
latter adds about 3e-13 to a second moment."""


@dataclass(kw_only=True)
class DescentState:
    """The state of a run: noisy counts, moments, step, number of steps, iterates, sums, second counts, curvature.

    center : in place of counts, a released center of the targets and their spread, with the noise `count_noise`.
    """

    moments: Floats
    step: int
    n_steps: int
    theta: Floats
    previous: Floats
    totals: Floats
    iterates: dict[int, Floats] = field(default_factory=dict)
    counts: Floats = field(default_factory=lambda: np.empty(0))
    count_noise: float = 0.0
    second_counts: Floats = field(default_factory=lambda: np.empty(0))
    center: Floats = field(default_factory=lambda: np.empty(0))
    curvature: Floats | None = None


class WhitenedDescent(FitMechanism[WhitenedSpec]):
    """Noisy second moments of the rows, then accelerated noisy gradient descent in whitened coordinates.

    Privacy
    -------
    Noise is added to the moments and to the gradients, and nowhere else. What is computed from them (coordinates,
    weights of rows, step sizes, means and weights of iterates) is post-processing, covered by the composition of all
    these releases. It is not covered by a guarantee about the last iterate alone.

    An exact run makes the same releases from exact sums of integers, with noise that is drawn exactly on public grids.
    Without a seed its noise is in no file: a saved run continues with fresh noise, so its release has the distribution
    of an uninterrupted one. The last position is saved before the release, so that only one release can follow.

    References
    ----------
    docs/theory/converging_fits.md, section 1; docs/theory/exact_sums.md.
    """

    def check_problem(self, spec: WhitenedSpec, problem: Problem) -> None:
        """Refuse a ridge or a constraint: whitened coordinates would change a ridge or a ball."""
        if problem.ridge or not isinstance(problem.constraint, WholeSpace):
            raise InvalidParameter(
                "whitened-gd fits without a ridge and on the whole space; leave alpha and radius out, or use "
                "noisy gradient descent."
            )
        if spec.curvature_noise_std:
            check_curvature_problem(problem)
        if spec.secure:
            row_grid(spec, problem)

    def row_grid(self, spec: WhitenedSpec, problem: Problem) -> RowGrid:
        return row_grid(spec, problem)

    def execute(self, inputs: MechanismInput[WhitenedSpec]) -> MechanismOutput:
        """Release the moments, run the descent, and return the weighted mean of the iterates."""
        spec, data, run_state, draws = inputs.spec, inputs.data, inputs.run_state, NoiseDraws.of(inputs)
        grid = row_grid(spec, data.problem) if spec.secure else None
        if grid is not None:
            data = data.with_rounded_rows(grid, in_place=inputs.owns_data)
        quadratic = None if grid is None else QuadraticSums.of(data, grid)
        if run_state is None or (position := run_state.load_position()) is None:
            counts = release_counts(spec, data, draws, spec.count_noise_std)
            spec, data = suit_targets(spec, data, counts)
            state = initial_state(
                spec, data.problem, release_second_moments(spec, data, draws, quadratic), counts
            )
        else:
            if inputs.repeats_noise:
                run_state.restore_generator(draws.rng)
            state = DescentState(**position)
            spec, data = suit_targets(
                spec, data, state.counts if spec.center_scales is None else state.center
            )
        geometry = whitening_geometry(spec, state.moments, grid)
        start = descent_start(data.problem, geometry, state)
        coefficients = run_descent(spec, data, geometry, state, draws, run_state, start, quadratic)
        unit, basis, etas = (
            data.problem.row_norm,
            geometry.transform.basis,
            step_sizes(spec, geometry, state.n_steps, start.step_curvature),
        )
        # The moments and coordinates are not released: as floating-point numbers they could reveal the exact sums.
        # Intervals keep coordinates and curvature in single precision; those of an exact run are on public grids.
        auxiliary = {"resolved": geometry.spectrum.above_noise.astype(float)}
        iterates = {t: q[:, 0] for t, q in state.iterates.items()}
        excess = None
        if not has_recounted(spec, state):
            excess = estimate_excess(
                spec, geometry, etas, state.totals[-1][:, 0], iterates, state.n_steps, data.problem,
                start.mean_curvature,
            )  # fmt: skip
        if excess is not None:
            auxiliary["excess_risk"] = round_to_two_digits(excess)
        value = (basis @ coefficients).ravel() / unit
        if spec.curvature_noise_std:
            if state.curvature is None:
                limit = limit_curvature(geometry, data.problem, state.moments[0], coefficients[:, 0])
                state.curvature = release_curvature(spec, data, geometry, value, draws, limit).to_array()
                if run_state is not None:  # before anybody sees it: fresh noise would be another release
                    run_state.save_if_due(state, draws.rng, now=spec.secure)
            curvature = WhitenedCurvature.from_array(state.curvature)
            record = record_descent(spec, data.problem, geometry, state, coefficients[:, 0])
            estimate = estimate_one_step(
                record, geometry, curvature, data.problem, state.moments[0], self.flat_directions
            )
            auxiliary |= estimate.to_arrays()
        return MechanismOutput(value=value, n_steps=state.n_steps, auxiliary=auxiliary)


def initial_state(
    spec: WhitenedSpec, problem: Problem, moments: Floats, counts: Floats | None = None
) -> DescentState:
    """Return the state of a descent before its first step; iterates are relative to its start."""
    start = np.zeros((problem.n_columns, problem.loss.score_dimension))
    nothing = np.empty(0)
    counts = nothing if counts is None else counts
    return DescentState(
        counts=counts if spec.center_scales is None else nothing,
        center=nothing if spec.center_scales is None else counts,
        count_noise=spec.center_scales.center if spec.center_scales else spec.count_noise_std or 0.0,
        moments=moments,
        step=0,
        n_steps=spec.n_steps,
        theta=start,
        previous=start,
        totals=np.zeros((3, *start.shape)),
    )


def release_counts(spec: WhitenedSpec, data: Dataset, draws: NoiseDraws, noise_std: float | None) -> Floats:
    """Release the mean of weight x indicator of each class, with this noise; empty without noise.

    Where the spec asks for it, the center and the spread of the targets take their place.
    """
    if spec.center_scales is not None:
        return np.array(release_target_center(data, draws, spec.center_scales, is_exact=spec.secure))
    if noise_std is None:
        return np.empty(0)
    return release_mean_counts(data, draws, noise_std, is_exact=spec.secure)


def suit_targets(spec: WhitenedSpec, data: Dataset, counts: Floats) -> tuple[WhitenedSpec, Dataset]:
    """Return the spec and the data set with what counts, or a center and a spread, decide: post-processing.

    A loss that is narrower, as suits the spread, has noise in the same proportion to the bound on its slopes.
    """
    if spec.center_scales is None:
        return limit_row_norm(spec, data.problem, counts), data
    old, new = data.problem.loss, data.problem.loss.suit_spread(TargetCenter(*counts.tolist()).spread)
    slopes = new.slope_bound / old.slope_bound * (1 + 1e-15)
    spec = replace(
        spec,
        noise_std=slopes * spec.noise_std,
        approach_noise_std=slopes * spec.approach_noise_std,
        step_size=spec.step_size * old.step_curvature / new.step_curvature,
        coef_bound=spec.coef_bound * new.curved_distance / old.curved_distance,
    )
    return spec, data.with_loss(new)


def limit_row_norm(spec: WhitenedSpec, problem: Problem, counts: Floats) -> WhitenedSpec:
    """Return the spec with less allowance for long rows where the loss is flat at the constant model: post-processing.

    The allowance multiplies the noise of gradients. That of scores is this over the curvature, so the excess risk due
    to noise is in the same proportion to the sampling error for every curvature u if R^2 is proportional to u.
    """
    if not counts.size or spec.row_norm_factor <= 1:
        return spec
    assert spec.count_noise_std is not None
    shares = estimate_model_shares(problem, counts, spec.count_noise_std).shares
    curvature = min(1.0, fit_constant(problem, shares).curvature_fraction)
    return replace(spec, row_norm_factor=max(1.0, spec.row_norm_factor * math.sqrt(curvature)))


def descent_start(problem: Problem, geometry: WhitenedGeometry, state: DescentState) -> DescentStart:
    """Return the constant model of a released center, or of the first counts: post-processing.

    It is 0 without either. After one moment release, if the counts show no rare class, it is shrunk where its score is
    a logarithm of odds, and 0 elsewhere. Two releases mean that the signal is strong, where the start does not matter.
    """
    if state.center.size:
        constant = constant_of_center(problem, TargetCenter(*state.center.tolist()), state.count_noise)
        return _constant_start(problem, geometry, constant)
    formula, counts = problem.loss.slope_formula, (state.counts, state.count_noise)
    if state.counts.size:
        start = _constant_start(problem, geometry, constant_of_counts(problem, *counts))
        if len(state.moments) == 2 or not has_balanced_classes(problem, *counts):
            return start
        if formula is not None and formula.kind == "logistic":
            return start.shrink()
    zero = np.zeros((problem.n_columns, problem.loss.score_dimension))
    return DescentStart(zero, _constant_direction(problem, geometry), uncertainty=math.inf, is_counted=False)


def _recounted_answer(
    spec: WhitenedSpec, problem: Problem, geometry: WhitenedGeometry, state: DescentState
) -> DescentStart:
    """Return the constant model of both counts, which a run that counted again releases: post-processing."""
    assert spec.recount_noise_std is not None
    weights = np.array([state.count_noise, spec.recount_noise_std]) ** -2
    counts = (weights[0] * state.counts + weights[1] * state.second_counts) / weights.sum()
    constant = constant_of_counts(problem, counts, float(weights.sum() ** -0.5))
    return _constant_start(problem, geometry, constant)


def _constant_start(problem: Problem, geometry: WhitenedGeometry, constant: ConstantModel) -> DescentStart:
    unit = _constant_direction(problem, geometry)
    return DescentStart(
        unit[:, None] * constant.scores,
        unit,
        constant.curvature_fraction,
        constant.uncertainty,
        constant.is_best,
        target_variance=constant.target_variance,
    )


def _constant_direction(problem: Problem, geometry: WhitenedGeometry) -> Floats:
    """Return q [p] of the constant score 1; zeros where no column is known to be constant."""
    if problem.constant is None:
        return np.zeros(problem.n_columns)
    theta = constant_coefficients(problem, np.ones(problem.loss.score_dimension))[:, 0]
    return np.asarray(np.linalg.solve(geometry.transform.basis, theta * problem.row_norm))


def row_grid(spec: WhitenedSpec, problem: Problem) -> RowGrid:
    """Return the grid to which the rows of an exact run are rounded."""
    edge = spec.moment_noise_std * math.sqrt(2 * problem.n_columns)
    return public_row_grid(problem, row_bits=24 if edge < MIN_EDGE_OF_COARSE_ROWS else 20)


def release_second_moments(
    spec: WhitenedSpec, data: Dataset, draws: NoiseDraws, quadratic: QuadraticSums | None = None
) -> Floats:
    """Release the noisy second moments, [releases, p, p]; the second is taken in the coordinates of the first.

    The rows of an exact run must be on their grid. `quadratic` has its exact second moment for later use.
    """
    if spec.secure:
        return _release_exact_moments(spec, data, row_grid(spec, data.problem), draws.source, quadratic)
    rng = draws.rng
    exact = data.sum_over_blocks(second_moment_sum) / data.problem.n
    moments = add_symmetric_noise(spec, exact, rng)[None]
    if spec.n_moment_releases == 2:
        transformed = transformed_second_moment(data, whitening_geometry(spec, moments).transform, exact)
        moments = np.concatenate([moments, add_symmetric_noise(spec, transformed, rng)[None]])
    return moments


def _release_exact_moments(
    spec: WhitenedSpec, data: Dataset, grid: RowGrid, source: ByteSource, quadratic: QuadraticSums | None
) -> Floats:
    """Release the same moments from exact sums, to which a record adds a matrix of norm at most scale / n."""
    sums, n = ExactSums(data, grid), data.problem.n
    exact = sums.second_moment() if quadratic is None else quadratic.second_moment
    scale = sums.moment_scale(n)
    first = Dyadic(to_integers(exact), np.asarray(0))
    moments = _add_exact_noise(first, spec.moment_noise_std, scale, source)[None]
    if spec.n_moment_releases == 2:
        transform = whitening_geometry(spec, moments, grid).integer_transform
        assert transform is not None
        transformed = sums.whitened_second_moment(transform, exact)
        scale = sums.moment_scale(n, transform)
        second = _add_exact_noise(transformed, spec.moment_noise_std, scale, source)
        moments = np.concatenate([moments, second[None]])
    return moments


def _add_exact_noise(exact: Dyadic, noise_std: float, scale: float, source: ByteSource) -> Floats:
    """Return an exact second moment plus symmetric Gaussian noise on a public grid, divided by the scale."""
    return add_symmetric_gaussian_noise(exact.whole, exact.exponents, noise_std * scale, source) / scale


def add_symmetric_noise(spec: WhitenedSpec, exact: Floats, rng: np.random.Generator) -> Floats:
    """Return a second-moment matrix plus symmetric Gaussian noise."""
    noise = spec.moment_noise_std * sample_symmetric_noise(len(exact), rng)
    return np.asarray((exact + exact.T) / 2 + noise)


def whitening_geometry(spec: WhitenedSpec, moments: Floats, grid: RowGrid | None = None) -> WhitenedGeometry:
    """Return the whitened coordinates of these noisy moments, integer ones for rows on a grid: post-processing."""
    noise, two_releases, row_norm_factor = (
        spec.moment_noise_std,
        spec.n_moment_releases == 2,
        spec.row_norm_factor,
    )
    if grid is None:
        geometry, row_norm_factor = _first_geometry(moments[0], noise, two_releases, row_norm_factor, None)
    else:
        geometry, row_norm_factor = _last_first_geometry(
            moments[0].tobytes(), len(moments[0]), noise, two_releases, row_norm_factor, grid
        )
    if len(moments) == 1:
        return geometry
    geometry = whiten_second_release(geometry, moments[1], noise, row_norm_factor)
    return geometry if grid is None else geometry.round_to_integers(grid)


def _first_geometry(
    noisy: Floats, noise: float, two_releases: bool, row_norm_factor: float, grid: RowGrid | None
) -> tuple[WhitenedGeometry, float]:
    """Return the coordinates of a first release, and the row norm factor that it leaves for the second.

    Allowing for longer rows adds noise to the second release, which serves the directions below the noise of the first.
    So the allowance is reduced where something seems to be there, and kept where there seems to be nothing.
    """
    geometry = whiten_first_release(noisy, noise, two_releases, row_norm_factor)
    if row_norm_factor != 1 and geometry.spectrum.hidden_z > MAX_HIDDEN_Z:
        row_norm_factor **= ALLOWANCE_POWER_IF_HIDDEN
        geometry = whiten_first_release(noisy, noise, two_releases, row_norm_factor)
    return geometry if grid is None else geometry.round_to_integers(grid), row_norm_factor


@lru_cache(maxsize=1)
def _last_first_geometry(
    noisy: bytes, size: int, noise: float, two_releases: bool, row_norm_factor: float, grid: RowGrid
) -> tuple[WhitenedGeometry, float]:
    """Return the same for moments on a public grid; a run asks for it before and after its second release."""
    moments = np.frombuffer(noisy).reshape(size, size)
    return _first_geometry(moments, noise, two_releases, row_norm_factor, grid)


def step_sizes(
    spec: WhitenedSpec, geometry: WhitenedGeometry, n_steps: int, curvature: float = 1.0
) -> Floats:
    """Return the step size of each coordinate: as large as curvature allows, while noise stays within coef_bound.

    Where the approach found large scores, coefficients are large, and the allowance grows with the number of steps.
    """
    lengths = np.sqrt(np.einsum("ij,ij->j", geometry.transform.basis, geometry.transform.basis))
    noise_per_step = geometry.transform.bound * spec.combined_noise * n_steps * spec.n_steps
    return np.asarray(
        np.minimum(
            spec.step_size / (curvature * geometry.curvature_bounds),
            4 * spec.coef_bound / (noise_per_step * lengths),
        )
    )


def run_descent(
    spec: WhitenedSpec,
    data: Dataset,
    geometry: WhitenedGeometry,
    state: DescentState,
    draws: NoiseDraws,
    run_state: RunState | None = None,
    start: DescentStart | None = None,
    quadratic: QuadraticSums | None = None,
) -> Floats:
    """Run the remaining steps and return q [p, K]: the mean of the tail, shrunk if the spec asks for it.

    The noisy iterate at the end of the approach determines how many steps follow; their total cost does not depend on
    that number.
    """
    start = descent_start(data.problem, geometry, state) if start is None else start
    if has_recounted(spec, state):
        return _recounted_answer(spec, data.problem, geometry, state).center
    weighted = _weight_rows(data, geometry)
    if quadratic is None and geometry.integer_transform is not None:
        quadratic = QuadraticSums.of(data, geometry.integer_transform.grid)
    for last in (spec.n_approach_steps, None):
        etas = step_sizes(spec, geometry, state.n_steps, start.step_curvature)[:, None]
        path = spec.descent_path(state.n_steps)
        for _ in iterate_with_progress(
            range(state.step, state.n_steps if last is None else last), "whitened descent"
        ):
            _take_step(spec, weighted, geometry, state, start, path, etas, draws, quadratic)
            if state.step == last:
                if _counts_again(spec, geometry, state, start, etas[:, 0]):
                    return recount(spec, data, geometry, state, draws, run_state)
                state.n_steps = choose_n_steps(spec, data.problem, geometry, state, start, etas[:, 0])
            if run_state is not None:
                run_state.save_if_due(state, draws.rng, now=spec.secure and state.step == state.n_steps)
    noise = geometry.transform.bound * spec.noise_at_step(state.n_steps - 1, state.n_steps)
    score_noise = ScoreNoise(geometry.moments, etas[:, 0], noise, start.mean_curvature / spec.step_size, path)
    if state.totals.shape[-1] > 1:
        return _finish_classes(spec, data.problem, state, start, score_noise)
    value = state.totals[-1][:, 0]
    if spec.shrink:
        value = shrink_answer(spec, geometry, state, start, data.problem.n).value
    if not (start.unit.any() and is_guarded(spec, data.problem, start)):
        return np.asarray(start.center + (value[:, None] if spec.shrink else state.totals[-1]))
    return start.center + limit_deviation(value, state.totals[-1][:, 0], start, score_noise)[:, None]


def is_guarded(spec: WhitenedSpec, problem: Problem, start: DescentStart) -> bool:
    """Return whether an answer is limited towards the constant model, which a fit counts or a mean slope shows."""
    loss = problem.loss.unclipped_loss
    guards = loss.defaults is not None and loss.defaults.guards_constant
    return (start.is_counted and (guards or spec.recount_noise_std is not None)) or loss.is_quadratic


def _finish_classes(
    spec: WhitenedSpec, problem: Problem, state: DescentState, start: DescentStart, noise: ScoreNoise
) -> Floats:
    """Return q [p, K] of several scores, limited towards the constant model, and calibrated if slopes were clipped."""
    deviation = state.totals[-1]
    if start.unit.any() and is_guarded(spec, problem, start):
        deviation = limit_class_deviation(deviation, start, noise)
    q = start.center + deviation
    if not state.counts.size or getattr(problem.loss, "slope_clip", None) is None:
        return np.asarray(q)
    shares = estimate_shares(state.counts, state.count_noise, problem.n).shares
    return calibrate_clipped_scores(q, start, noise.moments, shares)


def shrink_answer(
    spec: WhitenedSpec, geometry: WhitenedGeometry, state: DescentState, start: DescentStart, n: int
) -> ShrinkageResult:
    """Shrink the mean of the tail of a finished descent, whose path indicates how large the effects are."""
    n_steps = state.n_steps
    noise = geometry.transform.bound * spec.noise_at_step(n_steps - 1, n_steps)
    etas, path = step_sizes(spec, geometry, n_steps, start.step_curvature), spec.descent_path(n_steps)
    known = (geometry, etas, noise, start.step_curvature / spec.step_size, path, n)
    windows = state.totals[:, :, 0]
    return (
        shrink_windows(windows, *known) if spec.n_moment_releases == 1 else shrink_tail(windows[-1], *known)
    )


MAX_RARE_CURVATURE = 0.1
"""Mean curvature of the loss at the constant model, over its bound, below which a class counts as rare."""
STEP_CHOICES = (16, 24, 32, 48, 64)
"""Numbers of steps among which a descent from a rare class's constant model chooses by predicted risk."""
EFFECTIVE_CURVATURE = 0.7
"""Curvature along the path from a constant model to a minimiser, over that at the constant model (by measurement)."""

MAX_RELATIVE_RISK = 0.8
"""Predicted risk, over that of the fewest steps, below which more steps are taken: the prediction itself is noisy."""
MIN_GAIN_IN_NOISE = 2.0
"""Variance of the scores over that of their noise at which an answer is expected to be kept."""


def choose_n_steps(
    spec: WhitenedSpec,
    problem: Problem,
    geometry: WhitenedGeometry,
    state: DescentState,
    start: DescentStart,
    etas: Floats,
) -> int:
    """Return how many steps a descent takes in all, from the noisy iterate after its approach: post-processing.

    Where a class is rare, the loss is flatter than the steps assume, and few steps end far from the minimiser. The
    number then minimises the predicted risk: (1 - phi)^2 D^2 of what the tail's mean misses, plus the variance that
    noise gives to its scores; D^2, the variance of the minimiser's scores, is estimated from the iterate.
    """
    fewest = spec.choose_n_steps(float(np.sqrt((geometry.moments @ state.theta**2).sum())))
    is_rare = start.unit.any() and start.mean_curvature < MAX_RARE_CURVATURE
    if not (spec.max_steps and is_rare and problem.bounds.classes == 2):
        return fewest
    curvature = EFFECTIVE_CURVATURE * start.mean_curvature / spec.step_size

    def predict(path: DescentPath, steps: Floats, noise: float) -> tuple[float, float]:
        """Return the fraction of the minimiser that the last window reaches, and the variance of its scores' noise."""
        response = window_response(path, np.minimum(steps * curvature * geometry.moments, 2.0))
        score_noise = ScoreNoise(geometry.moments, steps, geometry.transform.bound * noise, curvature, path)
        return float(response.reached_fraction[:, -1].mean()), score_noise.variance()

    last = DescentPath((Window(state.step - 1, state.step),))
    reached, variance = predict(last, etas, spec.noise_at_step(0, state.n_steps))
    _, rest = start.split(state.theta[:, 0], geometry.moments)
    square = max(float(geometry.moments @ rest**2) - variance, 0.0) / reached**2
    risks = {}
    for n_steps in (fewest, *(steps for steps in STEP_CHOICES if fewest < steps <= spec.max_steps)):
        steps = step_sizes(spec, geometry, n_steps, start.step_curvature)
        reached, variance = predict(
            spec.descent_path(n_steps), steps, spec.noise_at_step(n_steps - 1, n_steps)
        )
        is_seen = (
            reached**2 * square > MIN_GAIN_IN_NOISE * variance
        )  # else only the constant model would be left
        risks[n_steps] = (1 - reached) ** 2 * square + variance if is_seen else square
    best = min(risks, key=risks.__getitem__)
    return best if risks[best] < MAX_RELATIVE_RISK * risks[fewest] else fewest


def _counts_again(
    spec: WhitenedSpec, geometry: WhitenedGeometry, state: DescentState, start: DescentStart, etas: Floats
) -> bool:
    """Return whether the classes are counted again instead of taking the steps after the approach."""
    if spec.recount_noise_std is None or not start.is_counted:
        return False
    last = DescentPath((Window(state.step - 1, state.step),))
    noise = geometry.transform.bound * spec.noise_at_step(0, state.n_steps)
    curvature = start.mean_curvature / spec.step_size
    score_noise = ScoreNoise(geometry.moments, etas, noise, curvature, last)
    return is_better_counted(state.theta, start, score_noise)


def has_recounted(spec: WhitenedSpec, state: DescentState) -> bool:
    """Return whether a second count took the place of the steps after the approach."""
    return 0 < spec.n_approach_steps == state.n_steps


def recount(
    spec: WhitenedSpec,
    data: Dataset,
    geometry: WhitenedGeometry,
    state: DescentState,
    draws: NoiseDraws,
    run_state: RunState | None,
) -> Floats:
    """Count the classes with the budget of the remaining steps, and return the constant model of both counts, in q."""
    assert spec.recount_noise_std is not None
    state.second_counts = release_counts(spec, data, draws, spec.recount_noise_std)
    state.n_steps = state.step
    if run_state is not None:
        run_state.save_if_due(state, draws.rng, now=spec.secure)
    return _recounted_answer(spec, data.problem, geometry, state).center


def record_descent(
    spec: WhitenedSpec,
    problem: Problem,
    geometry: WhitenedGeometry,
    state: DescentState,
    answer: Floats,
) -> DescentRecord:
    """Return the points and noisy gradients of a finished descent, recovered from its iterates: post-processing."""
    start, n_steps = descent_start(problem, geometry, state), state.n_steps
    approach, rest = (
        step_sizes(spec, geometry, steps, start.step_curvature) for steps in (spec.n_steps, n_steps)
    )
    origin, center = np.zeros(len(answer)), start.center[:, 0]
    points, gradients = np.zeros((2, n_steps, len(answer)))
    theta = previous = origin
    for t in range(n_steps):
        points[t] = theta + (t / (t + 3)) * (theta - previous)
        previous, theta = theta, state.iterates[t][:, 0]
        gradients[t] = (points[t] - theta) / (approach if t < spec.n_approach_steps else rest)
    noise = [geometry.transform.bound * spec.noise_at_step(t, n_steps) for t in range(n_steps)]
    last = np.mean([state.iterates[t][:, 0] for t in range(n_steps - max(n_steps // 4, 2), n_steps)], axis=0)
    first, shrinkage, origin_noise = 0, np.zeros((len(answer),) * 2), np.zeros(len(answer))
    if has_recounted(spec, state):  # the answer is a constant model, and the path serves the intervals alone
        final = _recounted_answer(spec, problem, geometry, state)
        origin_noise = final.uncertainty * final.unit
    else:
        first = spec.descent_path(n_steps).windows[-1].first
        shrinkage = _linearize_answer(spec, geometry, state, start, answer - center, problem.n)
        if start.center.any():
            origin_noise = start.uncertainty * start.unit
    return DescentRecord(
        center + points,
        gradients,
        np.array(noise),
        rest,
        first,
        center + last,
        answer,
        shrinkage,
        origin_noise,
    )


def _linearize_answer(
    spec: WhitenedSpec,
    geometry: WhitenedGeometry,
    state: DescentState,
    start: DescentStart,
    deviation: Floats,
    n: int,
) -> Floats:
    """Return the matrix [p, p] by which the mean of the tail, relative to the start, became the answer.

    Factors of shrinkage and of the limit towards the constant model count as fixed: they are read off the answer.
    """
    tail = state.totals[-1][:, 0]
    linear_map = shrink_answer(spec, geometry, state, start, n).linear_map if spec.shrink else None
    if linear_map is None:  # unshrunk, or by windows of the path: then by as much as the whole answer is
        linear_map = np.eye(len(tail))
    moments = geometry.moments
    constant = np.outer(start.unit, moments * start.unit)
    constant /= max(float(np.trace(constant)), 1e-300)  # of a deviation, what its mean score is due to
    (shift, _), (kept, left) = (start.split(each, moments) for each in (tail, deviation))
    varied = linear_map - constant @ linear_map
    lengths = [float(np.sqrt(moments @ each**2)) for each in (left, varied @ tail)]
    share = min(max(float(kept) / float(shift), 0.0), 1.0) if shift else 0.0
    return np.asarray(min(lengths[0] / max(lengths[1], 1e-300), 1.0) * varied + share * constant)


def _weight_rows(data: Dataset, geometry: WhitenedGeometry) -> Dataset:
    """Return the records with the weights that bound their gradients; integers where sums are exact."""
    if geometry.integer_transform is not None:
        transform = geometry.integer_transform
        if has_full_limits(data, transform):
            return data
        return data.with_weights(limit_records, transform.grid, transform)
    row_filter = make_short_row_filter(geometry.transform)
    if row_filter is not None and row_filter.all_short:
        return data
    return data.with_scaled_weights(row_weights, geometry.transform, row_filter)


def _take_step(
    spec: WhitenedSpec,
    data: Dataset,
    geometry: WhitenedGeometry,
    state: DescentState,
    start: DescentStart,
    path: DescentPath,
    etas: Floats,
    draws: NoiseDraws,
    quadratic: QuadraticSums | None,
) -> None:
    """Take one accelerated step with a noisy gradient, and add its iterate to the means of the windows."""
    problem, basis, bound, t = data.problem, geometry.transform.basis, geometry.transform.bound, state.step
    point = state.theta + (t / (t + 3)) * (state.theta - state.previous)
    theta, noise_std = basis @ (start.center + point) / problem.row_norm, spec.noise_at_step(t, state.n_steps)
    if geometry.integer_transform is not None:
        transform = geometry.integer_transform
        noisy = release_gradient(
            data,
            transform.grid,
            theta,
            noise_std,
            divisor=problem.n,
            transform=transform,
            quadratic=quadratic,
            source=draws.source,
        )
    else:
        total = data.gradient_sum(problem.loss, theta.reshape(-1, 1)).reshape(point.shape)
        noise = noise_std * draws.rng.standard_normal(point.shape)
        noisy = basis.T @ total / (problem.row_norm * bound * problem.n) + noise
    state.previous, state.theta = state.theta, point - etas * (bound * noisy)
    state.step = t + 1
    if spec.curvature_noise_std or t >= last_third_start(state.n_steps) - 2:
        state.iterates[t] = state.theta
    for total, window in zip(state.totals, path.windows, strict=True):
        if window.first <= t < window.last:
            total += state.theta / (window.last - window.first)
