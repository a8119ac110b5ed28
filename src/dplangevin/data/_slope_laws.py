"""The slopes of the library's losses as one formula with five numbers, evaluated in place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dplangevin.problem.losses import (
    Clipped,
    Huber,
    Logistic,
    Loss,
    Poisson,
    SmoothedHinge,
    SmoothedPinball,
    Squared,
)

Floats = NDArray[np.float64]
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

    def apply(self, scores: Floats, labels: Floats) -> None:
        """Turn scores [rows] or [rows, k] into slopes, in place. Scores must not be NaN.

        Overflows are harmless, and the caller's to ignore.
        """
        y = labels if scores.ndim == 1 else labels[:, None]
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
            sign = np.where(y > 0.5, 1.0, -1.0)
            scores -= sign
            scores *= self.scale
            np.maximum(scores, -(1 + sign) / 2, out=scores)
            np.minimum(scores, (1 - sign) / 2, out=scores)
        if low > -math.inf:
            np.maximum(scores, low, out=scores)
        if high < math.inf:
            np.minimum(scores, high, out=scores)


def slope_law(loss: Loss) -> SlopeLaw | None:
    """The law of a loss of one score; None for losses that this file does not know."""
    if isinstance(loss, Clipped):
        inner = slope_law(loss.loss)
        if inner is None:
            return None
        return replace(inner, low=max(inner.low, -loss.bound), high=min(inner.high, loss.bound))
    if isinstance(loss, Logistic):
        return SlopeLaw(kind="logistic")
    if isinstance(loss, Squared):
        return SlopeLaw(kind="affine")
    if isinstance(loss, Huber):
        return SlopeLaw(kind="affine", low=-loss.transition, high=loss.transition)
    if isinstance(loss, SmoothedPinball):
        return SlopeLaw(
            kind="affine",
            scale=1 / loss.width,
            shift=0.5 - loss.quantile,
            low=-loss.quantile,
            high=1 - loss.quantile,
        )
    if isinstance(loss, SmoothedHinge):
        return SlopeLaw(kind="hinge", scale=1 / loss.width)
    return SlopeLaw(kind="exponential") if isinstance(loss, Poisson) else None
