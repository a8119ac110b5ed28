"""No constraint."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin.problem.constraints.base import ConstraintSet, FloatArray


@final
@dataclass(frozen=True)
class WholeSpace(ConstraintSet):
    """All of R^d: projection does nothing and the diameter is infinite."""

    name: ClassVar[str] = "whole-space"

    def diameter(self, dimension: int) -> float:
        return math.inf

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        return theta.copy()

    def _excess(self, theta: FloatArray) -> FloatArray:
        return np.where(np.isfinite(theta).all(axis=0), 0.0, np.inf)
