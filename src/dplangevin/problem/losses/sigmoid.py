"""The sigmoid loss: a smooth count of errors, bounded and not convex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.special import expit

from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses.base import FloatArray, Loss


@final
@dataclass(frozen=True, kw_only=True)
class Sigmoid(Loss):
    """1 / (1 + e^{(2y - 1) u}) for labels 0 and 1: the probability of error. |h'| <= 1/4, |h''| <= 1/(6 sqrt 3).

    It is NOT convex: only mechanisms that need no convexity run it (a draw on a grid, Langevin trajectories).
    """

    name: ClassVar[str] = "sigmoid"
    slope_bound = 0.25
    curvature_bound = 1 / (6 * math.sqrt(3))
    convex = False
    sign_decides = True
    label_range = (0.0, 1.0)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(expit((1 - 2 * y) * score), np.float64)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        error = expit((1 - 2 * y) * score)
        return np.asarray((1 - 2 * y) * error * (1 - error), np.float64)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        error = expit((1 - 2 * y) * score)
        return np.asarray((1 - 2 * y) ** 2 * error * (1 - error) * (1 - 2 * error), np.float64)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise InvalidParameter(
            "the sigmoid loss is not convex, so its slope has no inverse; it needs no clipping."
        )
