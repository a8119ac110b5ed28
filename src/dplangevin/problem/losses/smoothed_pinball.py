"""The pinball loss of quantile regression, smoothed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw, reached


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
