"""The logistic loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.special import logit

from dplangevin.problem.losses.base import FloatArray, Loss, SlopeLaw
from dplangevin.problem.losses.model_defaults import ModelDefaults


@final
@dataclass(frozen=True, kw_only=True)
class Logistic(Loss):
    """log(1 + e^u) - y u, for labels 0 and 1 (any y in [0, 1] is accepted). |h'| <= 1, 0 <= h'' <= 1/4.

    Examples
    --------
    >>> Logistic().slope(np.array([0.0, 40.0]), np.array([1, 0]))
    array([-0.5,  1. ])
    """

    name: ClassVar[str] = "logistic"
    slope_bound = 1.0
    curvature_bound = 0.25
    label_range = (0.0, 1.0)
    law = SlopeLaw(kind="logistic")
    sign_decides = True
    slope_variance = "curvature"
    interval_model = "a correct linear model"
    ball_envelope = True
    defaults = ModelDefaults(
        model="logistic",
        labels="two classes",
        reach=10.0,
        tail=2 / 3,
        least_clip=0.5,
        unclipped=100.0,
        unclipped_pure=150.0,
        shrinks=True,
        adapts_steps=True,
        whitens_purely=True,
    )

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        return np.maximum(score, 0) - y * score + np.log1p(np.exp(-np.abs(score)))

    def total(self, score: FloatArray, y: FloatArray) -> FloatArray:
        # sum log(1 + e) = log prod (1 + e): one logarithm for many records. Factors are at most 2, so 512 of them
        # do not overflow; what is lost is below the rounding of the sum.
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

    def least_curvature_share(self, step: float) -> float:
        """(e^-r + r - 1) / r^2: log h'' is 1-Lipschitz."""
        return 0.5 - step / 6 if step < 1e-4 else (math.expm1(-step) + step) / step**2

    @property
    def for_intervals(self) -> Loss:
        return self

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(logit(np.clip(slope + y, 0.0, 1.0)), np.float64)
