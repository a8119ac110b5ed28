"""Ridge-whitened descent: its budget adds up on every branch, its rule follows public and released numbers alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dplangevin import DPLinearSVC, DPLogisticRegression, plan_fit
from dplangevin.accounting.conversions import gdp_mu
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.ridge_whitened.mechanism import (
    FLOOR,
    MAX_SCORE_NOISE,
    MIN_SCORE_NOISE,
    RidgeCoordinates,
    estimate_moments,
    row_grid,
    wants_moment,
)
from dplangevin.mechanisms.ridge_whitened.spec import PLAIN_STEP_FACTOR, RidgeWhitenedSpec

STATED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.0, "fit_intercept": False}


def make_spec(**changes: Any) -> RidgeWhitenedSpec:
    fields: dict[str, Any] = {
        "moment_noise_std": 1e-3, "noise_std": 1e-3, "step_cap": 20.0, "max_moment_releases": 3,
        "further_noise_std": 1e-3, "further_fraction": 0.05,
    }  # fmt: skip
    return RidgeWhitenedSpec(**(fields | changes))


def embeddings(n: int, p: int, classes: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    amplitudes = np.arange(1, p + 1) ** -0.5
    means = rng.standard_normal((classes, p)) * amplitudes
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    y = rng.integers(0, classes, n)
    X = 3 * rng.standard_normal((n, p)) * amplitudes / np.linalg.norm(amplitudes) + means[y]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X.astype(np.float32), y


@pytest.mark.parametrize("dimension", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("n_further", [0, 1, 2])
def test_all_that_follows_the_first_moment_costs_the_same(dimension: float, n_further: int) -> None:
    """1 / sigma_T^2 over T steps and the fractions of further moments add up to 1 / noise_std^2."""
    spec = make_spec()
    planned = spec.plan_descent(dimension, 0.1, n_further)
    assert spec.min_steps <= planned.n_steps <= spec.max_steps
    left = planned.n_steps * (spec.noise_std / planned.noise_std) ** 2
    assert left + n_further * spec.further_fraction == pytest.approx(1.0, rel=1e-12)


def test_plain_steps_follow_each_other_until_there_is_no_time_for_them() -> None:
    """The noise of a score and the cap are kept on both sides of the change to accelerated steps."""
    spec = make_spec()
    for dimension in np.geomspace(0.1, 1e3, 200):
        planned = spec.plan_descent(dimension, 0.1, 0)
        assert planned.step_size <= spec.step_cap
        wanted = 0.1 / (spec.noise_std * dimension)  # of an accelerated step, if there are min_steps of them
        if not planned.is_accelerated:
            assert planned.n_steps * planned.step_size == pytest.approx(PLAIN_STEP_FACTOR * 8 * wanted)
        else:
            assert PLAIN_STEP_FACTOR * 8 * wanted > spec.max_steps * spec.step_cap
        assert planned.excess == pytest.approx(wanted / spec.step_cap)


def test_noise_limits_steps_of_high_dimension_and_time_those_of_low_dimension() -> None:
    spec = make_spec()
    noisy, timed = spec.plan_descent(500.0, 0.1, 0), spec.plan_descent(1.0, 0.1, 0)
    assert (noisy.n_steps, noisy.is_accelerated, noisy.average_from) == (8, False, 7)
    # plain steps: the noise of a score is 1.39 x 8 x score_noise, whatever the numbers are
    spread = noisy.step_size * noisy.noise_std * math.sqrt(noisy.n_steps) * 500.0
    assert spread == pytest.approx(PLAIN_STEP_FACTOR * 8 * 0.1)
    assert (timed.n_steps, timed.is_accelerated, timed.average_from) == (18, True, 9)
    assert timed.step_size == pytest.approx(100 * (8 / 18) ** 2)
    assert spec.plan_descent(1e-6, 0.1, 0).step_size == spec.step_cap


def test_coordinates_are_white_above_the_floor() -> None:
    values, noise = np.array([0.4, 0.3, 0.1]), 1e-4
    edge = noise * math.sqrt(6)
    found = RidgeCoordinates(n_columns=3).refine(np.diag(values), noise, None)
    assert found.transform is not None
    cleaned = np.sort(estimate_moments(np.diag(values), noise).values)[::-1]
    expected = cleaned / (cleaned + FLOOR * edge)
    white = found.transform.basis.T @ np.diag(cleaned) @ found.transform.basis
    assert np.sort(np.diag(white)) == pytest.approx(np.sort(expected))
    assert found.effective_dimension == pytest.approx(expected.sum()) == pytest.approx(found.bound**2)
    # a further moment, of white rows over R, leaves them white
    again = found.refine(np.diag(np.diag(white)) / found.bound**2, noise, None)
    assert again.transform is not None
    twice = again.transform.basis.T @ np.diag(cleaned) @ again.transform.basis
    assert np.diag(twice) == pytest.approx(np.ones(3), rel=0.01)
    assert (found.n_releases, again.n_releases) == (1, 2)


def test_columns_that_noise_hides_add_little_length() -> None:
    """Full whitening has R^2 = p; with a floor, R^2 stays near the number of directions that were seen."""
    p = 400
    values = np.concatenate([[0.5, 0.4], np.full(p - 2, 1e-6)])
    found = RidgeCoordinates(n_columns=p).refine(np.diag(values), 1e-3, None)
    assert found.effective_dimension < 10
    assert found.score_noise == pytest.approx(MAX_SCORE_NOISE, rel=0.1)


def add_noise(moment: Any, noise_std: float, seed: int) -> Any:
    noise = np.random.default_rng(seed).standard_normal(moment.shape)
    return moment + noise_std * (noise + noise.T) / 2


@pytest.mark.parametrize("noise_in_means", [0.01, 0.1, 1.0])
def test_an_even_spectrum_is_found_to_be_even(noise_in_means: float) -> None:
    """Noise spreads equal eigenvalues by its edge to both sides; a tenth of that is left, and nothing is whitened."""
    p = 200
    noise_std = noise_in_means / p / math.sqrt(2 * p)
    noisy = add_noise(np.eye(p) / p, noise_std, 3)
    estimate = estimate_moments(noisy, noise_std)
    assert np.abs(estimate.values - 1 / p).max() < 0.2 * estimate.edge  # eigenvalues: 1.0
    assert np.sqrt(np.mean((estimate.values - 1 / p) ** 2)) < 0.05 * estimate.edge  # eigenvalues: 0.5
    found = RidgeCoordinates(n_columns=p).refine(noisy, noise_std, None)
    white = found.effective_dimension / p
    assert found.score_noise == pytest.approx(MIN_SCORE_NOISE * (1 - 0.6 * white), rel=0.05)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("noise_std", [1e-4, 1e-3])
def test_moments_along_released_directions_are_estimated(power: float, noise_std: float) -> None:
    """They are not the eigenvalues: a direction that noise has turned has less of them. Their sum is the trace."""
    p = 150
    moment = np.diag(np.arange(1, p + 1) ** -power)
    moment /= np.trace(moment)
    errors, biases = [], []
    for seed in range(4):
        estimate = estimate_moments(add_noise(moment, noise_std, seed), noise_std)
        truth = np.einsum("ij,i,ij->j", estimate.vectors, np.diag(moment), estimate.vectors)
        errors.append(np.sqrt(np.mean((estimate.values - truth) ** 2)) / estimate.edge)
        biases.append(estimate.values.sum() - 1)
    assert max(errors) < 0.08
    assert np.abs(biases).max() < 4 * noise_std * math.sqrt(p)


def clipped_slopes(scores: Any, label: int, clip: float) -> Any:
    probabilities = np.exp(scores - scores.max())
    slopes = probabilities / probabilities.sum() - np.eye(len(scores))[label]
    return slopes * min(1.0, clip / np.linalg.norm(slopes))


def test_the_curvatures_of_clipped_slopes_add_up_to_twice_the_clip() -> None:
    """The cap on a step rests on it. Central differences; without the clip the sum is several times that."""
    rng = np.random.default_rng(0)
    clip, step, traces = 0.125, 1e-6, {"clipped": [0.0], "whole": [0.0]}
    for _ in range(400):
        classes = int(rng.integers(2, 12))
        scores = rng.standard_normal(classes) * 10 ** rng.uniform(-2, 1)
        for name, bound in (("clipped", clip), ("whole", np.inf)):
            moved = [
                clipped_slopes(scores + step * e, 0, bound) - clipped_slopes(scores - step * e, 0, bound)
                for e in np.eye(classes)
            ]
            traces[name].append(float(np.trace(moved)) / (2 * step))
    assert 1.2 * clip < max(traces["clipped"]) <= 2 * clip * (1 + 1e-6)
    assert max(traces["whole"]) > 0.8


def test_steps_have_less_noise_where_one_release_hides_most_directions() -> None:
    start, matrix = RidgeCoordinates(n_columns=50), np.diag([0.5, *[0.5 / 49] * 49])
    clear, hidden = (start.refine(matrix, noise_std, None) for noise_std in (0.03, 0.1))
    assert (clear.edge, hidden.edge) == pytest.approx((15.0, 50.0), rel=0.02)
    again = hidden.refine(np.eye(50) / 50, 0.01, None)
    assert again.edge == hidden.edge
    for coordinates, factor in ((clear, 1.0), (hidden, (20 / hidden.edge) ** 0.25), (again, 1.0)):
        spread = MIN_SCORE_NOISE + (MAX_SCORE_NOISE - MIN_SCORE_NOISE) * coordinates.unevenness
        white = coordinates.effective_dimension / 50
        assert coordinates.score_noise == pytest.approx(spread * factor * (1 - 0.6 * white))


def test_integer_coordinates_are_the_rounded_ones() -> None:
    p = 8
    problem = plan_fit(
        model="multinomial", n=1000, n_features=p, n_classes=3, adjacency="add-remove", **STATED
    ).plan.problem
    grid = row_grid(make_spec(), problem)
    matrix = np.diag(np.geomspace(0.5, 1e-3, p))
    rounded, plain = (RidgeCoordinates(n_columns=p).refine(matrix, 1e-4, g) for g in (grid, None))
    assert rounded.integer_transform is not None
    assert rounded.transform is not None
    assert plain.transform is not None
    assert rounded.integer_transform.filter is None
    assert rounded.transform.basis == pytest.approx(plain.transform.basis, abs=1e-7)
    assert rounded.bound == pytest.approx(plain.bound, rel=1e-8)
    assert rounded.bound <= plain.bound


def test_moments_are_released_while_time_is_the_limit() -> None:
    spec, start = make_spec(), RidgeCoordinates(n_columns=4)
    assert wants_moment(spec, start, 10)
    assert not wants_moment(make_spec(max_moment_releases=0), start, 10)
    low, high = np.diag([0.9, 0.05, 1e-9, 1e-9]), np.eye(4) / 4
    steep, even = (start.refine(matrix, 0.02, None) for matrix in (low, high))
    assert wants_moment(spec, steep, 10)
    assert not wants_moment(make_spec(max_moment_releases=1, further_fraction=0.0), steep, 10)
    assert not wants_moment(make_spec(noise_std=1.0), even, 10)  # noise is the limit
    assert not wants_moment(make_spec(further_noise_std=2.0), steep, 10)  # it would show nothing


@pytest.mark.parametrize("n_scores", [10, 100, 1_000])
def test_more_classes_do_not_change_which_moments_are_released(n_scores: int) -> None:
    """The noise is the same for any number of classes, and the cap of steps is proportional to it."""
    start, matrix = RidgeCoordinates(n_columns=4), np.diag([0.9, 0.05, 1e-9, 1e-9])
    steep = start.refine(matrix, 0.02, None)
    for noise_std in np.geomspace(1e-5, 1.0, 60):
        few, many = (make_spec(noise_std=noise_std, step_cap=2.0 * count) for count in (10, n_scores))
        assert wants_moment(many, steep, n_scores) == wants_moment(few, steep, 10)
        assert wants_moment(few, steep, 1) == wants_moment(few, steep, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_moment_releases": 4}, "at most 3"),
        ({"max_steps": 4}, "less than min_steps"),
        ({"further_fraction": 0.5}, "leave some of it"),
        ({"further_fraction": 0.0}, "must have a part"),
        ({"step_cap": 0.0}, "step_cap"),
    ],
)
def test_specs_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        make_spec(**changes)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("n_classes", [3, 200])
def test_a_plan_spends_the_budget_and_no_more(adjacency: str, n_classes: int) -> None:
    plan = plan_fit(
        model="multinomial", n=20_000, n_features=500, n_classes=n_classes, adjacency=adjacency, **STATED
    ).plan
    assert plan.spec.mechanism == "ridge-whitened-gd"
    spent = math.sqrt(sum(part.count * part.mu**2 for part in plan.guarantee.parts))  # type: ignore[attr-defined]
    assert spent == pytest.approx(gdp_mu(1.0, 1e-6), rel=1e-7)
    assert plan.guarantee.epsilon() <= 1.0
    assert plan.guarantee.arithmetic == "discrete-grid"


def test_the_rule_depends_on_public_numbers() -> None:
    def mechanism_for(model: str, n: int, p: int, **more: Any) -> str:
        stated = {**STATED, "adjacency": "replace-one", **more}
        return str(plan_fit(model=model, n=n, n_features=p, **stated).plan.spec.mechanism)

    softmax = {"n_classes": 10}
    assert mechanism_for("multinomial", 50_000, 127, **softmax) == "whitened-gd"
    assert mechanism_for("multinomial", 50_000, 128, **softmax) == "ridge-whitened-gd"
    assert mechanism_for("multinomial", 2_000, 48, **softmax) == "ridge-whitened-gd"
    assert mechanism_for("multinomial", 50_000, 500, alpha=0.1, **softmax) == "noisy-gradient"
    for model in ("logistic", "svc"):
        assert [mechanism_for(model, 50_000, p) for p in (250, 262, 1_500)] == ["whitened-gd"] * 3
        assert mechanism_for(model, 5_000, 2_000) == "noisy-gradient"


def test_many_classes_leave_more_of_the_budget_to_the_steps_where_noise_is_strong() -> None:
    def fraction(n: int, n_classes: int) -> float:
        stated = {**STATED, "adjacency": "replace-one"}
        plan = plan_fit(model="multinomial", n=n, n_features=512, n_classes=n_classes, **stated).plan
        first = plan.guarantee.parts[0].mu  # type: ignore[attr-defined]
        return float((first / gdp_mu(1.0, 1e-6)) ** 2)

    fractions = [fraction(50_000, n_classes) for n_classes in (3, 10, 20, 50, 100, 1_000)]
    assert fractions[:2] == pytest.approx([0.1, 0.1], rel=1e-6)
    assert fractions[2] == pytest.approx(0.1 * 0.5**0.3, rel=1e-6)
    assert fractions[3:] == pytest.approx([0.1 * 0.2**0.3, 0.1 * 0.1**0.3, 0.05], rel=1e-6)
    assert fraction(5_000_000, 100) == pytest.approx(
        0.1, rel=1e-6
    )  # the mean eigenvalue is above half the edge


def test_the_columns_have_no_cliff() -> None:
    """Ten more columns than 256 change nothing that is visible: before, the default turned to plain descent there."""
    accuracies = []
    for p in (250, 262):
        X, y = embeddings(12_000, p, 2, 5)
        for kind in (DPLogisticRegression, DPLinearSVC):
            model = kind(**STATED | {"epsilon": 4.0}, classes=[0, 1], random_state=1).fit(X[:8000], y[:8000])
            assert model.plan_.plan.spec.mechanism == "whitened-gd"
            accuracies.append(float((model.predict(X[8000:]) == y[8000:]).mean()))
    assert np.ptp(accuracies) < 0.03
    assert min(accuracies) > 0.9


@pytest.mark.parametrize("secure", [None, False])
def test_many_classes_are_told_apart(secure: bool | None) -> None:
    X, y = embeddings(12_000, 130, 20, 2)
    model = DPLogisticRegression(
        **STATED | {"epsilon": 4.0}, classes=list(range(20)), random_state=0, secure=secure
    )
    model.fit(X[:10_000], y[:10_000])
    assert model.plan_.plan.spec.mechanism == "ridge-whitened-gd"
    assert (model.predict(X[10_000:]) == y[10_000:]).mean() > 0.7


def test_single_precision_gives_the_same_model() -> None:
    """Rows on the grid are the same numbers in both precisions, and so are the sums."""
    X, y = embeddings(1_000, 60, 3, 1)
    fits = [
        DPLogisticRegression(**STATED, classes=[0, 1, 2], random_state=4).fit(rows, y)
        for rows in (X, X.astype(np.float64))
    ]
    assert fits[0].plan_.plan.spec.mechanism == "ridge-whitened-gd"
    assert np.abs(fits[0].coef_ - fits[1].coef_).max() < 1e-2 * np.abs(fits[0].coef_).max()


def test_weights_intercept_and_counts() -> None:
    X, y = embeddings(3_000, 60, 2, 3)
    y = ((y == 1) & (np.arange(3_000) % 5 == 0)).astype(int)  # a rare class
    stated = STATED | {"fit_intercept": True, "mechanism": "ridge-whitened-gd", "epsilon": 8.0}
    model = DPLogisticRegression(**stated, classes=[0, 1], random_state=1, weight_bound=2.0)
    model.fit(X, y, sample_weight=np.full(3_000, 2.0))
    spec = model.plan_.plan.spec
    assert spec.count_noise_std is not None
    assert abs(model.predict_proba(X)[:, 1].mean() - y.mean()) < 0.05
    with pytest.raises(InvalidParameter, match="neither ridge nor radius"):
        DPLogisticRegression(**stated, classes=[0, 1], alpha=0.1).fit(X, y)
