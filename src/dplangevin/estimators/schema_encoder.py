"""Encoding of a table by a public schema into rows of bounded norm, and projection of monotone columns.

Each column (or product of two) becomes a block of numbers with an exact bound on its norm. The projection of released
coefficients of monotone columns is post-processing and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.isotonic import isotonic_regression
from sklearn.utils import Tags

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._documentation import DocumentationLinkMixin
from dplangevin.schema import CategoricalColumn, Feature, NumericColumn, Schema, as_schema as as_schema
from dplangevin.schema.columns import SplineBasis, knot_coordinates, max_squared_norm
from dplangevin.tables import MISSING, CellColumn, as_table

MAX_PRODUCT_KNOTS = 4
"""A column with more knots enters products with only this many."""


@dataclass(frozen=True, kw_only=True)
class ColumnBlock:
    """Block of encoded numbers of one feature of the schema, or of a product of two.

    Parameters
    ----------
    feature : that is encoded.
    missing : rule for its missing cells.
    other : block of the second column of a product, or None.
    """

    feature: Feature
    missing: str
    other: ColumnBlock | None = None

    @property
    def column(self) -> NumericColumn | CategoricalColumn:
        """Range or categories that are encoded."""
        return self.feature.column

    @property
    def title(self) -> str:
        """Name of the column, or both names of a product."""
        return self.column.name if self.other is None else f"{self.column.name} x {self.other.column.name}"

    def feature_names(self) -> list[str]:
        """Return the names of the encoded numbers."""
        if self.other is not None:
            return [
                f"{one} x {two}"
                for one in self._column_feature_names()
                for two in self.other._column_feature_names()
            ]
        return self._column_feature_names()

    def _column_feature_names(self) -> list[str]:
        column = self.column
        if isinstance(column, CategoricalColumn):
            names = [f"{column.name}={text}" for text in column.categories]
            return names + [f"{column.name}=other"] * (column.other == "own")
        inner = knots_in_table_units(column)[1:-1]
        names = [column.name, *(f"{column.name} knot {knot:.6g}" for knot in inner)]
        return names + [f"{column.name} missing"] * (self.missing == "own")

    @property
    def max_squared_norm(self) -> float:
        """Largest squared norm of the block over all cells."""
        column = self.column
        max_value = 1.0  # indicators, and a number on the scale of [-1, 1]
        if isinstance(column, NumericColumn) and column.basis is not None:
            max_value = max(1.0, max_squared_norm(knot_design_matrix(column)))
        return max_value if self.other is None else max_value * self.other.max_squared_norm

    def encode(self, cells: CellColumn, other_cells: CellColumn | None = None) -> Floats:
        """Return the encoded cells [cells, names] of `feature.cells(table)`, each encoded by itself."""
        rows = self._encode_column(cells)
        if self.other is None or other_cells is None:
            return rows
        second = self.other._encode_column(other_cells)
        return np.asarray((rows[:, :, None] * second[:, None]).reshape(len(rows), -1))

    def _encode_column(self, cells: CellColumn) -> Floats:
        """Return the encoded cells of the first column alone."""
        column = self.column
        if isinstance(column, CategoricalColumn):
            codes = cells.codes(column.category_codes, text=column.text)
            if self.missing == "never":
                codes = np.where(codes == MISSING, 0, codes)
            size = len(column.categories)
            hits = np.zeros((len(codes), size + (column.other == "own")))
            known = np.flatnonzero((codes >= 0) & (codes < size))
            hits[known, codes[known]] = 1.0
            if column.other == "own":
                hits[codes < 0, size] = 1.0
            return hits
        numbers = np.asarray(cells.numbers(), np.float64)
        absent = np.isnan(numbers)
        rows = encode_numbers(column, numbers, absent, self.missing in ("own", "ignored"))
        return np.column_stack([rows, absent]) if self.missing == "own" else rows


def encode_numbers(
    column: NumericColumn, numbers: Floats, absent: NDArray[np.bool_], has_missing_indicator: bool
) -> Floats:
    """Return numbers [cells, k], clipped to the range and scaled to [-1, 1], or in the coordinates of the basis.

    A missing number is read as the middle of the range; with a basis and a missing indicator its coordinates are
    zero.
    """
    low, high = column.low, column.high
    numbers = np.clip(np.where(absent, low, numbers), low, high)
    if column.transform == "log1p":
        numbers, low, high = np.log1p(numbers), np.log1p(low), np.log1p(high)
    scaled = np.where(absent, 0.0, 2 * (numbers - low) / (high - low) - 1)
    if column.basis is None:
        return np.asarray(scaled[:, None])
    table = knot_design_matrix(column)
    scaled_positions = scale_knots(column)
    left_index = np.clip(
        np.searchsorted(scaled_positions, scaled, side="right") - 1, 0, len(scaled_positions) - 2
    )
    right_weight = np.clip(
        (scaled - scaled_positions[left_index])
        / (scaled_positions[left_index + 1] - scaled_positions[left_index]),
        0.0,
        1.0,
    )
    rows = table[left_index] * (1 - right_weight)[:, None]
    rows += table[left_index + 1] * right_weight[:, None]
    if has_missing_indicator:
        rows[absent] = 0.0
    return np.asarray(rows)


def scale_knots(column: NumericColumn) -> Floats:
    """Return the knots on the scale of [-1, 1]."""
    knots = np.asarray(column.knots, np.float64)
    positions = 2 * (knots - knots[0]) / (knots[-1] - knots[0]) - 1
    positions[-1] = 1.0
    return np.asarray(positions)


def knots_in_table_units(column: NumericColumn) -> Floats:
    """Return the knots in the units of the table."""
    knots = np.asarray(column.knots, np.float64)
    return np.expm1(knots) if column.transform == "log1p" else knots


def knot_design_matrix(column: NumericColumn) -> Floats:
    """Return T, whose rows encode the knots; without a basis it has one column."""
    smooth = 0.0 if column.basis is None else column.basis.smooth
    return knot_coordinates(tuple(map(float, scale_knots(column))), smooth)


def column_blocks(schema: Schema) -> list[ColumnBlock]:
    """Return the blocks of the columns in order, then those of the products."""
    single = [
        ColumnBlock(feature=feature, missing=schema.missing_rule(column))
        for column in schema.columns
        for feature in column.features
    ]
    by_name = {block.column.name: block for block in single}
    pairs = [
        replace(_coarsen_block(by_name[first]), other=_coarsen_block(by_name[second]))
        for first, second in schema.products
    ]
    return [*single, *pairs]


def _coarsen_block(block: ColumnBlock) -> ColumnBlock:
    """Return the block as a factor of a product: with few knots and no missing indicator."""
    column = block.column
    rule = "ignored" if block.missing == "own" else block.missing
    if (
        isinstance(column, NumericColumn)
        and column.basis is not None
        and len(column.knots) > MAX_PRODUCT_KNOTS
    ):
        column = replace(column, basis=SplineBasis(n_knots=MAX_PRODUCT_KNOTS, smooth=column.basis.smooth))
    return ColumnBlock(feature=replace(block.feature, column=column), missing=rule)


def max_row_norm(schema: Schema) -> float:
    """Return the largest norm of an encoded row with its constant, before scaling."""
    return float(np.sqrt(1.0 + sum(block.max_squared_norm for block in column_blocks(schema))))


def row_scale(schema: Schema) -> float:
    """Return the factor by which every row is multiplied, slightly less than row_norm over the largest norm."""
    return schema.row_norm * (1 - 1e-15) / max_row_norm(schema)


def flat_directions(schema: Schema) -> Floats:
    """Return directions [columns, k] of the coefficients that change no score of a row with listed categories only.

    A column's indicators sum to the constant, and another column's products with them sum to that column.
    """
    blocks = column_blocks(schema)
    starts = [int(start) for start in np.cumsum([0, *(len(block.feature_names()) for block in blocks)])]
    own = {block.column.name: start for block, start in zip(blocks, starts, strict=False) if not block.other}
    entries_by_direction: list[dict[int, float]] = []
    for block, start in zip(blocks, starts, strict=False):
        if block.other is None:
            if isinstance(block.column, CategoricalColumn):
                entries_by_direction.append(
                    dict.fromkeys(range(start, start + len(block.feature_names())), 1.0) | {starts[-1]: -1.0}
                )
            continue
        table = start + np.arange(len(block.feature_names())).reshape(len(block._column_feature_names()), -1)
        pairs = ((block.column, block.other.column, table), (block.other.column, block.column, table.T))
        for column, summed_column, coefficient_indices in pairs:
            if isinstance(summed_column, CategoricalColumn):
                # A product with fewer knots than the column shares only the straight line with it.
                n_directions = len(coefficient_indices) if schema.column(column.name) == column else 1
                entries_by_direction += [
                    dict.fromkeys(map(int, coefficient_indices[i]), 1.0) | {own[column.name] + i: -1.0}
                    for i in range(n_directions)
                ]
    directions = np.zeros((starts[-1] + 1, len(entries_by_direction)))
    for k, entries in enumerate(entries_by_direction):
        for j, value in entries.items():
            directions[j, k] = value
    return directions


def encode_cells(schema: Schema, cells_of: Callable[[Feature], CellColumn], n_rows: int) -> Floats:
    """Return the encoded rows of a table, given the cells of each feature of the schema."""
    blocks = column_blocks(schema)
    ends = np.cumsum([len(block.feature_names()) for block in blocks])
    rows: Floats = np.ones((n_rows, int(ends[-1]) + 1))
    for block, end in zip(blocks, ends, strict=True):
        other = None if block.other is None else cells_of(block.other.feature)
        block_rows = block.encode(cells_of(block.feature), other)
        rows[:, end - block_rows.shape[1] : end] = block_rows
    rows *= row_scale(schema)
    return rows


class SchemaEncoder(DocumentationLinkMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a table by a public schema; nothing is learned from the data.

    An encoded row is row_norm / K times (z_1, ..., z_p, 1). Numbers are clipped to their range and mapped to [-1, 1];
    categories become indicators (an unlisted one has none, or one of its own); a missing number becomes 0, with an
    indicator of its own under the rule "own"; a column with a basis becomes the coordinates of a linear spline (see
    `dplangevin.schema.SplineBasis`); a date becomes its parts, a hashed column the indicator of its bucket. K is the
    largest norm of (z, 1) that the schema allows, a public number and the same for every row: the last column is the
    same number in every row, so its coefficient is a true intercept, and scores are linear in z. Tables are pandas,
    polars or Arrow tables, or rows in the order of the columns.

    Parameters
    ----------
    schema : a Schema, or the plain data of its file format.

    Notes
    -----
    **Privacy.** The encoding of a row depends on that row and the public schema only, so it costs no privacy budget.
    No row is longer than `row_norm`, from which sensitivities are computed.

    Examples
    --------
    >>> import pandas as pd
    >>> schema = {"version": 1, "columns": {"age": {"range": [0, 100]}, "job": {"categories": ["a", "b"]}}}
    >>> rows = SchemaEncoder(schema).transform(pd.DataFrame({"age": [100, 250], "job": ["b", "z"]}))
    >>> rows.round(3).tolist()
    [[0.577, 0.0, 0.0, 0.577, 0.577], [0.577, 0.0, 0.0, 0.0, 0.577]]
    """

    def __init__(self, schema: Any = None) -> None:
        self.schema = schema

    def fit(self, X: Any = None, y: Any = None) -> SchemaEncoder:
        """Check the schema; nothing is learned."""
        as_schema(self.schema)
        return self

    def transform(self, X: Any) -> Floats:
        """Return the encoded rows, of norm at most row_norm."""
        schema = as_schema(self.schema)
        table = as_table(X, schema.names)
        schema.validate(table.names)
        return encode_cells(schema, lambda feature: feature.cells(table), len(table))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the encoded columns."""
        schema = as_schema(self.schema)
        names = [name for block in column_blocks(schema) for name in block.feature_names()]
        return np.array([*names, "constant"], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        return tags


def encoding_schema(model: Any) -> Any:
    """Return the schema that encodes the tables of a model: the fitted schema_, or else the stated one."""
    return getattr(model, "schema_", model.schema)


Model = TypeVar("Model", bound=Any)


def monotone_columns(schema: Schema) -> list[NumericColumn]:
    """Return the columns that are monotone."""
    columns = (feature.column for feature in schema.features)
    return [column for column in columns if isinstance(column, NumericColumn) and column.monotone is not None]


def check_monotone(model: Any, n_classes: int | None) -> None:
    """Raise if a column is monotone and there are more than two classes, before anything is charged."""
    monotone = monotone_columns(as_schema(encoding_schema(model)))
    if monotone and n_classes not in (None, 2):
        raise InvalidParameter(
            f"column {monotone[0].name!r} is monotone, which is not defined for {n_classes} classes; leave "
            "'monotone' out, or use two classes."
        )


def project_monotone(model: Model) -> Model:
    """Project the coefficients of each monotone column on the nearest monotone function, in place; return the model."""
    schema = as_schema(encoding_schema(model))
    if not monotone_columns(schema):
        return model
    weights = np.atleast_2d(model.coef_)
    check_monotone(model, None if len(weights) == 1 else len(weights))
    start = 0
    for block in column_blocks(schema):
        column, size = block.column, len(block.feature_names())
        if block.other is None and isinstance(column, NumericColumn) and column.monotone is not None:
            _project_column(block, weights[0], start)
        start += size
    return model


def _project_column(block: ColumnBlock, weights: Any, start: int) -> None:
    """Make the values at the knots isotonic, in place; their shift is added to the last coefficient, the constant's."""
    column = block.column
    assert isinstance(column, NumericColumn)
    table = knot_design_matrix(column)
    part = slice(start, start + table.shape[1])
    values = table @ weights[part]
    nearest = np.asarray(isotonic_regression(values, increasing=column.monotone == "increasing"))
    if np.array_equal(nearest, values):
        return
    system = np.column_stack([np.ones(len(table)), table])
    solution = np.linalg.solve(system, nearest)
    weights[-1] += solution[0]
    weights[part] = solution[1:]
    if block.missing == "own":  # a missing cell has no value at the knots: its score stays
        weights[part.stop] -= solution[0]
