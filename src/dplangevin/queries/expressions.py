"""Predicates built in Python: functions of one row by construction.

>>> adult = column("age") >= 18
>>> query = adult & column("job").is_in(["nurse", "teacher"]) & ~column("gain").is_missing()
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.tables import MISSING, Cells, Table, label, labels_of, number

Booleans = NDArray[np.bool_]


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


@dataclass(frozen=True, kw_only=True)
class _Test(Predicate):
    name: str
    test: Callable[[Cells], Booleans]

    def holds(self, table: Table) -> Booleans:
        return self.test(table.column(self.name))

    def columns(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True, eq=False)
class ColumnReference:
    """A column by name; comparisons with it are predicates."""

    name: str

    def _compared(self, value: Any, compare: Callable[[Any, Any], Any]) -> Predicate:
        if isinstance(value, bool) or not isinstance(value, Real | Decimal) or value != value:
            raise InvalidParameter(
                f"column {self.name!r} can be ordered against a number only, got {value!r}."
            )
        limit = number(value)

        def test(cells: Cells) -> Booleans:
            return np.asarray(compare(cells.numbers(), limit), bool)

        return _Test(name=self.name, test=test)

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
        listed = [] if isinstance(values, str | bytes) else [_plain(value) for value in values]
        if not listed or any(label(value) is None for value in listed):
            raise InvalidParameter(
                f"is_in needs a non-empty list without missing values (lists, NaN, '' and 'nan' are), got {values!r}."
            )
        wanted = labels_of(listed)

        def test(cells: Cells) -> Booleans:
            return np.asarray(cells.codes(wanted) >= 0)

        return _Test(name=self.name, test=test)

    def is_missing(self) -> Predicate:
        """There is no value."""
        return _Test(name=self.name, test=lambda cells: np.asarray(cells.codes({}) == MISSING))


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def column(name: str) -> ColumnReference:
    """A column of the table to be counted."""
    return ColumnReference(name)


def _predicate(value: object) -> Predicate:
    if not isinstance(value, Predicate):
        raise InvalidParameter(f"& and | join predicates; got {value!r}. Put comparisons in parentheses.")
    return value
