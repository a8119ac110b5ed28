"""Files of records: Parquet, Arrow (Feather) and text, read in order, one batch of rows at a time.

The file is split at line feeds (a carriage return before one belongs to it), a line at its delimiters. A cell that
begins with the quote extends to the closing quote (a doubled quote stands for itself), but at most to the end of the
line, so that no record can absorb the next. A short line has missing cells, surplus cells are dropped, and a cell
whose bytes are not UTF-8 is missing.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.tables.columns import ArrowColumn
from dplangevin.tables.frames import Table, check_unique_names

BLOCK_BYTES = 1 << 24
MAX_HEADER_BYTES = 1 << 24
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a line is split into cells.

    Parameters
    ----------
    delimiter : one ASCII character between cells.
    quote : one ASCII character around cells, or None.
    decimal : "," where a cell 3,14 is the number 3.14; a person's identifier and a text keep their characters. Marks
        between thousands are in no dialect: 1.234,5 is no number, and 1.234 is a little more than one.
    """

    delimiter: str = ","
    quote: str | None = '"'
    decimal: str = "."

    def __post_init__(self) -> None:
        for name, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if mark is None and name == "quote":
                continue
            if not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark in "\r\n\0":
                raise InvalidParameter(f"{name} must be one ASCII character, got {mark!r}.")
        if self.delimiter == self.quote:
            raise InvalidParameter("delimiter and quote must differ.")
        if self.decimal not in (".", ","):
            raise InvalidParameter(f"decimal must be '.' or ',', got {self.decimal!r}.")

    def split_line(self, line: bytes) -> list[bytes]:
        """Return the cells of one line; the reference with which faster paths must agree.

        Examples
        --------
        >>> Dialect().split_line(b'a,"b,c",d')
        [b'a', b'b,c', b'd']
        >>> Dialect().split_line(b'a,"b,c')  # an unclosed quote ends with its line
        [b'a', b'b,c']
        """
        mark, cells, start = self.delimiter.encode(), [], 0
        if self.quote is None or self.quote.encode() not in line:
            return line.split(mark)
        quote = self.quote.encode()
        while True:
            if line[start : start + 1] == quote:
                cell, start = _read_quoted(line, start + 1, quote)
            else:
                cell = b""
            end = line.find(mark, start)
            cells.append(cell + (line[start:] if end < 0 else line[start:end]))
            if end < 0:
                return cells
            start = end + 1


def _read_quoted(line: bytes, start: int, quote: bytes) -> tuple[bytes, int]:
    """Return the inside of a quoted cell, and the position after its closing quote (or the end of the line)."""
    parts: list[bytes] = []
    while True:
        end = line.find(quote, start)
        if end < 0:
            return b"".join([*parts, line[start:]]), len(line)
        parts.append(line[start:end])
        if line[end + 1 : end + 2] != quote:
            return b"".join(parts), end + 1
        parts.append(quote)
        start = end + 2


class TextFile:
    """Text file with a header, read as batches of text cells.

    Parameters
    ----------
    path : of the file; ".gz" files are decompressed.
    dialect : how lines are split.

    Attributes
    ----------
    names : columns, from the first line.
    """

    def __init__(self, path: str | Path, dialect: Dialect) -> None:
        self.path, self.dialect = Path(path), dialect
        with self._open() as file:
            first = file.readline(MAX_HEADER_BYTES)
        first = first.removeprefix(_BOM).rstrip(b"\n").removesuffix(b"\r")
        try:
            self.names = tuple(cell.decode() for cell in dialect.split_line(first))
        except UnicodeDecodeError:
            raise InvalidParameter(f"the first line of {str(path)!r} is not UTF-8 text.") from None
        if not all(self.names):
            raise InvalidParameter(
                f"{str(path)!r} must begin with a line that names every column; it is empty or a name is missing."
            )
        check_unique_names(self.names)

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        is_compressed = self.path.suffix.lower() == ".gz"
        try:
            with gzip.open(self.path, "rb") if is_compressed else self.path.open("rb") as file:
                yield file  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise InvalidParameter(
                f"{str(self.path)!r} is damaged: it cannot be decompressed to its end."
            ) from None

    def count_rows(self) -> int:
        """Return the number of lines after the header."""
        lines, last = -1, b"\n"
        with self._open() as file:
            while block := file.read(BLOCK_BYTES):
                lines, last = lines + block.count(b"\n"), block[-1:]
        return max(lines + (last != b"\n"), 0)

    def batches(self, names: Sequence[str], rows: int = 1 << 16) -> Iterator[Table]:
        """Yield tables of these columns, at most `rows` lines each, in order."""
        columns = [self.names.index(name) for name in names]
        with self._open() as file:
            file.readline(MAX_HEADER_BYTES)
            rest = b""
            while block := file.read(BLOCK_BYTES):
                end = block.rfind(b"\n") + 1
                if not end:
                    rest += block
                    continue
                lines, rest = rest + block[:end], block[end:]
                yield from self._table_of_lines(lines, names, columns, rows)
            if rest:
                yield from self._table_of_lines(rest + b"\n", names, columns, rows)

    def _table_of_lines(
        self, lines: bytes, names: Sequence[str], columns: list[int], rows: int
    ) -> Iterator[Table]:
        """Yield tables of whole lines, each of which ends with a line feed."""
        if b"\r\n" in lines:
            lines = lines.replace(b"\r\n", b"\n")
        table = _parse_lines(lines, len(self.names), columns, self.dialect)
        for start in range(0, table.num_rows, rows):
            part = table.slice(start, rows)
            cells = {
                name: ArrowColumn(_decode_column(part.column(j)), decimal=self.dialect.decimal)
                for j, name in enumerate(names)
            }
            yield Table(cells, part.num_rows)


