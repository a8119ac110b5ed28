"""Histograms and k-way marginals over the public partitions of a schema: a row is in at most one cell of a table."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.schema.columns import CategoricalColumn, Feature, Missing, NumericColumn
from dplangevin.schema.schema import Schema
from dplangevin.tables import MISSING, OTHER, Table
from dplangevin.tables.cells import text_of_days

Codes = NDArray[np.int64]
Bins = int | Mapping[str, Any]
DEFAULT_BINS = 10


class Axis(ABC):
    """The cells of one column; code -1 means that a row is in no cell."""

    name: str
    labels: tuple[str, ...]
    feature: Feature
    is_complete: bool
    """Whether every value belongs to a cell, if what the schema declares about missing values is true."""

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.labels)

    @abstractmethod
    def codes(self, table: Table) -> Codes:
        """Return the cell of each row."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NumericAxis(Axis):
    """Intervals between public edges; values outside are clipped."""

    name: str
    feature: Feature
    edges: tuple[float, ...]
    labels: tuple[str, ...]
    missing_code: int
    is_complete: bool

    def codes(self, table: Table) -> Codes:
        values = np.asarray(self.feature.cells(table).numbers(), np.float64)
        codes = np.searchsorted(np.asarray(self.edges[1:-1]), values, side="right")
        return np.asarray(np.where(np.isnan(values), self.missing_code, codes), np.int64)


@dataclass(frozen=True, kw_only=True, eq=False)
class CategoryAxis(Axis):
    """The listed categories, then "other" and "missing" where the schema declares a cell for them."""

    name: str
    feature: Feature
    column: CategoricalColumn
    labels: tuple[str, ...]
    other_code: int
    missing_code: int
    is_complete: bool

    def codes(self, table: Table) -> Codes:
        column_codes = self.feature.cells(table).codes(self.column.category_codes, text=self.column.text)
        codes = np.where(column_codes == OTHER, self.other_code, column_codes)
        return np.asarray(np.where(column_codes == MISSING, self.missing_code, codes), np.int64)


def make_axis(schema: Schema, name: str, bins: Bins = DEFAULT_BINS) -> Axis:
    """Return the cells of a column of the schema, of a part of a date ("day month"), or of hashed buckets."""
    feature, rule = find_feature(schema, name)
    column = feature.column
    own, outside = rule == "own", rule in ("never", None)
    if isinstance(column, CategoricalColumn):
        size = len(column.categories)
        other = column.other == "own"
        labels = [str(value) for value in column.categories] + ["other"] * other + ["missing"] * own
        other_code = size if other else -1
        missing_code = size + other if own else (-1 if outside else other_code)
        return CategoryAxis(
            name=name,
            feature=feature,
            column=column,
            labels=tuple(labels),
            other_code=other_code,
            missing_code=missing_code,
            is_complete=other and rule is not None,
        )
    edges = _bin_edges(column, bins)
    write = "{:g}".format if feature.reading is None else text_of_days
    labels = [f"[{write(low)}, {write(high)})" for low, high in pairwise(edges[:-1])]
    labels.append(f"[{write(edges[-2])}, {write(edges[-1])}]")
    middle = int(np.searchsorted(edges[1:-1], middle_of_range(column), side="right"))
    missing_code = len(labels) if own else (-1 if outside else middle)
    return NumericAxis(
        name=name,
        feature=feature,
        edges=edges,
        labels=(*labels, *(["missing"] if own else [])),
        missing_code=missing_code,
        is_complete=rule is not None,
    )


def find_feature(schema: Schema, name: str) -> tuple[Feature, Missing | None]:
    """Return the feature of this name and the declared rule for its missing cells."""
    columns = [*schema.columns, *([] if schema.target is None else [schema.target])]
    features = {feature.column.name: (feature, column) for column in columns for feature in column.features}
    if name not in features:
        raise InvalidParameter(f"the schema has no column {name!r} to count; it has {', '.join(features)}.")
    feature, column = features[name]
    return feature, schema.declared_missing_rule(column)


def middle_of_range(column: NumericColumn) -> float:
    if column.transform == "log1p":
        return float(np.expm1((np.log1p(column.low) + np.log1p(column.high)) / 2))
    return (column.low + column.high) / 2


def _bin_edges(column: NumericColumn, bins: Bins) -> tuple[float, ...]:
    """Return edges in equal steps on the column's scale, or the given edges."""
    column_bins = bins.get(column.name, DEFAULT_BINS) if isinstance(bins, Mapping) else bins
    if isinstance(column_bins, Sequence) and not isinstance(column_bins, str):
        edges = tuple(float(edge) for edge in column_bins)
        if len(edges) < 2 or any(not a < b for a, b in pairwise(edges)):
            raise InvalidParameter(
                f"bins[{column.name!r}] must be at least two increasing edges, got {column_bins!r}."
            )
        return edges
    number = _check.check_count(f"bins[{column.name!r}]", column_bins)
    if column.transform == "log1p":
        grid = np.expm1(np.linspace(np.log1p(column.low), np.log1p(column.high), number + 1))
    else:
        grid = np.linspace(column.low, column.high, number + 1)
    return (column.low, *(float(edge) for edge in grid[1:-1]), column.high)


