"""Losses for regression: squared, Huber, smoothed pinball and Poisson, and the loss of a mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import (
    FloatArray,
    Loss,
    ModelDefaults,
    ModelOptions,
    SlopeFormula,
    cornered_majorant,
    score_or_infinity,
)

SQUARED_INTERVAL_CLIP = 0.5  # residuals are clipped at a quarter of the target's range


@final
@dataclass(frozen=True, kw_only=True)
class Squared(Loss):
    """The squared loss (u - y)^2 / 2. Its slope is unbounded: use `Clipped(Squared(), bound)`, a Huber loss."""

    name: ClassVar[str] = "squared"
    slope_bound = math.inf
    curvature_bound = 1.0
    slope_formula = SlopeFormula(kind="affine")
    quadratic_radius = math.inf
    defaults = ModelDefaults(
        model="ridge",
        labels="numbers",
        coef_bound=1.5,
        averaged_fraction=0.8,
        min_clip=0.25,
        counts_classes=True,
        guards_constant=True,
        counts_again=True,
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

    def min_curvature_ratio(self, step: float) -> float:
        return 0.5

    @property
    def for_intervals(self) -> Loss:
        return self.with_clip(SQUARED_INTERVAL_CLIP)


HUBER_TRANSITION = 0.2  # default, in units of the scaled target
TRANSITION_IN_SPREADS = 2.5
"""Largest transition of a fit, over the distance from the center within which three quarters of the targets lie: 2.9
standard deviations of normal ones. Beyond it a wider loss has larger slopes, and noise, but hardly more to say."""


@final
@dataclass(frozen=True, kw_only=True)
class Huber(Loss):
    """The Huber loss: r^2 / 2 for |r| <= t, else t |r| - t^2 / 2, r = u - y, t the transition. |h'| <= t, h'' <= 1.

    References
    ----------
    Huber (1964), Robust estimation of a location parameter.
    """

    transition: float
    name: ClassVar[str] = "huber"
    curvature_bound = 1.0
    defaults = ModelDefaults(
        model="huber",
        labels="numbers",
        coef_bound=1.5,
        averaged_fraction=0.8,
        counts_classes=True,
        guards_constant=True,
    )

    def __post_init__(self) -> None:
        _check.validate_fields(self, transition=_check.check_positive)
        _check.set_frozen(self, slope_bound=self.transition)
        _check.set_frozen(
            self, slope_formula=SlopeFormula(kind="affine", low=-self.transition, high=self.transition)
        )

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        distance = np.abs(score - y)
        near = np.minimum(distance, self.transition)
        return near * (distance - near / 2)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return score_or_infinity(slope + y, slope, -self.transition, self.transition)

    @property
    def quadratic_radius(self) -> float:
        return self.transition

    @property
    def center_level(self) -> float | None:
        return 0.5

    @property
    def curved_distance(self) -> float:
        return self.transition

    def suit_spread(self, spread: float) -> Loss:
        return Huber(transition=min(self.transition, TRANSITION_IN_SPREADS * spread))

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return cornered_majorant(1.0, self.transition, np.abs(score - y))

    @property
    def for_intervals(self) -> Loss:
        return self

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls(transition=HUBER_TRANSITION if options.transition is None else options.transition)


PINBALL_WIDTH = 0.1  # at sharpness 1, in units of the scaled target
WIDTH_IN_SPREADS = 0.7
"""The same at most, over the distance from the center within which three quarters of the targets lie."""


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
        coef_bound=1.5,
        averaged_fraction=0.8,
        counts_classes=True,
        guards_constant=True,
        max_sharpness=5.0,
        steps_power=0.75,
        steps_power_long=0.5,
    )

    def __post_init__(self) -> None:
        _check.validate_fields(self, quantile=_check.check_open_unit, width=_check.check_positive)
        low, high, steepness = self.quantile, 1 - self.quantile, 1 / self.width
        slope_formula = SlopeFormula(
            kind="affine", scale=steepness, shift=0.5 - self.quantile, low=-low, high=high
        )
        _check.set_frozen(
            self, slope_bound=max(low, high), curvature_bound=steepness, slope_formula=slope_formula
        )

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        residual = score - y
        half = self.width / 2
        near = np.clip(residual, -half, half)
        corner_value = (near**2 / self.width + self.width / 4) / 2  # |r| / 2, rounded off inside the corner
        return corner_value + np.abs(residual - near) / 2 + (0.5 - self.quantile) * residual

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        score = y + self.width * (slope + self.quantile - 0.5)
        return score_or_infinity(score, slope, -self.quantile, 1 - self.quantile)

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return cornered_majorant(self.curvature_bound, 0.5, np.abs(score - y))

    @property
    def center_level(self) -> float | None:
        return self.quantile

    @property
    def curved_distance(self) -> float:
        return self.width / 2

    def suit_spread(self, spread: float) -> Loss:
        factor = min(1.0, WIDTH_IN_SPREADS * spread / PINBALL_WIDTH)
        return SmoothedPinball(quantile=self.quantile, width=factor * self.width)

    @property
    def for_intervals(self) -> Loss:
        return self

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls(
            quantile=0.5 if options.quantile is None else options.quantile, width=PINBALL_WIDTH / sharpness
        )


POISSON_INTERVAL_CLIP = 2.5  # residuals are clipped at so many standard deviations of the largest count


@final
@dataclass(frozen=True, kw_only=True)
class Poisson(Loss):
    """The Poisson loss e^u - y u for counts 0 <= y <= target_bound. Slope and curvature are unbounded: use `Clipped`.

    Where |e^u - y| < C, the curvature e^u is below target_bound + C. Values beyond the range of doubles are
    infinite.
    """

    target_bound: float
    name: ClassVar[str] = "poisson"
    log_link = True
    slope_bound = math.inf
    curvature_bound = math.inf
    slope_formula = SlopeFormula(kind="exponential")
    interval_model = "a correct log-linear model, a variance proportional to the mean"
    defaults = ModelDefaults(
        model="poisson",
        labels="counts",
        coef_bound=6.0,
        averaged_fraction=2 / 3,
        max_sharpness=math.inf,
        counts_classes=True,
        guards_constant=True,
        counts_again=True,
        whitens_purely=True,
    )

    def __post_init__(self) -> None:
        _check.validate_fields(self, target_bound=_check.check_positive)
        _check.set_frozen(self, label_range=(0.0, self.target_bound))

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
        """The largest count, at which rates are clipped."""
        return self.target_bound

    @property
    def step_curvature(self) -> float:
        """Twice the square root of the largest count (at least 2), which bounds typical rates only."""
        return 2 * max(1.0, math.sqrt(self.target_bound))

    @property
    def for_intervals(self) -> Loss:
        return self.with_clip(min(self.target_bound, POISSON_INTERVAL_CLIP * math.sqrt(self.target_bound)))

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        assert options.target_bounds is not None
        top = options.target_bounds[1]
        clip = max(1.0, math.sqrt(top))
        return cls(target_bound=top).with_clip(max(clip, min(top, sharpness * clip)))


@final
@dataclass(frozen=True, kw_only=True)
class Mean(Loss):
    """The loss -u, whose minimiser with ridge 1 is the mean of the rows.

    |theta - x|^2 / 2 = |theta|^2 / 2 - <theta, x> + c: the part that depends on a record is linear, so its gradient
    -x is bounded without any clip, and all of the curvature is the data-independent ridge. Noisy gradient descent on
    |theta - x|^2 / 2 has the optimal-shift bound, which is exact here. Labels do not enter.
    """

    name: ClassVar[str] = "mean"
    slope_bound = 1.0
    curvature_bound = 0.0

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return -np.broadcast_arrays(score, y)[0]

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.full(np.broadcast_shapes(np.shape(score), np.shape(y)), -1.0)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.zeros(np.broadcast_shapes(np.shape(score), np.shape(y)))

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        slopes = np.broadcast_arrays(slope, y)[0]
        return np.where(slopes > -1, np.inf, np.where(slopes < -1, -np.inf, 0.0))
