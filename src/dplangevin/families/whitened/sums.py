"""Sums over records in whitened coordinates, wherever the records are."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Block, Dataset
from dplangevin.families.whitened.geometry import Frame, whitened

Floats = NDArray[np.float64]


def unit_rows(data: Dataset, block: Block) -> Floats:
    """The rows in units of the largest one; whatever rounding left above norm 1 is scaled back."""
    rows = block.rows / data.problem.row_norm
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    if lengths.max(initial=0.0) > 1.0:
        rows /= np.maximum(lengths, 1.0)[:, None]
    return rows


def second_moment(data: Dataset, frames: tuple[Frame, ...] = ()) -> Floats:
    """sum z z' over unit rows z = x, or z = w B' x / R in the coordinates of the frames. Labels play no part."""
    size = data.problem.n_columns
    total, seen = np.zeros((size, size)), 0
    for block in data.blocks():
        rows = unit_rows(data, block)
        if frames:
            rows, weights = whitened(rows, frames)
            rows = np.where(weights[:, None] > 0, rows * (weights / frames[-1].bound)[:, None], 0.0)
        total += rows.T @ rows
        seen += len(rows)
    data.check_rows(seen)
    return total


def row_weights(data: Dataset, block: Block, frames: tuple[Frame, ...]) -> Floats:
    """w of each record, for its gradient."""
    return whitened(block.rows / data.problem.row_norm, frames)[1]
