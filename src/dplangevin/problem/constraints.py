"""Closed convex constraint sets, each with its exact Euclidean projection and diameter."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter

FloatArray = NDArray[np.float64]


class ConstraintSet(ABC):
    """A closed convex set of parameters; the accountant takes the diameter from here, not from the user."""

    name: ClassVar[str]

    def project(self, theta: FloatArray) -> FloatArray:
        """Return the closest point of the set to theta[dimension], or to each column of theta[dimension, k]."""
        return self._project_columns(_as_columns(theta)).reshape(np.shape(theta))

    def contains(self, theta: FloatArray, tolerance: float = 0.0) -> bool:
        """Return whether theta (every column of it) satisfies the set's inequalities up to tolerance."""
        return bool(np.all(self._violation(_as_columns(theta)) <= tolerance))

    @abstractmethod
    def diameter(self, dimension: int) -> float:
        """Return the largest distance between two points of the set, infinity when unbounded."""

    @abstractmethod
    def _project_columns(self, theta: FloatArray) -> FloatArray:
        """Return the projection of each column."""

    @abstractmethod
    def _violation(self, theta: FloatArray) -> FloatArray:
        """Return by how much each column violates the set's inequalities; at most 0 inside, infinity for NaN."""


@dataclass(frozen=True)
class RadiusSet(ConstraintSet):
    """A set around 0 described by a radius, of Euclidean diameter twice the radius."""

    radius: float

    def __post_init__(self) -> None:
        _check.validate_fields(self, radius=_check.check_positive)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius


def _as_columns(theta: FloatArray) -> FloatArray:
    array = np.asarray(theta, np.float64)
    if array.ndim not in (1, 2):
        raise InvalidParameter(f"theta must be [dimension] or [dimension, k], got {array.ndim} dimensions.")
    return array.reshape(array.shape[0], -1)


