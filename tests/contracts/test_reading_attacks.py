"""Attacks on the reading of records that once worked: one record re-encoded all others, or was quoted."""

from __future__ import annotations

import json
import logging
import sqlite3
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

from dplangevin import NoisyGradientSpec, Plan, run_plan
from dplangevin.cli.main import run_command_line as main
from dplangevin.data import ArrayDataset
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators import DPLogisticRegression, DPRidge, SchemaEncoder, model_file
from dplangevin.estimators.evaluation import private_score
from dplangevin.ledger import Ledger
from dplangevin.problem import DataBounds, Logistic, Problem
from dplangevin.queries import (
    Marginals,
    column,
    count_file,
    count_learned_groups,
    count_marginals,
    count_queries,
    summarize_table,
)
from dplangevin.schema import Schema
from dplangevin.tables import Dialect, TableFiles, as_table, read_number
from dplangevin.tables.cells import replace_decimal_comma

CODES = Schema.from_dict({"columns": {"x": {"categories": ["1", "2"]}}, "missing": "middle"})
MARKER = "SECRET-4711"


@pytest.mark.parametrize(
    "frame",
    [
        lambda cells: pd.DataFrame({"x": cells}),
        lambda cells: pd.DataFrame({"x": pd.array(cells, dtype="Int64")}),
        lambda cells: pl.DataFrame({"x": cells}),
        lambda cells: pa.table({"x": cells}),
    ],
)
def test_a_null_among_integers_changes_its_own_row(frame: Any, tmp_path: Path) -> None:
    cells = [1, 2] * 500
    first, second = frame(cells), frame([None, *cells[1:]])
    before, after = (SchemaEncoder(CODES).transform(table) for table in (first, second))
    assert (before != after).any(axis=1).sum() == 1
    cells_of_one = Marginals.from_schema(CODES)
    assert cells_of_one.count([as_table(first)]).tolist() == [500, 500]
    assert cells_of_one.count([as_table(second)]).tolist() == [499, 500]
    for i, table in enumerate((first, second)):
        plain = table if isinstance(table, pa.Table) else pa.table({"x": [*map(_item, table["x"])]})
        pq.write_table(plain, tmp_path / f"{i}.parquet", row_group_size=100)
    counts = [cells_of_one.count(TableFiles(tmp_path / f"{i}.parquet").batches(["x"])) for i in (0, 1)]
    assert np.abs(counts[0] - counts[1]).sum() == 1


def _item(value: Any) -> Any:
    return None if value is None or value is pd.NA or value != value else int(value)


def test_zip_codes_of_a_text_file_do_not_depend_on_an_odd_cell(tmp_path: Path) -> None:
    schema = Schema.from_dict({"columns": {"zip": {"categories": ["02139", "10001"], "as": "text"}}})
    lines = ["zip", *["02139", "10001"] * 50]
    rows = []
    for odd in ("02139", "?"):
        (tmp_path / "t.csv").write_text("\n".join([*lines, odd]) + "\n")
        rows.append(SchemaEncoder(schema).transform(TableFiles(tmp_path / "t.csv").read_table()))
    assert (rows[0][:-1] == rows[1][:-1]).all()
    assert (rows[0][:-1, :2] > 0).any(axis=1).all()  # and every code is found


@pytest.mark.parametrize("classes", [[0, 1], ["0", "1"], [0.0, 1.0], [False, True]])
@pytest.mark.parametrize("make", [list, np.array, pd.Series])
def test_one_odd_label_does_not_move_the_others(classes: Any, make: Any) -> None:
    encode = DPLogisticRegression(data_norm=1.0, classes=classes).target_encoder()
    labels = [0, 1] * 10
    np.testing.assert_array_equal(encode(make(labels)), labels)
    np.testing.assert_array_equal(encode(make([*labels, "?"]))[:-1], labels)
    np.testing.assert_array_equal(encode(make([*labels, None]))[:-1], labels)


def test_scores_do_not_depend_on_one_odd_label() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    labels = [int(value > 0) for value in X[:, 0]]
    model = DPLogisticRegression(epsilon=50.0, data_norm=2.0, classes=[0, 1], random_state=0).fit(X, labels)
    values = [
        private_score(model, X, given, epsilon=1e4, random_state=0).value
        for given in (labels, [*labels[:-1], "?"])
    ]
    assert abs(values[0] - values[1]) <= 1.01 / 400


