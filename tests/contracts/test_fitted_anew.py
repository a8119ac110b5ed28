"""Attributes beside a guarantee are covered by it: none of an earlier fit, and no number of rows that is private."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from joblib import parallel_backend
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier, StackingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from dplangevin import DPLogisticRegression, DPModelSearch, DPRidge, Pipeline, Schema, make_pipeline
from dplangevin.errors import CalibrationFailed, InvalidParameter
from dplangevin.estimators import _base, call_context, model_file, model_search
from dplangevin.ledger import Ledger
from dplangevin.rashomon import RashomonSampler

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (400, 2))
Y = (X[:, 0] > 0).astype(int)
TABLE = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "who": np.arange(400), "y": Y})
LEARNED = Schema.learn(a="number", b="number", target={"name": "y", "classes": [0, 1]})
OTHERS: dict[str, Any] = {
    "person": ({"person": "who", "n_public": 400, "bad_rows": "zero"}, (TABLE, "y")),
    "learned norm": ({"data_norm": "learn"}, (X, Y)),
    "plain": ({}, (X, Y)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_earlier_fit_leaves_nothing_beside_a_later_guarantee(name: str) -> None:
    """Intervals of an earlier release would be shown, and saved, under a guarantee that does not cover them."""
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1], intervals=True, random_state=0).fit(X, Y)
    assert model.uncertainty_ is not None
    options, given = OTHERS[name]
    model.set_params(intervals=False, **options).fit(*given)
    fresh = DPLogisticRegression(**model.get_params()).fit(*given)
    assert vars(model).keys() == vars(fresh).keys()
    assert model_file.model_to_plain(model)["uncertainty"] is None
    np.testing.assert_array_equal(model.coef_, fresh.coef_)


def test_a_fit_that_fails_gives_back_what_was_paid_for() -> None:
    model = DPRidge(data_norm=2.0, target_bounds=(-1, 1), intervals=True, random_state=0).fit(X, X[:, 0])
    before = dict(vars(model))
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X[:, :1] * np.nan, X[:, 0])
    assert vars(model) == before


@pytest.mark.parametrize(("kind", "long"), [(np.float64, 1e308), (np.float32, 1e38)])
@pytest.mark.parametrize("bad_rows", ["zero", "refuse"])
def test_a_long_row_is_scaled_back_when_its_length_is_learned(kind: Any, long: float, bad_rows: str) -> None:
    """It is finite: neither an error, nor a warning, nor a zero row."""
    rows = (1e-3 * X).astype(kind)
    rows[7] = 1e30
    model = DPLogisticRegression(data_norm="learn", classes=[0, 1], bad_rows=bad_rows, random_state=0)
    expected = model.fit(rows, Y).coef_
    rows[7] = long
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(model.fit(rows, Y).coef_, expected, rtol=1e-5)


def test_a_divisor_that_is_the_number_of_rows_is_a_condition_under_add_remove(tmp_path: Path) -> None:
    """Removing a record would change the divisor, the plan and so everything."""
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1], adjacency="add-remove", random_state=0)
    (condition,) = model.set_params(bad_rows="zero").fit(X, Y).privacy_.conditions
    assert condition.kind == "public-row-count"
    assert model.set_params(n_public=400).fit(X, Y).privacy_.is_unconditional
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    strict = ledger.declare("people", epsilon=100.0, delta=1e-3, strict=True, adjacency="add-remove")
    model.set_params(n_public=None, random_state=None)
    sampler = RashomonSampler(
        clone(model), thresholds=0.05, n_models=2, epsilon=1.0, radius=1.0, ledger=strict
    )
    spenders = [
        lambda: model.set_params(ledger=strict).fit(X, Y),
        lambda: DPModelSearch(model.set_params(ledger=None), {"alpha": [0.1, 1.0]}, ledger=strict).fit(X, Y),
        lambda: sampler.fit(X, Y),
        lambda: clone(model).set_params(ledger=strict, data_norm="learn").fit(X, Y),
        lambda: clone(model).set_params(ledger=strict, data_norm=None, schema=LEARNED).fit(TABLE, "y"),
    ]
    for spend in spenders:
        with pytest.raises(InvalidParameter, match="state n_public="):
            spend()
    assert strict.history() == ()
    model.set_params(ledger=strict, n_public=400).fit(X, Y)
    assert len(strict.history()) == 1


def test_a_table_without_rows_is_refused_in_words_or_fitted_where_their_number_is_private(
    tmp_path: Path,
) -> None:
    """Where n is stated the number of rows is private: that none is left, of the persons' above all, raises nothing."""
    (tmp_path / "t.csv").write_text("a,b,y\n")
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1], bad_rows="zero", random_state=0)
    with pytest.raises(InvalidParameter, match="no rows"):
        model.fit(tmp_path / "t.csv", "y")
    model.set_params(adjacency="add-remove", n_public=400)
    empty = model.fit(X[:0], Y[:0]).coef_
    np.testing.assert_array_equal(model.fit(tmp_path / "t.csv", "y").coef_, empty)
    nobody = TABLE.assign(who=None)
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    strict = ledger.declare("people", epsilon=100.0, delta=1e-3, strict=True, adjacency="add-remove")
    assert np.isfinite(model.set_params(person="who", ledger=strict).fit(nobody, "y").coef_).all()


