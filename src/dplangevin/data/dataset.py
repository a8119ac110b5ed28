"""Dataset: clipped records and the sums over them that mechanisms may ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin.data._kernels import (
    GROUP,
    Block as Block,
    Kernel,
    block_rows,
    kernel_for,
    piece_rows,
    repaired,
    threads,
)
from dplangevin.data._moments import QuadraticGradients
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Loss, Problem, RecordLoss
from dplangevin.problem.bounds import as_array
from dplangevin.tables import cells_of, matrix_of

FloatArray = NDArray[np.float64]
THREADED_BYTES = 128 << 20


class Dataset(ABC):
    """Private records, clipped once to the bounds of a problem.

    Sums run over row blocks in a fixed order, so equal inputs give equal results on one machine. They do not
    include the ridge. A score that is not finite counts as 0 or as a huge score, so that a record's share
    stays within the problem's bound whatever theta is.
    """

    n_samples: int
    """Number of records; private under add-remove adjacency."""
    n_bytes: int = 0
    """Size of one pass; 0 when unknown."""
    within_bounds: bool = True
    """Whether every row is as short as the problem says, so that public bounds on scores hold."""

    @property
    @abstractmethod
    def problem(self) -> Problem:
        """The problem whose bounds the records were clipped to."""

    @abstractmethod
    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        """The records (or those with these increasing row numbers) in order, a few thousand at a time."""

    @cached_property
    def _quadratic(self) -> QuadraticGradients:
        return QuadraticGradients()

    def kernel(self, loss: Loss) -> Kernel:
        """The code that sums gradients of this loss here, chosen once per loss."""
        found: tuple[Loss, Kernel] | None = self.__dict__.get("_kernel")
        if found is None or found[0] is not loss:
            found = self.__dict__["_kernel"] = (loss, kernel_for(loss, self.n_bytes))
        return found[1]

    def describe(self, loss: Loss) -> str:
        """How gradients of this loss are summed, for `verbose`."""
        return (
            f"Gradients: {type(self).__name__}, {self.kernel(loss).describe()}, {self._threads()} thread(s)."
        )

    def _pieces(self, rows: NDArray[np.integer[Any]] | None) -> Iterator[Block]:
        """The same records as `blocks`, in larger pieces of whole groups, rows perhaps in single precision."""
        return self.blocks(rows)

    @property
    def n_features(self) -> int:
        """Number of feature columns, without the intercept."""
        return self.problem.n_features

    def gradient_sum(self, loss: Loss, theta: FloatArray, rows: ArrayLike | None = None) -> FloatArray:
        """sum_i weight_i grad loss(theta_j; x_i, y_i) for each column j of theta[dimension, k].

        `rows` are the distinct row numbers of a mini-batch, in any order; None sums over all records.
        """
        parameters = self._parameters(loss, theta)
        kernel = self.kernel(loss)
        law = kernel.law
        if rows is None and self.within_bounds and law is not None and law.kind == "affine":
            quick = self._quadratic.gradient(self, law, parameters)
            if quick is not None:
                return quick
        batch = None if rows is None else self._batch(rows)
        total, seen = self._gradient(kernel, parameters, batch)
        self.check_seen(seen, batch)
        if loss.score_dimension == 1:
            return total
        cube = total.reshape(len(total), np.shape(theta)[1], loss.score_dimension)
        return np.ascontiguousarray(cube.transpose(0, 2, 1)).reshape(np.shape(theta))

    def _gradient(
        self, kernel: Kernel, parameters: FloatArray, rows: NDArray[np.integer[Any]] | None
    ) -> tuple[FloatArray, int]:
        """The sum and the number of records in it; pieces are added in order, whatever the number of threads."""
        size = float(np.vdot(parameters, parameters))
        # |<row, theta>| <= |row| |theta|: no score overflows
        finite = self.within_bounds and size * self.problem.row_norm**2 < 1e300

        total, seen = np.zeros(parameters.shape), 0
        pieces, used = self._pieces(rows), self._threads()
        if used == 1:
            for piece in pieces:
                total += kernel.gradient(piece, parameters, finite)
                seen += len(piece.labels)
            return total, seen

        def piece_sum(piece: Block) -> tuple[FloatArray, int]:
            return kernel.gradient(piece, parameters, finite), len(piece.labels)

        for part, count in _mapped(piece_sum, pieces, used):
            total += part
            seen += count
        return total, seen

    def _threads(self) -> int:
        """A small pass ends before threads have started."""
        return threads() if self.n_bytes >= THREADED_BYTES else 1

    def loss_sum(self, loss: Loss, theta: FloatArray) -> FloatArray:
        """sum_i weight_i loss(theta_j; x_i, y_i) for each column j of theta[dimension, k]."""
        parameters = self._parameters(loss, theta)
        total = np.zeros(np.shape(theta)[1])
        seen = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks():
                total += _losses(loss, block, parameters)
                seen += len(block.labels)
        self.check_rows(seen)
        return total

    def summed(self, task: Callable[..., NDArray[Any]], *arguments: Any) -> NDArray[Any]:
        """task(data, *arguments), for a task that is a sum over records; where data are in parts, part by part.

        A part has bounds, loss and columns of the problem, but neither its n nor its adjacency.
        """
        return task(self, *arguments)

    def summed_over(
        self, rows: NDArray[np.integer[Any]] | None, task: Callable[..., NDArray[Any]], *arguments: Any
    ) -> NDArray[Any]:
        """task(data, rows, *arguments), a sum over the records with these increasing row numbers (None: all)."""
        return task(self, rows, *arguments)

    def reweighted(self, task: Callable[..., FloatArray], *arguments: Any) -> Dataset:
        """The same records, their weights times task(data, block, *arguments), numbers in [0, 1] for each record.

        What a record gets must depend on that record alone, and on what is public or released.
        """
        raise InvalidParameter(
            f"{type(self).__name__} cannot weight its records; use noisy gradient descent."
        )

    def rewritten(self, task: Callable[..., tuple[FloatArray, FloatArray]], *arguments: Any) -> Dataset:
        """The same records in memory with other rows: task(data, block, *arguments) gives numbers in [0, 1], by which
        weights are multiplied, and rows, which may be longer than the problem says.

        What a record gets must depend on that record alone, and on what is public or released.
        """
        raise InvalidParameter(f"{type(self).__name__} cannot rewrite its records.")

    def check_rows(self, seen: int | None = None) -> None:
        """Raise unless a full pass sees n_samples records; counts them when `seen` is not given."""
        if seen is None:
            seen = sum(len(block.rows) for block in self.blocks())
        if seen != self.n_samples:
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only."
            )

    def check_seen(self, seen: int, batch: NDArray[np.integer[Any]] | None) -> None:
        """Raise unless a sum has seen all records, or all of a batch."""
        if batch is None:
            self.check_rows(seen)
        elif seen != len(batch):
            raise InvalidParameter(
                "records of a batch were lost while they were read; make the source read-only."
            )

    def _parameters(self, loss: Loss, theta: FloatArray) -> FloatArray:
        """theta[p K, k] as a matrix [p, k K], so that one product gives scores [rows, k, K]."""
        columns, classes = self.problem.n_columns, loss.score_dimension
        if np.ndim(theta) != 2 or np.shape(theta)[0] != columns * classes:
            raise InvalidParameter(
                f"theta must have shape [{columns * classes}, k]: {columns} columns, {classes} score(s); "
                f"got {list(np.shape(theta))}."
            )
        if classes == 1:
            return np.ascontiguousarray(theta, np.float64)
        cube = np.asarray(theta, np.float64).reshape(columns, classes, -1)
        return np.ascontiguousarray(cube.transpose(0, 2, 1)).reshape(columns, -1)

    def _batch(self, rows: ArrayLike) -> NDArray[np.integer[Any]]:
        """Row numbers in increasing order. A repeated row would count twice, so it is refused."""
        batch = np.asarray(rows)
        if batch.ndim != 1 or (batch.size and batch.dtype.kind not in "iu"):
            raise InvalidParameter("rows must be a one-dimensional array of row numbers.")
        ordered = np.sort(batch.astype(np.intp))
        if ordered.size and (ordered[0] < 0 or ordered[-1] >= self.n_samples):
            raise InvalidParameter("rows must lie between 0 and n_samples - 1.")
        if np.any(ordered[1:] == ordered[:-1]):
            raise InvalidParameter("rows must be distinct: a repeated record exceeds the stated sensitivity.")
        return ordered


def _mapped(
    piece_sum: Callable[[Block], tuple[FloatArray, int]], pieces: Iterable[Block], used: int
) -> Iterator[tuple[FloatArray, int]]:
    """The sums of the pieces in order, by so many threads; a few pieces are in work at a time."""
    with ThreadPoolExecutor(used) as pool:
        waiting: deque[Future[tuple[FloatArray, int]]] = deque()
        for piece in pieces:
            waiting.append(pool.submit(piece_sum, piece))
            if len(waiting) > 2 * used:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _losses(loss: Loss, block: Block, parameters: FloatArray) -> FloatArray:
    """sum weight loss over a block, a few rows at a time: scores and losses are read and written many times."""
    if isinstance(loss, RecordLoss):
        values = loss.record_values(parameters, block.rows)
        return np.asarray(values.sum(axis=0) if block.weights is None else block.weights @ values)
    total: Any = 0.0
    step = block_rows(*parameters.shape)
    for start in range(0, len(block.labels), step):
        part = slice(start, start + step)
        scores = repaired(block.rows[part] @ parameters, False)
        if loss.score_dimension > 1:
            scores = scores.reshape(len(scores), -1, loss.score_dimension)
        labels = block.labels[part, None]
        if block.weights is None:
            total += loss.total(scores, labels)
        else:
            total += block.weights[part] @ loss.value(scores, labels)
    return np.asarray(total)


def _times(factors: FloatArray, block: Block) -> FloatArray:
    """The records' own weights, times factors in [0, 1]."""
    inside = np.clip(factors, 0.0, 1.0)
    return inside if block.weights is None else inside * block.weights


