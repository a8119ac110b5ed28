"""Validation of public values, once, when they are constructed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from dplangevin.errors import InvalidParameter

_Choice = TypeVar("_Choice", bound=str)


def _number(name: str, value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise InvalidParameter(f"{name} must be a number, got {value!r}.")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"{name} must be a number, got {value!r}.") from None
    if math.isnan(number):
        raise InvalidParameter(f"{name} must be a number, got NaN.")
    return number


def positive(name: str, value: Any, *, infinite: bool = False) -> float:
    """A number > 0; infinity only where it is allowed."""
    number = _number(name, value)
    if number <= 0 or (math.isinf(number) and not infinite):
        also = " (infinity is allowed)" if infinite else " and finite"
        raise InvalidParameter(f"{name} must be positive{also}, got {value!r}.")
    return number


SMALLEST, LARGEST = 1e-60, 1e60
"""Bounds, step sizes and noises lie between: their products and squares then keep all digits of a double."""


def scale(name: str, value: Any, *, infinite: bool = False) -> float:
    """A positive number whose products and squares neither overflow nor underflow."""
    number = positive(name, value, infinite=infinite)
    if not SMALLEST <= number <= LARGEST and math.isfinite(number):
        raise InvalidParameter(
            f"{name} = {value!r} is outside {SMALLEST:g} ... {LARGEST:g}, where double precision is trusted; "
            "change the units of the data or of the parameter."
        )
    return number


MAX_INTEGER_SCALE = 2.0**44
"""Noise on whole numbers stays below 2^53 then, where doubles and 64-bit integers hold it exactly, up to a chance of
exp(-512); the geometric generator of NumPy stops at 2^63, where two draws would cancel."""


def integer_scale(name: str, value: Any) -> float:
    """The scale of noise that is drawn in whole numbers."""
    number = scale(name, value)
    if number > MAX_INTEGER_SCALE:
        raise InvalidParameter(
            f"{name} = {value!r} is above {MAX_INTEGER_SCALE:g}, the largest scale of noise on whole numbers that "
            "is drawn exactly; raise epsilon."
        )
    return number


def nonnegative(name: str, value: Any, *, infinite: bool = False) -> float:
    """A number >= 0; infinity only where it is allowed."""
    number = _number(name, value)
    if number < 0 or (math.isinf(number) and not infinite):
        also = " (infinity is allowed)" if infinite else " and finite"
        raise InvalidParameter(f"{name} must not be negative{also}, got {value!r}.")
    return number


def open_unit(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    number = _number(name, value)
    if not 0 < number < 1:
        raise InvalidParameter(f"{name} must be strictly between 0 and 1, got {value!r}.")
    return number


def flag(name: str, value: Any) -> bool:
    """True or False, of Python or NumPy."""
    if type(value).__name__ not in ("bool", "bool_"):  # NumPy's is known by its name: it is not imported here
        raise InvalidParameter(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def count(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number >= least."""
    number = _number(name, value)
    if math.isinf(number) or number != int(number) or number < least:
        raise InvalidParameter(f"{name} must be a whole number of at least {least}, got {value!r}.")
    return int(number)


def count_or_infinity(name: str, value: Any, *, least: int = 1) -> int | float:
    """A whole number >= least, or infinity."""
    if _number(name, value) == math.inf:
        return math.inf
    return count(name, value, least=least)


def choice(name: str, value: Any, allowed: Iterable[_Choice]) -> _Choice:
    """One of the allowed words."""
    options = list(allowed)
    for option in options:
        if value == option:
            return option
    raise InvalidParameter(f"{name} must be one of {', '.join(options)}; got {value!r}.")


def per_step(name: str, value: Any) -> float | tuple[float, ...]:
    """A positive number (see `scale`), or a non-empty sequence of them (one per step)."""
    if (isinstance(value, Sequence) and not isinstance(value, str)) or getattr(value, "ndim", 0) == 1:
        numbers = tuple(scale(f"{name}[{i}]", item) for i, item in enumerate(value))
        if not numbers:
            raise InvalidParameter(f"{name} must not be empty.")
        return numbers
    return scale(name, value)


def each(instance: object, **checks: Callable[[str, Any], Any]) -> None:
    """Check fields of a frozen dataclass, one after the other, and store what each check makes of its field."""
    for name, check in checks.items():
        put(instance, **{name: check(name, getattr(instance, name))})


def put(instance: object, **values: Any) -> None:
    """Store validated values in a frozen record while it is being constructed."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)
