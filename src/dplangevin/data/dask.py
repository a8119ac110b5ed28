"""Records that stay on the workers of a Dask cluster: only sums come back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import ArrayDataset, Dataset, check_shape
from dplangevin.data.integer_grids import RowGrid
from dplangevin.data.kernels import Block, CompiledKernel, Kernel, choose_kernel
from dplangevin.data.sources import CHARGE_STANDS_MESSAGE, row_weights
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import Loss, Problem
from dplangevin.tables import as_column, as_matrix

FloatArray = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]
FAN_IN = 32  # partial sums added by one task
RETRIES = 3
POLL_SECONDS = 5.0  # between queries for the location of the partitions and for workers
MAX_WAIT_SECONDS = 120.0  # without a single worker, after which a run gives up
LOST_WORKERS_MESSAGE = (
    "a partition of the data was lost and could not be computed again ({}). The run stopped: what was charged for it "
    "stays charged, and nothing was released. Load the data from files, so that the cluster can read it again."
)


@final
class DaskDataset(Dataset):
    """Partitions of a Dask array or DataFrame, clipped once on the workers that hold them.

    Every sum is one small task per partition. Partial sums are added in the order of the partitions, so that retrying
    a task, or recomputing a partition after its worker died, changes no bit of the result. Tasks return the number of
    records they summed, and a full sum over any other number of records than the data have is an error. The cluster
    adds no noise: the mechanism adds it afterwards, once.

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
        self._client = connect_client(client)
        self._last_poll = -math.inf
        self._workers_by_key: dict[str, Sequence[str]] = {}
        self._problem = problem
        parts = delayed_partitions(X, y, weights)
        prepared = [_prepare_task(part, problem, encode, encode_rows) for part in parts]
        try:
            self._parts = self._client.compute(prepared, retries=RETRIES)
            sizes = self._client.gather(
                self._client.map(_partition_size, self._parts, pure=False, retries=RETRIES)
            )
        except InvalidParameter as error:
            raise InvalidParameter(f"{error} {CHARGE_STANDS_MESSAGE}") from None
        except dask_failures() as error:
            raise DplangevinError(
                f"the data could not be read on the cluster ({type(error).__name__}). {CHARGE_STANDS_MESSAGE}"
            ) from error
        self._counts = np.array([rows for rows, _, _ in sizes], dtype=np.int64)
        self.n_samples, self.n_bytes = int(self._counts.sum()), int(sum(size for _, size, _ in sizes))
        check_shape((self.n_samples, sizes[0][2]), problem)

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
                yield from self._call_on_cluster(part.result).blocks(batch)

    def _gradient(self, kernel: Kernel, parameters: FloatArray, rows: Rows | None) -> tuple[FloatArray, int]:
        wanted = "numba" if isinstance(kernel, CompiledKernel) else "numpy"
        batches = self._rows_by_partition(rows)
        total, n_seen = self._tree_sum(
            _part_gradient, [(kernel.loss, wanted, parameters, b) for b in batches]
        )
        return total, int(n_seen)

    def loss_sum(self, loss: Loss, theta: FloatArray) -> FloatArray:
        self._parameter_matrix(loss, theta)
        return self.sum_over_blocks(Dataset.loss_sum, loss, theta)

    def sum_over_blocks(self, task: Callable[..., NDArray[Any]], *arguments: Any) -> NDArray[Any]:
        total, n_seen = self._tree_sum(_run_on_part, [(task, *arguments)] * self.n_partitions)
        self.check_row_count(int(n_seen))
        return total

    def sum_over_batch(
        self, rows: Rows | None, task: Callable[..., NDArray[Any]], *arguments: Any
    ) -> NDArray[Any]:
        total, n_seen = self._tree_sum(
            _run_on_part, [(task, batch, *arguments) for batch in self._rows_by_partition(rows)]
        )
        self.check_row_count(int(n_seen))
        return total

    def with_scaled_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> DaskDataset:
        """Scale the weights on the workers, where they stay with their rows."""
        return self._with_partitions(_scale_part_weights, task, *arguments)

    def with_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> DaskDataset:
        return self._with_partitions(_replace_part_weights, task, *arguments)

    def with_rounded_rows(self, grid: RowGrid, *, in_place: bool = False) -> DaskDataset:
        """Round the rows on the workers; a partition that is computed again is rounded again."""
        return self._with_partitions(_round_part_rows, grid)

    def with_transformed_rows(
        self, task: Callable[..., tuple[FloatArray, FloatArray]], *arguments: Any
    ) -> DaskDataset:
        """Transform the rows on the workers, where they stay."""
        transformed = self._with_partitions(_transform_part_rows, task, *arguments)
        transformed.within_bounds = False
        return transformed

    def _with_partitions(self, change: Callable[..., Any], *arguments: Any) -> DaskDataset:
        """Return the data set of the partitions change(partition, *arguments)."""
        options = {"pure": False, "retries": RETRIES}
        changed: DaskDataset = object.__new__(type(self))
        attributes = {
            name: value for name, value in vars(self).items() if name not in ("_quadratic", "_kernel")
        }
        parts = self._call_on_cluster(
            lambda: self._submit_near_data(change, [arguments] * self.n_partitions, options)
        )
        changed.__dict__.update(attributes, _parts=parts, _last_poll=-math.inf, _workers_by_key={})
        return changed

    def check_row_count(self, n_seen: int | None = None) -> None:
        if n_seen is None:
            sizes = self._call_on_cluster(
                lambda: self._client.gather(self._client.map(_partition_size, self._parts, pure=False))
            )
            n_seen = sum(rows for rows, _, _ in sizes)
        super().check_row_count(n_seen)

    def _rows_by_partition(self, rows: Rows | None) -> Sequence[Rows | None]:
        """Return increasing row numbers as row numbers within each partition."""
        if rows is None:
            return [None] * self.n_partitions
        ends = np.cumsum(self._counts)
        cuts = np.searchsorted(rows, ends)
        pieces = np.split(rows, cuts[:-1])
        return [piece - first for piece, first in zip(pieces, ends - self._counts, strict=True)]

    def _tree_sum(
        self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[FloatArray, int]:
        """Run one task per partition, and add the sums in order, FAN_IN at a time; return the sum and the count."""

        def run_tasks() -> tuple[FloatArray, int]:
            options = {"pure": False, "retries": RETRIES}
            futures = self._submit_near_data(task, arguments, options)
            while len(futures) > FAN_IN:
                groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
                futures = self._client.map(_add_sums, groups, **options)
            return _add_sums(self._gather_results(futures))

        result: tuple[FloatArray, int] = self._call_on_cluster(run_tasks)
        return result

    def _gather_results(self, futures: Sequence[Any]) -> Any:
        """Return the results; raise after a while without workers, for which Dask would wait forever."""
        from distributed import wait

        without_workers_since: float | None = None
        while True:
            try:
                wait(futures, timeout=POLL_SECONDS)
                break
            except TimeoutError:
                now = time.monotonic()
                has_workers = bool(self._client.nthreads())
                without_workers_since = None if has_workers else (without_workers_since or now)
                if without_workers_since is not None and now - without_workers_since > MAX_WAIT_SECONDS:
                    raise
        return self._client.gather(futures)

    def _submit_near_data(
        self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], options: dict[str, Any]
    ) -> list[Any]:
        """Submit one task per partition, to a worker that holds it.

        By itself the scheduler would move whole partitions to idle workers, which takes longer than many sums. It may
        still choose another worker when that one is gone.
        """
        if time.monotonic() > self._last_poll + POLL_SECONDS:
            self._last_poll, self._workers_by_key = time.monotonic(), self._client.who_has(self._parts)
        futures: list[Any] = [None] * self.n_partitions
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, part in enumerate(self._parts):
            groups.setdefault(tuple(sorted(self._workers_by_key.get(part.key, ()))), []).append(index)
        for workers, indices in groups.items():
            where = {"workers": list(workers), "allow_other_workers": True} if workers else {}
            columns = zip(*(arguments[i] for i in indices), strict=True)
            submitted = self._client.map(
                task, [self._parts[i] for i in indices], *columns, **options, **where
            )
            for index, future in zip(indices, submitted, strict=True):
                futures[index] = future
        return futures

    def _call_on_cluster(self, work: Callable[[], Any]) -> Any:
        """Return work(); lost workers or partitions become an error that says what was charged."""
        try:
            return work()
        except dask_failures() as error:
            raise DplangevinError(LOST_WORKERS_MESSAGE.format(type(error).__name__)) from error

    def __reduce__(self) -> Any:
        raise InvalidParameter("a data set on a cluster belongs to one client and cannot be pickled.")


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


