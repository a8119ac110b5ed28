"""Values derived from the label of one cell: parts of a date, and the bucket of a public hash function.

`cells.read_label` gives a cell the same label in every container, so a function of the label is a function of the cell
alone: no other record, no locale, no time zone of a machine and no inferred type can change what a cell becomes.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Literal

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
