"""Queries over a table: each gives one value in [0, 1] per row, from that row alone.

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
from dplangevin.queries.sql import SqlCounter
from dplangevin.schema.schema import Schema
from dplangevin.tables import MISSING, Table, label_indices, read_label, read_number

Booleans = NDArray[np.bool_]
Counts = NDArray[np.float64]
MAX_CELLS_AT_ONCE = 2**20
"""Answers in memory at a time where the counts that a row touches are limited."""


class Predicate(ABC):
    """A condition that is true or false for each row on its own; a comparison with a missing value is false.

    Subclasses outside this module are refused: they could read several rows, or count a row twice.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        if cls.__module__ != __name__:
            raise TypeError(
                "predicates are built with column(...); for anything else pass a function of one row."
            )
        super().__init_subclass__(**keywords)

    @abstractmethod
    def evaluate(self, table: Table) -> Booleans:
        """Return which of the rows satisfy the predicate."""

    @abstractmethod
    def columns(self) -> frozenset[str]:
        """Return the columns that the predicate reads."""

    def __and__(self, other: Predicate) -> Predicate:
        return _BinaryPredicate(left=self, right=_check_predicate(other), both=True)

    def __or__(self, other: Predicate) -> Predicate:
        return _BinaryPredicate(left=self, right=_check_predicate(other), both=False)

    def __invert__(self) -> Predicate:
        return _NegatedPredicate(inner=self)

    def __bool__(self) -> bool:
        raise InvalidParameter("combine predicates with &, | and ~ (and parentheses), not with and, or, not.")


@dataclass(frozen=True, kw_only=True)
class _BinaryPredicate(Predicate):
    left: Predicate
    right: Predicate
    both: bool

    def evaluate(self, table: Table) -> Booleans:
        first, second = self.left.evaluate(table), self.right.evaluate(table)
        return first & second if self.both else first | second

    def columns(self) -> frozenset[str]:
        return self.left.columns() | self.right.columns()


@dataclass(frozen=True, kw_only=True)
class _NegatedPredicate(Predicate):
    inner: Predicate

    def evaluate(self, table: Table) -> Booleans:
        return ~self.inner.evaluate(table)

    def columns(self) -> frozenset[str]:
        return self.inner.columns()


@dataclass(frozen=True, eq=False)
class _ColumnPredicate(Predicate):
    name: str

    def columns(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True, eq=False)
class _ComparisonPredicate(_ColumnPredicate):
    compare: Callable[[Any, Any], Any]
    limit: float

    def evaluate(self, table: Table) -> Booleans:
        return np.asarray(self.compare(table.column(self.name).numbers(), self.limit), bool)


@dataclass(frozen=True, eq=False)
class _MembershipPredicate(_ColumnPredicate):
    label_codes: Mapping[str, int]

    def evaluate(self, table: Table) -> Booleans:
        return np.asarray(table.column(self.name).codes(self.label_codes) >= 0)


class _MissingPredicate(_ColumnPredicate):
    def evaluate(self, table: Table) -> Booleans:
        return np.asarray(table.column(self.name).codes({}) == MISSING)


@dataclass(frozen=True, eq=False)
class ColumnReference:
    """A column by name; comparisons with it are predicates."""

    name: str

    def _compare(self, value: Any, compare: Callable[[Any, Any], Any]) -> Predicate:
        if isinstance(value, bool) or not isinstance(value, Real | Decimal) or value != value:
            raise InvalidParameter(
                f"column {self.name!r} can be ordered against a number only, got {value!r}."
            )
        return _ComparisonPredicate(self.name, compare, read_number(value))

    def __lt__(self, value: float) -> Predicate:
        return self._compare(value, np.less)

    def __le__(self, value: float) -> Predicate:
        return self._compare(value, np.less_equal)

    def __gt__(self, value: float) -> Predicate:
        return self._compare(value, np.greater)

    def __ge__(self, value: float) -> Predicate:
        return self._compare(value, np.greater_equal)

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return self.is_in([value])

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return ~self.is_in([value]) & ~self.is_missing()

    def between(self, low: float, high: float) -> Predicate:
        """Return the predicate low <= value <= high."""
        return (self >= low) & (self <= high)

    def is_in(self, values: Sequence[object]) -> Predicate:
        """Return the predicate that the value is one of these, compared by labels: 1, 1.0 and "1" are equal."""
        listed: list[object] = []
        if not isinstance(values, str | bytes):
            listed = [value.item() if isinstance(value, np.generic) else value for value in values]
        if not listed or any(read_label(value) is None for value in listed):
            raise InvalidParameter(
                f"is_in needs a non-empty list without missing values (None, NaN, '', 'nan', lists), got {values!r}."
            )
        return _MembershipPredicate(self.name, label_indices(listed))

    def is_missing(self) -> Predicate:
        """Return the predicate that the value is missing."""
        return _MissingPredicate(self.name)


def column(name: str) -> ColumnReference:
    """Return a reference to a column of the table, for predicates."""
    return ColumnReference(name)


