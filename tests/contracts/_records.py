"""Builders of tables from raw records, and cells that have caused trouble."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from dplangevin.data.dask import delayed_partitions
from dplangevin.tables import Table, TableFiles, as_column, as_table

NAMES = ("number", "kind", "zip", "label")
Record = Sequence[Any]

CELLS: list[Any] = [
    None, float("nan"), "", "nan", "NaN", 10**400, -(10**400), 2**63, 2**53 + 1, 1j, 2 + 0j, b"1", b"\xff", b"a",
    True, False, "True", "false", Decimal("1.10"), Decimal("NaN"), date(2020, 1, 1), datetime(2020, 1, 1),
    datetime(2020, 1, 1, 5, 30, tzinfo=UTC), "2020-01-01 00:00:00", 1, 1.0, "1", "1.0", "01", " 1", 2, 0, -0.0, 0.5,
    "0.5", float("inf"), float("-inf"), "inf", "1e400", "?", "a", "b", "A", " a", "02139", "2139", 2139, "1_000", "+1",
    "\ud800", '"', 'a"b', '"a', "a,b", ",", "\ufeff", "\ufeff1", "\0", "a\0", "é", "x" * 300, [1], {"a": 1}, "1j",
]  # fmt: skip


class Unbuildable(Exception):
    """The container itself refuses these records: there is no table to read."""


def _built(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except BaseException as error:  # polars panics are no Exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Unbuildable from None


def _columns(records: Sequence[Record], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [record[j] for record in records] for j, name in enumerate(names)}


def _text(records: Sequence[Record], names: Sequence[str]) -> bytes:
    """Records as lines, as Python's csv writes them; a line break inside a cell is not a record of such a file."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(names)
    for record in records:
        writer.writerow(["" if cell is None else _word(cell) for cell in record])
    return lines.getvalue().encode("utf-8", "surrogatepass")


def _word(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return cell.decode("latin-1")
    return "9" * 400 if isinstance(cell, int) and abs(cell) > 10**300 else cell


def _raw_text(records: Sequence[Record], names: Sequence[str]) -> bytes:
    """Lines with nothing quoted or escaped: stray quotes, surplus and short lines, bytes that are no text."""
    lines = [",".join(names).encode()]
    for record in records:
        cells = [
            cell if isinstance(cell, bytes) else str(_word(cell)).encode("utf-8", "replace")
            for cell in record
        ]
        lines.append(b",".join(cells).replace(b"\n", b" "))
    return b"\n".join(lines)


def by_list(records: Sequence[Record], names: Sequence[str], _: Path) -> Table:
    return as_table([list(record) for record in records], names)


def by_dicts(records: Sequence[Record], names: Sequence[str], _: Path) -> Table:
    return as_table([dict(zip(names, record, strict=True)) for record in records], names)


def by_array(records: Sequence[Record], names: Sequence[str], _: Path) -> Table:
    """A column of its own array each: NumPy merges the types of a column's cells."""
    arrays = {name: _built(lambda v=values: np.array(v)) for name, values in _columns(records, names).items()}
    if any(array.ndim != 1 for array in arrays.values()):
        raise Unbuildable
    return Table({name: as_column(array, name) for name, array in arrays.items()}, len(records))


def by_pandas(records: Sequence[Record], names: Sequence[str], _: Path) -> Table:
    return as_table(_built(lambda: pd.DataFrame(_columns(records, names))))


def by_nullable(records: Sequence[Record], names: Sequence[str], _: Path) -> Table:
    return as_table(_built(lambda: pd.DataFrame(_columns(records, names)).convert_dtypes()))


def by_polars(records: Sequence[Record], names: Sequence[str], _: Path) -> Table:
    return as_table(_built(lambda: pl.DataFrame(_columns(records, names))))


def by_arrow(records: Sequence[Record], names: Sequence[str], _: Path) -> Table:
    return as_table(_built(lambda: pa.table(_columns(records, names))))


def by_csv(records: Sequence[Record], names: Sequence[str], folder: Path) -> Table:
    (folder / "t.csv").write_bytes(_built(lambda: _text(records, names)))
    return TableFiles(folder / "t.csv").read_table()


def by_raw_csv(records: Sequence[Record], names: Sequence[str], folder: Path) -> Table:
    (folder / "r.csv").write_bytes(_raw_text(records, names))
    return TableFiles(folder / "r.csv").read_table()


def by_parquet(records: Sequence[Record], names: Sequence[str], folder: Path) -> Table:
    """In row groups of two, so that types would be guessed again and again."""
    table = _built(lambda: pa.table(_columns(records, names)))
    _built(lambda: pq.write_table(table, folder / "t.parquet", row_group_size=2))
    return TableFiles(folder / "t.parquet").read_table()


def by_dask(records: Sequence[Record], names: Sequence[str], _: Path) -> list[Table]:
    """Partitions of two records, each read on its own as a worker reads it."""
    frame = _built(lambda: pd.DataFrame(_columns(records, names)))
    whole = _built(lambda: dd.from_pandas(frame, chunksize=2, sort=False))
    last = names[-1]
    parts = _built(lambda: delayed_partitions(whole, last, None))
    found = _built(lambda: dask.compute(*((X, y) for X, y, _ in parts), scheduler="synchronous"))
    return [_joined(as_table(X) if len(names) > 1 else Table({}, len(y)), last, y) for X, y in found]


def _joined(table: Table, name: str, values: Any) -> Table:
    cells = {each: table.column(each) for each in table.names}
    return Table({**cells, name: as_column(values, name)}, len(table))


def by_feather(records: Sequence[Record], names: Sequence[str], folder: Path) -> Table:
    table = _built(lambda: pa.table(_columns(records, names)))
    _built(lambda: feather.write_feather(table, folder / "t.feather"))
    return TableFiles(folder / "t.feather").read_table()


BUILDERS = {
    name.removeprefix("by_"): build for name, build in sorted(globals().items()) if name.startswith("by_")
}
