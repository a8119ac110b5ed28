"""Reference rule for reading one cell, as a pure function of that cell; every faster path must agree with it.

A cell is read as a number (where a range is stated) or as a label (where categories or classes are stated).
Containers merge types: one odd record turns the integers of its column into floats or texts. So a cell and every text
that a container would write for it are read alike: 1, 1.0, True, "1", "1.0" and "True" are the label "1" and the
number 1.

The rule is total. A cell that holds exactly one value (a zero-dimensional array, an array or tensor, a list or a
tuple of one element, an Arrow scalar) is that value; any other object with `__float__` or `__index__` is that number;
a cell that raises is missing. A text longer than MAX_NUMBER_LENGTH is not a number, and every pattern runs in linear
time, so that the time to read a cell is linear in its length.

Values derived from a label (parts of a date, the bucket of a public hash function) are functions of the cell too:
`read_label` gives a cell the same label in every container, so no other record, locale or time zone of a machine
can change what a cell becomes.
"""

from __future__ import annotations

import hashlib
import math
import numbers
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

NAN = math.nan
MAX_NUMBER_LENGTH = 4400
"""Longest text, in characters, that may be a number: Python, and hence every container, writes at most 4300 digits."""
_MAX_NESTING = 8
# Possessive quantifiers (`++`, `*+`) do not backtrack: the work is linear in the length of the text.
_NUMBER = re.compile(
    r"[ \t]*+([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?(?:infinity|inf)|nan)[ \t]*+",
    re.ASCII | re.IGNORECASE,
)
_PLAIN_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?|-?inf", re.ASCII)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*+)", re.ASCII)
_REAL = re.compile(r"\((.+)[+-]0j\)")  # how a complex array writes real numbers
_NOT_A_NUMBER = re.compile(  # NaN as a real or a complex array writes it
    r"[ \t]*+nan[ \t]*+|nanj|\((?:nan[+-][0-9.einf+-]++j|(?:[0-9.e+-]++|-?inf[+-]|nan[+-])nanj)\)",
    re.ASCII | re.IGNORECASE,
)
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]++))?)?(Z|\+00:00)?",
    re.ASCII,
)
_COMMA_DECIMAL = re.compile(r"[ \t]*+[+-]?(?:[0-9]++,[0-9]*+|,[0-9]++)(?:[eE][+-]?[0-9]++)?[ \t]*+", re.ASCII)
_BOOLEAN_WORDS = {"true": 1.0, "false": 0.0}
MAX_EXACT_INTEGER = 2.0**53
"""Whole numbers from here on may be rounded by a container of doubles."""


def read_number(cell: Any) -> float:
    """Return the cell as a double; NaN where it is not a number (null, date, other text, any other object).

    Examples
    --------
    >>> [read_number(cell) for cell in (1, "1.50", True, "False", 10**400, 2 + 0j, b"7", [1], ("1",))]
    [1.0, 1.5, 1.0, 0.0, inf, 2.0, 7.0, 1.0, 1.0]
    >>> [read_number(cell) for cell in (None, "", "?", 1j, b"\\xff", [1, 2], [], {1}, object())]
    [nan, nan, nan, nan, nan, nan, nan, nan, nan]
    """
    kind = type(cell)
    if kind is float:
        return float(cell)
    if kind is str:
        return _parse_number(cell.rstrip("\0"))
    try:
        return _read_scalar_number(cell if kind is int else _unwrap_single(cell))
    except Exception:  # raised by an object's own methods; its message may quote a private value
        return NAN


def replace_decimal_comma(text: str) -> str:
    """Return a number that is written with a decimal comma with a point instead, and any other text as it is.

    Examples
    --------
    >>> [replace_decimal_comma(text) for text in ("3,14", "-,5e3", "1.234,5", "a,b", "1,2,3", "7")]
    ['3.14', '-.5e3', '1.234,5', 'a,b', '1,2,3', '7']
    """
    return text.replace(",", ".") if _COMMA_DECIMAL.fullmatch(text) else text


