"""The slope of a loss of one score as one formula with five numbers; slope and curvature are written here alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import expit

from dplangevin._arrays import Floats

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

    def slope(self, score: Floats, y: Floats) -> Floats:
        """The slopes at broadcastable scores and labels."""
        slopes = np.array(np.broadcast_to(score, np.broadcast_shapes(np.shape(score), np.shape(y))), float)
        with np.errstate(over="ignore", invalid="ignore"):
            self.apply(slopes, y)
        return slopes

    def curvature(self, score: Floats, y: Floats) -> Floats:
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

    def apply(self, scores: Floats, y: Floats) -> None:
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


def _sign(y: Floats) -> Floats:
    return np.where(np.asarray(y) > 0.5, 1.0, -1.0)
