"""The queries a table may be asked: each gives one value in [0, 1] per row, from that row alone.

Predicates built in Python are functions of one row by construction:

>>> adult = column("age") >= 18
>>> query = adult & column("job").is_in(["nurse", "teacher"]) & ~column("gain").is_missing()
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.queries.duckdb_table import SqlCounter
from dplangevin.schema.schema import Schema
from dplangevin.tables import MISSING, Table, label, labels_of, number

Booleans = NDArray[np.bool_]
Counts = NDArray[np.float64]
CELLS = 2**20
"""Answers that are held at a time where rows are capped."""


class Predicate(ABC):
    """True or false for each row by itself; a comparison with a missing value is false.

    There are no other classes of predicates than the ones here: one could look at several rows, or count a row twice.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        if cls.__module__ != __name__:
            raise TypeError(
                "predicates are built with column(...); for anything else give a function of one row."
            )
        super().__init_subclass__(**keywords)

    @abstractmethod
    def holds(self, table: Table) -> Booleans:
        """Which of the rows satisfy it."""

    @abstractmethod
    def columns(self) -> frozenset[str]:
        """The columns it reads."""

    def __and__(self, other: Predicate) -> Predicate:
        return _Joined(left=self, right=_predicate(other), both=True)

    def __or__(self, other: Predicate) -> Predicate:
        return _Joined(left=self, right=_predicate(other), both=False)

    def __invert__(self) -> Predicate:
        return _Negated(inner=self)

    def __bool__(self) -> bool:
        raise InvalidParameter("combine predicates with &, | and ~ (and parentheses), not with and, or, not.")


@dataclass(frozen=True, kw_only=True)
class _Joined(Predicate):
    left: Predicate
    right: Predicate
    both: bool

    def holds(self, table: Table) -> Booleans:
        first, second = self.left.holds(table), self.right.holds(table)
        return first & second if self.both else first | second

    def columns(self) -> frozenset[str]:
        return self.left.columns() | self.right.columns()


@dataclass(frozen=True, kw_only=True)
class _Negated(Predicate):
    inner: Predicate

    def holds(self, table: Table) -> Booleans:
        return ~self.inner.holds(table)

    def columns(self) -> frozenset[str]:
        return self.inner.columns()


@dataclass(frozen=True, eq=False)
class _OfColumn(Predicate):
    name: str

    def columns(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True, eq=False)
class _Ordered(_OfColumn):
    compare: Callable[[Any, Any], Any]
    limit: float

    def holds(self, table: Table) -> Booleans:
        return np.asarray(self.compare(table.column(self.name).numbers(), self.limit), bool)


@dataclass(frozen=True, eq=False)
class _Listed(_OfColumn):
    wanted: Mapping[str, int]

    def holds(self, table: Table) -> Booleans:
        return np.asarray(table.column(self.name).codes(self.wanted) >= 0)


class _Missing(_OfColumn):
    def holds(self, table: Table) -> Booleans:
        return np.asarray(table.column(self.name).codes({}) == MISSING)


@dataclass(frozen=True, eq=False)
class ColumnReference:
    """A column by name; comparisons with it are predicates."""

    name: str

    def _compared(self, value: Any, compare: Callable[[Any, Any], Any]) -> Predicate:
        if isinstance(value, bool) or not isinstance(value, Real | Decimal) or value != value:
            raise InvalidParameter(
                f"column {self.name!r} can be ordered against a number only, got {value!r}."
            )
        return _Ordered(self.name, compare, number(value))

    def __lt__(self, value: float) -> Predicate:
        return self._compared(value, np.less)

    def __le__(self, value: float) -> Predicate:
        return self._compared(value, np.less_equal)

    def __gt__(self, value: float) -> Predicate:
        return self._compared(value, np.greater)

    def __ge__(self, value: float) -> Predicate:
        return self._compared(value, np.greater_equal)

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return self.is_in([value])

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return ~self.is_in([value]) & ~self.is_missing()

    def between(self, low: float, high: float) -> Predicate:
        """low <= value <= high."""
        return (self >= low) & (self <= high)

    def is_in(self, values: Sequence[object]) -> Predicate:
        """The value is one of these, compared by labels: 1, 1.0 and "1" are one."""
        listed: list[object] = []
        if not isinstance(values, str | bytes):
            listed = [value.item() if isinstance(value, np.generic) else value for value in values]
        if not listed or any(label(value) is None for value in listed):
            raise InvalidParameter(
                f"is_in needs a non-empty list without missing values (lists, NaN, '' and 'nan' are), got {values!r}."
            )
        return _Listed(self.name, labels_of(listed))

    def is_missing(self) -> Predicate:
        """There is no value."""
        return _Missing(self.name)


def column(name: str) -> ColumnReference:
    """A column of the table to be counted."""
    return ColumnReference(name)


