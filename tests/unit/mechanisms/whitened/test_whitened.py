"""Whitened descent: its bounds hold for every matrix, its budget adds up, and it converges where data allow it."""

from __future__ import annotations

import functools
import math
import pickle
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from dplangevin import DPLogisticRegression, DPRidge, plan_fit
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.data import ArrayDataset
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.mechanism import NoiseDraws, run_plan
from dplangevin.mechanisms.moments.mechanism import sample_symmetric_noise
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.whitened import mechanism as whitened_mechanism
from dplangevin.mechanisms.whitened.mechanism import (
    DescentState,
    release_second_moments,
    run_descent,
    step_sizes,
    whitening_geometry,
)
from dplangevin.mechanisms.whitened.postprocessing import (
    COEF_DEVIATIONS,
    ShrinkageResult,
    _fit_above_noise,
    _window_covariances,
    mean_curvature_ratio,
    shrink_tail,
    shrink_windows,
)
from dplangevin.mechanisms.whitened.spec import (
    DescentPath,
    WhitenedSpec,
    Window,
    equal_noise_path,
    window_response,
)
from dplangevin.mechanisms.whitened.whitening import (
    WhitenedGeometry,
    clip_rows,
    make_short_row_filter,
    row_weights,
    second_moment_sum,
    transformed_second_moment,
    whiten_first_release,
    whiten_rows,
    whiten_second_release,
)
from dplangevin.planner.fit_plan import MODELS, Request
from dplangevin.planner.rules import MomentBudget
from dplangevin.problem import DataBounds, Logistic, Problem
from dplangevin.report.plots import steps_rows

EXTRA: dict[str, dict[str, Any]] = {
    "poisson": {"target_bounds": (0.0, 20.0)},
    "multinomial": {"n_classes": 3},
    "multiclass-svc": {"n_classes": 3},
}


def draws(seed: int) -> NoiseDraws:
    rng = np.random.default_rng(seed)
    return NoiseDraws(rng=rng, source=rng.bytes)


def stated(**changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": "logistic", "n": 20_000, "n_features": 20, "epsilon": 1.0, "delta": 1e-5,
        "adjacency": "add-remove", "data_norm": 1.0, "fit_intercept": False,
    }  # fmt: skip
    return options | changes


