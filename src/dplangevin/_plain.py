"""Plain data of files: strict JSON, and the checked reading of its values; errors name where a value stood.

Every loader is built on this. Nothing but numbers, words, lists and tables comes out of a file, so none can run code.
"""

from __future__ import annotations

import hashlib
import html
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from dplangevin import _check
from dplangevin.errors import InvalidParameter

CONTROLS = {code: " " for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""What a terminal or a page would obey, for `str.translate`."""
_DEEPEST = 32
_MOST_DIGITS = 50  # the state of a generator has 39
_LONGEST_LIST = 1_000_000
_LONGEST_WORDS = 10_000
_LARGEST_COUNT = 2**53

Reader = Callable[[str, Any], Any]
"""(where, plain or live value) -> checked live value."""


def parse(text: str, what: str) -> Any:
    """The value of JSON text; refuses names given twice, NaN, numbers that no double holds, and deep nesting."""
    try:
        plain = json.loads(
            text, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole
        )
    except (ValueError, RecursionError, TypeError) as error:
        raise InvalidParameter(f"{what} is not valid JSON: {str(error) or 'it nests too deeply'}.") from None
    return bounded(plain, what)


def bounded(plain: Any, what: str) -> Any:
    """The same value; refused where it nests too deeply, or holds text that cannot be written."""
    level: list[Any] = [plain]
    for _ in range(_DEEPEST):
        for value in level:
            if isinstance(value, str) and not value.isascii():
                _writable(value, what)
        level = [inner for value in level for inner in _inner(value) if isinstance(inner, (dict, list, str))]
        if not level:
            return plain
    raise InvalidParameter(f"{what} nests deeper than {_DEEPEST} levels.")


def canonical(plain: Any) -> bytes:
    """One text for equal plain data: names in order, no spaces, ASCII. Digests and signatures are taken over it."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def with_digest(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The data with a hash of itself, which tells a file that was altered by accident."""
    return {**plain, "digest": _digest(plain)}


def check_digest(plain: Mapping[str, Any], what: str) -> None:
    """Refuse data that its own hash does not fit; files of older versions have none."""
    if plain.get("digest") not in (None, _digest(plain)):
        raise InvalidParameter(
            f"{what} was altered or damaged after it was written: its digest does not fit. Write it again, or remove "
            '"digest" if you changed it on purpose.'
        )


def check_version(
    plain: Any, what: str, newest: int, layout: str | None = None, oldest: int = 1
) -> dict[str, Any]:
    """The table in a file of this layout ("format") and of a version that is known."""
    found = mapping(what, plain)
    if layout is not None and found.get("format") != layout:
        raise InvalidParameter(f'this is not {what}: "format" must be "{layout}".')
    version = whole(1)(f"version of {what}", found.get("version"))
    if version > newest:
        raise InvalidParameter(
            f"{what} has format version {version}, and this library reads up to {newest}; upgrade dplangevin."
        )
    if version < oldest:
        raise InvalidParameter(
            f"{what} has format version {version}, which does not name the conditions of a guarantee, and this library "
            f"reads version {oldest} on; make it again with this version of dplangevin."
        )
    return found


def mapping(where: str, value: Any) -> dict[str, Any]:
    """A table of names."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidParameter(f"{where} must be an object, got {type(value).__name__}.")
    return value


def record(
    where: str, value: Any, readers: Mapping[str, Reader], optional: Mapping[str, Reader] | None = None
) -> dict[str, Any]:
    """A table with exactly these names, and perhaps the optional ones, each read by its reader."""
    found, known = mapping(where, value), {**readers, **(optional or {})}
    missing, extra = sorted(set(readers) - set(found)), sorted(set(found) - set(known))
    if missing or extra:
        says = [
            f"{word} {', '.join(names[:5])}"
            for word, names in (("lacks", missing), ("has unknown", extra))
            if names
        ]
        raise InvalidParameter(f"{where} {' and '.join(says)}; it holds {', '.join(known)}.")
    return {name: known[name](f"{where}.{name}", item) for name, item in found.items()}


def boolean(where: str, value: Any) -> bool:
    """True or false, and no number."""
    if not isinstance(value, bool):
        raise InvalidParameter(f"{where} must be true or false, got {type(value).__name__}.")
    return value


def anything(where: str, value: Any) -> Any:
    """A value that is checked elsewhere."""
    return value


def cost(where: str, value: Any) -> float:
    """A number >= 0 or "inf"; zero has one sign."""
    if isinstance(value, str) and value == "inf":
        return math.inf
    return abs(_check.nonnegative(where, value, infinite=True))


def positive(where: str, value: Any) -> float:
    """A number > 0 or "inf"."""
    return _check.positive(where, cost(where, value), infinite=True)


def probability(where: str, value: Any) -> float:
    """A number in [0, 1]."""
    found = cost(where, value)
    if found > 1:
        raise InvalidParameter(f"{where} must be at most 1, got {value!r}.")
    return found


def rate(where: str, value: Any) -> float:
    """A number in (0, 1]."""
    return positive(where, probability(where, value))


def at_least_one(where: str, value: Any) -> float:
    """A finite number >= 1."""
    found = cost(where, value)
    if found < 1 or math.isinf(found):
        raise InvalidParameter(f"{where} must be finite and at least 1, got {value!r}.")
    return found


def above_one(where: str, value: Any) -> float:
    """A finite number > 1."""
    found = at_least_one(where, value)
    if found == 1:
        raise InvalidParameter(f"{where} must be above 1.")
    return found


def whole(least: int) -> Reader:
    """A whole number >= least."""

    def read(where: str, value: Any) -> int:
        found = _check.count(where, value, least=least)
        if found > _LARGEST_COUNT:
            raise InvalidParameter(f"{where} must be at most 2**53, got {found!r}.")
        return found

    return read


def words(where: str, value: Any) -> str:
    """Text that can be stored."""
    if not isinstance(value, str):
        raise InvalidParameter(f"{where} must be text, got {type(value).__name__}.")
    if len(value) > _LONGEST_WORDS:
        raise InvalidParameter(f"{where} is longer than {_LONGEST_WORDS} characters.")
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in value):
        raise InvalidParameter(f"{where} holds a character that is not text.")
    return value


def one_of(*allowed: str) -> Reader:
    """One of the allowed words."""
    return lambda where, value: _check.choice(where, value, allowed)


def list_of(read: Reader, *, least: int = 0) -> Reader:
    """A list, read item by item."""

    def read_all(where: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise InvalidParameter(f"{where} must be a list, got {type(value).__name__}.")
        if not least <= len(value) <= _LONGEST_LIST:
            raise InvalidParameter(f"{where} must have {least} to {_LONGEST_LIST} entries, got {len(value)}.")
        return tuple(read(f"{where}[{i}]", item) for i, item in enumerate(value))

    return read_all


def optional(read: Reader) -> Reader:
    """The same, or None."""
    return lambda where, value: None if value is None else read(where, value)


def markdown_text(words: str) -> str:
    """Text that stays text in Markdown: no HTML, links, code or new cells come of it.

    A backslash is doubled first: one that stands before a bracket would undo the bracket's own.
    """
    text = " ".join(
        html.escape(words.translate(CONTROLS)).replace("&#x27;", "'").replace("&quot;", '"').split()
    )
    for character in "\\|[]`*":
        text = text.replace(character, "\\" + character)
    return text


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else ()


def _writable(value: str, what: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParameter(f"{what} holds a character that is not text.") from None


def _digest(plain: Mapping[str, Any]) -> str:
    bare = {name: value for name, value in plain.items() if name not in ("digest", "signature")}
    return hashlib.sha256(canonical(bare)).hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"{digits[:20]}... is too large")
    return int(digits)
