"""Tables in memory (NumPy, lists, dictionaries, pandas, polars, Arrow, tensors) as columns of unread cells.

narwhals says which library a table belongs to and hands over its columns; it converts no cell.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.tables.columns import ArrayColumn, ArrowColumn, CellColumn

ROWS_PER_BLOCK = 2**18
_EXACT_NUMBER_TYPES = frozenset(
    {bool, int, float, np.bool_, np.float16, np.float32, np.float64}
    | {np.dtype(f"{sign}{size}").type for sign in "iu" for size in (1, 2, 4, 8)}
)
"""Types whose every value both NumPy and `cells.read_number` convert to the double `float(value)`."""
_EXPECTED_TABLE = (
    "an array, rows, a dictionary of columns, a pandas or polars DataFrame, a lazy frame or an Arrow table"
)


class Table:
    """Columns of unread cells by name.

    Parameters
    ----------
    columns : by name, in order; each of `n_rows` cells. The names are public.
    n_rows : number of rows.
    """

    def __init__(self, columns: Mapping[str, CellColumn], n_rows: int) -> None:
        self._columns, self.n_rows = dict(columns), n_rows

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(self._columns)

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"Table({len(self._columns)} columns, {self.n_rows} rows)"

    def column(self, name: str) -> CellColumn:
        """Return the column; an absent one is an error of the schema, not of a record, so the message may show it."""
        if name not in self._columns:
            raise InvalidParameter(
                f"schema mismatch: the table has no column {name!r}; it has {_check.describe_columns(self.names)}."
            )
        return self._columns[name]

    def drop_columns(self, *names: str | None) -> Table:
        """Return the table without these columns."""
        return Table({name: cells for name, cells in self._columns.items() if name not in names}, self.n_rows)

    def select_columns(self, *names: str) -> Table:
        """Return the table of these columns, in this order."""
        return Table({name: self.column(name) for name in names}, len(self))

    def slice(self, rows: slice) -> Table:
        """Return some consecutive rows."""
        start, stop, _ = rows.indices(self.n_rows)
        columns = {name: cells.slice(slice(start, stop)) for name, cells in self._columns.items()}
        return Table(columns, max(stop - start, 0))

    def take(self, rows: NDArray[np.int64]) -> Table:
        """Return the rows with these increasing row numbers."""
        return Table({name: cells.take(rows) for name, cells in self._columns.items()}, len(rows))

    def with_column(self, name: str, cells: CellColumn) -> Table:
        """Return the table with this column added or replaced."""
        return Table({**self._columns, name: cells}, self.n_rows)

    def blocks(self) -> Iterator[Table]:
        """Yield the rows, one block at a time."""
        if self.n_rows <= ROWS_PER_BLOCK:
            yield self
            return
        for start in range(0, self.n_rows, ROWS_PER_BLOCK):
            yield self.slice(slice(start, start + ROWS_PER_BLOCK))

    def to_matrix(self) -> NDArray[np.floating[Any]]:
        """Return all columns as a C-ordered matrix of numbers; float32 if every column is."""
        columns = [cells.numbers() for cells in self._columns.values()]
        single = bool(columns) and all(column.dtype == np.float32 for column in columns)
        rows = np.empty((self.n_rows, len(columns)), np.float32 if single else np.float64)
        for start in range(0, self.n_rows, 1024):  # transpose in pieces that stay in cache
            part = slice(start, start + 1024)
            for j, column in enumerate(columns):
                rows[part, j] = column[part]
        return rows


def as_table(data: Any, names: Sequence[str] | None = None) -> Table:
    """Return a table as a Table in memory. An array or a list of rows takes its column names from `names`."""
    if isinstance(data, Table):
        return data
    if isinstance(data, Mapping):
        return _table_from_columns(data)
    if isinstance(data, list | tuple | np.ndarray):
        if names is not None:
            return _table_from_rows(data, names)
    elif type(data).__module__.split(".")[0] == "pyarrow" and hasattr(data, "column_names"):
        check_unique_names(data.column_names)
        columns = {name: ArrowColumn(data.column(name)) for name in data.column_names}
        return Table(columns, data.num_rows)
    elif (table := _table_from_frame(data)) is not None:
        return table
    elif hasattr(data, "__array__") and names is not None and not hasattr(data, "columns"):
        return _table_from_rows(_as_array(data, f"the table must be {_EXPECTED_TABLE}"), names)
    raise InvalidParameter(f"the table must be {_EXPECTED_TABLE}, got {type(data).__name__}.")


def _table_from_frame(data: Any) -> Table | None:
    """Return the table of a frame of any library that narwhals knows, or None."""
    import narwhals as nw

    from dplangevin.tables.files import TableFiles
    from dplangevin.tables.lazy import copy_lazy_table, is_lazy_table

    if is_lazy_table(data):
        data = copy_lazy_table(data)
    if isinstance(data, Table | TableFiles):
        return data if isinstance(data, Table) else data.read_table()
    if hasattr(data, "columns"):
        check_unique_names(data.columns)  # before narwhals, which has a message of its own
    frame: Any = nw.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return None
    native = frame.to_native()
    if frame.implementation.is_polars():
        return Table({name: _column_from_polars(native[name]) for name in native.columns}, native.height)
    if frame.implementation.is_pyarrow():
        return as_table(native)
    native = native if frame.implementation.is_pandas() else frame.to_pandas()
    return Table({str(name): _column_from_pandas(native[name]) for name in native.columns}, len(native))


def _table_from_columns(columns: Mapping[Any, Any]) -> Table:
    """Return the table of a dictionary from names to columns of equal length, each read by itself."""
    cells = {str(name): _unread_column(column, f"column {name!r}") for name, column in columns.items()}
    if len(cells) < len(columns):
        check_unique_names(columns)
    lengths = {len(column) for column in cells.values()}
    if len(lengths) != 1:
        raise InvalidParameter("a dictionary of columns needs at least one, and all of the same length.")
    return Table(cells, lengths.pop())


def _unread_column(data: Any, what: str) -> CellColumn:
    """Return a column whose cells are not looked at: those of a list stay the objects that they are."""
    if isinstance(data, list | tuple):
        return ArrayColumn(_object_array(list(data)), typed=False)
    return as_column(data, what)


def as_matrix(data: Any, width: int | None = None) -> Any:
    """Return the numbers [rows, columns] of a table without a schema, NaN where a cell is not a number.

    An array of numbers, and anything that is not a table, is returned unchanged.

    Parameters
    ----------
    data : the table.
    width : the public number of columns, where it is known: in a shorter row of a list the last cells are missing.
    """
    refuse_masked_array(data)
    if isinstance(data, np.ndarray) and (data.dtype.kind in "biuf" or data.ndim != 2):
        if data.dtype.itemsize <= 8 or data.dtype.kind != "f":
            return data
        with np.errstate(over="ignore"):
            return data.astype(np.float64)
    if is_frame(data):
        return as_table(data).to_matrix()
    if isinstance(data, np.ndarray):
        return Table({str(j): ArrayColumn(data[:, j]) for j in range(data.shape[1])}, len(data)).to_matrix()
    if hasattr(data, "__array__"):
        return as_matrix(_as_array(data, f"the table must be {_EXPECTED_TABLE}"))
    if isinstance(data, str | bytes) or not hasattr(data, "__len__"):
        return data
    items = _list_items(data, "X")
    rows = [_row_cells(row, width) for row in items]
    if width is None:
        if not any(row is not None for row in rows):  # a list of numbers is one column, not a table
            return ArrayColumn(_object_array(items)).numbers()
        width = len(next(row for row in rows if row is not None))
        if any(row is None or len(row) != width for row in rows):
            raise InvalidParameter("X must be a rectangular table; its rows differ in length.")
    doubles = _double_rows_or_none(rows, width)
    if doubles is not None:
        return doubles
    return _table_from_rows(rows, [str(j) for j in range(width)]).to_matrix()


def is_frame(data: Any) -> bool:
    """Whether the data are a table with named columns: a frame of some library, or a dictionary of columns."""
    if isinstance(data, Table):
        return True
    if isinstance(data, Mapping):  # SciPy's sparse dictionary of keys is one too
        return not hasattr(data, "shape")
    return hasattr(data, "columns") or hasattr(data, "column_names")


def as_column(data: Any, what: str) -> CellColumn:
    """Return one column from an array, a list, or a pandas, polars or Arrow series; `what` names it in errors."""
    library = type(data).__module__.split(".")[0]
    if isinstance(data, CellColumn):
        return data
    if library in ("modin", "cudf", "narwhals"):
        import narwhals as nw

        series: Any = nw.from_native(data, allow_series=True)
        is_pandas_like = series.implementation.is_pandas_like()
        return as_column(series.to_pandas() if is_pandas_like else series.to_native(), what)
    if library in ("pandas", "polars") and hasattr(data, "columns"):
        if len(data.columns) != 1:
            raise InvalidParameter(f"{what} must be one column, got a table of {len(data.columns)}.")
        table = as_table(data)
        return table.column(table.names[0])
    if library == "pandas":
        return _column_from_pandas(data)
    if library == "polars":
        return _column_from_polars(data)
    if library == "pyarrow":
        return ArrowColumn(data)
    refuse_masked_array(data)
    if isinstance(data, np.ndarray):
        flat = data[:, 0] if data.ndim == 2 and data.shape[1] == 1 else data
        if flat.ndim != 1:
            raise InvalidParameter(f"{what} must be one column, got {data.ndim} dimensions.")
        return ArrayColumn(flat)
    if hasattr(data, "__array__"):
        return as_column(_as_array(data, f"{what} must be one column"), what)
    if isinstance(data, str | bytes | os.PathLike) or not hasattr(data, "__len__"):
        raise InvalidParameter(f"{what} must be a list or an array, got {type(data).__name__}.")
    items = _list_items(data, what)
    doubles = _doubles_or_none(items)
    return ArrayColumn(_object_array(items) if doubles is None else doubles, typed=False)


def refuse_masked_array(data: Any) -> None:
    """Raise for a masked array: the readers would use the values under the mask."""
    if isinstance(data, np.ma.MaskedArray):
        raise InvalidParameter(
            "a masked array is not accepted; fill it first, e.g. with values.filled(numpy.nan)."
        )


def check_unique_names(names: Any) -> None:
    """Raise if a header names a column twice."""
    texts = [str(name) for name in names]
    repeated = (
        sorted({name for name in texts if texts.count(name) > 1}) if len(set(texts)) < len(texts) else []
    )
    if repeated:
        if _check.may_be_cells(texts):
            raise InvalidParameter(
                f"two columns of the table have the same name; it has {_check.describe_columns(texts)}."
            )
        raise InvalidParameter(
            f"the table has two columns named {repeated[0]!r}; column names must be unique."
        )


def _as_array(data: Any, message: str) -> NDArray[Any]:
    """Return the array of a container with `__array__`; raise an error that begins with `message` if it fails."""
    try:
        if hasattr(data, "detach"):  # torch: a tensor may lie on another device, or record gradients
            data = data.detach().cpu()
            data = data.float() if str(data.dtype) == "torch.bfloat16" else data
        array = np.asarray(data)
        # JAX's own small floats, which NumPy does not know: exact in single precision
        return array.astype(np.float32) if array.dtype.name.startswith(("bfloat", "float8")) else array
    except Exception:  # raised by a user's container; its message may quote a private value
        raise InvalidParameter(f"{message}, got {type(data).__name__}.") from None


def _list_items(data: Any, what: str) -> list[Any]:
    """Return the items of a container, in order."""
    if type(data) is list:
        return data
    try:
        return list(data)
    except Exception:  # raised by a user's container; its message may quote a private value
        raise InvalidParameter(
            f"{what} must be a list or an array; the {type(data).__name__} could not be read."
        ) from None


def _doubles_or_none(items: list[Any]) -> NDArray[np.float64] | None:
    """Return the items as doubles if the exact type of each is in _EXACT_NUMBER_TYPES and none overflows, else None.

    Because the dtype is stated, NumPy converts every item by itself with float(item) and promotes nothing, so that
    the result is the same as with `cells.read_number`. Labels and persons follow from the doubles.
    """
    if not items or not _EXACT_NUMBER_TYPES.issuperset(set(map(type, items))):
        return None
    try:
        return np.fromiter(items, np.float64, len(items))
    except OverflowError:
        return None


def _double_rows_or_none(rows: list[Any], width: int) -> NDArray[np.float64] | None:
    """Return `_doubles_or_none` as a matrix if all rows are lists (of exactly that type) of this length, else None."""
    if not width or any(type(row) is not list or len(row) != width for row in rows):
        return None
    cells = _doubles_or_none(list(chain.from_iterable(rows)))
    return None if cells is None else cells.reshape(len(rows), width)


def _object_array(items: list[Any]) -> NDArray[Any]:
    """Return a one-dimensional array of the items themselves, none of them converted."""
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = item
    return array


def _table_from_rows(rows: Any, names: Sequence[str]) -> Table:
    """Return the table of rows in the order of the names, or of mappings; missing cells of a short row are None."""
    refuse_masked_array(rows)
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise InvalidParameter(
                f"an array is read in the order of the schema's {len(names)} columns; got shape {rows.shape}."
            )
        return Table({name: ArrayColumn(rows[:, j]) for j, name in enumerate(names)}, len(rows))
    records = [_cells_by_name(row, names) for row in rows]
    columns = [_object_array([record[j] for record in records]) for j in range(len(names))]
    return Table({name: ArrayColumn(cells) for name, cells in zip(names, columns, strict=True)}, len(records))


def _cells_by_name(row: Any, names: Sequence[str]) -> list[Any]:
    """Return one cell for each name, None where the row has none."""
    if isinstance(row, Mapping):
        try:
            return [row.get(name) for name in names]
        except Exception:  # raised by a user's mapping
            return [None] * len(names)
    cells = _row_cells(row, len(names)) or []
    return [*cells[: len(names)], *[None] * (len(names) - len(cells))]


def _row_cells(row: Any, max_cells: int | None) -> list[Any] | None:
    """Return the first cells of a row, by a rule that depends on that row alone; None where it is not a row.

    A row is a sequence of any kind (list, tuple, array, deque, Series, tensor) except a text; its cells are what
    iterating over it yields.
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
        return list(islice(row, length if max_cells is None else min(length, max_cells)))
    except Exception:  # raised by an object's own methods; its message may quote a private value
        return None


