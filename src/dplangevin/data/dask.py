"""Records that stay on the workers of a Dask cluster: only sums come back.

What a cluster has to do is a handful of functions (`ClusterEngine`). Dask is the engine that ships with the library;
another one is an adapter of about a hundred lines (tests/unit/data/test_cluster.py has a toy one).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import CACHES, ArrayDataset, Dataset, check_shape
from dplangevin.data.integer_grids import RowGrid
from dplangevin.data.kernels import Block, CompiledKernel, Kernel, choose_kernel
from dplangevin.data.sources import CHARGE_STANDS_MESSAGE, row_weights
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import Loss, Problem
from dplangevin.tables import as_column, as_matrix

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

    def with_loss(self, loss: Loss) -> PartitionedDataset:
        problem = replace(self._problem, loss=loss)
        return self._with_partitions(ArrayDataset.with_loss, loss, _problem=problem)

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


FAN_IN = 32  # partial sums added by one task
RETRIES = 3
POLL_SECONDS = 5.0  # between queries for the location of the partitions and for workers
MAX_WAIT_SECONDS = 120.0  # without a single worker, after which a run gives up
_OPTIONS: dict[str, Any] = {"pure": False, "retries": RETRIES}


@final
class DaskDataset(PartitionedDataset):
    """Partitions of a Dask array or DataFrame, clipped once on the workers that hold them.

    A sum of whole numbers, as exact fits make them, is one small task per worker. Other sums are one task per
    partition, added in the order of the partitions. So retrying a task, or recomputing a partition after its worker
    died, changes no bit of the result.

    Parameters
    ----------
    X : dask.array [n, columns] in row chunks, or dask.dataframe.
    y : dask.array or Series of the same rows, or the name of a column of X.
    problem : as for ArrayDataset.
    weights : dask.array or Series of the same rows, the name of a column of X, or None.
    client : a distributed.Client, the address of a scheduler, or None for the current client.
    encode : function of the targets that returns the labels of the problem, applied on the workers; None: identity.
    encode_rows : function of a table that returns rows of numbers, applied on the workers; None: identity.

    Notes
    -----
    All workers need the same versions of dplangevin, NumPy and numba (or no numba).
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        problem: Problem,
        weights: Any = None,
        *,
        client: Any = None,
        encode: Callable[[Any], FloatArray] | None = None,
        encode_rows: Callable[[Any], FloatArray] | None = None,
    ) -> None:
        engine = DaskEngine(connect_client(client))
        parts = delayed_partitions(X, y, weights)
        prepared = [_prepare_task(part, problem, encode, encode_rows) for part in parts]
        try:
            super().__init__(engine, engine.client.compute(prepared, retries=RETRIES), problem)
        except InvalidParameter as error:
            raise InvalidParameter(f"{error} {CHARGE_STANDS_MESSAGE}") from None
        except engine.failures as error:
            raise DplangevinError(
                f"the data could not be read on the cluster ({type(error).__name__}). {CHARGE_STANDS_MESSAGE}"
            ) from error
        check_shape((self.n_samples, self._n_features), problem)


