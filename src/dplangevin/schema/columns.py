"""Columns of a public schema: ranges, categories, those from dates and hashes, and spline bases on public knots.

A function with values v_1, ..., v_k at the knots is v = a 1 + T beta with T = [s / sqrt 2, D^T M]: s are the knots
rescaled to [-1, 1], D takes second differences and M = (D D^T + smooth (D D^T)^2)^(-1/2) is the symmetric root. The
columns of D^T M are orthogonal to straight lines, and for v = D^T M gamma

    |gamma|^2 = |v|^2 + smooth |D v|^2,

so the ridge on beta penalizes (twice) the squared slope, the distance from a straight line, and second differences.
The constant a belongs to the intercept column of the table. A cell x is encoded as the row T^T h(x), where h(x) are
the values of the linear B-splines on the knots (at most two are nonzero; they sum to 1). |T^T h|^2 is convex in h and
h(x) is linear between knots, so its maximum over the range is attained at a knot: `max_squared_norm` is exact. The
problem that is solved has rows of bounded norm and one isotropic ridge, so every privacy theorem applies unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.tables.cells import (
    DATE_FORMATS,
    DATE_PARTS,
    PART_VALUES,
    DateFormat,
    DatePart,
    DateReading,
    HashReading,
    Reading,
    days_of_text,
    label_indices,
    read_label,
    text_of_days,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


MAX_KNOTS = 200
MIN_KNOT_GAP = 1e-6
"""Smallest gap between knots, as a fraction of the range: closer knots coincide after rounding."""
LINEAR = math.sqrt(0.5)
"""Weight of the linear coordinate, chosen so that rows at the ends of the range are hardly longer than inside it."""
Monotone = Literal["increasing", "decreasing"]


@dataclass(frozen=True, kw_only=True)
class SplineBasis:
    """Linear spline basis of a numeric column, on `n_knots` equally spaced knots or on the knots given.

    Parameters
    ----------
    n_knots : number of knots, including the two ends of the range (2: a straight line).
    knots : instead of n_knots, the interior knots, in the units of the table.
    smooth : weight of the squared second differences in the penalty, added to the squared distance from a straight
        line.

    Examples
    --------
    >>> SplineBasis(n_knots=5).knot_positions(0.0, 100.0)
    (0.0, 25.0, 50.0, 75.0, 100.0)
    """

    n_knots: int | None = None
    knots: tuple[float, ...] | None = None
    smooth: float = 0.0

    def __post_init__(self) -> None:
        if (self.n_knots is None) == (self.knots is None):
            raise InvalidParameter("basis needs either 'n_knots', a number, or 'knots', a list of numbers.")
        _check.set_frozen(self, smooth=_check.check_nonnegative("basis.smooth", self.smooth))
        if self.n_knots is not None:
            _check.set_frozen(self, n_knots=_check.check_count("basis.n_knots", self.n_knots, minimum=2))
            if self.n_knots > MAX_KNOTS:
                raise InvalidParameter(f"basis.n_knots must be at most {MAX_KNOTS}, got {self.n_knots}.")
        elif not isinstance(self.knots, (list, tuple)) or not 0 < len(self.knots) <= MAX_KNOTS - 2:
            raise InvalidParameter(f"basis.knots must be a list of 1 to {MAX_KNOTS - 2} numbers.")
        else:
            positions = tuple(_read_number(knot) for knot in self.knots)
            if any(not first < second for first, second in pairwise(positions)):
                raise InvalidParameter(f"basis.knots must be increasing numbers, got {list(self.knots)}.")
            _check.set_frozen(self, knots=positions)

    @classmethod
    def from_dict(cls, where: str, entry: object) -> SplineBasis:
        """Return the basis of a file entry: {"n_knots": 8} or {"knots": [...]}, optionally with "smooth"."""
        if not isinstance(entry, Mapping) or set(entry) - {"n_knots", "knots", "smooth"}:
            raise InvalidParameter(
                f"{where}.basis must be a table such as {{'n_knots': 8}}, with 'n_knots' or 'knots', and optionally "
                "'smooth'."
            )
        return cls(**entry)

    def to_dict(self) -> dict[str, Any]:
        """Return the basis as an entry of the file format."""
        entry: dict[str, Any] = (
            {"n_knots": self.n_knots} if self.knots is None else {"knots": list(self.knots)}
        )
        return entry | ({"smooth": self.smooth} if self.smooth else {})

    def knot_positions(self, low: float, high: float) -> tuple[float, ...]:
        """Return all knots of a column with this range, its two ends included."""
        if self.n_knots is not None:
            last = self.n_knots - 1
            return (*(low + (high - low) * position / last for position in range(last)), high)
        assert self.knots is not None
        return (low, *self.knots, high)

    def check_range(self, name: str, low: float, high: float) -> None:
        """Raise if a knot lies outside the stated range."""
        if self.knots is not None and not (low < self.knots[0] and self.knots[-1] < high):
            raise InvalidParameter(
                f"columns.{name}.basis.knots must lie strictly between {low:g} and {high:g}; the two ends of the "
                "range are knots already."
            )

    @staticmethod
    def check_gaps(name: str, knots: tuple[float, ...]) -> None:
        """Raise if two knots, on the scale of the transform, are so close that rounding would merge them."""
        if not min(second - first for first, second in pairwise(knots)) >= MIN_KNOT_GAP * (
            knots[-1] - knots[0]
        ):
            raise InvalidParameter(
                f"columns.{name}.basis has knots less than {MIN_KNOT_GAP:g} of the range apart; state fewer knots, "
                "or a range in which they are further apart."
            )


@lru_cache(maxsize=256)
def knot_coordinates(knots: tuple[float, ...], smooth: float) -> NDArray[np.float64]:
    """Return T [k, k - 1], whose rows encode the knots; `knots` are given on the scale of [-1, 1].

    Examples
    --------
    >>> knot_coordinates((-1.0, 0.0, 1.0), 0.0).round(3).tolist()
    [[-0.707, 0.408], [0.0, -0.816], [0.707, 0.408]]
    """
    import numpy as np

    scale = np.asarray(knots, np.float64)
    if len(scale) == 2:
        table = scale[:, None]
    else:
        widths = np.diff(scale) / np.mean(np.diff(scale))
        second = np.zeros((len(scale) - 2, len(scale)))
        inner = np.arange(len(scale) - 2)
        second[inner, inner], second[inner, inner + 2] = 1 / widths[:-1], 1 / widths[1:]
        second[inner, inner + 1] = -1 / widths[:-1] - 1 / widths[1:]
        left, sizes, right = np.linalg.svd(second.T, full_matrices=False)
        with np.errstate(over="ignore"):
            # D^T M through the singular values of D: squaring D would square its condition number.
            curvature = (left / np.sqrt(1 + smooth * sizes**2)) @ right
        table = np.column_stack([LINEAR * scale, curvature])
    table.setflags(write=False)
    return table


def max_squared_norm(table: NDArray[np.float64]) -> float:
    """Return the largest squared norm of an encoded cell over the whole range, rounded up."""
    return float((table * table).sum(axis=1).max()) * (1 + 1e-12)


def _read_number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else math.nan


Transform = Literal["identity", "log1p"]
Other = Literal["ignore", "own"]
Missing = Literal["own", "middle", "never"]
MISSING_RULES: tuple[Missing, ...] = ("own", "middle", "never")
Category = str | int | float | bool
MAX_BUCKETS = 4096
"""Most buckets of a hashed column."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """What is encoded of a column of the table: a range or a list of categories, and how a cell is read for it.

    Parameters
    ----------
    column : range or categories, under the name that the encoded columns bear.
    source : name of the column in the table.
    reading : what is derived from a cell first; None: nothing.
    """

    column: PlainColumn
    source: str
    reading: Reading | None = None

    def cells(self, table: Any) -> Any:
        """Return the cells of a table for this feature, unread."""
        from dplangevin.tables.columns import DerivedColumn

        cells = table.column(self.source)
        return cells if self.reading is None else DerivedColumn(cells, self.reading)


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
    def features(self) -> tuple[Feature, ...]:
        """The column itself."""
        return (Feature(column=self, source=self.name),)

    @property
    def extent(self) -> str:
        """The range, for people."""
        return f"{self.low:g} to {self.high:g}"

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
    def features(self) -> tuple[Feature, ...]:
        """The column itself."""
        return (Feature(column=self, source=self.name),)

    @property
    def extent(self) -> str:
        """The number of categories, for people."""
        return f"{len(self.categories)} categories"

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


@dataclass(frozen=True, kw_only=True)
class DateColumn:
    """Column of dates or times, encoded by its parts: a trend over a public range, and indicators of the calendar.

    A time with a zone is converted to UTC, one without is taken as it is written; a cell that states no date is
    missing. Dates outside the range are clipped in the trend; their calendar parts are their own.

    Parameters
    ----------
    name : of the column.
    low, high : the public range, as days since 1970-01-01.
    parts : "trend" (a number), "quarter", "month", "weekday" (1 is Monday), "hour" (indicators).
    date_format : "iso" (2026-01-31 12:30), "day.month.year" (31.1.2026, also with / or -), "month/day/year",
        "yyyymmdd" or "unix" (seconds since 1970). Dates in ISO form are read under each.
    missing : rule for missing cells, see `Schema`; None takes the rule of the schema.
    basis : a linear spline basis for the trend.
    """

    name: str
    low: float
    high: float
    parts: tuple[DatePart, ...] = ("trend", "month", "weekday")
    date_format: DateFormat = "iso"
    missing: Missing | None = None
    basis: SplineBasis | None = None

    def __post_init__(self) -> None:
        where = f"columns.{self.name}"
        _check_missing(self.name, self.missing)
        _check.set_frozen(self, parts=tuple(self.parts))
        if not self.parts or len(set(self.parts)) < len(self.parts):
            raise InvalidParameter(
                f"{where}.parts must name at least one part, each once; got {list(self.parts)}."
            )
        for part in self.parts:
            _check.check_choice(f"{where}.parts", part, DATE_PARTS)
        _check.check_choice(f"{where}.format", self.date_format, DATE_FORMATS)
        if self.basis is not None and ("trend" not in self.parts or self.basis.knots is not None):
            raise InvalidParameter(f"{where}.basis needs the part 'trend', and 'n_knots' instead of 'knots'.")
        NumericColumn(name=self.name, low=self.low, high=self.high, basis=self.basis)

    @property
    def features(self) -> tuple[Feature, ...]:
        """The trend as a number, every other part as categories."""
        return tuple(
            Feature(
                column=self._part_column(part),
                source=self.name,
                reading=DateReading(part=part, date_format=self.date_format),
            )
            for part in self.parts
        )

    def _part_column(self, part: DatePart) -> PlainColumn:
        name = f"{self.name} {part}"
        if part == "trend":
            return NumericColumn(
                name=name, low=self.low, high=self.high, basis=self.basis, missing=self.missing
            )
        return CategoricalColumn(name=name, categories=PART_VALUES[part], missing=self.missing)

    @property
    def extent(self) -> str:
        """The range and the parts, for people."""
        return f"{text_of_days(self.low)} to {text_of_days(self.high)} ({', '.join(self.parts)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the column as an entry of the file format."""
        extra: dict[str, Any] = {} if self.date_format == "iso" else {"format": self.date_format}
        if self.missing is not None:
            extra["missing"] = self.missing
        if self.basis is not None:
            extra["basis"] = self.basis.to_dict()
        dates = [text_of_days(self.low), text_of_days(self.high)]
        return {"dates": dates, "parts": list(self.parts), **extra}


