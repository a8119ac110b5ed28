"""Searches over monotone predicates that return only points at which the predicate was evaluated and held.

So rounding can never turn a search for noise or steps into a guarantee that does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats

Number = TypeVar("Number", int, float)


def expand_bracket(
    holds: Callable[[Number], bool], start: Number, limit: float = math.inf, factor: int = 2
) -> Number | None:
    """Return the first of start, start factor, start factor^2, ... where `holds`; None when it is beyond the limit.

    Examples
    --------
    >>> expand_bracket(lambda value: value > 20, 1, 100), expand_bracket(lambda value: value > 20, 1, 30)
    (32, None)
    """
    value = start
    while not holds(value):
        value = factor * value
        if value > limit:
            return None
    return value


def bisect_safe_side(
    holds: Callable[[float], bool],
    accepted: float,
    rejected: float,
    *,
    rounds: int = 60,
    relative: float = 0.0,
    geometric: bool = False,
) -> float:
    """Return the last evaluated point where `holds`, between `accepted`, where it does, and `rejected`, where not.

    Either may be the larger. The search stops after `rounds`, or when the two are within `relative` of the smaller.

    Examples
    --------
    >>> 0.999999 < bisect_safe_side(lambda value: value * value <= 1, 0.0, 2.0) <= 1.0
    True
    """
    for _ in range(rounds):
        if abs(rejected - accepted) <= relative * min(accepted, rejected):
            break
        middle = (accepted * rejected) ** 0.5 if geometric else (accepted + rejected) / 2
        accepted, rejected = (middle, rejected) if holds(middle) else (accepted, middle)
    return accepted


def bisect_integers(
    holds: Callable[[int], bool],
    accepted: int,
    rejected: int,
    *,
    digits: float = math.inf,
    geometric: bool = False,
) -> int:
    """Bisect over whole numbers, down to neighbours or to one part in `digits`; see `bisect_safe_side`.

    Examples
    --------
    >>> bisect_integers(lambda count: count * count > 1000, 100, 1)
    32
    """
    while abs(rejected - accepted) > max(1, min(accepted, rejected) // digits):
        middle = round(math.sqrt(accepted * rejected)) if geometric else (accepted + rejected) // 2
        if middle in (accepted, rejected):
            break
        accepted, rejected = (middle, rejected) if holds(middle) else (accepted, middle)
    return accepted


def bisect_arrays(
    holds: Callable[[Floats], NDArray[np.bool_]], accepted: Floats, rejected: Floats, *, rounds: int
) -> Floats:
    """Bisect every entry of an array at once; see `bisect_safe_side`.

    Examples
    --------
    >>> bisect_arrays(lambda values: values**2 >= [4.0, 9.0], np.full(2, 10.0), np.zeros(2), rounds=60).tolist()
    [2.0, 3.0]
    """
    for _ in range(rounds):
        middle = (accepted + rejected) / 2
        mask = holds(middle)
        accepted, rejected = np.where(mask, middle, accepted), np.where(mask, rejected, middle)
    return accepted


def golden_section_minimum(
    function: Callable[[float], float], low: float, high: float, width: float
) -> float:
    """Return the middle of an interval of at most `width` around a minimum, by golden-section search.

    Examples
    --------
    >>> abs(golden_section_minimum(lambda value: (value - 1) ** 2, 0.0, 3.0, 0.01) - 1) < 0.01
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


def find_root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = 2e-12,
    rtol: float = 8.881784197001252e-16,
    max_steps: int = 100,
) -> float:
    """Return a root between two points at which the function has opposite signs, by Brent's method.

    The operations are those of `scipy.optimize.brentq`, so that the result is the same to the last bit; importing
    that takes longer than a plan. Reference: Brent (1973), Algorithms for Minimization Without Derivatives, chapter 4.

    Examples
    --------
    >>> round(find_root(lambda x: x * x - 2, 0.0, 2.0), 12)
    1.414213562373
    """
    before, here, across = float(low), float(high), 0.0
    f_before, f_here, f_across = float(function(before)), float(function(here)), 0.0
    step_before = step = 0.0
    if f_before == 0:
        return before
    if f_here == 0:
        return here
    if not (f_before < 0) != (f_here < 0):
        raise ValueError("the function must have different signs at the two points.")
    for _ in range(max_steps):
        if f_before != 0 and f_here != 0 and (f_before < 0) != (f_here < 0):
            across, f_across = before, f_before
            step_before = step = here - before
        if abs(f_across) < abs(f_here):
            before, here, across = here, across, here
            f_before, f_here, f_across = f_here, f_across, f_here
        tolerance, half = (xtol + rtol * abs(here)) / 2, (across - here) / 2
        if f_here == 0 or abs(half) < tolerance:
            return here
        trial = math.inf
        if abs(step_before) > tolerance and abs(f_here) < abs(f_before):
            if before == across:
                trial = -f_here * (here - before) / (f_here - f_before)
            else:
                slope = (f_before - f_here) / (before - here)
                slope_across = (f_across - f_here) / (across - here)
                divisor = slope_across * slope * (f_across - f_before)
                if divisor:
                    trial = -f_here * (f_across * slope_across - f_before * slope) / divisor
        if 2 * abs(trial) < min(abs(step_before), 3 * abs(half) - tolerance):
            step_before, step = step, trial
        else:
            step_before = step = half
        before, f_before = here, f_here
        here += step if abs(step) > tolerance else math.copysign(tolerance, half)
        f_here = float(function(here))
    raise ValueError(f"no root was found in {max_steps} steps.")
