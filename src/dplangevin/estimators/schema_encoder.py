"""SchemaEncoder: a table to rows of bounded norm, from public statements alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from dplangevin._arrays import Floats
from dplangevin.estimators._blocks import blocks_of, largest_norm
from dplangevin.schema import as_schema as as_schema
from dplangevin.tables import table_of


class SchemaEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a table by a public schema: nothing is learned from the data.

    Numbers are clipped to their range and mapped to [-1, 1]; categories become indicators (an unlisted one none, or
    one of its own); a missing number becomes 0, with an indicator of its own when the schema says "own"; a constant
    column is added, and each row is divided by its norm and multiplied by `row_norm`. Where a column has a basis it
    becomes the coordinates of a piecewise-linear function (see `dplangevin.schema.Basis`), and rows are divided by the
    largest norm that the schema allows. A row's encoding depends on that row only, so it has no privacy cost.

    Tables are pandas, polars or Arrow tables, or rows in the order of the schema's columns.

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
        table = table_of(X, schema.names)
        schema.validate(table.names)
        blocks = blocks_of(schema)
        ends = np.cumsum([len(block.names()) for block in blocks])
        rows: Floats = np.ones((len(table), int(ends[-1]) + 1))
        for block, end in zip(blocks, ends, strict=True):
            other = None if block.other is None else table.column(block.other.column.name)
            found = block.encoded(table.column(block.column.name), other)
            rows[:, end - found.shape[1] : end] = found
        norms = largest_norm(schema) if schema.additive else np.linalg.norm(rows, axis=1, keepdims=True)
        rows *= schema.row_norm * (1 - 1e-15) / norms
        return rows

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the encoded columns."""
        schema = as_schema(self.schema)
        names = [name for block in blocks_of(schema) for name in block.names()]
        return np.array([*names, "constant"], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        return tags


def schema_of(model: Any) -> Any:
    """What encodes the tables of a model: the schema that its fit worked out, or the one that was stated."""
    return getattr(model, "schema_", model.schema)
