"""Scores and choices on private records: sensitivity, noise law, intervals, cost, and what is said about the model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    f1_score,
    log_loss,
    precision_score,
    r2_score,
    recall_score,
    roc_auc_score,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, StandardScaler
from sklearn.svm import LinearSVC

from dplangevin import DPLogisticRegression
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import BudgetExceeded, InvalidParameter
from dplangevin.estimators import _held_out, _scoring
from dplangevin.estimators._scoring import LOSS_GRID_SIZE, Scoring, noise_distribution
from dplangevin.estimators.evaluation import find_learned_steps, private_score, private_selection
from dplangevin.mechanisms.noisy_answers.mechanism import NoisyMax, NoisySums, sample_sum_noise
from dplangevin.mechanisms.noisy_answers.spec import (
    NoisyMaxSpec,
    NoisySumsSpec,
    SumGroup,
    calibrate_noisy_max,
    calibrate_noisy_sums,
)

EXACT = 1e6  # an epsilon at which the noise vanishes
METRICS = (
    "accuracy", "log-loss", "auc", "calibration", "neg_brier_score", "average_precision", "recall", "precision", "f1",
    "balanced_accuracy",
)  # fmt: skip


def records(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.uniform(-1, 1, (n, 3))
    score = 3 * X[:, 0] - 2 * X[:, 1] - 1
    return X, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(int)


def score_histogram(model: Any, X: Any, y: Any, edges: np.ndarray) -> np.ndarray:
    n_bins = len(edges) - 1
    return np.bincount(_scoring.score_cells(model, X, y, edges), minlength=2 * n_bins).reshape(2, n_bins)


RNG = np.random.default_rng(0)
X_TRAIN, Y_TRAIN = records(2000, RNG)
MODEL = LogisticRegression(C=0.05).fit(X_TRAIN, Y_TRAIN)


# --- what a record can move ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_record_moves_a_histogram_by_what_the_plan_says(adjacency: str) -> None:
    """Replace-one moves two counts by 1 each, add-remove one: never more, and it is attained."""
    rng = np.random.default_rng(1)
    X, y = records(60, rng)
    edges = _scoring.bin_edges(8)
    base = score_histogram(MODEL, X, y, edges)
    group = SumGroup(answers=base.size, unit=1, scale=1.0)
    worst = {"geometric": 0.0, "gaussian": 0.0}
    for _ in range(300):
        other_X, other_y = X.copy(), y.copy()
        if adjacency == "replace-one":
            other_X[0], other_y[0] = rng.uniform(-3, 3, 3), rng.integers(2)
        else:
            place = rng.integers(60)
            other_X, other_y = np.delete(X, place, axis=0), np.delete(y, place)
        moved = score_histogram(MODEL, other_X, other_y, edges) - base
        worst["geometric"] = max(worst["geometric"], float(np.abs(moved).sum()))
        worst["gaussian"] = max(worst["gaussian"], float(np.linalg.norm(moved)))
    for noise, moved in worst.items():
        assert moved == pytest.approx(group.sensitivity(noise, adjacency))  # type: ignore[arg-type]


@pytest.mark.parametrize("metric", ["accuracy", "log-loss"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_record_moves_the_sums_of_losses_by_what_the_plan_says(metric: str, adjacency: str) -> None:
    scoring = Scoring(metric=metric, adjacency=adjacency)
    plan = scoring.plan_release(1.0, 0.0, 1)
    sums: Any = plan.spec
    shares = np.array([0.0, 1.0, 0.3, 0.77777])
    base = scoring.loss_sums(shares)
    costs = []
    for value in (0.0, 0.2, 0.5, 1.0):
        for place in range(4):
            other = shares.copy()
            other[place] = value
            if adjacency == "add-remove":
                other = np.delete(shares, place)
            moved = [np.abs(a - b).sum() for a, b in zip(scoring.loss_sums(other), base, strict=True)]
            costs.append(sum(m / group.scale for m, group in zip(moved, sums.groups, strict=True)))
    assert max(costs) <= plan.guarantee.epsilon()
    assert max(costs) == pytest.approx(1.0, abs=1e-8)  # a perfect record against a hopeless one


# --- noise and cost -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.4, 3.0])
def test_geometric_noise_has_its_law(scale: float) -> None:
    """Chi-square against the probability mass function; false alarm 1e-4 per case."""
    plan = NoisySumsSpec(
        groups=(SumGroup(answers=40_000, unit=1, scale=scale),), noise="geometric", adjacency="add-remove"
    )
    draws = sample_sum_noise(plan.noise, plan.groups[0], np.random.default_rng(2))
    ratio = math.exp(-1 / scale)
    cells = np.arange(-int(5 * scale) - 1, int(5 * scale) + 2)
    expected = len(draws) * (1 - ratio) / (1 + ratio) * ratio ** np.abs(cells)
    seen = np.array([np.sum(draws == cell) for cell in cells])
    kept = expected > 10
    statistic = float(((seen - expected)[kept] ** 2 / expected[kept]).sum())
    assert statistic < chi2.ppf(1 - 1e-4, kept.sum())
    assert np.std(draws) == pytest.approx(noise_distribution(plan)[0], rel=0.03)


@pytest.mark.parametrize("noise", ["geometric", "gamma", "gaussian"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("rows", [1, 4])
def test_calibrated_sums_meet_the_guarantee_and_waste_nothing(noise: str, adjacency: str, rows: int) -> None:
    delta = 1e-6 if noise == "gaussian" else 0.0
    for epsilon in (0.05, 1.0, 20.0):
        plan = calibrate_noisy_sums(
            [(40, 1, 0.7), (1, 3, 0.3)],
            epsilon=epsilon,
            delta=delta,
            noise=noise,  # type: ignore[arg-type]
            adjacency=adjacency,  # type: ignore[arg-type]
            rows_per_person=rows,
        )
        whole = CertifiedSpec(spec=plan, delta=delta).guarantee.group(rows)
        assert epsilon * (1 - 1e-6) <= whole.epsilon(delta) <= epsilon
        best = calibrate_noisy_max(
            candidates=3,
            unit=1,
            epsilon=epsilon,
            adjacency=adjacency,
            rows_per_person=rows,  # type: ignore[arg-type]
        )
        assert (
            epsilon * (1 - 1e-6)
            <= CertifiedSpec(spec=best, delta=0.0).guarantee.group(rows).epsilon()
            <= epsilon
        )


def test_costs_by_hand() -> None:
    group = SumGroup(answers=4, unit=3, scale=6.0)
    cost = {
        (noise, adjacency): CertifiedSpec(
            spec=NoisySumsSpec(groups=(group,), noise=noise, adjacency=adjacency),  # type: ignore[arg-type]
            delta=1e-6 if noise == "gaussian" else 0.0,
        ).guarantee
        for noise in ("geometric", "gamma", "gaussian")
        for adjacency in ("replace-one", "add-remove")
    }
    assert cost["geometric", "replace-one"].epsilon() == pytest.approx(1.0)
    assert cost["geometric", "add-remove"].epsilon() == pytest.approx(0.5)
    assert cost["gamma", "replace-one"].epsilon() == pytest.approx(0.5 * math.sqrt(2))
    assert cost["gaussian", "replace-one"].mu == pytest.approx(0.5 * math.sqrt(2))
    assert cost["gaussian", "add-remove"].mu == pytest.approx(0.5)
    single = NoisySumsSpec(
        groups=(SumGroup(answers=1, unit=3, scale=6.0),), noise="geometric", adjacency="replace-one"
    )
    assert CertifiedSpec(spec=single, delta=0.0).guarantee.epsilon() == pytest.approx(0.5)
    maximum = {
        a: CertifiedSpec(
            spec=NoisyMaxSpec(candidates=4, unit=3, scale=6.0, adjacency=a),  # type: ignore[arg-type]
            delta=0.0,
        ).guarantee.epsilon()
        for a in ("replace-one", "add-remove")
    }
    assert maximum["replace-one"] == pytest.approx(1.0)
    assert maximum["add-remove"] == pytest.approx(0.5)


def test_the_smaller_noise_is_taken() -> None:
    scoring = Scoring(metric="auc", adjacency="replace-one")
    assert scoring.plan_release(1.0, 1e-6, 1).spec.noise == "geometric"
    assert scoring.plan_release(0.05, 0.2, 1).spec.noise == "gaussian"
    gaussian = private_score(MODEL, X_TRAIN, Y_TRAIN, epsilon=0.05, delta=0.2, metric="auc", random_state=0)
    assert gaussian.guarantee.mu is not None
    assert gaussian.guarantee.epsilon(0.2) <= 0.05


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_without_noise_the_metrics_are_scikit_learns(adjacency: str) -> None:
    X, y = records(3000, np.random.default_rng(3))
    options: dict[str, Any] = {"epsilon": EXACT, "adjacency": adjacency, "random_state": 0}
    assert private_score(MODEL, X, y, **options).value == pytest.approx(MODEL.score(X, y), abs=1e-12)
    probability = MODEL.predict_proba(X)
    loss = private_score(MODEL, X, y, metric="log-loss", cap=20.0, **options)
    assert loss.value == pytest.approx(log_loss(y, probability), abs=20 / LOSS_GRID_SIZE)
    area = private_score(MODEL, X, y, metric="auc", bins=400, **options).value
    assert area == pytest.approx(roc_auc_score(y, probability[:, 1]), abs=5e-4)
    table = private_score(MODEL, X, y, metric="calibration", bins=[0, 0.5, 1], **options).table
    low = probability[:, 1] < 0.5
    assert [row.fraction for row in table] == pytest.approx([low.mean(), 1 - low.mean()])
    assert [row.positive_rate for row in table] == pytest.approx([y[low].mean(), y[~low].mean()])
    assert all(row.interval[0] < row.positive_rate < row.interval[1] for row in table)
    line = LinearRegression().fit(X, y)
    error = private_score(line, X, y, metric="squared-error", cap=4.0, **options)
    assert error.value == pytest.approx(np.mean((line.predict(X) - y) ** 2), abs=4 / LOSS_GRID_SIZE)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_without_noise_named_scores_are_scikit_learns(adjacency: str) -> None:
    X, y = records(3000, np.random.default_rng(31))
    options: dict[str, Any] = {"epsilon": EXACT, "adjacency": adjacency, "random_state": 0}
    predicted, probability = MODEL.predict(X), MODEL.predict_proba(X)[:, 1]
    of_labels = {
        "recall": recall_score, "precision": precision_score, "f1": f1_score,
        "balanced_accuracy": balanced_accuracy_score,
    }  # fmt: skip
    for metric, function in of_labels.items():
        score = private_score(MODEL, X, y, metric=metric, **options)
        assert score.value == pytest.approx(function(y, predicted), abs=1e-9)
    area = private_score(MODEL, X, y, metric="average_precision", bins=400, **options).value
    assert area == pytest.approx(average_precision_score(y, probability), abs=3e-3)
    named = {
        "neg_brier_score": -brier_score_loss(y, probability),
        "neg_log_loss": -log_loss(y, probability),
        "roc_auc": roc_auc_score(y, probability),
    }
    for metric, value in named.items():
        score = private_score(
            MODEL, X, y, metric=metric, bins=400 if metric == "roc_auc" else None, **options
        )
        assert score.value == pytest.approx(value, abs=5e-4)
        assert score.interval[0] < value < score.interval[1]
    target = 3 * X[:, 0] + X[:, 1] ** 2
    line = LinearRegression().fit(X, target)
    r2 = private_score(line, X, target, metric="r2", target_range=(-4.0, 4.0), **options)
    assert r2.value == pytest.approx(r2_score(target, line.predict(X)), abs=1e-3)
    error = private_score(line, X, target, metric="neg_mean_absolute_error", cap=4.0, **options)
    assert error.value == pytest.approx(-np.mean(np.abs(line.predict(X) - target)), abs=1e-4)


def test_the_interval_of_explained_variance_covers() -> None:
    """100 private hold-outs of 1000 at epsilon 1; coverage of .95 falls below .87 with probability 2e-3."""
    rng = np.random.default_rng(33)
    X, _ = records(200_000, rng)
    target = np.clip(2 * X[:, 0] + rng.standard_normal(len(X)), -5, 5)
    line = LinearRegression().fit(X[:500], target[:500])
    truth, hits = r2_score(target, np.clip(line.predict(X), -5, 5)), 0
    for start in range(0, 100_000, 1000):
        part = slice(start, start + 1000)
        score = private_score(
            line, X[part], target[part], metric="r2", target_range=(-5, 5), epsilon=1.0, random_state=rng
        )
        hits += score.interval[0] <= truth <= score.interval[1]
    assert hits >= 87


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("metric", ["f1", "r2", "brier", "average_precision"])
def test_a_record_moves_named_scores_by_what_the_plan_says(metric: str, adjacency: str) -> None:
    """One record at its extremes, alone and in place of every other extreme: L1 within the sensitivity."""
    extremes = [(x, label) for x in (-1e9, -1.0, 0.0, 1.0, 1e9) for label in (0, 1)]
    scoring = Scoring(metric=metric, adjacency=adjacency, target_range=(0.0, 1.0) if metric == "r2" else None)
    model = LinearRegression().fit(X_TRAIN, Y_TRAIN) if metric == "r2" else MODEL
    sums = [
        scoring.exact_sums(model, _held_out.open_held_out(np.array([[x, 0.0, 0.0]]), np.array([label])))
        for x, label in extremes
    ]
    spec = scoring.plan_release(1.0, 0.0, 1).spec
    assert isinstance(spec, NoisySumsSpec)
    for index, group in enumerate(spec.groups):
        contributions = np.array([record[index].ravel() for record in sums])
        assert (contributions >= 0).all()
        others = contributions[:, None] if adjacency == "replace-one" else np.zeros((1, 1, 1))
        moves = np.abs(contributions[None] - others).sum(axis=-1)
        assert moves.max() <= group.sensitivity("geometric", scoring.checked_adjacency)


@pytest.mark.parametrize("metric", ["max_error", "neg_median_absolute_error", "f1_macro", "roc_auc_ovr"])
def test_scores_without_a_sensitivity_are_refused(metric: str) -> None:
    X, y = records(50, np.random.default_rng(34))
    purse = Purse()
    with pytest.raises(InvalidParameter, match=metric):
        private_score(MODEL, X, y, metric=metric, epsilon=1.0, ledger=purse)
    assert not purse.reserved


def test_models_without_probabilities_and_with_more_classes() -> None:
    X, y = records(2000, np.random.default_rng(4))
    svc = LinearSVC().fit(X, y)
    area = private_score(svc, X, y, metric="auc", bins=300, epsilon=EXACT, random_state=0).value
    assert area == pytest.approx(roc_auc_score(y, svc.decision_function(X)), abs=1e-3)
    names = np.array(["a", "b", "c"])[y + (X[:, 2] > 0.5)]
    many = LogisticRegression().fit(X, names)
    loss = private_score(many, X, names, metric="log-loss", cap=30.0, epsilon=EXACT, random_state=0)
    assert loss.value == pytest.approx(log_loss(names, many.predict_proba(X)), abs=1e-3)
    with pytest.raises(InvalidParameter, match="two classes"):
        private_score(many, X, names, metric="auc", epsilon=1.0)


def test_strange_labels_are_scored_silently() -> None:
    X, y = records(500, np.random.default_rng(5))
    odd = y.astype(float)
    odd[:50] = np.nan
    odd[50:100] = 7
    for metric in METRICS:
        score = private_score(MODEL, X, odd, metric=metric, epsilon=EXACT, random_state=0)
        assert math.isfinite(score.value)
    right = private_score(MODEL, X, odd, epsilon=EXACT, random_state=0).value
    assert right == pytest.approx(np.sum(MODEL.predict(X)[100:] == y[100:]) / 500)
    assert private_score(MODEL, X, odd, metric="log-loss", epsilon=EXACT, random_state=0).value > 1.0


@pytest.mark.parametrize("metric", METRICS)
def test_intervals_cover(metric: str) -> None:
    """120 private hold-outs of 800 at epsilon 0.5. Coverage 0.95 falls below 0.875 with probability 5e-4 per metric."""
    rng = np.random.default_rng(6)
    X, y = records(200_000, rng)
    truth = private_score(MODEL, X, y, metric=metric, epsilon=EXACT, bins=32, random_state=0).value
    if metric == "calibration":  # the value removes sampling error; the truth has none
        counts = score_histogram(MODEL, X, y, _scoring.bin_edges(32))
        middle = np.convolve(_scoring.bin_edges(32), [0.5, 0.5], "valid")
        truth = float(np.abs(counts[1] * (1 - middle) - counts[0] * middle).sum() / counts.sum())
    hits = 0
    for start in range(0, 120 * 800, 800):
        part = slice(start, start + 800)
        score = private_score(MODEL, X[part], y[part], metric=metric, epsilon=0.5, bins=32, random_state=rng)
        hits += score.interval[0] <= truth <= score.interval[1]
        assert score.interval[0] <= score.value <= score.interval[1] or metric == "calibration"
    assert hits >= 105
    wide = private_score(
        MODEL, X[:800], y[:800], metric=metric, epsilon=0.5, level=0.999, bins=32, random_state=7
    )
    narrow = private_score(
        MODEL, X[:800], y[:800], metric=metric, epsilon=0.5, level=0.5, bins=32, random_state=7
    )
    assert wide.interval[1] - wide.interval[0] > narrow.interval[1] - narrow.interval[0]


def test_a_class_lost_in_noise_gives_no_area() -> None:
    X, y = records(60, np.random.default_rng(8))
    score = private_score(MODEL, X, y, metric="auc", epsilon=0.01, random_state=0)
    assert score.interval == (0.0, 1.0)


# --- choosing -----------------------------------------------------------------------------------------------------


def test_the_choice_has_its_law() -> None:
    """Two candidates g apart: the better one wins with probability 1 - exp(-g / scale) / 2. Four sigmas, 6e-5."""
    run_spec = NoisyMaxSpec(candidates=2, unit=1, scale=4.0, adjacency="replace-one")
    plan = CertifiedSpec(spec=run_spec, delta=0.0)
    rng = np.random.default_rng(9)
    totals = np.array([10.0, 13.0])
    wins = [NoisyMax().run(plan, lambda: [totals], rng).values[0][0] for _ in range(6000)]
    chance = 1 - math.exp(-3 / 4) / 2
    assert np.mean(wins) == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / 6000))


@pytest.mark.parametrize("metric", ["accuracy", "log-loss"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_better_model_is_chosen(metric: str, adjacency: str) -> None:
    X, y = records(2000, np.random.default_rng(10))
    models = [
        DummyClassifier().fit(X, y),
        MODEL,
        DummyClassifier(strategy="uniform", random_state=0).fit(X, y),
    ]
    chosen = private_selection(models, X, y, metric=metric, epsilon=1.0, adjacency=adjacency, random_state=0)
    assert chosen.index == 1
    assert chosen.guarantee.kind == "pure"
    assert 0.999 < chosen.guarantee.epsilon() <= 1.0
    assert chosen.seeded


# --- cost, ledger, words ------------------------------------------------------------------------------------------


class Purse:
    """A budget account that remembers, or refuses."""

    def __init__(self, empty: bool = False) -> None:
        self.empty, self.reserved, self.committed = empty, [], []

    def reserve(self, plan: Any) -> str:
        if self.empty:
            raise BudgetExceeded("nothing left")
        self.reserved.append(plan.guarantee)
        return "token"

    def commit(self, token: str, release_hash: str) -> None:
        self.committed.append((token, release_hash))


class Untouchable(LogisticRegression):
    def predict(self, X: Any) -> Any:
        raise AssertionError("a record was read")

    predict_proba = predict


def test_the_ledger_pays_first() -> None:
    X, y = records(300, np.random.default_rng(11))
    purse = Purse()
    score = private_score(MODEL, X, y, epsilon=0.3, max_rows_per_person=3, ledger=purse)
    assert not score.seeded
    assert purse.reserved[0].epsilon() == pytest.approx(
        0.1
    )  # per record; the ledger counts the rows of a person
    assert score.guarantee.epsilon() == pytest.approx(0.3)
    chosen = private_selection([MODEL, MODEL], X, y, epsilon=0.2, ledger=purse)
    assert purse.reserved[1].epsilon() == chosen.guarantee.epsilon()
    assert [len(digest) for _, digest in purse.committed] == [64, 64]
    sealed = Untouchable().fit(X, y)
    for metric in METRICS:
        with pytest.raises(BudgetExceeded):
            private_score(sealed, X, y, metric=metric, epsilon=0.3, ledger=Purse(empty=True))
    with pytest.raises(BudgetExceeded):
        private_selection([sealed, sealed], X, y, epsilon=0.3, ledger=Purse(empty=True))


def test_seeds_are_used_and_reported() -> None:
    X, y = records(300, np.random.default_rng(12))
    first, second = (private_score(MODEL, X, y, epsilon=0.3, random_state=1) for _ in range(2))
    assert first.value == second.value
    assert first.seeded
    assert "random_state" in " ".join(first.guarantee.assumptions)
    fresh = {private_score(MODEL, X, y, metric="log-loss", epsilon=0.3).value for _ in range(5)}
    assert len(fresh) == 5


def test_learned_steps() -> None:
    X, y = records(100, np.random.default_rng(13))
    stateless = make_pipeline(FunctionTransformer(), Normalizer(), LogisticRegression())
    assert find_learned_steps(stateless.fit(X, y)) == ()
    assert find_learned_steps(make_pipeline(StandardScaler(), LogisticRegression())) == ()  # not fitted yet
    nested = make_pipeline(
        make_column_transformer((MinMaxScaler(), [0]), (Normalizer(), [1, 2])),
        make_union(StandardScaler(), FunctionTransformer()),
        make_pipeline(FunctionTransformer(), StandardScaler()),
        LogisticRegression(),
    ).fit(X, y)
    assert find_learned_steps(nested) == (
        "columntransformer/minmaxscaler",
        "featureunion/standardscaler",
        "pipeline/standardscaler",
    )
    search = GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()), {}, cv=2).fit(X, y)
    assert find_learned_steps(search) == ("GridSearchCV", "standardscaler")
    assert find_learned_steps(MODEL) == ()
    score = private_score(nested, X, y, epsilon=1.0)
    assert "minmaxscaler" in " ".join(score.guarantee.assumptions)
    assert "learned" not in " ".join(private_score(stateless, X, y, epsilon=1.0).guarantee.assumptions)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": "f2"}, "metric"), ({"metric": "r2"}, "target_range"),
        ({"epsilon": 0.0}, "epsilon"), ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta"), ({"adjacency": "swap"}, "adjacency"), ({"level": 1.0}, "level"),
        ({"metric": "auc", "bins": 1}, "bins"), ({"metric": "auc", "bins": [0, 0.7, 0.2, 1]}, "bins"),
        ({"cap": 3.0}, "cap"), ({"metric": "log-loss", "cap": 0.0}, "cap"), ({"metric": "squared-error"}, "cap"),
        ({"max_rows_per_person": 0}, "rows"), ({"random_state": -1}, "random_state"),
        ({"model": LinearRegression(), "metric": "log-loss"}, "predict_proba"),
        ({"y": [0, 1]}, "y must"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(changes: dict[str, Any], words: str) -> None:
    X, y = records(50, np.random.default_rng(14))
    options = {"model": MODEL, "X": X, "y": y, "epsilon": 1.0} | changes
    with pytest.raises(InvalidParameter, match=words):
        private_score(options.pop("model"), options.pop("X"), options.pop("y"), **options)


def test_bad_choices_are_named() -> None:
    X, y = records(50, np.random.default_rng(15))
    with pytest.raises(InvalidParameter, match="two models"):
        private_selection([MODEL], X, y, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="metric"):
        private_selection([MODEL, MODEL], X, y, epsilon=1.0, metric="auc")
    best = NoisyMaxSpec(candidates=3, unit=1, scale=1.0, adjacency="add-remove")
    with pytest.raises(InvalidParameter, match="answers"):
        NoisyMax().run(CertifiedSpec(spec=best, delta=0.0), lambda: [np.zeros(2)], 0)
    plan = calibrate_noisy_sums([(3, 1, 1.0)], epsilon=1.0, noise="geometric", adjacency="add-remove")
    with pytest.raises(InvalidParameter, match="answers"):
        NoisySums().run(CertifiedSpec(spec=plan, delta=0.0), lambda: [np.zeros(2)], 0)
    with pytest.raises(InvalidParameter, match="whole"):
        NoisySumsSpec(
            groups=(SumGroup(answers=1, unit=0.5, scale=1.0),), noise="geometric", adjacency="add-remove"
        )
    with pytest.raises(InvalidParameter, match="groups"):
        NoisySumsSpec(groups=(), noise="geometric", adjacency="add-remove")


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("metric", ["accuracy", "log-loss"])
def test_no_record_moves_a_total_by_more_than_the_unit_of_the_choice(
    metric: str, adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And under add-remove a record more moves all of them upwards, which the proof rests on."""
    seen: list[tuple[NoisyMaxSpec, np.ndarray]] = []

    def watched(self: Any, run_spec: NoisyMaxSpec, exact: Any, rng: Any) -> tuple[np.ndarray, ...]:
        seen.append((run_spec, np.array(exact[0])))
        return (np.zeros(1),)

    monkeypatch.setattr(NoisyMax, "release_answers", watched)
    steep = LogisticRegression(C=1e6).fit(X_TRAIN[:50], Y_TRAIN[:50])
    X, y = X_TRAIN[:40].copy(), Y_TRAIN[:40].copy()
    X[0], y[0] = (1.0, -1.0, 0.0), 1
    asked: dict[str, Any] = {"metric": metric, "epsilon": 1.0, "adjacency": adjacency, "random_state": 0}
    private_selection([MODEL, steep], X, y, **asked)
    others = (X, np.where(np.arange(40) == 0, 0, y)) if adjacency == "replace-one" else (X[1:], y[1:])
    private_selection([MODEL, steep], *others, **asked)
    (run_spec, first), (again, second) = seen
    assert run_spec == again
    moves = first - second
    assert np.abs(moves).max() <= run_spec.unit
    assert np.abs(moves).max() >= 0.5 * run_spec.unit
    if adjacency == "add-remove":
        assert moves.min() >= 0


