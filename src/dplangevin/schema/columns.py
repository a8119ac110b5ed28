"""One column of a public schema: a stated range, or a stated list of categories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.schema.basis import Basis, Monotone
from dplangevin.tables.cells import label, labels_of

Transform = Literal["identity", "log1p"]
Other = Literal["ignore", "own"]
Missing = Literal["own", "middle", "never"]
MISSING_RULES: tuple[Missing, ...] = ("own", "middle", "never")
Category = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class NumericColumn:
    """Values in [low, high]; others are clipped. With transform "log1p" the scale is log(1 + value).

    A `basis` makes the column a piecewise-linear function on public knots; `monotone` projects what was released.
    """

    name: str
    low: float
    high: float
    transform: Transform = "identity"
    missing: Missing | None = None
    basis: Basis | None = None
    monotone: Monotone | None = None

    def __post_init__(self) -> None:
        _check_missing(self.name, self.missing)
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
        if not math.isfinite(self.high - self.low):
            raise InvalidParameter(
                f"columns.{self.name}.range is wider than numbers can hold; state a narrower one."
            )
        if self.transform == "log1p" and self.low <= -1:
            raise InvalidParameter(
                f"columns.{self.name}.transform = 'log1p' needs a range above -1, got {self.low:g}; raise the low end."
            )
        if self.basis is not None:
            self.basis.check(self.name, self.low, self.high)
            self.basis.check_gaps(self.name, self.knots)
        if self.monotone is not None:
            _check.choice(f"columns.{self.name}.monotone", self.monotone, ("increasing", "decreasing"))

    @property
    def knots(self) -> tuple[float, ...]:
        """The knots on the scale of the transform: the two ends without a basis."""
        scale = math.log1p if self.transform == "log1p" else float
        low, high = scale(self.low), scale(self.high)
        if self.basis is None or self.basis.knots is None:
            return (low, high) if self.basis is None else self.basis.places(low, high)
        return (low, *map(scale, self.basis.knots), high)

    def to_dict(self) -> dict[str, Any]:
        """The column as in the file format."""
        extra: dict[str, Any] = {} if self.transform == "identity" else {"transform": self.transform}
        if self.missing is not None:
            extra["missing"] = self.missing
        if self.basis is not None:
            extra["basis"] = self.basis.to_dict()
        if self.monotone is not None:
            extra["monotone"] = self.monotone
        return {"range": [self.low, self.high], **extra}


@dataclass(frozen=True, kw_only=True)
class CategoricalColumn:
    """One of the categories; other values are ignored, or get a category of their own.

    Cells and categories are compared by their labels (`dplangevin.tables.label`): 1, 1.0, "1" and "1.0" are one. With
    `text` (in the file: "as": "text") a text keeps its characters, so that "02139" is not 2139.
    """

    name: str
    categories: tuple[Category, ...]
    other: Other = "ignore"
    text: bool = False
    missing: Missing | None = None

    def __post_init__(self) -> None:
        _check_missing(self.name, self.missing)
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
        _refuse_collisions(where, self.categories, self.text)

    @property
    def numeric(self) -> bool:
        """True when every category is a number: SQL sees the column as numbers."""
        return all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.categories
        )

    @property
    def truth(self) -> bool:
        """True when every category is a truth value: SQL sees the column as such."""
        return all(isinstance(value, bool) for value in self.categories)

    @property
    def listed(self) -> dict[str, int]:
        """The place of each category by its label."""
        return labels_of(self.categories, self.text)

    def to_dict(self) -> dict[str, Any]:
        """The column as in the file format."""
        extra: dict[str, Any] = {} if self.other == "ignore" else {"other": self.other}
        if self.text:
            extra["as"] = "text"
        if self.missing is not None:
            extra["missing"] = self.missing
        return {"categories": list(self.categories), **extra}


Column = NumericColumn | CategoricalColumn


def _refuse_collisions(where: str, values: tuple[Any, ...], text: bool) -> None:
    """Public statements, so that they may be shown."""
    seen: dict[str, Any] = {}
    for value in values:
        word = label(value, text=text)
        if word is None:
            raise InvalidParameter(f"{where} holds {value!r}, which reads as a missing value; leave it out.")
        if word in seen:
            keep = (
                "" if text or not isinstance(value, str) else ', or say "as": "text" if leading zeros matter'
            )
            raise InvalidParameter(
                f"{where} holds a value twice: {seen[word]!r} and {value!r} are read alike, as {word!r}; list each "
                f"once{keep}."
            )
        seen[word] = value


def _check_missing(name: str, missing: Any) -> None:
    if missing is not None:
        _check.choice(f"columns.{name}.missing", missing, MISSING_RULES)


def column_from_dict(name: str, entry: object) -> Column:
    """A column from {"range": [low, high], ...} or {"categories": [...], ...}."""
    where = f"columns.{name}"
    if not isinstance(entry, Mapping):
        raise InvalidParameter(f"{where} must be a table with 'range' or 'categories', got {entry!r}.")
    known = {"categories", "other", "as", "missing"}
    if "range" in entry:
        known = {"range", "transform", "missing", "basis", "monotone"}
    for word in ("basis", "monotone"):
        if word in entry and "categories" in entry:
            raise InvalidParameter(
                f"{where}.{word} needs a column with a range: categories have no order; leave it out."
            )
    unknown = sorted(set(entry) - known)
    if ("range" in entry) == ("categories" in entry) or unknown:
        raise InvalidParameter(
            f"{where} needs either 'range' (with 'transform', 'missing', 'basis', 'monotone') or 'categories' "
            f"(with 'other', 'as', 'missing'); got {sorted(entry)}."
        )
    if "range" in entry:
        low, high = _pair(f"{where}.range", entry["range"])
        return NumericColumn(
            name=name,
            low=low,
            high=high,
            transform=entry.get("transform", "identity"),
            missing=entry.get("missing"),
            basis=Basis.from_dict(where, entry["basis"]) if entry.get("basis") is not None else None,
            monotone=entry.get("monotone"),
        )
    values = entry["categories"]
    if not isinstance(values, (list, tuple)):
        raise InvalidParameter(f"{where}.categories must be a list, got {values!r}.")
    kind = _check.choice(f"{where}.as", entry.get("as", "label"), ("label", "text"))
    return CategoricalColumn(
        name=name,
        categories=tuple(values),
        other=entry.get("other", "ignore"),
        text=kind == "text",
        missing=entry.get("missing"),
    )


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
