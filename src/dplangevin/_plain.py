"""Plain data in files: strict JSON, readers that check each value and name its location in errors, and file formats.

Every loader is built on this. Only numbers, strings, lists and mappings come out of a file, so no file can run code. A
reader also describes what it accepts as JSON Schema, so that the description of a file is that of its loader.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar

from dplangevin import _check
from dplangevin.errors import InvalidParameter

_MAX_DEPTH = 32
_MAX_DIGITS = 50  # the state of a NumPy generator has 39
_MAX_LIST_LENGTH = 1_000_000
_MAX_TEXT_LENGTH = 10_000
_MAX_COUNT = 2**53
JSON_SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"

T = TypeVar("T")
ValueReader = Callable[[str, Any], Any]
"""A function (location, plain or typed value) -> checked typed value; `describes` adds what it accepts."""


def describes(**json_schema: Any) -> Callable[[Callable[[str, Any], T]], Callable[[str, Any], T]]:
    """Return a decorator that states the JSON Schema of the values that a reader accepts, or of a superset of them."""

    def add(read: Callable[[str, Any], T]) -> Callable[[str, Any], T]:
        @wraps(read)
        def read_value(where: str, value: Any) -> T:  # another function: `read` may have its own description
            return read(where, value)

        read_value.json_schema = json_schema  # type: ignore[attr-defined]
        return read_value

    return add


def describe_values(read: ValueReader) -> dict[str, Any]:
    """Return the JSON Schema of the values that a reader accepts; that of every value where it states none."""
    return getattr(read, "json_schema", {})


def describe_record(
    readers: Mapping[str, ValueReader], optional: Mapping[str, ValueReader] | None = None
) -> dict[str, Any]:
    """Return the JSON Schema of what `read_record` reads."""
    properties = {name: describe_values(read) for name, read in {**readers, **(optional or {})}.items()}
    return {
        "type": "object", "properties": properties, "required": list(readers), "additionalProperties": False,
    }  # fmt: skip


def parse_json(text: str, what: str) -> Any:
    """Return the value of JSON text; refuse duplicate names, NaN, numbers that no double holds, and deep nesting."""
    try:
        plain = json.loads(
            text,
            object_pairs_hook=_refuse_duplicate_keys,
            parse_constant=_refuse_constant,
            parse_float=_parse_finite,
            parse_int=_parse_whole,
        )
    except (ValueError, RecursionError, TypeError) as error:
        raise InvalidParameter(f"{what} is not valid JSON: {str(error) or 'it nests too deeply'}.") from None
    return check_nesting(plain, what)


def check_nesting(plain: Any, what: str) -> Any:
    """Return the same value; refuse one that nests too deeply or holds text that cannot be encoded."""
    level: list[Any] = [plain]
    for _ in range(_MAX_DEPTH):
        for value in level:
            if isinstance(value, str) and not value.isascii():
                _check_writable(value, what)
        level = [
            inner
            for value in level
            for inner in _iterate_children(value)
            if isinstance(inner, (dict, list, str))
        ]
        if not level:
            return plain
    raise InvalidParameter(f"{what} nests deeper than {_MAX_DEPTH} levels.")


def canonical_json(plain: Any) -> bytes:
    """Return the one text of equal plain data (sorted names, no spaces, ASCII), for digests and signatures."""
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def add_digest(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data with a hash of itself, which detects files that were altered by accident."""
    return {**plain, "digest": _compute_digest(plain)}


