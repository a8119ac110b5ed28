"""From a raw table to a model: learned schemas and persons, one plan, one charge, in every home of records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dplangevin import DPLogisticRegression, DPPoissonRegressor, DPRidge, Ledger, private_score, report
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import SchemaEncoder, _raw_fit, model_file
from dplangevin.estimators._raw_table import (
    PersonCodes,
    select_dask_rows,
    select_file_rows,
    select_person_rows,
)
from dplangevin.schema import LearnableSchema, Schema, load_schema
from dplangevin.tables import as_table

CLASSES = ["no", "yes"]
RAW = Schema.learn(age="number", income="number", job="category", target={"name": "sick", "classes": CLASSES})


def table(n: int = 4000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age, income = rng.integers(18, 90, n), rng.lognormal(10, 1, n).round()
    job = rng.choice(["clerk", "nurse", "smith"], n)
    score = (age - 50) / 12 + (job == "nurse") * 2 - 1
    sick = np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "yes", "no")
    return pd.DataFrame({"age": age, "income": income, "job": job, "sick": sick})


def model(**options: Any) -> DPLogisticRegression:
    return DPLogisticRegression(
        **{"epsilon": 4.0, "delta": 1e-6, "schema": RAW, "random_state": 0, **options}
    )


def test_a_fit_learns_its_schema_and_keeps_its_guarantee() -> None:
    data = table()
    fitted = model().fit(data, "sick")
    assert fitted.privacy_.epsilon(1e-6) <= 4.0
    assert fitted.privacy_.adjacency == "replace-one"
    assert fitted.privacy_.epsilon(1e-6) > 3.9
    assert fitted.schema is RAW  # a parameter is never written
    learned = fitted.schema_
    assert isinstance(learned, Schema)
    assert learned.column("job").categories == ("clerk", "nurse", "smith")
    assert 8 <= learned.column("age").low <= 18
    assert 80 <= learned.column("age").high <= 128
    assert learned.column("income").transform == "identity" or learned.column("income").low >= 0
    assert fitted.coef_.shape[1] == len(SchemaEncoder(learned).get_feature_names_out())
    assert fitted.score(data, data.sick) > 0.7
    again = model(schema=learned).fit(data, "sick")  # reusable as a public one
    assert again.coef_.shape == fitted.coef_.shape


def test_the_plan_says_what_learning_costs(capsys: pytest.CaptureFixture[str]) -> None:
    model(verbose=True).fit(table(), "sick")
    said = capsys.readouterr().out
    assert "learning 2 ranges and 1 list takes 10% of mu^2" in said
    assert "with a stated schema it would get 4" in said


def test_a_model_file_holds_what_was_learned(tmp_path: Path) -> None:
    data, fitted = table(), model().fit(table(), "sick")
    model_file.save_model(fitted, tmp_path / "m.json")
    loaded = model_file.load_model(tmp_path / "m.json")
    assert loaded.schema == fitted.schema_
    assert np.array_equal(loaded.predict(data), fitted.predict(data))
    assert loaded.privacy_.epsilon(1e-6) == fitted.privacy_.epsilon(1e-6)


def test_reports_and_scores_of_what_was_learned(tmp_path: Path) -> None:
    """A report says nothing of the fit's own epsilon, which is less than what was spent."""
    data = table()
    fitted = model(mechanism="noisy-gd").fit(data, "sick")
    report.write_report(fitted, tmp_path / "r.json")
    said = json.loads((tmp_path / "r.json").read_text())
    assert said["guarantee"]["epsilon"] == pytest.approx(4.0, rel=1e-3)
    assert said["epsilon_against_steps"] == []
    assert said["lower_bound_epsilon"] is None
    plain = model(schema=fitted.schema_, mechanism="noisy-gd").fit(data, "sick")
    report.write_report(plain, tmp_path / "p.json")
    assert json.loads((tmp_path / "p.json").read_text())["epsilon_against_steps"]
    found = private_score(fitted, data, data.sick, epsilon=1.0, random_state=0)
    assert 0.7 < found.value < 0.95