def _parse_lines(lines: bytes, width: int, columns: list[int], dialect: Dialect) -> Any:
    """Return the columns of the lines as an Arrow table of bytes: plain lines at once, the others one by one."""
    import pyarrow as pa

    irregular, ends = _find_irregular_lines(lines, width, dialect)
    if not len(irregular):
        return _parse_plain_lines(lines, width, columns, dialect)
    starts = np.concatenate([[0], ends[:-1] + 1])
    cut = [dialect.split_line(lines[starts[i] : ends[i]]) for i in irregular]
    slow = pa.table(
        [pa.array([c[j] if j < len(c) else None for c in cut], pa.binary()) for j in columns],
        names=[str(j) for j in range(len(columns))],
    )
    if len(irregular) == len(ends):
        return slow
    is_plain = np.ones(len(lines), bool)
    for i in irregular:
        is_plain[starts[i] : ends[i] + 1] = False
    plain = _parse_plain_lines(np.frombuffer(lines, np.uint8)[is_plain].tobytes(), width, columns, dialect)
    index = np.empty(len(ends), np.int64)
    mask = np.zeros(len(ends), bool)
    mask[irregular] = True
    index[~mask], index[mask] = (
        np.arange(len(ends) - len(irregular)),
        len(ends) - len(irregular) + np.arange(len(irregular)),
    )
    return pa.concat_tables([plain, slow]).combine_chunks().take(pa.array(index))


def _find_irregular_lines(
    lines: bytes, width: int, dialect: Dialect
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the lines with a quote, a carriage return or a wrong number of cells; and the ends of all lines."""
    array = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(array == 10)
    marks = np.flatnonzero(array == ord(dialect.delimiter))
    counts = np.diff(np.searchsorted(marks, ends), prepend=0)
    irregular = counts != width - 1
    special = [b"\r"] if dialect.quote is None else [b"\r", dialect.quote.encode()]
    for mark in special:
        if mark in lines:
            irregular[np.searchsorted(ends, np.flatnonzero(array == mark[0]))] = True
    if width == 1:
        irregular |= np.diff(ends, prepend=-1) == 1  # an empty line is a record too
    return np.flatnonzero(irregular), ends


def _parse_plain_lines(lines: bytes, width: int, columns: list[int], dialect: Dialect) -> Any:
    """Parse lines of exactly `width` cells without quotes with Arrow."""
    from pyarrow import binary, csv

    names = [str(j) for j in range(width)]
    wanted = [names[j] for j in columns]
    if lines.startswith(_BOM):  # Arrow strips one byte order mark; here it belongs to a cell
        lines = _BOM + lines
    table = csv.read_csv(
        io.BytesIO(lines),
        read_options=csv.ReadOptions(column_names=names, block_size=max(len(lines), 1) + 1, use_threads=True),
        parse_options=csv.ParseOptions(
            delimiter=dialect.delimiter, quote_char=False, double_quote=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, binary()),
            include_columns=wanted,
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    return table.rename_columns([str(j) for j in range(len(columns))])


def _decode_column(column: Any) -> Any:
    """Decode bytes as text; a cell that is not UTF-8 becomes null."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.array([_decode_cell(cell) for cell in column.to_pylist()], pa.string())])


def _decode_cell(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


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
