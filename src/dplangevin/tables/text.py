"""Files of text: one line is one record, in a stated dialect, and no type is ever guessed.

The file is cut at line feeds (a carriage return before one belongs to it). A line is cut at separators; a cell that
begins with the quote reaches to the closing quote (a doubled one stands for itself), at most to the end of the line:
no record can swallow the next. Missing cells are missing, surplus cells are dropped, and a cell whose bytes are not
UTF-8 is missing.
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
from dplangevin.tables.columns import ArrowCells
from dplangevin.tables.room import Table, unique_names

BLOCK_BYTES = 1 << 24
LONGEST_HEADER = 1 << 24
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How a line is cut into cells: one ASCII separator, and one quote (or none)."""

    separator: str = ","
    quote: str | None = '"'

    def __post_init__(self) -> None:
        for name, mark in (("separator", self.separator), ("quote", self.quote)):
            if mark is None and name == "quote":
                continue
            if not isinstance(mark, str) or len(mark) != 1 or not mark.isascii() or mark in "\r\n\0":
                raise InvalidParameter(f"{name} must be one ASCII character, got {mark!r}.")
        if self.separator == self.quote:
            raise InvalidParameter("separator and quote must differ.")

    def cut(self, line: bytes) -> list[bytes]:
        """The cells of one line: the law that faster paths must agree with.

        Examples
        --------
        >>> Dialect().cut(b'a,"b,c",d')
        [b'a', b'b,c', b'd']
        >>> Dialect().cut(b'a,"b,c')  # a stray quote ends with its line
        [b'a', b'b,c']
        """
        mark, found, start = self.separator.encode(), [], 0
        if self.quote is None or self.quote.encode() not in line:
            return line.split(mark)
        quote = self.quote.encode()
        while True:
            if line[start : start + 1] == quote:
                cell, start = _quoted(line, start + 1, quote)
            else:
                cell = b""
            end = line.find(mark, start)
            found.append(cell + (line[start:] if end < 0 else line[start:end]))
            if end < 0:
                return found
            start = end + 1


def _quoted(line: bytes, start: int, quote: bytes) -> tuple[bytes, int]:
    """The inside of a quoted cell, and the place after its closing quote (or the end of the line)."""
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
    """A text file with a header; batches of its lines are tables of texts.

    Parameters
    ----------
    path : of the file. dialect : how lines are cut.
    """

    def __init__(self, path: str | Path, dialect: Dialect) -> None:
        self.path, self.dialect = Path(path), dialect
        with self._open() as file:
            first = file.readline(LONGEST_HEADER)
        first = first.removeprefix(_BOM).rstrip(b"\n").removesuffix(b"\r")
        try:
            self.names = tuple(cell.decode() for cell in dialect.cut(first))
        except UnicodeDecodeError:
            raise InvalidParameter(f"the first line of {str(path)!r} is not text in UTF-8.") from None
        if not all(self.names):
            raise InvalidParameter(
                f"{str(path)!r} must begin with a line that names every column; it is empty or a name is missing."
            )
        unique_names(self.names)

    @contextmanager
    def _open(self) -> Iterator[IO[bytes]]:
        packed = self.path.suffix.lower() == ".gz"
        try:
            with gzip.open(self.path, "rb") if packed else self.path.open("rb") as file:
                yield file  # type: ignore[misc]
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise InvalidParameter(
                f"{str(self.path)!r} is damaged: it cannot be unpacked to its end."
            ) from None

    def count_rows(self) -> int:
        """The number of lines after the header."""
        lines, last = -1, b"\n"
        with self._open() as file:
            while block := file.read(BLOCK_BYTES):
                lines, last = lines + block.count(b"\n"), block[-1:]
        return max(lines + (last != b"\n"), 0)

    def batches(self, names: Sequence[str], rows: int = 1 << 16) -> Iterator[Table]:
        """Tables of some columns, in the order of the lines."""
        columns = [self.names.index(name) for name in names]
        with self._open() as file:
            file.readline(LONGEST_HEADER)
            rest = b""
            while block := file.read(BLOCK_BYTES):
                end = block.rfind(b"\n") + 1
                if not end:
                    rest += block
                    continue
                lines, rest = rest + block[:end], block[end:]
                yield from self._table(lines, names, columns, rows)
            if rest:
                yield from self._table(rest + b"\n", names, columns, rows)

    def _table(self, lines: bytes, names: Sequence[str], columns: list[int], rows: int) -> Iterator[Table]:
        """Whole lines, each ended by a line feed."""
        if b"\r\n" in lines:
            lines = lines.replace(b"\r\n", b"\n")
        table = _parsed(lines, len(self.names), columns, self.dialect)
        for start in range(0, table.num_rows, rows):
            part = table.slice(start, rows)
            cells = {name: ArrowCells(_decoded(part.column(j))) for j, name in enumerate(names)}
            yield Table(cells, part.num_rows)


