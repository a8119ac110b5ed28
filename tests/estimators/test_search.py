"""Tuning with a bill: the guarantee of repeat-and-select, what leaves, and what is refused."""

from __future__ import annotations

import logging
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline

from dplangevin import (
    DPAdditiveClassifier,
    DPLinearSVC,
    DPLogisticRegression,
    DPModelSearch,
    DPPoissonRegressor,
    DPRidge,
    Ledger,
    _progress,
    progress,
)
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators import model_search
from dplangevin.estimators.model_search import draw_held_out_rows
from dplangevin.mechanisms.mechanism import NoiseDraws
from dplangevin.mechanisms.repeated_selection.mechanism import (
    CandidateAttempts,
    RepeatedSelection,
    sample_n_attempts,
)
from dplangevin.mechanisms.repeated_selection.spec import (
    REPETITION_LAWS,
    RepeatedSelectionSpec,
    RepeatedSelectionTheorem,
    calibrate_attempt_mu,
    renyi_bound,
)
from dplangevin.schema import Schema

SHAPES = {"poisson": math.inf, "geometric": 1.0, "logarithmic": 0.0}


@pytest.mark.parametrize("law", REPETITION_LAWS)
@pytest.mark.parametrize(("mu", "mean"), [(0.1, 10), (0.3, 20), (0.05, 100)])
def test_the_renyi_bound_equals_that_of_dp_accounting(law: str, mu: float, mean: float) -> None:
    from dp_accounting import dp_event, rdp

    spec = RepeatedSelectionSpec(mu=mu, repetitions=mean, law=law, adjacency="replace-one")  # type: ignore[arg-type]
    ours, sharper = renyi_bound(spec), RepeatedSelectionTheorem().certify(None, spec)
    theirs = rdp.RdpAccountant(cv.ORDERS[cv.ORDERS > 1])
    theirs.compose(dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(1 / mu), mean, SHAPES[law]))
    assert ours.epsilon(1e-6) == pytest.approx(theirs.get_epsilon(1e-6), rel=1e-3)
    assert ours.epsilon(1e-6) >= theirs.get_epsilon(1e-6) * (1 - 1e-9)
    assert sharper.epsilon(1e-6) < 0.9 * ours.epsilon(1e-6)


@pytest.mark.parametrize("law", REPETITION_LAWS)
def test_the_number_of_attempts_has_its_law(law: str) -> None:
    """Means of 4,000 draws within 5 standard errors (false alarm below 1e-6)."""
    spec = RepeatedSelectionSpec(mu=0.1, repetitions=12, law=law, adjacency="replace-one")  # type: ignore[arg-type]
    draws = NoiseDraws.from_generator(np.random.default_rng(0), seeded=True)
    drawn = np.array([sample_n_attempts(spec, draws) for _ in range(4_000)])
    assert abs(drawn.mean() - 12) < 5 * drawn.std() / math.sqrt(len(drawn))
    assert drawn.min() >= (0 if law == "poisson" else 1)
    mu = calibrate_attempt_mu(1.0, 1e-6, spec)
    found = RepeatedSelectionTheorem().certify(
        None,
        RepeatedSelectionSpec(mu=mu, repetitions=12, law=law, adjacency="replace-one"),  # type: ignore[arg-type]
    )
    assert 0.999 < found.epsilon(1e-6) <= 1.0


def data(n: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, n)
    return pd.DataFrame({"x": x, "y": np.where(rng.random(n) < 1 / (1 + np.exp(5 - x)), "yes", "no")})


GOOD = Schema.from_dict({"version": 1, "columns": {"x": {"range": [0, 10]}}})
BAD = Schema.from_dict({"version": 1, "columns": {"x": {"range": [0, 10_000]}}})


