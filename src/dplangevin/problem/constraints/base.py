"""ConstraintSet: a closed convex set with its exact Euclidean projection and diameter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter

FloatArray = NDArray[np.float64]


class ConstraintSet(ABC):
    """A closed convex set of parameters; the diameter that is accounted comes from here, not the user."""

    name: ClassVar[str]

    def project(self, theta: FloatArray) -> FloatArray:
        """The closest point of the set to theta[dimension], or to each column of theta[dimension, k]."""
        return self._project_columns(_columns(theta)).reshape(np.shape(theta))

    def contains(self, theta: FloatArray, tolerance: float = 0.0) -> bool:
        """Whether theta (every column of it) satisfies the set's inequalities up to tolerance."""
        return bool(np.all(self._excess(_columns(theta)) <= tolerance))

    @abstractmethod
    def diameter(self, dimension: int) -> float:
        """Largest distance between two points of the set, infinity when unbounded."""

    @abstractmethod
    def _project_columns(self, theta: FloatArray) -> FloatArray:
        """The projection of each column."""

    @abstractmethod
    def _excess(self, theta: FloatArray) -> FloatArray:
        """By how much each column violates the set's inequalities; at most 0 inside, infinity for NaN."""


@dataclass(frozen=True)
class RadiusSet(ConstraintSet):
    """A set around 0 that a radius describes; its Euclidean diameter is twice that."""

    radius: float

    def __post_init__(self) -> None:
        _check.each(self, radius=_check.positive)

    def diameter(self, dimension: int) -> float:
        return 2 * self.radius


def _columns(theta: FloatArray) -> FloatArray:
    array = np.asarray(theta, np.float64)
    if array.ndim not in (1, 2):
        raise InvalidParameter(f"theta must be [dimension] or [dimension, k], got {array.ndim} dimensions.")
    return array.reshape(array.shape[0], -1)


def column_norms(theta: FloatArray) -> FloatArray:
    """Euclidean norm of each column, safe from overflow and underflow in the squares."""
    squares = np.einsum("ij,ij->j", theta, theta)
    if squares.size and squares.min() > 1e-200 and squares.max() < 1e200:  # nothing lost on the way
        return np.asarray(np.sqrt(squares))
    largest = np.abs(theta).max(axis=0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    return np.asarray(scale * np.sqrt(((theta / scale) ** 2).sum(axis=0)), np.float64)