def test_a_stray_quote_ends_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('x,y\n"1,2\n' + "1,2\n" * 2000)
    columns = {"x": {"categories": [1, 2]}, "y": {"categories": [1, 2]}}
    schema = Schema.from_dict({"columns": columns, "missing": "own"})
    counts = Marginals.from_schema(schema).count(TableFiles(path).batches(schema.names))
    assert counts.tolist() == [
        2000,
        0,
        0,
        0,
        2000,
        1,
    ]  # the first record is "1,2" and lacks a cell: only that
    found = count_file(path, schema=schema, queries=["x = 1"], epsilon=300, delta=1e-2, random_state=0)
    assert round(float(found.values[0])) == 2000


def test_complex_and_huge_cells_are_their_own_affair() -> None:
    cells = ["7", "?", "2.5", None, 1j, 10**400, 3]
    for frame in (pd.DataFrame({"v": cells}), pd.DataFrame({"v": [*cells[:-1], 4]})):
        for _ in range(3):
            np.testing.assert_array_equal(
                as_table(frame).column("v").numbers()[:6], [7, np.nan, 2.5, np.nan, np.nan, np.inf]
            )
    numbers = [1.0, 2.0, 1j]
    np.testing.assert_array_equal(as_table(pd.DataFrame({"v": numbers})).to_matrix()[:, 0], [1, 2, np.nan])


def test_lines_of_every_kind(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbfa,b,c\r\n1,2,3\r\n4,5\n6,7,8,9\n\n"x,y","a""b",z\n\xff,\xc3\xa9,"q\r\n7,"8"x,9'
    (tmp_path / "t.csv").write_bytes(content)
    table = TableFiles(tmp_path / "t.csv").read_table()
    rows = list(zip(*(table.column(name).texts() for name in table.names), strict=True))
    assert table.names == ("a", "b", "c")
    assert rows == [
        ("1", "2", "3"), ("4", "5", None), ("6", "7", "8"), (None, None, None), ("x,y", 'a"b', "z"), (None, "é", "q"),
        ("7", "8x", "9"),
    ]  # fmt: skip
    assert TableFiles(tmp_path / "t.csv").count_rows() == 7
    (tmp_path / "t.txt").write_text("a;b\n1;'2;3'\n")
    other = TableFiles(tmp_path / "t.txt", Dialect(delimiter=";", quote="'")).read_table()
    assert [other.column(name).texts()[0] for name in "ab"] == ["1", "2;3"]


COMMA_CELLS = [
    "3,14", "-,5e3", "+7,", " 2,50\t", "1,5E-3", "1.234,5", "1,2,3", "1.5", "12", "a,b", ",", "-,", "1,5x", "inf", "",
    "٣,٥", "1,5é", "True", "2026-01-31", "0,1" + "0" * 50,
]  # fmt: skip


def test_decimal_commas_are_read_one_cell_at_a_time(tmp_path: Path) -> None:
    dialect, path = Dialect(delimiter=";", decimal=","), tmp_path / "t.csv"
    path.write_text("x;y\n" + "".join(f'{cell};"{cell}"\n' for cell in COMMA_CELLS), encoding="utf-8")
    expected = np.array([read_number(replace_decimal_comma(cell)) for cell in COMMA_CELLS])
    assert np.isfinite(expected).sum() == 9
    files = TableFiles(path, dialect)
    for table in (files.read_table(), next(iter(files.batches(files.names)))):
        for name in files.names:
            cells = table.column(name)
            for part in (cells, cells.take(np.arange(len(cells)))):
                np.testing.assert_array_equal(part.numbers(), expected)
            assert cells.texts()[0] == "3.14"
            assert cells.texts(text=True)[0] == "3,14"  # a text keeps its characters
            indices, persons = cells.persons()
            assert persons[indices[0]] == "3,14"  # and so does who a row belongs to
            assert cells.slice(slice(3, 5)).numbers().tolist() == [2.5, 0.0015]
            np.testing.assert_array_equal(cells.codes({"3.14": 7})[:2], [7, -1])
    plain = TableFiles(path, Dialect(delimiter=";")).read_table().column("x").numbers()
    assert np.isnan(plain[:5]).all()
    for wrong in ("", ";", ",."):
        with pytest.raises(InvalidParameter, match="decimal must be"):
            Dialect(decimal=wrong)


def test_a_file_with_decimal_commas_gives_the_model_of_one_with_points(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"age": rng.uniform(18, 90, 400).round(3), "fee": rng.uniform(0, 5, 400).round(2)})
    columns = {"age": {"range": [18, 90]}}
    (tmp_path / "s.json").write_text(
        json.dumps({"columns": columns, "target": {"name": "fee", "range": [0, 5]}})
    )
    frame.to_csv(tmp_path / "points.csv", index=False)
    frame.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",")
    fit = ["fit", "--model", "ridge", "--schema", str(tmp_path / "s.json"), "--target", "fee"]
    for name, more in (("points", []), ("commas", ["--delimiter", ";", "--decimal", ","])):
        output = ["-o", str(tmp_path / f"{name}.json"), "--random-state", "0", "--epsilon", "1"]
        assert main([*fit, str(tmp_path / f"{name}.csv"), *more, *output]) == 0
    models = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("points", "commas")]
    assert models[0]["coefficients"] == models[1]["coefficients"]
    schema, counts = Schema.load(tmp_path / "s.json"), []
    for name, dialect in (("points", None), ("commas", Dialect(delimiter=";", decimal=","))):
        options = {"epsilon": 1, "delta": 1e-5, "random_state": 0, "dialect": dialect}
        path = tmp_path / f"{name}.csv"
        counts.append(count_file(path, schema=schema, queries=["age < 40.5"], **options).values[0])
    assert counts[0] == counts[1]
    assert main([*fit, str(tmp_path / "commas.csv"), "--decimal", ",", "-o", str(tmp_path / "x.json")]) == 2


