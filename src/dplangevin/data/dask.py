"""DaskDataset: records that stay on the workers of a Dask cluster; only sums come back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dplangevin.data._kernels import Block, CompiledKernel, Kernel, kernel_for
from dplangevin.data.dataset import ArrayDataset, Dataset, check_size
from dplangevin.data.sources import UNSPENT, row_weights
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.problem import Loss, Problem
from dplangevin.tables import cells_of, matrix_of

FloatArray = NDArray[np.float64]
Rows = NDArray[np.integer[Any]]
FAN_IN = 32  # partial sums added by one task
RETRIES = 3
LOOK_EVERY = 5.0  # seconds between questions where the partitions are, and whether there are workers
PATIENCE = 120.0  # seconds without a single worker after which a run gives up
LOST = (
    "a partition of the data was lost and could not be computed again ({}). The run stopped: what was charged for it "
    "stays charged, and nothing was released. Load the data from files, so that the cluster can read it again."
)


@final
class DaskDataset(Dataset):
    """Partitions of a Dask array or DataFrame, clipped once on the workers that hold them.

    Every sum is one small task per partition. Partial sums are added in the order of the partitions, so that a task
    that is retried, or a partition that is computed again after its worker died, changes no bit of the result. Tasks
    return the number of records they summed, and a full sum whose number is not that of the data is refused. Noise is
    none of the cluster's business: mechanisms add it afterwards, once.

    Parameters
    ----------
    X : dask.array [n, columns] in row chunks, or dask.dataframe.
    y : dask.array or Series of the same rows, or the name of a column of X.
    problem : as for ArrayDataset.
    weights : dask.array or Series of the same rows, the name of a column of X, or None.
    client : a distributed.Client, the address of a scheduler, or None for the current client.
    encode : targets to what the problem sees, on the workers; None leaves them.
    encode_rows : tables to rows of numbers, on the workers; None leaves them.

    All workers need the same dplangevin, NumPy and numba (or no numba).
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
        self._client = connected(client)
        self._looked = -math.inf
        self._places: dict[str, Sequence[str]] = {}
        self._problem = problem
        parts = delayed_parts(X, y, weights)
        prepared = [_prepare_task(part, problem, encode, encode_rows) for part in parts]
        try:
            self._parts = self._client.compute(prepared, retries=RETRIES)
            sizes = self._client.gather(self._client.map(_size, self._parts, pure=False, retries=RETRIES))
        except InvalidParameter as error:
            raise InvalidParameter(f"{error} {UNSPENT}") from None
        except failures() as error:
            raise DplangevinError(
                f"the data could not be read on the cluster ({type(error).__name__}). {UNSPENT}"
            ) from error
        self._counts = np.array([rows for rows, _, _ in sizes], dtype=np.int64)
        self.n_samples, self.n_bytes = int(self._counts.sum()), int(sum(size for _, size, _ in sizes))
        check_size((self.n_samples, sizes[0][2]), problem)

    @property
    def problem(self) -> Problem:
        return self._problem

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._parts)

    def blocks(self, rows: Rows | None = None) -> Iterator[Block]:
        """The records themselves, a partition at a time: they travel, so sums are asked for instead if possible."""
        for part, batch in zip(self._parts, self._split(rows), strict=True):
            if batch is None or len(batch):
                yield from self._result(part.result).blocks(batch)

    def _gradient(self, kernel: Kernel, parameters: FloatArray, rows: Rows | None) -> tuple[FloatArray, int]:
        wanted = "numba" if isinstance(kernel, CompiledKernel) else "numpy"
        batches = self._split(rows)
        total, seen = self._sum(_part_gradient, [(kernel.loss, wanted, parameters, b) for b in batches])
        return total, int(seen)

    def loss_sum(self, loss: Loss, theta: FloatArray) -> FloatArray:
        self._parameters(loss, theta)
        return self.summed(Dataset.loss_sum, loss, theta)

    def summed(self, task: Callable[..., NDArray[Any]], *arguments: Any) -> NDArray[Any]:
        total, seen = self._sum(_part_task, [(task, *arguments)] * self.n_partitions)
        self.check_rows(int(seen))
        return total

    def summed_over(
        self, rows: Rows | None, task: Callable[..., NDArray[Any]], *arguments: Any
    ) -> NDArray[Any]:
        total, seen = self._sum(_part_task, [(task, batch, *arguments) for batch in self._split(rows)])
        self.check_rows(int(seen))
        return total

    def reweighted(self, task: Callable[..., FloatArray], *arguments: Any) -> DaskDataset:
        """The weights stay on the workers, beside the rows they belong to."""
        return self._twin(_part_reweighted, task, *arguments)

    def rewritten(self, task: Callable[..., tuple[FloatArray, FloatArray]], *arguments: Any) -> DaskDataset:
        """The rows stay on the workers, each partition beside its own."""
        twin = self._twin(_part_rewritten, task, *arguments)
        twin.within_bounds = False
        return twin

    def _twin(self, change: Callable[..., Any], *arguments: Any) -> DaskDataset:
        """The data set of the changed partitions."""
        options = {"pure": False, "retries": RETRIES}
        twin: DaskDataset = object.__new__(type(self))
        kept = {name: value for name, value in vars(self).items() if name not in ("_quadratic", "_kernel")}
        parts = self._result(lambda: self._near_the_data(change, [arguments] * self.n_partitions, options))
        twin.__dict__.update(kept, _parts=parts, _looked=-math.inf, _places={})
        return twin

    def check_rows(self, seen: int | None = None) -> None:
        if seen is None:
            sizes = self._result(
                lambda: self._client.gather(self._client.map(_size, self._parts, pure=False))
            )
            seen = sum(rows for rows, _, _ in sizes)
        super().check_rows(seen)

    def _split(self, rows: Rows | None) -> Sequence[Rows | None]:
        """Increasing row numbers as row numbers within each partition."""
        if rows is None:
            return [None] * self.n_partitions
        ends = np.cumsum(self._counts)
        cuts = np.searchsorted(rows, ends)
        pieces = np.split(rows, cuts[:-1])
        return [piece - first for piece, first in zip(pieces, ends - self._counts, strict=True)]

    def _sum(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> tuple[FloatArray, int]:
        """One task per partition, then groups of FAN_IN in order until they fit one gather."""

        def work() -> tuple[FloatArray, int]:
            options = {"pure": False, "retries": RETRIES}
            futures = self._near_the_data(task, arguments, options)
            while len(futures) > FAN_IN:
                groups = [futures[i : i + FAN_IN] for i in range(0, len(futures), FAN_IN)]
                futures = self._client.map(_added, groups, **options)
            return _added(self._gathered(futures))

        result: tuple[FloatArray, int] = self._result(work)
        return result

    def _gathered(self, futures: Sequence[Any]) -> Any:
        """The results. The engine waits for new workers for ever; here a cluster without any is lost after a while."""
        from distributed import wait

        alone: float | None = None
        while True:
            try:
                wait(futures, timeout=LOOK_EVERY)
                break
            except TimeoutError:
                now = time.monotonic()
                alone = None if self._client.nthreads() else (alone or now)
                if alone is not None and now - alone > PATIENCE:
                    raise
        return self._client.gather(futures)

    def _near_the_data(
        self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], options: dict[str, Any]
    ) -> list[Any]:
        """One task per partition, on a worker that holds it: left alone, the scheduler moves whole partitions to idle
        workers, which takes longer than many sums. The engine may still choose another worker when that one is gone.
        """
        if time.monotonic() > self._looked + LOOK_EVERY:
            self._looked, self._places = time.monotonic(), self._client.who_has(self._parts)
        futures: list[Any] = [None] * self.n_partitions
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, part in enumerate(self._parts):
            groups.setdefault(tuple(sorted(self._places.get(part.key, ()))), []).append(index)
        for workers, members in groups.items():
            where = {"workers": list(workers), "allow_other_workers": True} if workers else {}
            columns = zip(*(arguments[i] for i in members), strict=True)
            sent = self._client.map(task, [self._parts[i] for i in members], *columns, **options, **where)
            for index, future in zip(members, sent, strict=True):
                futures[index] = future
        return futures

    def _result(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except failures() as error:
            raise DplangevinError(LOST.format(type(error).__name__)) from error

    def __reduce__(self) -> Any:
        raise InvalidParameter("a data set on a cluster belongs to one client and cannot be pickled.")


def connected(client: Any) -> Any:
    """A client from a client, an address, or the current one."""
    try:
        import distributed
    except ImportError:
        raise InvalidParameter(
            "data on a cluster need dask and distributed; install them with: pip install 'dplangevin[dask]'. "
            f"{UNSPENT}"
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
            "there is no Dask client: make one first with distributed.Client(), or Client('tcp://...') for a scheduler "
            f"that runs already; it is then the current one. {UNSPENT}"
        ) from None
    except OSError as error:
        raise InvalidParameter(f"no scheduler answers at {client!r}: {error}. {UNSPENT}") from None
    raise InvalidParameter(f"client must be a distributed.Client or an address, got {type(client).__name__}.")


def failures() -> tuple[type[BaseException], ...]:
    """What a task raises when its workers or its data are gone."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    return (KilledWorker, CancelledError, OSError, TimeoutError)


def is_dask(data: Any) -> bool:
    """Whether the data are a Dask collection; asks without importing Dask."""
    return hasattr(data, "__dask_graph__") and hasattr(data, "to_delayed")


def delayed_parts(X: Any, y: Any, weights: Any) -> list[tuple[Any, Any, Any]]:
    """(features, targets, weights) of each partition, not computed yet."""
    if not is_dask(X):
        raise InvalidParameter(f"X must be a Dask array or DataFrame, got {type(X).__name__}.")
    X, y = _column(X, "y", y)
    X, weights = _column(X, "weights", weights)
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
    except (
        ValueError,
        TypeError,
        ArithmeticError,
        NotImplementedError,
    ) as error:  # its own conversions may fail
        raise InvalidParameter(
            f"Dask cannot make the partitions ({type(error).__name__}). {UNSPENT}"
        ) from None
    features, targets, loads = columns
    assert features is not None
    assert targets is not None
    loads = [None] * len(features) if loads is None else loads
    if not len(features) == len(targets) == len(loads):
        raise InvalidParameter("X, y and weights must have the same partitions; repartition them alike.")
    return list(zip(features, targets, loads, strict=True))


def _column(X: Any, what: str, given: Any) -> tuple[Any, Any]:
    """X without the column that `given` names, and that column; or both as they are."""
    if not isinstance(given, str):
        return X, given
    if given not in getattr(X, "columns", ()):
        raise InvalidParameter(f"{what} names no column of X: {given!r}.")
    return X.drop(columns=given), X[given]


def _prepare_task(part: tuple[Any, Any, Any], problem: Problem, encode: Any, encode_rows: Any) -> Any:
    import dask

    return dask.delayed(_prepared, pure=False)(*part, problem, encode, encode_rows)


def _prepared(X: Any, y: Any, weights: Any, problem: Problem, encode: Any, encode_rows: Any) -> ArrayDataset:
    """A partition's records, clipped; its own problem allows any number of rows, which the driver checks."""
    features = matrix_of(X) if encode_rows is None else np.asarray(encode_rows(X))
    targets = cells_of(y, "y")
    labels = targets.numbers() if encode is None else encode(targets)
    any_size = replace(problem, n=max(len(features), 1), adjacency="add-remove")
    loads = None if weights is None else cells_of(weights, "weights").numbers()
    return ArrayDataset(features, labels, any_size, row_weights(encode, labels, loads))


def _size(part: ArrayDataset) -> tuple[int, int, int]:
    return part.n_samples, part.n_bytes, part.n_features


def _part_gradient(
    part: ArrayDataset, loss: Loss, wanted: str, parameters: FloatArray, rows: Rows | None
) -> tuple[FloatArray, int]:
    return part._gradient(kernel_for(loss, part.n_bytes, wanted), parameters, rows)


def _part_task(
    part: ArrayDataset, task: Callable[..., FloatArray], *arguments: Any
) -> tuple[FloatArray, int]:
    return task(part, *arguments), part.n_samples


def _part_reweighted(part: ArrayDataset, task: Callable[..., FloatArray], *arguments: Any) -> Any:
    return part.reweighted(task, *arguments)


def _part_rewritten(part: ArrayDataset, task: Callable[..., Any], *arguments: Any) -> Any:
    return part.rewritten(task, *arguments)


def _added(parts: Sequence[tuple[FloatArray, int]]) -> tuple[FloatArray, int]:
    """Sums and counts, added from the first to the last."""
    total, seen = parts[0]
    total = total.copy()
    for more, count in parts[1:]:
        total += more
        seen += count
    return total, seen
