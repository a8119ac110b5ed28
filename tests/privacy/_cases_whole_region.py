"""A region as ONE release: centre, curvature and slack of real runs, attacked together with the likelihood ratio.

Huber losses at their corners: a record's slope is the whole bound and its majorant the largest. Flipping a label then
moves the centre and the slack as far as a record can, and turning a row at right angles the curvature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dplangevin.accounting.conversions import gdp_epsilon
from dplangevin.accounting.plan import CertifiedSpec, Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import Release, run_plan
from dplangevin.mechanisms.noisy_answers.curvature import pack_symmetric
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.perturbation.spec import calibrate_output_perturbation
from dplangevin.mechanisms.rashomon_region.mechanism import RegionRelease, run_region
from dplangevin.mechanisms.rashomon_region.objective import (
    Ellipsoid,
    RegionObjective,
    clipped_excess_sums,
    majorant_sum,
)
from dplangevin.mechanisms.rashomon_region.planning import RegionPlan, plan_region
from dplangevin.problem import DataBounds, Huber, Problem
from privacy._case import Case, Draw

DELTA, MU, PSI, KAPPA, STEP = 0.05, 2.0, 1e-4, 0.5, 1e-3
ALONG = np.array([1.0, -1.0]) / math.sqrt(2)
COMMON = (
    [-ALONG] * 3,
    [KAPPA] * 3,
)  # worse by their whole share along ALONG, so the worst point is on that side
Log = Callable[[np.ndarray], np.ndarray]


def problem(ridge: float) -> Problem:
    return Problem(
        loss=Huber(transition=KAPPA), bounds=DataBounds(data_norm=1.0, target=(-1, 1)), n=4, n_features=2,
        fit_intercept=False, ridge=ridge,
    )  # fmt: skip


def tables(of: Problem, last: list[tuple[np.ndarray, float]]) -> list[ArrayDataset]:
    return [ArrayDataset(np.array([*COMMON[0], x]), np.array([*COMMON[1], y]), of) for x, y in last]


def ends(centre: np.ndarray, shape: Ellipsoid, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    end = shape.row_directions(ALONG[None] if len(centre) == 2 else np.ones((1, 1)))
    return np.column_stack([end, -end])


def attacked(plan: RegionPlan, neighbours: list[ArrayDataset], centre: Log, honest: RegionPlan) -> Draw:
    """The log of the likelihood ratio of all that is released, as one who knows both tables and the plan computes it.

    The centre is so near to 0 that the exact matrices and shares are those of 0; only the offset of the slack varies.
    """
    of, curvature, slack = honest.objective, honest.curvature.spec.groups[0], honest.slack.spec  # type: ignore[attr-defined]
    zero, end = np.zeros(of.dimension), 1e-3 * (ALONG if of.dimension == 2 else np.ones(1))[:, None]
    bound = of.loss_difference_bounds(zero, end)[None]
    matrices = [data.sum_over_blocks(majorant_sum, of, zero) for data in neighbours]
    shares = [
        float(data.sum_over_blocks(clipped_excess_sums, of, zero, end, np.ones(1), bound)[0])
        for data in neighbours
    ]

    def score(release: RegionRelease) -> float:
        assert release.slack is not None
        point = release.center[:, None] + release.lengths[0] * release.directions[:, :1]
        noisy = of.n * (release.slack - plan.noise_quantile * plan.slack_noise_std)
        noisy += of.n * PSI / float(of.loss_difference_bounds(release.center, point)[0])
        away = [float(np.square(of.n * pack_symmetric(release.matrix) - one).sum()) for one in matrices]
        found = (away[1] - away[0]) / (2 * curvature.scale**2)
        found += ((noisy - shares[1]) ** 2 - (noisy - shares[0]) ** 2) / (2 * slack.scale**2)  # type: ignore[attr-defined]
        return found + float(centre(release.center))

    def draw(side: int, runs: int, rng: np.random.Generator) -> np.ndarray:
        data = neighbours[side]

        def fitted(more: np.random.Generator) -> Release:
            return run_plan(plan.center, data, more)

        return np.array([score(run_region(plan, data, fitted, ends, rng)) for _ in range(runs)])

    return draw


def gaussian(
    name: str, last: list[tuple[np.ndarray, float]], word: str, part: str, shares: list[float]
) -> Case:
    """A small centre, so that curvature and slack carry most of the guarantee; shares : exact over claimed of each."""
    of = problem(0.0)
    mean = 2 * KAPPA / of.n
    small = math.sqrt(0.1) * MU
    middle = Plan(
        problem=of,
        spec=NoisyGradientSpec(step_size=STEP, n_steps=1, noise_std=mean / small),
        delta=DELTA,
    )
    honest = plan_region(
        middle,
        RegionObjective.from_problem(of, of.loss, 0.0),
        thresholds=(PSI,),
        epsilon=gdp_epsilon(MU, DELTA),
        delta=DELTA,
    )
    neighbours = tables(of, last)
    steps = [-STEP * data.gradient_sum(of.loss, np.zeros((2, 1)))[:, 0] / of.n for data in neighbours]
    deviation = STEP * middle.spec.noise_std  # type: ignore[attr-defined]

    def centre(theta: np.ndarray) -> np.ndarray:
        first, second = (np.square(theta - step).sum() for step in steps)
        return np.asarray((second - first) / (2 * deviation**2))

    if part == "slack":  # the noise of add-remove
        spec = replace(honest.slack.spec, scale=honest.slack.spec.scale / 2)  # type: ignore[attr-defined]
        broken = replace(honest, slack=CertifiedSpec(spec=spec, delta=DELTA))
    else:
        group = honest.curvature.spec.groups[0]  # type: ignore[attr-defined]
        groups = (replace(group, scale=group.scale / 2),)
        spec = replace(honest.curvature.spec, groups=groups)  # type: ignore[type-var]
        broken = replace(honest, curvature=CertifiedSpec(spec=spec, delta=DELTA))
    parts = (middle, honest.curvature, honest.slack)
    exact = math.sqrt(
        sum((share * (one.guarantee.mu or 0)) ** 2 for share, one in zip(shares, parts, strict=True))
    )
    return Case(
        name="region as one release", configuration=name, covers=("RashomonRegion",), claim=honest.guarantee,
        honest=attacked(honest, neighbours, centre, honest),
        broken_variants={word: attacked(broken, neighbours, centre, broken)},
        exact_ratio=exact / MU, slow=True,
    )  # fmt: skip


def pure() -> Case:
    """Output perturbation in the middle; broken by a pure one with the same epsilon at a small delta (Laplace)."""
    of = replace(problem(200.0), n_features=1)
    neighbours = [ArrayDataset(np.ones((4, 1)), [-KAPPA] * 3 + [label], of) for label in (KAPPA, -KAPPA)]
    own, small = math.sqrt(0.5) * MU, 1e-5
    right = calibrate_output_perturbation(of.constants, epsilon=gdp_epsilon(own, small), delta=small)
    wrong = calibrate_output_perturbation(of.constants, epsilon=gdp_epsilon(own, small))
    middle, pure_middle = (Plan(problem=of, spec=one, delta=DELTA) for one in (right, wrong))
    objective = RegionObjective.from_problem(of, of.loss, 0.0)
    honest = plan_region(middle, objective, thresholds=(PSI,), epsilon=gdp_epsilon(MU, DELTA), delta=DELTA)
    means = [-data.gradient_sum(of.loss, np.zeros((1, 1)))[0, 0] / (of.n * of.ridge) for data in neighbours]

    def gaussian_ratio(theta: np.ndarray) -> np.ndarray:
        first, second = ((theta[0] - mean) ** 2 for mean in means)
        return np.asarray((second - first) / (2 * right.density_scale**2))

    def laplace_ratio(theta: np.ndarray) -> np.ndarray:
        first, second = (abs(theta[0] - mean) for mean in means)
        return np.asarray((second - first) / wrong.density_scale)

    broken = replace(honest, center=pure_middle)
    exact = math.sqrt((middle.guarantee.mu or 0) ** 2 + (honest.slack.guarantee.mu or 0) ** 2)
    return Case(
        name="region as one release",
        configuration="output perturbation in the middle",
        covers=("RashomonRegion",),
        claim=honest.guarantee,
        honest=attacked(honest, neighbours, gaussian_ratio, honest),
        broken_variants={
            "pure centre counted as Gaussian": attacked(broken, neighbours, laplace_ratio, honest)
        },
        exact_ratio=exact / MU,
        slow=True,
    )


CASES = (
    gaussian(
        "a label flips", [(-ALONG, KAPPA), (-ALONG, -KAPPA)], "slack's reach of one instead of two", "slack",
        [1.0, 0.0, 1.0],
    ),
    gaussian(
        "a row turns", [(np.array([1.0, 0.0]), KAPPA), (np.array([0.0, 1.0]), KAPPA)], "curvature noise / 2",
        "curvature", [math.sqrt(0.5), 1.0, math.sqrt(0.5)],
    ),
    pure(),
)  # fmt: skip