def test_a_guarantee_after_a_step_that_learned_is_conditional(tmp_path: Path) -> None:
    """A scaler's means are those of the private rows: whoever reads privacy_ is told, and a strict data set refuses."""
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    strict = ledger.declare("people", epsilon=100.0, delta=1e-3, strict=True)
    model = DPLogisticRegression(data_norm=2.0, classes=[0, 1], bad_rows="zero")
    tuned = DPModelSearch(model, {"alpha": [0.1, 1.0]})
    sampler = RashomonSampler(model, thresholds=0.05, n_models=2, epsilon=1.0, radius=1.0)
    for last in (model, tuned, sampler):
        pipeline = make_pipeline(StandardScaler(), last)
        with pytest.warns(UserWarning, match="standardscaler of the pipeline reading each row"):
            pipeline.fit(X, Y)
        assert pipeline[-1].privacy_.conditions[0].kind == "upstream-steps"
        with pytest.raises(
            InvalidParameter, match="strict, and the guarantee would be conditional on standardscaler"
        ):
            make_pipeline(StandardScaler(), last.set_params(ledger=strict)).fit(X, Y)
        last.set_params(ledger=None)
    assert strict.history() == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain = make_pipeline(FunctionTransformer(), model.set_params(ledger=strict)).fit(X, Y)
    assert plain[-1].privacy_.is_unconditional


class _Centred(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    def fit(self, X: Any, y: Any = None) -> Any:
        self._mean = X.mean(axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return X - self._mean


class _NoEstimator:
    def fit(self, X: Any, y: Any = None) -> Any:
        return self

    def transform(self, X: Any) -> Any:
        return X - X.mean(axis=0)


@pytest.mark.parametrize("step", [_Centred(), _NoEstimator()])
def test_a_step_that_keeps_what_it_learned_to_itself_counts(step: Any) -> None:
    with pytest.warns(UserWarning, match="of the pipeline reading each row"):
        Pipeline([("step", step), ("model", DPLogisticRegression(data_norm=2.0, classes=[0, 1]))]).fit(X, Y)


CALLERS: dict[str, Callable[[Any, Any], Any]] = {
    "target": lambda c, r: TransformedTargetRegressor(r, transformer=StandardScaler()).fit(X, X[:, 0]),
    "stacking": lambda c, r: StackingClassifier([("a", LogisticRegression())], final_estimator=c).fit(X, Y),
    "bagging": lambda c, r: BaggingClassifier(c, n_estimators=1).fit(X, Y),
    "threads": lambda c, r: OneVsRestClassifier(make_pipeline(FunctionTransformer(), c), n_jobs=2).fit(
        X, Y + X[:, 1] // 0.5
    ),
    "splits by label": lambda c, r: cross_val_score(c, X, Y, cv=2, error_score="raise"),
    "a search in it": lambda c, r: cross_val_score(
        DPModelSearch(c.set_params(ledger=None), {"alpha": [0.1, 1.0]}, ledger=r.ledger),
        X,
        Y,
        cv=2,
        error_score="raise",
        scoring=lambda *given: 0.0,
    ),
    "a clone of one's own": lambda c, r: clone(c).fit(X, Y),
}


@pytest.mark.parametrize("name", CALLERS)
def test_what_scikit_learn_made_of_several_records_is_a_condition(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets over their own deviation, predictions of a model of the same rows, rows drawn twice, splits by label."""
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    strict = ledger.declare("people", epsilon=100.0, delta=1e-3, strict=True)
    fit = CALLERS[name]
    conditions = []
    plain = call_context.fit_conditions

    def recorded(model: Any) -> Any:
        conditions.append(plain(model))
        return conditions[-1]

    monkeypatch.setattr(_base, "fit_conditions", recorded)
    monkeypatch.setattr(model_search, "fit_conditions", recorded)
    classifier = DPLogisticRegression(data_norm=2.0, classes=[0, 1], bad_rows="zero", weight_bound=1.0)
    ridge = DPRidge(data_norm=2.0, target_bounds=(-1, 1), bad_rows="zero")
    with parallel_backend("threading"), pytest.warns(UserWarning, match="k fits cost k releases"):
        fit(classifier, ridge)
    assert conditions
    assert all(found[0].kind == "outer-estimator" for found in conditions)
    with (
        parallel_backend("threading"),
        pytest.raises(
            InvalidParameter, match="strict, and the guarantee would be conditional on rows, labels"
        ),
    ):
        fit(classifier.set_params(ledger=strict), ridge.set_params(ledger=strict))
    assert strict.history() == ()


def test_a_clone_made_by_this_library_is_not_conditional() -> None:
    """A search and a sampler say how they were called themselves; how their estimator was made does not matter."""
    model = clone(DPLogisticRegression(data_norm=2.0, classes=[0, 1], bad_rows="zero", random_state=0))
    found = DPModelSearch(model, {"alpha": [0.1, 1.0]}, random_state=0).fit(X, Y)
    sampler = RashomonSampler(
        model, thresholds=0.05, n_models=2, epsilon=1.0, radius=1.0, random_state=0
    ).fit(X, Y)
    assert found.privacy_.is_unconditional
    assert {each.kind for each in sampler.privacy_.conditions} <= {"run-failure"}
    copied = pickle.loads(pickle.dumps(model))
    with pytest.warns(UserWarning, match="sklearn.clone"):
        assert copied.fit(X, Y).privacy_.conditions[0].kind == "outer-estimator"


def test_a_ledger_in_place_of_its_budget_and_too_many_rows_are_said_in_words(tmp_path: Path) -> None:
    ledger: Any = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    with pytest.raises(InvalidParameter, match="budget of one data set"):
        DPLogisticRegression(data_norm=2.0, classes=[0, 1], ledger=ledger).fit(X, Y)
    with pytest.raises(CalibrationFailed, match="leaves nothing of epsilon"):
        DPLogisticRegression(data_norm=2.0, classes=[0, 1], max_rows_per_person=10**9).fit(X, Y)
