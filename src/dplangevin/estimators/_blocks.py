"""Cells of one column as numbers of bounded norm: what SchemaEncoder puts side by side, and its exact bound."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.schema import CategoricalColumn, Column, NumericColumn, Schema
from dplangevin.schema.basis import Basis, bound, coordinates
from dplangevin.tables import MISSING, Cells

PRODUCT_HATS = 4
"""A column with more knots enters products with so many."""


@dataclass(frozen=True, kw_only=True)
class ColumnBlock:
    """Names, cells and the largest squared norm of the numbers that one column (or product) becomes.

    Parameters
    ----------
    column : what is encoded. missing : the rule for its missing cells.
    other : the second column of a product.
    """

    column: Column
    missing: str
    other: ColumnBlock | None = None

    @property
    def title(self) -> str:
        """The column's name, or both names of a product."""
        return self.column.name if self.other is None else f"{self.column.name} x {self.other.column.name}"

    def names(self) -> list[str]:
        """One for each number."""
        if self.other is not None:
            return [f"{one} x {two}" for one in self._own_names() for two in self.other._own_names()]
        return self._own_names()

    def _own_names(self) -> list[str]:
        column = self.column
        if isinstance(column, CategoricalColumn):
            names = [f"{column.name}={text}" for text in column.categories]
            return names + [f"{column.name}=other"] * (column.other == "own")
        inner = shown_knots(column)[1:-1]
        names = [column.name, *(f"{column.name} bend {knot:.6g}" for knot in inner)]
        return names + [f"{column.name} missing"] * (self.missing == "own")

    @property
    def bound(self) -> float:
        """The largest squared norm, over all cells."""
        column = self.column
        largest = 1.0  # indicators, and a number on the scale of [-1, 1]
        if isinstance(column, NumericColumn) and column.basis is not None:
            largest = max(1.0, bound(table_of_knots(column)))
        return largest if self.other is None else largest * self.other.bound

    def encoded(self, cells: Cells, others: Cells | None = None) -> Floats:
        """[cells, names]: each cell by itself."""
        found = self._own(cells)
        if self.other is None or others is None:
            return found
        second = self.other._own(others)
        return np.asarray((found[:, :, None] * second[:, None]).reshape(len(found), -1))

    def _own(self, cells: Cells) -> Floats:
        column = self.column
        if isinstance(column, CategoricalColumn):
            codes = cells.codes(column.listed, text=column.text)
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
        rows = number_rows(column, numbers, absent, self.missing in ("own", "ignored"))
        return np.column_stack([rows, absent]) if self.missing == "own" else rows


def number_rows(column: NumericColumn, numbers: Floats, absent: NDArray[np.bool_], own: bool) -> Floats:
    """[cells, k]: clipped to the range and put on the scale of [-1, 1], or into the coordinates of the basis.

    A missing number is the middle of the range; with a basis and an indicator of its own (`own`) it is zero.
    """
    low, high = column.low, column.high
    numbers = np.clip(np.where(absent, low, numbers), low, high)
    if column.transform == "log1p":
        numbers, low, high = np.log1p(numbers), np.log1p(low), np.log1p(high)
    scaled = np.where(absent, 0.0, 2 * (numbers - low) / (high - low) - 1)
    if column.basis is None:
        return np.asarray(scaled[:, None])
    table = table_of_knots(column)
    places = scaled_knots(column)
    left = np.clip(np.searchsorted(places, scaled, side="right") - 1, 0, len(places) - 2)
    share = np.clip((scaled - places[left]) / (places[left + 1] - places[left]), 0.0, 1.0)
    rows = table[left] * (1 - share)[:, None]
    rows += table[left + 1] * share[:, None]
    if own:
        rows[absent] = 0.0
    return np.asarray(rows)


def scaled_knots(column: NumericColumn) -> Floats:
    """The knots on the scale of [-1, 1]."""
    knots = np.asarray(column.knots, np.float64)
    places = 2 * (knots - knots[0]) / (knots[-1] - knots[0]) - 1
    places[-1] = 1.0
    return np.asarray(places)


def shown_knots(column: NumericColumn) -> Floats:
    """The knots in the units of the table."""
    knots = np.asarray(column.knots, np.float64)
    return np.expm1(knots) if column.transform == "log1p" else knots


def table_of_knots(column: NumericColumn) -> Floats:
    """T: the rows of the knots themselves; one column without a basis."""
    smooth = 0.0 if column.basis is None else column.basis.smooth
    return coordinates(tuple(map(float, scaled_knots(column))), smooth)


def blocks_of(schema: Schema) -> list[ColumnBlock]:
    """The columns in their order, then the products."""
    single = [ColumnBlock(column=column, missing=schema.missing_of(column)) for column in schema.columns]
    by_name = {block.column.name: block for block in single}
    pairs = [
        replace(_coarse(by_name[first]), other=_coarse(by_name[second])) for first, second in schema.products
    ]
    return [*single, *pairs]


def _coarse(block: ColumnBlock) -> ColumnBlock:
    """The block as a factor of a product: few knots, and no indicator of missing cells."""
    column = block.column
    rule = "ignored" if block.missing == "own" else block.missing
    if isinstance(column, NumericColumn) and column.basis is not None and len(column.knots) > PRODUCT_HATS:
        column = replace(column, basis=Basis(hats=PRODUCT_HATS, smooth=column.basis.smooth))
    return ColumnBlock(column=column, missing=rule)


def largest_norm(schema: Schema) -> float:
    """Of a row with its constant, before scaling."""
    return float(np.sqrt(1.0 + sum(block.bound for block in blocks_of(schema))))


def flat_directions(schema: Schema) -> Floats:
    """[columns, k]: directions of the coefficients that change no score of a row whose categories are all listed.

    A column's indicators add up to the constant, and a column's products with them to the column.
    """
    blocks = blocks_of(schema)
    starts = [int(start) for start in np.cumsum([0, *(len(block.names()) for block in blocks)])]
    own = {block.column.name: start for block, start in zip(blocks, starts, strict=False) if not block.other}
    found: list[dict[int, float]] = []
    for block, start in zip(blocks, starts, strict=False):
        if block.other is None:
            if isinstance(block.column, CategoricalColumn):
                found.append(
                    dict.fromkeys(range(start, start + len(block.names())), 1.0) | {starts[-1]: -1.0}
                )
            continue
        table = start + np.arange(len(block.names())).reshape(len(block._own_names()), -1)
        pairs = ((block.column, block.other.column, table), (block.other.column, block.column, table.T))
        for column, summed, places in pairs:
            if isinstance(summed, CategoricalColumn):
                alike = (
                    len(places) if schema.column(column.name) == column else 1
                )  # a coarse curve: the line only
                found += [
                    dict.fromkeys(map(int, places[i]), 1.0) | {own[column.name] + i: -1.0}
                    for i in range(alike)
                ]
    directions = np.zeros((starts[-1] + 1, len(found)))
    for k, entries in enumerate(found):
        for j, value in entries.items():
            directions[j, k] = value
    return directions
