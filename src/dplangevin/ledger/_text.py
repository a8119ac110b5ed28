"""Words that users give: names of data sets and parts, labels, hashes."""

from __future__ import annotations

import unicodedata
from typing import Any

from dplangevin.errors import InvalidParameter

_REFUSED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_LONGEST = 200
_ALIKE_SCRIPTS = {
    "LATIN",
    "CYRILLIC",
    "GREEK",
    "ARMENIAN",
    "COPTIC",
    "CHEROKEE",
    "GEORGIAN",
    "LISU",
    "DESERET",
}
# Letters of other alphabets, digits and pairs that look like Latin letters once the case is folded.
_LOOKS_LIKE = str.maketrans(
    {
        **dict(zip("аеорсухіјѕһԁԛԝьҽ", "aeopcyxijshdqwbe", strict=True)),  # Cyrillic
        **dict(zip("вкмнтпг", "bkmhtnr", strict=True)),  # Cyrillic
        **dict(zip("αβγεικνορτυχωη", "abyeikvoptuxwn", strict=True)),  # Greek
        **dict(zip("աոսւօհցքզյ", "wnulohgpqj", strict=True)),  # Armenian
        **dict(zip("ıɩɑɡʋ", "iiagv", strict=True)),  # Latin
        **dict(zip("01", "ol", strict=True)),
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
    """The name of a data set or part: as `checked`, and not a mixture of alphabets that look alike."""
    name = checked(parameter, value)
    scripts = {_script(letter) for letter in unicodedata.normalize("NFKC", name)} & _ALIKE_SCRIPTS
    if len(scripts) > 1:
        words = " and ".join(sorted(script.title() for script in scripts))
        raise InvalidParameter(
            f"{parameter} mixes {words} letters, which look alike, got {name!a}; write it in one alphabet."
        )
    return name


def comparable(name: str) -> str:
    """What a name is compared by: two names that a reader could take for one another are one name.

    Compatibility forms and case are folded (NFKC, casefold), letters of other alphabets stand for the Latin ones they
    look like, 0 for o, 1 and i for l, rn for m, and every dash and space for one of its kind.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    letters = folded.translate(_LOOKS_LIKE).replace("i", "l").replace("m", "rn")
    kinds = {"Pd": "-", "Zs": " "}
    return "".join(kinds.get(unicodedata.category(letter), letter) for letter in letters)


def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").split(" ")[0] if letter.isalpha() else ""
