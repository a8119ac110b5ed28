"""SchemaEncoder: public statements in, bounded rows out, nothing learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline

from dplangevin.datasets import load_income
from dplangevin.errors import InvalidParameter
from dplangevin.estimators import DPLogisticRegression, DPRidge, SchemaEncoder
from dplangevin.schema import Schema

SCHEMA: dict[str, Any] = {
    "version": 1,
    "columns": {
        "age": {"range": [0, 100]},
        "gain": {"range": [0, 99], "transform": "log1p"},
        "job": {"categories": ["a", "b"], "other": "own"},
        "kind": {"categories": [1, 2]},
    },
    "target": {"name": "y", "range": [0, 10]},
    "missing": "own",
    "row_norm": 2.0,
}
TABLE = {
    "age": [50.0, -5.0, None, 1e9],
    "gain": [9.0, 0.0, 99.0, -3.0],
    "job": ["a", "b", None, "zzz"],
    "kind": [1, 2, 3, 1],
}


def test_rows_are_encoded_as_stated() -> None:
    names = list(SchemaEncoder(SCHEMA).get_feature_names_out())
    assert names == [
        "age",
        "age missing",
        "gain",
        "gain missing",
        "job=a",
        "job=b",
        "job=other",
        "kind=1",
        "kind=2",
        "constant",
    ]
    rows = SchemaEncoder(SCHEMA).fit().transform(pd.DataFrame(TABLE))
    # two numbers, two indicators and the constant: the largest norm before scaling is sqrt 5, and row_norm is 2
    np.testing.assert_allclose(rows[:, names.index("constant")], 2 / np.sqrt(5))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1).max(), 2.0)
    assert np.all(np.linalg.norm(rows, axis=1) <= 2.0)
    unscaled = rows * np.sqrt(5) / 2
    np.testing.assert_allclose(unscaled[:, 0], [0, -1, 0, 1])
    np.testing.assert_allclose(unscaled[:, 1], [0, 0, 1, 0])
    np.testing.assert_allclose(unscaled[:, 2], [0, -1, 1, -1], atol=1e-12)
    np.testing.assert_allclose(unscaled[:, 4:7], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    np.testing.assert_allclose(unscaled[:, 7:9], [[1, 0], [0, 1], [0, 0], [1, 0]])


def test_the_constant_is_the_same_whatever_is_missing_or_unlisted() -> None:
    empty = pd.DataFrame({name: [None, None] for name in TABLE}, dtype=object)
    constants = [SchemaEncoder(SCHEMA).transform(frame)[:, -1] for frame in (pd.DataFrame(TABLE), empty)]
    assert len(set(np.concatenate(constants))) == 1


def test_a_row_depends_on_itself_only_and_frames_agree() -> None:
    frame = pd.DataFrame(TABLE)
    whole = SchemaEncoder(SCHEMA).transform(frame)
    for i in range(4):
        np.testing.assert_array_equal(SchemaEncoder(SCHEMA).transform(frame.iloc[[i]])[0], whole[i])
    np.testing.assert_allclose(SchemaEncoder(Schema.from_dict(SCHEMA)).transform(pl.DataFrame(TABLE)), whole)


def test_wild_values_become_bounded_rows_without_a_word() -> None:
    wild = pd.DataFrame(
        {
            "age": ["x", None, "7"],
            "gain": [np.inf, -np.inf, np.nan],
            "job": [1, True, "a"],
            "kind": ["1", "q", None],
        }
    )
    rows = SchemaEncoder(SCHEMA).transform(wild)
    assert np.isfinite(rows).all()
    assert np.all(np.linalg.norm(rows, axis=1) <= 2.0)


def test_estimators_take_a_schema() -> None:
    table, schema = load_income(n=4000)
    model = DPLogisticRegression(epsilon=2.0, delta=1e-6, schema=schema, random_state=0).fit(
        table.drop(columns="income"), table.income
    )
    assert list(model.classes_) == ["<=50K", ">50K"]
    assert model.score(table.drop(columns="income"), table.income) > 0.75
    assert list(model.feature_names_in_) == list(schema.names)
    assert "public-labels" not in {each.kind for each in model.privacy_.conditions}
    encoded = make_pipeline(
        SchemaEncoder(schema), DPLogisticRegression(data_norm=1.0, fit_intercept=False, random_state=0)
    )
    assert encoded.fit(table, table.income).score(table, table.income) > 0.7
    frame = pd.DataFrame(TABLE)
    ridge = DPRidge(schema=SCHEMA, random_state=0).fit(frame, np.array([1.0, 2.0, 99.0, 4.0]))
    assert ridge.predict(frame).shape == (4,)


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="no column 'job'"):
        SchemaEncoder(SCHEMA).transform(pd.DataFrame({"age": [1], "gain": [1], "kind": [1]}))
    with pytest.raises(InvalidParameter, match="order of the schema's 4 columns"):
        SchemaEncoder(SCHEMA).transform(np.zeros((2, 2)))
    with pytest.raises(InvalidParameter, match="schema is missing"):
        SchemaEncoder().transform(pd.DataFrame(TABLE))
    with pytest.raises(InvalidParameter, match="both given"):
        DPRidge(schema=SCHEMA, data_norm=1.0).fit(pd.DataFrame(TABLE), np.zeros(4))
