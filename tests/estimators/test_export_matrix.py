"""Every estimator on every kind of column: ONNX, SQL and the scorecard predict raw rows as the model does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    DPQuantileRegressor,
    DPRidge,
    InvalidParameter,
    save_model,
)
from dplangevin.cli.main import run_command_line
from dplangevin.estimators.scorecard import category_spellings
from dplangevin.schema import CategoricalColumn
from unit import _postgres

CLASSIFIERS = (DPLogisticRegression, DPLinearSVC, DPAdditiveClassifier)
REGRESSORS = (DPRidge, DPHuberRegressor, DPQuantileRegressor, DPPoissonRegressor, DPAdditiveRegressor)
EVERY = CLASSIFIERS + REGRESSORS
ADDITIVE = (DPAdditiveClassifier, DPAdditiveRegressor)
TOLERANCE = 1e-5
ROWS = 1000

NUMBERS = {"a": {"range": [-1, 1]}, "w": {"range": [0, 100], "transform": "log1p"}}
CATEGORIES = {
    "g": {"categories": ["u", "it's"]},
    "k": {"categories": [1, 2.5]},
    "b": {"categories": [False, True]},
}
CURVES = {
    "a": {"range": [-1, 1], "basis": {"n_knots": 5}},
    "w": {"range": [0, 100], "transform": "log1p", "basis": {"knots": [5, 20]}},
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "numeric": {"columns": NUMBERS, "missing": "never"},
    "categorical": {"columns": {**NUMBERS, **CATEGORIES}, "missing": "never"},
    "missing": {"columns": {**CURVES, **CATEGORIES}, "missing": "own"},
    "missing in the middle": {"columns": {**CURVES, **CATEGORIES}, "missing": "middle"},
    "unknown category": {
        "columns": {**NUMBERS, **{name: {**entry, "other": "own"} for name, entry in CATEGORIES.items()}}
    },
    "additive basis": {
        "columns": {**CURVES, **CATEGORIES},
        "products": [["a", "w"], ["w", "g"], ["g", "k"], ["k", "a"]],
    },
}


def draw_table(n: int, seed: int) -> pd.DataFrame:
    """Raw rows: cells out of range, infinite, missing, and of unlisted categories."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.uniform(-1.5, 1.5, n),
            "w": rng.exponential(30, n),
            "g": rng.choice(np.array(["u", "it's", "other", ""], dtype=object), n),
            "k": rng.choice([1.0, 2.5, 7.0], n),
            "b": rng.choice([0.0, 1.0], n),
        }
    )
    for name in ("a", "w", "k", "b"):
        frame.loc[rng.random(n) < 0.1, name] = np.nan
    frame.loc[0, "w"], frame.loc[1, "a"] = np.inf, -np.inf
    frame.loc[2, "w"] = -5.0
    return frame


def fit(cls: type, schema: dict[str, Any], n_classes: int = 2, **changes: Any) -> Any:
    X = draw_table(2000, 0)
    level = np.digitize(X.w.fillna(0), [15, 40])
    labels = np.array(["low", "mid", "high"])[level if n_classes == 3 else np.minimum(level, 1)]
    if cls in REGRESSORS:
        own: dict[str, Any] = {"target_bounds": (0, 5)}
        y: Any = level.astype(float)
    else:
        own, y = {"classes": ["low", "mid", "high"][:n_classes]}, labels
    return cls(**({"epsilon": 5.0, "schema": schema, "random_state": 0} | own | changes)).fit(X, y)


@cache
def fitted(cls: type, kind: str, n_classes: int) -> Any:
    return fit(cls, SCHEMAS[kind], n_classes)


CASES = {
    f"{cls.__name__}-{'multinomial' if n_classes == 3 else kind}": (cls, kind, n_classes)
    for cls in EVERY
    for kind, n_classes in [
        *((name, 2) for name in SCHEMAS),
        *([("additive basis", 3)] if cls in CLASSIFIERS else []),
    ]
}
every_case = pytest.mark.parametrize(("cls", "kind", "n_classes"), list(CASES.values()), ids=list(CASES))


def check_difference(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(
        np.asarray(found, float), wanted, atol=TOLERANCE, rtol=TOLERANCE if np.max(np.abs(wanted)) > 1 else 0
    )


@every_case
def test_onnx_predicts_raw_rows(cls: type, kind: str, n_classes: int) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    model, X = fitted(cls, kind, n_classes), draw_table(ROWS, 1)
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())
    feed = {
        part.name: X[[part.name]].to_numpy(object if part.name == "g" else float)
        for part in session.get_inputs()
    }
    answers = dict(zip([part.name for part in session.get_outputs()], session.run(None, feed), strict=True))
    check_answers(cls, model, X, answers)


