"""Losses for classification: logistic, sigmoid, smoothed hinge, softmax and smoothed multiclass hinge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.special import expit, logit

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses.base import (
    FloatArray,
    Loss,
    ModelDefaults,
    ModelOptions,
    MulticlassLoss,
    SlopeFormula,
    cornered_majorant,
    score_or_infinity,
)


@final
@dataclass(frozen=True, kw_only=True)
class Logistic(Loss):
    """The logistic loss log(1 + e^u) - y u, for labels 0 and 1 (any y in [0, 1]). |h'| <= 1, 0 <= h'' <= 1/4.

    Examples
    --------
    >>> Logistic().slope(np.array([0.0, 40.0]), np.array([1, 0]))
    array([-0.5,  1. ])
    """

    name: ClassVar[str] = "logistic"
    slope_bound = 1.0
    curvature_bound = 0.25
    label_range = (0.0, 1.0)
    slope_formula = SlopeFormula(kind="logistic")
    sign_decides = True
    slope_variance = "curvature"
    interval_model = "a correct linear model"
    ball_envelope = True
    defaults = ModelDefaults(
        model="logistic",
        labels="two classes",
        coef_bound=10.0,
        averaged_fraction=2 / 3,
        min_clip=0.5,
        unclipped_signal=100.0,
        unclipped_signal_pure=150.0,
        shrinks=True,
        adapts_steps=True,
        counts_classes=True,
        guards_constant=True,
        counts_again=True,
        whitens_purely=True,
    )

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.maximum(score, 0) - y * score + np.log1p(np.exp(-np.abs(score)))

    def sum_values(self, score: FloatArray, y: FloatArray) -> FloatArray:
        # sum log(1 + e) = log prod (1 + e): one logarithm for many records. Factors are at most 2, so 512 of them
        # do not overflow; the error is below the rounding of the sum.
        factors = np.exp(-np.abs(score))
        factors += 1.0
        logs = np.log(np.multiply.reduceat(factors, np.arange(0, len(factors), 512), axis=0)).sum(axis=0)
        return np.asarray(np.maximum(score, 0).sum(axis=0) - (y * score).sum(axis=0) + logs)

    def excess(self, score: FloatArray, y: FloatArray, reference: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            result = np.abs(score)
            np.negative(result, out=result)
            np.exp(result, out=result)
            result += 1.0
            np.log(result, out=result)
            result += np.maximum(score, 0.0)
            score *= y
            result -= score
            result -= reference
            return result

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        half = np.maximum(np.abs(score) / 2, 1e-8)
        return np.asarray(np.tanh(half) / (4 * half))

    def clipped_majorant(self, bound: float, score: FloatArray, y: FloatArray) -> FloatArray:
        return self.majorant(score, y)

    def min_curvature_ratio(self, step: float) -> float:
        """Return (e^-r + r - 1) / r^2 at r = step, because log h'' is 1-Lipschitz."""
        return 0.5 - step / 6 if step < 1e-4 else (math.expm1(-step) + step) / step**2

    @property
    def for_intervals(self) -> Loss:
        return self

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(logit(np.clip(slope + y, 0.0, 1.0)), np.float64)


@final
@dataclass(frozen=True, kw_only=True)
class Sigmoid(Loss):
    """The sigmoid loss 1 / (1 + e^{(2y - 1) u}), a smooth count of errors. |h'| <= 1/4, |h''| <= 1/(6 sqrt 3).

    Labels are 0 and 1. It is NOT convex: only mechanisms that need no convexity accept it (a draw on a grid, Langevin
    trajectories).
    """

    name: ClassVar[str] = "sigmoid"
    slope_bound = 0.25
    curvature_bound = 1 / (6 * math.sqrt(3))
    convex = False
    sign_decides = True
    label_range = (0.0, 1.0)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(expit((1 - 2 * y) * score), np.float64)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        error = expit((1 - 2 * y) * score)
        return np.asarray((1 - 2 * y) * error * (1 - error), np.float64)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        error = expit((1 - 2 * y) * score)
        return np.asarray((1 - 2 * y) ** 2 * error * (1 - error) * (1 - 2 * error), np.float64)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise InvalidParameter(
            "the sigmoid loss is not convex, so its slope has no inverse; it needs no clipping."
        )


@final
@dataclass(frozen=True, kw_only=True)
class SmoothedHinge(Loss):
    """The hinge loss with a quadratic corner of width w.

    It is g^2 / (2 w) for 0 <= g <= w and g - w / 2 beyond, with g = max(0, 1 - s u) and s = 2 y - 1. Labels are 0 and
    1. |h'| <= 1 and h'' <= 1 / w; it lies below the hinge loss by at most w / 2.
    """

    width: float = 1.0
    name: ClassVar[str] = "smoothed-hinge"
    slope_bound = 1.0
    label_range = (0.0, 1.0)
    label_classes = 2
    sign_decides = True
    slope_variance = "measured"
    interval_model = "(for the coefficients of least expected smoothed-hinge loss)"
    defaults = ModelDefaults(
        model="svc",
        labels="two classes",
        coef_bound=4.0,
        averaged_fraction=2 / 3,
        counts_classes=True,
        guards_constant=True,
        whitens_purely=True,
    )

    def __post_init__(self) -> None:
        _check.validate_fields(self, width=_check.check_positive)
        steepness = 1 / self.width
        _check.set_frozen(
            self, curvature_bound=steepness, slope_formula=SlopeFormula(kind="hinge", scale=steepness)
        )

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        gap = np.maximum(1 - _label_sign(y) * score, 0)
        near = np.minimum(gap, self.width)
        return near / self.width * (gap - near / 2)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        sign = _label_sign(y)
        return score_or_infinity(sign + slope * self.width, slope, -(1 + sign) / 2, (1 - sign) / 2)

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return cornered_majorant(
            self.curvature_bound, 0.5, np.abs(_label_sign(y) * score - (1 - self.width / 2))
        )

    @property
    def for_intervals(self) -> Loss:
        return self

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls()


def _label_sign(y: FloatArray) -> FloatArray:
    return np.where(np.asarray(y) > 0.5, 1.0, -1.0)


@final
@dataclass(frozen=True, kw_only=True)
class Softmax(MulticlassLoss):
    """The multinomial logistic loss log sum_c e^{u_c} - u_y for classes y = 0 .. K - 1 and score[..., K].

    The slope p - e_y has norm at most sqrt 2; the Hessian diag(p) - p p^T has norm at most 1/2.

    Parameters
    ----------
    n_classes : K.
    slope_clip : scale the slope vector to at most this norm. The result is NOT the gradient of a loss (its
        Jacobian is not symmetric and it is not monotone for K >= 3), so `convex` is False, the curvature is
        unknown and `value` raises: only guarantees that need nothing but the sensitivity apply.
    """

    slope_clip: float | None = None
    name: ClassVar[str] = "softmax"
    slope_bound = math.sqrt(2)
    curvature_bound = 0.5
    slope_variance = "curvature"
    interval_model = "a correct linear model"
    majorant_noise_factor = 0.5
    defaults = ModelDefaults(
        model="multinomial",
        labels="several classes",
        coef_bound=5.0,
        averaged_fraction=2 / 3,
        min_clip=0.5,
        clip_is_convex=False,
        ridge_whitens=True,
        counts_classes=True,
        guards_constant=True,
        whitens_purely=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slope_clip is not None:
            clip = _check.check_positive("slope_clip", self.slope_clip)
            if clip >= math.sqrt(2):
                raise InvalidParameter(f"slope_clip = {clip!r} does nothing from sqrt(2) on; leave it out.")
            assumption = f"the softmax slope is clipped to norm {clip:g} and is not a gradient"
            _check.set_frozen(self, slope_clip=clip, slope_bound=clip, curvature_bound=math.inf)
            _check.set_frozen(self, convex=False, assumptions=(assumption,))

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        if self.slope_clip is not None:
            raise InvalidParameter(
                "a softmax slope clipped in norm is not the gradient of any loss, so it has no value; "
                "leave slope_clip out."
            )
        below = score - score.max(axis=-1, keepdims=True)
        own = np.where(self._one_hot(y), below, 0.0).sum(axis=-1)
        return np.asarray(np.log(np.exp(below).sum(axis=-1)) - own, np.float64)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        # class by class in memory, where operations across classes are as fast as others
        return self.slopes_in_place(np.moveaxis(np.array(np.moveaxis(score, -1, 0), np.float64), 0, -1), y)

    def slopes_in_place(self, scores: FloatArray, y: FloatArray) -> FloatArray:
        slopes = np.moveaxis(scores, -1, 0)
        _to_probabilities(slopes)
        for k in range(self.n_classes):
            slopes[k] -= np.equal(y, k)
        if self.slope_clip is not None:
            square = np.add.reduce(slopes * slopes, axis=0)
            slopes *= self.slope_clip / np.maximum(np.sqrt(square), self.slope_clip)
        return scores

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        if self.slope_clip is not None:
            raise InvalidParameter(
                "a softmax slope clipped in norm is not the gradient of any loss, so it has no curvature; "
                "leave slope_clip out."
            )
        probabilities = _softmax(score)
        curvature = -probabilities[..., :, None] * probabilities[..., None, :]
        curvature[..., np.arange(self.n_classes), np.arange(self.n_classes)] += probabilities
        return np.asarray(curvature)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise InvalidParameter("softmax has one slope per class and no inverse; it needs no clipping.")

    @property
    def unclipped_if_bounded(self) -> Loss:
        return Softmax(n_classes=self.n_classes)

    @property
    def majorant_bound(self) -> float:
        """1, for the second moment in Boehning's bound (1/2)(I - 11'/K) (x) x x', whose noise is halved."""
        return 1.0

    @property
    def step_curvature(self) -> float:
        return 0.5

    @property
    def for_intervals(self) -> Loss:
        return self.unclipped_if_bounded

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls(n_classes=options.n_classes or 2, slope_clip=bound)


