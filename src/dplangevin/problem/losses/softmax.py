"""The multinomial logistic (softmax) loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses.base import ClassesLoss, FloatArray, Loss
from dplangevin.problem.losses.model_defaults import ModelDefaults, ModelOptions


@final
@dataclass(frozen=True, kw_only=True)
class Softmax(ClassesLoss):
    """log sum_c e^{u_c} - u_y for classes y = 0 .. K - 1 and score[..., K].

    The slope p - e_y has norm at most sqrt 2; the Hessian diag(p) - p p^T has norm at most 1/2.

    Parameters
    ----------
    n_classes : K.
    slope_clip : scale the slope vector to at most this norm. The result is NOT the gradient of a loss (its
        Jacobian is not symmetric and it is not monotone for K >= 3), so `convex` is False, the curvature is
        unknown and `value` refuses: only bounds that need nothing but the sensitivity remain.
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
        reach=5.0,
        tail=2 / 3,
        least_clip=0.5,
        clip_is_convex=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.slope_clip is not None:
            clip = _check.positive("slope_clip", self.slope_clip)
            if clip >= math.sqrt(2):
                raise InvalidParameter(f"slope_clip = {clip!r} does nothing from sqrt(2) on; leave it out.")
            words = f"the softmax slope is clipped to norm {clip:g} and is not a gradient"
            _check.put(self, slope_clip=clip, slope_bound=clip, curvature_bound=math.inf)
            _check.put(self, convex=False, assumptions=(words,))

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
        slope = _shares(score)
        slope -= self._one_hot(y)
        if self.slope_clip is not None:
            norm = np.sqrt(np.einsum("...c,...c->...", slope, slope))
            slope *= (self.slope_clip / np.maximum(norm, self.slope_clip))[..., None]
        return np.asarray(slope, np.float64)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        if self.slope_clip is not None:
            raise InvalidParameter(
                "a softmax slope clipped in norm is not the gradient of any loss, so it has no curvature; "
                "leave slope_clip out."
            )
        shares = _shares(score)
        bend = -shares[..., :, None] * shares[..., None, :]
        bend[..., np.arange(self.n_classes), np.arange(self.n_classes)] += shares
        return np.asarray(bend)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise InvalidParameter("softmax has one slope per class and no inverse; it needs no clipping.")

    @property
    def unclipped(self) -> Loss:
        return Softmax(n_classes=self.n_classes)

    @property
    def majorant_bound(self) -> float:
        """1, of the second moment that Boehning's bound (1/2)(I - 11'/K) (x) x x' is made of: its noise is halved."""
        return 1.0

    @property
    def step_curvature(self) -> float:
        return 0.5

    @property
    def for_intervals(self) -> Loss:
        return self.unclipped

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> Loss:
        return cls(n_classes=options.n_classes or 2, slope_clip=bound)


def _shares(score: FloatArray) -> FloatArray:
    shares = np.exp(score - score.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return np.asarray(shares, np.float64)
