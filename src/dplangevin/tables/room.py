"""The reading room: every table in memory comes in here, and leaves as columns of unread cells."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.tables.columns import ArrayCells, ArrowCells, Cells

BLOCK = 2**18
_WHAT = "a NumPy array, a list of rows, a pandas or polars DataFrame or an Arrow table"


class Table:
    """Columns of unread cells by name; names occur once. The number of rows and the names are public."""

    def __init__(self, columns: Mapping[str, Cells], n_rows: int) -> None:
        self._columns, self.n_rows = dict(columns), n_rows

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"Table({len(self._columns)} columns, {self.n_rows} rows)"

    def column(self, name: str) -> Cells:
        """The column; one that is not there is a fault of the schema, not of a record."""
        if name not in self._columns:
            raise InvalidParameter(
                f"schema mismatch: the table has no column {name!r}; it has {', '.join(self.names) or 'none'}."
            )
        return self._columns[name]

    def without(self, *names: str | None) -> Table:
        """The table without some columns."""
        return Table({name: found for name, found in self._columns.items() if name not in names}, self.n_rows)

    def only(self, *names: str) -> Table:
        """These columns, in this order."""
        return Table({name: self.column(name) for name in names}, len(self))

    def part(self, rows: slice) -> Table:
        """Some consecutive rows."""
        start, stop, _ = rows.indices(self.n_rows)
        kept = {name: cells.part(slice(start, stop)) for name, cells in self._columns.items()}
        return Table(kept, max(stop - start, 0))

    def take(self, rows: NDArray[np.int64]) -> Table:
        """The rows of these increasing numbers."""
        return Table({name: cells.take(rows) for name, cells in self._columns.items()}, len(rows))

    def with_column(self, name: str, cells: Cells) -> Table:
        """The table with one column more, or another in its place."""
        return Table({**self._columns, name: cells}, self.n_rows)

    def blocks(self) -> Iterator[Table]:
        """The rows, a block at a time."""
        if self.n_rows <= BLOCK:
            yield self
            return
        for start in range(0, self.n_rows, BLOCK):
            yield self.part(slice(start, start + BLOCK))

    def matrix(self) -> NDArray[np.floating[Any]]:
        """All columns as numbers, row by row; single precision when every column is."""
        columns = [cells.numbers() for cells in self._columns.values()]
        single = bool(columns) and all(column.dtype == np.float32 for column in columns)
        rows = np.empty((self.n_rows, len(columns)), np.float32 if single else np.float64)
        for start in range(0, self.n_rows, 1024):  # columns to rows, a piece that stays in cache at a time
            part = slice(start, start + 1024)
            for j, column in enumerate(columns):
                rows[part, j] = column[part]
        return rows


def table_of(given: Any, names: Sequence[str] | None = None) -> Table:
    """The columns of a table in memory. An array or a list of rows has the columns `names`, in that order."""
    if isinstance(given, Table):
        return given
    home = type(given).__module__.split(".")[0]
    if home == "pandas" and hasattr(given, "columns"):
        unique_names(given.columns)
        return Table({str(name): _pandas_cells(given[name]) for name in given.columns}, len(given))
    if home == "polars" and hasattr(given, "columns"):
        whole = given.collect() if hasattr(given, "collect") else given
        return Table({name: _polars_cells(whole[name]) for name in whole.columns}, whole.height)
    if home == "pyarrow" and hasattr(given, "column_names"):
        unique_names(given.column_names)
        columns = {name: ArrowCells(given.column(name)) for name in given.column_names}
        return Table(columns, given.num_rows)
    if isinstance(given, list | tuple | np.ndarray) and names is not None:
        return _rows_table(given, names)
    raise InvalidParameter(f"the table must be {_WHAT}, got {type(given).__name__}.")


def matrix_of(given: Any, width: int | None = None) -> Any:
    """Numbers [rows, columns] of a table without a schema, NaN where a cell is none.

    An array of floats is returned as it is. Anything that is no table at all is returned as it was given.
    width : the public number of columns, where it is known: a row of a list that has fewer lacks its last cells.
    """
    refuse_masks(given)
    if isinstance(given, np.ndarray) and (given.dtype.kind in "biuf" or given.ndim != 2):
        if given.dtype.itemsize <= 8 or given.dtype.kind != "f":
            return given
        with np.errstate(over="ignore"):
            return given.astype(np.float64)
    if isinstance(given, Table) or hasattr(given, "columns") or hasattr(given, "column_names"):
        return table_of(given).matrix()
    if not isinstance(given, list | tuple | np.ndarray):
        return matrix_of(np.asarray(given)) if hasattr(given, "__array__") else given
    if not isinstance(given, np.ndarray):
        array = _quick_array(given)
        if array is not None and (width is None or array.shape[1:] == (width,)):
            return array
        if width is not None:
            return _rows_table(given, [str(j) for j in range(width)]).matrix()
        if not all(isinstance(row, list | tuple | np.ndarray) for row in given):
            return given
        width = len(given[0])
        if any(len(row) != width for row in given):
            raise InvalidParameter("X must be a rectangular table; its rows differ in length.")
        return _rows_table(given, [str(j) for j in range(width)]).matrix()
    return Table({str(j): ArrayCells(given[:, j]) for j in range(given.shape[1])}, len(given)).matrix()


def cells_of(given: Any, what: str) -> Cells:
    """One column: an array, a list, or the Series of a library."""
    home = type(given).__module__.split(".")[0]
    if isinstance(given, Cells):
        return given
    if home in ("pandas", "polars") and hasattr(given, "columns"):
        if len(given.columns) != 1:
            raise InvalidParameter(f"{what} must be one column, got a table of {len(given.columns)}.")
        table = table_of(given)
        return table.column(table.names[0])
    if home == "pandas":
        return _pandas_cells(given)
    if home == "polars":
        return _polars_cells(given)
    if home == "pyarrow":
        return ArrowCells(given)
    refuse_masks(given)
    if isinstance(given, np.ndarray):
        flat = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
        if flat.ndim != 1:
            raise InvalidParameter(f"{what} must be one column, got {given.ndim} dimensions.")
        return ArrayCells(flat)
    if hasattr(given, "__array__"):
        try:
            return cells_of(np.asarray(given), what)
        except InvalidParameter:
            raise
        except Exception:  # of a container of one's own, which may quote a cell
            raise InvalidParameter(f"{what} must be one column, got {type(given).__name__}.") from None
    if isinstance(given, str | bytes | os.PathLike) or not hasattr(given, "__len__"):
        raise InvalidParameter(f"{what} must be a list or an array, got {type(given).__name__}.")
    array = _quick_array(given)
    return ArrayCells(_objects(given) if array is None or array.ndim != 1 else array)


def refuse_masks(given: Any) -> None:
    """Refuse a masked array: every reader below would see what the mask hides."""
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidParameter("a masked array is given; fill it first, e.g. with values.filled(numpy.nan).")


def unique_names(names: Any) -> None:
    """Refuse a header that names a column twice."""
    texts = [str(name) for name in names]
    twice = sorted({name for name in texts if texts.count(name) > 1}) if len(set(texts)) < len(texts) else []
    if twice:
        raise InvalidParameter(f"the table has two columns named {twice[0]!r}; column names must occur once.")


def _quick_array(given: Any) -> NDArray[Any] | None:
    """A list as an array of doubles when NumPy finds nothing but numbers in it: the doubles are the same.

    Single precision is that of a whole array only: in a list one record would take it from the others.
    """
    try:
        array = np.asarray(given)
    except Exception:  # of whatever object; it may quote a cell
        return None
    if array.dtype.kind not in "biuf" or not array.size:
        return None
    with np.errstate(over="ignore"):
        return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array


def _objects(given: Any) -> NDArray[Any]:
    """The items themselves, each untouched."""
    array = np.empty(len(given), dtype=object)
    for place, item in enumerate(given):
        array[place] = item
    return array


def _rows_table(rows: Any, names: Sequence[str]) -> Table:
    """Rows of cells in the order of the names, or records by name; a short row lacks its last cells."""
    refuse_masks(rows)
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise InvalidParameter(
                f"an array is read in the order of the schema's {len(names)} columns; got shape {rows.shape}."
            )
        return Table({name: ArrayCells(rows[:, j]) for j, name in enumerate(names)}, len(rows))
    columns = [_objects([_item(row, j, name) for row in rows]) for j, name in enumerate(names)]
    return Table({name: ArrayCells(cells) for name, cells in zip(names, columns, strict=True)}, len(rows))


def _item(row: Any, place: int, name: str) -> Any:
    if isinstance(row, Mapping):
        return row.get(name)
    return row[place] if isinstance(row, list | tuple | np.ndarray) and place < len(row) else None


def _pandas_cells(series: Any) -> Cells:
    """A Series: typed columns as they are stored, never through a guessed type."""
    kind = series.dtype
    if isinstance(kind, np.dtype):
        return ArrayCells(series.to_numpy())
    if getattr(kind, "name", "") == "category":
        return _CategoryCells(_pandas_cells(series.cat.categories), series.cat.codes.to_numpy())
    try:
        import pyarrow as pa
    except ImportError:
        return ArrayCells(_objects(series))
    numeric = getattr(kind, "kind", "O") in "biuf" and hasattr(series.array, "__arrow_array__")
    if numeric or getattr(kind, "storage", "") == "pyarrow" or hasattr(kind, "pyarrow_dtype"):
        return ArrowCells(pa.array(series.array))
    return ArrayCells(_objects(series))


def _polars_cells(series: Any) -> Cells:
    if str(series.dtype) in ("Object", "Int128", "UInt128"):  # Arrow has no such types
        return ArrayCells(_objects(series.to_list()))
    return ArrowCells(series.to_arrow())


class _CategoryCells(Cells):
    """Codes into a list of values, as pandas keeps categories."""

    def __init__(self, values: Cells, codes: NDArray[Any]) -> None:
        self._values, self._codes = values, np.asarray(codes, np.int64)

    def __len__(self) -> int:
        return len(self._codes)

    def part(self, rows: slice) -> Cells:
        return _CategoryCells(self._values, self._codes[rows])

    def take(self, rows: NDArray[np.int64]) -> Cells:
        return _CategoryCells(self._values, self._codes[rows])

    def numbers(self) -> NDArray[np.floating[Any]]:
        return np.append(np.asarray(self._values.numbers(), np.float64), np.nan)[self._codes]

    def labels(self, *, text: bool = False) -> tuple[NDArray[np.int64], Sequence[str]]:
        places, words = self._values.labels(text=text)
        return np.append(places, -1)[self._codes], words

    def persons(self) -> tuple[NDArray[np.int64], Sequence[str]]:
        places, words = self._values.persons()
        return np.append(places, -1)[self._codes], words