@dataclass(frozen=True, kw_only=True)
class HashedColumn:
    """Column of very many categories, each encoded as one of `n_buckets` public buckets.

    The bucket of a cell is a public hash of its label, so no list is stated and none is learned. Categories that share
    a bucket share a coefficient; a missing cell has no bucket.

    Parameters
    ----------
    name : of the column.
    n_buckets : how many, at least 2.
    text : compare texts character by character, see `CategoricalColumn`.
    missing : rule for missing cells, see `Schema`; None takes the rule of the schema.
    """

    name: str
    n_buckets: int
    text: bool = False
    missing: Missing | None = None

    def __post_init__(self) -> None:
        _check_missing(self.name, self.missing)
        n_buckets = _check.check_count(f"columns.{self.name}.hash", self.n_buckets, minimum=2)
        if n_buckets > MAX_BUCKETS:
            raise InvalidParameter(
                f"columns.{self.name}.hash must be at most {MAX_BUCKETS} buckets, got {n_buckets}."
            )

    @property
    def features(self) -> tuple[Feature, ...]:
        """The bucket, as a category."""
        buckets = CategoricalColumn(
            name=f"{self.name} bucket", categories=tuple(range(self.n_buckets)), missing=self.missing
        )
        reading = HashReading(n_buckets=self.n_buckets, keeps_text=self.text)
        return (Feature(column=buckets, source=self.name, reading=reading),)

    @property
    def extent(self) -> str:
        """The number of buckets, for people."""
        return f"{self.n_buckets} hashed buckets"

    def to_dict(self) -> dict[str, Any]:
        """Return the column as an entry of the file format."""
        extra: dict[str, Any] = {"as": "text"} if self.text else {}
        if self.missing is not None:
            extra["missing"] = self.missing
        return {"hash": self.n_buckets, **extra}


