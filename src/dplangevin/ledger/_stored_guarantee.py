"""Guarantees as ledgers hold them, those of older versions included.

An entry's text is part of its chain, so it is never rewritten. Version 1 knew no typed conditions: it marked sentences.
This is the only place that reads those marks, and what it makes of them is a condition of the kind "stated-in-words".
"""

from __future__ import annotations

from typing import Any

from dplangevin import _plain
from dplangevin.privacy import serialize
from dplangevin.privacy.guarantee import Guarantee

_FIRST_VERSION = 1
_CONDITIONAL_PREFIX = "CONDITIONAL on "
_EVENT_MARK = "that event is outside the promise"


def read_stored_guarantee(text: str) -> Guarantee:
    """The guarantee in an entry's text, whatever version wrote it."""
    return convert_stored_guarantee(_plain.parse(text, "the guarantee"))


def convert_stored_guarantee(plain: Any) -> Guarantee:
    """The guarantee in plain data of any version."""
    if isinstance(plain, dict) and plain.get("version") == _FIRST_VERSION and plain["version"] is not True:
        plain = {**_with_conditions(plain), "version": serialize.VERSION}
    return serialize.from_plain(plain)


def _with_conditions(plain: dict[str, Any]) -> dict[str, Any]:
    assumptions = plain.get("assumptions")
    if "conditions" in plain or not isinstance(assumptions, list):
        return plain  # not what version 1 wrote: it is refused where it is read
    marked = [
        words
        for words in assumptions
        if isinstance(words, str) and (words.startswith(_CONDITIONAL_PREFIX) or _EVENT_MARK in words)
    ]
    conditions = [
        {"kind": "stated-in-words", "text": words.removeprefix(_CONDITIONAL_PREFIX) or words}
        for words in marked
    ]
    converted = {
        **plain,
        "conditions": conditions,
        "assumptions": [words for words in assumptions if words not in marked],
    }
    if isinstance(plain.get("composition"), dict):
        converted["composition"] = _with_conditions(plain["composition"])
    return converted
