"""What a pipeline gave, in a form in which rows can be compared exactly."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A result: a key for each row, the names and types of its columns, its numbers, its warnings; or an error's type.

    Two rows are the same when their keys are: NaN equals NaN, and 1 differs from 1.0.
    """

    rows: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    numbers: Any = field(default=None, compare=False)
    warnings: frozenset[str] = frozenset()
    error: str | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows of the result."""
        return len(self.rows)

    @property
    def content(self) -> tuple[Any, ...]:
        """What must be equal for two results to be the same."""
        return self.rows, self.names, self.error

    def with_warnings(self, said: Mapping[str, int]) -> Outcome:
        """The same result, with the places of its warnings and how often each was raised."""
        return replace(self, warnings=frozenset(f"{name} x {times}" for name, times in said.items()))


def outcome_of(result: Any) -> Outcome:
    """The columns of an array, table, sparse matrix, list, or a tuple or mapping of them."""
    names: list[str] = []
    types: list[str] = []
    columns: list[list[Hashable]] = []
    numbers: list[Any] = []
    for prefix, part in _parts(result):
        for name, cells in _split(part):
            names.append(f"{prefix}{name}")
            keys, kind = _keys(cells)
            types.append(kind)
            columns.append(keys)
            numbers.append(cells)
    rows = tuple(zip(*columns, strict=True)) if columns else ()
    return Outcome(rows=rows, names=tuple(names), types=tuple(types), numbers=numbers)


def _parts(result: Any) -> list[tuple[str, Any]]:
    if isinstance(result, tuple) and not hasattr(result, "dtype"):
        return [(f"{position}.", part) for position, part in enumerate(result) if part is not None]
    if isinstance(result, Mapping):
        return [(f"{name}.", part) for name, part in result.items()]
    return [("", result)]


def _split(part: Any) -> list[tuple[str, Any]]:
    """Columns by name."""
    if hasattr(part, "collect"):  # a lazy table
        part = part.collect()
    if hasattr(part, "compute"):
        part = part.compute()
    if hasattr(part, "toarray"):
        part = part.toarray()
    if hasattr(part, "iloc") and hasattr(part, "columns"):
        return [(str(name), part.iloc[:, i].to_numpy()) for i, name in enumerate(part.columns)]
    if hasattr(part, "column_names") and hasattr(part, "to_pydict"):
        return [
            (str(name), _cells(column.to_pylist()))
            for name, column in zip(part.column_names, part.columns, strict=True)
        ]
    if hasattr(part, "get_columns"):
        return [(column.name, column.to_numpy()) for column in part.get_columns()]
    array = part.to_numpy() if hasattr(part, "to_numpy") else _cells(part)
    if array.ndim == 0:
        array = array[None]
    flat = array.reshape(len(array), -1)
    return [(str(i), flat[:, i]) for i in range(flat.shape[1])]


def _cells(values: Any) -> Any:
    """An array; of single objects where a rectangle is not to be had."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufcO" or not isinstance(values, list):
            return array
    except (ValueError, OverflowError):
        pass
    array = np.empty(len(values), dtype=object)  # texts and numbers side by side stay what they are
    array[:] = [tuple(each) if isinstance(each, list) else each for each in values]
    return array


def _keys(cells: Any) -> tuple[list[Hashable], str]:
    kind = "text" if cells.dtype.kind in "US" else str(cells.dtype)
    if cells.dtype.kind in "biufc":
        return [(kind, repr(cell)) for cell in cells.tolist()], kind
    return [(type(cell).__name__, repr(cell)) for cell in cells.tolist()], kind


def distance(first: Outcome, second: Outcome, norm: str) -> float:
    """The norm of the difference of two results; infinite when they have different shapes or are no numbers."""
    try:
        one, two = (
            np.concatenate([np.asarray(part, complex) for part in each.numbers]) for each in (first, second)
        )
    except (TypeError, ValueError, OverflowError):
        return math.inf
    if one.shape != two.shape:
        return math.inf
    gap = np.abs(one - two)
    gap = np.where((one == two) | (np.isnan(one) & np.isnan(two)), 0.0, gap)
    size = {"l2": np.linalg.norm(gap), "l1": gap.sum(), "max": gap.max(initial=0.0)}[norm]
    return math.inf if math.isnan(size) else float(size)
