"""Flip-cost levels: the minimisers, what one record may move, and bounds that hold as often as stated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dplangevin.data import ArrayDataset
from dplangevin.errors import DplangevinError
from dplangevin.estimators import DPLinearSVC, DPLogisticRegression, DPRidge
from dplangevin.mechanisms.rashomon_region.objective import RegionObjective
from dplangevin.mechanisms.rashomon_region.planning import (
    FLIP_TOLERANCE,
    bound_levels,
    flip_totals,
    max_loss_difference,
    project_on_flip_set,
    smallest_totals,
)
from dplangevin.problem import DataBounds, Logistic, Problem
from dplangevin.rashomon import RashomonRegion, exact_region

RNG = np.random.default_rng(3)
N = 1500
X = RNG.uniform(-1, 1, (N, 2)) / 2**0.5
Y = (4 * X[:, 0] - X[:, 1] + RNG.logistic(size=N) > 0).astype(int)
PUBLIC = RNG.uniform(-1, 1, (20, 2)) / 2**0.5


def of(n: int, adjacency: str = "replace-one", ridge: float = 0.0) -> tuple[RegionObjective, Problem]:
    problem = Problem(
        loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=n, n_features=2, fit_intercept=False,
        adjacency=adjacency,  # type: ignore[arg-type]
    )  # fmt: skip
    return RegionObjective.from_problem(problem, Logistic(), ridge), problem


def logistic(**changes: Any) -> DPLogisticRegression:
    options = {"data_norm": 1.0, "classes": [0, 1], "fit_intercept": False, "radius": 6.0, **changes}
    return DPLogisticRegression(**options)


def test_the_projection_is_the_nearest_allowed_point() -> None:
    """Against a fine polar grid of the allowed set."""
    angles, radii = np.meshgrid(np.linspace(0, 2 * np.pi, 721), np.linspace(0, 1, 201))
    grid = np.stack([radii * np.cos(angles), radii * np.sin(angles)]).reshape(2, -1) * 1.5
    for _ in range(60):
        normal = RNG.standard_normal((2, 1))
        normal /= np.linalg.norm(normal)
        offset, step = RNG.uniform(-1.4, 1.4, 1), 2.5 * RNG.standard_normal((2, 1))
        found = project_on_flip_set(step, normal, offset, 1.5)
        assert np.linalg.norm(found) <= 1.5 * (1 + 1e-12)
        assert float((normal * found).sum()) >= offset[0] - 1e-12
        allowed = grid[:, (normal * grid).sum(axis=0) >= offset[0]]
        best = np.sqrt(np.square(allowed - step).sum(axis=0)).min()
        away = float(np.linalg.norm(found - step))
        assert best - 0.02 <= away <= best + 1e-9


@pytest.mark.parametrize("ridge", [0.0, 0.002])
def test_totals_are_the_flip_costs_up_to_the_tolerance(ridge: float) -> None:
    objective, problem = of(N, ridge=ridge)
    data, centre, rho = ArrayDataset(X, Y.astype(float), problem), np.array([3.0, 0.5]), 6.0
    totals = flip_totals(data, objective, centre, PUBLIC, rho) * max_loss_difference(objective, rho) / N
    exact = exact_region(logistic(alpha=ridge), X, Y, 0.1, inputs=PUBLIC, reference=centre, ranges=False)
    best = -exact.gap  # where the best model itself decides otherwise, the cost is negative
    truth = np.where(exact.flip_costs > 0, exact.flip_costs, np.nan)
    assert np.nanmax(np.abs(totals - truth)) <= FLIP_TOLERANCE * rho / N
    assert (totals >= best - 1e-9).all()
    assert np.isinf(flip_totals(data, objective, centre, np.array([[0.0, 0.0], [1.0, 0.0]]), 2.0)).all()


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_no_neighbour_moves_a_level_further_than_its_reach(adjacency: str) -> None:
    """Random neighbours and the worst pair: an input that only a model at the end of the ball decides otherwise."""
    sides, rng, worst = (2 if adjacency == "replace-one" else 1), np.random.default_rng(11), 0.0
    for trial in range(120):
        n = int(rng.integers(1, 4))
        objective, problem = of(n, adjacency)
        rho = float(10.0 ** rng.uniform(-1, 1))
        if trial % 3 == 0:
            n, rho = 1, 5.0
            objective, problem = of(1, adjacency)
            centre, inputs = np.array([300.0, -4.999]), np.array([[0.0, 1.0]])
            rows, labels = np.array([[0.3, 1.0], [-0.3, 1.0]]) / math.hypot(0.3, 1.0), np.array([0.0, 1.0])
            tables = [(rows[:1], labels[:1]), (rows[1:], labels[1:])]
        else:
            centre, inputs = rng.standard_normal(2) * 3, rng.standard_normal((5, 2))
            rows, labels = rng.standard_normal((n + 1, 2)), rng.integers(0, 2, n + 1).astype(float)
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            tables = [(rows[:n], labels[:n]), (rows[1:], labels[1:])]
        if adjacency == "add-remove":
            tables = [tables[0], (tables[0][0][1:], tables[0][1][1:])]
        found = [
            np.sort(flip_totals(ArrayDataset(x, y, problem), objective, centre, inputs, rho))
            for x, y in tables
        ]
        finite = np.isfinite(found[0])
        assert np.array_equal(finite, np.isfinite(found[1]))
        if finite.any():
            worst = max(worst, float(np.abs(found[0][finite] - found[1][finite]).max()) / sides)
    assert 0.9 < worst <= 1 + FLIP_TOLERANCE


def test_both_bounds_hold_as_often_as_stated() -> None:
    """4,000 redraws of the noise on three levels; false alarm 1e-3."""
    objective, problem = of(N)
    data, centre, rho, deviation = ArrayDataset(X, Y.astype(float), problem), np.array([3.0, 0.5]), 6.0, 8.0
    unit, shares, redraws, failure = max_loss_difference(objective, rho) / N, (0.1, 0.4, 0.8), 4000, 0.1
    exact, counts = smallest_totals(flip_totals(data, objective, centre, PUBLIC, rho), shares)
    held = 0
    for noise in deviation * RNG.standard_normal((redraws, 3)):
        levels = bound_levels(
            exact + noise, len(PUBLIC), counts, shares, n_inputs=len(PUBLIC), radius=rho, unit=unit,
            deviation=deviation, failure=failure,
        )  # fmt: skip
        held += all(
            one.low <= max(true, 0.0) and true <= one.high
            for one, true in zip(levels, unit * exact, strict=True)
        )
    assert held >= redraws * (1 - failure - 3.1 * math.sqrt(failure * (1 - failure) / redraws))


@pytest.mark.parametrize("model", [logistic(), DPLinearSVC(data_norm=1.0, classes=[0, 1], radius=4.0)])
def test_levels_as_people_get_them(model: Any) -> None:
    made = RashomonRegion(
        model, thresholds=(0.05,), epsilon=8.0, delta=1e-6, public_inputs=PUBLIC, n_models=3, random_state=3,
        flip_shares=(0.5, 0.1, 0.5),
    ).fit(X, Y)  # fmt: skip
    assert made.privacy_.epsilon() <= 8.0
    plan = made.plan_
    assert plan.flips is not None
    assert plan.flips.spec.sensitivity >= 2 * math.sqrt(2) * (1 + FLIP_TOLERANCE)  # type: ignore[attr-defined]
    parts = (plan.center, plan.curvature, plan.slack, plan.flips)
    assert plan.guarantee.mu == pytest.approx(math.hypot(*(part.guarantee.mu or math.nan for part in parts)))
    assert [level.fraction for level in made.flip_levels_] == [0.1, 0.5]
    exact = exact_region(model, X, Y, 0.1, inputs=PUBLIC, reference=made.center_, ranges=False).flip_costs
    for level in made.flip_levels_:
        assert level.low <= np.sort(exact)[level.count - 1] <= level.high + 1e-9
        assert level.low == 0 or level.high - level.low == pytest.approx(made.plan_.level_width)
    assert "apart" in str(made.plan_)
    table = made.multiplicity()
    assert "of the first 20 inputs (50%)" in str(table)
    assert table.status["flip-cost levels"] == "certified (both sides)"
    assert len(table.to_dict()["flip_levels"]) == 2
    assert not made.multiplicity(PUBLIC[:3]).flip_levels


def test_what_has_no_levels_is_refused() -> None:
    def fit(model: Any, shares: Any, labels: Any = Y) -> None:
        RashomonRegion(model, epsilon=4.0, public_inputs=PUBLIC, flip_shares=shares).fit(X, labels)

    with pytest.raises(DplangevinError, match="two classes"):
        fit(DPRidge(data_norm=1.0, target_bounds=(0, 1)), 0.5)
    with pytest.raises(DplangevinError, match="two classes"):
        fit(logistic(classes=[0, 1, 2]), 0.5)
    for share in (0.0, 1.0, "a"):
        with pytest.raises(DplangevinError, match="flip share"):
            fit(logistic(), share)
    with pytest.raises(DplangevinError, match="at most n records"):
        fit(logistic(n_public=2 * N, adjacency="add-remove"), 0.5)
    with pytest.raises(DplangevinError, match="steps at this n and radius"):
        fit(logistic(radius=1e6), 0.5)
