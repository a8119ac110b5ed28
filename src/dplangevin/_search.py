"""Searches in monotone questions. What they return was seen to hold, so that no rounding promises too much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats

Number = TypeVar("Number", int, float)


def grown_until(
    holds: Callable[[Number], bool], start: Number, limit: float = math.inf, factor: int = 2
) -> Number | None:
    """The first of start, start factor, start factor^2, ... where it holds; None when that is beyond the limit.

    Examples
    --------
    >>> grown_until(lambda value: value > 20, 1, 100), grown_until(lambda value: value > 20, 1, 30)
    (32, None)
    """
    at = start
    while not holds(at):
        at = factor * at
        if at > limit:
            return None
    return at


def bisected(
    holds: Callable[[float], bool],
    yes: float,
    no: float,
    *,
    rounds: int = 60,
    relative: float = 0.0,
    geometric: bool = False,
) -> float:
    """The last point where it was seen to hold, between `yes`, where it does, and `no`, where it does not.

    Either may be the larger. Stops after so many rounds, or when the two are within `relative` of the smaller.

    Examples
    --------
    >>> 0.999999 < bisected(lambda value: value * value <= 1, 0.0, 2.0) <= 1.0
    True
    """
    for _ in range(rounds):
        if abs(no - yes) <= relative * min(yes, no):
            break
        middle = (yes * no) ** 0.5 if geometric else (yes + no) / 2
        yes, no = (middle, no) if holds(middle) else (yes, middle)
    return yes


def whole_bisected(
    holds: Callable[[int], bool], yes: int, no: int, *, digits: float = math.inf, geometric: bool = False
) -> int:
    """The same over whole numbers: next to a number where it does not hold, or within one part in `digits` of it.

    Examples
    --------
    >>> whole_bisected(lambda count: count * count > 1000, 100, 1)
    32
    """
    while abs(no - yes) > max(1, min(yes, no) // digits):
        middle = round(math.sqrt(yes * no)) if geometric else (yes + no) // 2
        if middle in (yes, no):
            break
        yes, no = (middle, no) if holds(middle) else (yes, middle)
    return yes


def each_bisected(
    holds: Callable[[Floats], NDArray[np.bool_]], yes: Floats, no: Floats, *, rounds: int
) -> Floats:
    """`bisected` for every entry at once.

    Examples
    --------
    >>> each_bisected(lambda values: values**2 >= [4.0, 9.0], np.full(2, 10.0), np.zeros(2), rounds=60).tolist()
    [2.0, 3.0]
    """
    for _ in range(rounds):
        middle = (yes + no) / 2
        held = holds(middle)
        yes, no = np.where(held, middle, yes), np.where(held, no, middle)
    return yes


def golden(function: Callable[[float], float], low: float, high: float, width: float) -> float:
    """The middle of an interval of at most this width around a minimum, by golden sections.

    Examples
    --------
    >>> abs(golden(lambda value: (value - 1) ** 2, 0.0, 3.0, 0.01) - 1) < 0.01
    True
    """
    ratio = (math.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    value_a, value_b = function(a), function(b)
    while high - low > width:
        if value_a <= value_b:
            high, b, value_b = b, a, value_a
            a = high - ratio * (high - low)
            value_a = function(a)
        else:
            low, a, value_a = a, b, value_b
            b = low + ratio * (high - low)
            value_b = function(b)
    return 0.5 * (low + high)