def _check_predicate(value: object) -> Predicate:
    if not isinstance(value, Predicate):
        raise InvalidParameter(f"& and | combine predicates; got {value!r}. Put comparisons in parentheses.")
    return value


@dataclass(frozen=True, kw_only=True, eq=False)
class RowQueries:
    """Checked queries over one table.

    predicates : the checked SQL texts, by the index of their query.
    """

    names: tuple[str, ...]
    queries: tuple[Any, ...]
    table: Table
    sql: SqlCounter | None
    predicates: Mapping[int, str]

    @classmethod
    def from_queries(
        cls, queries: Mapping[str, Any] | Sequence[Any], table: Table, schema: Schema | None
    ) -> RowQueries:
        """Check every query without reading a value of the table."""
        if isinstance(queries, str) or not isinstance(queries, (Mapping, Sequence)):
            raise InvalidParameter(
                f"queries must be a list or a mapping of named queries, got {type(queries).__name__}."
            )
        named = dict(queries) if isinstance(queries, Mapping) else _number_queries(queries)
        if not named:
            raise InvalidParameter("the list of queries is empty; give at least one.")
        if schema is not None:
            schema.validate(table.names)
        texts = {i: query for i, query in enumerate(named.values()) if isinstance(query, str)}
        sql = SqlCounter(table.names, schema) if texts else None
        predicates = {i: sql.check_predicate(text) for i, text in texts.items()} if sql is not None else {}
        checked = tuple(_check_query(name, query, table) for name, query in named.items())
        return cls(names=tuple(named), queries=checked, table=table, sql=sql, predicates=predicates)

    def count(self, grid: float | None = None, touched: int | None = None) -> Counts:
        """Return exact counts (private); with a grid, a power of two up to 1, round every row's value to it first.

        Sums of multiples of the grid are then exact, in any order of the rows. Of a row that satisfies more queries
        than `touched` only the first so many count, as the noise was calibrated for.
        """
        totals = np.zeros(len(self.names))
        if touched is not None and touched < len(self.names):
            step = max(1, MAX_CELLS_AT_ONCE // len(self.names))
            for start in range(0, len(self.table), step):
                values = _clip_answers(self._evaluate_rows(slice(start, start + step)), grid)
                totals += np.where(np.cumsum(values != 0, axis=1) <= touched, values, 0.0).sum(axis=0)
            return totals
        for i, query in enumerate(self.queries):
            if isinstance(query, np.ndarray):
                totals[i] = _clip_answers(query, grid).sum()
        for block in self.table.blocks():
            if self.sql is not None:
                totals[list(self.predicates)] += self.sql.count(block, list(self.predicates.values()))
            for i, query in enumerate(self.queries):
                if isinstance(query, Predicate):
                    totals[i] += int(query.evaluate(block).sum())
                elif callable(query):
                    totals[i] += _clip_answers(_evaluate_rowwise(query, block), grid).sum()
        return totals

    def _evaluate_rows(self, rows: slice) -> Counts:
        """Return the values of all queries for some rows, [rows, queries]."""
        part = self.table.slice(rows)
        values = np.zeros((len(part), len(self.names)))
        if self.sql is not None:
            values[:, list(self.predicates)] = self.sql.evaluate(part, list(self.predicates.values()))
        for i, query in enumerate(self.queries):
            if isinstance(query, np.ndarray):
                values[:, i] = query[rows]
            elif isinstance(query, Predicate):
                values[:, i] = query.evaluate(part)
            elif callable(query):
                values[:, i] = _evaluate_rowwise(query, part)
        return values


def _evaluate_rowwise(query: Callable[[dict[str, Any]], Any], table: Table) -> Counts:
    """Apply a function to rows of plain cells (numbers, texts, None); its warnings could reveal a row, so none show."""
    columns = [table.column(name).plain_values() for name in table.names]
    rows = (dict(zip(table.names, row, strict=True)) for row in zip(*columns, strict=True))
    with warnings.catch_warnings(action="ignore"):
        return np.array([_answer_row(query, row) for row in rows], float)


def _number_queries(queries: Sequence[Any]) -> dict[str, Any]:
    names = [query if isinstance(query, str) else f"query {i + 1}" for i, query in enumerate(queries)]
    if len(set(names)) < len(names):
        raise InvalidParameter("the list of queries contains one twice; list each once.")
    return dict(zip(names, queries, strict=True))


def _check_query(name: str, query: Any, table: Table) -> Any:
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


def _answer_row(query: Callable[[dict[str, Any]], Any], row: dict[str, Any]) -> float:
    """Return the query's value, or 0 where the query raises: an error would reveal something about the row."""
    try:
        return float(query(row))
    except KeyboardInterrupt:  # comes from the user, not from the row
        raise
    except BaseException:
        return 0.0


def _clip_answers(values: NDArray[Any], grid: float | None) -> NDArray[Any]:
    """Clip answers to [0, 1] silently, since an error would reveal something about a row; round them to the grid."""
    answers = np.asarray(np.clip(np.nan_to_num(np.asarray(values, float), nan=0.0), 0.0, 1.0))
    return answers if grid is None else np.asarray(np.rint(answers / grid) * grid)