def check_digest(plain: Mapping[str, Any], what: str) -> None:
    """Refuse data that do not match their own hash; files of older versions have none."""
    if plain.get("digest") not in (None, _compute_digest(plain)):
        raise InvalidParameter(
            f"{what} was altered or damaged after it was written: its digest does not fit. Write it again, "
            "or "
            'remove "digest" if you changed it on purpose.'
        )


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """A kind of JSON file: its fields, each with its reader, and the versions that are read.

    Parameters
    ----------
    what : the file in messages, such as "a plan file".
    version, oldest : the version that is written, and the oldest one that is read.
    fields, optional : readers of the fields that must and that may occur.
    layout : the value of "format", in files that have this field.
    """

    what: str
    version: int
    fields: Mapping[str, ValueReader]
    optional: Mapping[str, ValueReader] = field(default_factory=dict)
    layout: str | None = None
    oldest: int = 1

    @property
    def readers(self) -> dict[str, ValueReader]:
        """Readers of the fields that must occur, with those that every file has."""
        head = {} if self.layout is None else {"format": choice_reader(self.layout)}
        return {**head, "version": whole_number_reader(1), **self.fields}

    def write(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of a file: with its version and, where the format has one, the digest of itself."""
        head: dict[str, Any] = {} if self.layout is None else {"format": self.layout}
        plain = {**head, "version": self.version, **content}
        return add_digest(plain) if "digest" in self.optional else plain

    def check(self, plain: Any, what: str | None = None) -> dict[str, Any]:
        """Return the content as it is; raise for another format or version, an unknown field, or a wrong value."""
        what = what or self.what
        content = read_mapping(what, plain)
        if self.layout is not None and content.get("format") != self.layout:
            raise InvalidParameter(f'this is not {what}: "format" must be "{self.layout}".')
        version = whole_number_reader(1)(f"version of {what}", content.get("version"))
        if version > self.version:
            raise InvalidParameter(
                f"{what} has format version {version}, and this library reads up to {self.version}; upgrade "
                "dplangevin."
            )
        if version < self.oldest:
            raise InvalidParameter(
                f"{what} has format version {version}, which dplangevin 0.1 wrote, and this library reads "
                f"version {self.oldest} on; make it again with this version."
            )
        self.read(content)
        return content

    def read(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the fields, whatever the version."""
        return read_record(self.what.removeprefix("a ").split()[0], content, self.readers, self.optional)

    def describe(self) -> dict[str, Any]:
        """Return the JSON Schema of the content, to be part of another one."""
        return describe_record(self.readers, self.optional)

    def to_json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema, draft 2020-12, of the files that are written; every file that loads satisfies it."""
        description = self.describe()
        description["properties"]["version"] = {
            "type": "integer",
            "minimum": self.oldest,
            "maximum": self.version,
        }
        return {
            "$schema": JSON_SCHEMA_DRAFT,
            "title": self.what.removeprefix("a ").capitalize(),
            **description,
        }


def format_json(plain: Any) -> str:
    """Return the text of a JSON file; raise rather than write a number that JSON cannot express."""
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


def replace_infinities(value: Any) -> Any:
    """Return plain data for reports: infinities as None beside `<name>_infinite: True`, and NaN as None."""
    if isinstance(value, Mapping):
        clean: dict[str, Any] = {}
        for name, item in value.items():
            clean[str(name)] = replace_infinities(item)
            if isinstance(item, float) and math.isinf(item):
                clean[f"{name}_infinite"] = True
        return clean
    if isinstance(value, (list, tuple)):
        return [replace_infinities(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@describes(type="object")
def read_mapping(where: str, value: Any) -> dict[str, Any]:
    """Read a JSON object: a mapping from strings to values."""
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InvalidParameter(f"{where} must be an object, got {type(value).__name__}.")
    return value


def read_record(
    where: str,
    value: Any,
    readers: Mapping[str, ValueReader],
    optional: Mapping[str, ValueReader] | None = None,
) -> dict[str, Any]:
    """Read a JSON object with exactly these names, and perhaps the optional ones, each value by its own reader."""
    values, known = read_mapping(where, value), {**readers, **(optional or {})}
    missing, extra = sorted(set(readers) - set(values)), sorted(set(values) - set(known))
    if missing or extra:
        problems = [
            f"{verb} {', '.join(names[:5])}"
            for verb, names in (("lacks", missing), ("has unknown", extra))
            if names
        ]
        raise InvalidParameter(f"{where} {' and '.join(problems)}; it holds {', '.join(known)}.")
    return {name: known[name](f"{where}.{name}", item) for name, item in values.items()}


@describes(type="boolean")
def read_boolean(where: str, value: Any) -> bool:
    """Read true or false; numbers are refused."""
    if not isinstance(value, bool):
        raise InvalidParameter(f"{where} must be true or false, got {type(value).__name__}.")
    return value


def read_unchecked(where: str, value: Any) -> Any:
    """Return a value as it is; it is checked elsewhere."""
    return value


@describes(anyOf=[{"type": "number", "minimum": 0}, {"const": "inf"}])
def read_cost(where: str, value: Any) -> float:
    """Read a number >= 0 or "inf"; negative zero becomes zero."""
    if isinstance(value, str) and value == "inf":
        return math.inf
    return abs(_check.check_nonnegative(where, value, infinite=True))


@describes(anyOf=[{"type": "number", "exclusiveMinimum": 0}, {"const": "inf"}])
def read_positive(where: str, value: Any) -> float:
    """Read a number > 0 or "inf"."""
    return _check.check_positive(where, read_cost(where, value), infinite=True)


@describes(type="number", minimum=0, maximum=1)
def read_probability(where: str, value: Any) -> float:
    """Read a number in [0, 1]."""
    number = read_cost(where, value)
    if number > 1:
        raise InvalidParameter(f"{where} must be at most 1, got {value!r}.")
    return number


@describes(type="number", exclusiveMinimum=0, maximum=1)
def read_rate(where: str, value: Any) -> float:
    """Read a number in (0, 1]."""
    return read_positive(where, read_probability(where, value))


@describes(type="number", minimum=1)
def read_at_least_one(where: str, value: Any) -> float:
    """Read a finite number >= 1."""
    number = read_cost(where, value)
    if number < 1 or math.isinf(number):
        raise InvalidParameter(f"{where} must be finite and at least 1, got {value!r}.")
    return number


@describes(type="number", exclusiveMinimum=1)
def read_above_one(where: str, value: Any) -> float:
    """Read a finite number > 1."""
    number = read_at_least_one(where, value)
    if number == 1:
        raise InvalidParameter(f"{where} must be above 1, got {value!r}.")
    return number


def whole_number_reader(minimum: int) -> ValueReader:
    """Return a reader of whole numbers >= minimum."""

    @describes(type="integer", minimum=minimum, maximum=_MAX_COUNT)
    def read(where: str, value: Any) -> int:
        number = _check.check_count(where, value, minimum=minimum)
        if number > _MAX_COUNT:
            raise InvalidParameter(f"{where} must be at most 2**53, got {number!r}.")
        return number

    return read


@describes(type="string", maxLength=_MAX_TEXT_LENGTH)
def read_text(where: str, value: Any) -> str:
    """Read text that can be stored: of bounded length, without null characters and surrogates."""
    if not isinstance(value, str):
        raise InvalidParameter(f"{where} must be text, got {type(value).__name__}.")
    if len(value) > _MAX_TEXT_LENGTH:
        raise InvalidParameter(f"{where} is longer than {_MAX_TEXT_LENGTH} characters.")
    if any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in value):
        raise InvalidParameter(f"{where} holds a character that is not text.")
    return value


def choice_reader(*allowed: str) -> ValueReader:
    """Return a reader of one of the allowed strings."""
    return describes(enum=list(allowed))(lambda where, value: _check.check_choice(where, value, allowed))


def list_reader(read: ValueReader, *, min_length: int = 0) -> ValueReader:
    """Return a reader of lists, which reads every item with `read`."""

    @describes(type="array", items=describe_values(read), minItems=min_length, maxItems=_MAX_LIST_LENGTH)
    def read_all(where: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise InvalidParameter(f"{where} must be a list, got {type(value).__name__}.")
        if not min_length <= len(value) <= _MAX_LIST_LENGTH:
            raise InvalidParameter(
                f"{where} must have {min_length} to {_MAX_LIST_LENGTH} entries, got {len(value)}."
            )
        return tuple(read(f"{where}[{i}]", item) for i, item in enumerate(value))

    return read_all


def optional_reader(read: ValueReader) -> ValueReader:
    """Return a reader that also accepts None."""
    schema = {"anyOf": [describe_values(read), {"type": "null"}]} if describe_values(read) else {}
    return describes(**schema)(lambda where, value: None if value is None else read(where, value))


def _iterate_children(value: Any) -> Any:
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else ()


def _check_writable(value: str, what: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidParameter(f"{what} holds a character that is not text.") from None


def _compute_digest(plain: Mapping[str, Any]) -> str:
    bare = {name: value for name, value in plain.items() if name not in ("digest", "signature")}
    return hashlib.sha256(canonical_json(bare)).hexdigest()


def _refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a name is given twice")
    return mapping


def _refuse_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a JSON number")


def _parse_finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:20]} is too large")
    return number


def _parse_whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"{digits[:20]}... is too large")
    return int(digits)
