"""Text files: one line is one record, in a stated dialect, and no type is ever inferred.

The file is split at line feeds (a carriage return before one belongs to it), a line at its delimiters. A cell that
begins with the quote extends to the closing quote (a doubled quote stands for itself), but at most to the end of the
line, so that no record can absorb the next. A short line has missing cells, surplus cells are dropped, and a cell
whose bytes are not UTF-8 is missing.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

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
