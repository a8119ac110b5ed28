"""Words that users give: names of data sets and parts, labels, hashes."""

from __future__ import annotations

import unicodedata
from typing import Any

from dplangevin.errors import InvalidParameter

_REFUSED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_LONGEST = 200


def checked(parameter: str, value: Any, *, empty: bool = False) -> str:
    """One line of visible text; two spellings of one letter count as the same.

    Control and direction-changing characters could hide or reorder what a terminal shows, so they are refused.
    """
    if not isinstance(value, str):
        raise InvalidParameter(f"{parameter} must be text, got {type(value).__name__}.")
    if not value and empty:
        return value
    if not value or value != value.strip():
        raise InvalidParameter(f"{parameter} must not be empty or start or end with a space, got {value!r}.")
    if len(value) > _LONGEST:
        raise InvalidParameter(f"{parameter} must have at most {_LONGEST} characters, got {len(value)}.")
    bad = next((letter for letter in value if unicodedata.category(letter) in _REFUSED), None)
    if bad is not None:
        raise InvalidParameter(
            f"{parameter} must not hold control or formatting characters, got {value!a} (remove {bad!a})."
        )
    return unicodedata.normalize("NFC", value)