@pytest.mark.parametrize("rows", [1, 3])
def test_a_choice_costs_a_person_what_was_asked(rows: int) -> None:
    found = private_selection(
        [MODEL, MODEL], X_TRAIN, Y_TRAIN, epsilon=0.7, max_rows_per_person=rows, random_state=0
    )
    assert found.guarantee.rows_per_person == rows
    assert 0.699 < found.guarantee.epsilon(0.0) <= 0.7


def test_a_secure_choice_has_the_noise_of_its_spec() -> None:
    """exp(-1) / 2 of all choices are the second best, two candidates whose totals are one scale apart."""
    run_spec = NoisyMaxSpec(candidates=2, unit=1.0, scale=10.0, adjacency="replace-one", secure=True)
    mechanism, certified = NoisyMax(), CertifiedSpec(spec=run_spec, delta=0.0)
    drawn = [mechanism.run(certified, lambda: [np.array([10.0, 0.0])]).values[0][0] for _ in range(2000)]
    assert abs(float(np.mean(drawn)) - math.exp(-1) / 2) < 0.05  # six deviations


# --- groups -------------------------------------------------------------------------------------------------------


def grouped_table(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Records with a column of two listed groups, an unlisted one and missing cells."""
    X, y = records(n, rng)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    table["group"] = rng.choice(np.array(["f", "m", "x", None], dtype=object), n, p=[0.5, 0.3, 0.1, 0.1])
    return table, y


NAMED_MODEL = LogisticRegression(C=0.05).fit(pd.DataFrame(X_TRAIN, columns=["a", "b", "c"]), Y_TRAIN)
GROUPS = ("group", ["f", "m"])


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("metric", METRICS)
def test_without_noise_groups_have_the_scores_of_their_records(metric: str, adjacency: str) -> None:
    table, y = grouped_table(3000, np.random.default_rng(5))
    options: dict[str, Any] = {"metric": metric, "epsilon": EXACT, "adjacency": adjacency, "random_state": 0}
    score = private_score(NAMED_MODEL, table, y, groups=GROUPS, **options)
    whole = private_score(NAMED_MODEL, table, y, **options)
    assert score.value == pytest.approx(whole.value, abs=1e-4)
    masks = {"f": table["group"] == "f", "m": table["group"] == "m"}
    masks[""] = ~(masks["f"] | masks["m"])
    assert list(score.groups) == ["f", "m", ""]
    for name, mask in masks.items():
        alone = private_score(NAMED_MODEL, table[mask], y[mask], **options)
        assert score.groups[name].value == pytest.approx(alone.value, abs=1e-4)
        assert score.groups[name].interval == pytest.approx(alone.interval, abs=2e-3)
        assert len(score.groups[name].table) == len(alone.table)


@pytest.mark.parametrize("metric", ["accuracy", "log-loss", "auc", "recall"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_record_moves_the_sums_of_groups_by_what_the_plan_says(metric: str, adjacency: str) -> None:
    """A record counts in one group: replaced, it moves two groups, and never more than the sensitivity of all sums."""
    rng = np.random.default_rng(2)
    table, y = grouped_table(40, rng)
    groups = _scoring.GroupColumn.read(GROUPS)
    scoring = Scoring(metric=metric, adjacency=adjacency, bins=4 if metric == "auc" else None, groups=groups)
    sums = [(SumGroup(answers=a, unit=unit, scale=1.0), np.zeros(2)) for a, unit, _ in scoring.sum_groups]
    base = scoring.exact_sums(NAMED_MODEL, _held_out.open_held_out(table, y))
    assert [each.size for each in base] == [group.answers for group, _ in sums]
    for _ in range(200):
        other, labels = table.copy(), y.copy()
        if adjacency == "replace-one":
            drawn, label = grouped_table(1, rng)
            other.iloc[0], labels[0] = drawn.iloc[0], label[0]
        else:
            place = int(rng.integers(40))
            other, labels = other.drop(index=place), np.delete(labels, place)
        moved = scoring.exact_sums(NAMED_MODEL, _held_out.open_held_out(other, labels))
        for (_, worst), before, after in zip(sums, base, moved, strict=True):
            change = (after - before).ravel()
            worst[:] = np.maximum(worst, [np.abs(change).sum(), np.linalg.norm(change)])
    for group, worst in sums:
        for noise, largest in zip(("geometric", "gaussian"), worst.tolist(), strict=True):
            assert largest <= group.sensitivity(noise, adjacency) * (1 + 1e-12)  # type: ignore[arg-type]
            assert metric == "log-loss" or largest == pytest.approx(group.sensitivity(noise, adjacency))  # type: ignore[arg-type]


def test_groups_cost_nothing_more_and_are_read_from_files_too(tmp_path: Path) -> None:
    table, y = grouped_table(2000, np.random.default_rng(6))
    table.assign(y=y).to_parquet(tmp_path / "held.parquet")
    options: dict[str, Any] = {"epsilon": 0.5, "groups": GROUPS, "metric": "neg_log_loss"}
    score = private_score(NAMED_MODEL, table, y, random_state=3, **options)
    stored = private_score(NAMED_MODEL, tmp_path / "held.parquet", "y", random_state=3, **options)
    assert score.guarantee.epsilon() == pytest.approx(0.5)
    assert (score.value, score.groups) == (stored.value, stored.groups)
    assert score.groups["f"].value < 0
    low, high = score.groups["m"].interval
    assert low < score.groups["m"].value < high
    schema = {"version": 1, "columns": {name: {"range": [-1, 1]} for name in "abc"}}
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, schema=schema, classes=[0, 1], random_state=0)
    model.fit(table[["a", "b", "c"]], y)
    assert set(private_score(model, table, y, epsilon=1.0, groups=GROUPS).groups) == {"f", "m", ""}


@pytest.mark.parametrize(
    ("groups", "metric", "words"),
    [
        ("group", "accuracy", "must be"), (("group", []), "accuracy", "must be"),
        (("group", ["f", "f"]), "accuracy", "must be"), (("sex", ["f"]), "accuracy", "does not have"),
        (("group", ["f"]), "r2", "all records together"),
    ],
)  # fmt: skip
def test_bad_groups_are_refused_before_anything_is_charged(groups: Any, metric: str, words: str) -> None:
    table, y = grouped_table(50, np.random.default_rng(7))
    target_range = (0.0, 1.0) if metric == "r2" else None
    with pytest.raises(InvalidParameter, match=words):
        private_score(
            NAMED_MODEL, table, y, epsilon=1.0, metric=metric, groups=groups, target_range=target_range
        )
    with pytest.raises(InvalidParameter, match="no names"):
        private_score(MODEL, *records(50, RNG), epsilon=1.0, groups=GROUPS)
