"""The hinge loss of several classes with quadratic corners."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses.base import ClassesLoss, FloatArray
from dplangevin.problem.losses.model_defaults import ModelDefaults, ModelOptions


@final
@dataclass(frozen=True, kw_only=True)
class SeveralHinge(ClassesLoss):
    """max over shares p of <p - e_y, u> + (1 - p_y) - (w / 4) |p - e_y|^2 for classes y = 0 .. K - 1 and score[..., K].

    Without the last term it is max_c (1[c != y] + u_c) - u_y, the hinge loss of Crammer and Singer (2001); with it the
    loss lies within w / 2 below, and for K = 2 it is SmoothedHinge of width w at u_1 - u_0. The slope is p - e_y, of
    norm at most sqrt 2; the Hessian is 2 / w times a projection on at most K - 1 directions: the maximum of linear
    functions minus a (w / 2)-strongly convex one has a slope of Lipschitz constant 2 / w (Nesterov, 2005).
    """

    width: float = 1.0
    name: ClassVar[str] = "several-hinge"
    slope_bound = math.sqrt(2)
    defaults = ModelDefaults(model="multiclass-svc", labels="several classes", reach=2.0, tail=2 / 3)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check.each(self, width=_check.positive)
        _check.put(self, curvature_bound=2 / self.width)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            below = score - score.max(axis=-1, keepdims=True)
        moved, own = self.slope(score, y), self._one_hot(y)
        with np.errstate(invalid="ignore"):  # an infinite score of a class without a share
            gained = np.where(moved == 0, 0.0, moved * below).sum(axis=-1)
        gained = gained - np.where(own, moved, 0.0).sum(axis=-1)
        return np.asarray(gained - self.width / 4 * (moved**2).sum(axis=-1), np.float64)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(self._shares(score, y) - self._one_hot(y), np.float64)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        used = (self._shares(score, y) > 0).astype(float)
        bend = -used[..., :, None] * used[..., None, :] / used.sum(axis=-1)[..., None, None]
        bend[..., np.arange(self.n_classes), np.arange(self.n_classes)] += used
        return np.asarray(2 / self.width * bend)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        raise InvalidParameter(
            "the hinge of several classes has one slope per class and no inverse; it needs no clipping."
        )

    @classmethod
    def for_model(cls, options: ModelOptions, bound: float | None, sharpness: float) -> SeveralHinge:
        return cls(n_classes=options.n_classes or 2)

    def _shares(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """p: the projection of e_y + (2 / w) (u + 1[c != y]) on the simplex, which a constant does not change."""
        own = self._one_hot(y)
        with np.errstate(over="ignore"):
            point = 2 / self.width * (score - score.max(axis=-1, keepdims=True) + ~own) + own
        ordered = -np.sort(-point, axis=-1)
        over = (np.cumsum(ordered, axis=-1) - 1) / np.arange(1, self.n_classes + 1)
        last = np.maximum((ordered > over).sum(axis=-1, keepdims=True) - 1, 0)
        return np.asarray(np.maximum(point - np.take_along_axis(over, last, axis=-1), 0.0))
