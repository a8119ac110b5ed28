"""The law of reading: what one cell is, as a pure function of that cell. Every faster path must agree with it.

A cell is read as a number (a range is stated) or as a label (a list of categories or classes is stated). Containers
merge types: one odd record turns the integers beside it into floats or texts. So a cell and every text that a container
would write for it have one reading: 1, 1.0, True, "1", "1.0" and "True" are the label "1" and the number 1.

The rule is total. A cell that holds exactly one value (an array without dimensions, an array or tensor, a list or a
tuple of one element, a scalar of Arrow) is that value; any other object with `__float__` or `__index__` is that number;
whatever raises is missing. A text of more than MAX_NUMBER_LENGTH characters is no number, so that the time of a cell is
linear in its length; every pattern here is linear too.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
import sys
import warnings
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

NAN = math.nan
MAX_NUMBER_LENGTH = 4400
"""Characters of a text that may be a number: Python, and with it every container, writes at most 4300 digits."""
_MAX_NESTING = 8
# Possessive quantifiers (`++`, `*+`) give nothing back: the work is linear in the length of the text.
_NUMBER = re.compile(
    r"[ \t]*+([+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?|[+-]?(?:infinity|inf)|nan)[ \t]*+",
    re.ASCII | re.IGNORECASE,
)
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?|-?inf", re.ASCII)
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*+)", re.ASCII)
_REAL = re.compile(r"\((.+)[+-]0j\)")  # a complex array writes its real numbers so
_NOT_A_NUMBER = re.compile(  # of a double, and what a complex array writes
    r"[ \t]*+nan[ \t]*+|nanj|\((?:nan[+-][0-9.einf+-]++j|(?:[0-9.e+-]++|-?inf[+-]|nan[+-])nanj)\)",
    re.ASCII | re.IGNORECASE,
)
_DATE = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(?:\.([0-9]++))?)?(Z|\+00:00)?",
    re.ASCII,
)
_WORDS = {"true": 1.0, "false": 0.0}
SURE = 2.0**53
"""Whole numbers from here on are rounded by containers that hold doubles."""


def number(cell: Any) -> float:
    """The cell as a double; NaN where there is none: nulls, dates, texts that are no number, anything else.

    Examples
    --------
    >>> [number(cell) for cell in (1, "1.50", True, "False", 10**400, 2 + 0j, b"7", [1], ("1",))]
    [1.0, 1.5, 1.0, 0.0, inf, 2.0, 7.0, 1.0, 1.0]
    >>> [number(cell) for cell in (None, "", "?", 1j, b"\\xff", [1, 2], [], {1}, object())]
    [nan, nan, nan, nan, nan, nan, nan, nan, nan]
    """
    kind = type(cell)
    if kind is float:
        return float(cell)
    if kind is str:
        return _text_number(cell.rstrip("\0"))
    try:
        return _number(cell if kind is int else _single(cell))
    except Exception:  # of an object's own methods, whose words may quote a value
        return NAN


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
    >>> [label(cell) for cell in (None, "", float("nan"), "nan", b"\\xff", [1, 2])]
    [None, None, None, None, None, None]
    """
    if type(cell) is str:
        return _text_label(cell.rstrip("\0"), text)
    try:
        return _label(_single(cell), text)
    except Exception:  # of an object's own methods, whose words may quote a value
        return None


def _label(cell: Any, text: bool) -> str | None:
    """The label of a cell that holds one value."""
    if isinstance(cell, str):
        return _text_label(cell.rstrip("\0"), text)
    if type(cell).__name__ == "datetime64":
        return _date_label(str(cell))
    if isinstance(cell, date):
        return _date_cell(cell)
    value = _number(cell)
    if value != value and isinstance(cell, numbers.Complex) and cell.imag and cell == cell:
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
    try:
        return _person(_single(cell))
    except Exception:  # of an object's own methods, whose words may quote a value
        return None


def _person(cell: Any) -> str | None:
    """Whose a row is, of a cell that holds one value."""
    if not isinstance(cell, str):
        value = _number(cell)
        return _label(cell, False) if value != value else _sure(value) if _held(cell, value) else None
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


def _single(cell: Any) -> Any:
    """The one value that a cell holds, texts and bytes as plain texts; None where it holds none, or several."""
    for _ in range(_MAX_NESTING):
        if isinstance(cell, str):
            return str.__str__(cell)  # a class of texts may have methods of its own
        if isinstance(cell, bytes):
            return _decoded(cell)
        inner = _inside(cell)
        if inner is cell:
            return cell
        cell = inner
    return None


def _inside(cell: Any) -> Any:
    """The element of a container of one; None for another length; the cell itself where it is no container.

    NumPy is not imported: a schema does without, and where it is absent there are no arrays.
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
        return numpy.asarray(cell).reshape(-1)[0]  # item() would make an integer of a time
    with warnings.catch_warnings(action="ignore"):
        return cell.item()


def _number(cell: Any) -> float:
    """The number of a cell that holds one value."""
    if isinstance(cell, str):
        return _text_number(cell.rstrip("\0"))
    if isinstance(cell, numbers.Complex) and not isinstance(cell, numbers.Real):
        return _real(cell.real) if cell.imag == 0 else NAN
    if isinstance(cell, date | time | timedelta) or type(cell).__name__ in ("timedelta64", "datetime64"):
        return NAN  # a number in what unit, it does not say
    if isinstance(cell, numbers.Real | Decimal) or _is_truth(cell):
        return _real(cell)
    kind = type(cell)
    with warnings.catch_warnings(action="ignore"):
        if hasattr(kind, "__float__"):
            return float(cell)
        return _real(operator.index(cell)) if hasattr(kind, "__index__") else NAN


def _is_truth(cell: Any) -> bool:
    """A truth value of NumPy, which is no number to Python. NumPy is not imported: a schema does without."""
    return type(cell).__module__ == "numpy" and type(cell).__name__ in ("bool", "bool_")


def _real(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def _text_number(cell: str) -> float:
    if len(cell) > MAX_NUMBER_LENGTH:
        return NAN
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
    if not cell or (len(cell) <= MAX_NUMBER_LENGTH and _NOT_A_NUMBER.fullmatch(cell) is not None):
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
        return bytes.decode(cell)
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