def search(**options: Any) -> DPModelSearch:
    model = DPLogisticRegression(classes=["no", "yes"])
    stated = {"epsilon": 4.0, "delta": 1e-6, "repetitions": 10, "random_state": 0, **options}
    return DPModelSearch(
        stated.pop("estimator", model), stated.pop("grid", {"schema": [BAD, GOOD]}), **stated
    )


def test_the_better_candidate_leaves_and_nothing_of_the_other(tmp_path: Path) -> None:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}")
    budget = ledger.declare("d", epsilon=5.0, delta=1e-5)
    table = data()
    found = search(ledger=budget).fit(table[["x"]], table.y)
    assert found.best_params_ == {"schema": GOOD}
    assert found.best_estimator_.schema == GOOD
    assert 3.99 < found.privacy_.epsilon(1e-6) <= 4.0
    assert found.best_estimator_.privacy_ == found.privacy_
    assert len(budget.history()) == 1
    assert found.score(table[["x"]], table.y) > 0.75
    assert list(found.classes_) == ["no", "yes"]
    fitted = {name for name in vars(found) if name.endswith("_")}
    assert fitted == {
        "privacy_",
        "best_estimator_",
        "best_params_",
        "best_score_",
        "ledger_head_",
        "classes_",
    }
    by_name = search().fit(table, "y")
    assert by_name.best_params_ == {"schema": GOOD}
    assert 0.5 < by_name.best_score_ < 1.1


def test_arrays_add_remove_and_regression() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    model = DPRidge(data_norm=2.0, target_bounds=(-2, 2), adjacency="add-remove", n_public=4000)
    found = search(estimator=model, grid=[{"alpha": [1e-3]}, {"alpha": [1e3]}]).fit(X, X[:, 0])
    assert found.best_params_ == {"alpha": 1e-3}
    assert found.privacy_.adjacency == "add-remove"
    svc = DPLinearSVC(data_norm=2.0, classes=[0, 1])
    assert (
        search(estimator=svc, grid={"alpha": [1e-3, 1e3]}).fit(X, (X[:, 0] > 0).astype(int)).best_score_ > 0.5
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grid": {"epsilon": [1, 2]}}, "change the guarantee"),
        ({"grid": {"classes": [[0, 1]]}}, "change the guarantee"),
        ({"grid": {"depth": [1]}}, "not a parameter of"), ({"grid": {"alpha": 1.0}}, "list of values"),
        ({"grid": {"alpha": []}}, "list of values"), ({"grid": []}, "dictionary"), ({"grid": "alpha"}, "dictionary"),
        ({"repetitions": 0}, "repetitions"), ({"repetitions": 0.5}, "from 1"), ({"law": "uniform"}, "law"),
        ({"law": "poisson", "repetitions": 2}, "too often"), ({"holdout": 0.99}, "holdout"),
        ({"metric": "auc"}, "metric"),
        ({"delta": 0.0}, "delta"), ({"estimator": object()}, "estimator must be"),
        ({"estimator": DPLogisticRegression(classes=["no", "yes"], person="x", n_public=9)}, "person"),
        ({"estimator": DPLogisticRegression()}, "labels"),
        ({"grid": {"schema": [Schema.learn(x="number")]}}, "learns the schema of its estimator alone"),
        ({"grid": {"mechanism": ["objective-perturbation"], "schema": [GOOD]}}, "GDP of an attempt"),
    ],
)  # fmt: skip
def test_what_is_publicly_wrong_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        search(**options).fit(data(400)[["x"]], data(400).y)


