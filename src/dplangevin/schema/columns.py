"""Columns of a public schema: a numeric column has a stated range, a categorical one a stated list of categories."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.schema.basis import Monotone, SplineBasis
from dplangevin.tables.cells import label_indices, read_label

Transform = Literal["identity", "log1p"]
Other = Literal["ignore", "own"]
Missing = Literal["own", "middle", "never"]
MISSING_RULES: tuple[Missing, ...] = ("own", "middle", "never")
Category = str | int | float | bool


@dataclass(frozen=True, kw_only=True)
class NumericColumn:
    """Numeric column whose values are clipped to [low, high].

    Parameters
    ----------
    name : of the column.
    low, high : the public range.
    transform : "identity", or "log1p" for the scale log(1 + value).
    missing : rule for missing cells, see `Schema`; None takes the rule of the schema.
    basis : a linear spline basis, so that the score is a piecewise-linear function of the column.
    monotone : "increasing" or "decreasing"; the released function is projected, which costs no privacy budget.
    """

    name: str
    low: float
    high: float
    transform: Transform = "identity"
    missing: Missing | None = None
    basis: SplineBasis | None = None
    monotone: Monotone | None = None

    def __post_init__(self) -> None:
        _check_missing(self.name, self.missing)
        _check.set_frozen(self, low=_read_finite(f"columns.{self.name}.range[0]", self.low))
        _check.set_frozen(self, high=_read_finite(f"columns.{self.name}.range[1]", self.high))
        _check.set_frozen(
            self,
            transform=_check.check_choice(
                f"columns.{self.name}.transform", self.transform, ("identity", "log1p")
            ),
        )
        if not self.low < self.high:
            raise InvalidParameter(
                f"columns.{self.name}.range must be [low, high] with low < high, got [{self.low:g}, {self.high:g}]."
            )
        if not math.isfinite(self.high - self.low):
            raise InvalidParameter(
                f"columns.{self.name}.range is wider than a double can represent; state a narrower one."
            )
        if self.transform == "log1p" and self.low <= -1:
            raise InvalidParameter(
                f"columns.{self.name}.transform = 'log1p' needs a range above -1, got {self.low:g}; raise the low end."
            )
        if self.basis is not None:
            self.basis.check_range(self.name, self.low, self.high)
            self.basis.check_gaps(self.name, self.knots)
        if self.monotone is not None:
            _check.check_choice(f"columns.{self.name}.monotone", self.monotone, ("increasing", "decreasing"))

    @property
    def knots(self) -> tuple[float, ...]:
        """Knots on the scale of the transform; without a basis, the two ends of the range."""
        scale = math.log1p if self.transform == "log1p" else float
        low, high = scale(self.low), scale(self.high)
        if self.basis is None or self.basis.knots is None:
            return (low, high) if self.basis is None else self.basis.knot_positions(low, high)
        return (low, *map(scale, self.basis.knots), high)

    def to_dict(self) -> dict[str, Any]:
        """Return the column as an entry of the file format."""
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
    """Categorical column with a public list of categories.

    Cells and categories are compared by their labels (`dplangevin.tables.read_label`): 1, 1.0, "1" and "1.0" are the
    same category.

    Parameters
    ----------
    name : of the column.
    categories : texts, numbers or booleans; the list is public.
    other : what an unlisted value becomes: "ignore" encodes it as no category, "own" as a category of its own.
    text : compare texts character by character, so that "02139" is not 2139 (in the file: "as": "text").
    missing : rule for missing cells, see `Schema`; None takes the rule of the schema.
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
            # `not <=` rather than `>`: NaN is refused too.
            is_unrepresentable = isinstance(value, (int, float)) and not abs(value) <= 1e300
            if not isinstance(value, (str, int, float, bool)) or is_unrepresentable:
                raise InvalidParameter(
                    f"{where} holds {value!r}; categories must be texts, finite numbers or booleans."
                )
        object.__setattr__(self, "categories", tuple(self.categories))
        object.__setattr__(
            self, "other", _check.check_choice(f"columns.{self.name}.other", self.other, ("ignore", "own"))
        )
        _refuse_collisions(where, self.categories, self.text)

    @property
    def is_numeric(self) -> bool:
        """Whether every category is a number, so that SQL treats the column as numeric."""
        return all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.categories
        )

    @property
    def is_boolean(self) -> bool:
        """Whether every category is a boolean, so that SQL treats the column as boolean."""
        return all(isinstance(value, bool) for value in self.categories)

    @property
    def category_codes(self) -> dict[str, int]:
        """Index of each category by its label."""
        return label_indices(self.categories, self.text)

    def to_dict(self) -> dict[str, Any]:
        """Return the column as an entry of the file format."""
        extra: dict[str, Any] = {} if self.other == "ignore" else {"other": self.other}
        if self.text:
            extra["as"] = "text"
        if self.missing is not None:
            extra["missing"] = self.missing
        return {"categories": list(self.categories), **extra}


