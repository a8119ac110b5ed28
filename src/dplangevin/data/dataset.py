"""Dataset: clipped records and the sums over them that mechanisms may ask for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.problem import Loss, Problem
from dplangevin.problem.bounds import as_array

BLOCK_ROWS = 4096
FloatArray = NDArray[np.float64]


class Block(NamedTuple):
    """Consecutive clipped records: joint rows (x, 1), labels, and weights (None when all are 1)."""

    rows: FloatArray
    labels: FloatArray
    weights: FloatArray | None


class Dataset(ABC):
    """Private records, clipped once to the bounds of a problem.

    Sums run over row blocks in a fixed order, so equal inputs give equal results on one machine. They do not
    include the ridge. A score that is not finite counts as 0 or as a huge score, so that a record's share
    stays within the problem's bound whatever theta is.
    """

    @property
    @abstractmethod
    def problem(self) -> Problem:
        """The problem whose bounds the records were clipped to."""

    @property
    @abstractmethod
    def n_samples(self) -> int:
        """Number of records; private under add-remove adjacency."""

    @abstractmethod
    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        """The records (or those with these increasing row numbers) in order, a few thousand at a time."""

    @property
    def n_features(self) -> int:
        """Number of feature columns, without the intercept."""
        return self.problem.n_features

    def gradient_sum(self, loss: Loss, theta: FloatArray, rows: ArrayLike | None = None) -> FloatArray:
        """sum_i weight_i grad loss(theta_j; x_i, y_i) for each column j of theta[dimension, k].

        `rows` are the distinct row numbers of a mini-batch, in any order; None sums over all records.
        """
        parameters = self._parameters(loss, theta)
        total = np.zeros_like(parameters)
        seen = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks(self._batch(rows)):
                slopes = loss.slope(_scores(loss, block, parameters), block.labels[:, None])
                slopes = slopes.reshape(len(block.rows), -1)
                if block.weights is not None:
                    slopes = slopes * block.weights[:, None]
                total += block.rows.T @ slopes
                seen += len(block.rows)
        if rows is None:
            self.check_rows(seen)
        return _restored(loss, total, np.shape(theta))

    def loss_sum(self, loss: Loss, theta: FloatArray) -> FloatArray:
        """sum_i weight_i loss(theta_j; x_i, y_i) for each column j of theta[dimension, k]."""
        parameters = self._parameters(loss, theta)
        total = np.zeros(np.shape(theta)[1])
        seen = 0
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks():
                values = loss.value(_scores(loss, block, parameters), block.labels[:, None])
                weights = np.ones(len(values)) if block.weights is None else block.weights
                total += weights @ values
                seen += len(values)
        self.check_rows(seen)
        return total

    def check_rows(self, seen: int | None = None) -> None:
        """Raise unless a full pass sees n_samples records; counts them when `seen` is not given."""
        if seen is None:
            seen = sum(len(block.rows) for block in self.blocks())
        if seen != self.n_samples:
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only."
            )

    def _parameters(self, loss: Loss, theta: FloatArray) -> FloatArray:
        """theta[p K, k] as a matrix [p, k K], so that one product gives scores [rows, k, K]."""
        columns, classes = self.problem.n_columns, loss.score_dimension
        if np.ndim(theta) != 2 or np.shape(theta)[0] != columns * classes:
            raise InvalidParameter(
                f"theta must have shape [{columns * classes}, k]: {columns} columns, {classes} score(s); "
                f"got {list(np.shape(theta))}."
            )
        cube = np.asarray(theta, np.float64).reshape(columns, classes, -1)
        return np.ascontiguousarray(cube.transpose(0, 2, 1)).reshape(columns, -1)

    def _batch(self, rows: ArrayLike | None) -> NDArray[np.integer[Any]] | None:
        """Row numbers in increasing order. A repeated row would count twice, so it is refused."""
        if rows is None:
            return None
        batch = np.asarray(rows)
        if batch.ndim != 1 or (batch.size and batch.dtype.kind not in "iu"):
            raise InvalidParameter("rows must be a one-dimensional array of row numbers.")
        ordered = np.sort(batch.astype(np.intp))
        if ordered.size and (ordered[0] < 0 or ordered[-1] >= self.n_samples):
            raise InvalidParameter("rows must lie between 0 and n_samples - 1.")
        if np.any(ordered[1:] == ordered[:-1]):
            raise InvalidParameter("rows must be distinct: a repeated record exceeds the stated sensitivity.")
        return ordered


def _scores(loss: Loss, block: Block, parameters: FloatArray) -> FloatArray:
    """Scores [rows, k], or [rows, k, K] for a loss of K scores."""
    scores = block.rows @ parameters
    if not np.isfinite(scores.sum()):  # the test is cheap, the repair is not
        scores = np.nan_to_num(scores, copy=False, nan=0.0, posinf=1e300, neginf=-1e300)
    classes = loss.score_dimension
    return scores if classes == 1 else scores.reshape(len(scores), -1, classes)


def _restored(loss: Loss, total: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    cube = total.reshape(len(total), shape[1], loss.score_dimension)
    return np.ascontiguousarray(cube.transpose(0, 2, 1)).reshape(shape)


@final
class ArrayDataset(Dataset):
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
        features, labels = as_array("X", X), as_array("y", y)
        given = None if weights is None else as_array("weights", weights)
        _check_shapes(features, labels, given, problem)
        self._problem = problem
        size = (len(features), problem.n_columns)
        self._rows: NDArray[Any] = np.ones(size, np.float32 if features.dtype == np.float32 else np.float64)
        self._labels = np.zeros(len(features))
        self._weights = None if given is None and problem.bounds.weight_bound >= 1 else np.ones(len(features))
        for start in range(0, len(features), BLOCK_ROWS):  # by blocks, so that no second copy of X is made
            part = slice(start, start + BLOCK_ROWS)
            clipped = problem.bounds.clip(
                features[part], labels[part], None if given is None else given[part]
            )
            self._rows[part, : problem.n_features], self._labels[part] = clipped[:2]
            if self._weights is not None:
                self._weights[part] = clipped[2]

    @property
    def problem(self) -> Problem:
        return self._problem

    @property
    def n_samples(self) -> int:
        return len(self._rows)

    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        size = self.n_samples if rows is None else len(rows)
        for start in range(0, size, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, size)
            part = slice(start, stop) if rows is None else rows[start:stop]
            weights = None if self._weights is None else self._weights[part]
            yield Block(self._rows[part].astype(np.float64, copy=False), self._labels[part], weights)


def _check_shapes(X: NDArray[Any], y: NDArray[Any], weights: NDArray[Any] | None, problem: Problem) -> None:
    if X.ndim != 2 or X.shape[1] != problem.n_features:
        got = f"{X.shape[1]} columns" if X.ndim == 2 else f"{X.ndim} dimension(s)"
        raise InvalidParameter(f"X must have shape [n_samples, {problem.n_features}], got {got}.")
    if problem.adjacency == "replace-one" and len(X) != problem.n:
        raise InvalidParameter(
            f"X has {len(X)} rows but the problem states n = {problem.n}, public under replace-one; "
            "state the true number, or use adjacency='add-remove'."
        )
    if len(X) > problem.n:  # add-remove: the number of records is private, so it is not shown
        raise InvalidParameter(f"X has more rows than the public divisor n = {problem.n}; state a larger n.")
    for name, values in (("y", y), ("weights", weights)):
        if values is not None and values.shape != (len(X),):
            raise InvalidParameter(f"{name} must have shape [n_samples], one entry per row of X.")
