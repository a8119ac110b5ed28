"""Which rows cannot be too long, told without their coordinates: their weight is 1.

A function of released matrices and of the row alone, like the weights themselves, whose values it does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dplangevin.families.whitened.geometry import Frame

Floats = NDArray[np.float64]
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
