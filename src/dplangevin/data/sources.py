"""Where records come from when they do not fit in memory: files and memory-mapped arrays, read in order, once."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter

READ_ROWS = 1 << 16
SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc"}
UNSPENT = "Nothing was charged and nothing was released."


class Records(NamedTuple):
    """A few records as they are stored: features [rows, columns], targets, and weights (None when all are 1)."""

    features: NDArray[Any]
    targets: NDArray[Any]
    weights: NDArray[Any] | None


class Source(ABC):
    """Records in a fixed order."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of records and of feature columns."""

    @property
    @abstractmethod
    def dtype(self) -> type[np.floating[Any]]:
        """float32 when every feature is stored so, else float64."""

    @property
    def weighted(self) -> bool:
        """Whether records have weights."""
        return False

    @abstractmethod
    def records(self) -> Iterator[Records]:
        """All records, some at a time."""

    def __len__(self) -> int:
        return self.shape[0]


@final
class ArraySource(Source):
    """Arrays, memory-mapped ones above all: features [n, columns] and targets [n], perhaps weights [n]."""

    def __init__(self, features: Any, targets: Any, weights: Any = None) -> None:
        if getattr(features, "ndim", 0) != 2 or np.shape(targets) != features.shape[:1]:
            raise InvalidParameter("features must have shape [n, columns] and targets shape [n].")
        if weights is not None and np.shape(weights) != np.shape(targets):
            raise InvalidParameter("weights must have one entry per record.")
        self._arrays = Records(features, targets, weights)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self._arrays.features.shape
        return int(rows), int(columns)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        return np.float32 if self._arrays.features.dtype == np.float32 else np.float64

    @property
    def weighted(self) -> bool:
        return self._arrays.weights is not None

    def records(self) -> Iterator[Records]:
        for start in range(0, len(self), READ_ROWS):
            part = slice(start, start + READ_ROWS)
            weights = None if self._arrays.weights is None else np.asarray(self._arrays.weights[part])
            yield Records(
                np.asarray(self._arrays.features[part]), np.asarray(self._arrays.targets[part]), weights
            )


