"""The matrix of the reading rule: containers x types of the other cells x odd cells.

A column is built again from raw cells, once as it is and once with one odd cell; what every other cell becomes must be
the same, bit by bit, and nothing may be raised, warned of or printed.
"""

from __future__ import annotations

import array
import enum
import itertools
from collections import UserList, deque
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from dplangevin.tables import CellColumn, TableFiles, as_column, as_table
from dplangevin.tables.cells import DATE_PARTS, DateReading, HashReading
from dplangevin.tables.columns import DerivedColumn
from fuzz._odd_objects import Indexed, Jax, Loud, Raising, Speaking, Tensor, Valued

ROWS, PLACE = 4, 1


class Whole(int):
    """A class of integers."""


class Word(str):
    """A class of texts whose methods are its own."""

    def rstrip(self, *_: Any) -> str:
        raise RuntimeError("SECRET")


class Grade(enum.IntEnum):
    low, high = 0, 1


EAST = timezone(timedelta(hours=2))
BASES: dict[str, list[Any]] = {
    "integers": [0, 1, 2],
    "integers beyond doubles": [2**53 + 1, 2**53 + 3, 1],
    "integers beyond int64": [2**63, 2**63 + 2048, 1],
    "integers beyond uint64": [2**64, 10**400, 1],
    "negative integers": [-1, -(2**63), 0],
    "truth values": [True, False, True],
    "floats": [0.5, 1.0, 0.1],
    "whole floats": [0.0, 1.0, -0.0],
    "infinities": [float("inf"), float("-inf"), 1.0],
    "NaN": [float("nan"), 1.0, 0.0],
    "nulls": [None, 1, 0],
    "only nulls": [None, None, None],
    "mixed numbers": [1, 0.5, True],
    "words": ["a", "b", "no"],
    "integers as texts": ["0", "1", "1"],
    "floats as texts": ["0.0", "1.50", "1e-3"],
    "leading zeros": ["02139", "007", "1"],
    "truths as texts": ["True", "false", "true"],
    "dates as texts": ["2020-01-01", "2020-01-01 00:00:00", "x"],
    "bytes": [b"1", b"a", b"0"],
    "decimals": [Decimal("1.10"), Decimal("0"), Decimal("1")],
    "fractions": [Fraction(1, 3), Fraction(1), Fraction(0)],
    "complex": [1j, 2 + 0j, 1 + 0j],
    "dates": [date(2020, 1, 1), date(2021, 2, 3), date(1999, 1, 1)],
    "times": [datetime(2020, 1, 1), datetime(2020, 1, 1, 5, 30), datetime(2021, 1, 1)],
    "times with zone": [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC)],
    "times of several zones": [datetime(2020, 1, 1, 1, tzinfo=EAST), datetime(2020, 1, 1, tzinfo=UTC)],
    "far dates": [date(1, 1, 1), date(9999, 12, 31), date(1500, 6, 1)],
    "dates in other forms": ["31.1.2026", "2026-01-31T12:30:00+02:00", "20260131"],
    "seconds since 1970": [1_700_000_000, 0, -1],
    "nanoseconds": [pd.Timestamp("2020-01-01T23:59:59.999999999"), pd.Timestamp("1700-01-01")],
    "spans": [timedelta(1), timedelta(0, 5), timedelta(2)],
    "int8": [np.int8(0), np.int8(1), np.int8(-3)],
    "int64": [np.int64(0), np.int64(1), np.int64(2**53 + 1)],
    "uint64": [np.uint64(0), np.uint64(1), np.uint64(2**63)],
    "float16": [np.float16(0.1), np.float16(1), np.float16(0)],
    "float32": [np.float32(0.1), np.float32(1), np.float32(0)],
    "float64": [np.float64(0.1), np.float64(1), np.float64(0)],
    "long doubles": [np.longdouble(1) + np.longdouble(2) ** -60, np.longdouble(1), np.longdouble(0)],
    "NumPy truths": [np.True_, np.False_, np.True_],
    "NumPy texts": [np.str_("1"), np.str_("a"), np.str_("0")],
    "datetime64": [np.datetime64("2020-01-01"), np.datetime64("2021-01-01")],
    "arrays without dimensions": [np.array(0), np.array(1), np.array(1)],
    "float arrays without dimensions": [np.array(0.5), np.array(1.0), np.array(0.0)],
    "arrays of one": [np.array([1]), np.array([0]), np.array([1])],
    "lists of one": [[1], [0], ["a"]],
    "tensors": [Tensor(1), Tensor(0), Tensor(1.5)],
    "JAX scalars": [Jax(1), Jax(0), Jax(1)],
    "indices and floats": [Indexed(1), Valued(0.5), Indexed(0)],
    "own classes": [Whole(1), Word("1"), Grade.high],
}
POISONS: dict[str, Any] = {
    "null": None, "NaN": float("nan"), "NA": pd.NA, "NaT": pd.NaT, "masked": np.ma.masked, "empty text": "",
    "question mark": "?", "text": "abc", "number as text": "1.0", "leading zeros": "007",
    "long digits": "9" * 20_000 + "x", "long text": "x" * 300, "integer": 3, "float": 7.5, "true": True,
    "beyond int64": 2**63, "beyond uint64": 2**64, "huge": 10**400, "negative": -1, "infinity": float("inf"),
    "complex": 1j, "real complex": 2 + 0j, "bytes": b"1", "no UTF-8": b"\xff", "surrogate": "\ud800",
    "zero byte": "a\0", "byte order mark": "\ufeff1", "decimal": Decimal("1.10"), "decimal NaN": Decimal("sNaN"),
    "fraction": Fraction(1, 3), "date": date(2020, 1, 2), "time": datetime(2020, 1, 2, 3, 4, 5),
    "time with zone": datetime(2020, 1, 1, tzinfo=UTC), "clock": time(5, 30), "span": timedelta(1),
    "float32": np.float32(0.1), "long double": np.longdouble("1e400"), "uint64": np.uint64(2**63),
    "far date": date(9999, 12, 31), "far time": datetime(1, 1, 1),
    "time in the east": datetime(2020, 1, 1, tzinfo=EAST),
    "no time": np.datetime64("NaT"),
    "datetime64": np.datetime64("2020-01-01T00:00:00.000000001"), "array of nothing": np.array([]),
    "0-d array": np.array(1), "array of one": np.array([1]), "array of two": np.array([1, 2]), "list": [1],
    "list of two": [1, 2], "dictionary": {"a": 1}, "set": {1}, "tensor": Tensor(1), "index": Indexed(1),
    "loud number": Loud(3.0), "raising object": Raising(), "speaking container": Speaking(),
    "Series": pd.Series([1]), "object": object(),
}  # fmt: skip
"""58 odd cells."""


