"""Text in the ledger: checked names and labels, the comparison of names, and the JSON description of a plan."""

from __future__ import annotations

import json
import math
import numbers
import unicodedata
from dataclasses import fields, is_dataclass
from typing import Any

from dplangevin.errors import InvalidParameter

_REFUSED_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MAX_LENGTH = 200
# Letters and marks that are invisible or blank: Unicode's default ignorable ones not in _REFUSED_CATEGORIES.
_INVISIBLE_CHARACTERS = {
    *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0",
    *map(chr, range(0xFE00, 0xFE10)),
    *map(chr, range(0xE0100, 0xE01F0)),
}
_COMPATIBLE_SCRIPTS = {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"}
"""Scripts that are written together; a name in any other script uses that one alone."""
# Letters of other alphabets, digits and pairs that look like Latin letters once the case is folded.
_LATIN_LOOKALIKES = str.maketrans(
    {
        **dict(zip("аеорсухіјѕһԁԛԝьҽ", "aeopcyxijshdqwbe", strict=True)),  # Cyrillic
        **dict(zip("вкмнтпг", "bkmhtnr", strict=True)),  # Cyrillic
        **dict(zip("αβγεικνορτυχωη", "abyeikvoptuxwn", strict=True)),  # Greek
        **dict(zip("աոսւօհցքզյ", "wnulohgpqj", strict=True)),  # Armenian
        **dict(zip("ıɩɑɡʋ", "iiagv", strict=True)),  # Latin
        **dict(zip("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnoprstuvwyz", strict=True)),  # small capitals
        **dict(zip("01|", "oll", strict=True)),
        **dict(zip("\u2018\u2019\u02bc\u2032\u2212", "''''-", strict=True)),
    }
)


def check_text(parameter: str, value: Any, *, allow_empty: bool = False) -> str:
    """Check for one line of visible text, and return it in Unicode normal form C.

    Control and direction-changing characters could hide or reorder what a terminal shows, so they are refused.
    """
    if not isinstance(value, str):
        raise InvalidParameter(f"{parameter} must be text, got {type(value).__name__}.")
    if not value and allow_empty:
        return value
    if not value or value != value.strip():
        raise InvalidParameter(f"{parameter} must not be empty or start or end with a space, got {value!r}.")
    if len(value) > _MAX_LENGTH:
        raise InvalidParameter(f"{parameter} must have at most {_MAX_LENGTH} characters, got {len(value)}.")
    bad = next((letter for letter in value if unicodedata.category(letter) in _REFUSED_CATEGORIES), None)
    if bad is not None:
        raise InvalidParameter(
            f"{parameter} must not hold control or formatting characters, got {value!a} (remove {bad!a})."
        )
    return unicodedata.normalize("NFC", value)


def check_name(parameter: str, value: Any) -> str:
    """Check the name of a data set or part: as `check_text`, without invisible characters, and in one alphabet."""
    name = check_text(parameter, value)
    if _INVISIBLE_CHARACTERS.intersection(name):
        raise InvalidParameter(f"{parameter} must not hold invisible characters, got {name!a}; remove them.")
    scripts = {_script_name(letter) for letter in unicodedata.normalize("NFKC", name)} - {""}
    if len(scripts) > 1 and not scripts <= _COMPATIBLE_SCRIPTS:
        script_names = " and ".join(sorted(script.title() for script in scripts))
        raise InvalidParameter(
            f"{parameter} mixes {script_names} letters, some of which look alike, got {name!a}; write it in "
            "one alphabet."
        )
    return name


def comparison_key(name: str) -> str:
    """Return the key by which names are compared: names that look alike have the same key.

    Compatibility forms and case are folded (NFKC, casefold); letters of other alphabets and small capitals become the
    Latin letters they look like, 0 becomes o, 1, | and i become l, m becomes rn, w becomes vv, every dash and
    apostrophe becomes one of its kind, and runs of spaces one space.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    letters = folded.translate(_LATIN_LOOKALIKES).replace("i", "l").replace("m", "rn").replace("w", "vv")
    dashes = "".join("-" if unicodedata.category(letter) == "Pd" else letter for letter in letters)
    return " ".join(dashes.split())


def _script_name(letter: str) -> str:
    """Return the alphabet of a letter or digit; "" for marks and for the digits 0 to 9, which belong to all."""
    category = unicodedata.category(letter)
    has_script = category[0] == "L" or (category == "Nd" and letter > "9")
    return unicodedata.name(letter, "?").split(" ")[0] if has_script else ""


_MAX_TEXT_LENGTH = 200
_MAX_ITEMS = 20


def describe_plan(plan: Any) -> str:
    """Return a short JSON description of a plan for the history; everything in a plan is public."""
    spec = getattr(plan, "spec", None)
    fields_by_name = {
        # what several specs make together is named by the theorems that compose it
        "mechanism": getattr(spec, "mechanism", None)
        or getattr(getattr(plan, "guarantee", None), "theorem", type(plan).__name__),
        "delta": _value_to_plain(getattr(plan, "delta", None)),
        "spec": _dataclass_to_plain(spec),
        "problem": _dataclass_to_plain(getattr(plan, "problem", None)),
        "constants": _dataclass_to_plain(getattr(plan, "constants", None)),
    }
    return json.dumps(
        {name: value for name, value in fields_by_name.items() if value is not None}, allow_nan=False
    )


def _dataclass_to_plain(value: Any) -> dict[str, Any] | None:
    if not is_dataclass(value):
        return None
    return {field.name: _value_to_plain(getattr(value, field.name)) for field in fields(value) if field.init}


def _value_to_plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, (list, tuple)):
        if len(value) > _MAX_ITEMS:
            return {
                "length": len(value),
                "first": _value_to_plain(value[0]),
                "last": _value_to_plain(value[-1]),
            }
        return [_value_to_plain(item) for item in value]
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MAX_TEXT_LENGTH else text[:_MAX_TEXT_LENGTH] + "..."