def check_answers(cls: type, model: Any, X: pd.DataFrame, answers: Mapping[str, Any]) -> None:
    if cls in REGRESSORS:
        check_difference(answers["prediction"][:, 0], model.predict(X))
        return
    assert (answers["label"] == model.predict(X)).all()
    if hasattr(model, "predict_proba"):
        check_difference(answers["probabilities"], model.predict_proba(X))
    else:
        check_difference(answers["scores"], model.decision_function(X).reshape(ROWS, -1))


RUNNER = """
import pathlib, sys
import numpy, onnxruntime
folder = pathlib.Path(sys.argv[1])
raw = numpy.load(folder / "raw.npz", allow_pickle=True)
for file in sorted(folder.glob("*.onnx")):
    session = onnxruntime.InferenceSession(str(file))
    feed = {part.name: raw[part.name] for part in session.get_inputs()}
    names = [part.name for part in session.get_outputs()]
    numpy.savez(file.with_suffix(".npz"), **dict(zip(names, session.run(None, feed))))
assert not {"dplangevin", "sklearn", "pandas", "onnx"} & set(sys.modules)
"""


def test_onnx_files_predict_in_another_process_without_this_library(tmp_path: Path) -> None:
    """DPLANGEVIN_ONNX_PYTHON names the interpreter of an environment with onnxruntime and NumPy alone."""
    pytest.importorskip("onnx", reason="onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    X = draw_table(ROWS, 1)
    np.savez(
        tmp_path / "raw.npz",
        **{name: X[[name]].to_numpy(object if name == "g" else float) for name in X.columns},
    )
    for name, case in CASES.items():
        (tmp_path / f"{name}.onnx").write_bytes(fitted(*case).to_onnx().SerializeToString())
    interpreter = os.environ.get("DPLANGEVIN_ONNX_PYTHON", sys.executable)
    subprocess.run([interpreter, "-I", "-c", RUNNER, str(tmp_path)], check=True, timeout=300)
    for name, (cls, kind, n_classes) in CASES.items():
        with np.load(tmp_path / f"{name}.npz", allow_pickle=True) as answers:
            check_answers(cls, fitted(cls, kind, n_classes), X, answers)


@pytest.mark.parametrize("cls", [cls for cls in EVERY if cls not in ADDITIVE])
def test_onnx_without_a_schema(cls: type) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    rng = np.random.default_rng(0)
    X, level = rng.uniform(-1, 1, (ROWS, 3)), rng.integers(0, 3, ROWS)
    own = {"target_bounds": (0, 5)} if cls in REGRESSORS else {"classes": [0, 1, 2]}
    model: Any = cls(data_norm=2.0, random_state=0, **own).fit(X, level)  # type: ignore[call-arg]
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())
    for rows in (X, 1e4 * X):  # far away the predictions of counts are clipped to their range
        check_difference(session.run(None, {"X": rows})[0].ravel(), model.predict(rows))


def check_sql(model: Any, frame: pd.DataFrame, X: pd.DataFrame) -> None:
    if not hasattr(model, "classes_"):
        check_difference(frame["prediction"], model.predict(X))
        return
    assert (frame["prediction"].to_numpy() == model.predict(X)).all()
    if hasattr(model, "predict_proba"):
        names = [f"probability_{label}" for label in model.classes_]
        check_difference(frame[names], model.predict_proba(X))


@every_case
def test_duckdb_predicts_raw_rows(cls: type, kind: str, n_classes: int) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    model, X = fitted(cls, kind, n_classes), draw_table(ROWS, 1)
    connection = duckdb.connect()
    connection.register("raw rows", X)
    check_sql(model, connection.execute(model.to_sql("raw rows")).df(), X)


@pytest.fixture(scope="module")
def database() -> Iterator[Any]:
    """A PostgreSQL connection with the raw rows in a table."""
    with _postgres.server() as url:
        import psycopg

        X = draw_table(ROWS, 1)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE people (a FLOAT8, w FLOAT8, g TEXT, k NUMERIC(6, 3), b BOOLEAN, i SERIAL)"
            )
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO people VALUES (%s, %s, %s, %s, %s)",
                    [
                        (
                            row.a,
                            row.w,
                            row.g,
                            None if np.isnan(row.k) else row.k,
                            None if np.isnan(row.b) else bool(row.b),
                        )
                        for row in X.itertuples()
                    ],
                )
            yield connection


@pytest.mark.parametrize("cls", EVERY)
def test_postgresql_predicts_raw_rows(cls: type, database: Any) -> None:
    X = draw_table(ROWS, 1)
    for kind in ("missing", "additive basis"):
        for n_classes in (2, 3) if cls in CLASSIFIERS else (2,):
            model = fitted(cls, kind, n_classes)
            cursor = database.execute(model.to_sql("people", "postgresql") + "ORDER BY i")
            frame = pd.DataFrame(cursor.fetchall(), columns=[part.name for part in cursor.description])
            check_sql(model, frame, X)


