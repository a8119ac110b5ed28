"""The hinge loss with a quadratic corner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw, cornered_majorant, reached
from dplangevin.problem.losses.model_defaults import ModelDefaults, ModelOptions


@final
@dataclass(frozen=True, kw_only=True)
class SmoothedHinge(Loss):
    """g^2 / (2 w) for 0 <= g <= w, g - w / 2 beyond, with g = max(0, 1 - s u), s = 2 y - 1 and w the width.

    Labels are 0 and 1. |h'| <= 1 and h'' <= 1 / w; it lies within w / 2 below the hinge loss.
    """

    width: float = 1.0
    name: ClassVar[str] = "smoothed-hinge"
    slope_bound = 1.0
    label_range = (0.0, 1.0)
    label_classes = 2
    sign_decides = True
    slope_variance = "measured"
    interval_model = "(for the coefficients of least expected smoothed-hinge loss)"
    defaults = ModelDefaults(model="svc", labels="two classes", reach=4.0, tail=2 / 3)

    def __post_init__(self) -> None:
        _check.each(self, width=_check.positive)
        steepness = 1 / self.width
        _check.put(self, curvature_bound=steepness, law=SlopeLaw(kind="hinge", scale=steepness))

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        gap = np.maximum(1 - _sign(y) * score, 0)
        near = np.minimum(gap, self.width)
        return near / self.width * (gap - near / 2)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        sign = _sign(y)
        return reached(sign + slope * self.width, slope, -(1 + sign) / 2, (1 - sign) / 2)

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return cornered_majorant(self.curvature_bound, 0.5, np.abs(_sign(y) * score - (1 - self.width / 2)))

    @property
    def for_intervals(self) -> Loss:
        return self

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls()


def _sign(y: FloatArray) -> FloatArray:
    return np.where(np.asarray(y) > 0.5, 1.0, -1.0)