def read_label(cell: Any, *, text: bool = False) -> str | None:
    """Return the canonical label of the cell; None where it is missing.

    The label of a numeric text is the shortest form of that number, true and false are 1 and 0, dates are written as
    2026-01-31 or 2026-01-31 12:30:00, and every other text is its own label. With `text` a text keeps its characters
    (above all leading zeros) unless a container may have written it for a number or a boolean: a plain decimal
    without leading zeros, plus sign or blanks is a number.

    Examples
    --------
    >>> [read_label(cell) for cell in (1, 1.0, "1", "1.0", "01", True, "True", "a", " a")]
    ['1', '1', '1', '1', '1', '1', '1', 'a', ' a']
    >>> [read_label(cell, text=True) for cell in ("02139", "2139.0", 2139, "1E5")]
    ['02139', '2139', '2139', '1E5']
    >>> [read_label(cell) for cell in (None, "", float("nan"), "nan", b"\\xff", [1, 2])]
    [None, None, None, None, None, None]
    """
    if type(cell) is str:
        return _label_of_text(cell.rstrip("\0"), text)
    try:
        return _read_scalar_label(_unwrap_single(cell), text)
    except Exception:  # raised by an object's own methods; its message may quote a private value
        return None


def _read_scalar_label(cell: Any, text: bool) -> str | None:
    """Return the label of a cell that holds one value."""
    if isinstance(cell, str):
        return _label_of_text(cell.rstrip("\0"), text)
    if type(cell).__name__ == "datetime64":
        return _label_of_date(str(cell))
    if isinstance(cell, date):
        return _label_of_datetime(cell)
    value = _read_scalar_number(cell)
    if value != value and isinstance(cell, numbers.Complex) and cell.imag and cell == cell:
        return str(complex(cell))
    return None if value != value else shortest_text(value)


def label_indices(values: Iterable[Any], text: bool = False) -> dict[str, int]:
    """Return the index of each value by its label; missing values and repeated labels are left out."""
    indices: dict[str, int] = {}
    for index, value in enumerate(values):
        label = read_label(value, text=text)
        if label is not None:
            indices.setdefault(label, index)
    return indices


def read_person(cell: Any) -> str | None:
    """Return the identifier of the person a row belongs to; None where it is missing or ambiguous.

    Two persons must never share an identifier, nor one person have two: 1, 1.0 and "1" are the same (a container may
    write one for the other), and a text that no container writes for a number keeps its characters. A whole number of
    2^53 or more, in whatever form, is ambiguous, because one missing cell in its column makes a container round it;
    so is a number with more digits than a double has.

    Examples
    --------
    >>> [read_person(cell) for cell in (7, 7.0, "7", "7.0", "07", "12.10", "12e500")]
    ['7', '7', '7', '7', '07', '12.10', '12e500']
    >>> [read_person(cell) for cell in (None, "", 2**53 + 1, "9007199254740993", 1e300)]
    [None, None, None, None, None]
    """
    try:
        return _read_scalar_person(_unwrap_single(cell))
    except Exception:  # raised by an object's own methods; its message may quote a private value
        return None


def _read_scalar_person(cell: Any) -> str | None:
    """Return the person identifier of a cell that holds one value."""
    if not isinstance(cell, str):
        value = _read_scalar_number(cell)
        return (
            _read_scalar_label(cell, False)
            if value != value
            else _unambiguous_label(value)
            if _is_exact_double(cell, value)
            else None
        )
    cell = cell.rstrip("\0")
    value = _parse_number(cell)
    if value == value and (_WHOLE.fullmatch(cell) or _is_written_exactly_as(cell, value)):
        return _unambiguous_label(value)
    label = _label_of_text(cell, True)
    return cell if label is not None and value == value else label


def shortest_text(value: float) -> str:
    """Return the shortest text that reads as this double, without a trailing .0; both zeros are 0."""
    text = repr(value + 0.0)
    return text[:-2] if text.endswith(".0") else text


