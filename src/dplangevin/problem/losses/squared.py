"""The squared loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw, cornered_majorant
from dplangevin.problem.losses.model_defaults import ModelDefaults

INTERVAL_CLIP = 0.5  # residuals beyond a quarter of the target's range are cut off


@final
@dataclass(frozen=True, kw_only=True)
class Squared(Loss):
    """(u - y)^2 / 2. Its slope is unbounded: wrap it, `Clipped(Squared(), bound)`, which is a Huber loss."""

    name: ClassVar[str] = "squared"
    slope_bound = math.inf
    curvature_bound = 1.0
    law = SlopeLaw(kind="affine")
    quadratic_radius = math.inf
    defaults = ModelDefaults(
        model="ridge",
        labels="numbers",
        reach=1.5,
        tail=0.8,
        least_clip=0.25,
        whitens_purely=True,
    )

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return (score - y) ** 2 / 2

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return slope + y

    def slope_bound_within(self, score_bound: float, label_bound: float) -> float:
        return score_bound + label_bound

    def difference_bound(self, difference: FloatArray, total: FloatArray, label_bound: float) -> FloatArray:
        return np.asarray(difference * (total + 2 * label_bound) / 2)

    def clipped_majorant(self, bound: float, score: FloatArray, y: FloatArray) -> FloatArray:
        return cornered_majorant(1.0, bound, np.abs(score - y))

    def least_curvature_share(self, step: float) -> float:
        return 0.5

    @property
    def for_intervals(self) -> Loss:
        return self.clipped(INTERVAL_CLIP)
