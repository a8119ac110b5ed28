"""Sources of records: deferred reading after the charge, files, memory-mapped arrays, and a scratch file."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import IO, Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from dplangevin._progress import iterate_with_progress
from dplangevin.data.dataset import Dataset, RecordClipper, StoredDataset, check_shape
from dplangevin.data.integer_grids import RowGrid
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import Problem
from dplangevin.tables import CellColumn, Dialect, Table, as_column, is_streamed, open_files
from dplangevin.tables.files import READ_ROWS


@final
class RecordReader:
    """Data set that a mechanism reads itself, once, after the budget is charged.

    Parameters
    ----------
    problem : the public problem to whose bounds the records will be clipped.
    read : function that reads and clips the records.
    is_single_use : one mechanism reads the records, and nobody after it. `read` is then given the grid to which this
        mechanism rounds rows, or None, and may round them at once.
    """

    def __init__(
        self, problem: Problem, read: Callable[..., Dataset], *, is_single_use: bool = False
    ) -> None:
        self.problem, self._read, self.is_single_use = problem, read, is_single_use

    @cached_property
    def dataset(self) -> Dataset:
        """Clipped records, read at first use."""
        return self._check_problem(self._read())

    def read_once(self, grid: RowGrid | None) -> Dataset:
        """Return the clipped records of a single use, on the grid if that saves a pass."""
        return self._check_problem(self._read(grid))

    def _check_problem(self, dataset: Dataset) -> Dataset:
        if dataset.problem != self.problem:
            raise InvalidParameter(
                "the records were clipped for another problem than the one that was charged."
            )
        return dataset


def read_records(data: Dataset | RecordReader) -> Dataset:
    """Return the records, reading them now if needed; for code that runs after the budget is charged."""
    return data.dataset if isinstance(data, RecordReader) else data


CHARGE_STANDS_MESSAGE = "Nothing was released; what a ledger was charged for this stays charged."


def row_weights(encode: Any, labels: NDArray[Any], weights: Any) -> Any:
    """Return the records' weights, times their class weights if the target encoder has some."""
    by_class = getattr(encode, "row_weights", None)
    return weights if by_class is None else by_class(labels, weights)


class RecordBatch(NamedTuple):
    """Batch of records: features [rows, columns], unread targets, and weights (None when all are 1)."""

    features: NDArray[Any]
    targets: CellColumn
    weights: NDArray[Any] | None


class RecordSource(ABC):
    """Records in a fixed order."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Numbers of records and of feature columns."""

    @property
    @abstractmethod
    def dtype(self) -> type[np.floating[Any]]:
        """float32 if every feature is stored in single precision, else float64."""

    @property
    def has_weights(self) -> bool:
        """Whether records have weights."""
        return False

    @property
    def has_numeric_targets(self) -> bool:
        """Whether the declared type of the targets is numeric; False where no type is declared."""
        return False

    @abstractmethod
    def records(self) -> Iterator[RecordBatch]:
        """Yield all records, one batch at a time."""

    def __len__(self) -> int:
        return self.shape[0]


@final
class ArraySource(RecordSource):
    """Records in arrays, typically memory-mapped: features [n, columns], targets [n] and optionally weights [n]."""

    def __init__(self, features: Any, targets: Any, weights: Any = None) -> None:
        if getattr(features, "ndim", 0) != 2 or len(targets) != features.shape[0]:
            raise InvalidParameter("features must have shape [n, columns] and targets shape [n].")
        if weights is not None and len(weights) != len(targets):
            raise InvalidParameter("weights must have one entry per record.")
        self._features, self._targets = features, as_column(targets, "targets")
        self._weights = None if weights is None else as_column(weights, "weights")

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self._features.shape
        return int(rows), int(columns)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        return np.float32 if self._features.dtype == np.float32 else np.float64

    @property
    def has_weights(self) -> bool:
        return self._weights is not None

    @property
    def has_numeric_targets(self) -> bool:
        return self._targets.is_numeric

    def records(self) -> Iterator[RecordBatch]:
        for start in range(0, len(self), READ_ROWS):
            part = slice(start, min(start + READ_ROWS, len(self)))
            weights = None if self._weights is None else self._weights.slice(part).numbers()
            yield RecordBatch(np.asarray(self._features[part]), self._targets.slice(part), weights)