def _predicate(value: object) -> Predicate:
    if not isinstance(value, Predicate):
        raise InvalidParameter(f"& and | join predicates; got {value!r}. Put comparisons in parentheses.")
    return value


@dataclass(frozen=True, kw_only=True, eq=False)
class RowQueries:
    """Checked queries over one table, ready to be counted."""

    names: tuple[str, ...]
    queries: tuple[Any, ...]
    table: Table
    sql: SqlCounter | None
    written: Mapping[int, str]

    @classmethod
    def of(
        cls, queries: Mapping[str, Any] | Sequence[Any], table: Table, schema: Schema | None
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
            schema.validate(table.names)
        texts = {i: query for i, query in enumerate(named.values()) if isinstance(query, str)}
        sql = SqlCounter(table.names, schema) if texts else None
        written = {i: sql.predicate(text) for i, text in texts.items()} if sql is not None else {}
        checked = tuple(_checked(name, query, table) for name, query in named.items())
        return cls(names=tuple(named), queries=checked, table=table, sql=sql, written=written)

    def count(self, grid: float | None = None, touched: int | None = None) -> Counts:
        """Exact counts (private); with a grid, a power of two up to 1, every row's value is rounded to it first.

        Sums of multiples of the grid are then exact, in whatever order the rows are added. Of a row that satisfies
        more queries than `touched` only the first so many count, which is what the noise was made for.
        """
        totals = np.zeros(len(self.names))
        if touched is not None and touched < len(self.names):
            step = max(1, CELLS // len(self.names))
            for start in range(0, len(self.table), step):
                values = _bounded(self._values(slice(start, start + step)), grid)
                totals += np.where(np.cumsum(values != 0, axis=1) <= touched, values, 0.0).sum(axis=0)
            return totals
        for i, query in enumerate(self.queries):
            if isinstance(query, np.ndarray):
                totals[i] = _bounded(query, grid).sum()
        for block in self.table.blocks():
            if self.sql is not None:
                totals[list(self.written)] += self.sql.count(block, list(self.written.values()))
            for i, query in enumerate(self.queries):
                if isinstance(query, Predicate):
                    totals[i] += int(query.holds(block).sum())
                elif callable(query):
                    totals[i] += _bounded(_each_row(query, block), grid).sum()
        return totals

    def _values(self, rows: slice) -> Counts:
        """What every query says of some rows, [rows, queries]."""
        part = self.table.part(rows)
        values = np.zeros((len(part), len(self.names)))
        if self.sql is not None:
            values[:, list(self.written)] = self.sql.holds(part, list(self.written.values()))
        for i, query in enumerate(self.queries):
            if isinstance(query, np.ndarray):
                values[:, i] = query[rows]
            elif isinstance(query, Predicate):
                values[:, i] = query.holds(part)
            elif callable(query):
                values[:, i] = _each_row(query, part)
        return values


def _each_row(query: Callable[[dict[str, Any]], Any], table: Table) -> Counts:
    """A function of rows of plain cells: numbers, texts and None. Its warnings would tell of a row."""
    columns = [table.column(name).plain() for name in table.names]
    rows = (dict(zip(table.names, row, strict=True)) for row in zip(*columns, strict=True))
    with warnings.catch_warnings(action="ignore"):
        return np.array([_answer(query, row) for row in rows], float)


def _numbered(queries: Sequence[Any]) -> dict[str, Any]:
    names = [query if isinstance(query, str) else f"query {i + 1}" for i, query in enumerate(queries)]
    if len(set(names)) < len(names):
        raise InvalidParameter("the list of queries holds one twice; ask each once.")
    return dict(zip(names, queries, strict=True))


def _checked(name: str, query: Any, table: Table) -> Any:
    if isinstance(query, Predicate):
        for column in query.columns():
            table.column(column)
        return query
    if isinstance(query, str) or (callable(query) and not hasattr(query, "__array__")):
        return query
    values = np.asarray(query)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"query {name!r} must be a predicate, a SQL text, a function of one row, or one number per row; "
            f"got {type(query).__name__}."
        )
    if values.size != table.n_rows:
        raise InvalidParameter(f"query {name!r} has {values.size} values for a table of {table.n_rows} rows.")
    return np.asarray(values, float)


def _answer(query: Callable[[dict[str, Any]], Any], row: dict[str, Any]) -> float:
    """A function that fails on a row answers 0 there: an error would tell about that row."""
    try:
        return float(query(row))
    except KeyboardInterrupt:  # a user's, not a row's
        raise
    except BaseException:
        return 0.0


def _bounded(values: NDArray[Any], grid: float | None) -> NDArray[Any]:
    """Answers in [0, 1]; what is outside is clipped, silently: an error would tell about a row."""
    answers = np.asarray(np.clip(np.nan_to_num(np.asarray(values, float), nan=0.0), 0.0, 1.0))
    return answers if grid is None else np.asarray(np.rint(answers / grid) * grid)