def test_a_padded_fit_has_the_same_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a narrower plan of the same guarantee the fit runs on empty categories and drops their coefficients."""
    monkeypatch.setattr("dplangevin.estimators._raw_table.RawPlan.may_run", lambda self, fit_plan: False)
    fitted = model().fit(table(), "sick")
    assert fitted.coef_.shape[1] == len(SchemaEncoder(fitted.schema_).get_feature_names_out())
    assert fitted.plan_.plan.problem.n_features > 30
    assert fitted.score(table(), table().sick) > 0.7


def test_a_category_may_have_any_name() -> None:
    """Also one that looks like the filling of a padded list."""
    words = ["other", "(no category was common enough)", "\0000", "\0001", "\u00e9", "e\u0301", "x" * 10_000]
    data = table()
    data["job"] = np.random.default_rng(0).choice(words, len(data))
    for options in ({}, {"mechanism": "objective-perturbation", "delta": 1e-4}):
        fitted = model(epsilon=8.0, **options).fit(data, "sick")
        assert set(fitted.schema_.column("job").categories) == set(words)
        assert len(fitted.predict(data)) == len(data)


def test_coefficients_keep_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrow and padded fits with hardly any noise agree; a column named as the encoding's own is no trouble."""
    data = table(3000).rename(columns={"age": "constant"})
    raw = Schema.learn(
        constant="number", job="category", income="number", target={"name": "sick", "classes": CLASSES}
    )
    narrow = model(schema=raw, epsilon=1e4, alpha=1e-3).fit(data, "sick")
    stated = model(schema=narrow.schema_, epsilon=1e4, alpha=1e-3).fit(data, "sick")
    monkeypatch.setattr("dplangevin.estimators._raw_table.RawPlan.may_run", lambda self, fit_plan: False)
    padded = model(schema=raw, epsilon=1e4, alpha=1e-3).fit(data, "sick")
    assert narrow.schema_ == padded.schema_
    assert np.abs(narrow.coef_ - stated.coef_).max() < 0.05
    assert np.abs(narrow.coef_ - padded.coef_).max() < 0.05


def test_every_home_gives_the_same_release(tmp_path: Path) -> None:
    data = table()
    data.loc[5, "job"] = "a rare label that nobody else has"
    data.to_csv(tmp_path / "t.csv", index=False)
    data.to_parquet(tmp_path / "t.parquet")
    rows = [list(row) for row in data[["age", "income", "job"]].itertuples(index=False)]
    whole = model().fit(data, "sick")
    for X, y in ((tmp_path / "t.csv", "sick"), (str(tmp_path / "t.parquet"), "sick"), (rows, data.sick),
                 (data[["age", "income", "job"]], data.sick.to_numpy())):  # fmt: skip
        found = model().fit(X, y)
        assert found.schema_ == whole.schema_
        assert np.allclose(found.coef_, whole.coef_, rtol=1e-9, atol=1e-12)


def test_regression_targets_are_learned_too() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, 5000)
    data = pd.DataFrame({"x": x, "y": 1000 + 50 * x + rng.standard_normal(5000)})
    raw = Schema.learn(x="number", target={"name": "y", "range": "learn"})
    fitted = DPRidge(epsilon=4.0, delta=1e-6, schema=raw, random_state=0).fit(data, "y")
    assert 900 <= fitted.schema_.target.low <= 1024
    assert 1480 <= fitted.schema_.target.high <= 2048
    assert fitted.score(data, data.y) > 0.8
    pure = DPRidge(epsilon=8.0, delta=0, schema=raw, random_state=0).fit(data[["x"]], data.y)
    assert pure.privacy_.epsilon(0.0) <= 8.0
    assert pure.privacy_.kind == "pure"


@pytest.mark.parametrize(
    "cells", [[None] * 900, [7.5] * 900, [1e308] * 900, ["?"] * 900, [float("inf")] * 900]
)
def test_columns_without_information_are_no_errors(cells: list[Any]) -> None:
    data = pd.DataFrame({"a": cells, "b": cells, "sick": ["no", "yes", "yes"] * 300})
    fitted = model(schema=Schema.learn(a="number", b="category"), classes=CLASSES).fit(data, "sick")
    assert fitted.predict(data).tolist() == ["yes"] * 900


def test_one_charge_and_a_crash_between_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}")
    budget = ledger.declare("d", epsilon=10.0, delta=1e-5)
    state, data = tmp_path / "fit.state", table()
    whole = model(checkpoint=tmp_path / "other.state").fit(data, "sick")

    def crash(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_raw_fit, "run_plan", crash)
        with pytest.raises(KeyboardInterrupt):
            model(checkpoint=state, ledger=budget).fit(data, "sick")
    assert state.exists()
    assert len(budget.history()) == 1
    changed = data.copy()
    changed.loc[0, "job"] = "smith" if changed.loc[0, "job"] == "clerk" else "clerk"
    with pytest.raises(InvalidParameter, match="other records"):
        model(checkpoint=state, ledger=budget).fit(changed, "sick")
    fitted = model(checkpoint=state, ledger=budget).fit(data, "sick")
    assert len(budget.history()) == 1
    assert not state.exists()
    assert fitted.schema_ == whole.schema_
    assert np.array_equal(fitted.coef_, whole.coef_)
    assert fitted.ledger_head_ is not None


