"""A schema of which some ranges and categories are left to be learned, under the promise, by the fit itself."""

from __future__ import annotations

import itertools
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dplangevin import _check, _files, _plain
from dplangevin.errors import InvalidParameter
from dplangevin.schema.columns import CategoricalColumn, Column, column_from_dict
from dplangevin.schema.schema import VERSION, Schema, _target

LEARN = "learn"
MOST = 32
NOTHING = "(no category was common enough)"
KINDS: dict[str, dict[str, Any]] = {"number": {"range": LEARN}, "category": {"categories": LEARN}}
_NEEDS_CLASSES = (
    "target.classes cannot be learned: their number decides what is fitted, so state the public labels, e.g. "
    'target={"name": ..., "classes": ["no", "yes"]}.'
)


@dataclass(frozen=True, kw_only=True)
class LearnedNumber:
    """A number column without a stated range.

    Parameters
    ----------
    unit : a public order of magnitude: what is smaller than a millionth of it counts as zero.
    transform : "identity" or "log1p" where the scale is stated; None leaves it to a rule on the learned counts.
    rest : other entries of the column, as in the file.
    """

    name: str
    unit: float = 1.0
    transform: str | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unit = _check.positive(f"columns.{self.name}.unit", self.unit)
        if not 1e-100 <= unit <= 1e100:
            raise InvalidParameter(f"columns.{self.name}.unit must be within 1e-100 and 1e100, got {unit!r}.")
        _check.put(self, unit=unit)
        if self.transform is not None:
            _check.choice(f"columns.{self.name}.transform", self.transform, ("identity", "log1p"))
        basis = self.rest.get("basis")
        if isinstance(basis, Mapping) and basis.get("knots") is not None:
            raise InvalidParameter(
                f"columns.{self.name}.basis.knots need a stated range: a learned one may leave them outside. State "
                "'hats', or the range."
            )
        self.column({"range": [0.0, 1.0]})  # refuses wrong entries before anything is read

    def column(self, entry: Mapping[str, Any]) -> Column:
        """The column with a range (and a transform) that is known."""
        return column_from_dict(self.name, {**entry, **self.rest})

    @property
    def widest(self) -> Column:
        """A column of the same width in the encoding."""
        return self.column({"range": [0.0, 1.0]})

    def to_dict(self) -> dict[str, Any]:
        """The column as in the file format."""
        extra: dict[str, Any] = {} if self.unit == 1 else {"unit": self.unit}
        if self.transform is not None:
            extra["transform"] = self.transform
        return {"range": LEARN, **extra, **self.rest}


@dataclass(frozen=True, kw_only=True)
class LearnedCategories:
    """A category column without a stated list: at most `most` common categories are listed, the rest is "other"."""

    name: str
    most: int = MOST
    rest: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check.put(self, most=_check.count(f"columns.{self.name}.most", self.most))
        if self.most > 1000:
            raise InvalidParameter(f"columns.{self.name}.most must be at most 1000, got {self.most}.")
        self.column(["a"])

    @property
    def text(self) -> bool:
        """Whether texts keep their characters."""
        return self.rest.get("as") == "text"

    def column(self, categories: Iterable[str]) -> Column:
        """The column with its list; an empty one leaves every row in "other"."""
        listed = list(categories) or [NOTHING]
        return column_from_dict(self.name, {"categories": listed, **self.rest, "other": "own"})

    def filled(self, learned: Column) -> Column:
        """The learned list with empty categories up to `most`."""
        kept = [str(word) for word in learned.categories] if isinstance(learned, CategoricalColumn) else []
        empty = (word for place in range(2 * self.most) if (word := f"\0{place}") not in kept)
        return self.column([*kept, *itertools.islice(empty, self.most - len(kept))])

    @property
    def widest(self) -> Column:
        """A column of the largest width in the encoding."""
        return self.column(f"category {place}" for place in range(self.most))

    def to_dict(self) -> dict[str, Any]:
        """The column as in the file format."""
        extra = {} if self.most == MOST else {"most": self.most}
        return {"categories": LEARN, **extra, **self.rest}


AnyColumn = Column | LearnedNumber | LearnedCategories


