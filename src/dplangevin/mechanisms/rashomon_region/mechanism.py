"""Run the plan of a region, charged once: centre, curvature, gap, gradient, flip levels and slack."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin._rng import SharedGenerator
from dplangevin.accounting.charge import charge_then_release
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.data.dataset import Dataset
from dplangevin.data.exact_sums import ExactSums
from dplangevin.data.integer_grids import RowGrid, carry, snap_point, to_integers
from dplangevin.data.sources import RecordReader, read_records
from dplangevin.mechanisms.mechanism import AnswerMechanism, NoiseDraws, Release, fingerprint_dataset
from dplangevin.mechanisms.noisy_answers.curvature import unpack_symmetric
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums, to_whole_numbers
from dplangevin.mechanisms.rashomon_region.minimizers import (
    ROUNDING_TOLERANCE,
    excess_totals,
    minimize_near,
    rounding_error,
)
from dplangevin.mechanisms.rashomon_region.objective import (
    PAIR_WEIGHT,
    Ellipsoid,
    OuterEllipsoid,
    RegionObjective,
    certified_scales,
    clipped_excess_sums,
    exact_majorant_and_hessian_sums,
    exact_majorant_sum,
    find_outer_ellipsoid,
    inner_radius,
    majorant_and_hessian_sums,
    majorant_sum,
    scaled_gradient_sum,
    truncation_bound,
)
from dplangevin.mechanisms.rashomon_region.planning import (
    GAP_TOLERANCE,
    MAX_FLIP_INPUTS,
    FlipLevel,
    RegionPlan,
    bound_levels,
    can_flip,
    flip_totals,
    has_proved_flips,
    max_loss_difference,
    max_loss_difference_within,
    n_gap_steps,
    smallest_totals,
)
from dplangevin.mechanisms.rashomon_region.spec import CONTRIBUTION_STEP, SlackSpec, slack_spec
from dplangevin.mechanisms.run_state import CheckpointPath, RunState
from dplangevin.sampling.exact_noise import (
    add_rounded_gaussian_noise,
    add_rounded_noise,
    add_symmetric_gaussian_noise,
    gaussian_density_scale,
)


class NoisySlack(AnswerMechanism[SlackSpec]):
    """Add Gaussian noise of the spec's scale to the largest total (or to the vector)."""

    def release_answers(
        self, spec: SlackSpec, exact: Sequence[Floats], draws: NoiseDraws
    ) -> tuple[Floats, ...]:
        if spec.secure:
            steps = to_whole_numbers(exact[0], CONTRIBUTION_STEP)
            scale = gaussian_density_scale(spec.scale)
            return (add_rounded_noise(steps, CONTRIBUTION_STEP, scale, 2.0, draws.source),)
        return (exact[0] + spec.scale * draws.rng.standard_normal(spec.answers),)