@final
class ArrowSource(RecordSource):
    """Records in Parquet, Arrow, Feather or text files (a path, a folder, or several), or in an Arrow table.

    Every cell is read by itself (see `dplangevin.tables`), so files may store a column in different types.

    Parameters
    ----------
    files : in the order in which they are read; or `TableFiles` that were opened before and must not change.
    target : name of the target column.
    features : names of the feature columns; None takes every other column, in the order of the first file.
    weight : name of the weight column, or None.
    dialect : of text files; None means comma (tab for .tsv) and the double quote.
    row_mask : boolean for each row, whether it is used; None uses all rows.
    """

    def __init__(
        self,
        files: Any,
        target: str,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        dialect: Dialect | None = None,
        row_mask: NDArray[np.bool_] | None = None,
    ) -> None:
        self._files = open_files(files, dialect)
        self._row_mask = row_mask
        names = [n for n in self._files.names if n not in (target, weight)] if features is None else features
        self.target, self.features, self.weight = target, [str(name) for name in names], weight
        self._files.require_columns(self._names)
        self._n_rows = self._files.count_rows() if row_mask is None else int(row_mask.sum())

    @property
    def _names(self) -> list[str]:
        return [*self.features, self.target, *([] if self.weight is None else [self.weight])]

    @property
    def shape(self) -> tuple[int, int]:
        return self._n_rows, len(self.features)

    @property
    def dtype(self) -> type[np.floating[Any]]:
        return np.float32 if self._files.is_single_precision(self.features) else np.float64

    @property
    def has_weights(self) -> bool:
        return self.weight is not None

    @property
    def has_numeric_targets(self) -> bool:
        return self._files.is_numeric(self.target)

    def records(self) -> Iterator[RecordBatch]:
        for features, targets, weights in self.batches(self.features):
            yield RecordBatch(features.to_matrix().astype(self.dtype, copy=False), targets, weights)

    def batches(
        self, features: Sequence[str] | None = None
    ) -> Iterator[tuple[Table, CellColumn, NDArray[Any] | None]]:
        """Yield tables of these columns (None: the features), with the unread targets and the weights."""
        columns = self.features if features is None else list(features)
        auxiliary = [self.target, *([] if self.weight is None else [self.weight])]
        first = 0
        for batch in self._files.batches(list(dict.fromkeys([*columns, *auxiliary]))):
            if self._row_mask is not None:
                first, mask = first + len(batch), self._row_mask[first : first + len(batch)]
                batch = batch.take(np.flatnonzero(mask))
            weights = None if self.weight is None else batch.column(self.weight).numbers()
            table = batch if self.target in columns else batch.drop_columns(*auxiliary)
            yield table, batch.column(self.target), weights


def make_source(data: Any, target: Any, weight: Any = None) -> RecordSource | None:
    """Return the source for files (target and weight are column names) or memory-mapped arrays; None otherwise."""
    if isinstance(data, RecordSource):
        if weight is not None:
            raise InvalidParameter(
                "a source brings its own weights; state them there, e.g. ArrowSource(files, target, weight='w')."
            )
        return data
    if is_streamed(data):
        if not isinstance(target, str):
            raise InvalidParameter("with files, y must be the name of the target column.")
        if not isinstance(weight, str | None):
            raise InvalidParameter("with files, sample_weight must be the name of the weight column.")
        return ArrowSource(data, target, weight=weight)
    if isinstance(data, np.memmap) or (
        isinstance(data, np.ndarray) and isinstance(_base_array(data), np.memmap)
    ):
        return ArraySource(data, target, weight)
    return None