def _partition_size(part: ArrayDataset) -> tuple[int, int, int]:
    return part.n_samples, part.n_bytes, part.n_features


def _part_gradient(
    part: ArrayDataset, loss: Loss, wanted: str, parameters: FloatArray, rows: Rows | None
) -> tuple[FloatArray, int]:
    return part._gradient(choose_kernel(loss, part.n_bytes, wanted), parameters, rows)


def _run_on_part(
    part: ArrayDataset, task: Callable[..., FloatArray], *arguments: Any
) -> tuple[FloatArray, int]:
    return task(part, *arguments), part.n_samples


def _scale_part_weights(part: ArrayDataset, task: Callable[..., FloatArray], *arguments: Any) -> Any:
    return part.with_scaled_weights(task, *arguments)


def _replace_part_weights(part: ArrayDataset, task: Callable[..., FloatArray], *arguments: Any) -> Any:
    return part.with_weights(task, *arguments)


def _round_part_rows(part: ArrayDataset, grid: RowGrid) -> Any:
    return part.with_rounded_rows(grid)


def _transform_part_rows(part: ArrayDataset, task: Callable[..., Any], *arguments: Any) -> Any:
    return part.with_transformed_rows(task, *arguments)


def _add_sums(parts: Sequence[tuple[FloatArray, int]]) -> tuple[FloatArray, int]:
    """Add sums and counts, from the first to the last."""
    total, n_seen = parts[0]
    total = total.copy()
    for more, count in parts[1:]:
        total += more
        n_seen += count
    return total, n_seen
