"""Sums over records in whitened coordinates, wherever the records are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Block, Dataset
from dplangevin.families.whitened.geometry import Frame, whitened

Floats = NDArray[np.float64]


def bounded_rows(data: Dataset, block: Block) -> Floats:
    """The rows; whatever rounding left above the largest norm is scaled back."""
    rows, bound = block.rows, data.problem.row_norm
    squares = np.einsum("ij,ij->i", rows, rows)
    if squares.max(initial=0.0) > bound**2:
        rows = rows / np.maximum(np.sqrt(squares) / bound, 1.0)[:, None]
    return rows


def second_moment(data: Dataset, frames: tuple[Frame, ...] = ()) -> Floats:
    """sum z z' over rows z = x / row_norm, or z = w B' x / R in the coordinates of the frames. Labels play no part.

    B stays inside the sum: taken out of it, it would enlarge the rounding of the sum.
    """
    size, unit = data.problem.n_columns, data.problem.row_norm
    total, seen = np.zeros((size, size)), 0
    for block in data.blocks():
        rows = bounded_rows(data, block)
        if frames:
            weights, rows = whitened(rows, _scaled(data, frames))
            rows[weights == 0] = 0.0  # be they finite or not
            rows *= (weights / frames[-1].bound)[:, None]
        total += rows.T @ rows
        seen += len(rows)
    data.check_rows(seen)
    return total if frames else total / unit**2


def row_weights(data: Dataset, block: Block, frames: tuple[Frame, ...]) -> Floats:
    """w of each record, for its gradient."""
    return whitened(block.rows, _scaled(data, frames))[0]


def _scaled(data: Dataset, frames: tuple[Frame, ...]) -> list[Frame]:
    """The frames for rows that are not divided by the largest norm."""
    return [Frame(frame.basis / data.problem.row_norm, frame.bound) for frame in frames]