def _base_array(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        if isinstance(array, np.memmap):
            return array
        array = array.base
    return array


Encode = Callable[[Any], NDArray[np.float64]]


@final
class ScratchDataset(StoredDataset):
    """Clipped records in a scratch file that only this process can read and that no crash leaves behind.

    The file has no name (it is unlinked as soon as it is created), mode 0600 and rows in C order; passes read it
    through the page cache and prefetch the next piece. The source is read once, so later changes to it do not matter.

    Parameters
    ----------
    source : of the records; its number of rows must be the problem's n (replace-one) or at most n (add-remove
        without allow_more_rows).
    problem : to whose bounds the records are clipped.
    encode : function of the targets that returns the labels of the problem; None: identity.
    folder : of the scratch file; None means DPLANGEVIN_SCRATCH, or the system's folder for temporary files.
    grid : round rows to it before they are written: one file instead of two.
    """

    def __init__(
        self,
        source: RecordSource,
        problem: Problem,
        encode: Encode | None = None,
        folder: str | None = None,
        *,
        grid: RowGrid | None = None,
    ) -> None:
        check_shape(source.shape, problem)
        self._problem, self._n, self._folder, self.grid = problem, len(source), folder, grid
        self._dtype = np.dtype(source.dtype) if grid is None else grid.dtype
        by_class = getattr(encode, "class_weights", None) is not None
        weighted = source.has_weights or by_class or problem.bounds.weight_bound < 1
        width = problem.n_columns * self._dtype.itemsize
        self._starts = np.cumsum(
            [0, _round_up_to_page(self._n * width), _round_up_to_page(self._n * 8)]
        ).tolist()
        size = self._starts[2] + (_round_up_to_page(self._n * 8) if weighted else 0)
        try:
            with _open_scratch_file(folder, size) as file:
                self._write(source, encode, file)
                file.flush()
                self._map = mmap.mmap(file.fileno(), max(size, 1))
        except OSError as error:
            raise _disk_error(error) from error
        number = np.dtype(np.float64)
        self._store_arrays(
            self._view(0, self._dtype, (self._n, problem.n_columns)),
            self._view(1, number, (self._n,)),
            self._view(2, number, (self._n,)) if weighted else None,
        )

    def _view(self, part: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, self._map, self._starts[part])

    def _write(self, source: RecordSource, encode: Encode | None, file: IO[bytes]) -> None:
        """Clip and write all records; raise if their number is not that of the source."""
        n_seen, n_batches = 0, -(-self._n // READ_ROWS)
        n_bytes = self._n * self._problem.n_columns * self._dtype.itemsize
        clip = RecordClipper(self._problem, self.grid, n_bytes)
        for records in iterate_with_progress(
            source.records(), "reading records", total=n_batches, private=True
        ):
            n_seen += len(records.targets)
            if n_seen > self._n:
                break
            self._write_batch(records, encode, clip, n_seen - len(records.targets), file)
        if n_seen != self._n:
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only. "
                f"{CHARGE_STANDS_MESSAGE}"
            )

    def _write_batch(
        self, records: RecordBatch, encode: Encode | None, clip: RecordClipper, first: int, file: IO[bytes]
    ) -> None:
        """Clip a batch of records and write it from row `first` on."""
        targets = as_column(records.targets, "targets")
        labels = targets.numbers() if encode is None else encode(targets)
        batch_weights = row_weights(encode, labels, records.weights)
        for start in range(0, len(labels), step := clip.block_rows):
            part = slice(start, start + step)
            weights = None if batch_weights is None else batch_weights[part]
            rows = np.empty((len(labels[part]), self._problem.n_columns), self._dtype)
            try:
                clipped_labels, clipped_weights = clip(records.features[part], labels[part], weights, rows)
            except InvalidParameter as error:
                raise InvalidParameter(f"{error} {CHARGE_STANDS_MESSAGE}") from None
            row = first + start
            for i, array in enumerate((rows, clipped_labels, clipped_weights)):
                if array is not None:
                    width = array.itemsize * (array.shape[1] if array.ndim == 2 else 1)
                    file.seek(self._starts[i] + row * width)
                    file.write(np.ascontiguousarray(array).data)

    def _read_ahead(self, start: int, stop: int) -> None:
        """Ask the system to read these rows while the previous ones are summed."""
        file = self._rows.base  # the rows are the first thing in it
        if hasattr(mmap, "MADV_WILLNEED") and isinstance(file, mmap.mmap):
            width = self._rows.strides[0]
            first = start * width // mmap.PAGESIZE * mmap.PAGESIZE
            file.madvise(mmap.MADV_WILLNEED, first, stop * width - first)

    def allocate_numbers(self, size: int) -> NDArray[np.float64]:
        """Return an array in a scratch file of its own, like the rows."""
        return self._map_file("weights", (size,), np.dtype(np.float64))

    def _allocate_rows(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array in another scratch file."""
        return self._map_file("rounded rows", shape, dtype)

    def _map_file(self, what: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array in a scratch file of its own."""
        size = math.prod(shape) * dtype.itemsize
        try:
            with _open_scratch_file(self._folder, size) as file:
                return np.ndarray(shape, dtype, mmap.mmap(file.fileno(), max(size, 1)))
        except OSError as error:
            raise DplangevinError(
                f"the scratch file of the records' {what} could not be created: {error.strerror}. What was charged "
                "stays charged, and nothing was released; free space, or name a folder in DPLANGEVIN_SCRATCH."
            ) from error

    def __reduce__(self) -> Any:
        raise InvalidParameter("a scratch data set belongs to one process and cannot be pickled.")


def _open_scratch_file(folder: str | None, size: int) -> Any:
    """Return an unnamed file of mode 0600 with `size` bytes reserved."""
    directory = folder or os.environ.get("DPLANGEVIN_SCRATCH") or tempfile.gettempdir()
    file = tempfile.TemporaryFile(dir=directory, prefix="dplangevin-")  # noqa: SIM115 (closed by the caller)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        else:
            file.truncate(max(size, 1))
    except OSError:
        file.close()
        raise
    return file


def _disk_error(error: OSError) -> DplangevinError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return DplangevinError(
            "the disk is full: the scratch file of the records does not fit. Free space, or name another folder in "
            f"DPLANGEVIN_SCRATCH. {CHARGE_STANDS_MESSAGE}"
        )
    reason = error.strerror or type(error).__name__
    return DplangevinError(
        f"the records or their scratch file could not be read: {reason}. {CHARGE_STANDS_MESSAGE}"
    )


def _round_up_to_page(size: int) -> int:
    """Return the size rounded up to whole pages."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
