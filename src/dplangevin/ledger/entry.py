"""Entries of the ledger: their checked text, the hash chain over them, and what is left of a budget.

The first link of a data set's chain is a hash of the declared budget, every further one a hash of the previous link
and the entry. Nothing in it is secret: whoever holds a head outside the database can detect an older or another
ledger.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
import re
import unicodedata
from dataclasses import dataclass, fields, is_dataclass
from decimal import ROUND_FLOOR, Context
from typing import Any

from dplangevin.accounting import serialize
from dplangevin.accounting.guarantee import Guarantee
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


_HEAD_PATTERN = re.compile(r"(0|[1-9][0-9]{0,17})-([0-9a-f]{64})")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """What is appended to the ledger: an entry without its number and link. The token is stored as a hash."""

    dataset: str
    token: str
    part: str
    label: str
    created: str
    guarantee: str
    plan: str
    library: str


def first_link(identity: str, name: str, budget: tuple[Any, ...]) -> str:
    """Return the first link of a chain: a hash of the ledger's identity, the data set's name and its budget."""
    return _hash_fields("dplangevin-ledger", identity, name, *(repr(value) for value in budget))


def next_link(previous_link: str, sequence: int, charge: Charge) -> str:
    """Return the next link of a chain. No field holds a line break, so line breaks separate the fields."""
    return _hash_fields(
        previous_link,
        str(sequence),
        charge.token,
        charge.part,
        charge.label,
        charge.created,
        charge.guarantee,
        charge.plan,
        charge.library,
    )


def hash_token(token: str) -> str:
    """Return the hash under which a token is stored: readers of the ledger cannot act for a run."""
    return _hash_fields("token", token)


def format_head(sequence: int, chain: str) -> str:
    """Return a head as text: the number of entries and the last link."""
    return f"{sequence}-{chain}"


def parse_head(text: Any) -> tuple[int, str]:
    """Return the number of entries and the link of a head."""
    match = _HEAD_PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidParameter(
            f"{text!r:.100} is not the head of a ledger, which looks like 12-<64 hexadecimal digits>; see "
            "`ledger head`."
        )
    return int(match[1]), match[2]


def _hash_fields(*fields: str) -> str:
    return hashlib.sha256("\n".join(fields).encode("utf-8")).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One charge, made before the data were read, whether or not a release followed.

    Parameters
    ----------
    dataset : name of the data set.
    sequence : 1, 2, 3, ... within the data set; it, and not the time, orders entries.
    part : the disjoint part that was used; "" is the whole data set.
    label : who charged and for what, as the user stated it.
    created, released : times by the writer's clock (UTC), for information.
    guarantee : what was charged.
    plan : the public parameters of the run.
    library : the version of dplangevin that wrote the entry.
    release_hash : SHA-256 of the released numbers; None when no release was noted.
    chain : hash of this entry and of all before it.
    """

    dataset: str
    sequence: int
    part: str
    label: str
    created: str
    guarantee: Guarantee
    plan: dict[str, Any]
    library: str
    release_hash: str | None
    released: str | None
    chain: str

    @property
    def head(self) -> str:
        """The head of the data set's chain after this entry."""
        return format_head(self.sequence, self.chain)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "sequence": self.sequence,
            "part": self.part,
            "label": self.label,
            "created": self.created,
            "theorem": self.guarantee.theorem,
            "guarantee": serialize.guarantee_to_plain(self.guarantee),
            "plan": self.plan,
            "library": self.library,
            "release_hash": self.release_hash,
            "released": self.released,
            "head": self.head,
        }


@dataclass(frozen=True, kw_only=True)
class Remaining:
    """What is left of a budget.

    There is no "spent epsilon": a running total is no guarantee, since a user may stop when it happens to be small.
    The guarantee is the budget.

    Parameters
    ----------
    epsilon, delta : the budget, which all releases together satisfy.
    adjacency, max_rows_per_person : the adjacency and the number of rows per person of the budget.
    entries : number of charges.
    pure_epsilon, gaussian_mu : the largest pure, or GDP, release that still fits, rounded down.
    gaussian_epsilon : epsilon of that GDP release (a fit) at the budget's delta, rounded down.
    n_more_like_last : about how many more releases like the last one fit; None where there is no last one.
    n_unused_items : releases that were charged with declared programmes and are not made yet.
    n_over_budget : entries that do not fit the filter (entered afterwards, or admitted by an older version under the
        rule of fixed costs); the budget itself is then not a guarantee.
    n_fixed_cost_entries : this many first entries were admitted under the rule of fixed costs, which is valid for
        releases that were planned beforehand.
    """

    epsilon: float
    delta: float
    adjacency: str
    max_rows_per_person: int
    entries: int
    pure_epsilon: float
    gaussian_mu: float
    gaussian_epsilon: float
    n_more_like_last: int | None = None
    n_unused_items: int = 0
    n_over_budget: int = 0
    n_fixed_cost_entries: int = 0

    def fitting_text(self) -> str:
        """Return a phrase on what still fits; rounded down, so that it does."""
        pure = f"pure epsilon = {format_rounded_down(self.pure_epsilon)}"
        if self.delta > 0:
            fit = (
                f"one fit of epsilon = {format_rounded_down(self.gaussian_epsilon)} at delta = {self.delta:g}"
            )
            pure = f"{fit} (GDP mu = {format_rounded_down(self.gaussian_mu)}), or {pure}"
        like_text = (
            "" if self.n_more_like_last is None else f"; about {self.n_more_like_last} more like the last one"
        )
        items = f"; {self.n_unused_items} releases of declared programmes" if self.n_unused_items else ""
        return pure + like_text + items

    def exceptions_text(self) -> str:
        """Return a phrase on entries that the filter did not admit; "" where there are none."""
        texts = []
        if self.n_fixed_cost_entries:
            texts.append(f"the first {self.n_fixed_cost_entries} were admitted under the rule of fixed costs")
        if self.n_over_budget:
            texts.append(f"{self.n_over_budget} do not fit the filter")
        return "; ".join(texts)


def format_rounded_down(size: float) -> str:
    """Format a number with four significant digits, rounded down."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(size))):.4g}"
