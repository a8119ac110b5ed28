"""Draws for any loss of theta and a record: clipped values on a public grid, and tangents for losses with corners."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import chisquare

from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms import ExponentialSpec, plan_sampler
from dplangevin.mechanisms.exponential.mechanism import grid_points
from dplangevin.mechanisms.langevin.spec import LangevinSpec
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.rashomon.planning import plan_rashomon
from dplangevin.problem import Ball, Box, DataBounds, Problem, RecordLoss, SmoothedHinge
from dplangevin.sampling.envelopes import ScorePotential
from dplangevin.sampling.potential import FunctionPotential, ProblemPotential
from dplangevin.sampling.rejection import sample_tangent_envelope
from dplangevin.sampling.supports import BallSupport, support_of


class Waves(RecordLoss):
    """A wild loss: not convex, not continuous, larger than its range, and it fails for some records."""

    name = "waves"
    value_range = (-1.0, 1.0)

    def values_of_record(self, theta, row, label):
        if row[0] > 0.55:
            raise ValueError("a record")
        if row[0] < -0.55:
            return np.zeros(3)
        values = 3 * np.sin(9 * theta[0] * row[0] + 40 * row[1]) + (theta[-1] > row[1])
        values[row[1] > 0.55] = np.nan
        return values


class WavesAndGradients(Waves):
    """Gradients only."""

    value_range = None
    gradient_bound = 1.0

    def record_gradient(self, theta, row, label):
        return theta - row


def make_problem(loss=None, n: int = 40, **options) -> Problem:
    settings = {
        "loss": Waves() if loss is None else loss,
        "bounds": DataBounds(data_norm=1.0, target=(0.0, 1.0)),
        "n": n,
        "n_features": 2,
        "constraint": Box(-1.0, 1.0),
        "fit_intercept": False,
    }
    return Problem(**{**settings, **options})


def make_rows(n: int, seed: int = 0):
    return np.random.default_rng(seed).uniform(-0.6, 0.6, (n, 2))


def log_law(problem: Problem, rows, beta: float, threshold: float = 0.0, grid: int = 15):
    """Return the exact log probabilities on the grid."""
    potential = ProblemPotential(ArrayDataset(rows, np.zeros(len(rows)), problem), beta)
    values = potential.value(grid_points(support_of(problem.constraint, 2), grid))
    scores = np.maximum(values - values.min(), beta * threshold)
    return -scores - np.logaddexp.reduce(-scores)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.4])
def test_no_neighbour_moves_a_probability_by_more_than_epsilon(adjacency: str, threshold: float) -> None:
    problem = make_problem(adjacency=adjacency)
    planned = (
        plan_rashomon(problem, threshold=threshold, n_models=1, epsilon=1.3, grid=15).plan
        if threshold
        else plan_sampler(problem, 1.3, grid=15, verbose=False).plan
    )
    beta, rng, worst = planned.spec.inverse_temperature, np.random.default_rng(1), 0.0
    assert planned.guarantee.epsilon(0.0) == pytest.approx(1.3)
    for seed in range(40):
        rows = make_rows(40, seed)
        other = (
            rows[1:] if adjacency == "add-remove" else np.vstack([rng.uniform(-0.6, 0.6, (1, 2)), rows[1:]])
        )
        gap = log_law(problem, rows, beta, threshold) - log_law(problem, other, beta, threshold)
        worst = max(worst, float(gap.max() - gap.min()))
    assert 0.3 < worst <= 1.3


def test_an_inexact_minimum_would_break_the_threshold() -> None:
    """Two points whose values move by at most 1/2: floors that err by 1/2 cost more than the exact minima."""
    beta, values, others = 2.0, np.array([0.0, 1.0]), np.array([0.5, 1.0])

    def log_ratio(floor: float, other_floor: float) -> float:
        laws = [-beta * np.maximum(v - f, 0.0) for v, f in ((values, floor), (others, other_floor))]
        return float(np.ptp(laws[0] - laws[1]))

    assert log_ratio(values.min(), others.min()) <= beta * 0.5 * (1 + 1e-12)
    assert log_ratio(values.min(), others.min() + 0.5) > beta * 0.5


def test_sums_of_values_are_exact_whatever_the_order() -> None:
    problem = make_problem(n=5000)
    rows, theta = make_rows(5000), np.random.default_rng(3).uniform(-1, 1, (2, 6))
    sums = [
        ArrayDataset(data, np.zeros(5000), problem).loss_sum(problem.loss, theta)
        for data in (rows, rows[::-1], np.random.default_rng(4).permutation(rows))
    ]
    assert np.array_equal(sums[0], sums[1])
    assert np.array_equal(sums[0], sums[2])
    assert np.all(sums[0] >= 0)
    assert np.all(sums[0] <= 2 * 5000)


def test_each_mechanism_takes_what_it_can_evaluate() -> None:
    problem = make_problem()
    with pytest.raises(AssumptionFailed, match="grid"):
        plan_sampler(problem, 1.0, verbose=False)
    with pytest.raises(AssumptionFailed, match="grid"):
        plan_rashomon(problem, threshold=0.1, n_models=1, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="record_gradient"):
        plan_sampler(problem, 1.0, 1e-6, "process", verbose=False)
    gradients = make_problem(WavesAndGradients())
    with pytest.raises(AssumptionFailed, match="value_range"):
        plan_sampler(gradients, 1.0, grid=5, verbose=False)
    assert isinstance(plan_sampler(gradients, 1.0, 1e-6, "process", verbose=False).plan.spec, LangevinSpec)
    with pytest.raises(InvalidParameter, match="value_range"):
        make_problem(type("Backwards", (Waves,), {"value_range": (1.0, -1.0)})())


def test_a_plan_for_any_loss_runs() -> None:
    problem = make_problem()
    data = ArrayDataset(make_rows(40), np.zeros(40), problem)
    release = run_plan(plan_sampler(problem, 1.0, grid=15, verbose=False).plan, data, 0)
    assert np.all(np.isin(release.value * 7, np.arange(-7, 8)))
    planned = plan_rashomon(problem, threshold=0.3, n_models=200, epsilon=1000.0, grid=15)
    draws = run_plan(planned.plan, data, 0).value
    potential = ProblemPotential(data, 1.0)
    minimum = potential.value(grid_points(support_of(problem.constraint, 2), 15)).min()
    hits = np.mean(potential.value(draws) <= minimum + planned.hit_threshold)
    assert 0.5 < planned.hit_probability <= hits


@pytest.mark.parametrize("score", [False, True])
def test_tangents_draw_a_function_with_corners_exactly(score: bool) -> None:
    """Chi-squared over 8 x 8 cells of a disc against quadrature; false alarm 1e-4."""
    points = np.array([[0.4, -0.2, 0.9], [0.3, 0.5, 0.8]])

    def value(x):
        return 4 * np.abs(points[:, :, None] - x[:, None, :]).sum(axis=(0, 1))

    def subgradient(x):
        return -4 * np.sign(points[:, :, None] - x[:, None, :]).sum(axis=1)

    potential = FunctionPotential(value_function=value, gradient_function=subgradient, smoothness=math.inf)
    if score:
        potential = ScorePotential(potential, floor=7.6, threshold=1.5)
    support, size = BallSupport(dimension=2, radius=1.0), 6000
    draws = sample_tangent_envelope(
        potential, support, -np.ones(2), np.ones(2), size, np.random.default_rng(5)
    ).theta
    ticks = (np.arange(800) + 0.5) / 400 - 1
    mesh = np.stack([axis.ravel() for axis in np.meshgrid(ticks, ticks, indexing="ij")])
    mass = np.where(np.sum(mesh**2, axis=0) <= 1, np.exp(-potential.value(mesh)), 0.0)
    expected = mass.reshape(8, 100, 8, 100).sum(axis=(1, 3)).ravel() / mass.sum() * size
    edges = np.linspace(-1, 1, 9)
    observed = np.histogram2d(*draws, bins=(edges, edges))[0].ravel()
    kept = expected > 5
    rest = [observed[~kept].sum(), expected[~kept].sum()]
    statistic = chisquare([*observed[kept], rest[0]], [*expected[kept], rest[1]], sum_check=False)
    assert statistic.pvalue > 1e-4


def test_corners_need_no_smoothing_and_few_evaluations() -> None:
    n = 3000
    problem = Problem(
        loss=SmoothedHinge(width=1e-6),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=n,
        n_features=3,
        constraint=Ball(1.0),
        fit_intercept=False,
    )
    planned = plan_sampler(problem, 1.0, verbose=False)
    assert planned.plan.spec == ExponentialSpec(inverse_temperature=planned.plan.spec.inverse_temperature)
    rng = np.random.default_rng(0)
    rows = rng.uniform(-0.5, 0.5, (n, 3))
    data = ArrayDataset(rows, (rows[:, 0] > 0).astype(float), problem)
    output = sample_tangent_envelope(
        ProblemPotential(data, planned.plan.spec.inverse_temperature),
        support_of(problem.constraint, 3), -np.ones(3), np.ones(3), 5, rng,
    )  # fmt: skip
    assert output.evaluations.n_values < 60_000
    assert np.linalg.norm(run_plan(planned.plan, data, 1).value) <= 1