@final
class DaskEngine:
    """Partitions as Dask futures. Tasks go to the workers that hold the partitions.

    By itself the scheduler would move whole partitions to idle workers, which takes longer than many sums. It may
    still choose another worker when that one is gone.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self._last_poll, self._polled, self._workers_by_key = -math.inf, "", dict[str, Sequence[str]]()

    @property
    def failures(self) -> tuple[type[BaseException], ...]:
        """See dask_failures."""
        return dask_failures()

    def map_partitions(
        self, change: Callable[..., Any], parts: Sequence[Any], shared: tuple[Any, ...]
    ) -> list[Any]:
        """Return the futures of change(part, *shared)."""
        return self._map_near_data(_apply, parts, [change] * len(parts), shared)

    def reduce(
        self,
        task: Callable[..., CountedSum],
        parts: Sequence[Any],
        own: Sequence[Any],
        shared: tuple[Any, ...],
        *,
        whole: bool,
    ) -> CountedSum:
        """Return the sum: one task per worker for whole numbers, else one per partition, FAN_IN added at a time."""
        if whole:
            futures = [
                self.client.submit(
                    sum_partitions, task, [parts[i] for i in indices], [own[i] for i in indices], shared,
                    **_OPTIONS, **where,
                )
                for where, indices in self._groups(parts, one_worker=True)
            ]  # fmt: skip
        else:
            futures = self._map_near_data(_apply_own, parts, [task] * len(parts), own, shared)
        while len(futures) > FAN_IN:
            groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
            futures = self.client.map(add_counted, groups, **_OPTIONS)
        return add_counted(self._gather(futures))

    def fetch(self, parts: Sequence[Any]) -> list[Any]:
        """Return the results of futures."""
        return list(self.client.gather(parts))

    def _map_near_data(
        self, function: Callable[..., Any], parts: Sequence[Any], *columns: Sequence[Any] | tuple[Any, ...]
    ) -> list[Any]:
        """Submit function(part, column, ..., shared) for each partition; the last argument is shared by all."""
        *own, shared = columns
        futures: list[Any] = [None] * len(parts)
        for where, indices in self._groups(parts):
            submitted = self.client.map(
                function,
                [parts[i] for i in indices],
                *([column[i] for i in indices] for column in own),
                shared=shared,
                **_OPTIONS,
                **where,
            )
            for index, future in zip(indices, submitted, strict=True):
                futures[index] = future
        return futures

    def _groups(
        self, parts: Sequence[Any], *, one_worker: bool = False
    ) -> Iterator[tuple[dict[str, Any], list[int]]]:
        """Yield where partitions are that are in the same place, as options of a task, and their indices."""
        if self._polled != parts[0].key or time.monotonic() > self._last_poll + POLL_SECONDS:
            self._last_poll, self._polled = time.monotonic(), parts[0].key
            self._workers_by_key = self.client.who_has(parts)
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, part in enumerate(parts):
            workers = tuple(sorted(self._workers_by_key.get(part.key, ())))
            groups.setdefault(workers[:1] if one_worker else workers, []).append(index)
        for workers, indices in groups.items():
            yield {"workers": list(workers), "allow_other_workers": True} if workers else {}, indices

    def _gather(self, futures: Sequence[Any]) -> Any:
        """Return the results; raise after a while without workers, for which Dask would wait forever."""
        results, without_workers_since = [], None
        for future in futures:
            while True:
                try:
                    results.append(future.result(timeout=POLL_SECONDS))
                    break
                except TimeoutError:
                    if future.done():  # the task itself
                        raise
                    now = time.monotonic()
                    has_workers = bool(self.client.nthreads())
                    without_workers_since = None if has_workers else (without_workers_since or now)
                    if without_workers_since is not None and now - without_workers_since > MAX_WAIT_SECONDS:
                        raise
        return results


def _apply(part: Any, change: Callable[..., Any], *, shared: tuple[Any, ...]) -> Any:
    return change(part, *shared)


def _apply_own(part: Any, task: Callable[..., Any], own: Any, *, shared: tuple[Any, ...]) -> Any:
    return task(part, own, *shared)


def connect_client(client: Any) -> Any:
    """Return a client, given one, the address of a scheduler, or None for the current client."""
    try:
        import distributed
    except ImportError:
        raise InvalidParameter(
            "data on a cluster need dask and distributed; install them with: pip install 'dplangevin[dask]'. "
            f"{CHARGE_STANDS_MESSAGE}"
        ) from None
    if isinstance(client, distributed.Client):
        return client
    try:
        if isinstance(client, str):
            return distributed.Client(client, set_as_default=False)
        if client is None:
            return distributed.default_client()
    except ValueError:
        raise InvalidParameter(
            "there is no current Dask client: create one with distributed.Client(), or Client('tcp://...') for a "
            f"scheduler that runs already. {CHARGE_STANDS_MESSAGE}"
        ) from None
    except OSError as error:
        raise InvalidParameter(
            f"no scheduler answers at {client!r}: {error}. {CHARGE_STANDS_MESSAGE}"
        ) from None
    raise InvalidParameter(f"client must be a distributed.Client or an address, got {type(client).__name__}.")


def dask_failures() -> tuple[type[BaseException], ...]:
    """Return the exceptions that a task raises when its workers or its data are lost."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    return (KilledWorker, CancelledError, OSError, TimeoutError)