class StoredDataset(Dataset):
    """Clipped records in C-ordered arrays, wherever their memory is."""

    _problem: Problem
    _rows: NDArray[Any]  # [n, columns], single or double precision
    _labels: FloatArray
    _weights: FloatArray | None

    @property
    def problem(self) -> Problem:
        return self._problem

    def _keep(self, rows: NDArray[Any], labels: FloatArray, weights: FloatArray | None) -> None:
        self._rows, self._labels, self._weights = rows, labels, weights
        self.n_samples, self.n_bytes = len(rows), rows.nbytes

    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        for block in self._cut(rows, GROUP):
            yield block._replace(rows=block.rows.astype(np.float64, copy=False))

    def _pieces(self, rows: NDArray[np.integer[Any]] | None) -> Iterator[Block]:
        return self._cut(rows, piece_rows(self._rows.shape[1]))

    def _cut(self, rows: NDArray[np.integer[Any]] | None, step: int) -> Iterator[Block]:
        size = self.n_samples if rows is None else len(rows)
        for start in range(0, size, step):
            stop = min(start + step, size)
            part = slice(start, stop) if rows is None else rows[start:stop]
            if rows is None and stop < size:
                self._read_ahead(stop, min(stop + step, size))
            weights = None if self._weights is None else self._weights[part]
            yield Block(self._rows[part], self._labels[part], weights)

    def _read_ahead(self, start: int, stop: int) -> None:
        """These rows are needed next."""

    def reweighted(self, task: Callable[..., FloatArray], *arguments: Any) -> StoredDataset:
        weights, start = self._room(self.n_samples), 0
        for block in self.blocks():
            part = slice(start, start + len(block.labels))
            weights[part] = _times(task(self, block, *arguments), block)
            start = part.stop
        self.check_rows(start)
        twin: StoredDataset = object.__new__(type(self))
        kept = {name: value for name, value in vars(self).items() if name not in ("_quadratic", "_kernel")}
        twin.__dict__.update(kept, _weights=weights)
        return twin

    def rewritten(self, task: Callable[..., tuple[FloatArray, FloatArray]], *arguments: Any) -> StoredDataset:
        rows, weights, start = np.empty(self._rows.shape), np.empty(self.n_samples), 0
        for block in self.blocks():
            part = slice(start, start + len(block.labels))
            factors, rows[part] = task(self, block, *arguments)
            weights[part] = _times(factors, block)
            start = part.stop
        self.check_rows(start)
        twin: ArrayDataset = object.__new__(ArrayDataset)
        twin._problem, twin.within_bounds = self._problem, False
        twin._keep(rows, self._labels, weights)
        return twin

    def _room(self, size: int) -> FloatArray:
        """Where so many weights are put."""
        return np.empty(size)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays that arrive over a network may start at an odd address; NumPy copies such rows at every product.
        for name, value in state.items():
            kept = np.require(value, requirements=["C", "A"]) if isinstance(value, np.ndarray) else value
            self.__dict__[name] = kept