def _column_from_pandas(series: Any) -> CellColumn:
    """Return the column of a Series: typed data as they are stored, never through an inferred type."""
    if not hasattr(series, "array"):  # a pandas extension array, not a Series
        from pandas import Series

        series = Series(series, copy=False)
    kind = series.dtype
    if isinstance(kind, np.dtype):
        return ArrayColumn(series.to_numpy())
    if getattr(kind, "name", "") == "category":
        return _CategoryColumn(_column_from_pandas(series.cat.categories), series.cat.codes.to_numpy())
    try:
        import pyarrow as pa
    except ImportError:
        return ArrayColumn(_object_array(list(series)))
    numeric = getattr(kind, "kind", "O") in "biuf" and hasattr(series.array, "__arrow_array__")
    if numeric or getattr(kind, "storage", "") == "pyarrow" or hasattr(kind, "pyarrow_dtype"):
        return ArrowColumn(pa.array(series.array))
    return ArrayColumn(_object_array(list(series)))


def _column_from_polars(series: Any) -> CellColumn:
    if str(series.dtype) in ("Object", "Int128", "UInt128"):  # Arrow has no such types
        return ArrayColumn(_object_array(series.to_list()))
    return ArrowColumn(series.to_arrow())


class _CategoryColumn(CellColumn):
    """Column of codes into a list of values, as pandas stores categories."""

    def __init__(self, values: CellColumn, codes: NDArray[Any]) -> None:
        self._values, self._codes = values, np.asarray(codes, np.int64)

    def __len__(self) -> int:
        return len(self._codes)

    def slice(self, rows: slice) -> CellColumn:
        return _CategoryColumn(self._values, self._codes[rows])

    def take(self, rows: NDArray[np.int64]) -> CellColumn:
        return _CategoryColumn(self._values, self._codes[rows])

    def numbers(self) -> NDArray[np.floating[Any]]:
        return np.append(np.asarray(self._values.numbers(), np.float64), np.nan)[self._codes]

    def labels(self, *, text: bool = False) -> tuple[NDArray[np.int64], Sequence[str]]:
        indices, labels = self._values.labels(text=text)
        return np.append(indices, -1)[self._codes], labels

    def persons(self) -> tuple[NDArray[np.int64], Sequence[str]]:
        indices, persons = self._values.persons()
        return np.append(indices, -1)[self._codes], persons
