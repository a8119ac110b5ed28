"""Run the plan of a region, charged once: centre, curvature, gap, gradient, flip levels and slack."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._rng import SharedGenerator
from dplangevin.accounting.budget_account import BudgetAccount
from dplangevin.accounting.charge import charge_then_release
from dplangevin.data.dataset import Dataset
from dplangevin.data.integer_grids import RowGrid, carry, snap_point, to_integers
from dplangevin.data.sources import RecordReader, read_records
from dplangevin.mechanisms.mechanism import AnswerMechanism, NoiseDraws, fingerprint_dataset
from dplangevin.mechanisms.noisy_answers.curvature import unpack_symmetric
from dplangevin.mechanisms.noisy_answers.mechanism import NoisySums, to_whole_numbers
from dplangevin.mechanisms.rashomon_region.ellipsoid import Ellipsoid, certified_scales, inner_radius
from dplangevin.mechanisms.rashomon_region.flips import (
    MAX_FLIP_INPUTS,
    FlipLevel,
    bound_levels,
    can_flip,
    flip_totals,
    max_loss_difference,
    smallest_totals,
)
from dplangevin.mechanisms.rashomon_region.objective import (
    PAIR_WEIGHT,
    OuterEllipsoid,
    RegionObjective,
    clipped_excess_sums,
    exact_majorant_sum,
    find_outer_ellipsoid,
    majorant_and_hessian_sums,
    majorant_sum,
    scaled_gradient_sum,
)
from dplangevin.mechanisms.rashomon_region.planning import GAP_TOLERANCE, RegionPlan
from dplangevin.mechanisms.rashomon_region.spec import CONTRIBUTION_STEP, SlackSpec, slack_spec
from dplangevin.mechanisms.release import Release
from dplangevin.mechanisms.run_state import CheckpointPath, RunState
from dplangevin.sampling.exact_noise import (
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
    if plan.is_exact:
        grid = RowGrid(row_norm=objective.row_norm)
        data = data.with_rounded_rows(grid)
        theta = _snap_columns(theta[:, None], objective, grid)[:, 0]
        matrix = hessian = _release_exact_majorant(plan, data, theta, grid, shared)
    else:
        matrix, hessian = _release_curvatures(plan, data, theta, rng)
    ellipsoid = Ellipsoid.from_matrix(matrix, plan.noise_floor, objective.ridge, objective.n_classes)
    gap = None if plan.gap is None else _release_gap(plan, data, theta, rng)
    gradient, outer = (None, ()) if plan.gradient is None else _release_outer(plan, data, theta, hessian, rng)
    flips = (
        ()
        if plan.flips is None or inputs is None
        else _release_flips(plan, data, theta, inputs[:MAX_FLIP_INPUTS], rng)
    )
    thresholds = np.maximum(np.array(plan.thresholds) - (gap or 0.0), 0.0)
    lengths = np.sqrt([plan.squared_radius(psi) for psi in thresholds])
    unit_directions = directions(theta, ellipsoid, lengths, rng)
    if plan.is_exact:
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
        inner_region=None if gap is None else _inner_region(plan, matrix, gap),
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


def _release_exact_majorant(
    plan: RegionPlan, data: Dataset, center: Floats, grid: RowGrid, shared: SharedGenerator
) -> Floats:
    """Release the noisy majorant from a sum of whole numbers, to which a record adds a matrix of norm <= max_norm^2."""
    objective = plan.objective
    point = center.reshape(objective.n_columns, -1)
    whole = to_integers(carry(data.sum_over_blocks(exact_majorant_sum, objective, point, grid)))
    unit = objective.loss.majorant_bound * grid.unit**2
    noisy = add_symmetric_gaussian_noise(
        whole, np.asarray(0), plan.curvature_sum_noise_std / unit, NoiseDraws.from_generator(*shared).source
    )
    return np.asarray(objective.curvature_noise_factor * unit * noisy / objective.n)


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
    plan: RegionPlan, data: Dataset, center: Floats, hessian: Floats, rng: np.random.Generator
) -> tuple[Floats, tuple[OuterEllipsoid | None, ...]]:
    """Release the noisy gradient, and return it with the outer ellipsoid that it proves for each threshold."""
    assert plan.gradient is not None
    objective = plan.objective
    max_slope = objective.max_slope(center)
    answer = NoisySlack().run(
        plan.gradient, lambda: [data.sum_over_blocks(scaled_gradient_sum, objective, center, max_slope)], rng
    )
    unit, spec = max_slope * objective.row_norm / objective.n, slack_spec(plan.gradient)
    gradient = unit * answer.values[0] + objective.ridge * center
    return gradient, tuple(
        find_outer_ellipsoid(
            objective,
            center,
            hessian,
            gradient,
            noise_eigenvalue=plan.hessian_noise_floor,
            gradient_deviation=unit * spec.scale,
            threshold=psi,
            failure=plan.failure_probability / len(plan.thresholds),
        )
        for psi in plan.thresholds
    )


def _release_flips(
    plan: RegionPlan, data: Dataset, center: Floats, rows: Floats, rng: np.random.Generator
) -> tuple[FlipLevel, ...]:
    """Release two-sided bounds on the thresholds at which the stated fractions of the rows are ambiguous."""
    assert plan.flips is not None
    objective, spec = plan.objective, slack_spec(plan.flips)
    possible = int(can_flip(rows, center, plan.radius).sum())

    def exact_answer() -> list[Floats]:
        totals = flip_totals(data, objective, center, rows, plan.radius)
        return [np.clip(smallest_totals(totals, plan.flip_shares)[0], -1e300, 1e300)]

    counts = smallest_totals(np.zeros(len(rows)), plan.flip_shares)[1]
    return bound_levels(
        NoisySlack().run(plan.flips, exact_answer, rng).values[0],
        possible,
        counts,
        plan.flip_shares,
        n_inputs=len(rows),
        radius=plan.radius,
        unit=max_loss_difference(objective, plan.radius) / objective.n,
        deviation=spec.scale,
        failure=plan.failure_probability,
    )


def _inner_region(plan: RegionPlan, matrix: Floats, gap: float) -> tuple[Floats, tuple[float, ...]] | None:
    """Return the inner region (C2) in the norm of U, if |g|_(U^-1) <= sqrt(2 Gam) follows: rho^2 u_min >= 2 Gam."""
    upper = matrix + (plan.noise_floor + plan.objective.ridge) * np.eye(len(matrix))
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


def _release_gap(plan: RegionPlan, data: Dataset, center: Floats, rng: np.random.Generator) -> float:
    """Release Gam >= F(c) - min over |d| <= rho of F(c + d), with probability 1 - beta over its noise."""
    assert plan.gap is not None
    objective, rho = plan.objective, plan.radius
    limit = _max_loss_difference(plan, center)
    tolerance = GAP_TOLERANCE * limit / objective.n
    steps = math.ceil(rho * math.sqrt(2 * objective.smoothness / tolerance))

    def exact_answer() -> list[Floats]:
        minimizer = minimize_within_radius(data, plan, center, min(steps, MAX_GAP_STEPS))[:, None]
        move = np.ones((1, 1))
        sums = data.sum_over_blocks(
            clipped_excess_sums, objective, center, minimizer - center[:, None], move[0], limit * move
        )
        decrease = -(
            float(sums[0]) + objective.n * float(objective.penalty_difference(center, minimizer)[0]) / limit
        )
        return [np.array([max(decrease, 0.0)])]

    if steps > MAX_GAP_STEPS:  # a public bound replaces the measured gap, so nothing is released
        return limit + objective.ridge / 2 * float(center @ center)
    released = NoisySlack().run(plan.gap, exact_answer, rng)
    spec = slack_spec(plan.gap)
    unit = limit / objective.n
    return max(0.0, unit * (float(released.values[0][0]) + plan.noise_quantile * spec.scale)) + tolerance


def _max_loss_difference(plan: RegionPlan, center: Floats) -> float:
    """Return Lam for the whole ball of radius rho around the centre."""
    objective, rho = plan.objective, plan.radius
    size = float(np.linalg.norm(center))
    along = center / size if size > 0 else np.eye(len(center))[0]
    return float(objective.loss_difference_bounds(center, (center + rho * along)[:, None])[0])


def minimize_within_radius(data: Dataset, plan: RegionPlan, center: Floats, steps: int) -> Floats:
    """Minimize F within rho of the centre by a public number of accelerated projected gradient steps.

    F(v) - min F <= 2 M rho^2 / (steps + 1)^2 (Beck and Teboulle 2009, Theorem 4.4, from within rho of the minimiser).
    """
    objective, rho = plan.objective, plan.radius
    point = ahead = center.copy()
    momentum = 1.0
    for _ in range(steps):
        gradient = (
            data.gradient_sum(objective.loss, ahead[:, None])[:, 0] / objective.n + objective.ridge * ahead
        )
        step = np.nan_to_num(ahead - gradient / objective.smoothness) - center
        length = float(np.linalg.norm(step))
        next_point = center + step * min(1.0, rho / length if length > 0 else 1.0)
        next_momentum = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = next_point + (momentum - 1) / next_momentum * (next_point - point)
        point, momentum = next_point, next_momentum
    return point
