"""Quadratic losses through their moments: one pass, then O(p^2) per gradient, where no slope is clipped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dplangevin.problem.losses.base import SlopeLaw

if TYPE_CHECKING:
    from dplangevin.data.dataset import Dataset

FloatArray = NDArray[np.float64]
REPAID = 8  # full gradients after which the pass for the moments, a few gradients long, is made
WIDEST = 500  # columns; beyond, the pass costs more than most runs


def moments(data: Dataset) -> tuple[FloatArray, FloatArray]:
    """sum w x x^T and sum w y x over the joint rows."""
    both = data.summed(_moments)
    gram = both[:, :-1]
    return (gram + gram.T) / 2, both[:, -1]


def _moments(data: Dataset) -> FloatArray:
    """[sum w x x^T, sum w y x]."""
    columns = data.problem.n_columns
    both = np.zeros((columns, columns + 1))
    seen = 0
    for block in data.blocks():
        weighted = block.rows if block.weights is None else block.rows * block.weights[:, None]
        both[:, :-1] += weighted.T @ block.rows
        both[:, -1] += weighted.T @ block.labels
        seen += len(block.rows)
    data.check_rows(seen)
    return both


class QuadraticGradients:
    """sum w slope x = G theta - c for slopes clip(<theta, x> - y, -C, C) that the clip cannot reach.

    A clipped squared loss is not quadratic. But |<theta, x> - y| <= |theta| row_norm + max |y| for every record the
    stated bounds admit, so for theta with that number below C no clip is active, whatever the data, and the moments
    give the same gradient up to rounding. The rule is public, and it is checked at every call.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._moments: tuple[FloatArray, FloatArray] | None = None

    def gradient(self, data: Dataset, law: SlopeLaw, parameters: FloatArray) -> FloatArray | None:
        """The gradient, or None when it has to be summed over the records."""
        if not covers(data, law, parameters):
            return None
        self._asked += 1
        if self._moments is None and self._asked > REPAID:
            self._moments = moments(data)
        if self._moments is None:
            return None
        gram, cross = self._moments
        return np.asarray(gram @ parameters - cross[:, None])


def covers(data: Dataset, law: SlopeLaw, parameters: FloatArray) -> bool:
    """Whether the loss is squared, up to a clip that no admissible record reaches at these parameters."""
    if law.kind != "affine" or law.scale != 1 or law.shift != 0:
        return False
    problem = data.problem
    if problem.n_columns > WIDEST:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.sqrt((parameters * parameters).sum(axis=0)).max(initial=0.0))
    reach = (size * problem.row_norm + max(map(abs, problem.bounds.label_range))) * (1 + 1e-9)
    return math.isfinite(reach) and reach <= min(-law.low, law.high)
