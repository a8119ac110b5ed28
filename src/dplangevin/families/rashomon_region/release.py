"""Run a region's plan: centre, curvature, (gap,) points, slack. One generator for all of it, one charge."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.data.reader import RecordReader, read_records
from dplangevin.families.mechanism import fingerprint
from dplangevin.families.noisy_answers.curvature import unpacked
from dplangevin.families.noisy_answers.mechanism import NoisySums
from dplangevin.families.rashomon_region.flips import (
    MOST_FLIPS,
    FlipLevel,
    flip_totals,
    kept_flips,
    largest_share,
    reachable,
    told_levels,
)
from dplangevin.families.rashomon_region.mechanism import NoisySlack
from dplangevin.families.rashomon_region.outer import PAIR, OuterEllipsoid, outer_ellipsoid
from dplangevin.families.rashomon_region.plan import GAP_TOLERANCE, RegionPlan
from dplangevin.families.rashomon_region.schedule import slack_of
from dplangevin.families.rashomon_region.shape import Ellipsoid, scales, whole_radius
from dplangevin.families.rashomon_region.sums import excess_sums, majorant_sum, pair_sum, slope_sum
from dplangevin.families.release import Release
from dplangevin.families.run_state import RunState, StatePath
from dplangevin.privacy.payment import pay
from dplangevin.privacy.spender import Spender

Directions = Callable[[Floats, Ellipsoid, Floats, np.random.Generator], Floats]
"""(centre, shape, radii, rng) -> directions[dimension, k] of length at most 1 in S: public values and coins only."""
MOST_STEPS = 20_000


@dataclass(frozen=True, kw_only=True, eq=False)
class RegionRelease:
    """What left the private rail, and what follows from it.

    Parameters
    ----------
    centre : the released parameters. matrix : the noisy majorant (softmax: half the second moment).
    slack : tau, the upper bound on T, None when no threshold was left to certify. gap : Gam, None unless asked for.
    directions [dimension, k], lengths, limits [thresholds, k], scales : the points and what is certified of them.
    thresholds : those that are certified relative to the centre: psi, or psi - Gam, 0 where nothing is.
    outer : per threshold, an ellipsoid that holds every model of the set; None where none is proved. flips : levels.
    whole : (U, a radius per threshold): every model with |theta - centre|_U within it is in the set of the best model;
        None unless the gap was asked for and the ball of radius rho is large enough to say so.
    """

    centre: Floats
    matrix: Floats
    shape: Ellipsoid
    slack: float | None
    gap: float | None
    directions: Floats
    lengths: Floats
    thresholds: Floats
    scales: Floats
    whole: tuple[Floats, tuple[float, ...]] | None
    seeded: bool
    n_steps: int
    gradient: Floats | None = None
    outer: tuple[OuterEllipsoid | None, ...] = ()
    flips: tuple[FlipLevel, ...] = ()
    ledger_head: str | None = None  # the till writes it

    def digest(self) -> str:
        """A hash of what was released."""
        content = hashlib.sha256(self.centre.tobytes())
        content.update(self.matrix.tobytes())
        content.update(repr((self.slack, self.gap, *self.flips)).encode())
        content.update(b"" if self.gradient is None else self.gradient.tobytes())
        return content.hexdigest()

    def points(self, index: int) -> Floats:
        """The certified points of one threshold, [dimension, k]."""
        return np.asarray(self.centre[:, None] + self.lengths[index] * self.scales[index] * self.directions)


def run_region(
    plan: RegionPlan,
    data: Dataset | RecordReader,
    centre: Callable[[np.random.Generator], Release],
    directions: Directions,
    random_state: object,
    *,
    public: str = "",
    inputs: Floats | None = None,
    ledger: Spender | None = None,
    state: StatePath = None,
) -> RegionRelease:
    """Charge the composed guarantee once, and release.

    centre : runs the centre's plan on the same data with the given generator. public : what else makes this run
        another one (hashes of the public inputs, and of the public data of the centre). inputs : those of the flip-cost
        levels, encoded.
    """
    more = [price and price.schedule for price in (plan.gap, plan.gradient, plan.flips)]
    parts = (plan.curvature.schedule, plan.slack.schedule, *more)
    asked = (plan.objective, plan.thresholds, plan.confidence, plan.radius, plan.flip_shares, public)
    saved = RunState.of_fit(state, plan.centre, parts, *asked, ledger=ledger)

    def release(rng: np.random.Generator, seeded: bool) -> RegionRelease:
        records = read_records(data)
        if saved is not None:
            saved.check_records(lambda salt: fingerprint(records, salt))
        middle = centre(rng)
        return _released(plan, records, middle, directions, rng, seeded, inputs)

    return pay(plan, release, random_state, ledger=ledger, saved=saved, rows_per_person=1)


def _released(
    plan: RegionPlan,
    data: Dataset,
    middle: Release,
    directions: Directions,
    rng: np.random.Generator,
    seeded: bool,
    inputs: Floats | None,
) -> RegionRelease:
    objective, theta = plan.objective, np.array(middle.value, float).ravel()
    matrix, hessian = _curvatures(plan, data, theta, rng)
    shape = Ellipsoid.of(matrix, plan.floor, objective.ridge, objective.classes)
    gap = None if plan.gap is None else _gap(plan, data, theta, rng)
    gradient, outer = (None, ()) if plan.gradient is None else _outer(plan, data, theta, hessian, rng)
    flips = (
        () if plan.flips is None or inputs is None else _flips(plan, data, theta, inputs[:MOST_FLIPS], rng)
    )
    thresholds = np.maximum(np.array(plan.thresholds) - (gap or 0.0), 0.0)
    lengths = np.sqrt([plan.squared_radius(psi) for psi in thresholds])
    made = directions(theta, shape, lengths, rng)
    live = np.flatnonzero(thresholds > 0)
    certified, slack = np.zeros((len(thresholds), made.shape[1])), None
    if live.size:
        slack, certified[live] = _slack(plan, data, theta, made, thresholds[live], lengths[live], rng)
    return RegionRelease(
        centre=theta,
        matrix=matrix,
        shape=shape,
        slack=slack,
        gap=gap,
        directions=made,
        lengths=lengths,
        thresholds=thresholds,
        scales=certified,
        whole=None if gap is None else _whole(plan, matrix, gap),
        seeded=seeded,
        n_steps=middle.n_steps,
        gradient=gradient,
        outer=outer,
        flips=flips,
    )


def _curvatures(
    plan: RegionPlan, data: Dataset, centre: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The noisy majorant, and the noisy Hessian (the same matrix where only one is released)."""
    objective = plan.objective
    task = pair_sum if plan.paired else majorant_sum
    noisy = NoisySums().run(plan.curvature, lambda: [data.summed(task, objective, centre)], rng).values[0]
    if plan.paired:
        bent, more = (unpacked(half) / objective.n for half in np.split(noisy, 2))
        return bent + more / PAIR, bent
    matrix = objective.curvature_noise_factor * unpacked(noisy) / objective.n
    return matrix, matrix


