"""Outer statements: every model of the set is inside, as often as stated; the proof's parts against brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import DPHuberRegressor, DPLogisticRegression, DPRidge
from dplangevin.mechanisms.noisy_answers.curvature import unpack_symmetric
from dplangevin.mechanisms.rashomon_region.objective import (
    PAIR_WEIGHT,
    RegionObjective,
    find_outer_ellipsoid,
    majorant_and_hessian_sums,
    majorant_curvature,
    min_curvature_ratio,
    scaled_gradient_sum,
)
from dplangevin.mechanisms.rashomon_region.planning import noise_eigenvalue_bound
from dplangevin.problem import DataBounds, Logistic, Problem
from dplangevin.rashomon import RashomonRegion, exact_region

N = 8000
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, 2)) / 2**0.5
SCORES = X @ np.array([4.0, -2.0])
Y = (SCORES + RNG.logistic(size=N) > 0).astype(int)
PUBLIC = RNG.uniform(-1, 1, (80, 2)) / 2**0.5


def of(n: int, columns: int) -> tuple[RegionObjective, Problem]:
    problem = Problem(
        loss=Logistic(),
        bounds=DataBounds(data_norm=1.0, classes=2),
        n=n,
        n_features=columns,
        fit_intercept=False,
    )
    return RegionObjective.from_problem(problem, Logistic(), 0.0), problem


def test_the_curvature_from_below_holds_for_every_step() -> None:
    objective, _ = of(1, 1)
    loss, none = Logistic(), np.zeros(1)
    for rho in (0.01, 0.3, 1.0, 4.0, 20.0):
        om, closest = min_curvature_ratio(objective, rho), np.inf
        for t in np.linspace(-15, 15, 121):
            here = np.array([t])
            steps = np.linspace(-rho, rho, 201)
            rise = (
                loss.value(t + steps, np.zeros(201)) - loss.value(here, none) - loss.slope(here, none) * steps
            )
            spare = rise - om * loss.curvature(here, none) * steps**2
            assert spare.min() > -1e-12
            closest = min(closest, float((rise[0]) / (loss.curvature(here, none)[0] * rho**2)))
        assert closest < 1.3 * om  # sharp far out


def test_two_matrices_for_the_price_of_one() -> None:
    """u = tanh(t/2): (1 - u^2)^2 + PAIR^2 (u / artanh u - 1 + u^2)^2 <= 1, in cells with monotone terms."""
    edges = np.concatenate([np.linspace(0.7, 0.99, 400), 1 - np.geomspace(1e-2, 1e-9, 2000)[1:]])
    left, right = edges[:-1], edges[1:]
    most = 1 / np.arctanh(left) - 1 / right + right
    assert (most <= np.sqrt(2 - right**2) / PAIR_WEIGHT).all()
    assert 1 / np.arctanh(edges[-1]) <= 1 / PAIR_WEIGHT  # the last cell, up to 1
    # below 0.7: artanh u >= u + u^3 / 3 gives u (2 + u^2) / (3 + u^2), which grows, against what falls
    assert math.sqrt(2 - 0.49) / PAIR_WEIGHT >= 0.7 * 2.49 / 3.49
    t = np.linspace(-40, 40, 100_001)
    bends, weights = Logistic().curvature(t, t), majorant_curvature(Logistic(), t, t)
    assert (np.hypot(bends, PAIR_WEIGHT * (weights - bends)) <= 0.25 * (1 + 1e-12)).all()


def test_one_record_never_exceeds_its_share() -> None:
    rng = np.random.default_rng(1)
    objective, problem = of(1, 3)
    for _ in range(300):
        row = rng.standard_normal((1, 3))
        row /= np.linalg.norm(row)
        data = ArrayDataset(row, rng.integers(0, 2, 1).astype(float), problem)
        centre = rng.standard_normal(3) * 10.0 ** rng.uniform(-2, 2)
        assert (
            np.linalg.norm(data.sum_over_blocks(majorant_and_hessian_sums, objective, centre))
            <= objective.curvature_unit
        )
        assert np.linalg.norm(data.sum_over_blocks(scaled_gradient_sum, objective, centre, 1.0)) <= 1 + 1e-12


def boundary(theta: np.ndarray, psi: float, ridge: float, data: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Models with F = F(theta) + psi in many directions: the border of the set."""
    rows, labels = data

    def value(points: np.ndarray) -> np.ndarray:
        penalty = ridge / 2 * np.square(points).sum(axis=0)
        return np.asarray(Logistic().value(rows @ points, labels[:, None]).mean(axis=0) + penalty)

    angles = np.linspace(0, 2 * np.pi, 90, endpoint=False)
    ways = np.array([np.cos(angles), np.sin(angles)])
    base, low, high = value(theta[:, None])[0], np.zeros(90), np.full(90, 200.0)
    for _ in range(40):
        middle = (low + high) / 2
        inside = value(theta[:, None] + middle * ways) <= base + psi
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.asarray(theta[:, None] + low * ways)


