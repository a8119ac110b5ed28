"""Data sets in memory: clipped records and the sums over them that mechanisms use."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin.data.integer_grids import RowGrid, piece_rows as cached_rows
from dplangevin.data.kernels import (
    ROWS_PER_GROUP,
    Block as Block,
    Kernel,
    QuadraticGradients,
    block_rows,
    choose_kernel,
    piece_rows,
    repair_scores,
    repays_compiled,
    thread_count,
)
from dplangevin.errors import InvalidParameter
from dplangevin.problem import Loss, Problem, RecordLoss
from dplangevin.problem.constants import as_array
from dplangevin.problem.losses.record import clipped_value_sum
from dplangevin.tables import as_column, as_matrix

FloatArray = NDArray[np.float64]
MIN_THREADED_BYTES = 128 << 20
BLOCKS_PER_CLIP = 8
"""Blocks whose long rows are clipped together."""
CACHES = ("_quadratic", "_kernel", "residuals")
"""Attributes of a data set that follow from its records."""


class Dataset(ABC):
    """Private records, clipped once to the bounds of a problem.

    Sums run over row blocks in a fixed order, so equal inputs give equal results on one machine. They do not
    include the ridge. A NaN score is replaced by 0 and an infinite one by a huge number, so that a record's
    contribution stays within the problem's bound whatever theta is.
    """

    n_samples: int
    """Number of records; private under add-remove adjacency."""
    n_bytes: int = 0
    """Bytes read in one pass; 0 when unknown."""
    within_bounds: bool = True
    """Whether every row satisfies the problem's bound on its norm, so that public bounds on scores hold."""
    grid: RowGrid | None = None
    """The grid that rows were rounded to while they were read; None where they were not."""
    has_weights: bool = True
    """Whether records may have weights other than 1: a public fact about how the data set was made."""
    residuals: Any = None
    """Residuals of a squared loss at an earlier point, which save work at the next one (`data.exact_sums`)."""

    @property
    @abstractmethod
    def problem(self) -> Problem:
        """Problem to whose bounds the records were clipped."""

    @abstractmethod
    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        """Yield the records (or those with these increasing row numbers) in order, a few thousand at a time."""

    @cached_property
    def _quadratic(self) -> QuadraticGradients:
        return QuadraticGradients()

    def kernel(self, loss: Loss) -> Kernel:
        """Return the kernel that sums gradients of this loss; it is chosen once per loss."""
        cached: tuple[Loss, Kernel] | None = self.__dict__.get("_kernel")
        if cached is None or cached[0] is not loss:
            cached = self.__dict__["_kernel"] = (loss, choose_kernel(loss, self.n_bytes))
        return cached[1]

    def describe(self, loss: Loss) -> str:
        """Return how gradients of this loss are summed, for `verbose`."""
        return f"Gradients: {type(self).__name__}, {self.kernel(loss).describe()}, {self._thread_count()} thread(s)."

    def pieces(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        """Yield the same records as `blocks`, in larger pieces of whole groups; rows may be in single precision."""
        return self.blocks(rows)

    @property
    def n_features(self) -> int:
        """Number of feature columns, without the intercept."""
        return self.problem.n_features

    def gradient_sum(self, loss: Loss, theta: FloatArray, rows: ArrayLike | None = None) -> FloatArray:
        """Return sum_i weight_i grad loss(theta_j; x_i, y_i) for each column j of theta[dimension, k].

        `rows` are the distinct row numbers of a mini-batch, in any order; None sums over all records.
        """
        parameters = self._parameter_matrix(loss, theta)
        kernel = self.kernel(loss)
        formula = kernel.slope_formula
        if rows is None and self.within_bounds and formula is not None and formula.kind == "affine":
            gradient = self._quadratic.gradient_or_none(self, formula, parameters)
            if gradient is not None:
                return gradient
        batch = None if rows is None else self._check_batch(rows)
        total, n_seen = self._gradient(kernel, parameters, batch)
        self.check_rows_seen(n_seen, batch)
        if loss.score_dimension == 1:
            return total
        cube = total.reshape(len(total), np.shape(theta)[1], loss.score_dimension)
        return np.ascontiguousarray(cube.transpose(0, 2, 1)).reshape(np.shape(theta))

    def _gradient(
        self, kernel: Kernel, parameters: FloatArray, rows: NDArray[np.integer[Any]] | None
    ) -> tuple[FloatArray, int]:
        """Return the sum and its number of records; pieces are added in order, whatever the number of threads."""
        size = float(np.vdot(parameters, parameters))
        # |<row, theta>| <= |row| |theta|: no score overflows
        finite = self.within_bounds and size * self.problem.row_norm**2 < 1e300

        total, n_seen = np.zeros(parameters.shape), 0
        pieces, n_threads = self.pieces(rows), self._thread_count()
        if n_threads == 1:
            for piece in pieces:
                total += kernel.gradient(piece, parameters, finite)
                n_seen += len(piece.labels)
            return total, n_seen

        def piece_sum(piece: Block) -> tuple[FloatArray, int]:
            return kernel.gradient(piece, parameters, finite), len(piece.labels)

        for part, count in _map_pieces(piece_sum, pieces, n_threads):
            total += part
            n_seen += count
        return total, n_seen

    def _thread_count(self) -> int:
        """Return the number of threads; one for a small pass, which ends before threads have started."""
        return thread_count() if self.n_bytes >= MIN_THREADED_BYTES else 1

    def loss_sum(self, loss: Loss, theta: FloatArray) -> FloatArray:
        """Return sum_i weight_i loss(theta_j; x_i, y_i) for each column j of theta[dimension, k]."""
        parameters = self._parameter_matrix(loss, theta)
        total = np.zeros(np.shape(theta)[1])
        n_seen = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks():
                total += _block_losses(loss, block, parameters, self.problem)
                n_seen += len(block.labels)
        self.check_row_count(n_seen)
        return total

    def sum_over_blocks(
        self, task: Callable[..., NDArray[Any]], *arguments: Any, whole: bool = False
    ) -> NDArray[Any]:
        """Return task(data, *arguments) for a task that is a sum over records; partitioned data are summed by parts.

        A part has the bounds, loss and columns of the problem, but neither its n nor its adjacency.

        whole : the sum is one of whole numbers, so that parts may be added in any order.
        """
        return task(self, *arguments)

    def sum_over_batch(
        self,
        rows: NDArray[np.integer[Any]] | None,
        task: Callable[..., NDArray[Any]],
        *arguments: Any,
        whole: bool = False,
    ) -> NDArray[Any]:
        """Return task(data, rows, *arguments), a sum over the records with these increasing row numbers (None: all)."""
        return task(self, rows, *arguments)

    def with_scaled_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> Dataset:
        """Return the same records with their weights multiplied by task(data, block, *arguments), values in [0, 1].

        The factor of a record must depend only on that record and on what is public or released.
        """
        raise InvalidParameter(
            f"{type(self).__name__} cannot weight its records; use noisy gradient descent."
        )

    def with_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> Dataset:
        """Return the same records with the weights task(data, block, *arguments), whatever the caller means by them.

        The rows of a block may be in single precision.
        What a record gets must depend on that record alone, and on what is public or released.
        """
        raise InvalidParameter(
            f"{type(self).__name__} cannot weight its records; use noisy gradient descent."
        )

    def with_loss(self, loss: Loss) -> Dataset:
        """Return the same records for a problem with another loss, of the same kind of labels."""
        raise InvalidParameter(f"{type(self).__name__} cannot change the loss of its problem.")

    def with_rounded_rows(self, grid: RowGrid, *, in_place: bool = False) -> Dataset:
        """Return the same records with rows rounded towards zero to the grid; rows in a file go to another file.

        in_place : rows in memory may be overwritten, because nobody else uses this data set.
        """
        raise InvalidParameter(f"{type(self).__name__} cannot round its records.")

    def with_transformed_rows(
        self, task: Callable[..., tuple[FloatArray, FloatArray]], *arguments: Any
    ) -> Dataset:
        """Return the same records in memory with transformed rows.

        task(data, block, *arguments) returns factors in [0, 1], by which weights are multiplied, and the new rows,
        which may exceed the problem's row norm. Both must depend only on the record itself and on what is public or
        released.
        """
        raise InvalidParameter(f"{type(self).__name__} cannot rewrite its records.")

    def check_row_count(self, n_seen: int | None = None) -> None:
        """Raise unless a full pass reads n_samples records; without `n_seen`, count them first."""
        if n_seen is None:
            n_seen = sum(len(block.rows) for block in self.blocks())
        if n_seen != self.n_samples:
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only."
            )

    def check_rows_seen(self, n_seen: int, batch: NDArray[np.integer[Any]] | None) -> None:
        """Raise unless a sum has read all records, or all of a batch."""
        if batch is None:
            self.check_row_count(n_seen)
        elif n_seen != len(batch):
            raise InvalidParameter(
                "the number of records of a batch changed while they were read; make the source read-only."
            )

    def _parameter_matrix(self, loss: Loss, theta: FloatArray) -> FloatArray:
        """Return theta[p K, k] as a matrix [p, k K], so that one product gives scores [rows, k, K]."""
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

    def _check_batch(self, rows: ArrayLike) -> NDArray[np.integer[Any]]:
        """Return the row numbers in increasing order; raise for a repeated one, which would count twice."""
        batch = np.asarray(rows)
        if batch.ndim != 1 or (batch.size and batch.dtype.kind not in "iu"):
            raise InvalidParameter("rows must be a one-dimensional array of row numbers.")
        ordered = np.sort(batch.astype(np.intp))
        if ordered.size and (ordered[0] < 0 or ordered[-1] >= self.n_samples):
            raise InvalidParameter("rows must lie between 0 and n_samples - 1.")
        if np.any(ordered[1:] == ordered[:-1]):
            raise InvalidParameter("rows must be distinct: a repeated record exceeds the stated sensitivity.")
        return ordered