Column = NumericColumn | CategoricalColumn


def _refuse_collisions(where: str, values: tuple[Any, ...], text: bool) -> None:
    """Raise if two categories have the same label; the message shows them, since they are public."""
    value_by_label: dict[str, Any] = {}
    for value in values:
        label = read_label(value, text=text)
        if label is None:
            raise InvalidParameter(f"{where} holds {value!r}, which reads as a missing value; leave it out.")
        if label in value_by_label:
            remedy = (
                "" if text or not isinstance(value, str) else ', or set "as": "text" if leading zeros matter'
            )
            raise InvalidParameter(
                f"{where} holds a value twice: {value_by_label[label]!r} and {value!r} have the same label "
                f"{label!r}; list each once{remedy}."
            )
        value_by_label[label] = value


def _check_missing(name: str, missing: Any) -> None:
    if missing is not None:
        _check.check_choice(f"columns.{name}.missing", missing, MISSING_RULES)


def column_from_dict(name: str, entry: object) -> Column:
    """Return a column from an entry of the file format, {"range": [low, high], ...} or {"categories": [...], ...}."""
    where = f"columns.{name}"
    if not isinstance(entry, Mapping):
        raise InvalidParameter(f"{where} must be a table with 'range' or 'categories', got {entry!r}.")
    known = {"categories", "other", "as", "missing"}
    if "range" in entry:
        known = {"range", "transform", "missing", "basis", "monotone"}
    for key in ("basis", "monotone"):
        if key in entry and "categories" in entry:
            raise InvalidParameter(
                f"{where}.{key} needs a column with a range: categories have no order; leave it out."
            )
    unknown = sorted(set(entry) - known)
    if ("range" in entry) == ("categories" in entry) or unknown:
        raise InvalidParameter(
            f"{where} needs either 'range' (with 'transform', 'missing', 'basis', 'monotone') or 'categories' "
            f"(with 'other', 'as', 'missing'); got {sorted(entry)}."
        )
    if "range" in entry:
        low, high = _read_range(f"{where}.range", entry["range"])
        return NumericColumn(
            name=name,
            low=low,
            high=high,
            transform=entry.get("transform", "identity"),
            missing=entry.get("missing"),
            basis=SplineBasis.from_dict(where, entry["basis"]) if entry.get("basis") is not None else None,
            monotone=entry.get("monotone"),
        )
    values = entry["categories"]
    if not isinstance(values, (list, tuple)):
        raise InvalidParameter(f"{where}.categories must be a list, got {values!r}.")
    kind = _check.check_choice(f"{where}.as", entry.get("as", "label"), ("label", "text"))
    return CategoricalColumn(
        name=name,
        categories=tuple(values),
        other=entry.get("other", "ignore"),
        text=kind == "text",
        missing=entry.get("missing"),
    )


def _read_range(where: str, value: object) -> tuple[float, float]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise InvalidParameter(f"{where} must be two numbers [low, high], got {value!r}.")
    return value[0], value[1]


def _read_finite(where: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidParameter(f"{where} must be a finite number, got {value!r}.")
    return number