def _unwrap_single(cell: Any) -> Any:
    """Return the one value that a cell holds, texts and bytes as plain texts; None where it holds none, or several."""
    for _ in range(_MAX_NESTING):
        if isinstance(cell, str):
            return str.__str__(cell)  # a subclass of str may override methods
        if isinstance(cell, bytes):
            return _decode_bytes(cell)
        inner = _unwrap_container(cell)
        if inner is cell:
            return cell
        cell = inner
    return None


def _unwrap_container(cell: Any) -> Any:
    """Return the element of a container of one, None for another length, the cell itself where it is no container.

    NumPy is not imported, since a schema does not need it: if nobody imported it, there are no arrays.
    """
    if cell is None or isinstance(cell, bool | int | float | Decimal | date):
        return cell
    if isinstance(cell, list | tuple):
        return cell[0] if len(cell) == 1 else None
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(cell, numpy.generic):
        return cell.item() if isinstance(cell, numpy.void) else cell
    if type(cell).__module__.partition(".")[0] == "pyarrow" and hasattr(cell, "as_py"):
        return cell.as_py()
    shape = getattr(cell, "shape", None)
    if not isinstance(shape, tuple) or not hasattr(cell, "item"):
        return cell
    if math.prod(shape) != 1 or type(cell).__name__.startswith("Masked"):
        return None
    kind = getattr(getattr(cell, "dtype", None), "kind", "")
    if numpy is not None and (isinstance(cell, numpy.ndarray) or kind in ("m", "M")):
        return numpy.asarray(cell).reshape(-1)[0]  # item() would turn a time into an integer
    with warnings.catch_warnings(action="ignore"):
        return cell.item()


def _read_scalar_number(cell: Any) -> float:
    """Return the number in a cell that holds one value."""
    if isinstance(cell, str):
        return _parse_number(cell.rstrip("\0"))
    if isinstance(cell, numbers.Complex) and not isinstance(cell, numbers.Real):
        return _read_real(cell.real) if cell.imag == 0 else NAN
    if isinstance(cell, date | time | timedelta) or type(cell).__name__ in ("timedelta64", "datetime64"):
        return NAN  # as a number, a time would need a unit
    if isinstance(cell, numbers.Real | Decimal) or _is_numpy_bool(cell):
        return _read_real(cell)
    kind = type(cell)
    with warnings.catch_warnings(action="ignore"):
        if hasattr(kind, "__float__"):
            return float(cell)
        return _read_real(operator.index(cell)) if hasattr(kind, "__index__") else NAN


def _is_numpy_bool(cell: Any) -> bool:
    """Whether the cell is a NumPy boolean, which is not a `numbers.Real`; tested without importing NumPy."""
    return type(cell).__module__ == "numpy" and type(cell).__name__ in ("bool", "bool_")


