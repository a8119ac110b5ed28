"""Records that stay where they are: partitions on the workers of a cluster, of which only sums come back.

What a cluster has to do is a handful of functions (`ClusterEngine`). Dask is the engine that ships with the library;
another one is an adapter of about a hundred lines (tests/unit/data/test_cluster.py has a toy one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import CACHES, ArrayDataset, Dataset
from dplangevin.data.integer_grids import RowGrid
from dplangevin.data.kernels import Block, CompiledKernel, Kernel, choose_kernel
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import Loss, Problem

FloatArray = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]
CountedSum = tuple[NDArray[Any], int]
"""A sum over records, and the number of records in it."""
LOST_WORKERS_MESSAGE = (
    "a partition of the data was lost and could not be computed again ({}). The run stopped: what was charged for it "
    "stays charged, and nothing was released. Load the data from files, so that the cluster can read it again."
)


class ClusterEngine(Protocol):
    """What a cluster does for data whose partitions stay on its workers.

    A handle stands for a partition on a worker. Functions are sent to the workers, with `shared` arguments that are
    the same for all partitions and are sent to each worker once. A partition that is lost is computed again, or one of
    `failures` is raised. The engine adds no noise and makes no decision: it may be as fast or slow as it likes.
    """

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """What is raised when workers or partitions are lost."""

    def map_partitions(
        self, change: Callable[..., Any], parts: Sequence[Any], shared: tuple[Any, ...]
    ) -> list[Any]:
        """Return handles of change(part, *shared), which stay on the workers."""

    def reduce(
        self,
        task: Callable[..., CountedSum],
        parts: Sequence[Any],
        own: Sequence[Any],
        shared: tuple[Any, ...],
        *,
        whole: bool,
    ) -> CountedSum:
        """Return the sum of task(part, own argument, *shared) over the partitions, as `add_counted` adds.

        whole : the sums are of whole numbers, so that partitions may be added in any order, where they are; else they
            must be added in their order, so that the result is the same wherever they are.
        """

    def fetch(self, parts: Sequence[Any]) -> list[Any]:
        """Return what the handles stand for."""


class PartitionedDataset(Dataset):
    """Partitions on the workers of a cluster, as `ArrayDataset`s; every sum over records is made where they are.

    Tasks return the number of records they summed, and a full sum over any other number of records than the data have
    is an error. The cluster adds no noise: the mechanism adds it afterwards, once.
    """

    def __init__(self, engine: ClusterEngine, parts: Sequence[Any], problem: Problem) -> None:
        """Take partitions that are clipped to the bounds of the problem already."""
        self._engine, self._parts, self._problem = engine, list(parts), problem
        sizes = engine.fetch(engine.map_partitions(partition_size, parts, ()))
        self._counts = np.array([size.rows for size in sizes], dtype=np.int64)
        self.n_samples, self.n_bytes = int(self._counts.sum()), int(sum(size.n_bytes for size in sizes))
        self._n_features, self.has_weights = int(sizes[0].features), any(size.has_weights for size in sizes)

    @property
    def problem(self) -> Problem:
        return self._problem

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._parts)

    def blocks(self, rows: Rows | None = None) -> Iterator[Block]:
        """Yield the records, one partition at a time; this transfers them, so sums are preferred where possible."""
        for part, batch in zip(self._parts, self._rows_by_partition(rows), strict=True):
            if batch is None or len(batch):
                yield from self._call(self._engine.fetch, [part])[0].blocks(batch)

    def _gradient(self, kernel: Kernel, parameters: FloatArray, rows: Rows | None) -> tuple[FloatArray, int]:
        wanted = "numba" if isinstance(kernel, CompiledKernel) else "numpy"
        return self._reduce(
            _part_gradient, self._rows_by_partition(rows), (kernel.loss, wanted, parameters), whole=False
        )

    def loss_sum(self, loss: Loss, theta: FloatArray) -> FloatArray:
        self._parameter_matrix(loss, theta)
        return self.sum_over_blocks(Dataset.loss_sum, loss, theta)

    def sum_over_blocks(
        self, task: Callable[..., NDArray[Any]], *arguments: Any, whole: bool = False
    ) -> NDArray[Any]:
        nothing = [None] * self.n_partitions
        total, n_seen = self._reduce(_part_sum, nothing, (task, *arguments), whole=whole)
        self.check_row_count(n_seen)
        return total

    def sum_over_batch(
        self,
        rows: Rows | None,
        task: Callable[..., NDArray[Any]],
        *arguments: Any,
        whole: bool = False,
    ) -> NDArray[Any]:
        total, n_seen = self._reduce(
            _part_batch_sum, self._rows_by_partition(rows), (task, *arguments), whole=whole
        )
        self.check_row_count(n_seen)
        return total

    def with_scaled_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> PartitionedDataset:
        """Scale the weights on the workers, where they stay with their rows."""
        return self._with_partitions(ArrayDataset.with_scaled_weights, task, *arguments, has_weights=True)

    def with_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> PartitionedDataset:
        return self._with_partitions(ArrayDataset.with_weights, task, *arguments, has_weights=True)

    def with_rounded_rows(self, grid: RowGrid, *, in_place: bool = False) -> PartitionedDataset:
        """Round the rows on the workers; a partition that is computed again is rounded again."""
        return self._with_partitions(ArrayDataset.with_rounded_rows, grid)

    def with_transformed_rows(
        self, task: Callable[..., tuple[FloatArray, FloatArray]], *arguments: Any
    ) -> PartitionedDataset:
        """Transform the rows on the workers, where they stay."""
        change = ArrayDataset.with_transformed_rows
        return self._with_partitions(change, task, *arguments, has_weights=True, within_bounds=False)

    def _with_partitions(
        self, change: Callable[..., Any], *arguments: Any, **attributes: Any
    ) -> PartitionedDataset:
        """Return the data set of the partitions change(partition, *arguments), with these attributes."""
        changed: PartitionedDataset = object.__new__(type(self))
        kept = {name: value for name, value in vars(self).items() if name not in CACHES}
        parts = self._call(self._engine.map_partitions, change, self._parts, arguments)
        changed.__dict__.update(kept, _parts=parts, **attributes)
        return changed

    def check_row_count(self, n_seen: int | None = None) -> None:
        if n_seen is None:
            _, n_seen = self._reduce(_count_rows, [None] * self.n_partitions, (), whole=True)
        super().check_row_count(n_seen)

    def _rows_by_partition(self, rows: Rows | None) -> Sequence[Rows | None]:
        """Return increasing row numbers as row numbers within each partition."""
        if rows is None:
            return [None] * self.n_partitions
        ends = np.cumsum(self._counts)
        cuts = np.searchsorted(rows, ends)
        pieces = np.split(rows, cuts[:-1])
        return [piece - first for piece, first in zip(pieces, ends - self._counts, strict=True)]

    def _reduce(
        self, task: Callable[..., CountedSum], own: Sequence[Any], shared: tuple[Any, ...], *, whole: bool
    ) -> CountedSum:
        total, count = self._call(self._engine.reduce, task, self._parts, own, shared, whole=whole)
        return total, int(count)

    def _call(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return what the cluster does; lost workers or partitions become an error that says what was charged."""
        try:
            return work(*arguments, **options)
        except self._engine.failures as error:
            raise DplangevinError(LOST_WORKERS_MESSAGE.format(type(error).__name__)) from error

    def __reduce__(self) -> Any:
        raise InvalidParameter("a data set on a cluster belongs to one client and cannot be pickled.")


