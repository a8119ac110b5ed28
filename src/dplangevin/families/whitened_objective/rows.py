"""Whitened rows: the records of a data set in other coordinates, weighted so that its constants hold there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin.data.dataset import Block, Dataset
from dplangevin.problem import Loss, Problem

Floats = NDArray[np.float64]
MOST_BYTES = 1 << 30
"""Of whitened rows that are kept in memory beside the records; larger ones are made anew at every pass."""


def weighted(rows: Floats, basis: Floats, bound: float) -> tuple[Floats, Floats]:
    """w = min(1, (bound / |z|)^2) and z = T' x, with w |z|^2 <= bound^2, so that w |z| <= bound as well.

    A weight depends on its own row and on released values only. The comparison at the end is what the promise rests on:
    it holds for every T and row, finite or not.
    """
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        z = rows @ basis
        squares = np.einsum("ij,ij->i", z, z)
        weights = np.minimum(1.0, bound**2 / squares)
        inside = weights * squares <= bound**2 * (1 + 1e-12)
    z[~inside] = 0.0
    return np.where(inside, weights, 0.0), z


def whitened_rows(data: Dataset, basis: Floats) -> Dataset:
    """The same records as rows T' x with the weight w(x) times their own: made once where they fit in memory."""
    if 8 * data.n_samples * data.problem.n_columns > MOST_BYTES:
        return WhitenedRows(data, basis)
    try:
        return data.rewritten(_rewritten, basis)
    except MemoryError:  # whose text would tell the number of records
        return WhitenedRows(data, basis)


def _rewritten(data: Dataset, block: Block, basis: Floats) -> tuple[Floats, Floats]:
    return weighted(block.rows, basis, data.problem.row_norm)


class WhitenedRows(Dataset):
    """Whitened rows that are made anew, block by block, at every pass; wherever the records are.

    Parameters
    ----------
    data : the records. basis : T.
    """

    within_bounds = False  # a row may be longer than the problem's bound; its weight makes up for it

    def __init__(self, data: Dataset, basis: Floats) -> None:
        self._data = data
        self._basis = basis
        self.n_samples, self.n_bytes = data.n_samples, data.n_bytes

    @property
    def problem(self) -> Problem:
        return self._data.problem

    def blocks(self, rows: NDArray[np.integer[Any]] | None = None) -> Iterator[Block]:
        for block in self._data.blocks(rows):
            weights, z = _rewritten(self._data, block, self._basis)
            own = weights if block.weights is None else weights * block.weights
            yield Block(z, block.labels, own)

    def summed(self, task: Callable[..., NDArray[Any]], *arguments: Any) -> NDArray[Any]:
        return self._data.summed(_there, self._basis, task, *arguments)

    def gradient_sum(self, loss: Loss, theta: Floats, rows: ArrayLike | None = None) -> Floats:
        return self.summed(Dataset.gradient_sum, loss, theta)

    def loss_sum(self, loss: Loss, theta: Floats) -> Floats:
        return self.summed(Dataset.loss_sum, loss, theta)


def _there(data: Dataset, basis: Floats, task: Callable[..., NDArray[Any]], *arguments: Any) -> NDArray[Any]:
    return task(WhitenedRows(data, basis), *arguments)