def test_schema_learn_alone_prints_the_call() -> None:
    with pytest.raises(InvalidParameter, match=r'Schema.learn\(\{"age": "number" or "category", "income"'):
        model(schema="learn", classes=CLASSES).fit(table(), "sick")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Schema.learn(), "kinds"),
        (lambda: Schema.learn(a="int"), "'number', 'category', 'hash' or"),
        (lambda: Schema.learn(a="number", target={"name": "y", "classes": "learn"}), "cannot be learned"),
        (lambda: Schema.learn(a="number", target={"name": "a", "classes": CLASSES}), "list it once"),
        (lambda: Schema.learn(a={"range": "learn", "unit": -1}), "unit"),
        (lambda: Schema.learn(a={"range": "learn", "colour": 1}), "colour"),
        (lambda: Schema.learn(a={"categories": "learn", "most": 0}), "most"),
        (lambda: Schema.learn(a={"range": "learn", "basis": {"knots": [0.5]}}), "knots need a stated range"),
        (lambda: LearnableSchema.from_dict({**RAW.to_dict(), "version": 9}), "version"),
        (lambda: Schema.learn(a={"range": [0, 1]}), "no column to be learned"),
        (lambda: Schema.from_dict(RAW.to_dict()), "only the fit"),
        (lambda: SchemaEncoder(RAW).transform(table()), "only the fit"),
        (lambda: model(delta=0).fit(table(), "sick"), "under pure epsilon-DP"),
        (lambda: model(secure=True, random_state=1).fit(table(), "sick"), "random_state"),
        (lambda: model(intervals=True).fit(table(), "sick"), "intervals"),
        (lambda: model(public_data=(table(), table().sick)).fit(table(), "sick"), "public_data"),
        (lambda: model(data_norm=1.0).fit(table(), "sick"), "data_norm"),
        (lambda: model(schema=Schema.learn(age="number")).fit(table(), "sick"), "labels"),
        (lambda: model(schema=Schema.learn(height="number"), classes=CLASSES).fit(table(), "sick"), "height"),
        (lambda: model().fit(table(), "ill"), "no column 'ill'"),
        (lambda: model().fit(table(), table().sick[:-1]), "inconsistent"),
        (lambda: model(n_public=17).fit(table(), "sick"), "n"),
        (lambda: model(person="who").fit(table(), "sick"), "needs n_public="),
        (lambda: model(person="who", n_public=4000).fit(table(), "sick"), "no column 'who'"),
        (lambda: model(person="job", n_public=4000).fit(table(), "sick"), "cannot be a feature"),
        (lambda: model(person="age", n_public=40, schema=None, data_norm=1.0, classes=CLASSES).fit(table(), "sick"),
         "bad_rows"),
        (lambda: model(person=3, n_public=4000).fit(table(), "sick"), "name of a column"),
        (lambda: model(schema=None, person="a", n_public=9, data_norm=1.0, classes=CLASSES).fit(
            np.ones((9, 2)), [0] * 9),
         "column names"),
        (lambda: DPPoissonRegressor(schema=Schema.learn(a="number", target={"name": "y", "range": "learn"})).fit(
            pd.DataFrame({"a": [1], "y": [1]}), "y"), "Poisson"),
    ],
)  # fmt: skip
def test_what_is_publicly_wrong_is_said_before_anything_is_charged(make: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        make()


def test_schema_files_may_leave_something_to_be_learned(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps(RAW.to_dict()))
    found = load_schema(path)
    assert isinstance(found, LearnableSchema)
    assert found == RAW
    toml = tmp_path / "s.toml"
    toml.write_text('[columns.age]\nrange = "learn"\nunit = 10\n[columns.sex]\ncategories = ["f", "m"]\n')
    assert load_schema(toml).numbers[0].unit == 10  # type: ignore[union-attr]
    toml.write_text('[columns.sex]\ncategories = ["f", "m"]\n')
    assert isinstance(load_schema(toml), Schema)
    as_dict = model(schema=RAW.to_dict()).fit(table(), "sick")
    assert as_dict.schema_ == model().fit(table(), "sick").schema_


# ------------------------------------------------------------------------------------------------ persons


def people(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    data = table(n, seed)
    data["who"] = np.random.default_rng(seed + 1).integers(0, n // 3, n).astype(object)
    data.loc[:9, "who"] = None
    return data


def test_at_most_m_rows_of_a_person_uniformly() -> None:
    """4000 draws of 2 out of 5: each row's share is 0.4 within 5 deviations (false alarm below 1e-5)."""
    rng, codes = np.random.default_rng(0), np.array([0, 1, 0, -1, 0, 0, 2, 0, -1, 1])
    masks = np.array([select_person_rows(codes, 2, rng) for _ in range(4000)])
    assert (masks[:, codes == 0].sum(axis=1) == 2).all()
    assert masks[:, codes == 1].all()
    assert masks[:, codes == 2].all()
    assert not masks[:, codes == -1].any()
    assert np.abs(masks[:, codes == 0].mean(axis=0) - 0.4).max() < 5 * np.sqrt(0.24 / 4000)


def test_nobodys_rows_depend_on_who_else_is_there() -> None:
    """The law of one person's rows is the same when another joins: 4000 draws, each within 5 deviations."""
    rng = np.random.default_rng(0)
    alone = np.mean([select_person_rows(np.array([0, 0, 0]), 1, rng) for _ in range(4000)], axis=0)
    joined = np.mean(
        [select_person_rows(np.array([1, 0, 1, 0, 1, 0, 1]), 1, rng)[[1, 3, 5]] for _ in range(4000)], axis=0
    )
    assert np.abs(alone - joined).max() < 5 * np.sqrt(2 * 0.23 / 4000)


def test_persons_are_told_apart_by_their_labels(tmp_path: Path) -> None:
    data = pd.DataFrame({"who": [1, 1.0, "1", "x", None, "x", float("nan"), ""]}, dtype=object)
    codes = PersonCodes().codes_of(as_table(data).column("who"))
    assert codes.tolist() == [0, 0, 0, 1, -1, 1, -1, -1]
    assert PersonCodes().codes_of(as_table(pd.DataFrame({"who": ["01", "1"]})).column("who")).tolist() == [
        0,
        1,
    ]
    data.to_csv(tmp_path / "w.csv", index=False)
    mask = select_file_rows(tmp_path / "w.csv", "who", 1, np.random.default_rng(0))
    assert mask[:3].sum() == 1
    assert mask[[3, 5]].sum() == 1
    assert mask.sum() == 2


@pytest.mark.parametrize(
    "ids",
    [
        ["1234e567", "9876e999", "12e99", "12.1", "12.10", "True story", "inf."],  # no two are one person
        [7, 8, 2**53 - 1],
        [2**53, 2**53 + 1, 2**62, -(2**60)],  # rounded by a double: nobody's
    ],
)
def test_no_two_persons_are_one_in_any_container(ids: list[Any], tmp_path: Path) -> None:
    """Nor does one more row, which makes the container another type, change who a row's person is."""
    nobody = all(isinstance(who, int) and abs(who) >= 2**53 for who in ids)
    frames = [pd.DataFrame({"who": ids}), pd.DataFrame({"who": pd.Series(ids, dtype=object)})]
    frames += [pd.DataFrame({"who": [*ids, None]}), pd.DataFrame({"who": [*ids, "x"]})]
    frames += [pd.DataFrame({"who": pd.Series(list(map(str, ids)), dtype="category")})]
    tables = [*frames, pa.table({"who": list(map(str, ids))})]
    for given in tables:
        codes = PersonCodes().codes_of(as_table(given).column("who"))[: len(ids)]
        assert (codes == -1).all() if nobody else len(set(codes[codes >= 0])) == len(ids)
    pd.DataFrame({"who": [*ids, *ids], "x": 1}).to_csv(tmp_path / "w.csv", index=False)
    mask = select_file_rows(tmp_path / "w.csv", "who", 1, np.random.default_rng(0))
    assert mask.sum() == (0 if nobody else len(ids))


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_fit_for_persons(adjacency: str, tmp_path: Path) -> None:
    data = people()
    data.to_parquet(tmp_path / "p.parquet")
    options = {
        "person": "who",
        "max_rows_per_person": 2,
        "n_public": 2000,
        "adjacency": adjacency,
        "epsilon": 8.0,
    }
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}")
    budget = ledger.declare("d", epsilon=9.0, delta=1e-5, adjacency=adjacency, max_rows_per_person=2)  # type: ignore[arg-type]
    fitted = model(**options, ledger=budget).fit(data, "sick")
    guarantee = fitted.privacy_
    assert guarantee.rows_per_person == 2
    assert guarantee.adjacency == adjacency
    assert guarantee.epsilon(1e-6) <= 8.0
    assert not any("number of rows is public" in words for words in guarantee.assumptions)
    assert any("at most 2 of them are used" in words for words in guarantee.assumptions)
    assert len(budget.history()) == 1
    assert "who" not in fitted.schema_.names
    assert fitted.score(data, data.sick) > 0.6
    from_file = model(**options).fit(tmp_path / "p.parquet", "sick")
    assert from_file.schema_ == fitted.schema_
    assert np.allclose(from_file.coef_, fitted.coef_, rtol=1e-9)
    stated = model(**{**options, "schema": fitted.schema_}).fit(data, "sick")
    assert stated.privacy_.rows_per_person == 2
    assert not hasattr(stated, "schema_")
    plain = model(**{**options, "schema": None}, data_norm=100.0, bad_rows="zero", classes=CLASSES)
    assert plain.fit(data[["age", "who", "sick"]], "sick").coef_.shape == (1, 1)


def test_a_person_with_every_row_or_none_is_no_error() -> None:
    data = people(400)
    for who in ("the one", None):
        fitted = model(person="who", n_public=300, epsilon=8.0).fit(data.assign(who=who), "sick")
        assert np.isfinite(fitted.coef_).all()


def test_only_full_batches_go_with_persons() -> None:
    with pytest.raises(InvalidParameter, match="full batches"):
        model(person="who", n_public=3000, mechanism="noisy-sgd").fit(people(), "sick")


def test_a_cluster_gives_the_same_release() -> None:
    distributed = pytest.importorskip("distributed", reason="dask is not installed")
    dd = pytest.importorskip("dask.dataframe")
    data = people(1500)
    options = {"person": "who", "max_rows_per_person": 2, "n_public": 1000, "epsilon": 8.0}
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None):
        frame = dd.from_pandas(data, npartitions=3)
        whole, parts = (
            model().fit(data.drop(columns="who"), "sick"),
            model().fit(frame.drop(columns="who"), "sick"),
        )
        assert parts.schema_ == whole.schema_
        assert np.allclose(parts.coef_, whole.coef_, rtol=1e-9)
        fitted = model(**options).fit(frame, "sick")
        assert fitted.privacy_.rows_per_person == 2
        rng = np.random.default_rng(0)
        kept = select_dask_rows(frame, "who", 2, rng).compute()
        assert kept.who.notna().all()
        assert kept.who.value_counts().max() == 2
        assert len(kept) == np.minimum(data.who.value_counts(), 2).sum()
        with pytest.raises(InvalidParameter, match="there is no column 'nobody'"):
            select_dask_rows(frame, "nobody", 2, rng)


# ------------------------------------------------------------------------------------------------ norms of arrays


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e5])
def test_the_norm_of_rows_is_learned(scale: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3))
    y = (X[:, 0] > 0).astype(int)
    options = {"epsilon": 2.0, "delta": 1e-6, "data_norm": "learn", "classes": [0, 1], "random_state": 0}
    budget = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare("d", epsilon=3.0, delta=1e-5)
    fitted = DPLogisticRegression(**options, ledger=budget).fit(scale * X, y)
    assert 2 * scale < fitted.data_norm_ < 8 * scale
    assert fitted.score(scale * X, y) > 0.9
    assert fitted.privacy_.epsilon() <= 2.0
    assert len(budget.history()) == 1
    assert fitted.data_norm == "learn"
    model_file.save_model(fitted, tmp_path / "m.json")
    assert np.array_equal(
        model_file.load_model(tmp_path / "m.json").predict(scale * X), fitted.predict(scale * X)
    )


@pytest.mark.parametrize("rows", [np.zeros((300, 2)), np.full((300, 2), 1e308), np.full((300, 2), np.nan)])
def test_rows_without_a_usable_norm_are_no_errors(rows: np.ndarray) -> None:
    y = np.tile([0, 1, 1], 100)
    fitted = DPLogisticRegression(
        epsilon=2.0, delta=0, data_norm="learn", classes=[0, 1], bad_rows="zero", random_state=0
    ).fit(rows, y)
    assert np.isfinite(fitted.coef_).all()
    assert fitted.privacy_.epsilon(0.0) <= 2.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schema": RAW}, "schema"),
        ({"alpha": 1.0}, "alpha"),
        ({"radius": 1.0}, "radius"),
        ({"person": "a"}, "person"),
    ],
)
def test_what_a_learned_norm_does_not_go_with(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        DPLogisticRegression(data_norm="learn", classes=[0, 1], **options).fit(np.ones((9, 2)), [0, 1, 0] * 3)
