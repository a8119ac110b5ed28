"""The queries a DataFrame may be asked: each gives one value in [0, 1] per row, from that row alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.queries.duckdb_table import DuckTable
from dplangevin.queries.expressions import Predicate
from dplangevin.queries.frames import Frame
from dplangevin.schema.schema import Schema

Counts = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowQueries:
    """Checked queries over one table, ready to be counted."""

    names: tuple[str, ...]
    queries: tuple[Any, ...]
    frame: Frame
    sql: DuckTable | None
    written: Mapping[int, str]

    def __len__(self) -> int:
        return len(self.names)

    def __enter__(self) -> RowQueries:
        return self

    def __exit__(self, *_: object) -> None:
        if self.sql is not None:
            self.sql.close()

    @classmethod
    def of(
        cls, queries: Mapping[str, Any] | Sequence[Any], frame: Frame, table: Any, schema: Schema | None
    ) -> RowQueries:
        """Check every query without looking at a value."""
        if isinstance(queries, str) or not isinstance(queries, (Mapping, Sequence)):
            raise InvalidParameter(
                f"queries must be a list or a table of named queries, got {type(queries).__name__}."
            )
        named = dict(queries) if isinstance(queries, Mapping) else _numbered(queries)
        if not named:
            raise InvalidParameter("the list of queries is empty; give at least one.")
        if schema is not None:
            schema.validate(frame.names)
        texts = {i: query for i, query in enumerate(named.values()) if isinstance(query, str)}
        sql = DuckTable(table, schema) if texts else None
        written = {i: sql.predicate(text) for i, text in texts.items()} if sql is not None else {}
        checked = tuple(_checked(name, query, frame) for name, query in named.items())
        return cls(names=tuple(named), queries=checked, frame=frame, sql=sql, written=written)

    def count(self) -> Counts:
        """Exact counts (private)."""
        totals = np.zeros(len(self))
        if self.sql is not None:
            totals[list(self.written)] = self.sql.count_predicates(list(self.written.values()))
        for i, query in enumerate(self.queries):
            if isinstance(query, Predicate):
                totals[i] = sum(int(query.holds(self.frame, rows).sum()) for rows in self.frame.blocks())
            elif isinstance(query, np.ndarray):
                totals[i] = float(_bounded(self.names[i], query).sum())
            elif callable(query):
                totals[i] = self._each_row(self.names[i], query)
        return totals

    def _each_row(self, name: str, query: Callable[[dict[str, Any]], Any]) -> float:
        total = 0.0
        for rows in self.frame.blocks():
            values = np.array([_answer(query, row) for row in self.frame.row_dicts(rows)])
            total += float(_bounded(name, values).sum())
        return total


def _numbered(queries: Sequence[Any]) -> dict[str, Any]:
    names = [query if isinstance(query, str) else f"query {i + 1}" for i, query in enumerate(queries)]
    if len(set(names)) < len(names):
        raise InvalidParameter("the list of queries holds one twice; ask each once.")
    return dict(zip(names, queries, strict=True))


def _checked(name: str, query: Any, frame: Frame) -> Any:
    if isinstance(query, Predicate):
        for column in query.columns():
            frame.require(column)
        return query
    if isinstance(query, str) or (callable(query) and not hasattr(query, "__array__")):
        return query
    values = np.asarray(query)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"query {name!r} must be a predicate, a SQL text, a function of one row, or one number per row; "
            f"got {type(query).__name__}."
        )
    if values.size != frame.n_rows:
        raise InvalidParameter(f"query {name!r} has {values.size} values for a table of {frame.n_rows} rows.")
    return np.asarray(values, float)


def _answer(query: Callable[[dict[str, Any]], Any], row: dict[str, Any]) -> float:
    """A function that fails on a row answers 0 there: an error would tell about that row."""
    try:
        return float(query(row))
    except Exception:
        return 0.0


def _bounded(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Refuse a query outside [0, 1], without telling which row or value did it."""
    if not np.all((values >= 0) & (values <= 1)):  # NaN fails both
        raise InvalidParameter(
            f"query {name!r} has a value outside [0, 1]; a count needs 0 or 1 (or a share of 1) per row. "
            "Nothing was released."
        )
    return values