MAX_CELLS = 2**24


@dataclass(frozen=True, kw_only=True, eq=False)
class Marginals:
    """Tables of counts, one per set of columns; a row is in at most one cell of each.

    Parameters
    ----------
    sets : the sets of columns.
    axes : the public cells of every column used.
    """

    sets: tuple[tuple[str, ...], ...]
    axes: Mapping[str, Axis]

    def __post_init__(self) -> None:
        kinds = {type(axis) for axis in self.axes.values()}
        # a user's subclass could put a row in two cells
        if type(self) is not Marginals or kinds - {NumericAxis, CategoryAxis}:
            raise InvalidParameter(
                "Marginals and their axes cannot be subclassed; use Marginals.from_schema(schema)."
            )
        if self.size > MAX_CELLS:
            largest = max(self.sets, key=lambda names: math.prod(self.shape(names)))
            raise InvalidParameter(
                f"the marginals have {self.size} cells, more than {MAX_CELLS} ({', '.join(largest)} alone has "
                f"{math.prod(self.shape(largest))}); use fewer columns, fewer bins or fewer ways."
            )

    @classmethod
    def from_schema(
        cls,
        schema: Schema,
        *,
        ways: int = 1,
        columns: Iterable[str | Sequence[str]] | None = None,
        bins: Bins = DEFAULT_BINS,
    ) -> Marginals:
        """Return the marginals of all sets of `ways` columns of the schema (and its target), or of the listed sets."""
        all_names = [feature.column.name for feature in schema.features]
        all_names += [schema.target.name] if schema.target is not None else []
        if columns is None:
            number = _check.check_count("ways", ways)
            if number > len(all_names):
                raise InvalidParameter(
                    f"ways = {number} is more than the {len(all_names)} columns of the schema."
                )
            sets = tuple(combinations(all_names, number))
        else:
            sets = tuple((entry,) if isinstance(entry, str) else tuple(entry) for entry in columns)
            if not sets or any(not names or len(set(names)) < len(names) for names in sets):
                raise InvalidParameter("columns must list at least one set of different columns.")
        used_names = dict.fromkeys(name for names in sets for name in names)
        if isinstance(bins, Mapping) and (unknown := sorted(set(bins) - set(all_names))):
            raise InvalidParameter(f"bins names {', '.join(unknown)}, which the schema does not have.")
        return cls(sets=sets, axes={name: make_axis(schema, name, bins) for name in used_names})

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that are read."""
        return tuple(dict.fromkeys(axis.feature.source for axis in self.axes.values()))

    def shape(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the number of cells per column of one table."""
        return tuple(self.axes[name].n_cells for name in names)

    @property
    def size(self) -> int:
        """Number of cells of all tables."""
        return sum(math.prod(self.shape(names)) for names in self.sets)

    def sizes(self) -> tuple[int, ...]:
        """Return the number of cells of each table."""
        return tuple(math.prod(self.shape(names)) for names in self.sets)

    def is_complete(self) -> tuple[bool, ...]:
        """Return for each table whether every row is in one of its cells."""
        return tuple(all(self.axes[name].is_complete for name in names) for names in self.sets)

    def empty_counts(self) -> NDArray[np.int64]:
        """Return counters, all zero."""
        return np.zeros(self.size, np.int64)

    def add_block(self, counters: NDArray[np.int64], codes: Mapping[str, Codes]) -> None:
        """Count a block of rows, given the cell of each row in each column."""
        start = 0
        for names, size in zip(self.sets, self.sizes(), strict=True):
            index, inside = codes[names[0]], codes[names[0]] >= 0
            for name in names[1:]:
                index = index * self.axes[name].n_cells + codes[name]
                inside = inside & (codes[name] >= 0)
            valid = index if inside.all() else index[inside]
            counters[start : start + size] += np.bincount(valid, minlength=size)
            start += size

    def count(self, tables: Iterable[Table]) -> NDArray[np.int64]:
        """Return exact counts over a sequence of tables (private: the library releases them only with noise)."""
        counters = self.empty_counts()
        for table in tables:
            self.add_block(counters, {name: axis.codes(table) for name, axis in self.axes.items()})
        return counters

    def cell_labels(self, names: Sequence[str]) -> NDArray[np.str_]:
        """Return the labels of the cells of one table."""
        parts = [np.array([f"{name}={label}" for label in self.axes[name].labels]) for name in names]
        labels = parts[0]
        for part in parts[1:]:
            labels = np.char.add(np.char.add(np.repeat(labels, part.size), "; "), np.tile(part, labels.size))
        return labels
