"""Public partitions of one column: each row falls in at most one cell, whatever its value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.schema.columns import CategoricalColumn, NumericColumn
from dplangevin.schema.schema import Schema
from dplangevin.tables import MISSING, OTHER, Table

Codes = NDArray[np.int64]
Bins = int | Mapping[str, Any]
DEFAULT_BINS = 10


class Axis(ABC):
    """The cells of one column; code -1 means that the row is in none."""

    name: str
    labels: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.labels)

    @property
    def complete(self) -> bool:
        """Whether every value has a cell."""
        return True

    @abstractmethod
    def codes(self, table: Table) -> Codes:
        """The cell of each row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NumericAxis(Axis):
    """Intervals between public edges; values outside are clipped."""

    name: str
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    missing_code: int

    @property
    def complete(self) -> bool:
        return self.missing_code >= 0

    def codes(self, table: Table) -> Codes:
        values = np.asarray(table.column(self.name).numbers(), np.float64)
        found = np.searchsorted(np.asarray(self.edges[1:-1]), values, side="right")
        return np.asarray(np.where(np.isnan(values), self.missing_code, found), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class CategoryAxis(Axis):
    """The listed categories, then "other" and "missing" where the schema gives them a cell."""

    name: str
    column: CategoricalColumn
    labels: tuple[str, ...]
    other_code: int
    missing_code: int

    @property
    def complete(self) -> bool:
        return min(self.other_code, self.missing_code) >= 0

    def codes(self, table: Table) -> Codes:
        found = table.column(self.name).codes(self.column.listed, text=self.column.text)
        codes = np.where(found == OTHER, self.other_code, found)
        return np.asarray(np.where(found == MISSING, self.missing_code, codes), np.int64)


def axis_of(schema: Schema, name: str, bins: Bins = DEFAULT_BINS) -> Axis:
    """The cells of a column of the schema."""
    column = schema.column(name)
    rule = schema.missing_of(column)
    own, never = rule == "own", rule == "never"
    if isinstance(column, CategoricalColumn):
        size = len(column.categories)
        other = column.other == "own"
        labels = [str(value) for value in column.categories] + ["other"] * other + ["missing"] * own
        other_code = size if other else -1
        missing_code = size + other if own else (-1 if never else other_code)
        return CategoryAxis(
            name=name, column=column, labels=tuple(labels), other_code=other_code, missing_code=missing_code
        )
    edges = _edges(column, bins)
    labels = [f"[{low:g}, {high:g})" for low, high in pairwise(edges[:-1])]
    labels.append(f"[{edges[-2]:g}, {edges[-1]:g}]")
    middle = int(np.searchsorted(edges[1:-1], _middle(column), side="right"))
    missing_code = len(labels) if own else (-1 if never else middle)
    return NumericAxis(
        name=name, edges=edges, labels=(*labels, *(["missing"] if own else [])), missing_code=missing_code
    )


def _middle(column: NumericColumn) -> float:
    if column.transform == "log1p":
        return float(np.expm1((np.log1p(column.low) + np.log1p(column.high)) / 2))
    return (column.low + column.high) / 2


def _edges(column: NumericColumn, bins: Bins) -> tuple[float, ...]:
    """Equal steps on the column's scale, or the edges that were given."""
    wanted = bins.get(column.name, DEFAULT_BINS) if isinstance(bins, Mapping) else bins
    if isinstance(wanted, Sequence) and not isinstance(wanted, str):
        edges = tuple(float(edge) for edge in wanted)
        if len(edges) < 2 or any(not a < b for a, b in pairwise(edges)):
            raise InvalidParameter(
                f"bins[{column.name!r}] must be at least two increasing edges, got {wanted!r}."
            )
        return edges
    number = _check.count(f"bins[{column.name!r}]", wanted)
    if column.transform == "log1p":
        grid = np.expm1(np.linspace(np.log1p(column.low), np.log1p(column.high), number + 1))
    else:
        grid = np.linspace(column.low, column.high, number + 1)
    return (column.low, *(float(edge) for edge in grid[1:-1]), column.high)
