"""Tables rebuilt from raw records, each kind as its library would build it: types are guessed anew every time.

A slice of a table keeps the table's types and hides what one record does to them; a table that is built again does not.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin.audit.troublemakers import LONG, SHORT
from dplangevin.errors import InvalidParameter

Record = Mapping[str, Any]
Build = Callable[[Sequence[Record], Path, int | None], Any]


def records_of(table: Any, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The records of a list of mappings, an array, a pandas, polars or Arrow table, or a CSV or Parquet file."""
    if isinstance(table, str | os.PathLike):
        return _from_file(Path(table))
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise InvalidParameter(f"table must have rows and columns, got {table.ndim} dimensions.")
        fits = len(names) == table.shape[1]
        known = list(names) if fits else [str(position) for position in range(table.shape[1])]
        return [dict(zip(known, row, strict=True)) for row in table.tolist()]
    if hasattr(table, "to_pylist"):
        rows = table.to_pylist()
    elif hasattr(table, "to_dicts"):
        rows = table.to_dicts()
    elif hasattr(table, "to_dict"):
        rows = table.to_dict("records")
    else:
        rows = table
    if not isinstance(rows, Sequence) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidParameter(
            "table must be a list of records (name to cell), an array, a pandas, polars or Arrow table, or a CSV or "
            "Parquet file, with at least one row."
        )
    return [{str(name): cell for name, cell in row.items()} for row in rows]


def _from_file(path: Path) -> list[dict[str, Any]]:
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            import pyarrow.parquet

            return records_of(pyarrow.parquet.read_table(path))
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [dict(row) for row in csv.DictReader(file, restval="", restkey=LONG)]
    except ImportError:
        raise InvalidParameter('Parquet needs pyarrow: pip install "dplangevin[tables]".') from None
    except OSError as error:
        raise InvalidParameter(f"the table {path} cannot be read: {error.strerror}.") from None
    except Exception:  # the parser's own message would show cells
        raise InvalidParameter(f"{path} could not be read as a CSV or Parquet table.") from None
    return records_of([{name: _typed(cell) for name, cell in row.items() if name != LONG} for row in rows])


def _typed(text: str) -> Any:
    """The number whose own text this is, None for an empty cell, else the text (so 02139 stays text)."""
    if text == "":
        return None
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return text


def _array(records: Sequence[Record], folder: Path, odd: int | None) -> Any:
    rows = [list(record.values()) for record in records]
    try:
        array = np.array(rows)
        if array.ndim == 2:
            return array
    except (ValueError, OverflowError, UnicodeError):
        pass
    return np.array(rows, dtype=object)


def _pandas(records: Sequence[Record], folder: Path, odd: int | None) -> Any:
    import pandas as pd

    def series(cells: list[Any]) -> Any:
        try:
            return pd.Series(cells)
        except Exception:  # pandas' own texts hold no lone surrogate; its objects do
            return pd.Series(cells, dtype=object)

    return pd.DataFrame({name: series(cells) for name, cells in _columns(records).items()})


def _polars(records: Sequence[Record], folder: Path, odd: int | None) -> Any:
    import polars as pl

    def series(cells: list[Any]) -> Any:
        return pl.Series(cells, strict=False)

    return pl.DataFrame({name: _made(series, cells) for name, cells in _columns(records).items()})


def _arrow(records: Sequence[Record], folder: Path, odd: int | None) -> Any:
    import pyarrow as pa

    def array(cells: list[Any]) -> Any:
        kinds = {isinstance(cell, date) for cell in cells if cell is not None}
        if len(kinds) > 1:
            raise TypeError(
                "beside a date Arrow takes a number for days since 1970: no reader could undo that"
            )
        return pa.array(cells)

    return pa.table({name: _made(array, cells) for name, cells in _columns(records).items()})


def _parquet(records: Sequence[Record], folder: Path, odd: int | None) -> Any:
    import pyarrow.parquet

    path = folder / "table.parquet"
    pyarrow.parquet.write_table(_arrow(records, folder, odd), path)
    return path


def _csv(records: Sequence[Record], folder: Path, odd: int | None) -> Any:
    """A text file; the odd record's cells stand in it as they are: files hold what nobody escaped."""
    path, lines = folder / "table.csv", [_line(records[0 if odd != 0 else -1].keys())]
    for position, record in enumerate(records):
        cells = [_text(cell) for cell in record.values()]
        lines.append(b",".join(cells) + b"\n" if position == odd else _line(cells))
    path.write_bytes(b"".join(lines))
    return path


def _line(cells: Any) -> bytes:
    buffer = io.StringIO()
    decoded = (
        cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else str(cell) for cell in cells
    )
    csv.writer(buffer, lineterminator="\n").writerow(decoded)
    return buffer.getvalue().encode("utf-8", "surrogateescape")


def _text(cell: Any) -> bytes:
    if isinstance(cell, bytes):
        return cell
    return b"" if cell is None else str(cell).encode("utf-8", "surrogatepass")


def _columns(records: Sequence[Record]) -> dict[str, list[Any]]:
    return {name: [record.get(name) for record in records] for name in records[0]}


def _made(build: Callable[[list[Any]], Any], cells: list[Any]) -> Any:
    """What the library builds from these cells; from their texts where it cannot; without what no text can hold."""
    try:
        return build(cells)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # polars panics are no Exception
        return build([_holdable(cell) for cell in cells])


def _holdable(cell: Any) -> str | None:
    if cell is None:
        return None
    try:
        text = cell.decode() if isinstance(cell, bytes) else str(cell)
        text.encode()
    except (UnicodeError, ValueError):
        return None
    return text


CONTAINERS: Mapping[str, Build] = {
    "records": lambda records, folder, odd: [dict(record) for record in records],
    "numpy": _array,
    "pandas": _pandas,
    "polars": _polars,
    "arrow": _arrow,
    "csv": _csv,
    "parquet": _parquet,
}
WHOLE_RECORD = {
    SHORT: ("records", "csv"),
    LONG: ("records", "csv"),
}  # where a record may have a length of its own
UNHELD = {("csv", "line break")}  # a record of a text file is one line
