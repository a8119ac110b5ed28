"""What is read off a released path: how far the loss still falls, and what a fit is expected to have lost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dplangevin.data import ArrayDataset
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.mechanisms.whitened.postprocessing import last_third_start, loss_decrease
from dplangevin.mechanisms.whitened.whitening import noisy_spectrum
from dplangevin.planner.fit_plan import plan_fit


def _path(slope: NDArray[Any], eta: float, noise: float, steps: int, seed: int) -> dict[int, NDArray[Any]]:
    """Iterates of noisy accelerated descent on the linear risk <slope, q>."""
    rng = np.random.default_rng(seed)
    theta = previous = np.zeros(len(slope))
    found = {}
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous = theta
        theta = found[t] = point - eta * (slope + noise * rng.standard_normal(len(slope)))
    return found


def test_the_fall_of_a_linear_risk_is_found_without_bias() -> None:
    # mean of 2,000 runs within 5 standard errors: a false alarm in 10^6
    slope, eta, noise, steps = np.array([0.3, -0.1, 0.0]), 0.5, 0.4, 12
    errors, deviations = [], []
    for seed in range(2000):
        path = _path(slope, eta, noise, steps, seed)
        found, deviation = loss_decrease(path, np.full(3, eta), lambda t: noise, steps)
        truth = float(slope @ (path[last_third_start(steps) - 1] - path[steps - 1]))
        errors.append(found - truth)
        deviations.append(deviation)
    assert abs(np.mean(errors)) <= 5 * np.std(errors) / math.sqrt(len(errors))
    assert 0.8 < np.mean(deviations) / np.std(errors) < 1.25


def test_without_noise_the_fall_is_exact_and_short_paths_begin_at_zero() -> None:
    slope = np.array([1.0, 2.0])
    path = _path(slope, 0.1, 0.0, 12, 0)
    assert np.isclose(
        loss_decrease(path, np.full(2, 0.1), lambda t: 0.0, 12)[0], slope @ (path[7] - path[11])
    )
    assert np.isclose(
        loss_decrease({0: -0.1 * slope}, np.full(2, 0.1), lambda t: 0.0, 1)[0], 0.1 * slope @ slope
    )
    assert loss_decrease({t: np.empty(0) for t in path}, np.empty(0), lambda t: 1.0, 12) == (0.0, 0.0)


def test_no_step_overshoots_in_a_bulk_that_noise_spreads_below_its_edge() -> None:
    # accelerated steps are stable where step times moment is below 4/3; the steps before allowed 2.2
    size = 91
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth = np.diag(rng.uniform(0.5, 1.4, size)) / size  # what a weak first look leaves
        noise = 0.4 / size / math.sqrt(2 * size)
        draw = rng.standard_normal((size, size))
        found = noisy_spectrum(truth + noise * (draw + draw.T) / 2, noise, True)
        turned = (
            found.vectors.T
            @ truth
            @ found.vectors
            / np.sqrt(np.outer(found.upper_bounds, found.upper_bounds))
        )
        assert np.linalg.eigvalsh(turned)[-1] < 4 / 3


def test_directions_that_were_not_reached_are_part_of_what_is_expected_to_be_lost() -> None:
    # columns over two decades, too few records to see the small ones: noise alone would be a twentieth of the excess
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20_000, 20))
    scores = X @ rng.standard_normal(20)
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-2 * scores / scores.std()))).astype(float)
    rows = np.column_stack([np.clip(X, -4, 4) * np.geomspace(1, 0.01, 20), np.ones(len(X))])
    rows /= np.linalg.norm(rows, axis=1).max()
    plan = plan_fit(
        model="logistic", n=len(rows), n_features=21, epsilon=0.5, delta=1e-5, adjacency="replace-one",
        data_norm=1.0, fit_intercept=False,
    ).plan  # fmt: skip
    loss = plan.problem.loss
    white = rows / np.sqrt(np.mean(rows**2, axis=0))
    floor = minimize(
        lambda q: (
            float(loss.value(white @ q, y).mean()),
            white.T @ loss.slope(white @ q, y) / len(y),
        ),
        np.zeros(21), jac=True, method="L-BFGS-B",
    ).fun  # fmt: skip
    releases = [run_plan(plan, ArrayDataset(rows, y, plan.problem), seed) for seed in range(4)]
    lost = np.mean([float(loss.value(rows @ release.value, y).mean()) - floor for release in releases])
    assert lost > 0.01
    assert 1 / 3 < np.mean([float(release.auxiliary["excess_risk"]) for release in releases]) / lost < 3
