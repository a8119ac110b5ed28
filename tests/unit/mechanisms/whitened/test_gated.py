"""Gated weights of iterates: nothing where effects are strong, a pull to zero where the path shows none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit

from dplangevin import plan_fit
from dplangevin.accounting.plan import Plan
from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.noisy_gradient.mechanism import compute_gate
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.whitened.spec import equal_noise_path, window_response

STATED: dict[str, Any] = {
    "model": "logistic", "n": 8000, "n_features": 30, "epsilon": 0.1, "delta": 1e-5, "adjacency": "replace-one",
    "data_norm": 1.0, "fit_intercept": False,
}  # fmt: skip


def plans(**changes: Any) -> tuple[Plan, Plan]:
    """Plain descent, and the same run with gated weights."""
    plain = plan_fit(**(STATED | changes), mechanism="noisy-gd").plan
    assert isinstance(plain.spec, NoisyGradientSpec)
    spec = replace(plain.spec, weights="gated")
    return plain, Plan(problem=plain.problem, spec=spec, delta=plain.delta)


def unit_rows(n: int, seed: int) -> np.ndarray:
    rows = np.column_stack([np.random.default_rng(seed).standard_normal((n, 29)), np.ones(n)])
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def test_pure_noise_is_recognised() -> None:
    """Mean log-loss of 10 seeds at most .72 (base rate .693); plain descent is above .8."""
    rows = unit_rows(12_000, 1)
    labels = (np.random.default_rng(2).random(12_000) < 0.5).astype(float)
    losses = []
    for plan in plans():
        data = ArrayDataset(rows[:8000], labels[:8000], plan.problem)
        signs = np.where(labels[8000:] > 0, 1.0, -1.0)
        scores = [signs * (rows[8000:] @ run_plan(plan, data, seed).value) for seed in range(10)]
        links = [
            [np.minimum(0.5, expit(sign * s)) for sign in (1, -1)] for s in scores
        ]  # of a slope clipped at 1/2
        losses.append(np.mean([-np.log(a / (a + b)).mean() for a, b in links]))
    assert losses[0] > 0.8
    assert losses[1] <= 0.72


def test_strong_signal_keeps_the_mean_of_the_tail_bit_by_bit() -> None:
    rows = unit_rows(8000, 3)
    labels = (rows @ np.r_[60.0, -40.0, np.zeros(28)] > 0).astype(float)
    first, second = (
        run_plan(plan, ArrayDataset(rows, labels, plan.problem), 4).value for plan in plans(epsilon=2.0)
    )
    np.testing.assert_array_equal(first, second)


def test_turned_parameters_have_the_same_weights() -> None:
    rng = np.random.default_rng(5)
    means = rng.standard_normal((3, 9)) * np.array([[0.6], [1.2], [2.2]])
    turn = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    here, there = compute_gate(means, 3.85, 0.0277, 52), compute_gate(means @ turn, 3.85, 0.0277, 52)
    assert here.shrinkage_weight > 0
    np.testing.assert_allclose(here.weights, there.weights, rtol=1e-8)


def test_the_prior_covariance_is_that_of_windows_on_a_quadratic() -> None:
    """sd^2 phi phi' + (eta sigma)^2 N against 20,000 draws: within 4%, about 4 deviations."""
    rng, steps, draws = np.random.default_rng(6), 40, 20_000
    eta, curvature, sd, sigma = 2.0, 0.03, 2.0, 0.1
    goal = sd * rng.standard_normal(draws)
    path, theta, previous = [], np.zeros(draws), np.zeros(draws)
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        gradient = curvature * (point - goal) + sigma * rng.standard_normal(draws)
        previous, theta = theta, point - eta * gradient
        path.append(theta)
    ends = (10, 20, 40)
    found = np.cov([np.mean(path[k - int(np.ceil(2 / 3 * k)) : k], axis=0) for k in ends])
    seen = window_response(equal_noise_path(steps), np.array([eta * curvature]))
    expected = (
        sd**2 * np.outer(seen.reached_fraction[0], seen.reached_fraction[0])
        + (eta * sigma) ** 2 * seen.noise[0]
    )
    np.testing.assert_allclose(found, expected, rtol=0.04)