def test_no_attempt_at_all_is_said() -> None:
    spec = RepeatedSelectionSpec(mu=1.0, repetitions=5, law="poisson", adjacency="replace-one")
    certified = CertifiedSpec(spec=spec, delta=1e-5)

    class Never(np.random.Generator):
        def bytes(self, length: int) -> bytes:  # type: ignore[override]
            return bytes(length)

    with pytest.raises(InvalidParameter, match="candidates"):
        RepeatedSelection().run(
            certified,
            CandidateAttempts(fit_specs=(), score_specs=(), run_attempt=lambda j, rng: (0.0, None, "")),
            0,
        )
    from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumGroup

    group = SumGroup(answers=1, unit=1.0, scale=2.0)
    one = CertifiedSpec(
        spec=NoisySumsSpec(groups=(group,), noise="gaussian", adjacency="replace-one"), delta=1e-5
    )
    attempts = CandidateAttempts(
        fit_specs=(one,), score_specs=(one,), run_attempt=lambda j, rng: (0.0, None, "")
    )
    with pytest.raises(DplangevinError, match="was 0"):
        RepeatedSelection().run(certified, attempts, Never(np.random.PCG64(0)))


def test_nothing_counts_the_attempts(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LOG_LINES", 0.0)
    table = data(1000)
    seen: list[int] = []
    with progress(lambda step, total: seen.append(step)), caplog.at_level(logging.INFO, "dplangevin"):
        search(verbose=True).fit(table[["x"]], table.y)
        assert (seen, caplog.messages) == ([], [])
        DPLogisticRegression(classes=["no", "yes"], schema=GOOD, random_state=0).fit(table[["x"]], table.y)
    assert seen
    assert caplog.messages  # a plain fit is shown
    assert capsys.readouterr().err == ""


def test_candidates_are_compared_on_the_same_targets_and_rows(tmp_path: Path) -> None:
    table, ledger = data(1000), Ledger.create(f"sqlite:///{tmp_path / 'l.db'}")
    budget = ledger.declare("d", epsilon=5.0, delta=1e-5)
    columns = {"x": {"range": [0, 10]}}
    ranges = [
        Schema.from_dict({"version": 1, "columns": columns, "target": {"name": "z", "range": [0, high]}})
        for high in (10, 10_000)
    ]
    with pytest.raises(InvalidParameter, match="not comparable"):
        search(estimator=DPRidge(), grid={"schema": ranges}, ledger=budget).fit(table[["x"]], table.x)
    for rows in (900, 1100):
        stated = DPLogisticRegression(classes=["no", "yes"], n_public=rows)
        with pytest.raises(InvalidParameter, match="is stated"):
            search(estimator=stated, ledger=budget).fit(table[["x"]], table.y)
    assert not budget.history()
    curves = DPAdditiveClassifier(classes=["no", "yes"])
    found = search(estimator=curves, ledger=budget).fit(table[["x"]], table.y)
    assert found.best_estimator_.schema_.is_additive
    assert len(found.predict(table[["x"]])) == 1000
    assert "the number of rows is public" in found.privacy_.assumptions


def test_a_row_that_leaves_moves_no_other_row() -> None:
    """Under add-remove the parts of a table with and without its last row agree on all others, for every seed."""
    for seed in range(50):
        longer, shorter = (
            draw_held_out_rows(rows, 0.25, "add-remove", 0, np.random.default_rng(seed).bytes)
            for rows in (8, 7)
        )
        assert np.array_equal(longer[:7], shorter)


def test_an_unstated_number_of_rows_is_public_and_said() -> None:
    model = DPRidge(data_norm=2.0, target_bounds=(-2, 2), adjacency="add-remove")
    X = np.random.default_rng(0).uniform(-1, 1, (4000, 3))
    found = search(estimator=model, grid=[{"alpha": [1e-3]}, {"alpha": [1e3]}]).fit(X, X[:, 0])
    assert [each.kind for each in found.privacy_.conditions] == ["public-row-count"]
    assert found.best_params_ == {"alpha": 1e-3}


STATED = {"epsilon": 4.0, "delta": 1e-6, "repetitions": 5, "random_state": 0}
LEARNED = Schema.learn(x="number")


def people(n: int = 3000) -> pd.DataFrame:
    return data(n).assign(who=np.arange(n) // 2, w=np.linspace(0.0, 1.0, n))


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"schema": GOOD, "person": "who", "max_rows_per_person": 2, "n_public": 3000}, ["x", "who"]),
        ({"schema": LEARNED}, ["x"]),
        ({"schema": LEARNED, "person": "who", "max_rows_per_person": 2, "n_public": 3000}, ["x", "who"]),
        ({"schema": GOOD, "max_rows_per_person": 2}, ["x"]),
        ({"schema": GOOD, "adjacency": "add-remove", "n_public": 3000}, ["x"]),
    ],
)
def test_options_of_the_estimator_compose(options: dict[str, Any], columns: list[str]) -> None:
    """Persons, learned schemas and groups: exact, within epsilon for a person, and the same from a file."""
    table = people()
    model = DPLogisticRegression(classes=["no", "yes"], **options)
    found = DPModelSearch(model, {"alpha": [None, 1e3]}, **STATED).fit(table[columns], table.y)
    assert 3.9 < found.privacy_.epsilon() <= 4.0
    assert found.privacy_.arithmetic == "discrete-grid"
    assert found.privacy_.rows_per_person == options.get("max_rows_per_person", 1)
    assert found.privacy_.adjacency == options.get("adjacency", "replace-one")
    assert found.score(table[["x"]], table.y) > 0.7
    assert found.best_estimator_.coef_.shape[-1] == len(found.best_estimator_.get_feature_names_out())


