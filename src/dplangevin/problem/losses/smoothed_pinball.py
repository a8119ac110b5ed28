"""The pinball loss of quantile regression, smoothed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw, cornered_majorant, reached
from dplangevin.problem.losses.model_defaults import ModelDefaults, ModelOptions

WIDTH = 0.1  # in units of the scaled target


@final
@dataclass(frozen=True, kw_only=True)
class SmoothedPinball(Loss):
    """The pinball loss convolved with the uniform law on [-w / 2, w / 2], w the width.

    With r = u - y and quantile q: h' = clip(r / w + 1/2 - q, -q, 1 - q), so |h'| <= max(q, 1 - q) and
    h'' <= 1 / w; outside |r| <= w / 2 it is the pinball loss itself.

    References
    ----------
    Fernandes, Guerre and Horta (2021), Smoothing quantile regressions.
    """

    quantile: float
    width: float
    name: ClassVar[str] = "smoothed-pinball"
    slope_variance = "measured"
    interval_model = "(for the coefficients of least expected smoothed-pinball loss)"
    defaults = ModelDefaults(
        model="quantile",
        labels="numbers",
        reach=1.5,
        tail=0.8,
        largest_sharpness=5.0,
        steps_power=0.75,
        steps_power_long=0.5,
    )

    def __post_init__(self) -> None:
        _check.each(self, quantile=_check.open_unit, width=_check.positive)
        low, high, steepness = self.quantile, 1 - self.quantile, 1 / self.width
        law = SlopeLaw(kind="affine", scale=steepness, shift=0.5 - self.quantile, low=-low, high=high)
        _check.put(self, slope_bound=max(low, high), curvature_bound=steepness, law=law)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        residual = score - y
        half = self.width / 2
        near = np.clip(residual, -half, half)
        bend = (near**2 / self.width + self.width / 4) / 2  # |r| / 2, rounded off inside the corner
        return bend + np.abs(residual - near) / 2 + (0.5 - self.quantile) * residual

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        score = y + self.width * (slope + self.quantile - 0.5)
        return reached(score, slope, -self.quantile, 1 - self.quantile)

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return cornered_majorant(self.curvature_bound, 0.5, np.abs(score - y))

    @property
    def for_intervals(self) -> Loss:
        return self

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls(quantile=0.5 if options.quantile is None else options.quantile, width=WIDTH / sharpness)
