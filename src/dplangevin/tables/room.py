"""The reading room: every table in memory comes in here, and leaves as columns of unread cells."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.tables.columns import ArrayCells, ArrowCells, Cells

BLOCK = 2**18
_DOUBLES = frozenset(
    {bool, int, float, np.bool_, np.float16, np.float32, np.float64}
    | {np.dtype(f"{sign}{size}").type for sign in "iu" for size in (1, 2, 4, 8)}
)
"""Types whose every value NumPy turns into the double `float(value)`, and `cells.number` too."""
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

    An array of numbers is returned as it is. Anything that is no table at all is returned as it was given.
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
    if isinstance(given, np.ndarray):
        return Table({str(j): ArrayCells(given[:, j]) for j in range(given.shape[1])}, len(given)).matrix()
    if hasattr(given, "__array__"):
        return matrix_of(_as_array(given, f"the table must be {_WHAT}"))
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__len__"):
        return given
    items = _items(given, "X")
    rows = [_cells_of_row(row, width) for row in items]
    if width is None:
        if not any(row is not None for row in rows):  # one number a row is no table
            return ArrayCells(_objects(items)).numbers()
        width = len(next(row for row in rows if row is not None))
        if any(row is None or len(row) != width for row in rows):
            raise InvalidParameter("X must be a rectangular table; its rows differ in length.")
    quick = _double_rows(rows, width)
    if quick is not None:
        return quick
    return _rows_table(rows, [str(j) for j in range(width)]).matrix()


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
        return cells_of(_as_array(given, f"{what} must be one column"), what)
    if isinstance(given, str | bytes | os.PathLike) or not hasattr(given, "__len__"):
        raise InvalidParameter(f"{what} must be a list or an array, got {type(given).__name__}.")
    items = _items(given, what)
    doubles = _doubles(items)
    return ArrayCells(_objects(items) if doubles is None else doubles, typed=False)


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


def _as_array(given: Any, fault: str) -> NDArray[Any]:
    """The array that a container says it is."""
    try:
        return np.asarray(given)
    except Exception:  # of a container of one's own, which may quote a cell
        raise InvalidParameter(f"{fault}, got {type(given).__name__}.") from None


def _items(given: Any, what: str) -> list[Any]:
    """The items of a container, in order."""
    if type(given) is list:
        return given
    try:
        return list(given)
    except Exception:  # of a container of one's own, which may quote a cell
        raise InvalidParameter(
            f"{what} must be a list or an array; the {type(given).__name__} could not be read."
        ) from None


def _doubles(items: list[Any]) -> NDArray[np.float64] | None:
    """The items as doubles where the exact type of each is one of _DOUBLES; None else, or where one overflows.

    With the type stated, NumPy converts every item by itself, by float(item): nothing is promoted, so that the cells
    are what `cells.number` reads, whether this path is taken or not. Labels and persons follow from the doubles.
    """
    if not items or not _DOUBLES.issuperset(set(map(type, items))):
        return None
    try:
        return np.fromiter(items, np.float64, len(items))
    except OverflowError:
        return None


def _double_rows(rows: list[Any], width: int) -> NDArray[np.float64] | None:
    """`_doubles` of rows that are lists (of exactly that type) of one length."""
    if not width or any(type(row) is not list or len(row) != width for row in rows):
        return None
    cells = _doubles(list(chain.from_iterable(rows)))
    return None if cells is None else cells.reshape(len(rows), width)


def _objects(items: list[Any]) -> NDArray[Any]:
    """The items themselves, each untouched."""
    array = np.empty(len(items), dtype=object)
    for place, item in enumerate(items):
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
    read = [_named_cells(row, names) for row in rows]
    columns = [_objects([row[j] for row in read]) for j in range(len(names))]
    return Table({name: ArrayCells(cells) for name, cells in zip(names, columns, strict=True)}, len(read))


def _named_cells(row: Any, names: Sequence[str]) -> list[Any]:
    """One cell for each name, None where the row has none."""
    if isinstance(row, Mapping):
        try:
            return [row.get(name) for name in names]
        except Exception:  # of a mapping of one's own
            return [None] * len(names)
    found = _cells_of_row(row, len(names)) or []
    return [*found[: len(names)], *[None] * (len(names) - len(found))]


def _cells_of_row(row: Any, most: int | None) -> list[Any] | None:
    """The first cells of a row, by a rule about that row alone; None where it is no row.

    A row is a sequence of any kind (list, tuple, array, deque, Series, tensor) but not a text: what it gives when it
    is walked through.
    """
    if type(row) is list:
        return row
    try:
        if type(row) is np.ndarray and row.ndim == 1 and row.dtype.kind in "biuf":
            return list(row) if row.dtype.itemsize > 8 else list(row.tolist())
        if isinstance(row, str | bytes | bytearray | memoryview | Mapping):
            return None
        if not hasattr(row, "__len__") or not hasattr(row, "__getitem__"):
            return None
        length = len(row)
        return list(islice(row, length if most is None else min(length, most)))
    except Exception:  # of an object's own methods, whose words may quote a value
        return None


def _pandas_cells(series: Any) -> Cells:
    """A Series: typed columns as they are stored, never through a guessed type."""
    if not hasattr(series, "array"):  # an array of pandas' own, not yet a Series
        from pandas import Series

        series = Series(series, copy=False)
    kind = series.dtype
    if isinstance(kind, np.dtype):
        return ArrayCells(series.to_numpy())
    if getattr(kind, "name", "") == "category":
        return _CategoryCells(_pandas_cells(series.cat.categories), series.cat.codes.to_numpy())
    try:
        import pyarrow as pa
    except ImportError:
        return ArrayCells(_objects(list(series)))
    numeric = getattr(kind, "kind", "O") in "biuf" and hasattr(series.array, "__arrow_array__")
    if numeric or getattr(kind, "storage", "") == "pyarrow" or hasattr(kind, "pyarrow_dtype"):
        return ArrowCells(pa.array(series.array))
    return ArrayCells(_objects(list(series)))


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
