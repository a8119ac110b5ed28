"""A loss whose slope is clipped (Huberized), which stays convex."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses.base import FloatArray, Loss, score_or_infinity
from dplangevin.problem.losses.record import RecordLoss


@final
@dataclass(frozen=True)
class Clipped(Loss):
    """A loss with its slope clipped at C: h where |h'| <= C, continued along its tangents beyond.

    Clipping the slope in the score clips the record's joint gradient (weights and intercept together) to
    C |x|, and a clipped nondecreasing slope is nondecreasing, so the result is the gradient of a convex loss.

    Examples
    --------
    >>> from dplangevin.problem.losses import Squared
    >>> Clipped(Squared(), 1.0).value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    loss: Loss
    bound: float
    name: ClassVar[str] = "clipped"

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise InvalidParameter(f"loss must be a Loss such as Squared(), got {self.loss!r}.")
        if isinstance(self.loss, RecordLoss):
            raise InvalidParameter(f"the {self.loss.name} loss clips its own gradients; use it as it is.")
        if self.loss.score_dimension != 1:
            raise InvalidParameter(
                f"Clipped takes losses with one score; {self.loss.name} has {self.loss.score_dimension}, and "
                "a clipped slope vector is not the gradient of a loss. Use it unclipped."
            )
        _check.validate_fields(self, bound=_check.check_positive)
        if self.loss.curvature_bound == 0 and self.bound < self.loss.slope_bound:
            raise InvalidParameter(
                f"the slope of the {self.loss.name} loss is constant; state a smaller data_norm instead of a clip."
            )
        inner, slope_formula = self.loss, self.loss.slope_formula
        if slope_formula is not None:
            slope_formula = replace(
                slope_formula,
                low=max(slope_formula.low, -self.bound),
                high=min(slope_formula.high, self.bound),
            )
        assumption = (
            f"slopes of the {inner.name} loss are clipped to {self.bound:g} in the score; it stays convex"
        )
        _check.set_frozen(
            self,
            slope_bound=min(self.bound, inner.slope_bound),
            curvature_bound=inner.clipped_curvature(self.bound),
            slope_formula=slope_formula,
            convex=inner.convex,
            label_range=inner.label_range,
            label_classes=inner.label_classes,
            assumptions=(*inner.assumptions, assumption),
        )

    @property
    def unclipped_loss(self) -> Loss:
        return self.loss

    @property
    def unclipped_if_bounded(self) -> Loss:
        return self.loss if math.isfinite(self.loss.slope_bound) else self

    @property
    def clip_bound(self) -> float:
        return self.bound

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        low, high = self._turning_points(y)
        inside = self.loss.value(np.clip(score, low, high), y)
        return inside + self.bound * (np.maximum(score - high, 0) + np.maximum(low - score, 0))

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.clip(self.loss.slope(score, y), -self.bound, self.bound)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        inside = np.abs(self.loss.slope(score, y)) < self.bound
        return np.where(inside, self.loss.curvature(score, y), 0.0)

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return score_or_infinity(self.loss.inverse_slope(slope, y), slope, -self.bound, self.bound)

    def _turning_points(self, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        bound = np.full(np.shape(y), self.bound)
        return self.loss.inverse_slope(-bound, y), self.loss.inverse_slope(bound, y)

    def clipped_curvature(self, bound: float) -> float:
        return self.loss.clipped_curvature(min(bound, self.bound))

    @property
    def quadratic_radius(self) -> float:
        return min(self.bound, self.loss.quadratic_radius)

    def majorant(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return self.loss.clipped_majorant(self.bound, score, y)

    @property
    def typical_curvature_bound(self) -> float:
        return min(self.curvature_bound, self.loss.typical_curvature_bound)

    @property
    def step_curvature(self) -> float:
        return self.loss.step_curvature
