"""Noisy moments: the exact joint sensitivity, its attainment, the noise law, and equations that are always solvable."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.errors import AssumptionFailed, CalibrationFailed, InvalidParameter
from dplangevin.mechanisms.moments.mechanism import (
    SufficientStatistics,
    sample_symmetric_noise,
    second_moments,
)
from dplangevin.mechanisms.moments.spec import (
    SufficientStatisticsSpec,
    SufficientStatisticsTheorem,
    calibrate_sufficient_statistics,
)
from dplangevin.problem import Ball, Clipped, Constants, DataBounds, Logistic, Problem, Squared


def problem(
    norm: float = 1.0, target: float = 1.0, n: int = 2, dimension: int = 2, **changes: Any
) -> Problem:
    fields: dict[str, Any] = {
        "loss": Clipped(Squared(), 1.0),
        "bounds": DataBounds(data_norm=norm, target=(-target, target)),
        "n": n,
        "n_features": dimension,
        "fit_intercept": False,
    }
    return Problem(**(fields | changes))


def mu(of: Problem, gram: float, cross: float) -> float:
    run = SufficientStatisticsSpec(gram_noise_std=gram, cross_noise_std=cross, eigenvalue_floor=1.0)
    value = SufficientStatisticsTheorem().certify(of.constants, run).mu
    assert value is not None
    return value


def shift(
    of: Problem, first: tuple[Any, Any, Any], second: tuple[Any, Any, Any], gram: float, cross: float
) -> float:
    """Distance of the moments of two data sets in units of the noise, from the mechanism's own sums."""
    (g, c), (h, d) = (second_moments(ArrayDataset(x, y, of, w)) for x, y, w in (first, second))
    return math.hypot(float(np.linalg.norm(g - h)) / gram, float(np.linalg.norm(c - d)) / cross)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("norm", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_sampled_neighbours_stay_within_the_joint_sensitivity(
    norm: float, adjacency: str, weight: float
) -> None:
    rng = np.random.default_rng(2)
    bounds = DataBounds(data_norm=norm, target=(-3, 3), weight_bound=weight)
    worst = 0.0
    for _ in range(300):
        dimension = int(rng.integers(1, 4))
        of = problem(n=3, dimension=dimension, adjacency=adjacency, bounds=bounds)
        gram, cross = norm**2 * 10 ** rng.uniform(-1, 1), norm * 10 ** rng.uniform(-1, 1)
        rows = rng.standard_normal((3, dimension)) * norm * 3
        labels = rng.choice([-3.0, 3.0], 3) if rng.random() < 0.8 else rng.uniform(-3, 3, 3)
        weights = np.full(3, weight) if rng.random() < 0.8 else rng.uniform(0, weight, 3)
        first = rows, labels, weights
        if adjacency == "add-remove":
            second = rows[:2], labels[:2], weights[:2]
        else:
            other = rng.standard_normal((1, dimension)) * norm * 3 if rng.random() < 0.5 else rows[2:]
            second = np.vstack([rows[:2], other]), np.append(labels[:2], -labels[2]), weights
        worst = max(worst, shift(of, first, second, gram, cross) / mu(of, gram, cross))
    assert worst <= 1 + 1e-9
    assert worst > 0.95


@given(
    gram=st.floats(0.1, 30.0),
    cross=st.floats(0.1, 30.0),
    norm=st.floats(0.1, 100.0),
    target=st.floats(0.1, 10.0),
)
@settings(max_examples=60, deadline=None)
def test_the_sensitivity_is_attained(gram: float, cross: float, norm: float, target: float) -> None:
    """The worst replacement: long rows at the angle of the proof, opposite extreme targets."""
    of = problem(norm, target)
    g, h = (norm**2 / gram) ** 2, (norm * target / cross) ** 2
    cosine = min(1.0, h / (2 * g))
    first = ([[0.0, 0.0], [norm, 0.0]], [0.0, target], None)
    second = ([[0.0, 0.0], [norm * cosine, norm * math.sqrt(1 - cosine**2)]], [0.0, -target], None)
    assert shift(of, first, second, gram, cross) == pytest.approx(mu(of, gram, cross), rel=1e-6)
    added = problem(norm, target, adjacency="add-remove")
    alone = ([[0.0, 0.0]], [0.0], None)
    assert shift(added, first, alone, gram, cross) == pytest.approx(mu(added, gram, cross), rel=1e-6)


def test_the_intercept_counts_in_the_row() -> None:
    assert mu(problem(fit_intercept=True, adjacency="add-remove"), 1.0, 1e9) == pytest.approx(2.0)


def test_known_limits() -> None:
    """Gram alone: sqrt 2 B^2 (replace-one), B^2 (add-remove). Cross alone: 2 B Y and B Y."""
    for norm, target in ((0.1, 2.0), (100.0, 0.5)):
        huge = 1e12
        assert mu(problem(norm, target), 1.0, huge) == pytest.approx(math.sqrt(2) * norm**2, rel=1e-6)
        assert mu(problem(norm, target, adjacency="add-remove"), 1.0, huge) == pytest.approx(
            norm**2, rel=1e-6
        )
        assert mu(problem(norm, target), huge, 1.0) == pytest.approx(2 * norm * target, rel=1e-6)
        assert mu(problem(norm, target, adjacency="add-remove"), huge, 1.0) == pytest.approx(
            norm * target, rel=1e-6
        )


@given(
    epsilon=st.floats(0.05, 10.0),
    share=st.floats(0.05, 0.95),
    norm=st.floats(0.1, 100.0),
    adjacency=st.sampled_from(["replace-one", "add-remove"]),
)
@settings(max_examples=60, deadline=None)
def test_calibration_meets_epsilon(epsilon: float, share: float, norm: float, adjacency: str) -> None:
    of = problem(norm, 2.0, adjacency=adjacency)
    run = calibrate_sufficient_statistics(
        of.constants, epsilon=epsilon, delta=1e-6, cross_budget_fraction=share
    )
    promised = Plan(problem=of, spec=run, delta=1e-6).guarantee.epsilon()
    assert 0.9999 * epsilon <= promised <= epsilon
    ratio = (norm**2 / run.gram_noise_std) ** 2 / (2 * norm / run.cross_noise_std) ** 2
    assert ratio == pytest.approx((1 - share) / share, rel=1e-6)


def test_the_noise_is_isotropic_in_the_frobenius_norm() -> None:
    rng = np.random.default_rng(0)
    draws = np.array([sample_symmetric_noise(3, rng) for _ in range(20_000)])
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    tolerance = 6 * math.sqrt(2 / 20_000)  # six standard errors of a variance
    assert np.allclose(draws.var(axis=0), (np.ones((3, 3)) + np.eye(3)) / 2, atol=tolerance)
    assert abs(np.mean(draws[:, 0, 1] * draws[:, 0, 2])) < tolerance


def test_without_noise_it_is_ridge_regression() -> None:
    rng = np.random.default_rng(1)
    of = problem(3.0, 5.0, n=80, dimension=4, ridge=0.1, fit_intercept=True)
    rows, labels, weights = rng.standard_normal((80, 4)), rng.uniform(-5, 5, 80), rng.uniform(0, 1, 80)
    data = ArrayDataset(rows, labels, of, weights)
    run = SufficientStatisticsSpec(gram_noise_std=1e-9, cross_noise_std=1e-9, eigenvalue_floor=1e-9)
    theta = SufficientStatistics().run(Plan(problem=of, spec=run, delta=0.5), data, 0).value
    clipped = np.column_stack([rows / np.maximum(np.linalg.norm(rows, axis=1) / 3, 1)[:, None], np.ones(80)])
    expected = np.linalg.solve(
        (clipped.T * weights) @ clipped + 8 * np.eye(5), (clipped.T * weights) @ labels
    )
    np.testing.assert_allclose(theta, expected, atol=1e-7)


@pytest.mark.parametrize("constraint", [None, Ball(0.5)])
def test_every_noise_level_gives_a_finite_answer(constraint: Ball | None) -> None:
    more = {} if constraint is None else {"constraint": constraint}
    of = problem(n=5, dimension=3, **more)
    data = ArrayDataset(np.zeros((5, 3)), np.zeros(5), of)
    for noise in (1e-6, 1.0, 1e6):
        run = SufficientStatisticsSpec(gram_noise_std=noise, cross_noise_std=noise, eigenvalue_floor=noise)
        plan = Plan(problem=of, spec=run, delta=1e-5)
        values = np.array([SufficientStatistics().run(plan, data, seed).value for seed in range(50)])
        assert np.isfinite(values).all()
        assert np.linalg.norm(values, axis=1).max() < (10 if constraint is None else 0.5 + 1e-12)


def test_the_constrained_answer_is_the_constrained_minimiser() -> None:
    rng = np.random.default_rng(3)
    of = problem(n=50, dimension=3, constraint=Ball(0.2), ridge=0.01)
    data = ArrayDataset(rng.standard_normal((50, 3)), rng.choice([-1.0, 1.0], 50), of)
    run = SufficientStatisticsSpec(gram_noise_std=1e-9, cross_noise_std=1e-9, eigenvalue_floor=1e-9)
    theta = SufficientStatistics().run(Plan(problem=of, spec=run, delta=0.5), data, 0).value
    gram, cross = second_moments(data)
    gradient = (gram + 0.5 * np.eye(3)) @ theta - cross
    assert np.linalg.norm(theta) == pytest.approx(0.2)
    np.testing.assert_allclose(gradient / np.linalg.norm(gradient), -theta / 0.2, atol=1e-5)


def test_hypotheses_and_bad_input_are_named() -> None:
    run = SufficientStatisticsSpec(gram_noise_std=1.0, cross_noise_std=1.0, eigenvalue_floor=1.0)
    bare = Constants(n=5, lipschitz=1.0, dimension=2)
    with pytest.raises(AssumptionFailed, match="row norm"):
        SufficientStatisticsTheorem().certify(bare, run)
    with pytest.raises(AssumptionFailed, match="label_bound"):
        SufficientStatisticsTheorem().certify(replace(bare, row_norm=1.0), run)
    with pytest.raises(CalibrationFailed, match="dimension"):
        calibrate_sufficient_statistics(replace(bare, dimension=None), epsilon=1.0, delta=1e-5)
    with pytest.raises(InvalidParameter, match="delta must be strictly between 0 and 1"):
        Plan(problem=problem(), spec=run, delta=0.0)
    for name in ("gram_noise_std", "cross_noise_std", "eigenvalue_floor"):
        with pytest.raises(InvalidParameter, match=name):
            replace(run, **{name: 0.0})  # type: ignore[arg-type]
    other = problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2))
    data = ArrayDataset(np.zeros((2, 2)), np.zeros(2), other)
    with pytest.raises(InvalidParameter, match="squared loss only"):
        SufficientStatistics().run(Plan(problem=other, spec=run, delta=1e-5), data, 0)
