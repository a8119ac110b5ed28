"""Words that users give: names of data sets and parts, labels, hashes."""

from __future__ import annotations

import unicodedata
from typing import Any

from dplangevin.errors import InvalidParameter

_REFUSED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_LONGEST = 200
# Letters and marks that show nothing, or a blank: Unicode's default ignorable ones that are not in _REFUSED already.
_INVISIBLE = {
    *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0",
    *map(chr, range(0xFE00, 0xFE10)),
    *map(chr, range(0xE0100, 0xE01F0)),
}
_TOGETHER = {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO"}
"""Alphabets that are written side by side; any other one stands alone."""
# Letters of other alphabets, digits and pairs that look like Latin letters once the case is folded.
_LOOKS_LIKE = str.maketrans(
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


def checked_name(parameter: str, value: Any) -> str:
    """The name of a data set or part: as `checked`, all of it visible, and in one alphabet."""
    name = checked(parameter, value)
    if _INVISIBLE.intersection(name):
        raise InvalidParameter(f"{parameter} must not hold invisible characters, got {name!a}; remove them.")
    scripts = {_script(letter) for letter in unicodedata.normalize("NFKC", name)} - {""}
    if len(scripts) > 1 and not scripts <= _TOGETHER:
        words = " and ".join(sorted(script.title() for script in scripts))
        raise InvalidParameter(
            f"{parameter} mixes {words} letters, some of which look alike, got {name!a}; write it in one alphabet."
        )
    return name


def comparable(name: str) -> str:
    """What a name is compared by: two names that a reader could take for one another are one name.

    Compatibility forms and case are folded (NFKC, casefold), letters of other alphabets and small capitals stand for
    the Latin ones they look like, 0 for o, 1, | and i for l, rn for m, vv for w, every dash and apostrophe for one of
    its kind, and spaces for one space.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    letters = folded.translate(_LOOKS_LIKE).replace("i", "l").replace("m", "rn").replace("w", "vv")
    dashes = "".join("-" if unicodedata.category(letter) == "Pd" else letter for letter in letters)
    return " ".join(dashes.split())


def _script(letter: str) -> str:
    """The alphabet of a letter or digit; "" for marks and for the digits 0 to 9, which belong to all."""
    kind = unicodedata.category(letter)
    spoken = kind[0] == "L" or (kind == "Nd" and letter > "9")
    return unicodedata.name(letter, "?").split(" ")[0] if spoken else ""