def _softmax(score: FloatArray) -> FloatArray:
    """Return probabilities [..., K], stored class by class."""
    probabilities = np.array(np.moveaxis(score, -1, 0), np.float64, order="C")
    _to_probabilities(probabilities)
    return np.moveaxis(probabilities, 0, -1)


def _to_probabilities(classes: FloatArray) -> None:
    """Turn scores [K, ...] into probabilities, in place: what a record gets does not depend on its place."""
    classes -= np.maximum.reduce(classes, axis=0)
    np.exp(classes, out=classes)
    classes /= np.add.reduce(classes, axis=0)


@final
@dataclass(frozen=True, kw_only=True)
class MulticlassHinge(MulticlassLoss):
    """The smoothed multiclass hinge: max over p in the simplex of <p - e_y, u> + (1 - p_y) - (w / 4) |p - e_y|^2.

    Classes are y = 0 .. K - 1 and scores [..., K]. Without the last term it is max_c (1[c != y] + u_c) - u_y, the
    hinge loss of Crammer and Singer (2001); with it the loss is lower by at most w / 2, and for K = 2 it is
    SmoothedHinge of width w at u_1 - u_0. The slope is p - e_y, of norm at most sqrt 2; the Hessian is 2 / w times a
    projection onto at most K - 1 directions: the maximum of linear functions minus a (w / 2)-strongly convex one has
    a slope of Lipschitz constant 2 / w (Nesterov, 2005).
    """

    width: float = 1.0
    name: ClassVar[str] = "several-hinge"
    slope_bound = math.sqrt(2)
    defaults = ModelDefaults(
        model="multiclass-svc", labels="several classes", coef_bound=2.0, averaged_fraction=2 / 3
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.validate_fields(self, width=_check.check_positive)
        _check.set_frozen(self, curvature_bound=2 / self.width)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            below = score - score.max(axis=-1, keepdims=True)
        slopes, own = self.slope(score, y), self._one_hot(y)
        with np.errstate(invalid="ignore"):  # an infinite score of a class with weight 0
            values = np.where(slopes == 0, 0.0, slopes * below).sum(axis=-1)
        values = values - np.where(own, slopes, 0.0).sum(axis=-1)
        return np.asarray(values - self.width / 4 * (slopes**2).sum(axis=-1), np.float64)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(self._simplex_weights(score, y) - self._one_hot(y), np.float64)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        active = (self._simplex_weights(score, y) > 0).astype(float)
        curvature = -active[..., :, None] * active[..., None, :] / active.sum(axis=-1)[..., None, None]
        curvature[..., np.arange(self.n_classes), np.arange(self.n_classes)] += active
        return np.asarray(2 / self.width * curvature)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise InvalidParameter(
            "the hinge of several classes has one slope per class and no inverse; it needs no clipping."
        )

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> MulticlassHinge:
        return cls(n_classes=options.n_classes or 2)

    def _simplex_weights(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return p, the projection of e_y + (2 / w) (u + 1[c != y]) onto the simplex; shifts of u do not matter."""
        own = self._one_hot(y)
        with np.errstate(over="ignore"):
            point = 2 / self.width * (score - score.max(axis=-1, keepdims=True) + ~own) + own
        ordered = -np.sort(-point, axis=-1)
        over = (np.cumsum(ordered, axis=-1) - 1) / np.arange(1, self.n_classes + 1)
        last = np.maximum((ordered > over).sum(axis=-1, keepdims=True) - 1, 0)
        return np.asarray(np.maximum(point - np.take_along_axis(over, last, axis=-1), 0.0))
