"""One face for the tables in memory: columns as numbers, as texts, or as places in a list of categories."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Booleans = NDArray[np.bool_]
BLOCK = 2**18
OTHER, MISSING = -1, -2


class Frame(ABC):
    """A table in memory. What cannot be read as asked is missing, so no value can raise an error."""

    names: tuple[str, ...]
    n_rows: int

    @abstractmethod
    def numbers(self, name: str, rows: slice) -> Floats:
        """The column as numbers; NaN where it is missing or not a number."""

    @abstractmethod
    def places(self, name: str, texts: Sequence[str], rows: slice, *, lower: bool = False) -> Codes:
        """Place of each value's (lower-case) text in `texts`; OTHER when not there, MISSING when there is none."""

    @abstractmethod
    def missing(self, name: str, rows: slice) -> Booleans:
        """Where the column has no value."""

    @abstractmethod
    def row_dicts(self, rows: slice) -> Iterator[dict[str, Any]]:
        """The rows one by one."""

    def number_places(self, name: str, values: Sequence[float], rows: slice) -> Codes:
        """Place of each number in `values`; OTHER when it is not there, MISSING when it is no number."""
        numbers = self.numbers(name, rows)
        order = np.argsort(values)
        ordered = np.asarray(values, float)[order]
        spot = np.minimum(np.searchsorted(ordered, numbers), len(ordered) - 1)
        codes = np.where(ordered[spot] == numbers, order[spot], OTHER)
        return np.asarray(np.where(np.isnan(numbers), MISSING, codes), np.int64)

    def blocks(self) -> Iterator[slice]:
        """The rows, a block at a time."""
        for start in range(0, self.n_rows, BLOCK):
            yield slice(start, min(start + BLOCK, self.n_rows))

    def require(self, name: str) -> None:
        """Refuse a column the table does not have."""
        if name not in self.names:
            raise InvalidParameter(
                f"schema mismatch: the table has no column {name!r}; it has {', '.join(self.names) or 'none'}."
            )


def frame_of(table: Any) -> Frame:
    """The face of a pandas or polars DataFrame."""
    home = type(table).__module__.split(".")[0]
    if home == "pandas" and hasattr(table, "columns"):
        from dplangevin.queries.pandas_frame import PandasFrame

        return PandasFrame(table)
    if home == "polars" and hasattr(table, "columns"):
        from dplangevin.queries.polars_frame import PolarsFrame

        return PolarsFrame(table)
    raise InvalidParameter(
        f"the table must be a pandas or polars DataFrame, got {type(table).__name__}; for files use count_file."
    )
