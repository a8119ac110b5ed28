"""The Poisson regression loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw


@final
@dataclass(frozen=True, kw_only=True)
class Poisson(Loss):
    """e^u - y u for counts 0 <= y <= target_bound. Slope and curvature are unbounded: wrap it in `Clipped`.

    Where |e^u - y| < C, the curvature e^u is below target_bound + C. Values beyond the range of doubles are
    infinite.
    """

    target_bound: float
    name: ClassVar[str] = "poisson"
    log_link = True
    slope_bound = math.inf
    curvature_bound = math.inf
    law = SlopeLaw(kind="exponential")

    def __post_init__(self) -> None:
        _check.each(self, target_bound=_check.positive)
        _check.put(self, label_range=(0.0, self.target_bound))

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.exp(score) - y * score

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(slope + y, 0.0))

    def clipped_curvature(self, bound: float) -> float:
        return self.target_bound + bound
