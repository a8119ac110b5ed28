"""The law of reading: what one cell is, as a pure function of that cell. Every faster path must agree with it.

A cell is read as a number (a range is stated) or as a label (a list of categories or classes is stated). Containers
merge types: one odd record turns the integers beside it into floats or texts. So a cell and every text that a container
would write for it have one reading: 1, 1.0, True, "1", "1.0" and "True" are the label "1" and the number 1.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

NAN = math.nan
_NUMBER = re.compile(
    r"[ \t]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:inf|infinity)|nan)[ \t]*",
    re.ASCII | re.IGNORECASE,
)
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?|-?inf", re.ASCII)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)", re.ASCII)
_REAL = re.compile(r"\((.+)[+-]0j\)")  # a complex array writes its real numbers so
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]+))?)?(Z|\+00:00)?",
    re.ASCII,
)
_WORDS = {"true": 1.0, "false": 0.0}
SURE = 2.0**53
"""Whole numbers from here on are rounded by containers that hold doubles."""


def number(cell: Any) -> float:
    """The cell as a double; NaN where there is none: nulls, dates, texts that are no number, anything else.

    Examples
    --------
    >>> [number(cell) for cell in (1, "1.50", True, "False", 10**400, 2 + 0j, b"7")]
    [1.0, 1.5, 1.0, 0.0, inf, 2.0, 7.0]
    >>> [number(cell) for cell in (None, "", "?", 1j, b"\\xff", [1])]
    [nan, nan, nan, nan, nan, nan]
    """
    kind = type(cell)
    if kind is float or kind is int:
        return _real(cell)
    if isinstance(cell, bytes):
        cell = _decoded(cell)
    if isinstance(cell, str):
        return _text_number(cell.rstrip("\0"))
    if isinstance(cell, numbers.Complex) and not isinstance(cell, numbers.Real):
        return _real(cell.real) if cell.imag == 0 else NAN
    if type(cell).__name__ == "timedelta64":  # to NumPy an integer; in what unit, it does not say
        return NAN
    return _real(cell) if isinstance(cell, numbers.Real | Decimal) or _is_truth(cell) else NAN


def label(cell: Any, *, text: bool = False) -> str | None:
    """The one canonical form of the cell as a label; None where it is missing.

    A text that is a number has that number's shortest form, true and false are 1 and 0, dates are written as
    2026-01-31 or 2026-01-31 12:30:00, and every other text is itself. With `text` a text keeps its characters (leading
    zeros above all) unless a container may have written it for a number or a truth value: a plain decimal
    without leading zeros, plus sign or blanks is a number.

    Examples
    --------
    >>> [label(cell) for cell in (1, 1.0, "1", "1.0", "01", True, "True", "a", " a")]
    ['1', '1', '1', '1', '1', '1', '1', 'a', ' a']
    >>> [label(cell, text=True) for cell in ("02139", "2139.0", 2139, "1E5")]
    ['02139', '2139', '2139', '1E5']
    >>> [label(cell) for cell in (None, "", float("nan"), "nan", b"\\xff", [1])]
    [None, None, None, None, None, None]
    """
    if isinstance(cell, bytes):
        cell = _decoded(cell)
    if isinstance(cell, str):
        return _text_label(cell.rstrip("\0"), text)
    if type(cell).__name__ == "datetime64":
        return _date_label(str(cell))
    if isinstance(cell, date):
        return _date_cell(cell)
    value = number(cell)
    if value != value and isinstance(cell, numbers.Complex) and cell.imag:
        return str(complex(cell))
    return None if value != value else shortest(value)


def labels_of(values: Iterable[Any], text: bool = False) -> dict[str, int]:
    """The place of each value by its label; values without one, or with another's, are left out."""
    places: dict[str, int] = {}
    for place, value in enumerate(values):
        word = label(value, text=text)
        if word is not None:
            places.setdefault(word, place)
    return places