@pytest.mark.parametrize("content", ["", "\n", "a,a\n1,2\n", "a,\n1,2\n"])
def test_faults_of_a_header_are_public(content: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InvalidParameter, match=r"names every column|two columns named"):
        TableFiles(tmp_path / "t.csv")


def test_classes_that_were_read_are_the_first_line_of_the_guarantee() -> None:
    X, y = np.linspace(-1, 1, 200)[:, None], [0, 1] * 100
    with pytest.warns(UserWarning, match="conditional on that set being public"):
        model = DPLogisticRegression(data_norm=1.0, random_state=0).fit(X, y)
    assert model.privacy_.conditions[0].kind == "public-labels"
    stated = DPLogisticRegression(data_norm=1.0, classes=[0, 1], random_state=0).fit(X, y)
    np.testing.assert_array_equal(stated.coef_, model.coef_)
    assert {each.kind for each in stated.privacy_.conditions} == {"record-errors"}


def test_a_strict_data_set_reads_no_classes_and_refuses_no_row(tmp_path: Path) -> None:
    X, y = np.linspace(-1, 1, 200)[:, None], [0, 1] * 100
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    strict = ledger.declare("strict", epsilon=100.0, delta=1e-3, strict=True)
    easy = ledger.declare("easy", epsilon=100.0, delta=1e-3)
    with pytest.raises(InvalidParameter, match="strict"):
        DPLogisticRegression(data_norm=1.0, ledger=strict).fit(X, y)
    assert strict.history() == ()
    with pytest.warns(UserWarning, match="conditional on that set being public"):
        DPLogisticRegression(data_norm=1.0, ledger=easy).fit(X, y)
    zeroed = X.copy()
    X[7], zeroed[7] = np.nan, 0.0
    model = DPLogisticRegression(data_norm=1.0, classes=[0, 1], ledger=strict, random_state=0).fit(X, y)
    assert model.privacy_.is_unconditional
    same = DPLogisticRegression(data_norm=1.0, classes=[0, 1], bad_rows="zero", random_state=0).fit(zeroed, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    with pytest.raises(InvalidParameter, match="strict: the errors of bad_rows='refuse' would reveal"):
        DPLogisticRegression(data_norm=1.0, classes=[0, 1], ledger=strict, bad_rows="refuse").fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        DPLogisticRegression(data_norm=1.0, classes=[0, 1], ledger=easy).fit(X, y)
    # the row was read, so the budget was charged before
    assert [len(budget.history()) for budget in (strict, easy)] == [1, 2]


def test_a_strict_data_set_pays_only_for_guarantees_about_every_data_set(tmp_path: Path) -> None:
    """Conditions, and errors that would tell of records, are refused before anything is charged or read."""
    X, y = np.linspace(-1, 1, 200)[:, None], [0, 1] * 100
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    strict = ledger.declare("strict", epsilon=100.0, delta=1e-3, strict=True)
    easy = ledger.declare("easy", epsilon=100.0, delta=1e-3)
    options = {"classes": [0, 1], "random_state": 0, "ledger": strict}
    foreign = LogisticRegression().fit(X, y)
    problem = Problem(
        loss=Logistic(),
        n=200,
        bounds=DataBounds(data_norm=1.0, classes=2),
        n_features=1,
        fit_intercept=False,
    )
    plan = Plan(problem=problem, spec=NoisyGradientSpec(step_size=1.0, noise_std=0.1, n_steps=3), delta=1e-6)
    with pytest.warns(UserWarning, match="conditional"):
        conditional = DPLogisticRegression(data_norm=1.0, random_state=0).fit(X, y).privacy_
    refused: dict[str, Callable[[], object]] = {
        "solver reaching": lambda: DPLogisticRegression(
            data_norm=1.0, mechanism="objective-perturbation", secure=False, **options
        ).fit(X, y),
        "labels": lambda: DPLogisticRegression(data_norm="learn", ledger=strict).fit(X, y),
        "model predicting for every record": lambda: private_score(foreign, X, y, epsilon=1.0, ledger=strict),
        "DataBounds": lambda: run_plan(plan, ArrayDataset(X, y, problem), 0, ledger=strict),
        "conditional on the set": lambda: strict.charge(conditional),
    }
    for words, spend in refused.items():
        with pytest.raises(InvalidParameter, match=words):
            spend()
    assert strict.history() == ()
    X[7] = np.nan
    learned = DPLogisticRegression(data_norm="learn", **options).fit(X, y)
    assert learned.privacy_.is_unconditional
    private_score(learned, X, y, epsilon=1.0, ledger=strict, random_state=0)
    assert len(strict.history()) == 2
    strict.enter_release(conditional, "a" * 64)  # what exists is entered, whatever it is
    easy.charge(conditional)


@pytest.mark.parametrize("bad", [np.nan, np.inf, "x", None, 1j])
def test_bad_rows_count_as_zero_rows(bad: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = X[:, 0].tolist()
    broken, zeroed = X.astype(object), X.copy()
    broken[5, 1], zeroed[5] = bad, 0.0
    model = DPRidge(data_norm=2.0, target_bounds=(-1, 1), bad_rows="zero", random_state=0)
    first = model.fit(broken, y).coef_
    np.testing.assert_array_equal(first, model.fit(zeroed, y).coef_)
    assert np.isfinite(model.predict(broken)).all()
    with pytest.raises(ValueError, match=r"NaN|Complex|infinity"):
        DPRidge(data_norm=2.0, target_bounds=(-1, 1)).fit(broken, y)


def test_weights_without_a_stated_bound_warn() -> None:
    X, y = np.linspace(-1, 1, 200)[:, None], np.linspace(-1, 1, 200)
    model = DPRidge(data_norm=1.0, target_bounds=(-1, 1), random_state=0)
    with pytest.warns(UserWarning, match="without weight_bound"):
        model.fit(X, y, sample_weight=np.ones(200))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*weight_bound")
        model.set_params(weight_bound=1.0).fit(X, y, sample_weight=np.ones(200))


def test_missing_never_has_no_indicator_and_no_cell() -> None:
    schema = Schema.from_dict(
        {"columns": {"x": {"range": [0, 2]}, "k": {"categories": ["a", "b"]}}, "missing": "never"}
    )
    table = pd.DataFrame({"x": [1.0, None], "k": ["a", None]})
    rows = SchemaEncoder(schema).transform(table)
    assert list(SchemaEncoder(schema).get_feature_names_out()) == ["x", "k=a", "k=b", "constant"]
    np.testing.assert_array_equal(rows[0], rows[1])
    cells = Marginals.from_schema(schema, bins=2)
    assert cells.count([as_table(table)]).tolist() == [0, 1, 1, 0]


def attempts(folder: Path) -> dict[str, Any]:
    """Everything a user may do with a table full of the marker."""
    rows = [[MARKER, MARKER]] * 40
    frame = pd.DataFrame(rows, columns=["a", "b"])
    schema = Schema.from_dict(
        {"columns": {"a": {"range": [0, 1]}}, "target": {"name": "b", "classes": ["no", "yes"]}}
    )
    schema.save(folder / "schema.json")
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    plain = {"data_norm": 1.0, "random_state": 0}
    model = DPLogisticRegression(schema=schema, random_state=0)
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    options = {**budget, "p": 2.0}
    # The marker is in all 40 rows: with this epsilon that is not common enough to be listed.
    small: dict[str, Any] = {"epsilon": 0.1, "delta": 1e-6}

    def file() -> Any:
        model_file.save_model(model.fit(frame, frame["b"]), folder / "model.json")
        return (folder / "model.json").read_text() + str(model.plan_) + repr(model.privacy_) + repr(model)

    def command(*words: str, epsilon: str = "1") -> Any:
        return main([*words, "--epsilon", epsilon, "--delta", "1e-6"])

    data = [str(folder / name) for name in ("t.csv", "t.parquet")]
    out = ["--output", str(folder / "out.json"), "--report", str(folder / "out.md")]
    stated = ["--schema", str(folder / "schema.json")]
    return {
        "lists": lambda: DPLogisticRegression(**plain, classes=[0, 1]).fit(rows, [MARKER] * 40),
        "arrays": lambda: DPRidge(**plain, target_bounds=(0, 1)).fit(np.array(rows), np.array([MARKER] * 40)),
        "frames": lambda: DPRidge(**plain, target_bounds=(0, 1)).fit(frame, frame["b"]),
        "arrow": lambda: DPRidge(**plain, target_bounds=(0, 1)).fit(pa.Table.from_pandas(frame), [0.5] * 40),
        "arrow by name": lambda: DPRidge(**plain, target_bounds=(0, 1)).fit(pa.Table.from_pandas(frame), "b"),
        "weights": lambda: DPRidge(**plain, target_bounds=(0, 1)).fit(
            np.ones((40, 1)), [0.5] * 40, [MARKER] * 40
        ),
        "files": lambda: DPLogisticRegression(**plain, classes=[0, 1]).fit(folder / "t.parquet", "b"),
        "model file": file,
        "predict": lambda: model.fit(frame, frame["b"]).predict(frame).tolist(),
        "score": lambda: private_score(model.fit(frame, frame["b"]), frame, frame["b"], epsilon=1.0),
        "summaries": lambda: repr(
            summarize_table(
                frame, {"columns": {"b": {"range": [0, 1]}}}, quantiles=(0.5,), **budget
            ).to_dict()
        ),
        "learned groups": lambda: repr(count_learned_groups(frame, "b", **small).to_dict()),
        "groups command": lambda: command("count", data[0], "--groups", "b", epsilon="0.1"),
        "marginals": lambda: repr(count_marginals(frame, schema, **options).to_dict()),
        "queries": lambda: repr(
            count_queries(frame, [column("a") > 1, column("b") == "no"], **options).to_dict()
        ),
        "table": lambda: repr(as_table(frame)) + repr(TableFiles(folder / "t.csv").read_table()),
        **{
            f"fit {place}": lambda p=place: command("fit", p, "--target", "b", *stated, *out)
            for place in data
        },
        **{
            f"fit numbers {place}": lambda p=place: command(
                "fit", p, "--target", "b", "--classes", "no,yes", "--data-norm", "1", *out
            )
            for place in data
        },
        "fit without classes": lambda: command("fit", data[0], "--target", "b", "--data-norm", "1", *out),
        "count": lambda: command("count", data[0], *stated, "--marginals", "1", "--where", "b = 'no'"),
    }


def test_a_marker_in_every_cell_is_never_shown(
    tmp_path: Path, capsys: Any, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    shown: dict[str, str] = {}
    for name, attempt in attempts(tmp_path).items():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                text = str(attempt())
            except (DplangevinError, ValueError, TypeError, SystemExit) as error:
                text = f"{error} {error.__cause__} {'' if error.__suppress_context__ else error.__context__}"
        streams = capsys.readouterr()
        shown[name] = text + streams.out + streams.err + " ".join(str(one.message) for one in told)
    for path in (tmp_path / "out.json", tmp_path / "out.md", tmp_path / "model.json"):
        if path.exists():
            shown[path.name] = path.read_text()
    assert not [name for name, text in {**shown, "log": caplog.text}.items() if MARKER in text]
    assert "model.json" in shown
    assert not [name for name, text in shown.items() if "unexpected keyword" in text]  # every attempt is made
    made = ("summaries", "learned groups", "groups command", "marginals")
    assert not {name: shown[name] for name in made if "1e-06" not in shown[name]}
    assert json.loads(shown["out.json"])["classes"] == ["no", "yes"]
    assert "--classes" in shown["fit without classes"]


def test_a_marker_in_every_cell_reaches_no_row_of_the_ledger(tmp_path: Path, monkeypatch: Any) -> None:
    """Every spender on a table full of the marker: what the books keep is public."""
    monkeypatch.chdir(tmp_path)
    url = f"sqlite:///{tmp_path}/l.db"
    budget = Ledger.create(url).declare("people", epsilon=1000.0, delta=1e-2)
    frame = pd.DataFrame([[MARKER, MARKER]] * 40, columns=["a", "b"])
    schema = Schema.from_dict(
        {"columns": {"a": {"range": [0, 1]}}, "target": {"name": "b", "classes": ["no", "yes"]}}
    )
    schema.save(tmp_path / "schema.json")
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"epsilon": 1.0, "delta": 1e-6, "p": 2.0, "ledger": budget}
    told = ["--epsilon", "1", "--delta", "1e-6", "--ledger", url, "--dataset", "people"]
    told += ["--schema", "schema.json"]
    model = DPLogisticRegression(schema=schema, random_state=0, ledger=budget).fit(frame, frame["b"])
    heads = [
        model.ledger_head_,
        private_score(model, frame, frame["b"], epsilon=1.0, ledger=budget).ledger_head,
        count_marginals(frame, schema, **options).ledger_head,
        count_queries(frame, [column("a") > 1, column("b") == "no"], **options).ledger_head,
    ]
    assert main(["fit", "t.csv", "--target", "b", "--output", "out.json", *told]) == 0
    assert main(["count", "t.csv", "--marginals", "1", "--where", "b = 'no'", *told]) == 0
    with pytest.raises(ValueError, match="not a number"):
        DPRidge(data_norm=1.0, target_bounds=(0, 1), ledger=budget).fit(frame, frame["b"])
    assert len(budget.history()) >= 6
    Ledger.open(url).verify(*heads)
    assert _books(url).count("INSERT INTO") >= 6
    assert MARKER not in _books(url) + repr(budget.history()) + json.dumps(Ledger.open(url).export())
    assert not [path for path in tmp_path.glob("l.db*") if MARKER.encode() in path.read_bytes()]
    budget.with_label(MARKER).charge(model.privacy_)
    assert MARKER in _books(url)  # it would have been seen


def _books(url: str) -> str:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as books:
        return "\n".join(books.iterdump())


def test_a_public_divisor_makes_one_plan_for_neighbours() -> None:
    """Under add-remove neighbours differ in their number of rows: the plan and the guarantee must not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2))
    models = []
    for rows in (400, 399, 350):
        model = DPRidge(
            data_norm=2.0, target_bounds=(-1, 1), adjacency="add-remove", n_public=400, random_state=0
        )
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            models.append(model.fit(X[:rows], X[:rows, 0]))
        assert not told
    assert len({str(model.plan_) for model in models}) == 1
    assert len({model.privacy_.assumptions for model in models}) == 1
    assert "the number of rows is public" not in models[0].privacy_.assumptions