def test_files_give_the_bits_of_the_table(tmp_path: Path) -> None:
    table = data(2000)
    table.to_parquet(tmp_path / "t.parquet")
    model = DPLogisticRegression(classes=["no", "yes"], schema=GOOD)
    coefficients = [
        DPModelSearch(model, {"alpha": [None, 0.1]}, **STATED).fit(source, "y").best_estimator_.coef_
        for source in (table, tmp_path / "t.parquet")
    ]
    assert np.array_equal(*coefficients)


def test_weights_need_a_bound_and_count_in_fit_and_score() -> None:
    table = people(2000)
    model = DPLogisticRegression(classes=["no", "yes"], schema=GOOD)
    with pytest.raises(InvalidParameter, match="weight_bound"):
        DPModelSearch(model, {"alpha": [None]}, **STATED).fit(table[["x"]], table.y, table.w)
    model.weight_bound = 1.0
    scores = [
        DPModelSearch(model, {"alpha": [None]}, **STATED).fit(table[["x"]], table.y, weight).best_score_
        for weight in (np.ones(2000), np.full(2000, 0.5), np.full(2000, 7.0))
    ]
    assert scores[1] == pytest.approx(scores[0] / 2, abs=0.05)
    assert scores[2] == pytest.approx(scores[0], abs=0.05)


def test_metadata_routing_passes_weights_to_a_search_and_to_its_fits() -> None:
    table = people(2000)
    model = DPLogisticRegression(classes=["no", "yes"], schema=GOOD, weight_bound=1.0)
    plain = DPModelSearch(model, {"alpha": [None]}, **STATED).fit(table[["x"]], table.y, table.w)
    with sklearn.config_context(enable_metadata_routing=True):
        withheld = DPModelSearch(
            clone(model).set_fit_request(sample_weight=False), {"alpha": [None]}, **STATED
        )
        with pytest.raises(InvalidParameter, match="keeps it from the fits"):
            withheld.fit(table[["x"]], table.y, table.w)
        with pytest.raises(UnsetMetadataPassedError):
            DPModelSearch(model, {"alpha": [None]}, **STATED).fit(table[["x"]], table.y, table.w)
        asking = DPModelSearch(clone(model).set_fit_request(sample_weight=True), {"alpha": [None]}, **STATED)
        pipeline = Pipeline([("search", asking.set_fit_request(sample_weight=True))])
        routed = pipeline.fit(table[["x"]], table.y, sample_weight=table.w)["search"]
        assert np.array_equal(routed.best_estimator_.coef_, plain.best_estimator_.coef_)
        asking.fit(table[["x"]], table.y)  # without weights nothing is routed


