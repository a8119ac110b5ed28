"""Targets as the problem sees them: small objects that travel to where the records are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.tables import cells_of


class TargetEncoder(ABC):
    """Turns targets, private and public ones, into what the problem sees, each by itself."""

    n_classes: int | None

    @abstractmethod
    def __call__(self, values: Any) -> Floats:
        """The targets of these cells."""


@dataclass(frozen=True, kw_only=True)
class LabelEncoder(TargetEncoder):
    """Indices of the labels; those outside the list, and missing ones, count as the first class."""

    labels: Any
    text: bool
    n_classes: int
    class_weights: tuple[float, ...] | None = None
    weight_bound: float = 1.0

    def __call__(self, values: Any) -> Floats:
        codes = cells_of(values, "y").codes(self.labels, text=self.text)
        return np.maximum(codes, 0).astype(float)

    def row_weights(self, labels: Floats, weights: Any) -> Any:
        """The weight of each record, at most weight_bound, times that of its class."""
        if self.class_weights is None:
            return weights
        own = np.asarray(self.class_weights)[labels.astype(int)]
        if weights is None:
            return own * min(self.weight_bound, 1.0)
        return own * np.clip(np.asarray(weights, float), 0.0, self.weight_bound)


@dataclass(frozen=True, kw_only=True)
class RangeEncoder(TargetEncoder):
    """(y - centre) / half for targets in their range; where `total`, a missing one is the middle."""

    low: float
    high: float
    centre: float
    half: float
    total: bool
    n_classes: None = field(default=None, init=False)

    def __call__(self, values: Any) -> Floats:
        numbers = np.asarray(cells_of(values, "y").numbers(), np.float64)
        if self.total:
            numbers = np.where(np.isnan(numbers), (self.low + self.high) / 2, numbers)
        return np.asarray((np.clip(numbers, self.low, self.high) - self.centre) / self.half)
