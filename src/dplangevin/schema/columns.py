"""One column of a public schema: a stated range, or a stated list of categories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter

Transform = Literal["identity", "log1p"]
Other = Literal["ignore", "own"]
Category = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class NumericColumn:
    """Values in [low, high]; others are clipped. With transform "log1p" the scale is log(1 + value)."""

    name: str
    low: float
    high: float
    transform: Transform = "identity"

    def __post_init__(self) -> None:
        _check.put(self, low=_finite(f"columns.{self.name}.range[0]", self.low))
        _check.put(self, high=_finite(f"columns.{self.name}.range[1]", self.high))
        _check.put(
            self,
            transform=_check.choice(f"columns.{self.name}.transform", self.transform, ("identity", "log1p")),
        )
        if not self.low < self.high:
            raise InvalidParameter(
                f"columns.{self.name}.range must be [low, high] with low < high, got [{self.low:g}, {self.high:g}]."
            )
        if self.transform == "log1p" and self.low <= -1:
            raise InvalidParameter(
                f"columns.{self.name}.transform = 'log1p' needs a range above -1, got {self.low:g}; raise the low end."
            )

    def to_dict(self) -> dict[str, Any]:
        """The column as in the file format."""
        extra = {} if self.transform == "identity" else {"transform": self.transform}
        return {"range": [self.low, self.high], **extra}


@dataclass(frozen=True, kw_only=True)
class CategoricalColumn:
    """One of the categories; other values are ignored, or get a category of their own."""

    name: str
    categories: tuple[Category, ...]
    other: Other = "ignore"

    def __post_init__(self) -> None:
        where = f"columns.{self.name}.categories"
        if isinstance(self.categories, str) or not self.categories:
            raise InvalidParameter(f"{where} must be a non-empty list, got {self.categories!r}.")
        for value in self.categories:
            odd = (
                isinstance(value, (int, float)) and not abs(value) <= 1e300
            )  # NaN, and what no double can hold
            if not isinstance(value, (str, int, float, bool)) or odd:
                raise InvalidParameter(
                    f"{where} holds {value!r}; categories are texts, numbers or truth values."
                )
        object.__setattr__(self, "categories", tuple(self.categories))
        object.__setattr__(
            self, "other", _check.choice(f"columns.{self.name}.other", self.other, ("ignore", "own"))
        )
        if len(set(self.texts)) < len(self.categories):
            raise InvalidParameter(f"{where} holds a value twice; list each once.")

    @property
    def numeric(self) -> bool:
        """True when every category is a number, so that values are compared as numbers."""
        return all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.categories
        )

    @property
    def truth(self) -> bool:
        """True when every category is a truth value, so that the case of its text does not matter."""
        return all(isinstance(value, bool) for value in self.categories)

    @property
    def texts(self) -> tuple[str, ...]:
        """The categories as text; 1 and 1.0 are the same number."""
        if self.numeric:
            return tuple(repr(float(value)) for value in self.categories)
        return tuple(as_text(value) for value in self.categories)

    def to_dict(self) -> dict[str, Any]:
        """The column as in the file format."""
        extra = {} if self.other == "ignore" else {"other": self.other}
        return {"categories": list(self.categories), **extra}


Column = NumericColumn | CategoricalColumn


def as_text(value: object) -> str:
    """Text of a value, with true and false as in JSON and SQL."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def column_from_dict(name: str, entry: object) -> Column:
    """A column from {"range": [low, high], ...} or {"categories": [...], ...}."""
    where = f"columns.{name}"
    if not isinstance(entry, Mapping):
        raise InvalidParameter(f"{where} must be a table with 'range' or 'categories', got {entry!r}.")
    known = {"range", "transform"} if "range" in entry else {"categories", "other"}
    unknown = sorted(set(entry) - known)
    if ("range" in entry) == ("categories" in entry) or unknown:
        raise InvalidParameter(
            f"{where} needs either 'range' (with 'transform') or 'categories' (with 'other'); got {sorted(entry)}."
        )
    if "range" in entry:
        low, high = _pair(f"{where}.range", entry["range"])
        return NumericColumn(name=name, low=low, high=high, transform=entry.get("transform", "identity"))
    values = entry["categories"]
    if not isinstance(values, (list, tuple)):
        raise InvalidParameter(f"{where}.categories must be a list, got {values!r}.")
    return CategoricalColumn(name=name, categories=tuple(values), other=entry.get("other", "ignore"))


def _pair(where: str, value: object) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InvalidParameter(f"{where} must be two numbers [low, high], got {value!r}.")
    return value[0], value[1]


def _finite(where: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidParameter(f"{where} must be a finite number, got {value!r}.")
    return number
