"""ScratchDataset: records larger than memory, clipped once into a private file and streamed from it."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Callable
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from dplangevin._progress import progress
from dplangevin.data._kernels import GROUP
from dplangevin.data.dataset import StoredDataset, check_size
from dplangevin.data.sources import UNSPENT, Records, Source, row_weights
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import Problem
from dplangevin.tables import cells_of
from dplangevin.tables.files import READ_ROWS

Encode = Callable[[Any], NDArray[np.float64]]


@final
class ScratchDataset(StoredDataset):
    """Clipped records in a scratch file that only this process can read and that no crash leaves behind.

    The file has no name (it is unlinked when it is made), mode 0600, rows in C order; passes read it through the page
    cache, asking for the next piece ahead. The source is read once, so later changes of it do not matter.

    Parameters
    ----------
    source : of the records; its number of rows must be the problem's n (replace-one) or at most n (add-remove
        without more_rows).
    encode : targets to what the problem sees; None leaves them.
    folder : of the scratch file; None is DPLANGEVIN_SCRATCH, or the system's folder for temporary files.
    """

    def __init__(
        self, source: Source, problem: Problem, encode: Encode | None = None, folder: str | None = None
    ) -> None:
        check_size(source.shape, problem)
        self._problem, self._n, self._folder = problem, len(source), folder
        self._dtype = np.dtype(source.dtype)
        by_class = getattr(encode, "class_weights", None) is not None
        weighted = source.weighted or by_class or problem.bounds.weight_bound < 1
        width = problem.n_columns * self._dtype.itemsize
        self._starts = np.cumsum([0, _page(self._n * width), _page(self._n * 8)]).tolist()
        size = self._starts[2] + (_page(self._n * 8) if weighted else 0)
        try:
            with _scratch(folder, size) as file:
                self._write(source, encode, file)
                file.flush()
                self._map = mmap.mmap(file.fileno(), max(size, 1))
        except OSError as error:
            raise _disk_error(error) from error
        number = np.dtype(np.float64)
        self._keep(
            self._view(0, self._dtype, (self._n, problem.n_columns)),
            self._view(1, number, (self._n,)),
            self._view(2, number, (self._n,)) if weighted else None,
        )

    def _view(self, part: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        return np.ndarray(shape, dtype, self._map, self._starts[part])

    def _write(self, source: Source, encode: Encode | None, file: IO[bytes]) -> None:
        seen, about = 0, -(-self._n // READ_ROWS)
        for records in progress(source.records(), "reading records", total=about, private=True):
            seen += len(records.targets)
            if seen > self._n:
                break
            self._write_batch(records, encode, seen - len(records.targets), file)
        if seen != self._n:
            raise InvalidParameter(
                f"the number of records changed while they were read; make the source read-only. {UNSPENT}"
            )

    def _write_batch(self, records: Records, encode: Encode | None, first: int, file: IO[bytes]) -> None:
        problem = self._problem
        targets = cells_of(records.targets, "targets")
        labels = targets.numbers() if encode is None else encode(targets)
        loads = row_weights(encode, labels, records.weights)
        for start in range(0, len(labels), GROUP):
            part = slice(start, start + GROUP)
            weights = None if loads is None else loads[part]
            try:
                clipped = problem.bounds.clip(records.features[part], labels[part], weights)
            except InvalidParameter as error:
                raise InvalidParameter(f"{error} {UNSPENT}") from None
            rows = np.ones((len(clipped[1]), problem.n_columns), self._dtype)
            rows[:, : problem.n_features] = clipped[0]
            at = first + start
            for i, array in enumerate((rows, clipped[1], clipped[2])):
                if array is not None:
                    width = array.itemsize * (array.shape[1] if array.ndim == 2 else 1)
                    file.seek(self._starts[i] + at * width)
                    file.write(np.ascontiguousarray(array).data)

    def _read_ahead(self, start: int, stop: int) -> None:
        """The system reads these rows while the ones before are summed."""
        if hasattr(mmap, "MADV_WILLNEED"):
            width = self._rows.strides[0]
            first = start * width // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_WILLNEED, first, stop * width - first)

    def _room(self, size: int) -> NDArray[np.float64]:
        """In a scratch file of its own, like the rows."""
        try:
            with _scratch(self._folder, 8 * size) as file:
                return np.ndarray((size,), np.float64, mmap.mmap(file.fileno(), max(8 * size, 1)))
        except OSError as error:
            raise DplangevinError(
                f"the scratch file of the records' weights could not be made: {error.strerror}. What was charged "
                "stays charged, and nothing was released; free space, or name a folder in DPLANGEVIN_SCRATCH."
            ) from error

    def __reduce__(self) -> Any:
        raise InvalidParameter("a scratch data set belongs to one process and cannot be pickled.")


def _scratch(folder: str | None, size: int) -> Any:
    """A nameless file of mode 0600 with its space reserved."""
    place = folder or os.environ.get("DPLANGEVIN_SCRATCH") or tempfile.gettempdir()
    file = tempfile.TemporaryFile(dir=place, prefix="dplangevin-")  # noqa: SIM115 (closed by the caller)
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
            f"DPLANGEVIN_SCRATCH. {UNSPENT}"
        )
    reason = error.strerror or type(error).__name__
    return DplangevinError(f"the records or their scratch file could not be read: {reason}. {UNSPENT}")


def _page(size: int) -> int:
    """The size, rounded up to whole pages."""
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
