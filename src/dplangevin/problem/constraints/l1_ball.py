"""The l1 ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin.problem.constraints.base import FloatArray, RadiusSet
from dplangevin.problem.constraints.simplex import simplex_projection


@final
@dataclass(frozen=True)
class L1Ball(RadiusSet):
    """{theta : sum |theta_j| <= radius}, of Euclidean diameter 2 radius.

    Projected points satisfy `contains` with tolerance 0: they are scaled to a hair less than the radius.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra (2008), Efficient projections onto the l1-ball.
    """

    name: ClassVar[str] = "l1-ball"

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        outside = self._excess(theta) > 0
        hair = (theta.shape[0] + 8) * 2.0**-52
        projected = theta.copy()
        far = theta[:, outside]
        projected[:, outside] = np.sign(far) * simplex_projection(np.abs(far), self.radius) * (1 - hair)
        return projected

    def _excess(self, theta: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            mass = np.abs(theta).sum(axis=0)
        return np.asarray(np.nan_to_num(mass - self.radius, nan=np.inf), np.float64)
