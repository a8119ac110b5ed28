"""Linear spline bases: their coordinates, their exact norm bound, the file format, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import InvalidParameter, Schema, SchemaEncoder, check_schema
from dplangevin.estimators.schema_encoder import column_blocks, knot_design_matrix, max_row_norm
from dplangevin.schema.columns import knot_coordinates, max_squared_norm

PLAIN: dict[str, Any] = {
    "version": 1,
    "columns": {
        "age": {"range": [0, 100], "basis": {"n_knots": 6, "smooth": 0.5}, "monotone": "increasing"},
        "gain": {"range": [0, 9999], "transform": "log1p", "basis": {"knots": [10, 100]}},
        "hours": {"range": [0, 99], "basis": {"n_knots": 8}},
        "rate": {"range": [0, 1]},
        "job": {"categories": ["a", "b"], "other": "own"},
    },
    "products": [["hours", "job"], ["gain", "rate"]],
}


def test_files_keep_a_basis(tmp_path: Path) -> None:
    schema = Schema.from_dict(PLAIN)
    for name in ("schema.toml", "schema.json"):
        schema.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == schema
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.is_additive
    assert not Schema.from_dict({"columns": {"age": {"range": [0, 1]}}}).is_additive


def test_no_cell_exceeds_the_bound_and_some_cell_reaches_it() -> None:
    schema = Schema.from_dict(PLAIN)
    rng = np.random.default_rng(0)
    cells = [np.nan, None, -1e300, 1e300, np.inf, -np.inf, "?", 0, 100, *rng.uniform(-10, 120, 3000)]
    for block in column_blocks(schema):
        first = pd.DataFrame({name: pd.Series(cells, dtype=object) for name in schema.names})
        first["job"] = rng.choice(["a", "b", "c"], len(cells))
        alone = SchemaEncoder(schema).transform(first) * max_row_norm(schema)
        start = list(SchemaEncoder(schema).get_feature_names_out()).index(block.feature_names()[0])
        squared = (alone[:, start : start + len(block.feature_names())] ** 2).sum(axis=1)
        assert squared.max() <= block.max_squared_norm * (1 + 1e-9)
    table = knot_coordinates(tuple(np.linspace(-1, 1, 9)), 0.0)
    fine = np.linspace(0, 1, 11)[:, None]
    rows = np.concatenate([(1 - fine) * a + fine * b for a, b in pairwise(table)])
    assert (rows**2).sum(axis=1).max() == pytest.approx(max_squared_norm(table), rel=1e-9)


def test_rows_stay_within_their_norm_whatever_is_in_them() -> None:
    schema = Schema.from_dict(PLAIN)
    rng = np.random.default_rng(1)
    odd = pd.DataFrame({name: rng.uniform(-1e6, 1e6, 500) for name in schema.names}).astype(object)
    odd.iloc[::7] = None
    odd.iloc[::11] = "?"
    rows = SchemaEncoder(schema).transform(odd)
    assert np.isfinite(rows).all()
    assert np.linalg.norm(rows, axis=1).max() <= schema.row_norm


def test_a_row_is_encoded_alone() -> None:
    schema = Schema.from_dict(PLAIN)
    rng = np.random.default_rng(2)
    frame = pd.DataFrame({name: rng.uniform(0, 100, 40) for name in schema.names})
    frame["job"] = rng.choice(["a", "b", "c"], 40)
    whole = SchemaEncoder(schema).transform(frame)
    for place in (0, 17, 39):
        np.testing.assert_array_equal(
            SchemaEncoder(schema).transform(frame.iloc[place : place + 1])[0], whole[place]
        )


def test_the_ridge_is_the_stated_penalty() -> None:
    places, smooth = (-1.0, -0.2, 0.1, 0.4, 1.0), 0.7
    table = knot_coordinates(places, smooth)
    rng = np.random.default_rng(3)
    for _ in range(5):
        gamma = rng.standard_normal(3)
        values = table[:, 1:] @ gamma
        widths = np.diff(places) / np.mean(np.diff(places))
        slopes = np.diff(values) / widths
        assert gamma @ gamma == pytest.approx(values @ values + smooth * np.sum(np.diff(slopes) ** 2))
        assert abs(values.sum()) < 1e-12
        assert abs(values @ np.array(places)) < 1e-12


def test_piecewise_linear_functions_and_nothing_else() -> None:
    column = Schema.from_dict({"columns": {"x": {"range": [2, 10], "basis": {"n_knots": 5}}}}).columns[0]
    table = knot_design_matrix(column)  # type: ignore[arg-type]
    whole = np.column_stack([np.ones(5), table])
    assert np.linalg.matrix_rank(whole) == 5  # every set of values at the knots, once
    encoder = SchemaEncoder(
        {"columns": {"x": {"range": [2, 10], "basis": {"n_knots": 5}}}, "missing": "never"}
    )
    rows = encoder.transform(np.array([[2.0], [3.0], [4.0], [10.0], [99.0]]))
    np.testing.assert_allclose(rows[1], (rows[0] + rows[2]) / 2)
    np.testing.assert_array_equal(rows[3], rows[4])


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"range": [0, 1], "basis": {"knots": [0.5, 2]}}, "strictly between"),
        ({"range": [0, 1], "basis": {"knots": [0.0, 0.5]}}, "strictly between"),
        ({"range": [0, 1], "basis": {"knots": [0.5, 0.2]}}, "increasing"),
        ({"range": [0, 1], "basis": {"knots": ["a"]}}, "strictly between|increasing"),
        ({"range": [0, 1], "basis": {"n_knots": 1}}, "basis.n_knots"),
        ({"range": [0, 1], "basis": {"n_knots": 1000}}, "at most"),
        ({"range": [0, 1], "basis": {"n_knots": 3, "knots": [0.5]}}, "either"),
        ({"range": [0, 1], "basis": 8}, "table such as"),
        ({"range": [0, 1], "basis": {"n_knots": 4, "smooth": -1}}, "smooth"),
        ({"range": [0, 1], "monotone": "up"}, "monotone"),
        ({"categories": ["a", "b"], "basis": {"n_knots": 4}}, "categories have no order"),
        ({"categories": ["a", "b"], "monotone": "increasing"}, "categories have no order"),
    ],
)
def test_bad_statements_are_refused_in_one_sentence(column: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words) as error:
        Schema.from_dict({"columns": {"x": column}})
    assert str(error.value).count(". ") == 0


@pytest.mark.parametrize(
    ("products", "words"),
    [
        ("age", "list of pairs"), ([["a"]], "two different"), ([["a", "a"]], "two different"),
        ([["a", "z"]], "do not list"), ([["a", "b"], ["b", "a"]], "twice"), ([["a", "m"]], "monotone"),
    ],
)  # fmt: skip
def test_bad_products_are_refused(products: Any, words: str) -> None:
    columns = {name: {"range": [0, 1]} for name in "abm"}
    columns["m"]["monotone"] = "increasing"  # type: ignore[assignment]
    with pytest.raises(InvalidParameter, match=words):
        Schema.from_dict({"columns": columns, "products": products})


def test_checks_of_public_rows_see_what_is_clipped() -> None:
    column = {"range": [17, 60], "basis": {"knots": [30]}}
    found = check_schema({"columns": {"age": column}}, pd.DataFrame({"age": [20, 61, 50, 16]}))
    assert (found.columns[0].above, found.columns[0].below) == (0.25, 0.25)