def _outer(
    plan: RegionPlan, data: Dataset, centre: Floats, hessian: Floats, rng: np.random.Generator
) -> tuple[Floats, tuple[OuterEllipsoid | None, ...]]:
    """The noisy gradient, and what it proves of all models of each set."""
    assert plan.gradient is not None
    objective = plan.objective
    steepest = objective.steepest(centre)
    answer = NoisySlack().run(
        plan.gradient, lambda: [data.summed(slope_sum, objective, centre, steepest)], rng
    )
    unit, schedule = steepest * objective.row_norm / objective.n, slack_of(plan.gradient)
    gradient = unit * answer.values[0] + objective.ridge * centre
    return gradient, tuple(
        outer_ellipsoid(
            objective,
            centre,
            hessian,
            gradient,
            noise_eigenvalue=plan.hessian_floor,
            gradient_deviation=unit * schedule.scale,
            threshold=psi,
            failure=plan.failure / len(plan.thresholds),
        )
        for psi in plan.thresholds
    )


def _flips(
    plan: RegionPlan, data: Dataset, centre: Floats, rows: Floats, rng: np.random.Generator
) -> tuple[FlipLevel, ...]:
    """Thresholds at which these shares of the rows are ambiguous, bounded from both sides."""
    assert plan.flips is not None
    objective, schedule = plan.objective, slack_of(plan.flips)
    possible = int(reachable(rows, centre, plan.radius).sum())

    def exact() -> list[Floats]:
        totals = flip_totals(data, objective, centre, rows, plan.radius)
        return [np.clip(kept_flips(totals, plan.flip_shares)[0], -1e300, 1e300)]

    counts = kept_flips(np.zeros(len(rows)), plan.flip_shares)[1]
    return told_levels(
        NoisySlack().run(plan.flips, exact, rng).values[0],
        possible,
        counts,
        plan.flip_shares,
        inputs=len(rows),
        radius=plan.radius,
        unit=largest_share(objective, plan.radius) / objective.n,
        deviation=schedule.scale,
        failure=plan.failure,
    )