def scales(n: int, p: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns over two decades, a constant one, rows of norm at most 1."""
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((n, p - 1)) * np.geomspace(1, 0.01, p - 1)
    scores = (raw / raw.std(axis=0)) @ rng.standard_normal(p - 1)
    labels = rng.random(n) < 1 / (1 + np.exp(-2 * scores / scores.std()))
    X = np.column_stack([raw, np.ones(n)])
    return X / np.linalg.norm(X, axis=1).max(), labels.astype(float)


APPROACHED = WhitenedSpec(
    moment_noise_std=1e-3, noise_std=1e-3, n_steps=12, step_size=4.0, coef_bound=10.0, n_moment_releases=2,
    average_from=6, shrink=True, n_approach_steps=6, approach_noise_std=2e-3, max_steps=32,
)  # fmt: skip


def geometry(p: int = 8, n_moment_releases: int = 1, seed: int = 0) -> WhitenedGeometry:
    rng = np.random.default_rng(seed)
    first = whiten_first_release(
        np.diag(np.geomspace(0.5, 1e-3, p)) + 1e-3 * sample_symmetric_noise(p, rng),
        1e-3,
        n_moment_releases == 2,
    )
    return (
        first
        if n_moment_releases == 1
        else whiten_second_release(first, np.eye(p) / p + 1e-3 * sample_symmetric_noise(p, rng), 1e-3)
    )


@pytest.mark.parametrize("n_moment_releases", [1, 2])
@pytest.mark.parametrize("kind", ["random", "negative definite", "huge", "tiny", "zero"])
def test_no_row_is_longer_than_its_bound_whatever_was_released(kind: str, n_moment_releases: int) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((500, 6)) * np.geomspace(1, 1e-4, 6)
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    X[0], X[1] = 0.0, np.eye(6)[5]
    matrices = {
        "random": sample_symmetric_noise(6, rng), "negative definite": -np.eye(6),
        "huge": 1e150 * sample_symmetric_noise(6, rng), "tiny": 1e-150 * sample_symmetric_noise(6, rng),
        "zero": np.zeros((6, 6)),
    }  # fmt: skip
    for noise in (1e-6, 1e-2, 10.0):
        made = whiten_first_release(matrices[kind], noise, n_moment_releases == 2)
        if n_moment_releases == 2:
            made = whiten_second_release(made, matrices[kind], noise)
        weights, z = whiten_rows(X, made.transform)
        assert ((weights >= 0) & (weights <= 1)).all()
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.where(weights > 0, weights * np.linalg.norm(z, axis=1), 0.0)
        assert lengths.max() <= made.transform.bound * (1 + 1e-12)


def test_a_weight_is_a_function_of_its_own_row_alone() -> None:
    X, y = scales(300, 6, 2)
    problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=300, n_features=6,
                      fit_intercept=False)  # fmt: skip
    frame = geometry(6, 2).transform
    data = ArrayDataset(X, y, problem, np.random.default_rng(0).random(300))
    other = ArrayDataset(np.vstack([X[:1], X[:0:-1]]), 1 - y, problem)
    first, second = (row_weights(d, next(iter(d.blocks())), frame) for d in (data, other))
    assert first[0] == pytest.approx(second[0], rel=1e-14)
    np.testing.assert_allclose(second_moment_sum(data, frame), second_moment_sum(other, frame), rtol=1e-12)
    reweighted = data.with_scaled_weights(row_weights, frame)
    block, own = next(iter(reweighted.blocks())), next(iter(data.blocks()))
    assert own.weights is not None
    np.testing.assert_allclose(block.weights, first * own.weights)
    long = own.rows * (1 + 1e-7) / np.linalg.norm(own.rows, axis=1, keepdims=True)
    assert np.linalg.norm(clip_rows(long, 1.0), axis=1).max() <= 1 + 1e-15


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("row_norm_factor", [1.0, 1.7, 4.0])
def test_a_screen_changes_no_weight_and_no_moment(row_norm_factor: float, seed: int) -> None:
    """Rows of every length, the longest ones along the coordinates among them, in coordinates of noisy looks."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3000, 9)) * np.array([5.0, *[1.0] * 7, 0.7]) / 12
    X[:20] *= 30
    X[20:29], X[29:38] = np.eye(9), np.linalg.qr(rng.standard_normal((9, 9)))[0]
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=3000, n_features=9,
                      fit_intercept=False)  # fmt: skip
    data = ArrayDataset(X, rng.random(3000) < 0.5, problem)
    exact = second_moment_sum(data) / 3000
    first = whiten_first_release(exact + 1e-4 * sample_symmetric_noise(9, rng), 1e-4, True, row_norm_factor)
    second = whiten_second_release(
        first,
        second_moment_sum(data, first.transform) / 3000 + 1e-4 * sample_symmetric_noise(9, rng),
        1e-4,
        row_norm_factor,
    )
    told = 0
    for frame in (first.transform, second.transform):
        kept = make_short_row_filter(frame)
        told += kept is not None
        np.testing.assert_allclose(
            transformed_second_moment(data, frame, exact),
            second_moment_sum(data, frame) / 3000,
            rtol=1e-10,
            atol=1e-13,
        )
        block = next(iter(data.blocks()))
        weights = row_weights(data, block, frame)
        np.testing.assert_allclose(row_weights(data, block, frame, kept), weights, rtol=1e-14)
        assert kept is None or (weights[kept.find_short_rows(block.rows, 1.0)] == 1).all()
        assert kept is None or kept.all_short <= bool((weights == 1).all())
    assert told or row_norm_factor < 4


def test_a_replaced_row_moves_its_square_by_at_most_the_root_of_two() -> None:
    rng = np.random.default_rng(3)
    pairs = rng.standard_normal((2, 4000, 3))
    pairs /= np.linalg.norm(pairs, axis=2, keepdims=True)
    pairs *= rng.random((2, 4000, 1)) ** 0.2
    moved = np.linalg.norm(
        np.einsum("ni,nj->nij", pairs[0], pairs[0]) - np.einsum("ni,nj->nij", pairs[1], pairs[1]), axis=(1, 2)
    )
    assert 1.3 < moved.max() <= math.sqrt(2)
    apart = np.outer([1, 0], [1, 0]) - np.outer([0, 1], [0, 1])
    assert np.linalg.norm(apart) == pytest.approx(math.sqrt(2))


def test_noise_of_a_moment_is_isotropic() -> None:
    """In the coordinates (diagonal, sqrt 2 x upper triangle) variances are 1: 4 of 6,000 draws' deviations wide."""
    rng = np.random.default_rng(4)
    draws = np.array([sample_symmetric_noise(3, rng) for _ in range(6000)])
    above = np.triu_indices(3, 1)
    flat = np.concatenate([np.einsum("nii->ni", draws), math.sqrt(2) * draws[:, above[0], above[1]]], axis=1)
    np.testing.assert_allclose(np.cov(flat.T), np.eye(6), atol=4 * math.sqrt(2 / 6000))


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("n", [3000, 200_000])
def test_the_shares_add_up_to_the_budget(adjacency: str, n: int) -> None:
    fit_plan = plan_fit(**stated(adjacency=adjacency, n=n))
    spec, mu = fit_plan.plan.spec, gdp_mu(1.0, 1e-5)
    assert isinstance(spec, WhitenedSpec)
    assert spec.n_moment_releases == (1 if n == 3000 else 2)
    moment, *_, step = parts = fit_plan.plan.guarantee.parts
    assert [part.count for part in parts] == ([1, 32] if n == 3000 else [2, 6, 6])
    spent = [part.count * part.mu**2 / mu**2 for part in parts]  # type: ignore[attr-defined]
    assert spent == pytest.approx([0.1, 0.9] if n == 3000 else [0.1, 0.27, 0.63], rel=1e-7)
    assert fit_plan.plan.guarantee.mu == pytest.approx(mu, rel=1e-7)
    sides = 1 if adjacency == "add-remove" else 2
    assert moment.mu == pytest.approx(math.sqrt(sides) / (n * spec.moment_noise_std), rel=1e-6)  # type: ignore[attr-defined]
    bound = fit_plan.plan.problem.loss.slope_bound
    assert step.mu == pytest.approx(sides * bound / (n * spec.noise_std), rel=1e-6)  # type: ignore[attr-defined]