def _map_pieces(
    piece_sum: Callable[[Block], tuple[FloatArray, int]], pieces: Iterable[Block], n_threads: int
) -> Iterator[tuple[FloatArray, int]]:
    """Yield the sums of the pieces in order, computed by `n_threads` threads; few pieces are in memory at a time."""
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Future[tuple[FloatArray, int]]] = deque()
        for piece in pieces:
            waiting.append(pool.submit(piece_sum, piece))
            if len(waiting) > 2 * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _block_losses(loss: Loss, block: Block, parameters: FloatArray, problem: Problem) -> FloatArray:
    """Return sum weight loss over a block, a few rows at a time so that scores and losses stay in cache."""
    if isinstance(loss, RecordLoss) and loss.value_range is not None:
        # a sum of 2^31 values stays below 2^53 units; the unit is the same for all parts of partitioned data
        width = problem.bounds.weight_bound * (loss.value_range[1] - loss.value_range[0])
        unit = math.ldexp(1.0, math.frexp(width)[1] - 22)
        return clipped_value_sum(loss, parameters, block.rows, block.labels, block.weights, unit)
    if isinstance(loss, RecordLoss):
        values = loss.record_values(parameters, block.rows)
        return np.asarray(values.sum(axis=0) if block.weights is None else block.weights @ values)
    total: Any = 0.0
    step = block_rows(*parameters.shape)
    for start in range(0, len(block.labels), step):
        part = slice(start, start + step)
        scores = repair_scores(block.rows[part] @ parameters, False)
        if loss.score_dimension > 1:
            scores = scores.reshape(len(scores), -1, loss.score_dimension)
        labels = block.labels[part, None]
        if block.weights is None:
            total += loss.sum_values(scores, labels)
        else:
            total += block.weights[part] @ loss.value(scores, labels)
    return np.asarray(total)


