"""Monotone columns: the released coefficients, projected. Post-processing: it costs no privacy."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from sklearn.isotonic import isotonic_regression

from dplangevin.errors import InvalidParameter
from dplangevin.estimators._blocks import ColumnBlock, blocks_of, table_of_knots
from dplangevin.estimators.schema_encoder import as_schema, schema_of
from dplangevin.schema import NumericColumn, Schema

Model = TypeVar("Model", bound=Any)


def monotone_columns(schema: Schema) -> list[NumericColumn]:
    """The columns that state a direction."""
    return [
        column
        for column in schema.columns
        if isinstance(column, NumericColumn) and column.monotone is not None
    ]


def check_monotone(model: Any, n_classes: int | None) -> None:
    """Refuse a direction where there are several scores, before anything is charged."""
    stated = monotone_columns(as_schema(schema_of(model)))
    if stated and n_classes not in (None, 2):
        raise InvalidParameter(
            f"column {stated[0].name!r} is monotone, which {n_classes} classes leave without a meaning; leave "
            "'monotone' out, or use two classes."
        )


def keep_monotone(model: Model) -> Model:
    """The model with each monotone column's values at its knots replaced by the nearest ones in its direction."""
    schema = as_schema(schema_of(model))
    if not monotone_columns(schema):
        return model
    weights = np.atleast_2d(model.coef_)
    check_monotone(model, None if len(weights) == 1 else len(weights))
    start = 0
    for block in blocks_of(schema):
        column, size = block.column, len(block.names())
        if block.other is None and isinstance(column, NumericColumn) and column.monotone is not None:
            _project(block, weights[0], start)
        start += size
    return model


def _project(block: ColumnBlock, weights: Any, start: int) -> None:
    """In place: isotonic values at the knots, their constant moved to the last coefficient (the constant's)."""
    column = block.column
    assert isinstance(column, NumericColumn)
    table = table_of_knots(column)
    part = slice(start, start + table.shape[1])
    values = table @ weights[part]
    nearest = np.asarray(isotonic_regression(values, increasing=column.monotone == "increasing"))
    if np.array_equal(nearest, values):
        return
    whole = np.column_stack([np.ones(len(table)), table])
    found = np.linalg.solve(whole, nearest)
    weights[-1] += found[0]
    weights[part] = found[1:]
    if block.missing == "own":  # a missing cell has no value at the knots: its score stays
        weights[part.stop] -= found[0]
