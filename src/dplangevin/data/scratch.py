"""Records larger than memory, clipped once into a private scratch file and streamed from it."""

from __future__ import annotations

import errno
import math
import mmap
import os
import tempfile
from collections.abc import Callable
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from dplangevin._progress import iterate_with_progress
from dplangevin.data.dataset import RecordClipper, StoredDataset, check_shape
from dplangevin.data.integer_grids import RowGrid
from dplangevin.data.sources import CHARGE_STANDS_MESSAGE, RecordBatch, RecordSource, row_weights
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import Problem
from dplangevin.tables import as_column
from dplangevin.tables.files import READ_ROWS

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
        for records in iterate_with_progress(
            source.records(), "reading records", total=n_batches, private=True
        ):
            n_seen += len(records.targets)
            if n_seen > self._n:
                break
            self._write_batch(records, encode, n_seen - len(records.targets), file)
        if n_seen != self._n:
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only. "
                f"{CHARGE_STANDS_MESSAGE}"
            )

    def _write_batch(self, records: RecordBatch, encode: Encode | None, first: int, file: IO[bytes]) -> None:
        """Clip a batch of records and write it from row `first` on."""
        problem, clip = self._problem, RecordClipper(self._problem, self.grid)
        targets = as_column(records.targets, "targets")
        labels = targets.numbers() if encode is None else encode(targets)
        batch_weights = row_weights(encode, labels, records.weights)
        for start in range(0, len(labels), step := clip.block_rows):
            part = slice(start, start + step)
            weights = None if batch_weights is None else batch_weights[part]
            rows = np.empty((len(labels[part]), problem.n_columns), self._dtype)
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
