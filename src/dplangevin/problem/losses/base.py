"""Loss: a function of a linear score, with the bounds that privacy rests on, and the law of its slope.

Slope and curvature of a loss of one score are one formula with five numbers, written here alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin import _check

FloatArray = NDArray[np.float64]
Kind = Literal["affine", "logistic", "exponential", "hinge"]
KINDS: tuple[Kind, ...] = ("affine", "logistic", "exponential", "hinge")


@dataclass(frozen=True, kw_only=True)
class SlopeLaw:
    """clip(f(u, y), low, high) with f(u, y) =

    scale (u - y) + shift (affine), expit(u) - y (logistic), e^u - y (exponential), or scale (u - s) clipped to
    [-1, 0] for s = 1 and to [0, 1] for s = -1 (hinge; s is the sign of y - 1/2). The clip is part of the formula, so
    |slope| <= max(|low|, |high|) for every finite or infinite score.
    """

    kind: Kind
    scale: float = 1.0
    shift: float = 0.0
    low: float = -math.inf
    high: float = math.inf

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The slopes at broadcastable scores and labels."""
        slopes = np.array(np.broadcast_to(score, np.broadcast_shapes(np.shape(score), np.shape(y))), float)
        with np.errstate(over="ignore", invalid="ignore"):
            self.apply(slopes, y)
        return slopes

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative of the slope in the score; 0 where it is clipped. At a corner, one of the two sides."""
        if self.kind == "logistic":
            chance = expit(score)
            bend = chance * (1 - chance)
        elif self.kind == "exponential":
            with np.errstate(over="ignore"):
                bend = np.exp(score)
        else:
            bend = np.asarray(self.scale)
        slope = self.slope(score, y)
        low, high = np.asarray(self.low), np.asarray(self.high)
        if self.kind == "hinge":
            sign = _sign(y)
            low, high = np.maximum(low, -(1 + sign) / 2), np.minimum(high, (1 - sign) / 2)
        return np.where((slope > low) & (slope < high), bend, 0.0)

    def apply(self, scores: FloatArray, y: FloatArray) -> None:
        """Turn scores into slopes, in place; labels broadcast to them. Scores must not be NaN.

        Overflows are harmless, and the caller's to ignore.
        """
        low, high = self.low, self.high
        if self.kind == "affine":
            scores -= y
            if self.scale != 1:
                scores *= self.scale
            if self.shift:
                scores += self.shift
        elif self.kind == "logistic":
            np.negative(scores, out=scores)
            # infinite for the lowest scores, whose expit is then 0, as it should be
            np.exp(scores, out=scores)
            scores += 1.0
            np.reciprocal(scores, out=scores)
            scores -= y
            if low <= -1 and high >= 1:  # nothing to clip: labels lie in [0, 1]
                return
        elif self.kind == "exponential":
            np.exp(scores, out=scores)
            scores -= y
        else:
            sign = _sign(y)
            scores -= sign
            scores *= self.scale
            np.maximum(scores, -(1 + sign) / 2, out=scores)
            np.minimum(scores, (1 - sign) / 2, out=scores)
        if low > -math.inf:
            np.maximum(scores, low, out=scores)
        if high < math.inf:
            np.minimum(scores, high, out=scores)


def _sign(y: FloatArray) -> FloatArray:
    return np.where(np.asarray(y) > 0.5, 1.0, -1.0)


class Loss(ABC):
    """loss(theta; x, y) = h(<theta, x>; y), with h convex in the score unless `convex` says otherwise.

    A loss of score_dimension 1 is vectorised over broadcastable arrays score and y. A loss of score_dimension
    K > 1 takes score[..., K] with y[...]. The gradient of a record is slope times its row, so its norm is at
    most slope_bound |x| and its smoothness at most curvature_bound |x|^2, for every score and every label
    within label_range. A loss states its `law`, or else slope and curvature. What is stated of a loss is fixed when it
    is made.
    """

    name: ClassVar[str]
    log_link: ClassVar[bool] = False
    """Whether scores are logarithms of rates."""
    slope_bound: float
    """sup |h'|, infinity when there is none."""
    curvature_bound: float
    """Lipschitz constant of h', infinity when there is none or it is unknown."""
    law: SlopeLaw | None = None
    """The slope as a formula that compiled sums know, from which slope and curvature follow; None without one."""
    score_dimension: int = 1
    """Number of scores per record."""
    convex: bool = True
    """Whether slope is the derivative of a convex function of the score."""
    label_range: tuple[float, float] = (-math.inf, math.inf)
    """The labels for which the bounds are stated."""
    label_classes: int | None = None
    """Number of classes when labels are 0, 1, ...; None when any number in label_range will do."""
    assumptions: tuple[str, ...] = ()
    """What a report should say of this loss."""

    @abstractmethod
    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """h(score; y)."""

    def total(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The sum of h(score; y) over the first axis, the records."""
        return np.asarray(self.value(score, y).sum(axis=0))

    @property
    def plain(self) -> Loss:
        """The loss without clipping."""
        return self

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The derivative of h in the score."""
        return self._law().slope(score, y)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """The second derivative of h in the score, [..., K, K] for K > 1; at a corner of h', one of its sides."""
        return self._law().curvature(score, y)

    def _law(self) -> SlopeLaw:
        if self.law is None:
            raise NotImplementedError(f"{type(self).__name__} states neither law nor slope and curvature.")
        return self.law

    @abstractmethod
    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        """A score at which h has this slope; +inf if every slope is smaller, -inf if every one is larger."""

    def clipped_curvature(self, bound: float) -> float:
        """Curvature bound where |slope| < bound. Clipping a slope never steepens it."""
        return self.curvature_bound


@dataclass(frozen=True, kw_only=True)
class ClassesLoss(Loss):
    """A loss of classes y = 0 .. K - 1, with one score each."""

    n_classes: int

    def __post_init__(self) -> None:
        classes = _check.count("n_classes", self.n_classes, least=2)
        _check.put(self, n_classes=classes, score_dimension=classes, label_classes=classes)
        _check.put(self, label_range=(0.0, float(classes - 1)))

    def _one_hot(self, y: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(np.asarray(y)[..., None] == np.arange(self.n_classes))


def reached(score: FloatArray, slope: FloatArray, low: Any, high: Any) -> FloatArray:
    """score where low <= slope <= high, else the infinity on the side where the slope would be larger."""
    return np.where(slope > high, np.inf, np.where(slope < low, -np.inf, score))