def _series(cells: list[Any]) -> Any:
    return pd.Series(cells)


def _rows(make: Callable[[Any], Any]) -> Callable[[list[Any]], Any]:
    """A list of rows of one cell."""
    return lambda cells: [make(cell) for cell in cells]


def _array_of_one(cell: Any) -> Any:
    """A row as a typed array of Python's: integers and floats only."""
    return array.array("d" if type(cell) is float else "q", [cell])


def _object_row(cell: Any) -> Any:
    row = np.empty(1, dtype=object)
    row[0] = cell
    return row


def _structured(cells: list[Any]) -> Any:
    return np.array([(cell,) for cell in cells], dtype=[("x", object)])


def _objects(cells: list[Any]) -> Any:
    found = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        found[place] = cell
    return found


COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "own list": UserList,
    "array": np.array,
    "array of objects": _objects,
    "structured array": _structured,
    "column of an array": lambda cells: np.array([[cell] for cell in cells]),
    "Series": _series,
    "Series of objects": lambda cells: pd.Series(cells, dtype=object),
    "nullable Series": lambda cells: pd.Series(cells).convert_dtypes(),
    "Categorical": pd.Categorical,
    "Index": pd.Index,
    "pandas array": pd.array,
    "polars Series": pl.Series,
    "Arrow array": pa.array,
    "chunked Arrow array": lambda cells: pa.chunked_array([pa.array(cells)[:2], pa.array(cells)[2:]]),
    "Arrow dictionary": lambda cells: pa.array(cells).dictionary_encode(),
}
ROW_KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "lists": _rows(lambda cell: [cell]),
    "tuples": _rows(lambda cell: (cell,)),
    "deques": _rows(lambda cell: deque([cell])),
    "dictionaries": _rows(lambda cell: {"x": cell}),
    "arrays": _rows(lambda cell: np.array([cell])),
    "arrays of objects": _rows(_object_row),
    "array.array": _rows(_array_of_one),
    "rows of Series": _rows(lambda cell: pd.Series([cell])),
    "rows of tensors": _rows(lambda cell: Tensor([cell])),
}
FRAMES: dict[str, Callable[[list[Any]], Any]] = {
    "DataFrame": lambda cells: pd.DataFrame({"x": cells}),
    "polars": lambda cells: pl.DataFrame({"x": cells}),
    "Arrow table": lambda cells: pa.table({"x": cells}),
    "dictionary of columns": lambda cells: {"x": cells},
    "dictionary of arrays": lambda cells: {"x": _objects(cells)},
    "polars LazyFrame": lambda cells: pl.LazyFrame({"x": cells}),
    "polars frame of narwhals": lambda cells: nw.from_native(pl.DataFrame({"x": cells})),
    "DuckDB relation of Arrow": lambda cells: _DUCKDB.from_arrow(pa.table({"x": cells})),
}
_DUCKDB = duckdb.connect()
FILES: dict[str, Callable[[list[Any], Path], None]] = {
    "Parquet": lambda cells, path: pq.write_table(pa.table({"x": cells}), path.with_suffix(".parquet")),
    "Feather": lambda cells, path: feather.write_feather(
        pa.table({"x": cells}), path.with_suffix(".feather")
    ),
}
SUFFIX = {"Parquet": ".parquet", "Feather": ".feather"}
CONTAINERS = (*COLUMNS, *ROW_KINDS, *FRAMES, *FILES)
COMPILED = {name for name in CONTAINERS if "rrow" in name or "polars" in name or name in FILES}
_TYPED = {
    "array",
    "column of an array",
    "Series",
    "nullable Series",
    "Categorical",
    "Index",
    "pandas array",
    "DataFrame",
}
_TIMES = {"date", "time", "time with zone", "clock", "span", "far date", "far time", "time in the east"}