def test_a_search_learns_ranges_with_the_number_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fraction of rows below which a cell does not widen a range is one of all rows, as in a fit."""
    sizes: list[int] = []
    learn = model_search.learn_schema

    def note(schema: Any, specs: Any, records: Any, n: int, shared: Any) -> Any:
        sizes.append(n)
        return learn(schema, specs, records, n, shared)

    monkeypatch.setattr(model_search, "learn_schema", note)
    model = DPLogisticRegression(classes=["no", "yes"], schema=LEARNED)
    DPModelSearch(model, {"alpha": [None]}, **STATED, holdout=0.5).fit(data(2000)[["x"]], data(2000).y)
    by_person = clone(model).set_params(person="who", n_public=1500)
    DPModelSearch(by_person, {"alpha": [None]}, **STATED).fit(people(2000)[["x", "who"]], people(2000).y)
    assert sizes == [2000, 1500]


def test_a_search_refuses_to_learn_the_range_of_counts(tmp_path: Path) -> None:
    raw = Schema.learn(x="number", target={"name": "y", "range": "learn"})
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=5.0, delta=1e-5)
    counts = data(400).assign(y=np.arange(400) % 5)
    for model in (DPModelSearch(DPPoissonRegressor(schema=raw), {"alpha": [None]}, **STATED, ledger=budget),
                  DPPoissonRegressor(schema=raw, ledger=budget)):  # fmt: skip
        with pytest.raises(InvalidParameter, match="range of counts cannot be learned"):
            model.fit(counts, "y")
    assert not budget.history()


def test_an_interrupted_search_goes_on_with_the_same_release_and_one_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dplangevin.mechanisms.repeated_selection import mechanism

    table = data(1000)
    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("d", epsilon=5.0, delta=1e-5)
    model = DPLogisticRegression(classes=["no", "yes"], schema=GOOD, checkpoint=tmp_path / "state")
    options = {"epsilon": 4.0, "delta": 1e-6, "repetitions": 5, "ledger": budget}
    released: list[Any] = []
    digest = mechanism.SelectionRelease.digest

    def interrupt(self: Any) -> str:
        released.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(mechanism.SelectionRelease, "digest", interrupt)
    with pytest.warns(UserWarning, match="keep it secret"), pytest.raises(KeyboardInterrupt):
        DPModelSearch(model, {"alpha": [None, 0.1]}, **options).fit(table[["x"]], table.y)
    monkeypatch.setattr(mechanism.SelectionRelease, "digest", digest)
    found = DPModelSearch(model, {"alpha": [None, 0.1]}, **options).fit(table[["x"]], table.y)
    assert np.array_equal(found.best_estimator_.coef_, released[0].value.coef_)
    assert len(budget.history()) == 1
    assert not (tmp_path / "state").exists()


def test_a_search_of_real_noise_is_not_called_exact() -> None:
    table = data(1000)
    model = DPLogisticRegression(classes=["no", "yes"], schema=GOOD, secure=False)
    found = DPModelSearch(model, {"alpha": [None]}, **STATED).fit(table[["x"]], table.y)
    assert found.privacy_.arithmetic == "real"
    model.secure = True
    with pytest.raises(InvalidParameter, match="random_state"):
        DPModelSearch(model, {"alpha": [None]}, **STATED).fit(table[["x"]], table.y)


def test_every_fit_of_a_plain_search_warns() -> None:
    table, model = data(300), DPLogisticRegression(schema=GOOD, classes=["no", "yes"], random_state=0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        cross_val_score(model, table[["x"]], table.y, cv=2)
        GridSearchCV(model, {"alpha": [0.1, 1.0]}, cv=2).fit(table[["x"]], table.y)
    assert sum("k fits cost k releases" in str(one.message) for one in said) == 2 + 2 * 2 + 1