# what workers run


class PartitionSize(NamedTuple):
    """Numbers of records, bytes and feature columns of a partition, and whether its records have weights."""

    rows: int
    n_bytes: int
    features: int
    has_weights: bool


def partition_size(part: ArrayDataset) -> PartitionSize:
    """Return the size of a partition."""
    return PartitionSize(part.n_samples, part.n_bytes, part.n_features, part.has_weights)


def add_counted(sums: Sequence[CountedSum]) -> CountedSum:
    """Add sums and counts, from the first to the last."""
    total, n_seen = sums[0]
    total = total.copy()
    for more, count in sums[1:]:
        total += more
        n_seen += count
    return total, n_seen


def sum_partitions(
    task: Callable[..., CountedSum],
    parts: Sequence[ArrayDataset],
    own: Sequence[Any],
    shared: tuple[Any, ...],
) -> CountedSum:
    """Return the sum over partitions of one worker, one after the other, in one array."""
    total, n_seen = task(parts[0], own[0], *shared)
    total = np.array(total)
    for part, argument in zip(parts[1:], own[1:], strict=True):
        more, count = task(part, argument, *shared)
        total += more
        n_seen += count
    return total, n_seen


def _part_gradient(
    part: ArrayDataset, rows: Rows | None, loss: Loss, wanted: str, parameters: FloatArray
) -> CountedSum:
    return part._gradient(choose_kernel(loss, part.n_bytes, wanted), parameters, rows)


def _part_sum(part: ArrayDataset, _: None, task: Callable[..., NDArray[Any]], *arguments: Any) -> CountedSum:
    return task(part, *arguments), part.n_samples


def _part_batch_sum(
    part: ArrayDataset, rows: Rows | None, task: Callable[..., NDArray[Any]], *arguments: Any
) -> CountedSum:
    return task(part, rows, *arguments), part.n_samples


def _count_rows(part: ArrayDataset, _: None) -> CountedSum:
    return np.zeros(0, np.int64), part.n_samples