def changed_by_container(container: str, base: str, poison: str) -> bool:
    """Whether the container itself makes other values of the base beside this cell, before any reader sees them.

    Single precision and long doubles are written as text or rounded to doubles; Arrow takes numbers beside a time for
    times, and half precision beside an integer for integers; polars drops arrays beside a dictionary. docs/records.md
    says that this is out of reach.
    """
    if container in _TYPED:
        return base in ("float16", "float32", "long doubles")
    if container in COMPILED and "polars" not in container:
        return base == "float16" or (base in ("nulls", "NumPy truths") and poison in _TIMES)
    return "polars" in container and base == "arrays of one" and poison in ("dictionary", "set")


class Unbuildable(Exception):
    """The container itself refuses these cells: there is nothing to read."""


def build(container: str, cells: list[Any], folder: Path) -> Any:
    """What a user would hand over; Unbuildable where the container's library refuses."""
    if container in COMPILED and any(type(cell) in (Raising, Speaking) for cell in cells):
        raise Unbuildable  # their own code ends the process
    try:
        if container in FILES:
            FILES[container](cells, folder / "t")
            return folder / f"t{SUFFIX[container]}"
        return (COLUMNS.get(container) or ROW_KINDS.get(container) or FRAMES[container])(cells)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # polars panics are no Exception
        raise Unbuildable(str(type(error))) from None


def column_of(container: str, given: Any) -> CellColumn:
    """The column as every entry reads it."""
    if container in COLUMNS:
        return as_column(given, "x")
    if container in ROW_KINDS:
        return as_table(given, ["x"]).column("x")
    return (TableFiles(given).read_table() if container in FILES else as_table(given)).column("x")


LISTED = {"1": 0, "0": 1, "a": 2, "0.5": 3}


DERIVED = (
    *(DateReading(part=part, date_format="iso") for part in DATE_PARTS),
    DateReading(part="trend", date_format="day.month.year"),
    DateReading(part="trend", date_format="yyyymmdd"),
    DateReading(part="trend", date_format="unix"),
    HashReading(n_buckets=1000, keeps_text=False),
    HashReading(n_buckets=1000, keeps_text=True),
)


def readings(cells: CellColumn) -> list[tuple[Any, ...]]:
    """Everything that a reader may take from each cell."""
    numbers = cells.numbers()
    people, names = cells.persons()
    return list(
        zip(
            np.where(np.isnan(numbers), np.nan, np.asarray(numbers, np.float64) + 0.0).view(np.int64),
            cells.texts(),
            cells.texts(text=True),
            [names[place] if place >= 0 else None for place in people],
            cells.codes(LISTED),
            cells.codes(LISTED, text=True),
            *(
                [None if v != v else v for v in DerivedColumn(cells, reading).numbers()]
                for reading in DERIVED
            ),
            strict=True,
        )
    )


def base_cells(base: str, rows: int = ROWS) -> list[Any]:
    return list(itertools.islice(itertools.cycle(BASES[base]), rows))


def with_poison(base: str, poison: str, rows: int = ROWS, place: int = PLACE) -> list[Any]:
    cells = base_cells(base, rows)
    cells[place] = POISONS[poison]
    return cells


def product(seed: int | None = None, most: int | None = None) -> Iterator[tuple[str, str, str]]:
    """Container, base and poison: all of them, or so many in a fixed random order."""
    every = list(itertools.product(CONTAINERS, BASES, POISONS))
    if seed is not None:
        every = [every[i] for i in np.random.default_rng(seed).permutation(len(every))]
    return iter(every[:most])