def read_scorecard(card: dict[str, Any], row: dict[str, Any]) -> np.ndarray:
    """Return the scores of a row from the plain data alone, as a reader in another language would."""
    scores = np.array(card["constant"])
    for term in card["terms"]:
        values = np.array(term["values"])
        is_missing = False
        for factor in reversed(term["factors"]):
            weights, is_missing = read_factor(factor, row[factor["column"]])
            values = values @ weights
        scores = scores + values
        if "missing_score" in term and is_missing:
            scores = scores + term["missing_score"]
    return scores


def read_factor(factor: dict[str, Any], cell: Any) -> tuple[np.ndarray, bool]:
    if "knots" in factor:
        knots = np.array(factor["knots"])
        scale = np.log1p if factor["scale"] == "log1p" else np.asarray
        position, is_missing = scale(np.clip(cell, knots[0], knots[-1])), bool(np.isnan(cell))
        knots = scale(knots)
        if is_missing and factor["missing"] == "zero":
            return np.zeros(len(knots)), True
        position = (knots[0] + knots[-1]) / 2 if is_missing else position
        return np.array([np.interp(position, knots, unit) for unit in np.eye(len(knots))]), is_missing
    size = len(factor["categories"]) + (factor["unlisted"] == "own")
    is_missing = cell == "" or cell != cell
    text = cell if isinstance(cell, str) else f"{cell:g}"
    if is_missing:
        position = {"first": 0, "other": size - 1, "zero": -1}[factor["missing"]]
    elif text in factor["categories"]:
        position = factor["categories"].index(text)
    else:
        position = size - 1 if factor["unlisted"] == "own" else -1
    return (np.arange(size) == position).astype(float), is_missing


@pytest.mark.parametrize("kind", list(SCHEMAS))
def test_the_scorecard_says_everything(kind: str) -> None:
    model, X = fit(DPLogisticRegression, SCHEMAS[kind]), draw_table(200, 1)
    card = json.loads(json.dumps(model.to_scorecard(), allow_nan=False))
    scores = [read_scorecard(card, row)[0] for row in X.to_dict("records")]
    np.testing.assert_allclose(scores, model.decision_function(X), atol=1e-9)
    assert card["guarantee"]["epsilon"] == pytest.approx(5.0, rel=1e-6)
    assert card["link"] == {"kind": "logistic", "clip": model.slope_clip_}


def test_names_of_columns_cannot_break_an_export() -> None:
    """Columns named like outputs, with quotes and spaces; the query reads the columns themselves."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    names = ["label", "probabilities", "score", 'quo"te', "X", "it's; DROP TABLE x", "prediction"]
    X = pd.DataFrame(np.random.default_rng(0).uniform(-1, 1, (300, len(names))), columns=names)
    schema = {"columns": {name: {"range": [-1, 1]} for name in names}, "missing": "never"}
    model = DPLogisticRegression(schema=schema, classes=[0, 1], random_state=0).fit(X, X.label > 0)
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())
    answers = session.run(None, {name: X[[name]].to_numpy() for name in names})
    np.testing.assert_allclose(answers[1], model.predict_proba(X), atol=1e-12)
    connection = duckdb.connect()
    connection.register("t", X)
    frame = connection.execute(model.to_sql("t")).df()
    np.testing.assert_allclose(frame["probability_1"], model.predict_proba(X)[:, 1], atol=1e-12)


def test_spellings_are_read_as_their_category() -> None:
    column = CategoricalColumn(name="zip", categories=("02139", "2139", "2026-01-31", "1"), text=True)
    assert category_spellings(column) == [
        ["02139"],
        ["2139", "2139.0"],
        ["2026-01-31", "2026-01-31 00:00:00", "2026-01-31T00:00:00"],
        ["1", "1.0", "True", "true"],
    ]


def test_the_command_exports_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = fit(DPLogisticRegression, SCHEMAS["additive basis"])
    file = tmp_path / "model.json"
    save_model(model, file)
    assert (
        run_command_line(
            ["export", str(file), "--sql", "--table", "public.people", "--dialect", "postgresql"]
        )
        == 0
    )
    assert capsys.readouterr().out == model.to_sql("public.people", "postgresql")
    assert run_command_line(["export", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["terms"] == model.to_scorecard()["terms"]
    for flag, package in (("--onnx", "onnx"), ("--sklearn", "skops")):
        output = tmp_path / package
        assert run_command_line(["export", str(file), flag]) == 2
        assert "--output FILE" in capsys.readouterr().err
        pytest.importorskip(package, reason=f"{package} is not installed")
        assert run_command_line(["export", str(file), flag, "-o", str(output)]) == 0
        assert output.stat().st_size > 1000
    for wrong in (["--sql", "--json"], [], ["--sql", "--dialect", "oracle"], ["--json", "-o", str(file)]):
        assert run_command_line(["export", str(file), *wrong]) == 2


def test_an_absent_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InvalidParameter, match=r"pip install 'dplangevin\[exports\]'"):
        fit(DPRidge, SCHEMAS["numeric"]).to_onnx()
