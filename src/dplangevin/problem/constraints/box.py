"""The box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constraints.base import ConstraintSet, FloatArray


@final
@dataclass(frozen=True)
class Box(ConstraintSet):
    """{theta : low <= theta <= high}, of diameter |high - low|. Projected points are exactly inside.

    Parameters
    ----------
    low, high : numbers (the same for every coordinate) or one number per coordinate; infinity is allowed.
    """

    low: float | tuple[float, ...]
    high: float | tuple[float, ...]
    name: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        for side in ("low", "high"):
            _check.put(self, **{side: _limits(side, getattr(self, side))})
        low, high = self._sides
        if np.ndim(low) and np.ndim(high) and low.shape != high.shape:
            raise InvalidParameter(f"low has {low.size} coordinates but high has {high.size}; give as many.")
        if not (np.all(low <= high) and np.any(low < high)):
            raise InvalidParameter(
                f"low must not exceed high, nor equal it everywhere; got {self.low!r} and {self.high!r}."
            )
        if np.any(low == np.inf) or np.any(high == -np.inf):
            raise InvalidParameter(f"the box is empty: low = {self.low!r}, high = {self.high!r}.")

    @cached_property
    def _sides(self) -> tuple[FloatArray, FloatArray]:
        low, high = np.asarray(self.low, np.float64), np.asarray(self.high, np.float64)
        return (low[:, None] if low.ndim else low), (high[:, None] if high.ndim else high)

    def diameter(self, dimension: int) -> float:
        self._check_dimension(dimension)
        low, high = self._sides
        return math.hypot(*np.broadcast_to((high - low).ravel(), (dimension,)).tolist())

    def _check_dimension(self, dimension: int) -> None:
        for side in self._sides:
            if side.ndim and side.size != dimension:
                raise InvalidParameter(
                    f"the box has {side.size} coordinates but theta has {dimension}; give one number, or one "
                    "per coordinate with the intercept last."
                )

    def _project_columns(self, theta: FloatArray) -> FloatArray:
        self._check_dimension(theta.shape[0])
        return np.clip(theta, *self._sides)

    def _excess(self, theta: FloatArray) -> FloatArray:
        self._check_dimension(theta.shape[0])
        low, high = self._sides
        outside = np.where(np.isnan(theta), np.inf, np.maximum(low - theta, theta - high))
        return np.asarray(outside.max(axis=0), np.float64)


def _limits(name: str, value: Any) -> float | tuple[float, ...]:
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be a number or a sequence of numbers, got {value!r}.") from None
    if array.ndim > 1 or array.size == 0 or np.isnan(array).any():
        raise InvalidParameter(f"{name} must be a number or a non-empty sequence of numbers, got {value!r}.")
    return float(array) if array.ndim == 0 else tuple(array.tolist())
