"""The loss of a mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin.problem.losses.base import FloatArray, Loss


@final
@dataclass(frozen=True, kw_only=True)
class Mean(Loss):
    """-u; with ridge 1 the minimiser is the mean of the rows: |theta - x|^2 / 2 = |theta|^2 / 2 - <theta, x> + c.

    What depends on a record is linear, so its gradient -x is bounded without any clip, and all of the curvature is the
    data-independent ridge: noisy gradient descent on |theta - x|^2 / 2 has the optimal-shift bound, which is exact
    here. Labels do not enter.
    """

    name: ClassVar[str] = "mean"
    slope_bound = 1.0
    curvature_bound = 0.0

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return -np.broadcast_arrays(score, y)[0]

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.full(np.broadcast_shapes(np.shape(score), np.shape(y)), -1.0)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.zeros(np.broadcast_shapes(np.shape(score), np.shape(y)))

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        given = np.broadcast_arrays(slope, y)[0]
        return np.where(given > -1, np.inf, np.where(given < -1, -np.inf, 0.0))