@dataclass(frozen=True, kw_only=True)
class SchemaToLearn:
    """Columns of which some state their kind alone: ranges and lists are learned by a fit, inside its promise.

    Made by `Schema.learn`, or from the plain data of a schema with "range": "learn" or "categories": "learn". Only a
    fit learns it: the result is the fitted estimator's `schema_`, a Schema like any other, public from then on.

    Examples
    --------
    >>> raw = Schema.learn(age="number", job="category", sex={"categories": ["f", "m"]},
    ...                    target={"name": "sick", "classes": ["no", "yes"]})
    >>> [column.name for column in raw.numbers], [column.name for column in raw.categories], raw.names
    (['age'], ['job'], ('age', 'job', 'sex'))
    """

    columns: tuple[AnyColumn, ...]
    target: AnyColumn | None = None
    missing: str = "own"
    row_norm: float = 1.0

    def __post_init__(self) -> None:
        _check.put(self, columns=tuple(self.columns))
        if isinstance(self.target, LearnedCategories):
            raise InvalidParameter(_NEEDS_CLASSES)
        self.widest()  # what is wrong with the statements is said now
        if not self.numbers and not self.categories:
            raise InvalidParameter("no column is to be learned; this is a Schema: use Schema.from_dict.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, without the target."""
        return tuple(column.name for column in self.columns)

    @property
    def _all(self) -> tuple[AnyColumn, ...]:
        return self.columns if self.target is None else (*self.columns, self.target)

    @property
    def numbers(self) -> tuple[LearnedNumber, ...]:
        """Columns (and perhaps the target) whose range is learned."""
        return tuple(column for column in self._all if isinstance(column, LearnedNumber))

    @property
    def categories(self) -> tuple[LearnedCategories, ...]:
        """Columns whose list is learned."""
        return tuple(column for column in self._all if isinstance(column, LearnedCategories))

    @property
    def unknown(self) -> tuple[LearnedNumber | LearnedCategories, ...]:
        """All that is learned."""
        return (*self.numbers, *self.categories)

    def stated(self, found: Mapping[str, Column]) -> Schema:
        """The schema with what was found in place of what was to be learned."""
        target = None if self.target is None else found.get(self.target.name, self.target)
        columns = [found.get(column.name, column) for column in self.columns]
        return Schema(columns=columns, target=target, missing=self.missing, row_norm=self.row_norm)  # type: ignore[arg-type]

    def widest(self) -> Schema:
        """A schema whose encoding is as wide as what may be learned; its ranges and lists mean nothing."""
        return self.stated({column.name: column.widest for column in self.unknown})

    def padded(self, schema: Schema) -> Schema:
        """What was learned, in an encoding as wide as what might have been: lists are filled with empty categories."""
        filled = {column.name: column.filled(schema.column(column.name)) for column in self.categories}
        return self.stated({column.name: filled.get(column.name, column) for column in _all_of(schema)})

    def to_dict(self) -> dict[str, Any]:
        """The plain data of the file format."""
        content = self.widest().to_dict()
        content["columns"] = {column.name: column.to_dict() for column in self.columns}
        if isinstance(self.target, LearnedNumber):
            content["target"] = {"name": self.target.name, **self.target.to_dict()}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> SchemaToLearn:
        """From the plain data of the file format."""
        if not isinstance(content, Mapping) or not isinstance(content.get("columns"), Mapping):
            raise InvalidParameter("columns must be a non-empty table of column names.")
        unknown = sorted(set(content) - {"version", "columns", "target", "missing", "row_norm"})
        if unknown:
            raise InvalidParameter(f"the schema has unknown entries {', '.join(unknown)}; remove them.")
        if content.get("version", VERSION) != VERSION:
            raise InvalidParameter(f"schema version must be {VERSION}, got {content['version']!r}.")
        return cls(
            columns=tuple(_column(str(name), entry) for name, entry in content["columns"].items()),
            target=_any_target(content.get("target")),
            missing=content.get("missing", "own"),
            row_norm=content.get("row_norm", 1.0),
        )

    def save(self, path: str | Path) -> None:
        """Write the plain data to a .json file."""
        _files.write_text(Path(path), json.dumps(self.to_dict(), indent=2) + "\n")


def _all_of(schema: Schema) -> tuple[Column, ...]:
    return schema.columns if schema.target is None else (*schema.columns, schema.target)


def leaves_open(schema: Any) -> bool:
    """Whether what is given as a schema leaves something to be learned, or everything ("learn")."""
    if isinstance(schema, str):
        return schema == LEARN
    return isinstance(schema, SchemaToLearn) or asks_to_learn(schema)


def asks_to_learn(content: Any) -> bool:
    """Whether plain data of a schema leave something to be learned."""
    if not isinstance(content, Mapping) or not isinstance(content.get("columns"), Mapping):
        return False
    entries = [*content["columns"].values(), content.get("target")]
    words = ("range", "categories", "classes")
    return any(isinstance(entry, Mapping) and LEARN in [_word(entry, w) for w in words] for entry in entries)


def load_any(path: str | Path) -> Schema | SchemaToLearn:
    """A schema file (.json or .toml), which may leave something to be learned."""
    what, text = f"the schema {str(path)!r}", _files.read_text(path, "the schema")
    try:
        content = tomllib.loads(text) if Path(path).suffix.lower() == ".toml" else _plain.parse(text, what)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter(f"{what} is not valid TOML: {error}.") from None
    return (
        SchemaToLearn.from_dict(_plain.bounded(content, what))
        if asks_to_learn(content)
        else Schema.load(path)
    )


def learned(
    columns: Mapping[str, Any], target: Any = None, missing: str = "own", row_norm: float = 1.0
) -> SchemaToLearn:
    """What `Schema.learn` makes: every column by its kind, "number" or "category", or by what is known of it."""
    if not columns:
        raise InvalidParameter(
            'name the columns and their kinds: Schema.learn(age="number", job="category").'
        )
    made = [_column(str(name), _kind(name, kind)) for name, kind in columns.items()]
    return SchemaToLearn(columns=tuple(made), target=_any_target(target), missing=missing, row_norm=row_norm)


def template(names: Iterable[str]) -> InvalidParameter:
    """The error for schema="learn", with the call to fill in: a type in the table never decides what a column is."""
    listed = list(names) or ["column"]
    call = ", ".join(f'{json.dumps(name, ensure_ascii=False)}: "number" or "category"' for name in listed)
    return InvalidParameter(
        "schema='learn' does not say which columns are numbers and which are categories, and one odd cell would change "
        f"what the table says: schema=Schema.learn({{{call}}}), without the target and with a kind for each column."
    )


def _kind(name: str, kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return kind
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    raise InvalidParameter(
        f"the kind of column {name!r} must be 'number' or 'category' (or what is known of it, e.g. "
        f'{{"range": [0, 120]}}), got {kind!r}.'
    )


def _word(entry: Mapping[str, Any], key: str) -> Any:
    found = entry.get(key)
    return found if isinstance(found, str) else None


def _column(name: str, entry: Any) -> AnyColumn:
    if isinstance(entry, Mapping) and _word(entry, "range") == LEARN:
        rest = {key: value for key, value in entry.items() if key not in ("range", "unit", "transform")}
        unit = entry.get("unit", 1.0)
        return LearnedNumber(name=name, unit=unit, transform=entry.get("transform"), rest=rest)
    if isinstance(entry, Mapping) and _word(entry, "categories") == LEARN:
        rest = {key: value for key, value in entry.items() if key not in ("categories", "most", "other")}
        return LearnedCategories(name=name, most=entry.get("most", MOST), rest=rest)
    return column_from_dict(name, entry)


def _any_target(entry: Any) -> AnyColumn | None:
    if entry is None:
        return None
    if isinstance(entry, Mapping) and _word(entry, "classes") == LEARN:
        raise InvalidParameter(_NEEDS_CLASSES)
    if isinstance(entry, Mapping) and _word(entry, "range") == LEARN and isinstance(entry.get("name"), str):
        if set(entry) - {"name", "range", "unit"}:
            raise InvalidParameter("a learned target has 'name', 'range' and perhaps 'unit'.")
        return LearnedNumber(name=entry["name"], unit=entry.get("unit", 1.0), transform="identity")
    return _target(entry)


def as_schema(given: Any) -> Schema:
    """A Schema from one, or from the plain data of its file format."""
    if given is None:
        raise InvalidParameter("schema is missing; state the columns with their ranges and categories.")
    if isinstance(given, str | os.PathLike):  # a file could change between fit and predict
        raise InvalidParameter(
            "schema is a path; read the file once: schema=dplangevin.schema.Schema.load(path)."
        )
    if isinstance(given, SchemaToLearn):
        raise InvalidParameter(
            "this schema is to be learned, which only the fit of an estimator does, inside its promise; afterwards its "
            "schema_ is a public one."
        )
    return given if isinstance(given, Schema) else Schema.from_dict(given)