Directions = Callable[[Floats, Ellipsoid, Floats, np.random.Generator], Floats]
"""(center, ellipsoid, radii, rng) -> directions[dimension, k] of norm at most 1 in S, from public values and rng."""
MAX_GAP_STEPS = 20_000
MAX_STEPS = 2.0**50
"""The largest total of exact contributions, in steps; larger ones, which say nothing about a region, count as that."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionRelease:
    """The released values of a region, and their post-processing.

    Parameters
    ----------
    center : the released parameters. matrix : the noisy majorant (softmax: half the second moment).
    ellipsoid : the ellipsoid of matrix.
    slack : tau, the upper bound on T; None when no threshold was left to certify. gap : Gam, None unless requested.
    directions [dimension, k], lengths [thresholds], scales [thresholds, k] : the certified points are center + length
        * scale * direction.
    thresholds : those that are certified relative to the centre: psi, or psi - Gam; 0 where nothing is certified.
    inner_region : (U, a radius per threshold): every model with |theta - center|_U within it is in the set of the
        best model; None unless the gap was requested and the ball of radius rho is large enough for the proof.
    seeded, n_steps : whether the noise came from a seed, and the steps of the centre's fit.
    gradient : the noisy gradient at the centre, None without outer statements.
    outer : per threshold, an ellipsoid that contains every model of the set; None where none is proved.
    flips : flip-cost levels.
    """

    center: Floats
    matrix: Floats
    ellipsoid: Ellipsoid
    slack: float | None
    gap: float | None
    directions: Floats
    lengths: Floats
    thresholds: Floats
    scales: Floats
    inner_region: tuple[Floats, tuple[float, ...]] | None
    seeded: bool
    n_steps: int
    gradient: Floats | None = None
    outer: tuple[OuterEllipsoid | None, ...] = ()
    flips: tuple[FlipLevel, ...] = ()
    ledger_head: str | None = None  # set when the budget is charged

    def digest(self) -> str:
        """Return a hash of what was released."""
        content = hashlib.sha256(self.center.tobytes())
        content.update(self.matrix.tobytes())
        content.update(repr((self.slack, self.gap, *self.flips)).encode())
        content.update(b"" if self.gradient is None else self.gradient.tobytes())
        return content.hexdigest()

    def certified_points(self, index: int) -> Floats:
        """Return the certified points of one threshold, [dimension, k]."""
        return np.asarray(self.center[:, None] + self.lengths[index] * self.scales[index] * self.directions)


def run_region(
    plan: RegionPlan,
    data: Dataset | RecordReader,
    center: Callable[[SharedGenerator], Release],
    directions: Directions,
    random_state: object,
    *,
    public: str = "",
    inputs: Floats | None = None,
    ledger: BudgetAccount | None = None,
    checkpoint: CheckpointPath = None,
) -> RegionRelease:
    """Charge the composed guarantee once, then release the region.

    Parameters
    ----------
    center : runs the centre's plan on the same data with the given generator.
    directions : chooses the directions of the points, see Directions.
    public : what else identifies this run (hashes of the public inputs, and of the public data of the centre).
    inputs : encoded inputs of the flip-cost levels.
    """
    more = [
        certified_spec and certified_spec.spec for certified_spec in (plan.gap, plan.gradient, plan.flips)
    ]
    parts = (plan.curvature.spec, plan.slack.spec, *more)
    settings = (plan.objective, plan.thresholds, plan.confidence, plan.radius, plan.flip_shares, public)
    run_state = RunState.for_fit(checkpoint, plan.center, parts, *settings, ledger=ledger)

    def release(rng: np.random.Generator, seeded: bool) -> RegionRelease:
        records = read_records(data)
        if run_state is not None:
            run_state.check_records(lambda salt: fingerprint_dataset(records, salt))
        shared = SharedGenerator(rng, seeded or run_state is not None)
        return _release_region(plan, records, center(shared), directions, shared, seeded, inputs)

    return charge_then_release(
        plan, release, random_state, ledger=ledger, checkpoint=run_state, rows_per_person=1
    )


def _release_region(
    plan: RegionPlan,
    data: Dataset,
    center_release: Release,
    directions: Directions,
    shared: SharedGenerator,
    seeded: bool,
    inputs: Floats | None,
) -> RegionRelease:
    rng, objective, theta = shared.rng, plan.objective, np.array(center_release.value, float).ravel()
    grid: RowGrid | None
    if plan.is_exact:
        grid = RowGrid(row_norm=objective.row_norm)
        data = data.with_rounded_rows(grid)
        theta = _snap_columns(theta[:, None], objective, grid)[:, 0]
        matrix, hessian = _release_exact_curvatures(plan, data, theta, grid, shared)
    else:
        grid = None
        matrix, hessian = _release_curvatures(plan, data, theta, rng)
    ellipsoid = Ellipsoid.from_matrix(matrix, plan.noise_floor, objective.ridge, objective.n_classes)
    gap = None if plan.gap is None else _release_gap(plan, data, theta, shared)
    gradient, outer = (
        (None, ()) if plan.gradient is None else _release_outer(plan, data, theta, hessian, grid, shared)
    )
    flips = (
        ()
        if plan.flips is None or inputs is None
        else _release_flips(plan, data, theta, inputs[:MAX_FLIP_INPUTS], shared)
    )
    thresholds = np.maximum(np.array(plan.thresholds) - (gap or 0.0), 0.0)
    lengths = np.sqrt([plan.squared_radius(psi) for psi in thresholds])
    unit_directions = directions(theta, ellipsoid, lengths, rng)
    if grid is not None:
        unit_directions = _snap_columns(unit_directions, objective, grid)
    nonzero = np.flatnonzero(thresholds > 0)
    certified, slack = np.zeros((len(thresholds), unit_directions.shape[1])), None
    if nonzero.size:
        slack, certified[nonzero] = _release_slack(
            plan, data, theta, unit_directions, thresholds[nonzero], lengths[nonzero], shared
        )
    return RegionRelease(
        center=theta,
        matrix=matrix,
        ellipsoid=ellipsoid,
        slack=slack,
        gap=gap,
        directions=unit_directions,
        lengths=lengths,
        thresholds=thresholds,
        scales=certified,
        inner_region=None if gap is None else _inner_region(plan, matrix, gap, grid),
        seeded=seeded,
        n_steps=center_release.n_steps,
        gradient=gradient,
        outer=outer,
        flips=flips,
    )


def _snap_columns(points: Floats, objective: RegionObjective, grid: RowGrid) -> Floats:
    """Round points [p K, k] to so few binary digits that the scores of rows on the grid are exact."""
    snapped = snap_point(points.reshape(objective.n_columns, -1), grid)
    return np.ascontiguousarray(snapped.reshape(points.shape))


def _release_exact_curvatures(
    plan: RegionPlan, data: Dataset, center: Floats, grid: RowGrid, shared: SharedGenerator
) -> tuple[Floats, Floats]:
    """Release the same from sums of whole numbers, to which a record adds a matrix, or two, of norm <= max_norm^2."""
    objective = plan.objective
    point = center.reshape(objective.n_columns, -1)
    unit = objective.loss.majorant_bound * grid.unit**2
    deviation, source = plan.curvature_sum_noise_std / unit, NoiseDraws.from_generator(*shared).source
    task = exact_majorant_and_hessian_sums if plan.releases_hessian else exact_majorant_sum
    whole = to_integers(carry(data.sum_over_blocks(task, objective, point, grid)))

    def add_noise(sums: NDArray[Any]) -> Floats:
        return unit * add_symmetric_gaussian_noise(sums, np.asarray(0), deviation, source) / objective.n

    if plan.releases_hessian:
        hessian, more = (add_noise(sums) for sums in whole)
        # the second sum has the weight PAIR_WEIGHT in it
        return hessian + more / PAIR_WEIGHT, hessian
    matrix = objective.curvature_noise_factor * add_noise(whole)
    return matrix, matrix


def _release_curvatures(
    plan: RegionPlan, data: Dataset, center: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Release the noisy majorant and the noisy Hessian (the same matrix where only one is released)."""
    objective = plan.objective
    task = majorant_and_hessian_sums if plan.releases_hessian else majorant_sum
    noisy = (
        NoisySums()
        .run(plan.curvature, lambda: [data.sum_over_blocks(task, objective, center)], rng)
        .values[0]
    )
    if plan.releases_hessian:
        hessian, more = (unpack_symmetric(half) / objective.n for half in np.split(noisy, 2))
        return hessian + more / PAIR_WEIGHT, hessian
    matrix = objective.curvature_noise_factor * unpack_symmetric(noisy) / objective.n
    return matrix, matrix


