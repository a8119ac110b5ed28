"""A raw table wherever it is: its rows cut to persons, its cells counted, then handed to the usual reading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data import ArrowSource
from dplangevin.data.dask import connected, is_dask
from dplangevin.data.people import PersonCodes, kept_in_files, kept_on_dask, kept_rows
from dplangevin.errors import InvalidParameter
from dplangevin.families.learned_schema.cells import added, counted
from dplangevin.families.learned_schema.mechanism import Counts
from dplangevin.tables import Cells, Files, Table, cells_of, is_path, table_of

TARGET, WEIGHT = "\0target", "\0weight"  # names that no table has
NAMED = (
    "learned schemas and person= read a table by the names of its columns: give a DataFrame, an Arrow table, files or "
    "a Dask DataFrame, not {}."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RawRecords:
    """home : "memory", "files" or "dask". y, weights : columns' names. names : of all columns of the table."""

    home: str
    data: Any
    y: str
    weights: str | None
    names: tuple[str, ...]
    kept: NDArray[np.bool_] | None = None

    @classmethod
    def of(cls, X: Any, y: Any, weights: Any, order: tuple[str, ...] | None) -> RawRecords:
        """The records, none of them read. order : names for the columns of rows without names."""
        if is_dask(X) or is_path(X):
            if not isinstance(y, str) or not isinstance(weights, str | None):
                raise InvalidParameter(
                    "y and sample_weight must be names of columns with files and Dask here."
                )
            if is_path(X):
                files = Files(X)
                source = ArrowSource(files, y, weight=weights)
                names = (*source.features, y, *([] if weights is None else [weights]))
                return cls(home="files", data=files, y=y, weights=weights, names=names)
            if not hasattr(X, "columns"):
                raise InvalidParameter(NAMED.format("a Dask array"))
            connected(None)
            names = tuple(map(str, X.columns))
            return cls(home="dask", data=X, y=y, weights=weights, names=names)._checked()
        if (
            not (hasattr(X, "columns") or hasattr(X, "column_names") or isinstance(X, Table))
            and order is None
        ):
            raise InvalidParameter(NAMED.format(type(X).__name__))
        table = table_of(X, order)
        names = table.names
        for name, given, what in ((TARGET, y, "y"), (WEIGHT, weights, "sample_weight")):
            if given is not None and not isinstance(given, str):
                table = table.with_column(name, _matching(given, what, len(table)))
        y_name = y if isinstance(y, str) else TARGET
        w_name = weights if isinstance(weights, str) or weights is None else WEIGHT
        if y is None:
            raise InvalidParameter("this estimator requires y to be passed, but the target y is None.")
        return cls(home="memory", data=table, y=y_name, weights=w_name, names=names)._checked()

    def _checked(self) -> RawRecords:
        known = self.data.names if self.home == "memory" else self.names
        for name in (self.y, self.weights):
            if name is not None and name not in known:
                raise InvalidParameter(f"there is no column {name!r}; the table has {', '.join(self.names)}.")
        return self

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        return tuple(name for name in self.names if name not in (self.y, self.weights))

    def __len__(self) -> int:
        if self.home == "files":
            return len(ArrowSource(self.data, self.y, features=[]))
        return len(self.data)

    def of_people(self, person: str, most: int, rng: np.random.Generator) -> RawRecords:
        """At most so many rows of each person, and without the persons' column."""
        names = tuple(name for name in self.names if name != person)
        if self.home == "dask":
            kept = kept_on_dask(self.data, person, most, rng)
            return replace(self, data=kept.drop(columns=person), names=names)
        if self.home == "files":
            return replace(self, kept=kept_in_files(self.data, person, most, rng), names=names)
        codes = PersonCodes().of(self.data.column(person))
        rows = np.flatnonzero(kept_rows(codes, most, rng))
        return replace(self, data=self.data.without(person).take(rows), names=names)

    def counts(self, numbers: Mapping[str, Floats], categories: Mapping[str, bool], *, outer: bool) -> Counts:
        """Exact counts of the cells between edges, and of labels; every row is read by itself."""
        if self.home == "memory":
            parts = [counted(block, numbers, categories, outer=outer) for block in self.data.blocks()]
        elif self.home == "files":
            wanted = list(dict.fromkeys([*numbers, *categories]))
            source = ArrowSource(self.data, self.y, features=self.features, kept=self.kept)
            tables = (_with(table, self.y, targets) for table, targets, _ in source.batches(wanted))
            parts = [counted(table, numbers, categories, outer=outer) for table in tables]
        else:
            import dask

            task = dask.delayed(_part_counts, pure=False)
            parts = list(
                dask.compute(*(task(part, numbers, categories, outer) for part in self.data.to_delayed()))
            )
        empty = Counts(
            np.zeros((len(numbers), len(next(iter(numbers.values()))) - 1 if numbers else 0)),
            [{} for _ in categories],
        )
        return added([empty, *parts])

    def given(self) -> tuple[Any, Any, Any]:
        """X, y and sample_weight, as `fit` takes them."""
        if self.home == "memory":
            table = self.data.without(self.y, self.weights)
            loads = None if self.weights is None else self.data.column(self.weights)
            return table, self.data.column(self.y), loads
        if self.home == "files":
            source = ArrowSource(
                self.data, self.y, features=self.features, weight=self.weights, kept=self.kept
            )
            return source, self.y, None
        return self.data, self.y, self.weights


def _matching(given: Any, what: str, rows: int) -> Cells:
    cells = cells_of(given, what)
    if len(cells) != rows:
        raise InvalidParameter(
            f"X and {what} have inconsistent numbers of samples: {what} must have one entry per row of X."
        )
    return cells


def _with(table: Table, name: str, cells: Cells) -> Table:
    return table if name in table.names else table.with_column(name, cells)


def _part_counts(
    part: Any, numbers: Mapping[str, Floats], categories: Mapping[str, bool], outer: bool
) -> Counts:
    return counted(table_of(part), numbers, categories, outer=outer)
