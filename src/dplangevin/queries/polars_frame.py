"""A polars DataFrame as a Frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dplangevin.errors import InvalidParameter
from dplangevin.queries.frames import MISSING, OTHER, Booleans, Codes, Floats, Frame
from dplangevin.queries.optional import optional


class PolarsFrame(Frame):
    """Columns of a polars DataFrame (a LazyFrame is collected)."""

    def __init__(self, table: Any) -> None:
        self._polars = optional("polars", "counting in a polars DataFrame")
        self._table = table.collect() if isinstance(table, self._polars.LazyFrame) else table
        self.names = tuple(self._table.columns)
        self.n_rows = self._table.height

    def _column(self, name: str, rows: slice) -> Any:
        self.require(name)
        return self._table[name].slice(rows.start, rows.stop - rows.start)

    def numbers(self, name: str, rows: slice) -> Floats:
        column = self._column(name, rows)
        if column.dtype.is_temporal():
            raise InvalidParameter(f"column {name!r} holds dates; turn it into numbers first.")
        return np.asarray(column.cast(self._polars.Float64, strict=False).fill_null(np.nan).to_numpy(), float)

    def missing(self, name: str, rows: slice) -> Booleans:
        column = self._column(name, rows)
        absent = column.is_null()
        if column.dtype.is_float():
            absent = absent | column.is_nan().fill_null(True)
        return np.asarray(absent.to_numpy(), bool)

    def places(self, name: str, texts: Sequence[str], rows: slice, *, lower: bool = False) -> Codes:
        column = self._column(name, rows).cast(self._polars.String, strict=False)
        column = column.str.to_lowercase() if lower else column
        found = column.cast(self._polars.Enum(list(texts)), strict=False).to_physical()
        codes = np.asarray(found.cast(self._polars.Int64).fill_null(OTHER).to_numpy(), np.int64)
        return np.where(self.missing(name, rows), MISSING, codes)

    def row_dicts(self, rows: slice) -> Iterator[dict[str, Any]]:
        yield from self._table.slice(rows.start, rows.stop - rows.start).iter_rows(named=True)
