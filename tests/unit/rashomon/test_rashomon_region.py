"""RashomonRegion as people use it: every model, every home of records, one charge, what is said, what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin.cli.main import run_command_line as command
from dplangevin.datasets import INCOME_SCHEMA, load_income
from dplangevin.errors import BudgetExceeded, DplangevinError, InvalidParameter
from dplangevin.estimators import (
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
)
from dplangevin.ledger import Ledger
from dplangevin.problem import Logistic
from dplangevin.rashomon import RashomonRegion, exact_region
from dplangevin.report.document import write_document
from dplangevin.report.region import region_document

RNG = np.random.default_rng(0)
N = 4000
X = RNG.uniform(-1, 1, (N, 3)) / 3**0.5
SCORES = X @ np.array([4.0, -2.0, 1.0])
Y = (SCORES + RNG.logistic(size=N) > 0).astype(int)
PUBLIC = RNG.uniform(-1, 1, (60, 3)) / 3**0.5
TRUTH = (PUBLIC @ np.array([4.0, -2.0, 1.0]) > 0).astype(int)
OPTIONS: dict[str, Any] = {"data_norm": 1.0, "fit_intercept": False}


def logistic(**changes: Any) -> DPLogisticRegression:
    return DPLogisticRegression(**{"classes": [0, 1], **OPTIONS, **changes})


def region(estimator: Any = None, **changes: Any) -> RashomonRegion:
    options: dict[str, Any] = {
        "thresholds": (0.02, 0.1), "epsilon": 4.0, "delta": 1e-6, "public_inputs": PUBLIC, "n_models": 5,
        "random_state": 1, **changes,
    }  # fmt: skip
    return RashomonRegion(logistic() if estimator is None else estimator, **options)


@pytest.fixture(scope="module")
def fitted() -> RashomonRegion:
    return region(public_labels=TRUTH, groups=np.where(PUBLIC[:, 2] > 0, "a", "b")).fit(X, Y)


def value(theta: np.ndarray) -> np.ndarray:
    return np.asarray(Logistic().value(X @ theta, Y[:, None].astype(float)).mean(axis=0))


def test_every_certified_point_is_in_the_set(fitted: RashomonRegion) -> None:
    release = fitted.release_
    base = value(release.center[:, None])[0]
    for index, psi in enumerate(fitted.plan_.thresholds):
        assert (value(release.certified_points(index)) - base <= psi).all()
    for model in fitted.models_:
        assert value(model.coef_.T)[0] - base <= 0.1
    assert len(fitted.models_) == len(fitted.models(0.02)) == 5
    assert tuple(fitted.get_feature_names_out()) == fitted.feature_names_ == ("x0", "x1", "x2")
    assert fitted.privacy_.epsilon() <= 4.0
    assert fitted.privacy_.epsilon() > 3.99
    assert fitted.privacy_.at_delta == 1e-6
    assert fitted.gap_bound_ is None


def test_ranges_lie_inside_the_exact_ones_and_are_not_far(fitted: RashomonRegion) -> None:
    exact = exact_region(logistic(), X, Y, (0.02, 0.1), inputs=PUBLIC, reference=fitted.center_)
    assert exact.low is not None
    assert exact.high is not None
    table = fitted.multiplicity()
    for index, level in enumerate(table.levels):
        low, high = (np.log(p / (1 - p)) for p in (level.low, level.high))
        assert (low >= exact.low[index] - 1e-3).all()
        assert (high <= exact.high[index] + 1e-3).all()
        assert (high - low).mean() > 0.7 * (exact.high[index] - exact.low[index]).mean()
        assert level.ambiguity is not None
        assert level.ambiguity <= exact.ambiguity[index]


def test_what_is_said_of_the_levels(fitted: RashomonRegion) -> None:
    table = fitted.multiplicity()
    small, large = table.levels
    assert (large.low <= small.low).all()
    assert (large.high >= small.high).all()
    assert small.ambiguity <= large.ambiguity  # type: ignore[operator]
    assert small.reliance is not None
    assert (small.reliance[:, 0] <= small.reliance[:, 1]).all()
    assert set(small.fairness) == {"demographic parity", "equalized odds"}
    assert table.n_rows_with_ends == len(PUBLIC)
    words = str(table)
    assert "[certified]" in words
    assert "[estimate]" in words
    assert "Models outside may also be in the set" in words
    assert table.to_dict()["status"]["flip cost"] == "estimate"
    json.dumps(table.to_dict())
    changed = np.flatnonzero(large.decision_changes)  # type: ignore[arg-type]
    assert table.flip_costs is not None
    assert (table.flip_costs[changed] < 0.15).all()
    names, shares = zip(*table.influential_columns(0), strict=True)
    assert set(names) == {"x0", "x1", "x2"}
    assert list(shares) == sorted(shares, reverse=True)


def test_later_inputs_are_answered_through_the_hull_and_marked(fitted: RashomonRegion) -> None:
    stated, later = fitted.multiplicity(), fitted.multiplicity(PUBLIC[:10])
    assert "evaluated on the certified models" in later.sentence
    assert "evaluated on the certified models" not in stated.sentence
    assert later.levels[0].low == pytest.approx(stated.levels[0].low[:10])
    with pytest.raises(InvalidParameter, match="columns"):
        fitted.multiplicity(PUBLIC[:, :2])


def test_the_best_model_as_reference_costs_a_part_and_bounds_the_gap() -> None:
    made = region(logistic(radius=4.0), reference="best", thresholds=(0.2,), epsilon=20.0).fit(X, Y)
    exact = exact_region(logistic(), X, Y, 0.2, inputs=PUBLIC[:2], reference=made.center_, ranges=False)
    assert made.gap_bound_ is not None
    assert exact.gap <= made.gap_bound_ < 0.2
    best = value(exact.best[:, None])[0]
    assert (value(made.release_.certified_points(0)) <= best + 0.2).all()
    assert made.privacy_.epsilon() <= 20.0
    assert made.inner_region_ is not None
    upper, (radius,) = made.inner_region_
    z = np.random.default_rng(0).standard_normal((3, 500))
    steps = radius * np.linalg.inv(np.linalg.cholesky(upper)).T @ (z / np.linalg.norm(z, axis=0))
    assert (value(made.release_.center[:, None] + steps) <= best + 0.2).all()
    assert "within 4 of the released one" in str(made.multiplicity())


def test_a_gap_that_hides_the_threshold_certifies_nothing_and_says_so() -> None:
    with pytest.warns(UserWarning, match="certifies nothing relative to the best"):
        made = region(reference="best", thresholds=(0.001,), epsilon=0.5).fit(X[:500], Y[:500])
    (level,) = made.multiplicity().levels
    assert level.certified_threshold == 0
    assert level.ambiguity == 0
    assert (level.low == level.high).all()


MODELS: dict[str, tuple[Any, np.ndarray]] = {
    "intercept": (logistic(fit_intercept=True), Y),
    "add-remove": (logistic(adjacency="add-remove", n_public=N), Y),
    "alpha": (logistic(alpha=0.01), Y),
    "svc": (DPLinearSVC(classes=[0, 1], **OPTIONS), Y),
    "softmax": (logistic(classes=[0, 1, 2]), np.digitize(SCORES, [-1, 1])),
    "ridge": (DPRidge(target_bounds=(-5, 5), **OPTIONS), SCORES),
    "huber": (DPHuberRegressor(target_bounds=(-5, 5), **OPTIONS), SCORES),
    "quantile": (DPQuantileRegressor(target_bounds=(-5, 5), **OPTIONS), SCORES),
    "poisson": (
        DPPoissonRegressor(target_bounds=(0, 6), **OPTIONS),
        np.clip(np.round(np.exp(SCORES / 3)), 0, 6),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_a_region_whose_points_are_in_the_set(name: str, tmp_path: Path) -> None:
    """With confidence .95: one seed in 24 misses it for the model with a ridge, in exact runs and in others."""
    estimator, targets = MODELS[name]
    with warnings.catch_warnings(action="ignore"):
        made = region(estimator, thresholds=(0.05,), random_state=2).fit(X, targets)
    objective, release = made.plan_.objective, made.release_
    template = made._adapter
    labels = template.read_records(X, targets)[2](targets)
    rows = np.column_stack([X, np.ones(N)]) if name not in ("ridge",) and estimator.fit_intercept else X

    def worth(theta: np.ndarray) -> np.ndarray:
        if objective.n_classes > 1:
            scores = np.einsum("ip,pck->ikc", rows, theta.reshape(rows.shape[1], objective.n_classes, -1))
        else:
            scores = rows @ theta
        ridge = objective.ridge / 2 * (theta**2).sum(axis=0)
        return np.asarray(objective.loss.value(scores, labels[:, None]).mean(axis=0) + ridge)

    assert objective.loss.name != "clipped" or name == "poisson"
    assert (worth(release.certified_points(0)) <= worth(release.center[:, None]) + 0.05 + 1e-9).all()
    assert made.privacy_.epsilon() <= 4.0
    table = made.multiplicity()
    predicted = made.center_.predict(PUBLIC)
    if table.decisions is None:
        assert table.center == pytest.approx(predicted)
        assert (table.levels[0].low <= predicted + 1e-9).all()
    else:
        assert (table.decisions == predicted.astype(str)).all()
    assert len(made.models_[0].predict(PUBLIC)) == len(PUBLIC)
    path = write_document(region_document(made, table), tmp_path / "page.html")
    assert "certified" in path.read_text()


def test_a_pure_choice_of_the_planner_becomes_a_gaussian_centre() -> None:
    plan = region(epsilon=1.0).plan(200, 3)
    assert plan.center.guarantee.mu is not None
    pinned = region(logistic(mechanism="objective-perturbation"), epsilon=1.0).plan(200, 3)
    assert pinned.center.guarantee.mu is None
    assert pinned.guarantee.epsilon(1e-6) <= 1.0


def test_arrays_files_and_dask_agree(tmp_path: Path) -> None:
    expected = region().fit(X, Y).release_
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y)
    frame.to_parquet(tmp_path / "t.parquet")
    from_file = region().fit(str(tmp_path / "t.parquet"), "y").release_
    assert from_file.center == pytest.approx(expected.center, abs=1e-9)
    assert from_file.slack == pytest.approx(expected.slack, abs=1e-9)
    dask, distributed = pytest.importorskip("dask.array"), pytest.importorskip("distributed")
    with distributed.Client(processes=False, n_workers=1, dashboard_address=None):
        parts = region().fit(dask.from_array(X, (1000, 3)), dask.from_array(Y, 1000)).release_
    assert parts.center == pytest.approx(expected.center, abs=1e-9)
    assert parts.matrix == pytest.approx(expected.matrix, abs=1e-12)
    assert parts.slack == pytest.approx(expected.slack, abs=1e-9)


def test_one_charge_and_none_for_what_is_refused(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=5.0, delta=1e-5)
    with pytest.raises(InvalidParameter):
        region(ledger=budget, public_inputs=PUBLIC[:, :2]).fit(X, Y)
    assert not budget.history()
    made = region(ledger=budget).fit(X, Y)
    assert made.ledger_head_ == budget.head() == made.center_.ledger_head_ == made.models_[0].ledger_head_
    (entry,) = budget.history()
    assert entry.release_hash == made.release_.digest()
    with pytest.raises(BudgetExceeded):
        region(ledger=budget).fit(X, Y)
    assert len(budget.history()) == 1


def test_a_run_that_goes_on_gives_the_same_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.state"
    from dplangevin.mechanisms.rashomon_region import mechanism

    real = mechanism._release_slack

    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(mechanism, "_release_slack", stop)
    with pytest.warns(UserWarning, match="noise of this run"), pytest.raises(KeyboardInterrupt):
        region(random_state=None, checkpoint=path).fit(X, Y)
    monkeypatch.setattr(mechanism, "_release_slack", real)
    kept = path.read_bytes()
    first = region(random_state=None, checkpoint=path).fit(X, Y).release_
    assert not path.exists()
    path.write_bytes(kept)
    path.chmod(0o600)
    second = region(random_state=None, checkpoint=path).fit(X, Y).release_
    assert first.digest() == second.digest()
    path.write_bytes(kept)
    path.chmod(0o600)
    with pytest.raises(InvalidParameter, match="another plan"):
        region(random_state=None, checkpoint=path, public_inputs=PUBLIC[:5]).fit(X, Y)


def test_no_two_releases_share_their_noise() -> None:
    """One generator for all parts: the first bytes of the centre are not those of the curvature or of the slack."""
    seen: list[bytes] = []

    class Watched(np.random.Generator):
        def bytes(self, length: int) -> bytes:
            drawn = super().bytes(length)
            seen.append(drawn[:16])
            return drawn

    region(random_state=Watched(np.random.PCG64(5))).fit(X, Y)
    whole = [each for each in seen if len(each) == 16]
    assert len(whole) == len(set(whole)) > 2


BAD: list[tuple[str, dict[str, Any]]] = [
    ("RashomonSampler", {"delta": 0.0}),
    ("positive", {"thresholds": (0.0,)}),
    ("positive", {"thresholds": (0.02, -0.1)}),
    ("number", {"thresholds": "a"}),
    ("thresholds", {"thresholds": ()}),
    ("n_models", {"n_models": 0}),
    ("confidence", {"confidence": 1.0}),
    ("reference", {"reference": "first"}),
    ("public_inputs are missing", {"public_inputs": None}),
    ("columns", {"public_inputs": PUBLIC[:, :2]}),
    ("finite", {"public_inputs": np.full((3, 3), np.nan)}),
    ("public_labels", {"public_labels": [0, 1]}),
    ("groups", {"groups": ["a"]}),
    ("epsilon", {"epsilon": -1.0}),
    ("of this library", {"estimator": RashomonRegion()}),
    ("unfitted estimator", {"estimator": "logistic"}),
    ("weight_bound", {"estimator": logistic(weight_bound=2.0)}),
    ("max_rows_per_person", {"estimator": logistic(max_rows_per_person=2)}),
    ("random_state", {"estimator": logistic(secure=True)}),
    ("intervals", {"estimator": logistic(intervals=True)}),
]


@pytest.mark.parametrize(("words", "changes"), BAD, ids=[f"{w} {next(iter(c))}" for w, c in BAD])
def test_bad_input_is_one_sentence(words: str, changes: dict[str, Any]) -> None:
    with pytest.raises(DplangevinError, match=words) as raised:
        region(**changes).fit(X, Y)
    assert "\n" not in str(raised.value)


def test_a_narrow_region_is_reported_before_and_after() -> None:
    with pytest.warns(UserWarning, match="psi = 1e-05") as said:
        region(thresholds=(1e-5,), epsilon=0.2).fit(X, Y)
    words = " ".join(str(one.message) for one in said)
    assert "records" in words
    assert "epsilon" in words


def test_the_command_uses_the_region_when_delta_is_positive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _ = load_income(n=3000, random_state=1)
    table.iloc[:2900].to_csv(tmp_path / "private.csv", index=False)
    table.iloc[2900:].to_csv(tmp_path / "public.csv", index=False)
    (tmp_path / "schema.json").write_text(json.dumps(INCOME_SCHEMA))
    words = [
        "rashomon", str(tmp_path / "private.csv"), "--target", "income", "--schema", str(tmp_path / "schema.json"),
        "--threshold", "0.02", "--threshold", "0.05", "--epsilon", "4", "--delta", "1e-6", "--random-state", "1",
        "--n-models", "3", "--public", str(tmp_path / "public.csv"), "--group", "married",
    ]  # fmt: skip
    assert command([*words, "--plan"]) == 0
    assert "expected scale" in capsys.readouterr().out
    page = tmp_path / "out.html"
    assert command([*words, "--report", str(page), "--output", str(tmp_path / "models")]) == 0
    shown = capsys.readouterr()
    assert "Releasing a centre" in shown.err
    assert "ambiguity" in shown.out
    assert len(list((tmp_path / "models").iterdir())) == 3
    text = page.read_text()
    for asked in (
        "Who would be decided differently",
        "mostly decided by",
        "Which columns decide",
        "importance",
    ):
        assert asked in text
    assert command([*words, "--json", "--quiet"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["route"] == "region"
    assert plain["multiplicity"]["levels"][0]["threshold"] == 0.02
    assert command([*words, "--route", "pure", "--radius", "1"]) != 0
    assert "one --threshold" in capsys.readouterr().err
    assert command([*words, "--route", "sideways"]) != 0


def test_the_best_model_is_no_reference_where_the_data_may_hold_more_than_n_records() -> None:
    """The gap's tolerance rests on the curvature of at most n records; the released model needs no such bound."""
    estimator = logistic(n_public=N // 2, adjacency="add-remove")
    with pytest.raises(InvalidParameter, match="at most n records"):
        region(estimator, reference="best").fit(X, Y)
    made = region(estimator).fit(X, Y)
    assert made.privacy_.epsilon() <= 4.0