def _read_real(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def _parse_number(cell: str) -> float:
    if len(cell) > MAX_NUMBER_LENGTH:
        return NAN
    real = _REAL.fullmatch(cell)
    match = _NUMBER.fullmatch(cell if real is None else real[1])
    return _BOOLEAN_WORDS.get(cell.lower(), NAN) if match is None else float(match[1])


def _label_of_text(cell: str, keep: bool) -> str | None:
    """Return the label of a text; with `keep`, its characters unless a container may have written it for a number."""
    try:
        cell.encode()
    except UnicodeEncodeError:  # a lone surrogate, which no file can hold
        return None
    value = _parse_number(cell)
    if value == value:
        if not keep or _is_written_as(cell, value):
            return shortest_text(value)
        return cell
    if not cell or (len(cell) <= MAX_NUMBER_LENGTH and _NOT_A_NUMBER.fullmatch(cell) is not None):
        return None
    return _label_of_date(cell)


def _is_written_as(cell: str, value: float) -> bool:
    """Whether a container may write this number (or boolean) as this text."""
    if cell in ("True", "False", "true", "false") or _PLAIN_NUMBER.fullmatch(cell) or _REAL.fullmatch(cell):
        return True
    return "e" in cell.lower() and not 1e-4 <= abs(value) < 1e16 and value != 0


def _is_written_exactly_as(cell: str, value: float) -> bool:
    return cell in (repr(value), "True", "False", "true", "false") or _REAL.fullmatch(cell) is not None


def _is_exact_double(cell: Any, value: float) -> bool:
    """Whether no other number of the cell's type rounds to this double: a Decimal may have more digits."""
    return bool(cell == value or (isinstance(cell, Decimal) and Decimal(repr(value)) == cell))


def _unambiguous_label(value: float) -> str | None:
    return shortest_text(value) if abs(value) < MAX_EXACT_INTEGER else None


def _decode_bytes(cell: bytes) -> str | None:
    try:
        return bytes.decode(cell)
    except UnicodeDecodeError:
        return None


def _label_of_date(cell: str) -> str | None:
    match = _DATE.fullmatch(cell)
    if match is None:
        return None if cell == "NaT" else cell
    day, clock, seconds, fraction, zone = match.groups()
    fraction = (fraction or "").rstrip("0")
    time = f" {clock}{seconds or ':00'}" + ("." + fraction if fraction else "") if clock else ""
    return day + ("" if time == " 00:00:00" else time) + ("Z" if zone else "")


def _label_of_datetime(cell: date) -> str | None:
    try:
        if isinstance(cell, datetime) and cell.tzinfo is not None:
            cell = cell.astimezone(UTC)
        return _label_of_date(cell.isoformat())
    except (OverflowError, ValueError, TypeError, NotImplementedError):  # NaT, and dates outside the calendar
        return None


DatePart = Literal["trend", "quarter", "month", "weekday", "hour"]
DateFormat = Literal["iso", "day.month.year", "month/day/year", "yyyymmdd", "unix"]
DATE_FORMATS: tuple[DateFormat, ...] = ("iso", "day.month.year", "month/day/year", "yyyymmdd", "unix")
PART_VALUES: dict[DatePart, tuple[int, ...]] = {
    "quarter": tuple(range(1, 5)),
    "month": tuple(range(1, 13)),
    "weekday": tuple(range(1, 8)),
    "hour": tuple(range(24)),
}
"""Values of the parts that are categories; weekdays are numbered from Monday (1) to Sunday (7)."""
DATE_PARTS: tuple[DatePart, ...] = ("trend", *PART_VALUES)
_DAY_SECONDS = 86400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MAX_LABEL_LENGTH = 64
_CLOCK = r"(?:[ T]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,12})?)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?"
_ISO = re.compile(rf"([0-9]{{4}})(?:-([0-9]{{2}})(?:-([0-9]{{2}}){_CLOCK})?)?", re.ASCII)
_SEPARATED = re.compile(rf"([0-9]{{1,2}})[./-]([0-9]{{1,2}})[./-]([0-9]{{4}}){_CLOCK}", re.ASCII)
_PLAIN_SECONDS = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]+)?", re.ASCII)
_COMPACT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})", re.ASCII)


def read_date(label: str, date_format: DateFormat = "iso") -> int | None:
    """Return the time that a cell's label states, in whole seconds since 1970-01-01; None where it states none.

    A time with a zone is converted to UTC, one without is taken as it is written; fractions of a second are dropped,
    so that containers of different resolution agree. Dates in ISO form are read whatever the format.

    Examples
    --------
    >>> read_date("2026-01-31"), read_date("2026-01-31 01:00:00+01:00"), read_date("31.1.2026", "day.month.year")
    (1769817600, 1769817600, 1769817600)
    >>> read_date("2026-02-30"), read_date("31.1.26", "day.month.year"), read_date("soon")
    (None, None, None)
    """
    if len(label) > _MAX_LABEL_LENGTH:
        return None
    try:
        if date_format == "unix" and _PLAIN_SECONDS.fullmatch(label):
            return _check_seconds(math.floor(float(label)))
        if date_format == "yyyymmdd" and (match := _COMPACT.fullmatch(label)):
            year, month, day = map(int, match.groups())
            return _seconds(year, month, day)
        if match := _SEPARATED.fullmatch(label):
            if date_format not in ("day.month.year", "month/day/year"):
                return None
            first, second, years, *clock = match.groups()
            days, months = (first, second) if date_format == "day.month.year" else (second, first)
            return _seconds(int(years), int(months), int(days), *clock)
        match = _ISO.fullmatch(label)
        if match is None:
            return None
        years, months, days, *clock = match.groups()
        return _seconds(int(years), int(months or 1), int(days or 1), *clock)
    except (ValueError, OverflowError):  # no such day or time, or one outside the calendar
        return None


