"""SQL predicates over tables of the reading room, counted by DuckDB.

What a record can influence is only its own row: types come from the schema, cells are read before DuckDB sees them, and
expressions are not rewritten with statistics of the data, nor moved out of the TRY around them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.queries.optional import optional
from dplangevin.queries.sql_predicate import checked_predicate
from dplangevin.schema.columns import CategoricalColumn, Column
from dplangevin.schema.schema import Schema
from dplangevin.tables import Cells, Table

_KEPT_OPTIMIZERS = ("unused_columns", "column_lifetime")
_PER_QUERY = 500


class SqlCounter:
    """Checked predicates in a private in-memory DuckDB, with bounded memory and no file in reach.

    Numbers are DOUBLE; a column whose categories are all numbers too; one of truth values is BOOLEAN; any other is
    VARCHAR, where a listed category is written as in the schema and any other cell as its label.

    Parameters
    ----------
    names : the columns of the table. schema : gives each column its type; required.
    memory : DuckDB's memory limit.
    """

    def __init__(
        self,
        names: Sequence[str],
        schema: Schema | None,
        *,
        memory: str = "1GB",
        threads: int | None = None,
    ) -> None:
        if schema is None:
            raise InvalidParameter(
                "SQL predicates need a schema: the type of a column must not be guessed from private values. Give "
                "schema=..., or build the query with column(...)."
            )
        schema.validate(names)
        target = [schema.target] if schema.target is not None and schema.target.name in names else []
        self._columns: list[Column] = [*schema.columns, *target]
        duckdb, self._arrow = optional("duckdb", "SQL predicates"), optional("pyarrow", "SQL predicates")
        self._errors = duckdb.Error
        settings: dict[str, Any] = {} if threads is None else {"threads": int(threads)}
        self._link = duckdb.connect(":memory:", config=settings)
        try:
            self._link.execute(f"SET memory_limit = {_text(memory)}")
            self._link.execute("SET enable_external_access = false")
            listed = self._link.execute("SELECT name FROM duckdb_optimizers()").fetchall()
            dropped = ",".join(name for (name,) in listed if name not in _KEPT_OPTIMIZERS)
            self._link.execute(f"SET disabled_optimizers = {_text(dropped)}")
            self._link.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            self._link.close()
            raise InvalidParameter(f"DuckDB cannot be used: {str(error).splitlines()[0]}.") from None
        empty = np.empty(0, dtype=object)
        self._register({column.name: _typed(self._arrow, column, empty) for column in self._columns})

    def __enter__(self) -> SqlCounter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the engine."""
        self._link.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that predicates may use."""
        return tuple(column.name for column in self._columns)

    def predicate(self, text: str) -> str:
        """The predicate, checked on its parse tree and on the types of the columns."""
        try:
            written = checked_predicate(text, self.names, self._link)
            (row,) = self._link.execute(f"DESCRIBE SELECT {written} AS answer FROM data").fetchall()
        except self._errors as error:
            reason = str(error).splitlines()[0]
            raise InvalidParameter(f"the SQL {text!r} is refused: {reason}. Nothing was spent.") from None
        if row[1] != "BOOLEAN":
            raise InvalidParameter(
                f"the SQL {text!r} is {row[1]}, not true or false; compare it with something."
            )
        return written

    def count(self, table: Table, written: Sequence[str]) -> NDArray[np.int64]:
        """Exact counts of checked predicates over a table; a predicate that fails on a row is false there."""
        self._show(table)
        found: list[int] = []
        for start in range(0, len(written), _PER_QUERY):
            batch = written[start : start + _PER_QUERY]
            counts = ", ".join(f"count(*) FILTER (WHERE coalesce(TRY({text}), false))" for text in batch)
            found += self._run(partial(self._row, f"SELECT {counts} FROM data"))
        return np.asarray(found, np.int64)

    def holds(self, table: Table, written: Sequence[str]) -> NDArray[np.bool_]:
        """Which rows satisfy which predicates, [rows, predicates], as `count` counts them."""
        self._show(table)
        found = np.zeros((len(table), len(written)), bool)
        for start in range(0, len(written), _PER_QUERY):
            batch = written[start : start + _PER_QUERY]
            answers = ", ".join(f"coalesce(TRY({text}), false) AS a{i}" for i, text in enumerate(batch))
            columns = self._run(partial(self._columns_of, f"SELECT {answers} FROM data"))
            for i in range(len(batch)):
                found[:, start + i] = columns[f"a{i}"]
        return found

    def _show(self, table: Table) -> None:
        """The rows to DuckDB, as the schema types them."""
        self._register(
            {
                column.name: _typed(self._arrow, column, _values(column, table.column(column.name)))
                for column in self._columns
            }
        )

    def _register(self, columns: dict[str, Any]) -> None:
        self._link.register("data", self._arrow.table(columns))

    def _row(self, query: str) -> tuple[int, ...]:
        return tuple(self._link.execute(query).fetchall()[0])  # all: an open result would lock the link

    def _columns_of(self, query: str) -> Any:
        return self._link.execute(query).fetchnumpy()

    def _run(self, work: Callable[[], Any]) -> Any:
        """Errors of the engine may quote values of records, so their text is dropped."""
        try:
            return work()
        except self._errors as error:
            raise InvalidParameter(
                f"the table could not be read ({type(error).__name__}); nothing was released. Check the file by hand."
            ) from None


def _values(column: Column, cells: Cells) -> NDArray[Any]:
    """The cells as the schema types them; NaN or None where there is nothing."""
    if not isinstance(column, CategoricalColumn) or column.numeric:
        return np.asarray(cells.numbers(), np.float64)
    if column.truth:
        return _truths(np.asarray(cells.numbers()))
    written = {word: str(column.categories[place]) for word, place in column.listed.items()}
    return cells.texts(written, text=column.text)


def _truths(numbers: NDArray[Any]) -> NDArray[Any]:
    found = np.full(len(numbers), None, dtype=object)
    found[numbers == 1], found[numbers == 0] = True, False
    return found


def _typed(pa: Any, column: Column, values: NDArray[Any]) -> Any:
    if not isinstance(column, CategoricalColumn) or column.numeric:
        return pa.array(values, pa.float64(), from_pandas=True)
    return pa.array(values, pa.bool_() if column.truth else pa.string())


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
