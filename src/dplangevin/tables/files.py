"""Files of records: Parquet, Arrow (Feather) and text, read in order, one batch of rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.tables.columns import ArrowColumn
from dplangevin.tables.frames import Table, check_unique_names
from dplangevin.tables.text import Dialect, TextFile

READ_ROWS = 1 << 16
READ_LIST_ROWS = 1 << 12
"""Rows of lists that are read at a time: a list may have thousands of cells."""
BINARY_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
TEXT_SUFFIXES = {".csv": ",", ".tsv": "\t", ".txt": ","}


class TableFiles:
    """Records in one file, a folder, a glob pattern or several files with the same columns; or an Arrow dataset.

    The column types of a file do not matter and may differ from file to file: every cell is read by itself. A column
    of lists of a fixed size, as embeddings are often stored in, counts as one column for each position in the list:
    "embedding[0]", "embedding[1]" and so on.

    Parameters
    ----------
    files : a path, a folder, a glob pattern or a list of paths, read in this order; or an Arrow table or dataset.
    dialect : of text files; None means comma (tab for .tsv) and the double quote.

    Attributes
    ----------
    names : columns of the first file, in order.
    condition : of a guarantee for the records from which these rows were computed, or None; see `tables.lazy`.
    """

    condition: str | None = None

    def __init__(self, files: Any, dialect: Dialect | None = None) -> None:
        self._texts: list[TextFile] = []
        self._parts: list[Any] = []
        self._paths = _list_paths(files) if is_path(files) else []
        self._state = self._file_states()
        if not is_path(files):
            arrow = _import_arrow("dataset")
            self._parts = [files if isinstance(files, arrow.Dataset) else arrow.dataset(files)]
        else:
            paths = self._paths
            kinds = {_file_kind(path) for path in paths}
            if len(kinds) != 1 or None in kinds:
                suffixes = ", ".join([*BINARY_SUFFIXES, *TEXT_SUFFIXES])
                raise InvalidParameter(f"files must all be Parquet, all Arrow or all text ({suffixes}).")
            try:
                if kinds == {"text"}:
                    _import_arrow("csv")
                    self._texts = [TextFile(path, dialect or _guess_dialect(path)) for path in paths]
                else:
                    self._parts = [_open_dataset(path, str(kinds.copy().pop())) for path in paths]
            except OSError as error:
                raise InvalidParameter(f"a file cannot be read: {error.strerror or 'damaged'}.") from None
        self._positions = [_list_positions(part.schema) for part in self._parts]
        headers = [text.names for text in self._texts] or [tuple(names) for names in self._positions]
        for text in self._texts if dialect is None else ():
            check_delimiter(str(text.path), text.names)
        for names in headers:
            check_unique_names(names)
        self.names: tuple[str, ...] = headers[0]
        self._headers = headers

    def require_columns(self, names: Sequence[str]) -> None:
        """Raise if some file lacks one of these columns."""
        for header in self._headers:
            if absent := [name for name in names if name not in header]:
                raise InvalidParameter(
                    f"there is no column {absent[0]!r}; the table has {_check.describe_columns(header)}."
                )

    def is_single_precision(self, names: Sequence[str]) -> bool:
        """Whether every one of these columns is stored in single precision."""
        return {str(kind) for name in names for kind in self._cell_types(name)} == {"float"}

    def is_numeric(self, name: str) -> bool:
        """Whether every file declares a numeric type for this column; a text file declares none."""
        if self._texts:
            return False
        types = _import_arrow("types")
        kinds = self._cell_types(name)
        return all(types.is_integer(k) or types.is_floating(k) or types.is_boolean(k) for k in kinds)

    def _cell_types(self, name: str) -> list[Any]:
        """Return the declared type of the cells of a column, in each file."""
        kinds = []
        for part, positions in zip(self._parts, self._positions, strict=True):
            stored, position = positions[name]
            kind = part.schema.field(stored).type
            kinds.append(kind if position is None else kind.value_type)
        return kinds

    def count_rows(self) -> int:
        """Return the number of records."""
        return sum(part.count_rows() for part in (*self._texts, *self._parts))

    def batches(self, names: Sequence[str]) -> Iterator[Table]:
        """Yield tables of these columns, in order; raise at the end if a file has changed meanwhile."""
        self.require_columns(names)
        for text in self._texts:
            yield from text.batches(names, READ_ROWS)
        for part, positions in zip(self._parts, self._positions, strict=True):
            stored = list(dict.fromkeys(positions[name][0] for name in names))
            is_wide = any(positions[name][1] is not None for name in names)
            # Arrow's threads would read ahead while records are written: the whole file, if the disk is slow.
            options = {"batch_readahead": 1, "fragment_readahead": 1}
            options["batch_size"] = READ_LIST_ROWS if is_wide else READ_ROWS
            for batch in part.scanner(columns=stored, use_threads=False, **options).to_batches():
                yield _read_batch(batch, names, positions)
        if self._file_states() != self._state:
            raise InvalidParameter(
                "a file changed after it was first read, so that what was computed for its rows (their persons, "
                "their number) may belong to others; make the file read-only. Nothing was released."
            )

    def _file_states(self) -> list[tuple[int, ...]]:
        """Return identity, size and time of modification of each file; an empty list if one is gone."""
        try:
            states = [os.stat(path) for path in self._paths]
        except OSError:
            return []
        return [(state.st_ino, state.st_dev, state.st_size, state.st_mtime_ns) for state in states]

    def read_table(self) -> Table:
        """Return all records in memory, in the types in which they are stored."""
        import pyarrow as pa

        columns: dict[str, list[Any]] = {name: [] for name in self.names}
        rows, decimal = 0, "."
        for batch in self.batches(self.names):
            rows += len(batch)
            for name, parts in columns.items():
                cells = batch.column(name)
                assert isinstance(cells, ArrowColumn)
                parts.extend(cells.chunks)
                decimal = cells.decimal
        return Table(
            {
                name: ArrowColumn(parts if parts else pa.nulls(0), decimal=decimal)
                for name, parts in columns.items()
            },
            rows,
        )


Positions = dict[str, tuple[str, int | None]]
"""For each column, the name under which it is stored, and its position in the lists that are stored there, or None."""


def _list_positions(schema: Any) -> Positions:
    """Return the columns of a file, those of a list of a fixed size one by one."""
    types, positions = _import_arrow("types"), Positions()
    for field in schema:
        if types.is_fixed_size_list(field.type):
            positions |= {f"{field.name}[{j}]": (field.name, j) for j in range(field.type.list_size)}
        else:
            positions[field.name] = (field.name, None)
    return positions


def _read_batch(batch: Any, names: Sequence[str], positions: Positions) -> Table:
    """Return these columns of a batch; a list that is absent, or lacks a cell, has cells that are no numbers."""
    import pyarrow as pa

    matrices: dict[str, Any] = {}
    columns = {}
    for name in names:
        stored, position = positions[name]
        cells = batch.column(stored)
        if position is None:
            columns[name] = ArrowColumn(cells)
            continue
        if stored not in matrices:
            size = cells.type.list_size
            # `flatten` would leave absent lists out and move the cells of all rows that follow
            flat = ArrowColumn(cells.values.slice(cells.offset * size, len(cells) * size)).numbers()
            matrix = np.array(flat.reshape(len(cells), size))
            matrix[cells.is_null().to_numpy(zero_copy_only=False)] = np.nan
            matrices[stored] = np.ascontiguousarray(matrix.T)
        columns[name] = ArrowColumn(pa.array(matrices[stored][position]))
    return Table(columns, batch.num_rows)


def is_path(data: Any) -> bool:
    """Whether the argument is a path, or a non-empty list of paths."""
    is_list = isinstance(data, list | tuple) and bool(data)
    return isinstance(data, str | os.PathLike) or (
        is_list and all(isinstance(item, str | os.PathLike) for item in data)
    )


def _file_kind(path: str) -> str | None:
    name = path.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    return "text" if suffix in TEXT_SUFFIXES else BINARY_SUFFIXES.get(suffix)


def check_delimiter(path: str, names: Sequence[str]) -> None:
    """Raise if a header, which is public, looks as if another delimiter separated its columns."""
    marks = [mark for mark in ";\t|," if mark in names[0]] if len(names) == 1 else []
    if marks:
        mark, name = "\\t" if marks[0] == "\t" else marks[0], names[0]
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InvalidParameter(
            f"the first line of {path!r} names a single column, {shown!r}: if {mark!r} separates its columns, state "
            f"--delimiter '{mark}' (in Python dialect=Dialect(delimiter='{mark}')); otherwise state the delimiter ','."
        )


def _guess_dialect(path: str) -> Dialect:
    return Dialect(delimiter=TEXT_SUFFIXES[Path(path.lower().removesuffix(".gz")).suffix])


def _open_dataset(path: str, kind: str) -> Any:
    """Open a Parquet or Arrow file as a streamed Arrow dataset."""
    data = _import_arrow("dataset")
    file_format: Any = kind
    if kind == "parquet":  # streamed: buffering whole row groups would take gigabytes
        options = data.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False
        )
        file_format = data.ParquetFileFormat(default_fragment_scan_options=options)
    try:
        return data.dataset(path, format=file_format)
    except (ValueError, TypeError, ArithmeticError):  # Arrow's message may quote private values
        raise InvalidParameter(f"{path!r} cannot be read as a {kind} file; it is damaged.") from None


def _list_paths(files: Any) -> list[str]:
    """Return the files of a path, a folder, a glob pattern or a list of these, in order."""
    items = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths: list[str] = []
    for item in map(Path, items):
        if item.is_dir():
            inside = sorted(path for path in item.rglob("*") if _file_kind(str(path)) is not None)
        elif not item.exists() and any(sign in str(item) for sign in "*?["):
            inside = sorted(map(Path, glob(str(item))))
        else:
            inside = [item]
        if not inside or not inside[0].is_file():
            raise InvalidParameter(
                f"there is no file {str(item)!r}: it is not a file, nor a folder with Parquet, Arrow or text files."
            )
        paths += [str(path) for path in inside]
    return paths


def _import_arrow(module: str) -> Any:
    try:
        from importlib import import_module

        return import_module(f"pyarrow.{module}")
    except ImportError:
        raise InvalidParameter(
            "files of records need pyarrow; install it with: pip install 'dplangevin[tables]'."
        ) from None
