"""A pandas DataFrame as a Frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dplangevin.errors import InvalidParameter
from dplangevin.queries.frames import MISSING, Booleans, Codes, Floats, Frame
from dplangevin.queries.optional import optional
from dplangevin.schema.columns import as_text


class PandasFrame(Frame):
    """Columns of a pandas DataFrame; names must be texts and occur once."""

    def __init__(self, table: Any) -> None:
        self._pandas = optional("pandas", "counting in a pandas DataFrame")
        self._table = table
        if not all(isinstance(name, str) for name in table.columns) or not table.columns.is_unique:
            raise InvalidParameter("the table's column names must be texts, each used once.")
        self.names = tuple(table.columns)
        self.n_rows = len(table)

    def _column(self, name: str, rows: slice) -> Any:
        self.require(name)
        return self._table[name].iloc[rows]

    def numbers(self, name: str, rows: slice) -> Floats:
        column = self._column(name, rows)
        if column.dtype.kind in "mM":
            raise InvalidParameter(f"column {name!r} holds dates; turn it into numbers first.")
        found = self._pandas.to_numeric(column, errors="coerce")
        return np.asarray(found.to_numpy(dtype=float, na_value=np.nan))

    def missing(self, name: str, rows: slice) -> Booleans:
        return np.asarray(self._column(name, rows).isna().to_numpy(dtype=bool))

    def places(self, name: str, texts: Sequence[str], rows: slice, *, lower: bool = False) -> Codes:
        column = self._column(name, rows)
        values = [as_text(value) for value in column.to_numpy(dtype=object, na_value=None)]
        values = [value.lower() for value in values] if lower else values
        found = self._pandas.Index(list(texts), dtype=object).get_indexer(values)
        return np.asarray(np.where(column.isna().to_numpy(dtype=bool), MISSING, found), np.int64)

    def row_dicts(self, rows: slice) -> Iterator[dict[str, Any]]:
        yield from self._table.iloc[rows].to_dict("records")