def is_dask(data: Any) -> bool:
    """Whether the data are a Dask collection; tested without importing Dask."""
    return hasattr(data, "__dask_graph__") and hasattr(data, "to_delayed")


def delayed_partitions(X: Any, y: Any, weights: Any) -> list[tuple[Any, Any, Any]]:
    """Return (features, targets, weights) of each partition, not computed yet."""
    if not is_dask(X):
        raise InvalidParameter(f"X must be a Dask array or DataFrame, got {type(X).__name__}.")
    X, y = _take_column(X, "y", y)
    X, weights = _take_column(X, "weights", weights)
    for name, values in (("y", y), ("weights", weights)):
        if not (is_dask(values) or (values is None and name == "weights")):
            raise InvalidParameter(
                f"{name} must be a Dask array or Series of the rows of X, or the name of a column of X; got "
                f"{type(values).__name__}."
            )
    if hasattr(X, "rechunk"):
        X = X.rechunk({1: -1}) if X.ndim == 2 else X
        chunks = X.chunks[0]
        y, weights = (v.rechunk((chunks,)) if hasattr(v, "rechunk") else v for v in (y, weights))
    try:
        columns = [list(np.ravel(v.to_delayed())) if v is not None else None for v in (X, y, weights)]
    except (ValueError, TypeError, ArithmeticError, NotImplementedError) as error:
        # The message of Dask's own conversions may quote a private value, so only the type is shown.
        raise InvalidParameter(
            f"Dask cannot create the partitions ({type(error).__name__}). {CHARGE_STANDS_MESSAGE}"
        ) from None
    features, targets, part_weights = columns
    assert features is not None
    assert targets is not None
    part_weights = [None] * len(features) if part_weights is None else part_weights
    if not len(features) == len(targets) == len(part_weights):
        raise InvalidParameter("X, y and weights must have the same partitions; repartition them alike.")
    return list(zip(features, targets, part_weights, strict=True))


def _take_column(X: Any, what: str, column: Any) -> tuple[Any, Any]:
    """Return X without the column that `column` names, and that column; or both unchanged if it is not a name."""
    if not isinstance(column, str):
        return X, column
    if column not in getattr(X, "columns", ()):
        raise InvalidParameter(f"{what} must be the name of a column of X; there is no column {column!r}.")
    return X.drop(columns=column), X[column]


def _prepare_task(part: tuple[Any, Any, Any], problem: Problem, encode: Any, encode_rows: Any) -> Any:
    import dask

    return dask.delayed(_prepare_partition, pure=False)(*part, problem, encode, encode_rows)


def _prepare_partition(
    X: Any, y: Any, weights: Any, problem: Problem, encode: Any, encode_rows: Any
) -> ArrayDataset:
    """Return a partition's clipped records; their number is not checked here but on the driver."""
    features = as_matrix(X) if encode_rows is None else np.asarray(encode_rows(X))
    targets = as_column(y, "y")
    labels = targets.numbers() if encode is None else encode(targets)
    part_problem = replace(problem, n=max(len(features), 1), adjacency="add-remove")
    part_weights = None if weights is None else as_column(weights, "weights").numbers()
    return ArrayDataset(features, labels, part_problem, row_weights(encode, labels, part_weights))