def _parsed(lines: bytes, width: int, columns: list[int], dialect: Dialect) -> Any:
    """The columns of the lines as an Arrow table of bytes: plain lines at once, the others one by one."""
    import pyarrow as pa

    odd, ends = _odd_lines(lines, width, dialect)
    if not len(odd):
        return _plain_lines(lines, width, columns, dialect)
    starts = np.concatenate([[0], ends[:-1] + 1])
    cut = [dialect.cut(lines[starts[i] : ends[i]]) for i in odd]
    slow = pa.table(
        [pa.array([c[j] if j < len(c) else None for c in cut], pa.binary()) for j in columns],
        names=[str(j) for j in range(len(columns))],
    )
    if len(odd) == len(ends):
        return slow
    kept = np.ones(len(lines), bool)
    for i in odd:
        kept[starts[i] : ends[i] + 1] = False
    plain = _plain_lines(np.frombuffer(lines, np.uint8)[kept].tobytes(), width, columns, dialect)
    place = np.empty(len(ends), np.int64)
    mask = np.zeros(len(ends), bool)
    mask[odd] = True
    place[~mask], place[mask] = np.arange(len(ends) - len(odd)), len(ends) - len(odd) + np.arange(len(odd))
    return pa.concat_tables([plain, slow]).combine_chunks().take(pa.array(place))


def _odd_lines(lines: bytes, width: int, dialect: Dialect) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lines with a quote, a carriage return or another number of cells than the header; and where lines end."""
    array = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(array == 10)
    marks = np.flatnonzero(array == ord(dialect.separator))
    counts = np.diff(np.searchsorted(marks, ends), prepend=0)
    odd = counts != width - 1
    strange = [b"\r"] if dialect.quote is None else [b"\r", dialect.quote.encode()]
    for mark in strange:
        if mark in lines:
            odd[np.searchsorted(ends, np.flatnonzero(array == mark[0]))] = True
    if width == 1:
        odd |= np.diff(ends, prepend=-1) == 1  # an empty line is a record too
    return np.flatnonzero(odd), ends


def _plain_lines(lines: bytes, width: int, columns: list[int], dialect: Dialect) -> Any:
    """Lines of exactly `width` cells without quotes, cut by Arrow."""
    from pyarrow import binary, csv

    names = [str(j) for j in range(width)]
    wanted = [names[j] for j in columns]
    if lines.startswith(_BOM):  # Arrow takes one mark away, which is a cell's own here
        lines = _BOM + lines
    table = csv.read_csv(
        io.BytesIO(lines),
        read_options=csv.ReadOptions(column_names=names, block_size=max(len(lines), 1) + 1, use_threads=True),
        parse_options=csv.ParseOptions(
            delimiter=dialect.separator, quote_char=False, double_quote=False, ignore_empty_lines=False
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, binary()),
            include_columns=wanted,
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    return table.rename_columns([str(j) for j in range(len(columns))])


def _decoded(column: Any) -> Any:
    """Bytes as text; a cell that is no UTF-8 is null."""
    import pyarrow as pa

    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.array([_text(cell) for cell in column.to_pylist()], pa.string())])


def _text(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None
