"""Tables built from raw records by each library, adversarial cells, and results of pipelines compared exactly.

A slice of a table keeps the table's column types and hides the effect of one record on them; a table that is built
again from records does not, since its types are inferred again.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.schema import CategoricalColumn, DateColumn, HashedColumn, Schema
from dplangevin.tables import Dialect
from dplangevin.tables.cells import replace_decimal_comma, text_of_days
from dplangevin.tables.files import check_delimiter

ADVERSARIAL_CELLS: Mapping[str, Any] = {
    "null": None,
    "NaN": math.nan,
    "infinity": math.inf,
    "empty text": "",
    "blank": " ",
    "text": "abc",
    "question mark": "?",
    "unseen category": "a category nobody listed",
    "number": 7.5,
    "integer": 3,
    "number as text": "1.0",
    "leading zeros": "007",
    "huge integer": 10**400,
    "complex": 1 + 2j,
    "decimal": Decimal("1.10"),
    "true": True,
    "false": False,
    "date": date(2020, 1, 2),
    "time": datetime(2020, 1, 2, 3, 4, 5),
    "bytes": b"\xff\xfe",
    "lone surrogate": "\ud800",
    "byte order mark": "\ufeff1",
    "quote": '"',
    "apostrophe": "'",
    "separator": "a,b;c\td",
    "line break": "a\nb",
    "zero byte": "a\x00b",
}
SHORT_RECORD, LONG_RECORD = "too few cells", "too many cells"  # adversarial records as a whole


def schema_boundary_cells(schema: Schema | None, column: str) -> dict[str, Any]:
    """Return boundary values of a column of the schema: both ends of its range, first and last category."""
    if schema is None or column not in {each.name for each in _all_columns(schema)}:
        return {}
    stated_column = schema.column(column)
    if isinstance(stated_column, CategoricalColumn):
        return {"first category": stated_column.categories[0], "last category": stated_column.categories[-1]}
    if isinstance(stated_column, HashedColumn):
        return {}
    beyond = 2 * stated_column.high - stated_column.low
    if isinstance(stated_column, DateColumn):
        ends = {"low end": stated_column.low, "high end": stated_column.high}
        return {name: text_of_days(day) for name, day in ends.items()}
    return {"low end": stated_column.low, "high end": stated_column.high, "beyond the range": beyond}


def _all_columns(schema: Schema) -> tuple[Any, ...]:
    return (*schema.columns, *(() if schema.target is None else (schema.target,)))


Record = Mapping[str, Any]
TableBuilder = Callable[[Sequence[Record], Path, int | None], Any]


def read_records(
    table: Any, names: Sequence[str] = (), dialect: Dialect | None = None
) -> list[dict[str, Any]]:
    """Return the records of a list of mappings, an array, a pandas, polars or Arrow table, or a CSV or Parquet file."""
    if isinstance(table, str | os.PathLike):
        return _read_file(Path(table), dialect)
    if isinstance(table, np.ndarray):
        if table.ndim != 2:
            raise InvalidParameter(f"table must have rows and columns, got {table.ndim} dimensions.")
        names_fit = len(names) == table.shape[1]
        column_names = list(names) if names_fit else [str(position) for position in range(table.shape[1])]
        return [dict(zip(column_names, row, strict=True)) for row in table.tolist()]
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


def _read_file(path: Path, dialect: Dialect | None) -> list[dict[str, Any]]:
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            import pyarrow.parquet

            return read_records(pyarrow.parquet.read_table(path))
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = "," if dialect is None else dialect.delimiter
            reader = csv.DictReader(file, restval="", restkey=LONG_RECORD, delimiter=delimiter)
            if dialect is None:
                check_delimiter(str(path), reader.fieldnames or ())
            rows = [dict(row) for row in reader]
    except DplangevinError:
        raise
    except ImportError:
        raise InvalidParameter('Parquet needs pyarrow: pip install "dplangevin[tables]".') from None
    except OSError as error:
        raise InvalidParameter(f"the table {path} cannot be read: {error.strerror}.") from None
    except Exception:  # the parser's own message would show cells
        raise InvalidParameter(f"{path} could not be read as a CSV or Parquet table.") from None
    has_commas = dialect is not None and dialect.decimal == ","
    if has_commas:
        rows = [
            {
                name: replace_decimal_comma(cell) if isinstance(cell, str) else cell
                for name, cell in row.items()
            }
            for row in rows
        ]
    return read_records(
        [{name: _parse_cell(cell) for name, cell in row.items() if name != LONG_RECORD} for row in rows]
    )


def _parse_cell(text: str) -> Any:
    """Return a number if the text is exactly its repr, None for an empty cell, else the text (02139 stays text)."""
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


def _build_array(records: Sequence[Record], folder: Path, replaced_row: int | None) -> Any:
    rows = [list(record.values()) for record in records]
    try:
        array = np.array(rows)
        if array.ndim == 2:
            return array
    except (ValueError, OverflowError, UnicodeError):
        pass
    return np.array(rows, dtype=object)


def _build_pandas(records: Sequence[Record], folder: Path, replaced_row: int | None) -> Any:
    import pandas as pd

    def build_series(cells: list[Any]) -> Any:
        try:
            return pd.Series(cells)
        except Exception:  # pandas strings cannot hold a lone surrogate; objects can
            return pd.Series(cells, dtype=object)

    return pd.DataFrame({name: build_series(cells) for name, cells in _cells_by_column(records).items()})


def _build_polars(records: Sequence[Record], folder: Path, replaced_row: int | None) -> Any:
    import polars as pl

    def build_series(cells: list[Any]) -> Any:
        return pl.Series(cells, strict=False)

    return pl.DataFrame(
        {name: _build_or_use_texts(build_series, cells) for name, cells in _cells_by_column(records).items()}
    )


def _build_arrow(records: Sequence[Record], folder: Path, replaced_row: int | None) -> Any:
    import pyarrow as pa

    def build_array(cells: list[Any]) -> Any:
        kinds = {isinstance(cell, date) for cell in cells if cell is not None}
        if len(kinds) > 1:
            raise TypeError(
                "next to a date, Arrow reads a number as days since 1970: no reader could undo that"
            )
        return pa.array(cells)

    return pa.table(
        {name: _build_or_use_texts(build_array, cells) for name, cells in _cells_by_column(records).items()}
    )


def _build_parquet(records: Sequence[Record], folder: Path, replaced_row: int | None) -> Any:
    import pyarrow.parquet

    path = folder / "table.parquet"
    pyarrow.parquet.write_table(_build_arrow(records, folder, replaced_row), path)
    return path


def _build_csv(records: Sequence[Record], folder: Path, replaced_row: int | None) -> Any:
    """Write a text file; the replaced record's cells are not escaped, as in files that were written carelessly."""
    path, lines = folder / "table.csv", [_csv_line(records[0 if replaced_row != 0 else -1].keys())]
    for position, record in enumerate(records):
        cells = [_cell_bytes(cell) for cell in record.values()]
        lines.append(b",".join(cells) + b"\n" if position == replaced_row else _csv_line(cells))
    path.write_bytes(b"".join(lines))
    return path