@pytest.mark.parametrize("skewed", [False, True])
def test_all_of_the_set_is_inside_as_often_as_stated(skewed: bool) -> None:
    """300 redraws of both noises; at most .1 may fail (false alarm 1e-3), around a centre off the best.

    skewed : rows on one line, so that the Hessian has rank one and its noise reaches below 0; a ridge ends the set.
    """
    rng, redraws = np.random.default_rng(5), 300
    rows = X[:600] if not skewed else X[:600, :1] * np.array([[1.0, 0.3]])
    labels, psi, n, ridge = Y[:600].astype(float), 0.01, 600, 0.02 if skewed else 0.0
    objective, problem = of(n, 2)
    objective = replace(objective, ridge=ridge)
    centre = np.array([3.5, -1.7]) if not skewed else np.array([2.0, 0.5])
    data = ArrayDataset(rows, labels, problem)
    exact = (
        unpack_symmetric(np.split(data.sum_over_blocks(majorant_and_hessian_sums, objective, centre), 2)[0])
        / n
    )
    slope = data.sum_over_blocks(scaled_gradient_sum, objective, centre, 1.0) / n + ridge * centre
    border = boundary(centre, psi, ridge, (rows, labels))
    deviation, steep, failure = 5e-4, 1e-3, 0.05
    proved = missed = 0
    for _ in range(redraws):
        noise = deviation * unpack_symmetric(rng.standard_normal(3))
        found = find_outer_ellipsoid(
            objective, centre, exact + noise, slope + steep * rng.standard_normal(2), threshold=psi, failure=failure,
            noise_eigenvalue=noise_eigenvalue_bound(deviation, 2, failure), gradient_deviation=steep,
        )  # fmt: skip
        if found is None:
            continue
        away = border - found.center[:, None]
        size = np.sqrt((away * np.linalg.solve(found.inverse, away)).sum(axis=0))
        proved += 1
        missed += bool((size > found.radius * (1 + 1e-9)).any())
    assert proved > 0.3 * redraws  # the rest say nothing
    assert missed <= redraws * (0.1 + 3 * math.sqrt(0.1 * 0.9 / redraws))


def region(estimator: Any = None, **changes: Any) -> RashomonRegion:
    model = DPLogisticRegression(data_norm=1.0, classes=[0, 1], fit_intercept=False)
    options: dict[str, Any] = {
        "thresholds": (0.01, 0.05), "epsilon": 16.0, "delta": 1e-6, "public_inputs": PUBLIC, "n_models": 5,
        "random_state": 1, "outer": True, **changes,
    }  # fmt: skip
    return RashomonRegion(model if estimator is None else estimator, **options)


def test_true_ranges_lie_between_inner_and_outer() -> None:
    made = region().fit(X, Y)
    assert made.privacy_.epsilon() <= 16.0
    some = {"inputs": PUBLIC[:4], "reference": made.center_}
    exact = exact_region(made.estimator, X, Y, (0.01, 0.05), **some)
    table = made.multiplicity()
    true = exact_region(
        made.estimator, X, Y, (0.01, 0.05), ranges=False, **(some | {"inputs": PUBLIC})
    ).ambiguity
    for index, level in enumerate(table.levels):
        assert level.outer_ranges is not None
        low, high = (np.log(p / (1 - p)) for p in (side[:4] for side in level.outer_ranges))
        assert exact.low is not None
        assert exact.high is not None
        assert (low <= exact.low[index] + 1e-6).all()
        assert (high >= exact.high[index] - 1e-6).all()
        assert (high - low).mean() < 5 * (exact.high[index] - exact.low[index]).mean()
        assert level.ambiguity <= true[index] <= level.max_ambiguity  # type: ignore[operator]
    assert table.levels[0].max_ambiguity < 0.6  # type: ignore[operator]  # it says something
    assert "EVERY model" in str(table)
    assert table.to_dict()["status"]["ambiguity at most"] == "certified (at most)"
    later = made.multiplicity(PUBLIC[:5])  # outer ranges hold for any input
    assert later.levels[0].outer_ranges is not None
    assert later.levels[0].outer_ranges[0] == pytest.approx(table.levels[0].outer_ranges[0][:5])  # type: ignore[index]


def test_a_squared_loss_needs_no_remainder() -> None:
    ridge = DPRidge(target_bounds=(-5, 5), data_norm=1.0, fit_intercept=False)
    made = region(ridge, thresholds=(0.02,)).fit(X, np.clip(SCORES, -5, 5))
    (level,) = made.multiplicity().levels
    assert level.outer_ranges is not None
    assert level.max_ambiguity is None
    theta = made.release_.center
    targets = np.clip(SCORES, -5, 5) / 5
    moment = X.T @ X / N
    best = np.linalg.solve(moment, X.T @ targets / N)
    gap = (theta - best) @ moment @ (theta - best) / 2
    half = 5 * np.sqrt(2 * (0.02 + gap) * np.einsum("ij,jk,ik->i", PUBLIC, np.linalg.inv(moment), PUBLIC))
    middle = 5 * PUBLIC @ best
    assert (level.outer_ranges[0] <= middle - half + 1e-9).all()
    assert (level.outer_ranges[1] >= middle + half - 1e-9).all()
    assert (level.outer_ranges[1] - level.outer_ranges[0]).mean() < 4 * half.mean()


def test_what_has_no_outer_statement_is_refused_or_says_nothing() -> None:
    with pytest.raises(InvalidParameter, match="beyond 10 columns"):
        region().plan(N, 12)
    with pytest.raises(InvalidParameter, match="logistic and the squared"):
        region(DPHuberRegressor(target_bounds=(-5, 5), data_norm=1.0)).plan(N, 2)
    with pytest.warns(UserWarning, match="records"):
        small = region(epsilon=0.2).fit(X[:300], Y[:300])
    table = small.multiplicity()
    assert table.levels[0].outer_ranges is None
    assert "Models outside may also be in the set" in table.sentence
