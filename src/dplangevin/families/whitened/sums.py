"""Sums over records in whitened coordinates, wherever the records are.

A screen tells, without coordinates, which rows cannot be too long: their weight is 1. It is a function of released
matrices and of the row alone, like the weights themselves, whose values it does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplangevin.data.dataset import Block, Dataset
from dplangevin.families.whitened.geometry import Frame, whitened

Floats = NDArray[np.float64]
CACHE_BYTES = 1 << 19
"""Of rows at a time: with their coordinates they stay in the cache, and freed memory is used again at once."""
SLACK = 1e-6
"""For rounding, and for rows that single precision left above the largest norm."""
WITHIN = 0.25
"""Largest expected square of the bound at which most rows are told to be short."""
FEW = 3
"""A screen with more than 1 / FEW of all directions is not worth its time."""
STEEP = 1e6
"""Largest square by which taking coordinates out of a sum may enlarge its rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Screen:
    """top |x|^2 - sum_j less_j (u_j' x)^2, an upper bound on every squared length over its bound.

    With A = sum s_j^2 u_j u_j' the sum of B B' / R^2 over the frame's coordinates and earlier ones, x' A x is the sum
    of these squares, and top = max s^2, less = top - s_j^2 for few directions u_j, those in which rows are longest.
    all_short : whether no row of norm 1 is too long.
    """

    top: float
    vectors: Floats
    less: Floats
    all_short: bool

    def short(self, rows: Floats, unit: float) -> NDArray[np.bool_]:
        """Which of these rows, whose largest norm is the unit, are surely not too long."""
        squares = self.top * np.einsum("ij,ij->i", rows, rows)
        if self.less.size:
            inside = rows @ self.vectors
            inside *= inside
            squares -= inside @ self.less
        return np.asarray(squares <= (1 - SLACK) * unit**2)


def screen(frame: Frame) -> Screen | None:
    """The screen of a frame with the fewest directions; None where too many would be needed."""
    parts = [frame.basis / frame.bound]
    if frame.earlier is not None:
        parts.append(frame.basis * np.sqrt(frame.earlier))  # B_1 / R_1, turned
    joint = np.concatenate(parts, axis=1)
    if not np.isfinite(joint).all():
        return None
    vectors, roots, _ = np.linalg.svd(joint, full_matrices=False)
    squares = roots**2
    if not 0 < squares[0] <= STEEP or not squares[-1] > 0:
        return None
    # rows are white in these coordinates: the share of direction j is about 1 / s_j^2
    shares = squares[0] / squares
    expected = (
        np.cumsum(shares) + np.arange(len(shares))[::-1]
    )  # of the first i + 1 bounded by top, the others exact
    kept = np.flatnonzero(expected * len(parts) / frame.bound**2 <= WITHIN)
    few = len(squares) if not kept.size else len(squares) - 1 - int(kept[-1])
    all_short = all(np.linalg.norm(part, 2) <= 1 - SLACK for part in parts)
    if few > len(squares) // FEW and not all_short:
        return None
    last = slice(len(squares) - few, None)
    return Screen(
        top=float(squares[0]), vectors=vectors[:, last], less=squares[0] - squares[last], all_short=all_short
    )


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
