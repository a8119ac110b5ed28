"""The public schema: file formats, checks, and errors that name the entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.errors import InvalidParameter
from dplangevin.schema import CategoricalColumn, NumericColumn, Schema
from dplangevin.tables import read_label

FULL: dict[str, Any] = {
    "version": 1,
    "columns": {
        "age": {"range": [17.0, 90.0]},
        "job": {"categories": ["a", "b"], "other": "own"},
        "gain": {"range": [0.0, 99999.0], "transform": "log1p"},
        "code": {"categories": [1, 2, 3]},
    },
    "target": {"name": "income", "classes": ["<=50K", ">50K"]},
    "missing": "middle",
    "row_norm": 2.0,
}


def test_plain_data_there_and_back() -> None:
    schema = Schema.from_dict(FULL)
    assert schema.to_dict() == FULL
    assert schema.column("gain") == NumericColumn(name="gain", low=0, high=99999, transform="log1p")
    assert schema.column("income") == CategoricalColumn(name="income", categories=("<=50K", ">50K"))
    assert schema.names == ("age", "job", "gain", "code")


@pytest.mark.parametrize("suffix", [".json", ".toml"])
def test_files_there_and_back(tmp_path: Path, suffix: str) -> None:
    schema = Schema.from_dict(FULL)
    schema.save(tmp_path / f"schema{suffix}")
    assert Schema.load(tmp_path / f"schema{suffix}") == schema


@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4, unique=True),
    words=st.lists(st.text(max_size=6).filter(read_label), min_size=1, max_size=4, unique_by=read_label),
    low=st.floats(-1e9, 1e9),
)
def test_odd_names_survive_both_formats(
    tmp_path_factory: Any, names: list[str], words: list[str], low: float
) -> None:
    columns = {name: {"categories": words} for name in names[1:]} | {names[0]: {"range": [low, low + 1]}}
    schema = Schema.from_dict({"columns": columns})
    folder = tmp_path_factory.mktemp("schema")
    for suffix in (".json", ".toml"):
        schema.save(folder / f"s{suffix}")
        assert Schema.load(folder / f"s{suffix}") == schema


def test_categories_are_compared_by_their_labels() -> None:
    assert CategoricalColumn(name="x", categories=(1, 2.0)).category_codes == {"1": 0, "2": 1}
    assert CategoricalColumn(name="x", categories=("1.0", "2")).category_codes == {"1": 0, "2": 1}
    assert CategoricalColumn(name="x", categories=(True, False)).category_codes == {"1": 0, "0": 1}
    kept = CategoricalColumn(name="x", categories=("02139", "2139"), text=True)
    assert kept.category_codes == {"02139": 0, "2139": 1}
    assert kept.to_dict() == {"categories": ["02139", "2139"], "as": "text"}


@pytest.mark.parametrize("values", [["1", "1.0"], [1, True], ["01", "1"], ["True", "true"], [0, -0.0]])
def test_categories_that_are_read_alike_are_refused(values: list[Any]) -> None:
    with pytest.raises(InvalidParameter, match="have the same label"):
        Schema.from_dict({"columns": {"x": {"categories": values}}})


@pytest.mark.parametrize("value", ["", "nan", "NaN"])
def test_categories_that_read_as_missing_are_refused(value: str) -> None:
    with pytest.raises(InvalidParameter, match="reads as a missing value"):
        Schema.from_dict({"columns": {"x": {"categories": ["a", value]}}})


def test_missing_may_be_stated_by_column(tmp_path: Path) -> None:
    plain = changed(missing="own", target={"name": "zip", "classes": ["01", "1"], "as": "text"})
    plain["columns"]["age"]["missing"] = "never"
    schema = Schema.from_dict(plain)
    assert schema.to_dict() == plain
    assert [schema.missing_rule(column) for column in schema.columns] == ["never", "own", "own", "own"]
    for suffix in (".json", ".toml"):
        schema.save(tmp_path / f"s{suffix}")
        assert Schema.load(tmp_path / f"s{suffix}") == schema


def test_a_table_must_have_the_columns() -> None:
    schema = Schema.from_dict(FULL)
    schema.validate(["age", "job", "gain", "code", "more"])
    with pytest.raises(InvalidParameter, match="schema mismatch: the table has no column 'gain', 'code'"):
        schema.validate(["age", "job"])
    with pytest.raises(InvalidParameter, match="no column 'height'"):
        schema.column("height")


def changed(**entries: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(FULL)), **entries}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (changed(version=2), "schema version must be 1, got 2"),
        (changed(columns={}), "columns must be a non-empty table"),
        (changed(colums={}), "unknown entries colums"),
        (changed(missing="drop"), "missing must be one of own, middle"),
        (changed(row_norm=0), "row_norm must be positive"),
        (changed(columns={"age": {"range": [90, 17]}}), "columns.age.range must be .* low < high"),
        (changed(columns={"age": {"range": [1]}}), "columns.age.range must be two numbers"),
        (changed(columns={"age": {"range": [0, "x"]}}), r"columns.age.range\[1\] must be a finite number"),
        (changed(columns={"age": {}}), "columns.age needs either 'range'"),
        (changed(columns={"age": {"range": [0, 1], "categories": ["a"]}}), "columns.age needs either"),
        (changed(columns={"age": {"range": [0, 1], "bins": 3}}), "columns.age needs either"),
        (changed(columns={"age": 3}), "columns.age must be a table"),
        (changed(columns={"g": {"range": [-2, 1], "transform": "log1p"}}), "needs a range above -1"),
        (changed(columns={"g": {"range": [0, 1], "transform": "sqrt"}}), "transform must be one of"),
        (changed(columns={"j": {"categories": []}}), "columns.j.categories must be a non-empty list"),
        (changed(columns={"j": {"categories": ["a", "a"]}}), "holds a value twice"),
        (
            changed(columns={"j": {"categories": [[1]]}}),
            "categories must be texts, finite numbers or booleans",
        ),
        (changed(columns={"j": {"categories": "ab"}}), "columns.j.categories must be a list"),
        (changed(columns={"j": {"categories": ["a"], "other": "drop"}}), "other must be one of ignore, own"),
        (changed(target={"name": "age", "range": [0, 1]}), "target 'age' is also listed"),
        (changed(target={"name": "y"}), "target needs 'classes' or 'range'"),
        (changed(target="y"), "target must be a table"),
        ([1], "a schema must be a table of settings"),
    ],
)
def test_bad_schemas(content: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Schema.from_dict(content)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="cannot be read"):
        Schema.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InvalidParameter, match="is not valid"):
        Schema.load(tmp_path / "bad.json")
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(InvalidParameter, match="is not valid"):
        Schema.load(tmp_path / "bad.toml")


def test_no_heavy_import() -> None:
    import subprocess
    import sys

    code = (
        "import sys, dplangevin.schema; print([m for m in ('pandas', 'numpy', 'duckdb') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