@final
class ArrowSource(Source):
    """Parquet, Arrow or Feather files (a path, a folder, or several), or an Arrow table, read ahead in batches.

    Parameters
    ----------
    files : in the order in which they are read.
    target : name of the target's column.
    features : names of the feature columns; None takes every other column, in the order of the first file.
    weight : name of the weights' column, or None.
    """

    def __init__(
        self, files: Any, target: str, features: Sequence[str] | None = None, weight: str | None = None
    ) -> None:
        data = _arrow("dataset")
        if isinstance(files, (str, os.PathLike)) or _are_paths(files):
            paths = _paths(files)
            kind: Any = _format(paths)
            if kind == "parquet":  # streamed: whole row groups in advance would take gigabytes
                options = data.ParquetFragmentScanOptions(
                    use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False
                )
                kind = data.ParquetFileFormat(default_fragment_scan_options=options)
            self._data = data.dataset(paths, format=kind)
        else:
            self._data = data.dataset(files)
        names = list(self._data.schema.names)
        kept = (
            [n for n in names if n not in (target, weight)]
            if features is None
            else [str(n) for n in features]
        )
        missing = [n for n in [target, weight, *kept] if n is not None and n not in names]
        if missing:
            raise InvalidParameter(f"there is no column {missing[0]!r}; the columns are {', '.join(names)}.")
        self.target, self.features, self.weight = target, kept, weight
        self._same_schema()
        self._rows = int(self._data.count_rows())

    def _same_schema(self) -> None:
        """Every file has the columns of the first one, with the same types."""
        expected, wanted = self._data.schema, self._names
        for fragment in self._data.get_fragments():
            found = fragment.physical_schema
            for name in wanted:
                index = found.get_field_index(name)
                if index < 0 or found.field(index).type != expected.field(name).type:
                    got = "has no such column" if index < 0 else f"has {found.field(index).type}"
                    raise InvalidParameter(
                        f"column {name!r} is {expected.field(name).type} in the first file, but "
                        f"{getattr(fragment, 'path', 'another part')} {got}; write the files alike. {UNSPENT}"
                    )

    @property
    def _names(self) -> list[str]:
        return [*self.features, self.target, *([] if self.weight is None else [self.weight])]

    @property
    def shape(self) -> tuple[int, int]:
        return self._rows, len(self.features)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        types = {str(self._data.schema.field(name).type) for name in self.features}
        return np.float32 if types == {"float"} else np.float64

    @property
    def weighted(self) -> bool:
        return self.weight is not None

    def records(self) -> Iterator[Records]:
        for batch in self.batches(self.features):
            columns = [_numbers(batch, name) for name in self.features]
            features = np.empty((batch.num_rows, len(columns)), self.dtype)
            for start in range(
                0, batch.num_rows, 1024
            ):  # columns to rows, a piece that stays in cache at a time
                part = slice(start, start + 1024)
                for j, column in enumerate(columns):
                    features[part, j] = column[part]
            yield Records(features, *self.beside(batch))

    def batches(self, features: Sequence[str]) -> Iterator[Any]:
        """Arrow batches of these columns, with the target and the weights."""
        # Threads of Arrow would read on while the records are written, all the file if the disk is slow.
        options = {"batch_size": READ_ROWS, "batch_readahead": 1, "fragment_readahead": 1}
        names = [*features, *self._names[len(self.features) :]]
        yield from self._data.scanner(columns=names, use_threads=False, **options).to_batches()

    def beside(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Targets and weights of a batch."""
        target = batch.column(self.target).to_numpy(zero_copy_only=False)
        return target, None if self.weight is None else _numbers(batch, self.weight)


def source_of(data: Any, target: Any, weight: Any = None) -> Source | None:
    """The source for files (target and weight are columns' names) or memory-mapped arrays; None for anything else."""
    if isinstance(data, Source):
        if weight is not None:
            raise InvalidParameter(
                "a source states its weights itself, e.g. ArrowSource(files, target, weight='w')."
            )
        return data
    if isinstance(data, (str, os.PathLike)) or _are_paths(data):
        if not isinstance(target, str):
            raise InvalidParameter("with files, y must be the name of the target's column.")
        if not isinstance(weight, str | None):
            raise InvalidParameter("with files, sample_weight must be the name of the weights' column.")
        return ArrowSource(data, target, weight=weight)
    if isinstance(data, np.memmap) or (isinstance(data, np.ndarray) and isinstance(_root(data), np.memmap)):
        return ArraySource(data, target, weight)
    return None


def _root(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        if isinstance(array, np.memmap):
            return array
        array = array.base
    return array


def _are_paths(data: Any) -> bool:
    return (
        isinstance(data, (list, tuple))
        and bool(data)
        and all(isinstance(item, (str, os.PathLike)) for item in data)
    )


def _paths(files: Any) -> list[str]:
    given = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    paths: list[str] = []
    for item in map(Path, given):
        inside = sorted(p for p in item.rglob("*") if p.suffix in SUFFIXES) if item.is_dir() else [item]
        if not inside or not inside[0].is_file():
            raise InvalidParameter(f"{str(item)!r} is not a file, nor a folder with Parquet or Arrow files.")
        paths += [str(path) for path in inside]
    return paths


def _format(paths: Sequence[str]) -> str:
    formats = {SUFFIXES.get(Path(path).suffix, "") for path in paths}
    if len(formats) != 1 or "" in formats:
        raise InvalidParameter(f"files must all be Parquet or all Arrow ({', '.join(SUFFIXES)}).")
    return formats.pop()


def _numbers(batch: Any, name: str) -> NDArray[Any]:
    """A column as numbers; missing entries become NaN, which the clipping refuses."""
    array: NDArray[Any] = batch.column(name).to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"column {name!r} does not hold numbers; encode it by a public list first. {UNSPENT}"
        )
    return array


def _arrow(module: str) -> Any:
    try:
        from importlib import import_module

        return import_module(f"pyarrow.{module}")
    except ImportError:
        raise InvalidParameter(
            "Parquet and Arrow files need pyarrow; install it with: pip install 'dplangevin[tables]'."
        ) from None