def _release_outer(
    plan: RegionPlan,
    data: Dataset,
    center: Floats,
    hessian: Floats,
    grid: RowGrid | None,
    shared: SharedGenerator,
) -> tuple[Floats, tuple[OuterEllipsoid | None, ...]]:
    """Release the noisy gradient, and return it with the outer ellipsoid that it proves for each threshold."""
    assert plan.gradient is not None
    objective = plan.objective
    max_slope = objective.max_slope(center)
    unit, spec = max_slope * objective.row_norm / objective.n, slack_spec(plan.gradient)
    noise_eigenvalue, rounding = plan.hessian_noise_floor, 0.0
    if grid is None:
        answer = NoisySlack().run(
            plan.gradient,
            lambda: [data.sum_over_blocks(scaled_gradient_sum, objective, center, max_slope)],
            shared.rng,
        )
        noisy = answer.values[0]
    else:
        noisy = _release_exact_gradient(spec, data, objective, center, max_slope, grid, shared)
        noise_eigenvalue += truncation_bound(objective, grid) + _release_rounding(plan)
        # slopes are rounded to half a step of max_limit, and the release to a grid of 2^-20 of its noise
        rounding = max_slope * objective.row_norm * (0.5 / grid.max_limit + 2.0**-40)
        rounding += math.sqrt(objective.n_columns) * unit * spec.scale * 2.0**-20
    gradient = unit * noisy + objective.ridge * center
    return gradient, tuple(
        find_outer_ellipsoid(
            objective,
            center,
            hessian,
            gradient,
            noise_eigenvalue=noise_eigenvalue,
            gradient_deviation=unit * spec.scale,
            threshold=psi,
            failure=plan.failure_probability / len(plan.thresholds),
            gradient_error=rounding,
        )
        for psi in plan.thresholds
    )


