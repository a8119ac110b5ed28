"""Reading the guarantees that ledgers store, including those written by older versions.

An entry's text is part of its hash chain, so it is never rewritten. Version 1 had no typed conditions: it marked
assumptions that were conditions. Only this module reads those marks, as conditions of the kind "stated-in-words".
"""

from __future__ import annotations

from typing import Any

from dplangevin import _plain
from dplangevin.accounting import serialize
from dplangevin.accounting.guarantee import Guarantee

_FIRST_VERSION = 1
_CONDITIONAL_PREFIX = "CONDITIONAL on "
_EVENT_MARK = "that event is outside the promise"  # as version 1 wrote it


def read_stored_guarantee(text: str) -> Guarantee:
    """Return the guarantee in an entry's text, whatever version wrote it."""
    return convert_stored_guarantee(_plain.parse_json(text, "the guarantee"))


def convert_stored_guarantee(plain: Any) -> Guarantee:
    """Return the guarantee in plain data of any version."""
    if isinstance(plain, dict) and plain.get("version") == _FIRST_VERSION and plain["version"] is not True:
        plain = {**_with_conditions(plain), "version": serialize.VERSION}
    return serialize.guarantee_from_plain(plain)


def _with_conditions(plain: dict[str, Any]) -> dict[str, Any]:
    assumptions = plain.get("assumptions")
    if "conditions" in plain or not isinstance(assumptions, list):
        return plain  # not what version 1 wrote: the reader refuses it
    marked = [
        text
        for text in assumptions
        if isinstance(text, str) and (text.startswith(_CONDITIONAL_PREFIX) or _EVENT_MARK in text)
    ]
    conditions = [
        {"kind": "stated-in-words", "text": text.removeprefix(_CONDITIONAL_PREFIX) or text} for text in marked
    ]
    converted = {
        **plain,
        "conditions": conditions,
        "assumptions": [text for text in assumptions if text not in marked],
    }
    if isinstance(plain.get("composition"), dict):
        converted["composition"] = _with_conditions(plain["composition"])
    return converted
