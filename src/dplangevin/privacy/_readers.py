"""Checked reading of single values, from live objects and from JSON alike; the text names where the value stood."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dplangevin import _check
from dplangevin.errors import InvalidParameter

_LONGEST_LIST = 1_000_000
_LONGEST_WORDS = 10_000
_LARGEST_COUNT = 2**53

Reader = Callable[[str, Any], Any]
"""(where, plain or live value) -> checked live value."""


def cost(where: str, value: Any) -> float:
    """A number >= 0 or "inf"; zero has one sign."""
    if isinstance(value, str) and value == "inf":
        return math.inf
    return abs(_check.nonnegative(where, value, infinite=True))


def positive(where: str, value: Any) -> float:
    """A number > 0 or "inf"."""
    return _check.positive(where, cost(where, value), infinite=True)


def probability(where: str, value: Any) -> float:
    """A number in [0, 1]."""
    found = cost(where, value)
    if found > 1:
        raise InvalidParameter(f"{where} must be at most 1, got {value!r}.")
    return found


def rate(where: str, value: Any) -> float:
    """A number in (0, 1]."""
    return positive(where, probability(where, value))


def at_least_one(where: str, value: Any) -> float:
    """A finite number >= 1."""
    found = cost(where, value)
    if found < 1 or math.isinf(found):
        raise InvalidParameter(f"{where} must be finite and at least 1, got {value!r}.")
    return found


def above_one(where: str, value: Any) -> float:
    """A finite number > 1."""
    found = at_least_one(where, value)
    if found == 1:
        raise InvalidParameter(f"{where} must be above 1.")
    return found


def whole(least: int) -> Reader:
    """A whole number >= least."""

    def read(where: str, value: Any) -> int:
        found = _check.count(where, value, least=least)
        if found > _LARGEST_COUNT:
            raise InvalidParameter(f"{where} must be at most 2**53, got {found!r}.")
        return found

    return read


def words(where: str, value: Any) -> str:
    """Text that can be stored."""
    if not isinstance(value, str):
        raise InvalidParameter(f"{where} must be text, got {type(value).__name__}.")
    if len(value) > _LONGEST_WORDS:
        raise InvalidParameter(f"{where} is longer than {_LONGEST_WORDS} characters.")
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in value):
        raise InvalidParameter(f"{where} holds a character that is not text.")
    return value


def one_of(*allowed: str) -> Reader:
    """One of the allowed words."""
    return lambda where, value: _check.choice(where, value, allowed)


def list_of(read: Reader, *, least: int = 0) -> Reader:
    """A list, read item by item."""

    def read_all(where: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise InvalidParameter(f"{where} must be a list, got {type(value).__name__}.")
        if not least <= len(value) <= _LONGEST_LIST:
            raise InvalidParameter(f"{where} must have {least} to {_LONGEST_LIST} entries, got {len(value)}.")
        return tuple(read(f"{where}[{i}]", item) for i, item in enumerate(value))

    return read_all


def optional(read: Reader) -> Reader:
    """The same, or None."""
    return lambda where, value: None if value is None else read(where, value)