def _release_exact_gradient(
    spec: SlackSpec,
    data: Dataset,
    objective: RegionObjective,
    center: Floats,
    max_slope: float,
    grid: RowGrid,
    shared: SharedGenerator,
) -> Floats:
    """Release sum slope x / (max_slope B) from whole numbers, to which a record adds at most max_limit max_norm."""
    formula = objective.loss.slope_formula
    assert formula is not None
    clipped = replace(formula, low=max(formula.low, -max_slope), high=min(formula.high, max_slope))
    exact = ExactSums(data, grid).gradient(clipped, max_slope, center[:, None])
    unit = grid.max_limit * grid.max_norm
    source = NoiseDraws.from_generator(*shared).source
    return add_rounded_gaussian_noise(exact.whole, exact.exponents, spec.scale * unit, source)[:, 0] / unit


def _release_flips(
    plan: RegionPlan, data: Dataset, center: Floats, rows: Floats, shared: SharedGenerator
) -> tuple[FlipLevel, ...]:
    """Release two-sided bounds on the thresholds at which the stated fractions of the rows are ambiguous."""
    assert plan.flips is not None
    objective, spec = plan.objective, slack_spec(plan.flips)
    possible = int(can_flip(rows, center, plan.radius).sum())
    counts = smallest_totals(np.zeros(len(rows)), plan.flip_shares)[1]

    def exact_answer() -> list[Floats]:
        totals = flip_totals(data, objective, center, rows, plan.radius, proved=plan.is_exact)
        return [_round_answer(plan, smallest_totals(totals, plan.flip_shares)[0])]

    if plan.is_exact and not has_proved_flips(objective, center, plan.radius):
        # decided by public numbers: nothing is released, and nothing is stated
        noisy, deviation = np.zeros(len(counts)), math.inf
    else:
        random_state = shared if plan.is_exact else shared.rng
        noisy, deviation = NoisySlack().run(plan.flips, exact_answer, random_state).values[0], spec.scale
    return bound_levels(
        noisy,
        possible,
        counts,
        plan.flip_shares,
        n_inputs=len(rows),
        radius=plan.radius,
        unit=max_loss_difference(objective, plan.radius) / objective.n,
        deviation=deviation,
        failure=plan.failure_probability,
    )


def _round_answer(plan: RegionPlan, totals: Floats) -> Floats:
    """Answers that are off by less than their tolerance, on the grid of exact noise; larger ones say nothing."""
    if not plan.is_exact:
        return np.clip(totals, -1e300, 1e300)
    return np.clip(np.rint(totals / CONTRIBUTION_STEP), -MAX_STEPS, MAX_STEPS) * CONTRIBUTION_STEP


def _release_rounding(plan: RegionPlan) -> float:
    """Bound the eigenvalues of what rounding adds to the noise of a matrix: entries by at most 2^-20 of it."""
    return plan.objective.n_columns * plan.curvature_noise_std * 2.0**-20


def _inner_region(
    plan: RegionPlan, matrix: Floats, gap: float, grid: RowGrid | None
) -> tuple[Floats, tuple[float, ...]] | None:
    """Return the inner region (C2) in the norm of U, if |g|_(U^-1) <= sqrt(2 Gam) follows: rho^2 u_min >= 2 Gam."""
    above = plan.noise_floor + plan.objective.ridge
    if grid is not None:  # rounded rows may fall short; of two matrices the second counts by 1 / PAIR_WEIGHT
        above += (1 + 1 / PAIR_WEIGHT) * truncation_bound(plan.objective, grid) + _release_rounding(plan)
    upper = matrix + above * np.eye(len(matrix))
    least = float(np.linalg.eigvalsh(upper)[0])
    if least <= 0 or plan.radius**2 * least < 2 * gap:
        return None
    return upper, tuple(inner_radius(gap, psi, best=True) for psi in plan.thresholds)


