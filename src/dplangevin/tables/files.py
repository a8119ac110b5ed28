"""Files of records: Parquet, Arrow (Feather) and text, read in order, some rows at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from dplangevin.errors import InvalidParameter
from dplangevin.tables.columns import ArrowCells
from dplangevin.tables.room import Table, unique_names
from dplangevin.tables.text import Dialect, TextFile

READ_ROWS = 1 << 16
BINARY = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
TEXT = {".csv": ",", ".tsv": "\t", ".txt": ","}


class Files:
    """One file, a folder, a pattern or several files with the same columns; or an Arrow table or dataset.

    The types of a file's columns do not matter, and may differ from file to file: a cell is read by itself.

    Parameters
    ----------
    files : in the order in which they are read.
    dialect : of text files; None is comma (tab for .tsv) and the double quote.
    """

    def __init__(self, files: Any, dialect: Dialect | None = None) -> None:
        self._texts: list[TextFile] = []
        self._parts: list[Any] = []
        self._paths = _paths(files) if is_path(files) else []
        self._state = self._now()
        if not is_path(files):
            self._parts = [_arrow("dataset").dataset(files)]
        else:
            paths = self._paths
            kinds = {_kind(path) for path in paths}
            if len(kinds) != 1 or None in kinds:
                raise InvalidParameter(
                    f"files must all be Parquet, all Arrow or all text ({', '.join([*BINARY, *TEXT])})."
                )
            try:
                if kinds == {"text"}:
                    _arrow("csv")
                    self._texts = [TextFile(path, dialect or _dialect(path)) for path in paths]
                else:
                    self._parts = [_dataset(path, str(kinds.copy().pop())) for path in paths]
            except OSError as error:
                raise InvalidParameter(f"a file cannot be read: {error.strerror or 'damaged'}.") from None
        headers = [text.names for text in self._texts] or [tuple(part.schema.names) for part in self._parts]
        for names in headers:
            unique_names(names)
        self.names: tuple[str, ...] = headers[0]
        self._headers = headers

    def require(self, names: Sequence[str]) -> None:
        """Refuse columns that some file does not have."""
        for header in self._headers:
            if absent := [name for name in names if name not in header]:
                raise InvalidParameter(
                    f"there is no column {absent[0]!r}; the columns are {', '.join(header)}."
                )

    def single(self, names: Sequence[str]) -> bool:
        """Whether every one of these columns is stored in single precision."""
        kinds = {str(part.schema.field(name).type) for part in self._parts for name in names}
        return kinds == {"float"}

    def numeric(self, name: str) -> bool:
        """Whether every file states a type of numbers for this column; a text file states none."""
        if self._texts:
            return False
        types = _arrow("types")
        kinds = [part.schema.field(name).type for part in self._parts]
        return all(types.is_integer(k) or types.is_floating(k) or types.is_boolean(k) for k in kinds)

    def count_rows(self) -> int:
        """Number of records."""
        return sum(part.count_rows() for part in (*self._texts, *self._parts))

    def batches(self, names: Sequence[str]) -> Iterator[Table]:
        """Tables of these columns, in order."""
        self.require(names)
        for text in self._texts:
            yield from text.batches(names, READ_ROWS)
        for part in self._parts:
            # Threads of Arrow would read on while the records are written, all the file if the disk is slow.
            options = {"batch_size": READ_ROWS, "batch_readahead": 1, "fragment_readahead": 1}
            for batch in part.scanner(columns=list(names), use_threads=False, **options).to_batches():
                cells = {name: ArrowCells(batch.column(j)) for j, name in enumerate(names)}
                yield Table(cells, batch.num_rows)
        if self._now() != self._state:
            raise InvalidParameter(
                "a file changed since it was first looked at, so that what was worked out for its rows (whose they "
                "are, how many) may belong to others; make it read-only. Nothing was released."
            )

    def _now(self) -> list[tuple[int, ...]]:
        """Which files these are, and when they were written; nothing where one is gone."""
        try:
            found = [os.stat(path) for path in self._paths]
        except OSError:
            return []
        return [(one.st_ino, one.st_dev, one.st_size, one.st_mtime_ns) for one in found]

    def table(self) -> Table:
        """Everything in memory, typed as it is stored."""
        import pyarrow as pa

        columns: dict[str, list[Any]] = {name: [] for name in self.names}
        rows = 0
        for batch in self.batches(self.names):
            rows += len(batch)
            for name, parts in columns.items():
                cells = batch.column(name)
                assert isinstance(cells, ArrowCells)
                parts.extend(cells.chunks)
        made = {name: ArrowCells(parts if parts else pa.nulls(0)) for name, parts in columns.items()}
        return Table(made, rows)


def is_path(given: Any) -> bool:
    """Whether this names a file, or several."""
    several = isinstance(given, list | tuple) and bool(given)
    return isinstance(given, str | os.PathLike) or (
        several and all(isinstance(item, str | os.PathLike) for item in given)
    )


def _kind(path: str) -> str | None:
    name = path.lower().removesuffix(".gz")
    suffix = Path(name).suffix
    return "text" if suffix in TEXT else BINARY.get(suffix)


def _dialect(path: str) -> Dialect:
    return Dialect(separator=TEXT[Path(path.lower().removesuffix(".gz")).suffix])


def _dataset(path: str, kind: str) -> Any:
    data = _arrow("dataset")
    found: Any = kind
    if kind == "parquet":  # streamed: whole row groups in advance would take gigabytes
        options = data.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False
        )
        found = data.ParquetFileFormat(default_fragment_scan_options=options)
    try:
        return data.dataset(path, format=found)
    except (ValueError, TypeError, ArithmeticError):  # a message of the engine may quote the file
        raise InvalidParameter(f"{path!r} cannot be read as a {kind} file; it is damaged.") from None


def _paths(files: Any) -> list[str]:
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    paths: list[str] = []
    for item in map(Path, given):
        if item.is_dir():
            inside = sorted(path for path in item.rglob("*") if _kind(str(path)) is not None)
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


def _arrow(module: str) -> Any:
    try:
        from importlib import import_module

        return import_module(f"pyarrow.{module}")
    except ImportError:
        raise InvalidParameter(
            "files of records need pyarrow; install it with: pip install 'dplangevin[tables]'."
        ) from None