def _csv_line(cells: Any) -> bytes:
    buffer = io.StringIO()
    decoded = (
        cell.decode("utf-8", "surrogateescape") if isinstance(cell, bytes) else str(cell) for cell in cells
    )
    csv.writer(buffer, lineterminator="\n").writerow(decoded)
    return buffer.getvalue().encode("utf-8", "surrogateescape")


def _cell_bytes(cell: Any) -> bytes:
    if isinstance(cell, bytes):
        return cell
    return b"" if cell is None else str(cell).encode("utf-8", "surrogatepass")


def _cells_by_column(records: Sequence[Record]) -> dict[str, list[Any]]:
    return {name: [record.get(name) for record in records] for name in records[0]}


def _build_or_use_texts(build: Callable[[list[Any]], Any], cells: list[Any]) -> Any:
    """Return what the library builds from these cells, or from their texts where it cannot (None for non-text)."""
    try:
        return build(cells)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # polars panics are no Exception
        return build([_text_or_none(cell) for cell in cells])


def _text_or_none(cell: Any) -> str | None:
    if cell is None:
        return None
    try:
        text = cell.decode() if isinstance(cell, bytes) else str(cell)
        text.encode()
    except (UnicodeError, ValueError):
        return None
    return text


CONTAINER_BUILDERS: Mapping[str, TableBuilder] = {
    "records": lambda records, folder, replaced_row: [dict(record) for record in records],
    "numpy": _build_array,
    "pandas": _build_pandas,
    "polars": _build_polars,
    "arrow": _build_arrow,
    "csv": _build_csv,
    "parquet": _build_parquet,
}
WHOLE_RECORD_CONTAINERS = {
    SHORT_RECORD: ("records", "csv"),
    LONG_RECORD: ("records", "csv"),
}  # containers whose records may differ in length
UNSUPPORTED_CELLS = {("csv", "line break")}  # a record of a text file is one line


