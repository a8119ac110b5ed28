"""Multiplicity metrics against closed forms, brute force, and their own inequalities."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize_scalar

from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.rashomon import (
    ambiguity,
    coefficient_values,
    conflicted_inputs,
    disagreement,
    discrepancy,
    fairness_range,
    model_reliance,
    private_counts,
    public_counts,
    rashomon_capacity,
    score_spread,
)


def entropy(p: np.ndarray) -> float:
    kept = p[p > 0]
    return float(-np.sum(kept * np.log2(kept)))


def information(weights: np.ndarray, rows: np.ndarray) -> float:
    return entropy(weights @ rows) - float(np.sum(weights * [entropy(row) for row in rows]))


@pytest.mark.parametrize("error", [0.0, 0.01, 0.11, 0.3, 0.499])
def test_capacity_of_the_binary_symmetric_channel(error: float) -> None:
    rows = np.array([[[1 - error, error]], [[error, 1 - error]]])
    expected = 2 ** (1 - entropy(np.array([error, 1 - error])))
    assert rashomon_capacity(rows)[0] == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("erased", [0.1, 0.5, 0.9])
def test_capacity_of_the_erasure_channel(erased: float) -> None:
    rows = np.array([[[1 - erased, 0.0, erased]], [[0.0, 1 - erased, erased]]])
    assert rashomon_capacity(rows)[0] == pytest.approx(2 ** (1 - erased), abs=2e-6)


def test_capacity_of_the_z_channel() -> None:
    # log2(1 + (1 - q) q^(q / (1 - q))), q the crossover probability
    q = 0.3
    rows = np.array([[[1.0, 0.0]], [[q, 1 - q]]])
    assert rashomon_capacity(rows)[0] == pytest.approx(1 + (1 - q) * q ** (q / (1 - q)), abs=2e-6)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(2, 4))
def test_capacity_is_between_one_and_the_number_of_classes(seed: int, models: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.full(classes, 0.3), (models, 6))
    values = rashomon_capacity(tables, tolerance=1e-4)
    assert np.all(values >= 1)
    assert np.all(values <= classes)
    more = rashomon_capacity(np.concatenate([tables, tables[:1]]), tolerance=1e-4)
    assert np.all(more == pytest.approx(values, rel=3e-4)), "a model that is already there adds nothing"
    assert np.all(rashomon_capacity(tables[:-1], tolerance=1e-4) <= values * (1 + 3e-4)) or models == 2


def test_capacity_against_a_grid_of_weights() -> None:
    rng = np.random.default_rng(3)
    rows = rng.dirichlet([0.5, 0.5, 0.5], 3)
    steps = np.linspace(0, 1, 101)
    best = max(
        information(np.array([a, b, 1 - a - b]), rows)
        for a, b in itertools.product(steps, steps)
        if a + b <= 1 + 1e-12 and 1 - a - b >= 0
    )
    assert math.log2(rashomon_capacity(rows[:, None, :])[0]) == pytest.approx(best, abs=2e-4)


def test_two_classes_need_only_the_extreme_models() -> None:
    rng = np.random.default_rng(4)
    share = rng.uniform(0, 1, (30, 5))
    full = rashomon_capacity(np.stack([1 - share, share], axis=2))
    for i in range(5):
        low, high = share[:, i].min(), share[:, i].max()
        found = minimize_scalar(
            lambda w, low=low, high=high: (
                -information(np.array([w, 1 - w]), np.array([[1 - low, low], [1 - high, high]]))
            ),
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert full[i] == pytest.approx(2**-found.fun, abs=1e-5)
    # brute force: no weighting of all thirty models does better
    for _ in range(200):
        weights = rng.dirichlet(np.full(30, 0.2))
        assert 2 ** information(weights, np.stack([1 - share[:, 0], share[:, 0]], 1)) <= full[0] + 1e-5


@pytest.mark.parametrize(
    "bad", [np.ones((2, 3)), np.ones((2, 3, 1)), np.full((2, 3, 2), 0.7), -np.ones((2, 3, 2)), "none"]
)
def test_capacity_refuses_what_is_no_distribution(bad: object) -> None:
    with pytest.raises(InvalidParameter, match=r"probabilities"):
        rashomon_capacity(bad)  # type: ignore[arg-type]


def test_capacity_says_when_it_does_not_converge() -> None:
    rows = np.random.default_rng(0).dirichlet([1, 1, 1], (4, 1))
    with pytest.raises(AssumptionFailed, match="did not converge"):
        rashomon_capacity(rows, tolerance=1e-12, max_steps=2)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 12))
def test_decision_metrics_against_brute_force(seed: int, models: int, inputs: int) -> None:
    table = np.random.default_rng(seed).integers(0, 3, (models, inputs))
    changed = [any(a != b for a, b in itertools.combinations(column, 2)) for column in table.T]
    assert conflicted_inputs(table).tolist() == changed
    assert ambiguity(table) == pytest.approx(np.mean(changed))
    pairs = [np.mean(table[a] != table[b]) for a in range(models) for b in range(models)]
    assert discrepancy(table) == pytest.approx(max(pairs))
    ordered = list(itertools.permutations(range(models), 2))
    for j in range(inputs):
        expected = np.mean([table[a, j] != table[b, j] for a, b in ordered]) if ordered else 0.0
        assert disagreement(table)[j] == pytest.approx(expected)
    base = table[0]
    assert ambiguity(table, base) == ambiguity(table)
    assert discrepancy(table, base) <= discrepancy(table) <= 1
    assert discrepancy(table, base) <= ambiguity(table, base) + 1e-12


def test_interval_of_linear_models_in_closed_form() -> None:
    # scores of models theta_k at x are <theta_k, x>; for thetas on a circle the viable range is +- |x|
    angles = np.linspace(0, 2 * np.pi, 3601)
    thetas, x = np.stack([np.cos(angles), np.sin(angles)]), np.array([[3.0, 4.0], [0.0, 0.0]])
    spread = score_spread(thetas.T @ x.T)
    assert spread.high == pytest.approx([5.0, 0.0], abs=1e-4)
    assert spread.low == pytest.approx([-5.0, 0.0], abs=1e-4)
    assert spread.std == pytest.approx([5 / 2**0.5, 0.0], abs=2e-3)
    low, high = spread.interval
    assert -5 < low[0] < 0 < high[0] < 5


def test_reliance_is_exact_over_all_shifts() -> None:
    rng = np.random.default_rng(5)
    X, weights = rng.standard_normal((7, 2)), np.array([[1.0, 0.0], [0.5, 2.0]])
    y = X @ np.array([1.0, 1.0])

    def mean_losses(rows: np.ndarray) -> np.ndarray:
        return np.mean((weights @ rows.T - y) ** 2, axis=1)

    cloud = model_reliance(mean_losses, X, {"first": [0], "second": [1]})
    for k, w in enumerate(weights):
        plain = np.mean((X @ w - y) ** 2)
        for c in range(2):
            total = 0.0
            for i, j in itertools.permutations(range(7), 2):
                row = X[i].copy()
                row[c] = X[j, c]
                total += (row @ w - y[i]) ** 2
            assert cloud.values[c, k] == pytest.approx(total / 42 / plain)
    assert cloud.values[1, 0] == pytest.approx(1.0), "the first model does not use the second column"
    assert cloud.minimum[0] == cloud.values[0].min()


def test_coefficient_ranges() -> None:
    cloud = coefficient_values([[1.0, -1.0], [3.0, 1.0], [2.0, 0.0]], ["a", "b"])
    assert cloud.minimum.tolist() == [1.0, -1.0]
    assert cloud.maximum.tolist() == [3.0, 1.0]
    assert cloud.median.tolist() == [2.0, 0.0]
    assert cloud.sign_changes() == ("b",)


def test_fairness_gaps_against_a_loop() -> None:
    rng = np.random.default_rng(6)
    decisions, groups, labels = (
        rng.random((3, 200)) < 0.4,
        rng.choice(["a", "b", "c"], 200),
        rng.random(200) < 0.5,
    )
    found = fairness_range(public_counts(decisions, groups, ["a", "b", "c"], labels), ["a", "b", "c"])
    for k in range(3):
        rates = [decisions[k][groups == g].mean() for g in "abc"]
        assert found.demographic_parity[k] == pytest.approx(max(rates) - min(rates))
        gaps = []
        for truth in (False, True):
            rates = [decisions[k][(groups == g) & (labels == truth)].mean() for g in "abc"]
            gaps.append(max(rates) - min(rates))
        assert found.equalized_odds is not None
        assert found.equalized_odds[k] == pytest.approx(max(gaps))
    assert not found.used_private_data


def test_private_counts_cost_what_they_say_and_are_close() -> None:
    rng = np.random.default_rng(7)
    decisions, groups = rng.random((4, 5000)) < 0.5, rng.choice(["a", "b"], 5000)
    noisy, guarantee = private_counts(decisions, groups, ["a", "b"], epsilon=2.0, random_state=0)
    assert guarantee.epsilon() == pytest.approx(2.0, rel=1e-6)
    assert guarantee.epsilon() <= 2.0
    exact = public_counts(decisions, groups, ["a", "b"])
    # geometric noise, scale 2 K / epsilon = 4 per cell: 16 cells stay within 80 but with probability 16 e^-20
    assert np.abs(noisy - exact).max() < 80
    assert np.any(noisy != exact)
    found = fairness_range(noisy, ["a", "b"], guarantee)
    assert found.used_private_data
    assert np.all(
        np.abs(found.demographic_parity - fairness_range(exact, ["a", "b"]).demographic_parity) < 0.1
    )
    gaussian, guarantee = private_counts(
        decisions, groups, ["a", "b"], epsilon=2.0, delta=1e-5, random_state=0
    )
    assert guarantee.epsilon(1e-5) <= 2.0
    assert gaussian.shape == exact.shape


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: score_spread([1.0, 2.0]), "scores must have shape"),
        (lambda: score_spread([[np.nan, 2.0]]), "scores must be finite"),
        (lambda: score_spread([[0.0, 2.0]], level=1.0), "level"),
        (lambda: ambiguity([[0, 1]], [0]), "baseline"),
        (lambda: coefficient_values([[1.0]], ["a", "b"]), "coefficients must have shape"),
        (lambda: model_reliance(lambda x: np.ones(1), np.zeros((1, 1)), {"a": [0]}), "two rows"),
        (lambda: model_reliance(lambda x: np.zeros(1), np.zeros((3, 1)), {"a": [0]}), "mean loss"),
        (lambda: fairness_range(np.ones((1, 1, 1, 2)), ["a"]), "two groups"),
        (lambda: fairness_range(np.ones((1, 2, 2)), ["a", "b"]), "counts must have shape"),
        (lambda: public_counts(np.ones((1, 3), bool), ["a"], ["a"]), "members"),
        (lambda: private_counts(np.ones((1, 3), bool), ["a"] * 3, ["a"], epsilon=-1.0), "epsilon"),
        (
            lambda: private_counts(np.ones((1, 3), bool), ["a"] * 3, ["a"], epsilon=1.0, adjacency="no"),
            "adjacency",
        ),
    ],
)
def test_bad_input_is_named(call: object, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        call()  # type: ignore[operator]
