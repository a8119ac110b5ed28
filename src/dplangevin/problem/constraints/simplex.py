"""The simplex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constraints.base import ConstraintSet, FloatArray


@final
@dataclass(frozen=True)
class Simplex(ConstraintSet):
    """{theta >= 0, sum theta = mass}, of diameter mass sqrt 2 in dimension 2 and more.

    Projected points are exactly non-negative; their sum is the mass up to rounding, so `contains` holds with
    tolerance dimension * 2^-52 * mass.

    References
    ----------
    Held, Wolfe and Crowder (1974), Validation of subgradient optimization (sort and threshold).
    """

    mass: float = 1.0
    name: ClassVar[str] = "simplex"

    def __post_init__(self) -> None:
        _check.each(self, mass=_check.positive)

    def diameter(self, dimension: int) -> float:
        if dimension < 2:
            raise InvalidParameter(f"a simplex in dimension {dimension} is one point; it needs 2 or more.")
        return self.mass * math.sqrt(2)

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        return simplex_projection(theta, self.mass)

    def _excess(self, theta: FloatArray) -> FloatArray:
        excess = np.maximum(np.abs(theta.sum(axis=0) - self.mass), -theta.min(axis=0))
        return np.asarray(np.nan_to_num(excess, nan=np.inf), np.float64)


def simplex_projection(theta: FloatArray, mass: float) -> FloatArray:
    """max(theta - tau, 0) for each column, with tau such that it sums to mass.

    The projection is invariant to adding a constant, so the largest entry is moved to 0; entries below -mass
    never count and are raised to it. Both keep sums of huge entries from cancelling.
    """
    shifted = np.maximum(theta - theta.max(axis=0), -mass)
    ordered = -np.sort(-shifted, axis=0)
    candidates = (np.cumsum(ordered, axis=0) - mass) / np.arange(1, theta.shape[0] + 1)[:, None]
    active = np.maximum((ordered > candidates).sum(axis=0), 1)
    threshold = np.take_along_axis(candidates, active[None, :] - 1, axis=0)
    projected = np.maximum(shifted - threshold, 0.0)
    return np.asarray(projected * (mass / projected.sum(axis=0)), np.float64)
