"""The squared loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw


@final
@dataclass(frozen=True, kw_only=True)
class Squared(Loss):
    """(u - y)^2 / 2. Its slope is unbounded: wrap it, `Clipped(Squared(), bound)`, which is a Huber loss."""

    name: ClassVar[str] = "squared"
    slope_bound = math.inf
    curvature_bound = 1.0
    law = SlopeLaw(kind="affine")

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return (score - y) ** 2 / 2

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return slope + y