def _whole(plan: RegionPlan, matrix: Floats, gap: float) -> tuple[Floats, tuple[float, ...]] | None:
    """C2 in the norm of U, if |g|_(U^-1) <= sqrt(2 Gam) follows within the ball: rho^2 u_min >= 2 Gam."""
    upper = matrix + (plan.floor + plan.objective.ridge) * np.eye(len(matrix))
    least = float(np.linalg.eigvalsh(upper)[0])
    if least <= 0 or plan.radius**2 * least < 2 * gap:
        return None
    return upper, tuple(whole_radius(gap, psi, best=True) for psi in plan.thresholds)


def _slack(
    plan: RegionPlan,
    data: Dataset,
    centre: Floats,
    directions: Floats,
    thresholds: Floats,
    lengths: Floats,
    rng: np.random.Generator,
) -> tuple[float, Floats]:
    """tau, and the scale of every point."""
    objective = plan.objective
    points = [centre[:, None] + length * directions for length in lengths]
    limits = np.array([objective.limits(centre, block) for block in points])
    penalties = np.array([objective.penalty(centre, block) for block in points])
    usable = np.isfinite(limits) & (limits > 0)
    safe = np.where(usable, limits, 1.0)
    fixed = objective.n * (penalties - thresholds[:, None]) / safe

    def exact() -> list[Floats]:
        sums = data.summed(excess_sums, objective, centre, directions, lengths, safe).reshape(safe.shape)
        totals = np.where(usable, sums + fixed, -math.inf)
        return [np.array([np.clip(totals.max(), -1e300, 1e300)])]

    noisy = float(NoisySlack().run(plan.slack, exact, rng).values[0][0])
    slack = noisy / objective.n + plan.quantile * plan.slack_deviation
    found = scales(slack, thresholds, safe)
    return slack, np.where(limits > 0, np.where(usable, found, 0.0), 1.0)


def _gap(plan: RegionPlan, data: Dataset, centre: Floats, rng: np.random.Generator) -> float:
    """Gam >= F(c) - min over |d| <= rho of F(c + d), with probability 1 - beta over its noise."""
    assert plan.gap is not None
    objective, rho = plan.objective, plan.radius
    limit = _largest_limit(plan, centre)
    tolerance = GAP_TOLERANCE * limit / objective.n
    steps = math.ceil(rho * math.sqrt(2 * objective.smoothness / tolerance))

    def exact() -> list[Floats]:
        found = minimised_within(data, plan, centre, min(steps, MOST_STEPS))[:, None]
        move = np.ones((1, 1))
        sums = data.summed(excess_sums, objective, centre, found - centre[:, None], move[0], limit * move)
        gained = -(float(sums[0]) + objective.n * float(objective.penalty(centre, found)[0]) / limit)
        return [np.array([max(gained, 0.0)])]

    if steps > MOST_STEPS:  # public: the bound on one record's share is used instead of the measured gap
        return limit + objective.ridge / 2 * float(centre @ centre)
    released = NoisySlack().run(plan.gap, exact, rng)
    schedule = slack_of(plan.gap)
    unit = limit / objective.n
    return max(0.0, unit * (float(released.values[0][0]) + plan.quantile * schedule.scale)) + tolerance


def _largest_limit(plan: RegionPlan, centre: Floats) -> float:
    """Lam over the whole ball of radius rho around the centre."""
    objective, rho = plan.objective, plan.radius
    size = float(np.linalg.norm(centre))
    along = centre / size if size > 0 else np.eye(len(centre))[0]
    return float(objective.limits(centre, (centre + rho * along)[:, None])[0])


def minimised_within(data: Dataset, plan: RegionPlan, centre: Floats, steps: int) -> Floats:
    """Accelerated projected gradient descent for a public number of steps, from the centre.

    F(v) - min F <= 2 M rho^2 / (steps + 1)^2 (Beck and Teboulle 2009, Theorem 4.4, from within rho of the minimiser).
    """
    objective, rho = plan.objective, plan.radius
    point = ahead = centre.copy()
    momentum = 1.0
    for _ in range(steps):
        slope = (
            data.gradient_sum(objective.loss, ahead[:, None])[:, 0] / objective.n + objective.ridge * ahead
        )
        moved = np.nan_to_num(ahead - slope / objective.smoothness) - centre
        length = float(np.linalg.norm(moved))
        following = centre + moved * min(1.0, rho / length if length > 0 else 1.0)
        grown = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead = following + (momentum - 1) / grown * (following - point)
        point, momentum = following, grown
    return point