def _release_slack(
    plan: RegionPlan,
    data: Dataset,
    center: Floats,
    directions: Floats,
    thresholds: Floats,
    lengths: Floats,
    shared: SharedGenerator,
) -> tuple[float, Floats]:
    """Release the slack: return tau, and the certified scale of every point."""
    objective = plan.objective
    points = [center[:, None] + length * directions for length in lengths]
    limits = np.array([objective.loss_difference_bounds(center, block) for block in points])
    penalties = np.array([objective.penalty_difference(center, block) for block in points])
    usable = np.isfinite(limits) & (limits > 0)
    safe = np.where(usable, limits, 1.0)
    fixed = objective.n * (penalties - thresholds[:, None]) / safe

    step = CONTRIBUTION_STEP if plan.is_exact else 0.0

    def exact_answer() -> list[Floats]:
        sums = data.sum_over_blocks(
            clipped_excess_sums, objective, center, directions, lengths, safe, step
        ).reshape(safe.shape)
        if plan.is_exact:  # what is public is rounded up to whole steps as well
            public = np.clip(np.ceil(fixed / step), -MAX_STEPS, MAX_STEPS).astype(np.int64)
            largest = int(np.where(usable, sums + public, -int(MAX_STEPS)).max())
            return [np.array([min(max(largest, -MAX_STEPS), MAX_STEPS) * step])]
        totals = np.where(usable, sums + fixed, -math.inf)
        return [np.array([np.clip(totals.max(), -1e300, 1e300)])]

    random_state = shared if plan.is_exact else shared.rng
    noisy = float(NoisySlack().run(plan.slack, exact_answer, random_state).values[0][0])
    slack = noisy / objective.n + plan.noise_quantile * plan.slack_noise_std
    certified = certified_scales(slack, thresholds, safe)
    return slack, np.where(limits > 0, np.where(usable, certified, 0.0), 1.0)


def _release_gap(plan: RegionPlan, data: Dataset, center: Floats, shared: SharedGenerator) -> float:
    """Release Gam >= F(c) - min over |d| <= rho of F(c + d), with probability 1 - beta over its noise."""
    assert plan.gap is not None
    objective, rho = plan.objective, plan.radius
    limit = _max_loss_difference(plan, center)
    tolerance = GAP_TOLERANCE * limit / objective.n
    steps = n_gap_steps(objective, rho, limit)
    rounding = rounding_error(objective, center, rho, steps, limit) if plan.is_exact else 0.0

    def exact_answer() -> list[Floats]:
        minimizer = minimize_within_radius(data, plan, center, steps)[:, None]
        decrease = -excess_totals(data, objective, center, minimizer - center[:, None], limit)
        return [_round_answer(plan, np.maximum(decrease, 0.0))]

    if steps > MAX_GAP_STEPS or not rounding <= ROUNDING_TOLERANCE:
        # a public bound replaces the measured gap, so nothing is released
        return limit + objective.ridge / 2 * float(center @ center)
    released = NoisySlack().run(plan.gap, exact_answer, shared if plan.is_exact else shared.rng)
    spec = slack_spec(plan.gap)
    unit = limit / objective.n
    noisy = float(released.values[0][0]) + ROUNDING_TOLERANCE + plan.noise_quantile * spec.scale
    return max(0.0, unit * noisy) + tolerance


def _max_loss_difference(plan: RegionPlan, center: Floats) -> float:
    """Return Lam for the whole ball of radius rho around the centre."""
    return max_loss_difference_within(plan.objective, center, plan.radius)


def minimize_within_radius(data: Dataset, plan: RegionPlan, center: Floats, steps: int) -> Floats:
    """Minimize F within rho of the centre by a public number of steps of `minimize_near`."""
    rho = plan.radius

    def project(moves: Floats) -> Floats:
        length = float(np.linalg.norm(moves))
        return moves * min(1.0, rho / length if length > 0 else 1.0)

    start = np.zeros((len(center), 1))
    move = minimize_near(data, plan.objective, center, start, project, rho, steps, proved=plan.is_exact)
    return np.asarray(center + move[:, 0])