PlainColumn = NumericColumn | CategoricalColumn
Column = PlainColumn | DateColumn | HashedColumn


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


COLUMN_KEYS: dict[str, set[str]] = {
    "range": {"transform", "missing", "basis", "monotone"},
    "categories": {"other", "as", "missing"},
    "dates": {"parts", "format", "missing", "basis"},
    "hash": {"as", "missing"},
}
"""What a file may state about a column, by the key that decides its kind."""


def refuse_identifier(name: str) -> InvalidParameter:
    """Return the error for a column that is declared an identifier."""
    return InvalidParameter(
        f"column {name!r} is an id: it says who a row belongs to, so it is no feature. Leave it out of the schema; if "
        f"one person may own several rows, pass person={name!r} to the estimator (--person on the command line) and "
        "the guarantee covers all of them."
    )


def column_from_dict(name: str, entry: object) -> Column:
    """Return a column from an entry of the file format: {"range": [low, high], ...}, {"categories": [...], ...},
    {"dates": [first, last], ...} or {"hash": buckets, ...}."""
    where = f"columns.{name}"
    if not isinstance(entry, Mapping):
        raise InvalidParameter(f"{where} must be a table with 'range' or 'categories', got {entry!r}.")
    if "id" in entry:
        raise refuse_identifier(name)
    kinds = [kind for kind in COLUMN_KEYS if kind in entry]
    if entry.get("dates") == "learn":
        raise InvalidParameter(
            f"{where}.dates cannot be learned; state two dates between which the column's values are possible."
        )
    for key in ("basis", "monotone"):
        if key in entry and ("categories" in kinds or "hash" in kinds):
            raise InvalidParameter(
                f"{where}.{key} needs a column with a range: categories have no order; leave it out."
            )
    if len(kinds) != 1 or set(entry) - COLUMN_KEYS[kinds[0]] - set(kinds):
        choices = " or ".join(
            f"{kind!r} (with {', '.join(map(repr, sorted(keys)))})" for kind, keys in COLUMN_KEYS.items()
        )
        raise InvalidParameter(f"{where} needs either {choices}; got {sorted(entry)}.")
    rest: dict[str, Any] = {"name": name, "missing": entry.get("missing")}
    if entry.get("basis") is not None:
        rest["basis"] = SplineBasis.from_dict(where, entry["basis"])
    if "as" in entry:
        rest["text"] = _check.check_choice(f"{where}.as", entry["as"], ("label", "text")) == "text"
    if "range" in kinds:
        low, high = _read_range(f"{where}.range", entry["range"])
        rest |= {key: entry[key] for key in ("transform", "monotone") if key in entry}
        return NumericColumn(low=low, high=high, **rest)
    if "dates" in kinds:
        first, last = _read_range(f"{where}.dates", entry["dates"])
        if "parts" in entry:
            if not isinstance(entry["parts"], list | tuple):
                raise InvalidParameter(f"{where}.parts must be a list of parts, got {entry['parts']!r}.")
            rest["parts"] = tuple(entry["parts"])
        rest |= {"date_format": entry["format"]} if "format" in entry else {}
        return DateColumn(low=_read_day(where, first), high=_read_day(where, last), **rest)
    if "hash" in kinds:
        return HashedColumn(n_buckets=entry["hash"], **rest)
    values = entry["categories"]
    if not isinstance(values, (list, tuple)):
        raise InvalidParameter(f"{where}.categories must be a list, got {values!r}.")
    return CategoricalColumn(categories=tuple(values), other=entry.get("other", "ignore"), **rest)


def _read_day(where: str, value: Any) -> float:
    """Return a public end of a range of dates, as days since 1970-01-01."""
    text = value.isoformat() if hasattr(value, "isoformat") else value
    days = days_of_text(text) if isinstance(text, str) else None
    if days is None:
        raise InvalidParameter(f"{where}.dates must be two dates such as '2026-01-31', got {value!r}.")
    return days


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