def column_norms(theta: FloatArray) -> FloatArray:
    """Return the Euclidean norm of each column, safe from overflow and underflow in the squares."""
    squares = np.einsum("ij,ij->j", theta, theta)
    if squares.size and squares.min() > 1e-200 and squares.max() < 1e200:  # no overflow or underflow
        return np.asarray(np.sqrt(squares))
    largest = np.abs(theta).max(axis=0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return np.asarray(scale * np.sqrt(((theta / scale) ** 2).sum(axis=0)), np.float64)


@final
@dataclass(frozen=True)
class WholeSpace(ConstraintSet):
    """All of R^d: projection does nothing and the diameter is infinite."""

    name: ClassVar[str] = "whole-space"

    def diameter(self, dimension: int) -> float:
        return math.inf

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        return theta.copy()

    def _violation(self, theta: FloatArray) -> FloatArray:
        return np.where(np.isfinite(theta).all(axis=0), 0.0, np.inf)


@final
@dataclass(frozen=True)
class Ball(RadiusSet):
    """The ball {theta : |theta| <= radius}, of diameter 2 radius; points outside are scaled back to the sphere.

    Projected points satisfy `contains` with tolerance 0: they are scaled to slightly less than the radius.

    Examples
    --------
    >>> Ball(5.0).project(np.array([6.0, 8.0])).round(12)
    array([3., 4.])
    """

    name: ClassVar[str] = "ball"

    def project(self, theta: FloatArray) -> FloatArray:
        if np.ndim(theta) == 1 and np.vdot(theta, theta) < 0.99 * self.radius**2:  # clearly inside
            return np.array(theta, np.float64)
        return super().project(theta)

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        norms = column_norms(theta)
        outside = norms > self.radius
        projected = theta.copy()
        if not outside.any():
            return projected
        rounding_slack = (theta.shape[0] + 8) * 2.0**-52
        projected[:, outside] = theta[:, outside] / norms[outside] * (self.radius * (1 - rounding_slack))
        return projected

    def _violation(self, theta: FloatArray) -> FloatArray:
        return np.nan_to_num(column_norms(theta) - self.radius, nan=np.inf)


@final
@dataclass(frozen=True)
class Box(ConstraintSet):
    """The box {theta : low <= theta <= high}, of diameter |high - low|. Projected points are exactly inside.

    Parameters
    ----------
    low, high : numbers (the same for every coordinate) or one number per coordinate; infinity is allowed.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    name: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        for side in ("low", "high"):
            _check.set_frozen(self, **{side: _check_limits(side, getattr(self, side))})
        low, high = self._limits
        if np.ndim(low) and np.ndim(high) and low.shape != high.shape:
            raise InvalidParameter(
                f"low has {low.size} coordinates but high has {high.size}; state as many for both."
            )
        if not (np.all(low <= high) and np.any(low < high)):
            raise InvalidParameter(
                f"low must not exceed high, nor equal it everywhere; got {self.low!r} and {self.high!r}."
            )
        if np.any(low == np.inf) or np.any(high == -np.inf):
            raise InvalidParameter(f"the box is empty: low = {self.low!r}, high = {self.high!r}.")

    @cached_property
    def _limits(self) -> tuple[FloatArray, FloatArray]:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        return (low[:, None] if low.ndim else low), (high[:, None] if high.ndim else high)

    def diameter(self, dimension: int) -> float:
        self._check_dimension(dimension)
        low, high = self._limits
        return math.hypot(*np.broadcast_to((high - low).ravel(), (dimension,)).tolist())

    def _check_dimension(self, dimension: int) -> None:
        for side in self._limits:
            if side.ndim and side.size != dimension:
                raise InvalidParameter(
                    f"the box has {side.size} coordinates but theta has {dimension}; give one number, or one "
                    "per coordinate with the intercept last."
                )

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        self._check_dimension(theta.shape[0])
        return np.clip(theta, *self._limits)

    def _violation(self, theta: FloatArray) -> FloatArray:
        self._check_dimension(theta.shape[0])
        low, high = self._limits
        outside = np.where(np.isnan(theta), np.inf, np.maximum(low - theta, theta - high))
        return np.asarray(outside.max(axis=0), np.float64)


def _check_limits(name: str, value: Any) -> float | tuple[float, ...]:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be a number or a sequence of numbers, got {value!r}.") from None
    if array.ndim > 1 or array.size == 0 or np.isnan(array).any():
        raise InvalidParameter(f"{name} must be a number or a non-empty sequence of numbers, got {value!r}.")
    return float(array) if array.ndim == 0 else tuple(array.tolist())


@final
@dataclass(frozen=True)
class Simplex(ConstraintSet):
    """The simplex {theta >= 0, sum theta = mass}, of diameter mass sqrt 2 in dimension 2 and more.

    Projected points are exactly non-negative; their sum is the mass up to rounding, so `contains` holds with
    tolerance dimension * 2^-52 * mass.

    References
    ----------
    Held, Wolfe and Crowder (1974), Validation of subgradient optimization (sort and threshold).
    """

    mass: float = 1.0
    name: ClassVar[str] = "simplex"

    def __post_init__(self) -> None:
        _check.validate_fields(self, mass=_check.check_positive)

    def diameter(self, dimension: int) -> float:
        if dimension < 2:
            raise InvalidParameter(f"a simplex in dimension {dimension} is one point; it needs 2 or more.")
        return self.mass * math.sqrt(2)

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        return project_on_simplex(theta, self.mass)

    def _violation(self, theta: FloatArray) -> FloatArray:
        excess = np.maximum(np.abs(theta.sum(axis=0) - self.mass), -theta.min(axis=0))
        return np.asarray(np.nan_to_num(excess, nan=np.inf), np.float64)


def project_on_simplex(theta: FloatArray, mass: float) -> FloatArray:
    """Return max(theta - tau, 0) for each column, with tau such that it sums to mass.

    The projection is invariant to adding a constant, so the largest entry is shifted to 0; entries below -mass
    project to 0 and are raised to -mass. Both prevent cancellation in sums of huge entries.
    """
    shifted = np.maximum(theta - theta.max(axis=0), -mass)
    ordered = -np.sort(-shifted, axis=0)
    candidates = (np.cumsum(ordered, axis=0) - mass) / np.arange(1, theta.shape[0] + 1)[:, None]
    active = np.maximum((ordered > candidates).sum(axis=0), 1)
    threshold = np.take_along_axis(candidates, active[None, :] - 1, axis=0)
    projected = np.maximum(shifted - threshold, 0.0)
    return np.asarray(projected * (mass / projected.sum(axis=0)), np.float64)


@final
@dataclass(frozen=True)
class L1Ball(RadiusSet):
    """The L1 ball {theta : sum |theta_j| <= radius}, of Euclidean diameter 2 radius.

    Projected points satisfy `contains` with tolerance 0: they are scaled to slightly less than the radius.

    References
    ----------
    Duchi, Shalev-Shwartz, Singer and Chandra (2008), Efficient projections onto the l1-ball.
    """

    name: ClassVar[str] = "l1-ball"

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        outside = self._violation(theta) > 0
        rounding_slack = (theta.shape[0] + 8) * 2.0**-52
        projected = theta.copy()
        far = theta[:, outside]
        projected[:, outside] = (
            np.sign(far) * project_on_simplex(np.abs(far), self.radius) * (1 - rounding_slack)
        )
        return projected

    def _violation(self, theta: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            mass = np.abs(theta).sum(axis=0)
        return np.asarray(np.nan_to_num(mass - self.radius, nan=np.inf), np.float64)


CONSTRAINTS: dict[str, type[ConstraintSet]] = {
    constraint.name: constraint for constraint in (Ball, Box, Simplex, L1Ball, WholeSpace)
}

__all__ = ["CONSTRAINTS", "Ball", "Box", "ConstraintSet", "L1Ball", "Simplex", "WholeSpace"]
