"""The intersection of a ball around 0 with a ball around another point: the sets of the iterated mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import BallBody, Body


@dataclass(frozen=True, kw_only=True)
class LensBody(Body):
    """{x : |x| <= outer} intersected with {x : |x - centre| <= inner}, centre a point of the first ball.

    Gaussians are drawn exactly on one of the two balls, turn by turn, and kept when they lie in the other: every kept
    point has the law on the lens, whichever ball it was drawn on.
    """

    centre: Floats
    outer: float
    inner: float

    def __post_init__(self) -> None:
        middle = np.asarray(self.centre, float)
        outer, inner = _check.positive("outer", self.outer), _check.positive("inner", self.inner)
        if middle.ndim != 1 or float(np.linalg.norm(middle)) > outer * (1 + 1e-12):
            raise InvalidParameter(
                "the second ball's centre must be a point of the first ball; project it first."
            )
        _check.put(self, centre=middle, outer=outer, inner=inner)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        return int(self.centre.size)

    @property
    def diameter(self) -> float:
        return 2 * min(self.outer, self.inner)

    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        first = np.linalg.norm(theta, axis=0) <= self.outer * (1 + 1e-12)
        return np.asarray(
            first & (np.linalg.norm(theta - self.centre[:, None], axis=0) <= self.inner * (1 + 1e-12))
        )

    def project(self, theta: Floats) -> Floats:
        """The nearest point: on one ball if that lies in the other, else on the sphere where both meet."""
        shift = self.centre[:, None]
        on_first = self._balls[0].project(theta)
        on_second = self._balls[1].project(theta - shift) + shift
        result = np.where(self.contains(on_first), on_first, on_second)
        corner = ~self.contains(on_first) & ~self.contains(on_second)
        if np.any(corner):
            result[:, corner] = self._corner(theta[:, corner])
        return np.asarray(result)

    def _corner(self, theta: Floats) -> Floats:
        length = float(np.linalg.norm(self.centre))
        axis = (self.centre / length)[:, None]
        height = (self.outer**2 - self.inner**2 + length**2) / (2 * length)
        rest = theta - axis * (axis.T @ theta)
        size = np.maximum(np.linalg.norm(rest, axis=0), 1e-300)
        return np.asarray(
            axis * height + rest / size * math.sqrt(max(self.outer**2 - height**2, 0.0)) * (1 - 1e-13)
        )

    def reach(self, point: Floats) -> float:
        second = self.inner + float(np.linalg.norm(point - self.centre))
        return min(self.outer + float(np.linalg.norm(point)), second)

    def drop(self, point: Floats, gradient: Floats) -> float:
        """Split the gradient into the outer normals of the two balls and a rest, and add the three drops."""
        normals = np.column_stack([point, point - self.centre])
        shares = nnls(normals, -gradient)[0]
        first, second = -shares[0] * point, -shares[1] * (point - self.centre)
        rest = gradient - first - second
        total = self._balls[0].drop(point, first) + self._balls[1].drop(point - self.centre, second)
        return total + self.reach(point) * float(np.linalg.norm(rest))

    def gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        shift = self.centre[:, None]
        result = np.empty(linear.shape)
        pending, turn = np.arange(linear.shape[1]), 0
        while pending.size:
            block = linear[:, pending]
            if turn % 2 == 0:
                x = self._balls[0].gaussian(block, precision, rng)
            else:
                x = self._balls[1].gaussian(block - precision * shift, precision, rng) + shift
            kept = self.contains(x)
            result[:, pending[kept]] = x[:, kept]
            pending, turn = pending[~kept], turn + 1
        return result

    def log_mass(self, linear: Floats, precision: float) -> tuple[float, float]:
        """Only the upper bound is sharp: the smaller of the two balls' masses."""
        shift = float(linear @ self.centre) - precision * float(self.centre @ self.centre) / 2
        first = self._balls[0].log_mass(linear, precision)[1]
        second = self._balls[1].log_mass(linear - precision * self.centre, precision)[1] + shift
        return -math.inf, min(first, second)

    @property
    def _balls(self) -> tuple[BallBody, BallBody]:
        p = self.dimension
        return BallBody(dimension=p, radius=self.outer), BallBody(dimension=p, radius=self.inner)