def test_coordinates_turn_with_the_rows() -> None:
    """Noise is isotropic, so fits of turned rows have turned coefficients, in law: weights of rows are the same."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((200, 5)) * np.geomspace(1, 0.05, 5) / 3
    turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    noisy = X.T @ X / 200 + 1e-3 * sample_symmetric_noise(5, rng)
    for fine in (False, True):
        here, there = (
            whiten_first_release(noisy, 1e-3, fine),
            whiten_first_release(turn @ noisy @ turn.T, 1e-3, fine),
        )
        assert here.transform.bound == pytest.approx(there.transform.bound, rel=1e-9)
        own, turned = whiten_rows(X, here.transform), whiten_rows(X @ turn.T, there.transform)
        np.testing.assert_allclose(own[0], turned[0], rtol=1e-7)
        np.testing.assert_allclose(np.abs(own[1]), np.abs(turned[1]), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 8.0])
def test_steps_stay_within_the_limit_of_momentum(epsilon: float) -> None:
    X, y = scales(8000, 12, 6)
    plan = plan_fit(**stated(n=8000, n_features=12, epsilon=epsilon)).plan
    spec, data = plan.spec, ArrayDataset(X, y, plan.problem)
    assert isinstance(spec, WhitenedSpec)
    made = whitening_geometry(spec, release_second_moments(spec, data, draws(0)))
    weights, z = whiten_rows(X, made.transform)
    etas = np.sqrt(step_sizes(spec, made, spec.n_steps))
    curvature = (z * etas).T @ (z * etas * weights[:, None]) / 8000 / 4
    assert np.linalg.eigvalsh(curvature).max() <= 4 / 3


def best(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    basis = np.linalg.cholesky(np.linalg.inv(X.T @ X / len(X)))
    Z, loss = X @ basis, Logistic()

    def value(q: np.ndarray) -> tuple[float, np.ndarray]:
        return float(loss.value(Z @ q, y).mean()), Z.T @ loss.slope(Z @ q, y) / len(y)

    return np.asarray(basis @ minimize(value, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B").x)


def test_unequal_scales_are_fitted_as_without_privacy() -> None:
    """Epsilon 8, 20,000 x 20, two decades: within 1% of maximum likelihood; plain descent is 20% above."""
    X, y = scales(25_000, 20, 7)
    fit_plan = plan_fit(**stated(epsilon=8.0))
    loss, rest = Logistic(), slice(20_000, None)
    assert fit_plan.plan.spec.mechanism == "whitened-gd"
    found = run_plan(fit_plan.plan, ArrayDataset(X[:20_000], y[:20_000], fit_plan.plan.problem), 0)
    least = loss.value(X[rest] @ best(X[:20_000], y[:20_000]), y[rest]).mean()
    assert loss.value(X[rest] @ found.value, y[rest]).mean() <= 1.01 * least
    plain = plan_fit(**stated(epsilon=8.0, mechanism="noisy-gd")).plan
    slow = run_plan(plain, ArrayDataset(X[:20_000], y[:20_000], plain.problem), 0)
    assert loss.value(X[rest] @ slow.value, y[rest]).mean() > 1.1 * least


def test_heavy_tails_and_a_wrong_model_are_fitted_as_without_privacy() -> None:
    """Log-normal columns, targets that saturate: with rows cut at their expected length, 20% above least squares."""
    rng = np.random.default_rng(3)
    X = np.minimum(rng.lognormal(size=(40_000, 8)), 20) / 20
    X /= np.maximum(np.linalg.norm(X, axis=1) / 1.5, 1)[:, None]
    y = np.clip(0.25 * (X[:, 0] - X[:, 1]) / X[:, 0].std() + rng.standard_normal(40_000) / 16, -1, 1)
    model = DPRidge(epsilon=8.0, delta=1e-5, data_norm=1.5, target_bounds=(-1, 1), random_state=0).fit(X, y)
    assert model.plan_.plan.spec.mechanism == "whitened-gd"
    columns = np.column_stack([X, np.ones(len(X))])
    least = np.mean((columns @ np.linalg.lstsq(columns, y)[0] - y) ** 2)
    assert np.mean((model.predict(X) - y) ** 2) <= 1.01 * least


def table_with_a_category(levels: int) -> np.ndarray:
    """Heavy-tailed columns, every level of a category, and a constant: the levels add up to the constant."""
    rng = np.random.default_rng(71)
    heavy = np.minimum(rng.pareto(2.5, (20_000, 6)), 30) / 30
    levels_of_rows = np.eye(levels)[rng.integers(0, levels, 20_000)]
    rows = np.column_stack([heavy, levels_of_rows, np.ones(20_000)])
    return rows / np.linalg.norm(rows, axis=1).max()


def test_directions_in_which_nothing_is_hidden_do_not_shorten_rows() -> None:
    rows = table_with_a_category(4)
    n, p = rows.shape
    noise, allowance, kept = 1e-5, 4.0, 0
    spec = WhitenedSpec(
        moment_noise_std=noise, noise_std=1.0, n_steps=12, step_size=1.0, coef_bound=1.0,
        n_moment_releases=2, row_norm_factor=allowance,
    )  # fmt: skip
    weak = rows * np.r_[np.ones(p - 2), 1e-3, 1.0]  # a column that noise hides
    for seed in range(50):
        noisy = noise * sample_symmetric_noise(p, np.random.default_rng(seed))
        first = whitening_geometry(spec, (rows.T @ rows / n + noisy)[None])
        assert not first.spectrum.above_noise.all()
        kept += math.isclose(first.transform.bound, allowance * math.sqrt(p))
    assert 34 <= kept <= 49  # 84% of 50 are expected, and 3.3 standard deviations allowed
    hidden = weak.T @ weak / n + 2 * noise * np.outer(*[np.eye(p)[-2]] * 2)
    bound = whitening_geometry(spec, hidden[None]).transform.bound
    assert math.isclose(bound, allowance ** (1 / 3) * math.sqrt(p))


def test_with_a_category_heavy_tails_are_fitted_better_as_the_budget_grows() -> None:
    """With rows cut at their expected length: 30% above least squares, and 27% at epsilon 30."""
    rows = table_with_a_category(4)
    scores = (
        np.tanh(rows @ np.random.default_rng(72).standard_normal(rows.shape[1]) * 8) + 20 * rows[:, 0] ** 2
    )
    targets = np.clip(scores / 8, -1, 1)
    best = np.mean((targets - rows @ np.linalg.lstsq(rows, targets)[0]) ** 2)
    excess = {}
    for epsilon in (3.0, 30.0):
        plan = plan_fit(**stated(
            model="ridge", n=len(rows), n_features=rows.shape[1], epsilon=epsilon, target_bounds=(-1.0, 1.0),
            secure=False,
        )).plan  # fmt: skip
        data = ArrayDataset(rows, targets, plan.problem)
        losses = [np.mean((targets - rows @ run_plan(plan, data, seed).value) ** 2) for seed in range(4)]
        excess[epsilon] = np.mean(losses) / best - 1
    assert excess[30.0] < min(excess[3.0], 0.005)


@pytest.mark.parametrize("model", [m for m in MODELS if m != "logistic"])
def test_every_model_has_the_default(model: str) -> None:
    more = EXTRA.get(model, {})
    assert plan_fit(**stated(model=model, **more)).plan.spec.mechanism == "whitened-gd"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"alpha": 0.0}, "noisy-gradient"),
        ({"radius": 3.0}, "noisy-gradient"),
        ({"theorem": "composition"}, "noisy-gradient"),
        ({"mechanism": "noisy-gd"}, "noisy-gradient"),
        ({"delta": 0.0}, "whitened-objective"),
        ({"n": 300, "epsilon": 0.1}, "noisy-gradient"),
        ({"n_features": 256}, "whitened-gd"),  # one look
        ({"n_features": 257}, "whitened-gd"),
        ({"n_features": 257, "n": 2000}, "noisy-gradient"),  # a signal-to-noise ratio below 3
        ({"n_features": 257, "n": 2_000_000}, "whitened-gd"),  # two looks
        ({"mechanism": "whitened-gd", "n": 300, "epsilon": 0.1}, "whitened-gd"),
    ],
)
def test_what_is_stated_keeps_its_route(changes: dict[str, Any], kind: str) -> None:
    fit_plan = plan_fit(**stated(**changes))
    assert fit_plan.plan.spec.mechanism == kind
    fallback = changes in ({"n": 300, "epsilon": 0.1}, {"n_features": 257, "n": 2000})
    assert ("no feature second-moment matrix" in str(fit_plan)) == fallback


def test_the_branch_is_public() -> None:
    few, some, many = (MomentBudget.for_request(Request(**stated(n=n))) for n in (100, 3000, 200_000))
    assert (few.is_worthwhile, some.is_worthwhile, many.is_worthwhile) == (False, True, True)
    assert (some.n_moment_releases, many.n_moment_releases) == (1, 2)
    assert (some.row_norm_factor, many.row_norm_factor) == (
        1,
        pytest.approx(math.sqrt(0.125 / (20 * many.edge))),
    )
    assert some.edge == pytest.approx(math.sqrt(40) / (3000 * gdp_mu(1.0, 1e-5) * math.sqrt(0.1)))


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"n": 200_000}, (6, 12, 32)),  # a pass over 4 million numbers
        ({"n": 20_000}, (6, 12, 64)),  # short passes, much signal
        ({"n": 20_000, "epsilon": 0.7}, (6, 12, 32)),
        ({"n": 3000, "epsilon": 0.5}, (0, 32, 0)),
        ({"n": 200_000, "model": "ridge"}, (0, 16, 0)),
    ],
)
def test_steps_follow_public_quantities(changes: dict[str, Any], steps: tuple[int, int, int]) -> None:
    spec = plan_fit(**stated(**{"epsilon": 8.0, **changes})).plan.spec
    assert isinstance(spec, WhitenedSpec)
    assert (spec.n_approach_steps, spec.n_steps, spec.max_steps) == steps


def test_steps_that_are_chosen_cost_what_was_stated() -> None:
    """Every score that an approach may end with, odd ones too: squares of 1 / noise have the stated sum."""
    plan = plan_fit(**stated(n=20_000, epsilon=8.0)).plan
    spec = plan.spec
    assert isinstance(spec, WhitenedSpec)
    chosen = {
        score: spec.choose_n_steps(score) for score in (0.0, 2.0, 3.0, 4.0, 6.0, 1e9, math.inf, math.nan)
    }
    assert list(chosen.values()) == [12, 12, 33, 64, 64, 64, 64, 12]
    for steps in chosen.values():
        noises = np.array([spec.noise_at_step(t, steps) for t in range(steps)])
        assert (noises[:6] == spec.approach_noise_std).all()
        assert 1 / math.sqrt((noises**-2.0).sum()) == pytest.approx(spec.combined_noise, rel=1e-12)
        assert steps > spec.descent_path(steps).windows[-1].first >= spec.n_approach_steps
    assert plan.guarantee.mu == pytest.approx(gdp_mu(8.0, 1e-5), rel=1e-7)
    with pytest.raises(InvalidParameter, match="approach must end"):
        replace(spec, average_from=2)


@pytest.mark.parametrize(("strength", "least", "most"), [(1.0, 12, 12), (2.0, 12, 14), (8.0, 30, 64)])
def test_a_flat_loss_gets_more_steps(strength: float, least: int, most: int) -> None:
    rng = np.random.default_rng(22)
    X = rng.standard_normal((30_000, 8))
    y = (rng.random(30_000) < expit(strength * X @ np.full(8, 8**-0.5))).astype(float)
    plan = plan_fit(**stated(n=30_000, n_features=8, epsilon=4.0)).plan
    found = run_plan(plan, ArrayDataset(X / np.linalg.norm(X, axis=1).max(), y, plan.problem), 0)
    assert least <= found.n_steps <= most


def test_rare_positives_are_fitted() -> None:
    """1% positives, 50,000 x 10, epsilon 8: the loss is flat, and 16 steps would stop 10% above maximum likelihood."""
    rng = np.random.default_rng(21)
    X = np.column_stack([rng.standard_normal((60_000, 9)), np.ones(60_000)])
    scores = X[:, :9] @ rng.standard_normal(9)
    y = (rng.random(60_000) < expit(2 * scores / scores.std() - 6.5)).astype(float)
    X /= np.linalg.norm(X, axis=1).max()
    plan, loss = plan_fit(**stated(n=50_000, n_features=10, epsilon=8.0)).plan, Logistic()
    found = run_plan(plan, ArrayDataset(X[:50_000], y[:50_000], plan.problem), 0).value
    values = [
        loss.value(X[50_000:] @ theta, y[50_000:]).mean() for theta in (found, best(X[:50_000], y[:50_000]))
    ]
    assert y.mean() < 0.02
    assert values[0] <= 1.03 * values[1]


def test_the_sample_is_noise_too() -> None:
    """Where every window has reached the minimiser, the posterior mean of a coefficient of variance v, seen with the
    sampling error 1 / (n h), is its share v / (v + 1 / (n h)) of it."""
    curvatures, prior = np.array([0.25, 0.1, 0.02]), np.array([1.0, 0.3, 2.0])
    minimiser = np.array([0.7, -1.1, 0.4])
    for n in (50.0, 1e4):
        law = functools.partial(_window_covariances, noise=1e-6, path=equal_noise_path(32), records=n)
        _, means = _fit_above_noise(np.tile(minimiser, (3, 1)), curvatures, prior, 1 / curvatures, law)
        signal = COEF_DEVIATIONS[:, None] ** 2 * prior
        np.testing.assert_allclose(means, minimiser * signal / (signal + 1 / (n * curvatures)), rtol=1e-3)


def test_ridges_and_radii_are_refused_by_name() -> None:
    with pytest.raises(InvalidParameter, match="neither ridge nor radius"):
        plan_fit(**stated(mechanism="whitened-gd", alpha=0.1))
    with pytest.raises(InvalidParameter, match="n_moment_releases must be 1 or 2"):
        WhitenedSpec(
            moment_noise_std=1.0, noise_std=1.0, n_steps=4, step_size=1.0, coef_bound=1.0, n_moment_releases=3
        )


def test_no_floating_point_sum_stays_on_a_model() -> None:
    """Which doubles a noisy sum can be depends on the exact sum: neither moments nor coordinates are kept."""
    X, y = scales(5000, 6, 8)
    model = DPLogisticRegression(epsilon=2.0, data_norm=1.0, classes=[0, 1], random_state=0)
    with mock.patch.object(
        whitened_mechanism, "release_second_moments", side_effect=release_second_moments
    ) as releases:
        made: list[Any] = []
        releases.side_effect = lambda *of: made.append(release_second_moments(*of)) or made[-1]
        model.fit(X, y)
    assert 12 <= model.n_iter_ <= 20
    assert set(model.geometry_) == {"resolved", "excess_risk"}
    assert set(np.unique(model.geometry_["resolved"])) <= {0.0, 1.0}
    excess = float(model.geometry_["excess_risk"])
    assert excess == float(f"{excess:.1e}")
    coordinate = whitening_geometry(model.plan_.plan.spec, made[0]).transform.basis
    kept = pickle.dumps(model)
    for statistic in (made[0][0], made[0][-1], coordinate):
        assert not [value for value in statistic.ravel() if value.tobytes() in kept]
    assert "second-moment matrix" in str(model.plan_)
    model.set_params(mechanism="noisy-gd").fit(X, y)
    assert not hasattr(model, "geometry_")


def test_sample_weights_scale_the_noise_and_not_the_moments() -> None:
    X, y = scales(4000, 15, 9)
    options: dict[str, Any] = {"epsilon": 2.0, "data_norm": 1.0, "target_bounds": (0, 1), "random_state": 0}
    options["secure"] = False
    plain = DPRidge(**options).fit(X, y)
    with mock.patch.object(whitened_mechanism, "add_symmetric_noise", return_value=np.eye(16)) as blurred:
        plain.fit(X, y)
        weighted = DPRidge(**options, weight_bound=3.0).fit(X, y, sample_weight=np.full(4000, 2.0))
    exact = [call.args[1] for call in blurred.call_args_list]
    ones, threes = plain.plan_.plan.spec, weighted.plan_.plan.spec
    assert threes.noise_std == pytest.approx(3 * ones.noise_std, rel=1e-9)
    assert threes.moment_noise_std == ones.moment_noise_std
    np.testing.assert_array_equal(exact[0], exact[len(exact) // 2])


@pytest.mark.parametrize(
    "path",
    [
        equal_noise_path(32),
        DescentPath((Window(1, 3), Window(2, 6), Window(6, 20)), n_early_steps=6, early_noise_factor=1.5),
    ],
)
def test_windows_have_the_covariance_of_the_table(path: DescentPath) -> None:
    """20,000 runs on a quadratic: entries of N and phi within 4 deviations (about 4%)."""
    rng, u, draws = np.random.default_rng(10), 0.07, 20_000
    theta = previous = np.zeros(draws)
    sums = np.zeros((3, draws))
    for t in range(path.windows[-1].last):
        point = theta + t / (t + 3) * (theta - previous)
        noise = (path.early_noise_factor if t < path.n_early_steps else 1.0) * rng.standard_normal(draws)
        previous, theta = theta, point - u * (point - 1) - noise
        for row, window in zip(sums, path.windows, strict=True):
            if window.first <= t < window.last:
                row += theta / (window.last - window.first)
    seen = window_response(path, np.array([u]))
    np.testing.assert_allclose(np.cov(sums), seen.noise[0], rtol=0.04, atol=0.25)
    deviations = np.sqrt(np.diag(seen.noise[0]) / draws)
    assert (np.abs(sums.mean(axis=1) - seen.reached_fraction[0]) < 4 * deviations).all()


def test_strong_effects_leave_the_mean_of_the_tail_bit_by_bit() -> None:
    made = geometry(12)
    etas = np.full(12, 0.5)
    tail = (
        200.0 * np.random.default_rng(11).standard_normal(12) / np.linalg.norm(made.transform.basis, axis=0)
    )
    reached = window_response(equal_noise_path(32), etas / 4 * made.moments).reached_fraction
    found = shrink_windows(reached.T * tail, made, etas, 1e-4, 0.25, equal_noise_path(32), 1e6)
    assert found.weak_probability < 1e-12
    np.testing.assert_array_equal(found.value, (reached.T * tail)[2])


def test_after_two_second_moments_the_axes_of_the_shrinkage_are_those_of_the_rows() -> None:
    """White coordinates may be turned at will, so the answer must not depend on how they lie."""
    rng = np.random.default_rng(15)
    white = whiten_second_release(geometry(12), np.eye(12) / 12, 1e-6)
    spin = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    turned = replace(white, transform=white.transform._replace(basis=white.transform.basis @ spin))
    etas, path = np.full(12, 2.0), APPROACHED.descent_path(12)
    tail = 0.05 * rng.standard_normal(12)
    ours, theirs = (
        made.transform.basis @ shrink_tail(seen, made, etas, 0.02, 0.25, path, 2000).value
        for made, seen in ((white, tail), (turned, tail @ spin))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert np.linalg.norm(ours) < 0.9 * np.linalg.norm(white.transform.basis @ tail)


def test_a_converged_tail_is_the_posterior_mean_of_normal_coefficients() -> None:
    """Coefficients drawn as the hypothesis says, seen with noise and sampling error: the mean square error of the
    coefficients in white coordinates is that of the posterior with sd known, or up to 15% more since it is not (400
    draws of 12 coordinates: 2% of deviation)."""
    rng, n, noise, etas, path = (
        np.random.default_rng(16),
        2000,
        0.01,
        np.full(12, 2.0),
        APPROACHED.descent_path(12),
    )
    white = whiten_second_release(geometry(12), np.eye(12) / 12, 1e-6)
    prior = np.linalg.svd(white.transform.basis)[1] ** -2
    seen = window_response(path, etas / 4)
    assert seen.reached_fraction[:, -1] == pytest.approx(1, abs=0.02)
    spread = (etas * noise) ** 2 * seen.noise[:, -1, -1] + 4 / n
    axes, lost, kept = np.linalg.svd(white.transform.basis)[2], [], []
    for _ in range(400):
        true = rng.standard_normal(12) * np.sqrt(prior) @ axes
        tail = true + rng.standard_normal(12) * np.sqrt(spread[0])
        lost.append(((shrink_tail(tail, white, etas, noise, 0.25, path, n).value - true) ** 2).sum())
        kept.append(((tail - true) ** 2).sum())
    best = (prior * spread / (prior + spread)).sum()
    assert 0.9 * best < np.mean(lost) < 1.15 * best < 0.9 * np.mean(kept)


def test_pure_noise_is_pulled_to_zero() -> None:
    """Labels independent of the rows: log-loss within .03 of the base rate at epsilon = .1; descent is .1 above."""
    rng = np.random.default_rng(12)
    rows = np.column_stack([rng.standard_normal((10_000, 29)), np.ones(10_000)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = (rng.random(10_000) < 0.5).astype(float)
    plan = plan_fit(**stated(n=8000, n_features=30, epsilon=0.1, adjacency="replace-one")).plan
    data = ArrayDataset(rows[:8000], labels[:8000], plan.problem)
    scores = [rows[8000:] @ run_plan(plan, data, seed).value for seed in range(6)]
    assert plan.problem.loss.slope_bound == 0.5
    chances = [
        np.minimum(0.5, expit(np.where(labels[8000:] > 0, s, -s))) for s in scores
    ]  # the link of this clip
    odds = [np.minimum(0.5, expit(np.where(labels[8000:] > 0, -s, s))) for s in scores]
    losses = [-np.log(a / (a + b)).mean() for a, b in zip(chances, odds, strict=True)]
    assert np.mean(losses) <= math.log(2) + 0.03


def test_shrinkage_is_only_where_the_spec_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = scales(3000, 20, 13)
    called = []

    def counted(windows: np.ndarray, *rest: Any) -> ShrinkageResult:
        called.append(len(windows))
        return ShrinkageResult(windows[2], 0.0)

    monkeypatch.setattr(whitened_mechanism, "shrink_windows", counted)
    monkeypatch.setattr(whitened_mechanism, "shrink_tail", lambda tail, *rest: counted([tail] * 3))
    for model, epsilon, times in (
        ("logistic", 0.5, 1),
        ("logistic", 8.0, 1),
        ("ridge", 0.5, 0),
        ("ridge", 8.0, 0),
    ):
        plan = plan_fit(**stated(model=model, n=3000, epsilon=epsilon)).plan
        called.clear()
        run_plan(plan, ArrayDataset(X, y, plan.problem), 0)
        assert len(called) == times


def fallback(**changes: Any) -> dict[str, Any]:
    return stated(n=400, n_features=30, epsilon=0.3, **changes)


def test_the_fallback_is_gated_and_strong_effects_keep_plain_descent() -> None:
    rng = np.random.default_rng(14)
    rows = np.column_stack([rng.standard_normal((400, 29)), np.ones(400)])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    chosen, plain = plan_fit(**fallback()).plan, plan_fit(**fallback(mechanism="noisy-gd")).plan
    assert isinstance(chosen.spec, NoisyGradientSpec)
    assert chosen.spec.weights == "gated"
    assert isinstance(plain.spec, NoisyGradientSpec)
    assert plain.spec.weights == "uniform"
    assert chosen.guarantee.epsilon(1e-5) == plain.guarantee.epsilon(1e-5)
    noise = (rng.random(400) < 0.5).astype(float)
    gated, ungated = (run_plan(p, ArrayDataset(rows, noise, p.problem), 1).value for p in (chosen, plain))
    assert np.linalg.norm(gated) < np.linalg.norm(ungated)
    with pytest.raises(InvalidParameter, match="gated weights need"):
        NoisyGradientSpec(step_size=1.0, noise_std=1.0, n_steps=9, release="average", weights="gated")


def test_its_report_has_a_curve_over_steps() -> None:
    fit_plan = plan_fit(**stated())
    assert fit_plan.plan.spec.n_approach_steps  # any number of steps costs the same: there is no curve
    assert steps_rows(fit_plan.plan, 1e-5) == []
    fit_plan = plan_fit(**stated(model="huber"))
    assert not fit_plan.plan.spec.n_approach_steps
    rows = steps_rows(fit_plan.plan, 1e-5)
    assert [row.steps for row in rows] == sorted(row.steps for row in rows)
    assert rows[-1].bound is not None
    assert rows[-1].bound > fit_plan.plan.guarantee.epsilon(1e-5)


def test_noise_is_what_the_spec_says() -> None:
    X, y = scales(500, 5, 15)
    plan = plan_fit(**stated(n=500, n_features=5, epsilon=8.0, mechanism="whitened-gd", secure=False)).plan
    assert isinstance(plan.spec, WhitenedSpec)
    spec = replace(plan.spec, n_steps=1, average_from=0, n_approach_steps=0, shrink=False)
    data = ArrayDataset(X, y, plan.problem)
    noisy = release_second_moments(spec, data, draws(16))
    drawn = spec.moment_noise_std * sample_symmetric_noise(5, np.random.default_rng(16))
    np.testing.assert_allclose(noisy[0] - X.T @ X / 500, drawn, atol=1e-12)
    made, start = whitening_geometry(spec, noisy), np.zeros((5, 1))
    walk = DescentState(
        moments=noisy, step=0, n_steps=1, theta=start, previous=start, totals=np.zeros((3, 5, 1))
    )
    found = run_descent(spec, data, made, walk, draws(17))[:, 0]
    weights, z = whiten_rows(X, made.transform)
    exact = (weights * (0.5 - y)) @ z / 500
    noise = made.transform.bound * spec.noise_std * np.random.default_rng(17).standard_normal(5)
    np.testing.assert_allclose(found, -step_sizes(spec, made, 1) * (exact + noise), rtol=1e-9)


def test_the_curvature_of_normal_scores() -> None:
    assert mean_curvature_ratio(0.0) == pytest.approx(1.0)
    assert mean_curvature_ratio(30.0) == pytest.approx(4 / (30 * math.sqrt(2 * math.pi)), rel=0.01)
    draws = expit(1.5 * np.random.default_rng(0).standard_normal(10**6))
    assert mean_curvature_ratio(1.5) == pytest.approx(4 * (draws * (1 - draws)).mean(), rel=0.002)
    assert mean_curvature_ratio(0.0, along=True) == pytest.approx(1.0)
    assert mean_curvature_ratio(5.0, along=True) < 0.2 * mean_curvature_ratio(5.0)


@pytest.mark.parametrize("strength", [0.3, 2.0, 5.0])
def test_the_estimate_of_what_was_lost_is_of_the_right_size(strength: float) -> None:
    """Mean over 16 fits of a well-conditioned table, where the public estimate cannot know how strong effects are."""
    rng = np.random.default_rng(23)
    X = rng.standard_normal((20_000, 8)) / 6
    X /= np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    scores = X @ rng.standard_normal(8)
    y = (rng.random(20_000) < expit(strength * scores / scores.std())).astype(float)
    plan, loss = plan_fit(**stated(n_features=8)).plan, Logistic()
    data = ArrayDataset(X, y, plan.problem)
    least = loss.value(X @ best(X, y), y).mean()
    made = [run_plan(plan, data, seed) for seed in range(16)]
    lost = np.mean([loss.value(X @ release.value, y).mean() - least for release in made])
    assert 0.5 < np.mean([release.auxiliary["excess_risk"] for release in made]) / lost < 2
