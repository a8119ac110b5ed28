"""Exact draws of losses that are not convex: the law against quadrature, and a pure guarantee by enumeration."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chisquare, kstest

from dplangevin import Plan, plan_sampler, run_plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms import ExponentialSpec
from dplangevin.mechanisms.exponential.mechanism import choose_cells_per_axis, choose_exact_method
from dplangevin.papers.gallery.lower_bounds import PackedBumps
from dplangevin.problem import Ball, Box, Bump, DataBounds, Problem, RecordLoss, Sigmoid
from dplangevin.sampling import BallSupport, BoxSupport, FunctionPotential
from dplangevin.sampling.rejection import sample_cell_envelope


def hilly(theta: np.ndarray) -> np.ndarray:
    """Two wells and a ripple in the plane; |grad| <= 24 and |Hessian| <= 140 on the square of side 2."""
    x, y = theta
    return 6 * ((x**2 - 0.4) ** 2 * 4 + (y - 0.3 * x) ** 2) + np.sin(7 * x) + np.cos(5 * y)


def slope(theta: np.ndarray) -> np.ndarray:
    x, y = theta
    return np.stack(
        [
            6 * (16 * x * (x**2 - 0.4) - 0.6 * (y - 0.3 * x)) + 7 * np.cos(7 * x),
            12 * (y - 0.3 * x) - 5 * np.sin(5 * y),
        ]
    )


def constants() -> tuple[float, float]:
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 301)] * 2, indexing="ij")).reshape(2, -1)
    steep = float(np.linalg.norm(slope(grid), axis=0).max())
    step = 1e-4
    bend = [
        np.linalg.norm((slope(grid + step * e[:, None]) - slope(grid)) / step, axis=0).max()
        for e in np.eye(2)
    ]
    return 1.05 * steep, 1.05 * float(np.hypot(*bend))


def cumulative(axis: int, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """The distribution of one coordinate by quadrature."""
    nodes = np.linspace(-1, 1, 1001)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij"))
    density = np.exp(-hilly(grid)) * (np.hypot(*grid) <= radius)
    marginal = density.sum(axis=1 - axis)
    total = np.concatenate([[0.0], np.cumsum((marginal[1:] + marginal[:-1]) / 2)])
    return nodes, total / total[-1]


def drawn(radius: float, smooth: bool, size: int, per_axis: int, seed: int) -> tuple[np.ndarray, int]:
    lipschitz, smoothness = constants()
    potential = FunctionPotential(
        value_function=hilly,
        gradient_function=slope,
        smoothness=smoothness,
        strong_convexity=0.0,
        lipschitz=lipschitz,
    )
    square = BoxSupport(low=-np.ones(2), high=np.ones(2))
    body = square if math.isinf(radius) else BallSupport(dimension=2, radius=radius)
    found = sample_cell_envelope(
        potential, body, -np.ones(2), np.ones(2), per_axis, lipschitz, smoothness if smooth else math.inf, size,
        np.random.default_rng(seed),
    )  # fmt: skip
    return found.theta, found.n_proposals


@pytest.mark.parametrize(("radius", "smooth"), [(math.inf, True), (1.0, True), (1.0, False)])
def test_draws_follow_the_law(radius: float, smooth: bool) -> None:
    """Kolmogorov-Smirnov on both coordinates, 3000 draws; each test fails by chance once in 10,000 times."""
    theta, proposals = drawn(radius, smooth, 3000, 30, 1)
    assert proposals < (30_000 if smooth else 200_000)
    assert np.linalg.norm(theta, axis=0).max() <= radius * (1 + 1e-9)
    for axis in (0, 1):
        nodes, total = cumulative(axis, radius)
        assert kstest(theta[axis], lambda x, n=nodes, t=total: np.interp(x, n, t)).pvalue > 1e-4


@pytest.mark.slow
def test_a_hundred_thousand_draws_follow_the_law() -> None:
    theta, _ = drawn(1.0, True, 100_000, 60, 2)
    for axis in (0, 1):
        nodes, total = cumulative(axis, 1.0)
        assert kstest(theta[axis], lambda x, n=nodes, t=total: np.interp(x, n, t)).pvalue > 1e-4


def test_the_comparison_can_fail() -> None:
    """A wrong smoothness is seen at once: the envelope would lie below the law."""
    potential = FunctionPotential(
        value_function=hilly, gradient_function=slope, smoothness=1.0, strong_convexity=0.0, lipschitz=24.0
    )
    body = BoxSupport(low=-np.ones(2), high=np.ones(2))
    with pytest.raises(AssumptionFailed):
        sample_cell_envelope(
            potential, body, -np.ones(2), np.ones(2), 8, 1e3, 1.0, 2000, np.random.default_rng(0)
        )


def sigmoid(n: int, p: int, constraint: object) -> Problem:
    return Problem(
        loss=Sigmoid(), bounds=DataBounds(data_norm=1.0, classes=2), n=n, n_features=p, constraint=constraint,
        fit_intercept=False,
    )  # fmt: skip


def test_the_mechanism_draws_the_exponential_law_of_a_loss_that_is_not_convex() -> None:
    """Counts of a public partition against quadrature; fails by chance once in 10,000 times."""
    task = sigmoid(40, 1, Box(low=-3.0, high=3.0))
    assert choose_exact_method(task) == "cells"
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (40, 1)), (rng.random(40) < 0.5).astype(float)
    data = ArrayDataset(X, y, task)
    planned = plan_sampler(task, 4.0, tier="exact", verbose=False)
    assert planned.plan.guarantee.epsilon(0.0) <= 4.0
    draws = np.array([run_plan(planned.plan, data, rng).value[0] for _ in range(700)])
    nodes = np.linspace(-3, 3, 6001)
    weights = np.exp(-planned.plan.spec.inverse_temperature * data.loss_sum(task.loss, nodes[None, :]) / 40)
    edges = np.linspace(-3, 3, 9)
    expected = np.array([weights[(nodes >= a) & (nodes < b)].sum() for a, b in pairwise(edges)])
    found = np.histogram(draws, edges)[0]
    assert chisquare(found, expected / expected.sum() * found.sum()).pvalue > 1e-4


def test_pure_epsilon_by_enumeration() -> None:
    """The density ratio between neighbours on a grid of the plane, for 30 replacements: at most epsilon."""
    n, epsilon = 12, 1.5
    task = sigmoid(n, 2, Ball(2.0))
    beta = plan_sampler(task, epsilon, tier="exact", verbose=False).plan.spec.inverse_temperature
    nodes = np.linspace(-2, 2, 61)
    grid = np.stack(np.meshgrid(nodes, nodes, indexing="ij")).reshape(2, -1)
    grid = grid[:, np.linalg.norm(grid, axis=0) <= 2]
    rng, worst = np.random.default_rng(8), 0.0
    X, y = rng.normal(size=(n, 2)), (rng.random(n) < 0.5).astype(float)

    def law(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        logs = -beta * ArrayDataset(rows, labels, task).loss_sum(task.loss, grid) / n
        return logs - np.log(np.exp(logs - logs.max()).sum()) - logs.max()

    here = law(X, y)
    for _ in range(30):
        other, labels = X.copy(), y.copy()
        other[0], labels[0] = 5 * rng.normal(size=2), float(rng.random() < 0.5)
        worst = max(worst, float(np.abs(law(other, labels) - here).max()))
    assert 0.02 < worst <= epsilon


def test_resolution_and_refusals() -> None:
    task = sigmoid(1000, 2, Ball(1.0))
    assert choose_cells_per_axis(task, 10.0) < choose_cells_per_axis(task, 2000.0) <= 401
    with pytest.raises(AssumptionFailed, match="reject almost every proposal"):
        choose_cells_per_axis(sigmoid(1000, 3, Ball(1.0)), 1e9)
    with pytest.raises(AssumptionFailed, match="up to three parameters"):
        choose_exact_method(sigmoid(1000, 4, Ball(1.0)))


def test_packed_bumps_are_a_problem_that_runs() -> None:
    """Votes for 13 centres of the plane: draws of the exponential mechanism find the favourite, and the bound holds."""
    bumps = PackedBumps.from_grid(dimension=2, width=0.25)
    rng, n, epsilon = np.random.default_rng(3), 200, 20.0
    votes = rng.integers(0, bumps.centers.shape[1], n)
    votes[:80] = 5
    task = Problem(
        loss=Bump(width=0.25), bounds=DataBounds(data_norm=1.0, target=(0, 1)), n=n, n_features=2,
        constraint=Ball(1.0), fit_intercept=False,
    )  # fmt: skip
    data = ArrayDataset(bumps.centers[:, votes].T, np.zeros(n), task)
    one_hot = np.eye(bumps.centers.shape[1], dtype=bool)[votes]
    points = rng.uniform(-0.7, 0.7, (2, 50))
    np.testing.assert_allclose(
        data.loss_sum(task.loss, points) / n, bumps.mean_losses(points, one_hot), atol=1e-12
    )
    planned = plan_sampler(task, epsilon, tier="exact", verbose=False)
    assert planned.plan.guarantee.epsilon(0.0) <= epsilon
    draws = np.stack([run_plan(planned.plan, data, rng).value for _ in range(2)], axis=1)
    excess = data.loss_sum(task.loss, draws) / n - bumps.min_mean_loss(one_hot)
    assert excess.mean() <= planned.excess_risk
    assert np.linalg.norm(draws - bumps.centers[:, [5]], axis=0).max() < 0.25


def test_another_bump_is_not_believed() -> None:
    class Steep(Bump):
        def record_values(self, theta: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return 100 * super().record_values(theta, rows)

    task = Problem(
        loss=Steep(width=0.5), bounds=DataBounds(data_norm=1.0, target=(0, 1)), n=20, n_features=1,
        constraint=Ball(1.0), fit_intercept=False,
    )  # fmt: skip
    plan = Plan(problem=task, spec=ExponentialSpec(inverse_temperature=3.0), delta=0.0)
    with pytest.raises(InvalidParameter, match="not known to be bounded"):
        run_plan(plan, ArrayDataset(np.zeros((20, 1)), np.zeros(20), task))


def test_a_users_loss_cannot_be_drawn() -> None:
    class Own(RecordLoss):
        name = "own"
        gradient_bound = 1.0

        def record_gradient(self, theta: np.ndarray, row: np.ndarray, label: float) -> np.ndarray:
            return theta - row

    task = Problem(
        loss=Own(), bounds=DataBounds(data_norm=1.0, target=(0, 1)), n=20, n_features=2, constraint=Ball(1.0),
        fit_intercept=False,
    )  # fmt: skip
    plan = Plan(problem=task, spec=ExponentialSpec(inverse_temperature=3.0), delta=0.0)
    with pytest.raises(InvalidParameter, match="needs a loss of linear scores"):
        run_plan(plan, ArrayDataset(np.zeros((20, 2)), np.zeros(20), task))
