"""Sums over records in whitened coordinates, wherever the records are."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Block, Dataset
from dplangevin.families.whitened.geometry import Frame, whitened
from dplangevin.families.whitened.screen import Screen, screen

Floats = NDArray[np.float64]
CACHE_BYTES = 1 << 19
"""Of rows at a time: with their coordinates they stay in the cache, and freed memory is used again at once."""


def pieces(rows: Floats) -> Iterator[Floats]:
    """The rows in order, a few at a time."""
    step = max(64, CACHE_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def bounded_rows(rows: Floats, bound: float) -> Floats:
    """The rows; whatever rounding left above the largest norm is scaled back."""
    squares = np.einsum("ij,ij->i", rows, rows)
    if squares.max(initial=0.0) > bound**2:
        rows = rows / np.maximum(np.sqrt(squares) / bound, 1.0)[:, None]
    return rows


def second_moment(data: Dataset, frame: Frame | None = None) -> Floats:
    """sum z z' over rows z = x / row_norm, or z = w B' x / R in the coordinates of the frame. Labels play no part.

    B stays inside the sum: taken out of it, it would enlarge the rounding of the sum.
    """
    size, unit = data.problem.n_columns, data.problem.row_norm
    total, seen = np.zeros((size, size)), 0
    scaled = None if frame is None else _scaled(data, frame)
    for block in data.blocks():
        for rows in pieces(block.rows):
            if scaled is None:
                rows = bounded_rows(rows, unit)
            else:
                weights, rows = whitened(rows, scaled)
                rows[weights == 0] = 0.0  # be they finite or not
                rows *= (weights / scaled.bound)[:, None]
            total += rows.T @ rows
        seen += len(block.rows)
    data.check_rows(seen)
    return total / unit**2 if frame is None else total


def turned_moment(data: Dataset, frame: Frame, moment: Floats) -> Floats:
    """second_moment(data, frame) / n. Where few rows can be long, from the moment of all rows and from those alone."""
    kept, n = screen(frame), data.problem.n
    if kept is None:
        return np.asarray(data.summed(second_moment, frame) / n)
    inside = frame.basis / frame.bound
    turned = inside.T @ moment @ inside
    return np.asarray(turned if kept.all_short else turned - data.summed(cut_moment, frame, kept) / n)


def cut_moment(data: Dataset, frame: Frame, kept: Screen) -> Floats:
    """sum (1 - w^2) z z', z = B' x / R, which only long rows enter: what their weights take from a second moment."""
    size, unit, scaled = data.problem.n_columns, data.problem.row_norm, _scaled(data, frame)
    total, seen = np.zeros((size, size)), 0
    for block in data.blocks():
        for rows in pieces(block.rows):
            long = bounded_rows(rows[~kept.short(rows, unit)], unit)
            weights, long = whitened(long, scaled)
            long *= (np.sqrt((1 - weights) * (1 + weights)) / scaled.bound)[:, None]
            total += long.T @ long
        seen += len(block.rows)
    data.check_rows(seen)
    return total


def row_weights(data: Dataset, block: Block, frame: Frame, kept: Screen | None = None) -> Floats:
    """w of each record, for its gradient."""
    scaled, unit = _scaled(data, frame), data.problem.row_norm
    weights = np.ones(len(block.rows))
    start = 0
    for rows in pieces(block.rows):
        part = weights[start : start + len(rows)]
        start += len(rows)
        if kept is None:
            part[:] = whitened(rows, scaled)[0]
        else:
            long = ~kept.short(rows, unit)
            part[long] = whitened(rows[long], scaled)[0]
    return weights


def _scaled(data: Dataset, frame: Frame) -> Frame:
    """The frame for rows that are not divided by the largest norm."""
    return frame._replace(basis=frame.basis / data.problem.row_norm)