def _seconds(
    year: int,
    month: int,
    day: int,
    hour: str | None = None,
    minute: str | None = None,
    second: str | None = None,
    zone: str | None = None,
) -> int:
    """Return the seconds since 1970 of a date and a time of the day in UTC."""
    hours, minutes, seconds = (int(part or 0) for part in (hour, minute, second))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError
    offset = 0
    if zone not in (None, "Z"):
        assert zone is not None
        offset_minutes = int(zone[-2:])
        if int(zone[1:3]) > 23 or offset_minutes > 59:
            raise ValueError
        offset = (int(zone[1:3]) * 60 + offset_minutes) * (-60 if zone[0] == "-" else 60)
    days = date(year, month, day).toordinal() - _EPOCH_DAY
    return _check_seconds(days * _DAY_SECONDS + hours * 3600 + minutes * 60 + seconds - offset)


def _check_seconds(seconds: int) -> int:
    """Return the seconds; raise where they lie outside the years 1 to 9999."""
    date.fromordinal(_EPOCH_DAY + seconds // _DAY_SECONDS)
    return seconds


def days_of_text(text: str) -> float | None:
    """Return an ISO date as days since 1970-01-01."""
    seconds = read_date(text)
    return None if seconds is None else seconds / _DAY_SECONDS


def text_of_days(days: float) -> str:
    """Return days since 1970-01-01 as an ISO date, with the time where it is not midnight.

    Examples
    --------
    >>> text_of_days(20484.0), text_of_days(20484.5)
    ('2026-01-31', '2026-01-31 12:00:00')
    """
    day, second = divmod(round(days * _DAY_SECONDS), _DAY_SECONDS)
    text = date.fromordinal(_EPOCH_DAY + day).isoformat()
    return text + (f" {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}" if second else "")


def hash_bucket(label: str, n_buckets: int) -> int:
    """Return the bucket of a label: the first 64 bits of its SHA-256, modulo the number of buckets.

    Examples
    --------
    >>> [hash_bucket(label, 1000) for label in ("02139", "02140", "")]
    [4, 412, 652]
    """
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big") % n_buckets


@dataclass(frozen=True, kw_only=True)
class DateReading:
    """One part of the date in a cell: days since 1970 ("trend"), or the number of a quarter, month, weekday or hour."""

    part: DatePart
    date_format: DateFormat
    keeps_text = False

    def derive(self, label: str) -> float | None:
        """Return the part of the date that a label states, or None."""
        seconds = read_date(label, self.date_format)
        if seconds is None:
            return None
        if self.part == "trend":
            return seconds / _DAY_SECONDS
        if self.part == "hour":
            return seconds % _DAY_SECONDS // 3600
        day = date.fromordinal(_EPOCH_DAY + seconds // _DAY_SECONDS)
        parts: dict[str, Callable[[], int]] = {
            "quarter": lambda: (day.month + 2) // 3,
            "month": lambda: day.month,
            "weekday": day.isoweekday,
        }
        return parts[self.part]()

    def to_dict(self) -> dict[str, str]:
        """Return the reading as plain data."""
        return {"date": self.part, "format": self.date_format}


@dataclass(frozen=True, kw_only=True)
class HashReading:
    """The public bucket of a cell's label."""

    n_buckets: int
    keeps_text: bool

    def derive(self, label: str) -> float:
        """Return the bucket of a label."""
        return hash_bucket(label, self.n_buckets)

    def to_dict(self) -> dict[str, int | str]:
        """Return the reading as plain data."""
        return {"hash": self.n_buckets, "as": "text" if self.keeps_text else "label"}


Reading = DateReading | HashReading