@final
class ArrayDataset(StoredDataset):
    """Records held in memory, clipped once through `problem.bounds` into a C-ordered array.

    float32 features stay float32 and are summed in float64. Texts of errors never show a value of the data.

    Parameters
    ----------
    X : [n_samples, n_features]; y : [n_samples]; weights : [n_samples] or None for 1 each.
    problem : its n must be the number of records (replace-one) or at least that number (add-remove).
    """

    def __init__(
        self, X: ArrayLike, y: ArrayLike, problem: Problem, weights: ArrayLike | None = None
    ) -> None:
        if not isinstance(problem, Problem):
            raise InvalidParameter(f"problem must be a Problem, got {type(problem).__name__}.")
        if (
            problem.bounds.bad_rows == "zero"
        ):  # a list, or objects, would take its type from the oddest record
            X, y = matrix_of(X, problem.n_features), cells_of(y, "y").numbers()
            weights = None if weights is None else cells_of(weights, "weights").numbers()
        features, labels = as_array("X", X), as_array("y", y)
        given = None if weights is None else as_array("weights", weights)
        if features.ndim != 2:
            raise InvalidParameter(
                f"X must have shape [n_samples, {problem.n_features}], got {features.ndim} dimension(s)."
            )
        check_size(features.shape, problem)
        for name, values in (("y", labels), ("weights", given)):
            if values is not None and values.shape != (len(features),):
                raise InvalidParameter(f"{name} must have shape [n_samples], one entry per row of X.")
        self._problem = problem
        n, columns = len(features), problem.n_features
        rows = np.empty((n, problem.n_columns), np.float32 if features.dtype == np.float32 else np.float64)
        rows[:, columns:] = 1.0
        unit = given is None and problem.bounds.weight_bound >= 1
        self._keep(rows, np.empty(n), None if unit else np.ones(n))
        for start in range(0, n, GROUP):  # by blocks, so that no second copy of X is made
            part = slice(start, start + GROUP)
            loads = None if given is None else given[part]
            clipped = problem.bounds.clip(features[part], labels[part], loads, out=rows[part, :columns])
            _, self._labels[part], loads = clipped
            if self._weights is not None:
                self._weights[part] = loads


def check_size(shape: tuple[int, ...], problem: Problem) -> None:
    """Refuse records of another shape than the problem states."""
    size, columns = shape
    if columns != problem.n_features:
        raise InvalidParameter(f"X must have shape [n_samples, {problem.n_features}], got {columns} columns.")
    if problem.adjacency == "replace-one" and size != problem.n:
        raise InvalidParameter(
            f"X has {size} rows but the problem states n = {problem.n}, public under replace-one; "
            "state the true number, or use adjacency='add-remove'."
        )
    if (
        size > problem.n and not problem.more_rows
    ):  # add-remove: the number of records is private, so it is not shown
        raise InvalidParameter(f"X has more rows than the public divisor n = {problem.n}; state a larger n.")