def _scale_weights(factors: FloatArray, block: Block) -> FloatArray:
    """Return the records' own weights times the factors, clipped to [0, 1]."""
    clipped = np.clip(factors, 0.0, 1.0)
    return clipped if block.weights is None else clipped * block.weights


class StoredDataset(Dataset):
    """Clipped records in C-ordered arrays, in memory or in a mapped file."""

    _problem: Problem
    _rows: NDArray[Any]  # [n, columns], single or double precision
    _labels: FloatArray
    _weights: FloatArray | None

    @property
    def problem(self) -> Problem:
        return self._problem

    def _store_arrays(self, rows: NDArray[Any], labels: FloatArray, weights: FloatArray | None) -> None:
        self._rows, self._labels, self._weights = rows, labels, weights
        self.n_samples, self.n_bytes, self.has_weights = len(rows), rows.nbytes, weights is not None

    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        for block in self._slice_blocks(rows, ROWS_PER_GROUP):
            yield block._replace(rows=block.rows.astype(np.float64, copy=False))

    def pieces(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        return self._slice_blocks(rows, piece_rows(self._rows.shape[1]))

    def _slice_blocks(self, rows: NDArray[np.integer[Any]] | None, step: int) -> Iterator[Block]:
        size = self.n_samples if rows is None else len(rows)
        for start in range(0, size, step):
            stop = min(start + step, size)
            part = slice(start, stop) if rows is None else rows[start:stop]
            if rows is None and stop < size:
                self._read_ahead(stop, min(stop + step, size))
            weights = None if self._weights is None else self._weights[part]
            yield Block(self._rows[part], self._labels[part], weights)

    def _read_ahead(self, start: int, stop: int) -> None:
        """Announce that these rows are needed next; nothing to do for rows in memory."""

    def with_scaled_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> StoredDataset:
        return self._with_block_weights(
            lambda block: _scale_weights(task(self, block, *arguments), block), self.blocks()
        )

    def with_weights(self, task: Callable[..., FloatArray], *arguments: Any) -> StoredDataset:
        return self._with_block_weights(lambda block: task(self, block, *arguments), self.pieces())

    def _with_block_weights(
        self, block_weights: Callable[[Block], FloatArray], blocks: Iterator[Block]
    ) -> StoredDataset:
        weights, start = self.allocate_numbers(self.n_samples), 0
        for block in blocks:
            part = slice(start, start + len(block.labels))
            weights[part] = block_weights(block)
            start = part.stop
        self.check_row_count(start)
        return self._copy_with(_weights=weights, has_weights=True)

    def with_loss(self, loss: Loss) -> StoredDataset:
        return self._copy_with(_problem=replace(self._problem, loss=loss))

    def with_rounded_rows(self, grid: RowGrid, *, in_place: bool = False) -> StoredDataset:
        if self.grid == grid:
            return self
        if in_place and self._owns_rows and grid.dtype.itemsize <= self._rows.itemsize:
            # rounded rows follow each other from the same first byte on
            rows = self._rows.reshape(-1).view(grid.dtype)[: self._rows.size].reshape(self._rows.shape)
            grid.snap_into(self._rows, rows)
            self._rows, self.residuals = (
                rows,
                None,
            )  # whoever still asks this data set meets rounded rows as well
        else:
            rows = self._allocate_rows(self._rows.shape, grid.dtype)
            grid.snap_into(self._rows, rows)
        return self._copy_with(_rows=rows, n_bytes=rows.nbytes, grid=grid)

    def _copy_with(self, **arrays: Any) -> StoredDataset:
        """Return this data set with other arrays, without anything cached about the old ones."""
        twin: StoredDataset = object.__new__(type(self))
        kept = {name: value for name, value in vars(self).items() if name not in CACHES}
        twin.__dict__.update(kept, **arrays)
        return twin

    def with_transformed_rows(
        self, task: Callable[..., tuple[FloatArray, FloatArray]], *arguments: Any
    ) -> StoredDataset:
        rows, weights, start = np.empty(self._rows.shape), np.empty(self.n_samples), 0
        for block in self.blocks():
            part = slice(start, start + len(block.labels))
            factors, rows[part] = task(self, block, *arguments)
            weights[part] = _scale_weights(factors, block)
            start = part.stop
        self.check_row_count(start)
        transformed: ArrayDataset = object.__new__(ArrayDataset)
        transformed._problem, transformed.within_bounds = self._problem, False
        transformed._store_arrays(rows, self._labels, weights)
        return transformed

    @property
    def _owns_rows(self) -> bool:
        """Whether the rows are a copy in memory that this data set made."""
        return False

    def allocate_numbers(self, size: int) -> FloatArray:
        """Return an uninitialized array of one number a record."""
        return np.empty(size)

    def _allocate_rows(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an uninitialized array for the rows."""
        return np.empty(shape, dtype)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Arrays that arrive over a network may be unaligned; NumPy would copy such rows at every product.
        for name, value in state.items():
            is_array = isinstance(value, np.ndarray)
            self.__dict__[name] = np.require(value, requirements=["C", "A"]) if is_array else value


class RecordClipper:
    """Clips records to the bounds of a problem, and rounds their joint rows (x, 1) to a grid if there is one.

    A row whose rounded entries show that it is surely within its bound needs no clip, which would leave it as it is:
    most rows are read once, and the others are clipped first. What comes out is the same.

    n_bytes : of all rows that will come, which decides whether compiled code rounds them.
    """

    def __init__(self, problem: Problem, grid: RowGrid | None, n_bytes: int) -> None:
        self._bounds, self._columns, self._width = problem.bounds, problem.n_features, problem.n_columns
        self._grid, self._step = grid, ROWS_PER_GROUP if grid is None else cached_rows(self._width)
        self.block_rows = self._step if grid is None else BLOCKS_PER_CLIP * self._step
        self._rounds_first = grid is not None and problem.bounds.bad_rows == "refuse"
        self._compiled = self._rounds_first and repays_compiled(n_bytes)
        self._buffer = np.empty((0, self._width))

    def __call__(
        self, features: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None, out: NDArray[Any]
    ) -> tuple[FloatArray, FloatArray | None]:
        """Write at most block_rows rows to `out` [n, n_columns], and return the labels and weights."""
        if not self._rounds_first or features.dtype not in (np.float32, np.float64):
            return self._clip(features, labels, weights, out)
        assert self._grid is not None
        clipped_labels, clipped_weights = self._bounds.clip_labels(labels, weights)
        compiled = self._compiled and features.flags.c_contiguous and features.flags.aligned
        if not compiled and len(self._buffer) < min(self._step, len(features)):
            self._buffer = np.empty((min(self._step, len(features)), self._width))
        buffer = None if compiled else self._buffer
        parts = []
        for start in range(0, len(features), self._step):
            part = slice(start, start + self._step)
            inner = self._grid.snap_inner(features[part], self._bounds.data_norm, buffer, out[part])
            parts.append(start + inner)
        left = np.concatenate(parts) if parts else np.empty(0, np.intp)
        if len(left):
            rows = np.empty((len(left), self._width), out.dtype)
            self._clip(features[left], labels[left], None, rows)
            out[left] = rows
            self._rounds_first = len(left) < len(features) // 4
        return clipped_labels, clipped_weights

    def _clip(
        self, features: NDArray[Any], labels: NDArray[Any], weights: NDArray[Any] | None, out: NDArray[Any]
    ) -> tuple[FloatArray, FloatArray | None]:
        clipped_labels = np.empty(len(features))
        clipped_weights: FloatArray | None = None
        dtype = np.dtype(np.float32 if features.dtype == np.float32 else np.float64)
        direct = self._grid is None and out.dtype == dtype
        for start in range(0, max(len(features), 1), self._step):
            part = slice(start, start + self._step)
            joint = out[part] if direct else np.empty(out[part].shape, dtype)
            joint[:, self._columns :] = 1.0
            _, clipped_labels[part], some = self._bounds.clip(
                features[part],
                labels[part],
                None if weights is None else weights[part],
                out=joint[:, : self._columns],
            )
            if some is not None:
                clipped_weights = np.empty(len(features)) if clipped_weights is None else clipped_weights
                clipped_weights[part] = some
            if self._grid is not None:
                self._grid.snap_into(joint, out[part])
            elif not direct:
                out[part] = joint
        return clipped_labels, clipped_weights


@final
class ArrayDataset(StoredDataset):
    """Records held in memory, clipped once through `problem.bounds` into a C-ordered array.

    float32 features stay float32 and are summed in float64. Error messages never show a value of the data.

    Parameters
    ----------
    X : features [n_samples, n_features].
    y : targets [n_samples].
    problem : its n must be the number of records (replace-one) or at least that number (add-remove).
    weights : [n_samples], or None for 1 each.
    grid : round rows to it while they are clipped, a few at a time: one pass and one copy instead of two.
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        problem: Problem,
        weights: ArrayLike | None = None,
        *,
        grid: RowGrid | None = None,
    ) -> None:
        if not isinstance(problem, Problem):
            raise InvalidParameter(f"problem must be a Problem, got {type(problem).__name__}.")
        if problem.bounds.bad_rows == "zero":
            # Cell by cell: in a list, or an array of objects, one record could decide the type of all others.
            X, y = as_matrix(X, problem.n_features), as_column(y, "y").numbers()
            weights = None if weights is None else as_column(weights, "weights").numbers()
        features, labels = as_array("X", X), as_array("y", y)
        row_weights = None if weights is None else as_array("weights", weights)
        if features.ndim != 2:
            raise InvalidParameter(
                f"X must have shape [n_samples, {problem.n_features}], got {features.ndim} dimension(s)."
            )
        check_shape(features.shape, problem)
        for name, values in (("y", labels), ("weights", row_weights)):
            if values is not None and values.shape != (len(features),):
                raise InvalidParameter(f"{name} must have shape [n_samples], one entry per row of X.")
        self._problem, self.grid = problem, grid
        n = len(features)
        dtype = np.dtype(np.float32 if features.dtype == np.float32 else np.float64)
        rows = np.empty((n, problem.n_columns), dtype if grid is None else grid.dtype)
        unit = row_weights is None and problem.bounds.weight_bound >= 1
        self._store_arrays(rows, np.empty(n), None if unit else np.ones(n))
        clip = RecordClipper(problem, grid, rows.nbytes)
        for start in range(0, n, step := clip.block_rows):  # by blocks, so that no second copy of X is made
            part = slice(start, min(start + step, n))
            part_weights = None if row_weights is None else row_weights[part]
            self._labels[part], clipped_weights = clip(features[part], labels[part], part_weights, rows[part])
            if self._weights is not None:
                self._weights[part] = clipped_weights

    @property
    def _owns_rows(self) -> bool:
        return True


def check_shape(shape: tuple[int, ...], problem: Problem) -> None:
    """Raise unless the records have the shape that the problem states."""
    size, columns = shape
    if columns != problem.n_features:
        raise InvalidParameter(f"X must have shape [n_samples, {problem.n_features}], got {columns} columns.")
    if problem.adjacency == "replace-one" and size != problem.n:
        raise InvalidParameter(
            f"X has {size} rows but the problem states n = {problem.n}, public under replace-one; "
            "state the true number, or use adjacency='add-remove'."
        )
    if size > problem.n and not problem.allow_more_rows:
        # Under add-remove the number of records is private, so the message does not show it.
        raise InvalidParameter(f"X has more rows than the public divisor n = {problem.n}; state a larger n.")
