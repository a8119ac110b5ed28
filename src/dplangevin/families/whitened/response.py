"""What means of windows of iterates know of a quadratic risk: the share they reach, and the noise they carry.

Accelerated descent on one coordinate of curvature h with steps eta: everything depends on u = eta h alone.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ENDS = (0.25, 0.5, 1.0)
"""Shares of the steps at which windows end."""
TAIL = 2 / 3
_GRID = np.geomspace(1e-9, 2.0, 121)


class Window(NamedTuple):
    """Iterates `first` (from 0) up to `last`, the latter not included."""

    first: int
    last: int


class Path(NamedTuple):
    """A descent: its windows, the last of which ends with it, and how much larger the noise of its first steps was."""

    windows: tuple[Window, ...]
    early: int = 0
    louder: float = 1.0


def alike(steps: int) -> Path:
    """Steps with equal noise: windows are the last two thirds of the first quarter, of the first half and of all."""
    ends = [max(1, round(end * steps)) for end in ENDS]
    return Path(tuple(Window(end - math.ceil(TAIL * end), end) for end in ends))


class Response(NamedTuple):
    """phi [..., 3], the share of the minimiser that a window's mean reaches, and N [..., 3, 3] with eta^2 sigma^2 N the
    covariance of the windows' noise."""

    reached: Floats
    noise: Floats


@lru_cache(maxsize=64)
def _table(path: Path) -> tuple[Floats, Floats]:
    """phi and N on the grid of u; the first entry is the limit u = 0."""
    grid = np.concatenate([[0.0], _GRID])
    seen, steps = path.windows, path.windows[-1].last
    theta = previous = np.zeros_like(grid)
    reached = np.zeros((len(seen), len(grid)))
    for t in range(steps):
        point = theta + t / (t + 3) * (theta - previous)
        previous, theta = theta, point - grid * (point - 1)
        for row, window in zip(reached, seen, strict=True):
            if window.first <= t < window.last:
                row += theta / (window.last - window.first)
    weights = np.zeros((len(seen), steps, len(grid)))
    for place, window in enumerate(seen):
        share = 1 / (window.last - window.first)
        current = later = np.zeros_like(grid)
        for t in reversed(range(window.last)):
            total = current + (share if t >= window.first else 0.0)
            weights[place, t] = total
            passed = (1 - grid) * total
            current, later = (1 + t / (t + 3)) * passed + later, -t / (t + 3) * passed
    weights[:, : path.early] *= path.louder
    return reached.T, np.einsum("jtg,ltg->gjl", weights, weights)


def response(path: Path, u: Floats) -> Response:
    """phi and N at each u >= 0, linear in log u between the points of one table; sigma is that of the last step."""
    reached, noise = _table(path)
    place = np.interp(np.log(np.maximum(u, _GRID[0])), np.log(_GRID), np.arange(1.0, len(_GRID) + 1))
    low = np.minimum(place.astype(int), len(_GRID) - 1)
    part = place - low
    low = np.where(u < _GRID[0], 0, low)
    between = part[..., None]
    return Response(
        reached[low] * (1 - between) + reached[low + 1] * between,
        noise[low] * (1 - between[..., None]) + noise[low + 1] * between[..., None],
    )
