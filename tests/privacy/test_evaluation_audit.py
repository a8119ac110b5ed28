"""Audit pairs for scores, choices and curvatures: the honest release is not refuted, a sabotaged one is.

Every neighbouring pair attains the claimed sensitivity. Confidence 0.9999 per audit, so the honest audits raise a
false alarm with probability below 1e-3 in all (seeds are fixed). Runs share one vectorised call where they can.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dplangevin.audit import attack
from dplangevin.data import ArrayDataset
from dplangevin.estimators import _metrics
from dplangevin.estimators._scoring import Scoring
from dplangevin.estimators.evaluation import private_score
from dplangevin.estimators.uncertainty import plan_with_intervals, run_with_intervals
from dplangevin.mechanisms.curvature import _sums
from dplangevin.mechanisms.noisy_sums import release_best, release_sums
from dplangevin.privacy.theorems.noisy_max import calibrated_max
from dplangevin.privacy.theorems.noisy_sums import NoisySums, calibrated_sums

RUNS, DELTA, CONFIDENCE = 2500, 1e-3, 0.9999


class Model:
    """Says class 1 with probability x."""

    classes_ = np.array([0, 1])

    def predict(self, X: Any) -> np.ndarray:
        return (np.asarray(X)[:, 0] > 0.5).astype(int)

    def predict_proba(self, X: Any) -> np.ndarray:
        score = np.asarray(X)[:, 0]
        return np.column_stack([1 - score, score])


def sabotaged(plan: NoisySums, factor: float) -> NoisySums:
    return replace(plan, groups=tuple(replace(group, scale=group.scale / factor) for group in plan.groups))


def scores(plan: NoisySums, sums: list[np.ndarray], towards: list[np.ndarray], seed: int) -> np.ndarray:
    """Noisy sums of many runs, projected on the direction in which the neighbour differs, in units of the noise."""
    rng = np.random.default_rng(seed)
    found = np.empty(RUNS)
    for i in range(RUNS):
        values = release_sums(plan, lambda: sums, rng).values
        found[i] = sum(float(np.sum(v * t)) for v, t in zip(values, towards, strict=True))
    return found


def pair(plan: NoisySums, first: list[np.ndarray], second: list[np.ndarray], factor: float) -> None:
    towards = [(np.sign(b - a) if plan.noise == "geometric" else b - a) / group.scale for a, b, group in
               zip(first, second, plan.groups, strict=True)]  # fmt: skip
    weak = sabotaged(plan, factor)
    for run, refuted in ((plan, False), (weak, True)):
        result = attack(
            scores(run, first, towards, 1),
            scores(run, second, towards, 2),
            plan.guarantee,
            delta=DELTA,
            confidence=CONFIDENCE,
        )
        assert result.refuted == refuted


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("metric", ["accuracy", "log-loss"])
def test_sums_of_losses(metric: str, adjacency: str) -> None:
    scoring = Scoring(metric=metric, adjacency=adjacency)
    best, worst = np.array([0.0, 0.3, 0.6]), np.array([1.0, 0.3, 0.6])
    if adjacency == "add-remove":
        best = best[1:]
    pair(scoring.plan(1.0, 0.0, 1), scoring.loss_sums(best), scoring.loss_sums(worst), 4)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_histogram(adjacency: str) -> None:
    """Sabotage by 2: under replace-one that is the noise of someone who forgot that two counts move."""
    edges = _metrics.bin_edges(4)
    X, y = np.array([[0.1], [0.9], [0.4]]), np.array([0, 1, 1])
    if adjacency == "replace-one":
        other_X, other_y = np.array([[0.95], [0.9], [0.4]]), np.array([1, 1, 1])
    else:
        other_X, other_y = X[1:], y[1:]
    plan = calibrated_sums(
        [(8, 1, 1.0)],
        epsilon=1.0,
        noise="geometric",
        adjacency=adjacency,  # type: ignore[arg-type]
    )
    first, second = (
        _metrics.histogram(Model(), X, y, edges),
        _metrics.histogram(Model(), other_X, other_y, edges),
    )
    pair(plan, [first], [second], 2)


def test_the_whole_of_private_score() -> None:
    """The released accuracy itself, against the claim and against a quarter of its noise."""
    n, claim = 40, 1.0
    X, y = np.full((n, 1), 0.9), np.ones(n, int)
    other = y.copy()
    other[0] = 0
    rng = np.random.default_rng(3)

    def values(labels: np.ndarray, epsilon: float) -> np.ndarray:
        return np.array(
            [
                private_score(Model(), X, labels, epsilon=epsilon, level=0.5, random_state=rng).value
                for _ in range(500)
            ]
        )

    honest = private_score(Model(), X, y, epsilon=claim, random_state=0).guarantee
    half = np.where(np.arange(n) < 20, 1, 0)
    near = half.copy()
    near[0] = 0
    fair = attack(values(half, claim), values(near, claim), honest, delta=DELTA, confidence=CONFIDENCE)
    foul = attack(
        values(half, 4 * claim), values(near, 4 * claim), honest, delta=DELTA, confidence=CONFIDENCE
    )
    assert not fair.refuted
    assert foul.refuted


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_selection(adjacency: str) -> None:
    """Two equal candidates; the differing record favours one. The claim is attained."""
    plan = calibrated_max(candidates=2, unit=1, epsilon=2.0, adjacency=adjacency)  # type: ignore[arg-type]
    # From a tie: candidate 0 then has to overcome a gap of 2 (or 1), and exp(-gap / scale) is attained.
    first = np.array([5.0, 5.0])
    second = np.array([4.0, 6.0]) if adjacency == "replace-one" else np.array([5.0, 6.0])

    def wins(run: Any, totals: np.ndarray, seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        return np.array([release_best(run, lambda: totals, rng).values[0][0] for _ in range(RUNS)])

    weak = replace(plan, scale=plan.scale / 4)
    for run, refuted in ((plan, False), (weak, True)):
        result = attack(
            wins(run, first, 4), wins(run, second, 5), plan.guarantee, delta=DELTA, confidence=CONFIDENCE
        )
        assert result.refuted == refuted


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_curvature(delta: float) -> None:
    """The matrix of two worst records, at right angles; Gaussian and exp(-|z|) noise."""
    options = {
        "model": "logistic", "n": 2, "n_features": 2, "epsilon": 3.0, "delta": delta, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": False, "radius": None, "alpha": None, "mechanism": "auto",
        "theorem": None, "weight_bound": 1.0,
    }  # fmt: skip
    _, both = plan_with_intervals(0.6, options)
    problem, zero = both.plan.problem, np.zeros(2)
    assert problem is not None
    first = _sums(ArrayDataset([[1.0, 0.0], [0.6, 0.0]], [0, 1], problem), zero, 1)
    second = _sums(ArrayDataset([[0.0, 1.0], [0.6, 0.0]], [0, 1], problem), zero, 1)
    reach = both.curvature.groups[0].reach(both.curvature.noise, "replace-one")
    assert np.linalg.norm(first[0] - second[0]) == pytest.approx(reach, rel=1e-6)
    pair(both.curvature, first, second, 4)


def test_a_fit_with_intervals() -> None:
    """The coefficient of a fit with intervals; near 0 a label moves the slope by half of its bound."""
    options = {
        "model": "logistic", "n": 2, "n_features": 1, "epsilon": 1.0, "delta": 0.0, "adjacency": "replace-one",
        "data_norm": 1.0, "fit_intercept": False, "radius": None, "alpha": 2.0, "mechanism": "auto",
        "theorem": None, "weight_bound": 1.0,
    }  # fmt: skip
    _, both = plan_with_intervals(0.15, options)
    assert both.plan.problem is not None
    weak_plan = replace(
        both.plan, schedule=replace(both.plan.schedule, noise_scale=both.plan.schedule.noise_scale / 16)
    )
    weak = replace(both, plan=weak_plan)

    def centres(run: Any, labels: list[int], seed: int) -> np.ndarray:
        rng = np.random.default_rng(seed)
        data = ArrayDataset([[1.0], [1.0]], labels, run.plan.problem)
        return np.array([run_with_intervals(run, data, rng, None)[0].value[0] for _ in range(600)])

    for run, refuted in ((both, False), (weak, True)):
        result = attack(
            centres(run, [1, 1], 6),
            centres(run, [0, 1], 7),
            both.guarantee,
            delta=DELTA,
            confidence=CONFIDENCE,
        )
        assert result.refuted == refuted
    assert math.isclose(both.guarantee.epsilon(0.0), 1.0, rel_tol=1e-6)
