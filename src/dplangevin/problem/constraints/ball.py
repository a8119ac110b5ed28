"""The Euclidean ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin.problem.constraints.base import FloatArray, RadiusSet, column_norms


@final
@dataclass(frozen=True)
class Ball(RadiusSet):
    """{theta : |theta| <= radius}, of diameter 2 radius; points outside are scaled back to the sphere.

    Projected points satisfy `contains` with tolerance 0: they are scaled to a hair less than the radius.

    Examples
    --------
    >>> Ball(5.0).project(np.array([6.0, 8.0])).round(12)
    array([3., 4.])
    """

    name: ClassVar[str] = "ball"

    def project(self, theta: FloatArray) -> FloatArray:
        if (
            np.ndim(theta) == 1 and np.vdot(theta, theta) < 0.99 * self.radius**2
        ):  # well inside: nothing to compute
            return np.array(theta, np.float64)
        return super().project(theta)

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        norms = column_norms(theta)
        outside = norms > self.radius
        projected = theta.copy()
        if not outside.any():
            return projected
        hair = (theta.shape[0] + 8) * 2.0**-52
        projected[:, outside] = theta[:, outside] / norms[outside] * (self.radius * (1 - hair))
        return projected

    def _excess(self, theta: FloatArray) -> FloatArray:
        return np.nan_to_num(column_norms(theta) - self.radius, nan=np.inf)
