"""The Poisson regression loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw
from dplangevin.problem.losses.model_defaults import ModelDefaults, ModelOptions

INTERVAL_CLIP = 2.5  # counts further from their rate than so many deviations of the largest one are cut off


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
    interval_model = "a correct log-linear model, a variance proportional to the mean"
    defaults = ModelDefaults(
        model="poisson", labels="counts", reach=6.0, tail=2 / 3, largest_sharpness=math.inf
    )

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

    @property
    def typical_curvature_bound(self) -> float:
        """A rate counts for at most the largest count."""
        return self.target_bound

    @property
    def step_curvature(self) -> float:
        """Up to twice the root of the largest count, which is a bound of common rates only."""
        return 2 * max(1.0, math.sqrt(self.target_bound))

    @property
    def for_intervals(self) -> Loss:
        return self.clipped(min(self.target_bound, INTERVAL_CLIP * math.sqrt(self.target_bound)))

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        assert options.target_bounds is not None
        top = options.target_bounds[1]
        clip = max(1.0, math.sqrt(top))
        return cls(target_bound=top).clipped(max(clip, min(top, sharpness * clip)))
