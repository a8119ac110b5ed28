"""SchemaEncoder: a table to rows of bounded norm, from public statements alone."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from dplangevin.errors import InvalidParameter
from dplangevin.schema import CategoricalColumn, NumericColumn, Schema

Floats = NDArray[np.float64]


class SchemaEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a pandas or polars DataFrame by a public schema: nothing is learned from the data.

    Numbers are clipped to their range and mapped to [-1, 1]; categories become indicators (an unlisted one none, or
    one of its own); a missing number becomes 0, with an indicator of its own when the schema says "own"; a constant
    column is added, and each row is divided by its norm and multiplied by `row_norm`. A row's encoding depends on that
    row only, so the encoder is free of privacy cost.

    Parameters
    ----------
    schema : a Schema, or the plain data of its file format.

    Examples
    --------
    >>> import pandas as pd
    >>> schema = {"version": 1, "columns": {"age": {"range": [0, 100]}, "job": {"categories": ["a", "b"]}}}
    >>> rows = SchemaEncoder(schema).transform(pd.DataFrame({"age": [100, 250], "job": ["b", "z"]}))
    >>> rows.round(3).tolist()
    [[0.577, 0.0, 0.0, 0.577, 0.577], [0.707, 0.0, 0.0, 0.0, 0.707]]
    """

    def __init__(self, schema: Any = None) -> None:
        self.schema = schema

    def fit(self, X: Any = None, y: Any = None) -> SchemaEncoder:
        """Nothing to learn; here for pipelines."""
        as_schema(self.schema)
        return self

    def transform(self, X: Any) -> Floats:
        """The encoded rows, of norm row_norm each."""
        schema = as_schema(self.schema)
        if not hasattr(X, "columns"):
            raise InvalidParameter(f"X must be a pandas or polars DataFrame, got {type(X).__name__}.")
        schema.validate(map(str, X.columns))
        blocks = [
            block for column in schema.columns for block in _encoded(column, X[column.name], schema.missing)
        ]
        rows = np.column_stack([*blocks, np.ones(len(X))])
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        encoded: Floats = rows * (schema.row_norm * (1 - 1e-15) / norms)
        return encoded

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the encoded columns."""
        schema = as_schema(self.schema)
        names: list[str] = []
        for column in schema.columns:
            if isinstance(column, CategoricalColumn):
                names += [f"{column.name}={text}" for text in column.categories]
                names += [f"{column.name}=other"] * (column.other == "own")
            else:
                names.append(column.name)
                names += [f"{column.name} missing"] * (schema.missing == "own")
        return np.array([*names, "constant"], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        return tags


def as_schema(given: Any) -> Schema:
    """A Schema from one, or from the plain data of its file format."""
    if given is None:
        raise InvalidParameter("schema is missing; state the columns with their ranges and categories.")
    if isinstance(given, str | os.PathLike):  # a file could change between fit and predict
        raise InvalidParameter(
            "schema is a path; read the file once: schema=dplangevin.schema.Schema.load(path)."
        )
    return given if isinstance(given, Schema) else Schema.from_dict(given)


def _encoded(column: NumericColumn | CategoricalColumn, values: Any, missing: str) -> list[Floats]:
    series = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    if isinstance(column, CategoricalColumn):
        texts = as_labels(column, series)
        hits = [(texts == text).astype(float) for text in column.texts]
        return [*hits, 1.0 - np.sum(hits, axis=0)] if column.other == "own" else hits
    numbers = _numbers(column.name, series)
    absent = np.isnan(numbers)
    low, high = column.low, column.high
    numbers = np.clip(np.where(absent, low, numbers), low, high)
    if column.transform == "log1p":
        numbers, low, high = np.log1p(numbers), np.log1p(low), np.log1p(high)
    scaled = np.where(absent, 0.0, 2 * (numbers - low) / (high - low) - 1)
    return [scaled, absent.astype(float)] if missing == "own" else [scaled]


def as_labels(column: CategoricalColumn, values: NDArray[Any]) -> NDArray[Any]:
    """Values in the text form of the column's categories."""
    if column.numeric:
        return np.array([repr(float(v)) for v in _numbers(column.name, values)])
    return np.array([str(v).lower() if isinstance(v, (bool, np.bool_)) else str(v) for v in values])


def _numbers(name: str, values: NDArray[Any]) -> Floats:
    """Floats; whatever is not a number is missing (a message about it would show a value)."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        return np.array([_number(value) for value in values])


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
