"""Predicted excess risk of a pure fit: the quadratic model where it is exact, units, and its size on a table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dplangevin import plan_fit
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.whitened.whitening import Spectrum
from dplangevin.mechanisms.whitened_objective.mechanism import (
    RELEASED_FACTORS,
    estimate_excess,
    predict_excess,
)
from dplangevin.mechanisms.whitened_objective.spec import WhitenedObjectiveSpec
from dplangevin.problem import Clipped, DataBounds, Logistic, Problem, Softmax, Squared


def problem(loss: Any, **bounds: Any) -> Problem:
    labels = {"target": (-1.0, 1.0)} if isinstance(loss, Clipped) else {"classes": loss.label_classes or 2}
    stated = DataBounds(**({"data_norm": 1.0} | labels | bounds))
    return Problem(loss=loss, bounds=stated, n=1000, n_features=2, fit_intercept=False)


def make_spec(**changes: Any) -> WhitenedObjectiveSpec:
    options: dict[str, Any] = {
        "moment_density_scale": 0.01, "ridge": 0.05, "density_scale": 3.0, "tolerance": 1e-6,
        "release_density_scale": 1e-4,
    }  # fmt: skip
    return WhitenedObjectiveSpec(**(options | changes))


def spectrum(*values: float) -> Spectrum:
    sizes = np.array(values)
    return Spectrum(values=sizes, vectors=np.eye(2), above_noise=sizes > 0, upper_bounds=sizes, edge=0.0)


def test_it_is_the_quadratic_model() -> None:
    """Squared loss, h = n moment: bias h (Lambda q)^2 and noise h (p + 1) scale^2, over 2 (h + Lambda)^2 each."""
    q, moments, ridge = np.array([0.2, -0.3]), np.array([0.75, 0.25]), 50.0
    found = estimate_excess(make_spec(), problem(Clipped(Squared(), 1.0)), spectrum(0.9, 0.1), q, 0.25)
    assert found == pytest.approx(
        sum(
            m
            / 2
            / (1000 * m + ridge) ** 2
            * (RELEASED_FACTORS[0] * 3 * 9.0 + RELEASED_FACTORS[1] * (ridge * c) ** 2)
            for m, c in zip(moments, q, strict=True)
        )
    )


def test_it_has_no_units() -> None:
    """Longer rows and heavier weights: the same risk of the mean loss at weight 1."""
    plain, scaled = problem(Logistic()), problem(Logistic(), data_norm=7.0, weight_bound=3.0)
    ran, other = make_spec(), make_spec(ridge=0.05 * 49 * 3, density_scale=3.0 * 7 * 3)
    assert predict_excess(other, scaled) == pytest.approx(predict_excess(ran, plain))
    q = np.array([1.0, -2.0])
    one, two = (
        estimate_excess(s, p, spectrum(0.5, 0.2), v, 0.25)
        for s, p, v in ((ran, plain, q), (other, scaled, q / 7))
    )
    assert one == pytest.approx(two)
    assert predict_excess(ran, problem(Softmax(n_classes=3))) is None
    assert estimate_excess(ran, problem(Softmax(n_classes=3)), spectrum(0.5, 0.2), np.ones(6), 0.25) is None


def test_it_is_of_the_size_that_is_lost() -> None:
    """20,000 x 6, epsilon 1, four draws: within a factor of 4 before the fit and after it."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (20_000, 6)) / np.sqrt(6)
    y = (rng.random(20_000) < 1 / (1 + np.exp(-X @ np.array([4.0, -3, 2, 1, 0, 5])))).astype(float)
    fit_plans = [
        plan_fit(model="logistic", n=20_000, n_features=6, epsilon=epsilon, delta=0.0, adjacency="add-remove",
               data_norm=1.0, fit_intercept=False)
        for epsilon in (1.0, 1000.0)
    ]  # fmt: skip
    plan, loss = fit_plans[0].plan, fit_plans[0].plan.problem.loss
    made = [run_plan(plan, ArrayDataset(X, y, plan.problem), seed) for seed in range(4)]
    exact = run_plan(fit_plans[1].plan, ArrayDataset(X, y, fit_plans[1].plan.problem), 0).value
    lost = np.mean([loss.value(X @ r.value, y).mean() for r in made]) - loss.value(X @ exact, y).mean()
    for found in (fit_plans[0].predicted_excess_risk, np.mean([r.auxiliary["excess_risk"] for r in made])):
        assert lost / 4 < found < 4 * lost