def person(cell: Any) -> str | None:
    """Whose a row is; None where that is missing, or not sure.

    Two persons must never have one reading, nor one person two: 1, 1.0 and "1" are one (a container may write either
    for the other), a text that no container writes for a number keeps its characters, and a whole number of 2^53 or
    more is nobody's, in whatever form: one missing cell beside it makes a container round it to its neighbours.
    So is a number with more digits than a double has.

    Examples
    --------
    >>> [person(cell) for cell in (7, 7.0, "7", "7.0", "07", "12.10", "12e500")]
    ['7', '7', '7', '7', '07', '12.10', '12e500']
    >>> [person(cell) for cell in (None, "", 2**53 + 1, "9007199254740993", 1e300)]
    [None, None, None, None, None]
    """
    if isinstance(cell, bytes):
        cell = _decoded(cell)
    if not isinstance(cell, str):
        value = number(cell)
        return label(cell) if value != value else _sure(value) if _held(cell, value) else None
    cell = cell.rstrip("\0")
    value = _text_number(cell)
    if value == value and (_WHOLE.fullmatch(cell) or _written_exactly(cell, value)):
        return _sure(value)
    word = _text_label(cell, True)
    return cell if word is not None and value == value else word


def plain(cell: Any) -> float | str | None:
    """The cell without a stated type: a number, a text, or None."""
    value = number(cell)
    return value if value == value else label(cell)


def shortest(value: float) -> str:
    """The shortest text of a double, without a trailing .0; both zeros are 0."""
    found = repr(value + 0.0)
    return found[:-2] if found.endswith(".0") else found


def _is_truth(cell: Any) -> bool:
    """A truth value of NumPy, which is no number to Python. NumPy is not imported: a schema does without."""
    return type(cell).__module__ == "numpy" and type(cell).__name__ in ("bool", "bool_")


def _real(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except Exception:  # a signalling NaN, or whatever a class of numbers says
        return NAN


def _text_number(cell: str) -> float:
    real = _REAL.fullmatch(cell)
    found = _NUMBER.fullmatch(cell if real is None else real[1])
    return _WORDS.get(cell.lower(), NAN) if found is None else float(found[1])


def _text_label(cell: str, keep: bool) -> str | None:
    try:
        cell.encode()
    except UnicodeEncodeError:  # half a character: no file can hold it
        return None
    value = _text_number(cell)
    if value == value:
        if not keep or _written(cell, value):
            return shortest(value)
        return cell
    if not cell or _NUMBER.fullmatch(cell) is not None:  # NaN
        return None
    return _date_label(cell)


def _written(cell: str, value: float) -> bool:
    """Whether a container would write this number (or truth value) so."""
    if cell in ("True", "False", "true", "false") or _PLAIN.fullmatch(cell) or _REAL.fullmatch(cell):
        return True
    return "e" in cell.lower() and not 1e-4 <= abs(value) < 1e16 and value != 0


def _written_exactly(cell: str, value: float) -> bool:
    return cell in (repr(value), "True", "False", "true", "false") or _REAL.fullmatch(cell) is not None


def _held(cell: Any, value: float) -> bool:
    """Whether no other number of the cell's type has this double: a Decimal may have more digits."""
    return bool(cell == value or (isinstance(cell, Decimal) and Decimal(repr(value)) == cell))


def _sure(value: float) -> str | None:
    return shortest(value) if abs(value) < SURE else None


def _decoded(cell: bytes) -> str | None:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return None


def _date_label(cell: str) -> str | None:
    found = _DATE.fullmatch(cell)
    if found is None:
        return None if cell == "NaT" else cell
    day, clock, seconds, fraction, zone = found.groups()
    fraction = (fraction or "").rstrip("0")
    time = f" {clock}{seconds or ':00'}" + ("." + fraction if fraction else "") if clock else ""
    return day + ("" if time == " 00:00:00" else time) + ("Z" if zone else "")


def _date_cell(cell: date) -> str | None:
    try:
        if isinstance(cell, datetime) and cell.tzinfo is not None:
            cell = cell.astimezone(UTC)
        return _date_label(cell.isoformat())
    except (OverflowError, ValueError, TypeError, NotImplementedError):  # NaT, and what the calendar has not
        return None
