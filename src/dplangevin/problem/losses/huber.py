"""The Huber loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw, reached


@final
@dataclass(frozen=True, kw_only=True)
class Huber(Loss):
    """r^2 / 2 for |r| <= t, else t |r| - t^2 / 2, with r = u - y and t the transition. |h'| <= t, h'' <= 1.

    References
    ----------
    Huber (1964), Robust estimation of a location parameter.
    """

    transition: float
    name: ClassVar[str] = "huber"
    curvature_bound = 1.0

    def __post_init__(self) -> None:
        _check.each(self, transition=_check.positive)
        _check.put(self, slope_bound=self.transition)
        _check.put(self, law=SlopeLaw(kind="affine", low=-self.transition, high=self.transition))

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        distance = np.abs(score - y)
        near = np.minimum(distance, self.transition)
        return near * (distance - near / 2)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return reached(slope + y, slope, -self.transition, self.transition)