@dataclass(frozen=True, kw_only=True)
class PipelineOutcome:
    """The result of a pipeline: a key per row, names and types of columns, numbers, warnings; or an error's type.

    Two rows are equal when their keys are: NaN equals NaN, and 1 differs from 1.0.
    """

    rows: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    numbers: Any = field(default=None, compare=False)
    warnings: frozenset[str] = frozenset()
    error: str | None = None

    @property
    def n_rows(self) -> int:
        """The number of rows of the result."""
        return len(self.rows)

    @property
    def content(self) -> tuple[Any, ...]:
        """The part that must agree for two results to be equal."""
        return self.rows, self.names, self.error

    def with_warnings(self, counts: Mapping[str, int]) -> PipelineOutcome:
        """Return the result with the locations of its warnings and how often each was raised."""
        return replace(self, warnings=frozenset(f"{name} x {times}" for name, times in counts.items()))


def read_outcome(result: Any) -> PipelineOutcome:
    """Return the outcome for an array, table, sparse matrix or list, or for a tuple or mapping of them."""
    names: list[str] = []
    types: list[str] = []
    columns: list[list[Hashable]] = []
    numbers: list[Any] = []
    for prefix, part in _result_parts(result):
        for name, cells in _split_columns(part):
            names.append(f"{prefix}{name}")
            keys, kind = _cell_keys(cells)
            types.append(kind)
            columns.append(keys)
            numbers.append(cells)
    rows = tuple(zip(*columns, strict=True)) if columns else ()
    return PipelineOutcome(rows=rows, names=tuple(names), types=tuple(types), numbers=numbers)


def _result_parts(result: Any) -> list[tuple[str, Any]]:
    if isinstance(result, tuple) and not hasattr(result, "dtype"):
        return [(f"{position}.", part) for position, part in enumerate(result) if part is not None]
    if isinstance(result, Mapping):
        return [(f"{name}.", part) for name, part in result.items()]
    return [("", result)]


def _split_columns(part: Any) -> list[tuple[str, Any]]:
    """Return columns with their names."""
    if hasattr(part, "collect"):  # a lazy table
        part = part.collect()
    if hasattr(part, "compute"):
        part = part.compute()
    if hasattr(part, "toarray"):
        part = part.toarray()
    if hasattr(part, "iloc") and hasattr(part, "columns"):
        return [(str(name), part.iloc[:, i].to_numpy()) for i, name in enumerate(part.columns)]
    if hasattr(part, "column_names") and hasattr(part, "to_pydict"):
        return [
            (str(name), _as_cells(column.to_pylist()))
            for name, column in zip(part.column_names, part.columns, strict=True)
        ]
    if hasattr(part, "get_columns"):
        return [(column.name, column.to_numpy()) for column in part.get_columns()]
    array = part.to_numpy() if hasattr(part, "to_numpy") else _as_cells(part)
    if array.ndim == 0:
        array = array[None]
    flat = array.reshape(len(array), -1)
    return [(str(i), flat[:, i]) for i in range(flat.shape[1])]


def _as_cells(values: Any) -> Any:
    """Return an array; of objects where the values do not form a rectangle."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufcO" or not isinstance(values, list):
            return array
    except (ValueError, OverflowError):
        pass
    array = np.empty(len(values), dtype=object)  # texts and numbers in one list keep their types
    array[:] = [tuple(each) if isinstance(each, list) else each for each in values]
    return array


def _cell_keys(cells: Any) -> tuple[list[Hashable], str]:
    kind = "text" if cells.dtype.kind in "US" else str(cells.dtype)
    if cells.dtype.kind in "biufc":
        return [(kind, repr(cell)) for cell in cells.tolist()], kind
    return [(type(cell).__name__, repr(cell)) for cell in cells.tolist()], kind


def outcome_distance(first: PipelineOutcome, second: PipelineOutcome, norm: str) -> float:
    """Return the norm of the difference of two results; infinite if shapes differ or entries are not numbers."""
    try:
        one, two = (
            np.concatenate([np.asarray(part, complex) for part in each.numbers]) for each in (first, second)
        )
    except (TypeError, ValueError, OverflowError):
        return math.inf
    if one.shape != two.shape:
        return math.inf
    gap = np.abs(one - two)
    gap = np.where((one == two) | (np.isnan(one) & np.isnan(two)), 0.0, gap)
    size = {"l2": np.linalg.norm(gap), "l1": gap.sum(), "max": gap.max(initial=0.0)}[norm]
    return math.inf if math.isnan(size) else float(size)
