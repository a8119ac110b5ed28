"""Validation of public parameters, once, when an object is constructed.

Each check takes the name of a parameter and its value, returns the value in its proper type, and raises
InvalidParameter, with the name, the value and the allowed range, where it does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from dplangevin.errors import InvalidParameter

_Choice = TypeVar("_Choice", bound=str)


def may_be_cells(names: Iterable[Any]) -> bool:
    """Return whether names of columns may be the first record of a file without a header, which is private.

    Numbers are taken for cells, unless they count the columns from 0 as those of a DataFrame do.
    """
    listed = [str(name) for name in names]
    counted = sorted(listed) == sorted(map(str, range(len(listed))))
    return not counted and any(map(_is_number, listed))


def describe_columns(names: Iterable[Any]) -> str:
    """Return the names of a table's columns for an error, without those that may be cells."""
    listed = [str(name) for name in names]
    if may_be_cells(listed):
        return f"{len(listed)} columns, some with a number for a name (the first line of a text file must be a header)"
    return ", ".join(listed) or "none"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_number(name: str, value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise InvalidParameter(f"{name} must be a number, got {value!r}.")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"{name} must be a number, got {value!r}.") from None
    if math.isnan(number):
        raise InvalidParameter(f"{name} must be a number, got NaN.")
    return number


def check_positive(name: str, value: Any, *, infinite: bool = False) -> float:
    """Check for a number > 0; infinity is accepted only with `infinite`."""
    number = _parse_number(name, value)
    if number <= 0 or (math.isinf(number) and not infinite):
        suffix = " (infinity is allowed)" if infinite else " and finite"
        raise InvalidParameter(f"{name} must be positive{suffix}, got {value!r}.")
    return number


MIN_PARAMETER, MAX_PARAMETER = 1e-60, 1e60
"""Range of bounds, step sizes and noise scales: within it, their products and squares keep full double precision."""


def check_scale(name: str, value: Any, *, infinite: bool = False) -> float:
    """Check for a positive number whose products and squares neither overflow nor underflow."""
    number = check_positive(name, value, infinite=infinite)
    if not MIN_PARAMETER <= number <= MAX_PARAMETER and math.isfinite(number):
        raise InvalidParameter(
            f"{name} = {value!r} is outside {MIN_PARAMETER:g} ... {MAX_PARAMETER:g}, where double precision "
            "is trusted; change the units of the data or of the parameter."
        )
    return number


MAX_INTEGER_SCALE = 2.0**44
"""Largest scale of integer noise: the noise then stays below 2^53, where doubles and 64-bit integers are exact,
except with probability exp(-512). NumPy's geometric generator saturates at 2^63, where two draws would cancel."""


def check_integer_scale(name: str, value: Any) -> float:
    """Check the scale of integer-valued noise: positive and at most MAX_INTEGER_SCALE."""
    number = check_scale(name, value)
    if number > MAX_INTEGER_SCALE:
        raise InvalidParameter(
            f"{name} = {value!r} is above {MAX_INTEGER_SCALE:g}, the largest scale of noise on whole numbers "
            "that is drawn exactly; raise epsilon."
        )
    return number


def check_nonnegative(name: str, value: Any, *, infinite: bool = False) -> float:
    """Check for a number >= 0; infinity is accepted only with `infinite`."""
    number = _parse_number(name, value)
    if number < 0 or (math.isinf(number) and not infinite):
        suffix = " (infinity is allowed)" if infinite else " and finite"
        raise InvalidParameter(f"{name} must not be negative{suffix}, got {value!r}.")
    return number


def check_open_unit(name: str, value: Any) -> float:
    """Check for a number strictly between 0 and 1."""
    number = _parse_number(name, value)
    if not 0 < number < 1:
        raise InvalidParameter(f"{name} must be strictly between 0 and 1, got {value!r}.")
    return number


def check_flag(name: str, value: Any) -> bool:
    """Check for True or False, as Python or NumPy booleans."""
    # NumPy's booleans are recognised by name: importing NumPy here would slow down commands
    if type(value).__name__ not in ("bool", "bool_"):
        raise InvalidParameter(f"{name} must be True or False, got {value!r}.")
    return bool(value)


def check_count(name: str, value: Any, *, minimum: int = 1) -> int:
    """Check for a whole number >= minimum."""
    number = _parse_number(name, value)
    if math.isinf(number) or number != int(number) or number < minimum:
        raise InvalidParameter(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    return int(number)


def check_count_or_infinity(name: str, value: Any, *, minimum: int = 1) -> int | float:
    """Check for a whole number >= minimum, or infinity."""
    if _parse_number(name, value) == math.inf:
        return math.inf
    return check_count(name, value, minimum=minimum)


def check_choice(name: str, value: Any, allowed: Iterable[_Choice]) -> _Choice:
    """Check for one of the allowed strings."""
    options = list(allowed)
    for option in options:
        if value == option:
            return option
    raise InvalidParameter(f"{name} must be one of {', '.join(options)}; got {value!r}.")


def check_per_step(name: str, value: Any) -> float | tuple[float, ...]:
    """Check for a positive number (see `check_scale`), or a non-empty sequence of them (one per step)."""
    if (isinstance(value, Sequence) and not isinstance(value, str)) or getattr(value, "ndim", 0) == 1:
        numbers = tuple(check_scale(f"{name}[{i}]", item) for i, item in enumerate(value))
        if not numbers:
            raise InvalidParameter(f"{name} must not be empty.")
        return numbers
    return check_scale(name, value)


def validate_fields(instance: object, **checks: Callable[[str, Any], Any]) -> None:
    """Check fields of a frozen dataclass, one after the other, and store the value that each check returns."""
    for name, check in checks.items():
        set_frozen(instance, **{name: check(name, getattr(instance, name))})


def set_frozen(instance: object, **values: Any) -> None:
    """Store validated values in a frozen dataclass while it is being constructed."""
    for name, value in values.items():
        if not any(
            name in vars(kind).get("__annotations__", ()) or name in vars(kind)
            for kind in type(instance).__mro__
        ):
            raise TypeError(f"{type(instance).__name__} has no field {name!r}.")
        object.__setattr__(instance, name, value)
