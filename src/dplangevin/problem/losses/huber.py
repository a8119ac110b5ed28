"""The Huber loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw, cornered_majorant, reached
from dplangevin.problem.losses.model_defaults import ModelDefaults, ModelOptions

TRANSITION = 0.2  # in units of the scaled target


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
    defaults = ModelDefaults(model="huber", labels="numbers", reach=1.5, tail=0.8)

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

    @property
    def quadratic_radius(self) -> float:
        return self.transition

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return cornered_majorant(1.0, self.transition, np.abs(score - y))

    @property
    def for_intervals(self) -> Loss:
        return self

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls(transition=TRANSITION if options.transition is None else options.transition)
