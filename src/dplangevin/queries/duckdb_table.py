"""Tables read by DuckDB: Parquet and CSV files, and SQL predicates over tables in memory.

What a record can influence is only its own row: types come from the schema or the file's metadata and are never guessed
from the values; expressions are not rewritten with statistics of the data, nor moved out of the TRY around them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.queries.axes import Axis, CategoryAxis, NumericAxis
from dplangevin.queries.marginals import Marginals
from dplangevin.queries.optional import optional
from dplangevin.queries.sql_predicate import checked_predicate
from dplangevin.schema.columns import CategoricalColumn, Column
from dplangevin.schema.schema import Schema

BATCH = 2**17
_KEPT_OPTIMIZERS = ("unused_columns", "column_lifetime")
_PER_QUERY = 500
Progress = Callable[[int], None]


class DuckTable:
    """One table named `data` in a private in-memory DuckDB, with bounded memory and no other file in reach.

    Parameters
    ----------
    source : path of a Parquet or CSV file (or a pattern such as part-*.parquet), or a DataFrame.
    schema : gives each column its type; required for CSV, whose types would otherwise be guessed from the data.
    memory : DuckDB's memory limit.
    """

    def __init__(
        self, source: Any, schema: Schema | None = None, *, memory: str = "1GB", threads: int | None = None
    ) -> None:
        duckdb = optional("duckdb", "SQL predicates and tables on disk")
        self._errors = duckdb.Error
        settings: dict[str, Any] = {} if threads is None else {"threads": int(threads)}
        self._link = duckdb.connect(":memory:", config=settings)
        try:
            self._link.execute(f"SET memory_limit = {_text(memory)}")
            self._link.execute("SET preserve_insertion_order = false")
            self._open(source, schema)
            self._link.execute("SET enable_external_access = false")
            listed = self._link.execute("SELECT name FROM duckdb_optimizers()").fetchall()
            dropped = ",".join(name for (name,) in listed if name not in _KEPT_OPTIMIZERS)
            self._link.execute(f"SET disabled_optimizers = {_text(dropped)}")
            self._link.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            self._link.close()
            raise InvalidParameter(f"the table cannot be opened: {str(error).splitlines()[0]}.") from None

    def __enter__(self) -> DuckTable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the table."""
        self._link.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that predicates may use."""
        return tuple(row[0] for row in self._link.execute("DESCRIBE data").fetchall())

    def _open(self, source: Any, schema: Schema | None) -> None:
        if isinstance(source, (str, Path)):
            self._link.execute(f"CREATE VIEW raw AS SELECT * FROM {self._reader(str(source), schema)}")
        else:
            self._link.register("raw", _plain_texts(source))
        present = [row[0] for row in self._link.execute("DESCRIBE raw").fetchall()]
        if schema is None:
            self._link.execute("CREATE VIEW data AS SELECT * FROM raw")
            return
        schema.validate(present)
        columns = [
            *schema.columns,
            *([schema.target] if schema.target and schema.target.name in present else []),
        ]
        casts = ", ".join(f"{_typed(column)} AS {_name(column.name)}" for column in columns)
        self._link.execute(f"CREATE VIEW data AS SELECT {casts} FROM raw")

    def _reader(self, path: str, schema: Schema | None) -> str:
        self._link.execute(f"SET allowed_paths = [{_text(path)}]")
        if any(mark in path for mark in "*?["):
            self._link.execute(f"SET allowed_directories = [{_text(str(Path(path).parent))}]")
        elif not Path(path).is_file():
            raise InvalidParameter(f"there is no file {path!r}.")
        suffix = "".join(Path(path).suffixes[-2:]).lower()
        if ".parquet" in suffix:
            return f"read_parquet({_text(path)})"
        if ".csv" in suffix or ".tsv" in suffix:
            if schema is None:
                raise InvalidParameter(
                    "a CSV file needs a schema: its types must not be guessed from private values."
                )
            mark = "'\\t'" if ".tsv" in suffix else "','"
            first = _header(path, "\t" if ".tsv" in suffix else ",")
            typed = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in first)
            return (
                f"read_csv({_text(path)}, auto_detect = false, header = true, delim = {mark}, quote = '\"', "
                f"escape = '\"', columns = {{{typed}}}, ignore_errors = true, null_padding = true)"
            )
        raise InvalidParameter(f"the file {path!r} must end in .parquet, .csv or .tsv.")

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

    def count_predicates(self, written: Sequence[str]) -> NDArray[np.int64]:
        """Exact counts of checked predicates in one pass (several beyond 500); a predicate that fails is false."""
        found: list[int] = []
        for start in range(0, len(written), _PER_QUERY):
            batch = written[start : start + _PER_QUERY]
            counts = ", ".join(f"count(*) FILTER (WHERE coalesce(TRY({text}), false))" for text in batch)
            found += self._run(partial(self._row, f"SELECT {counts} FROM data"))
        return np.asarray(found, np.int64)

    def count_marginals(self, marginals: Marginals, progress: Progress | None = None) -> NDArray[np.int64]:
        """Exact counts of every cell in one pass: DuckDB encodes the columns in batches, numpy adds up the cells."""
        present = set(self.names)
        if absent := [name for name in marginals.axes if name not in present]:
            raise InvalidParameter(
                f"schema mismatch: the table has no column {', '.join(map(repr, absent))}."
            )
        codes = ", ".join(f"{self._code(axis)} AS {_name(name)}" for name, axis in marginals.axes.items())
        counters = marginals.empty()

        def stream() -> None:
            done = 0
            found = self._link.sql(f"SELECT {codes} FROM data")
            reader = found.to_arrow_reader if hasattr(found, "to_arrow_reader") else found.fetch_record_batch
            for batch in reader(BATCH):
                arrays = (batch.column(i).to_numpy(zero_copy_only=False) for i in range(batch.num_columns))
                marginals.add(
                    counters, {n: a.astype(np.int64) for n, a in zip(marginals.axes, arrays, strict=True)}
                )
                done += batch.num_rows
                if progress is not None:
                    progress(done)

        optional("pyarrow", "counting marginals of a file")
        self._run(stream)
        return counters

    def _row(self, query: str) -> tuple[int, ...]:
        return tuple(self._link.execute(query).fetchone())

    def _run(self, work: Callable[[], Any]) -> Any:
        """Errors of the engine may quote values of records, so their text is dropped."""
        try:
            return work()
        except self._errors as error:
            raise InvalidParameter(
                f"the table could not be read ({type(error).__name__}); nothing was released. Check the file by hand."
            ) from None

    def _code(self, axis: Axis) -> str:
        """SQL for the cell of a row, equal to what the axis computes for tables in memory."""
        if isinstance(axis, NumericAxis):
            value = f"TRY_CAST({_name(axis.name)} AS DOUBLE)"
            missing, tree = f"{value} IS NULL OR isnan({value})", _interval(value, axis.edges[1:-1], 0)
        elif isinstance(axis, CategoryAxis) and axis.column.numeric:
            value = f"TRY_CAST({_name(axis.name)} AS DOUBLE)"
            cases = (f"WHEN {float(c):.17e} THEN {i}" for i, c in enumerate(axis.column.categories))
            missing = f"{value} IS NULL OR isnan({value})"
            tree = f"CASE {value} {' '.join(cases)} ELSE {axis.other_code} END"
        else:
            assert isinstance(axis, CategoryAxis)
            value = f"CAST({_name(axis.name)} AS VARCHAR)"
            value = f"lower({value})" if axis.column.truth else value
            kind = _name(f"cells of {axis.name}")
            listed = ", ".join(_text(text) for text in axis.column.texts)
            self._link.execute(f"CREATE TYPE {kind} AS ENUM ({listed})")
            missing = f"{value} IS NULL"
            tree = f"coalesce(CAST(enum_code(TRY_CAST({value} AS {kind})) AS INTEGER), {axis.other_code})"
        return f"CAST(CASE WHEN {missing} THEN {axis.missing_code} ELSE {tree} END AS INTEGER)"


def _interval(value: str, edges: Sequence[float], first: int) -> str:
    """A balanced tree of comparisons: the number of edges at or below the value."""
    if not edges:
        return str(first)
    middle = len(edges) // 2
    low, high = (
        _interval(value, edges[:middle], first),
        _interval(value, edges[middle + 1 :], first + middle + 1),
    )
    return f"CASE WHEN {value} < {edges[middle]:.17e} THEN {low} ELSE {high} END"


def _typed(column: Column) -> str:
    kind = "DOUBLE"
    if isinstance(column, CategoricalColumn) and not column.numeric:
        kind = "BOOLEAN" if column.truth else "VARCHAR"
    return f"TRY_CAST({_name(column.name)} AS {kind})"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _header(path: str, mark: str) -> list[str]:
    """The names in the first line of the first file; the rest of the file is not looked at."""
    first = sorted(glob(path))[0] if any(sign in path for sign in "*?[") else path
    with open(first, encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file, delimiter=mark), [])
    if not names or len(set(names)) < len(names) or not all(names):
        raise InvalidParameter(f"the first line of {path!r} must name every column once.")
    return names


def _plain_texts(table: Any) -> Any:
    """Columns of Python objects as text: DuckDB would guess their type from a sample of the values."""
    if type(table).__module__.split(".")[0] == "pandas":
        loose = [name for name in table.columns if table[name].dtype == object]
        return table.astype(dict.fromkeys(loose, "string")) if loose else table
    return table.collect() if hasattr(table, "collect") else table
