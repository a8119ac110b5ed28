"""Sums of records as vectors of integers: what exact noise can be added to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset

Integers = NDArray[np.int64]
LARGEST_BOUND = 2**50
"""Whole numbers below 2^53 are exact in doubles, sums of squares of admissible records included."""


def integer_gradient_sum(
    data: Dataset, theta: Floats, rows: NDArray[np.integer[Any]] | None, grid: float, bound: int
) -> Integers:
    """sum_i z_i, z_i = round(weight_i grad loss_i(theta) / grid), over the records (or those rows), in 64-bit integers.

    z_i is computed entry by entry from record i alone: a record's place and neighbours do not change it. A record with
    |z_i|^2 > bound, which no admissible record has, is not counted. So one record moves the sum by at most sqrt(bound).
    """
    batch = None if rows is None else np.sort(rows)
    return data.summed_over(batch, _integer_sum, theta, grid, bound)


def _integer_sum(
    data: Dataset, rows: NDArray[np.integer[Any]] | None, theta: Floats, grid: float, bound: int
) -> Integers:
    total = np.zeros(data.problem.dimension, np.int64)
    seen = 0
    for block in data.blocks(rows):
        total += bounded_sum(_gradients(data, block, theta, grid), bound)
        seen += len(block.rows)
    data.check_seen(seen, rows)
    return total


def bounded_sum(scaled: Floats, bound: int) -> Integers:
    """The sum of the COLUMNS of a matrix, each rounded to integers; columns longer than the bound are not counted.

    Everything is exact: the squares of an admissible column, their sum, and the sums of a few thousand columns are
    whole numbers below 2^53, in whatever order they are added. A longer column's computed square is above the bound as
    well, since rounding keeps order; a NaN is not below it.
    """
    assert bound <= LARGEST_BOUND
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.rint(scaled, out=scaled)
        good = np.einsum("ji,ji->i", whole, whole) <= bound
    if not good.all():
        whole = np.where(good, whole, 0.0)
    return np.asarray(whole.sum(axis=1)).astype(np.int64)


def _gradients(data: Dataset, block: Block, theta: Floats, grid: float) -> Floats:
    """weight_i grad loss_i(theta) / grid, [dimension, rows], by elementwise operations only."""
    loss = data.problem.loss
    columns, classes = data.problem.n_columns, loss.score_dimension
    features, parameters = np.ascontiguousarray(block.rows.T), theta.reshape(columns, classes)
    scores = np.zeros((classes, len(block.rows)))
    with np.errstate(over="ignore", invalid="ignore"):
        for c in range(classes):
            for j in range(columns):
                scores[c] += parameters[j, c] * features[j]
        np.nan_to_num(scores, copy=False, nan=0.0, posinf=1e300, neginf=-1e300)
        seen = scores[0] if classes == 1 else np.ascontiguousarray(scores.T)
        slopes = np.asarray(loss.slope(seen, block.labels)).reshape(len(block.rows), classes)
        if block.weights is not None:
            slopes = slopes * block.weights[:, None]
        slopes = slopes / grid
        gradients = np.empty((columns, classes, len(block.rows)))
        for c in range(classes):
            np.multiply(features, slopes[:, c], out=gradients[:, c])
    return gradients.reshape(columns * classes, -1)
