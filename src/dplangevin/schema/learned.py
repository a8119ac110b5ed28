"""Schemas that are not stated in full: drafts to edit by hand, and ranges and categories that the fit itself learns."""

from __future__ import annotations

import itertools
import json
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from dplangevin import _check, _files, _plain
from dplangevin.errors import InvalidParameter
from dplangevin.schema.columns import CategoricalColumn, Column, column_from_dict, refuse_identifier
from dplangevin.schema.schema import LEARN, VERSION, Schema, read_target_column
from dplangevin.tables.cells import (
    read_date,
    read_label,
    read_number,
    replace_decimal_comma,
    text_of_days,
)

DEFAULT_MAX_CATEGORIES = 32
UNUSED_CATEGORY = "(no category was common enough)"
DEFAULT_BUCKETS = 64
KINDS: dict[str, dict[str, Any]] = {
    "number": {"range": LEARN},
    "category": {"categories": LEARN},
    "hash": {"hash": DEFAULT_BUCKETS},
}
_NEEDS_CLASSES = (
    "target.classes cannot be learned: their number determines the model, so state the public labels, e.g. "
    'target={"name": ..., "classes": ["no", "yes"]}.'
)


@dataclass(frozen=True, kw_only=True)
class LearnedNumber:
    """Numeric column whose range is learned.

    Parameters
    ----------
    name : of the column.
    unit : a public order of magnitude: values below a millionth of it count as zero.
    transform : "identity" or "log1p"; None lets the noisy counts decide.
    rest : other entries of the column, as in the file.
    """

    name: str
    unit: float = 1.0
    transform: str | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unit = _check.check_positive(f"columns.{self.name}.unit", self.unit)
        if not 1e-100 <= unit <= 1e100:
            raise InvalidParameter(
                f"columns.{self.name}.unit must be between 1e-100 and 1e100, got {unit!r}."
            )
        _check.set_frozen(self, unit=unit)
        if self.transform is not None:
            _check.check_choice(f"columns.{self.name}.transform", self.transform, ("identity", "log1p"))
        basis = self.rest.get("basis")
        if isinstance(basis, Mapping) and basis.get("knots") is not None:
            raise InvalidParameter(
                f"columns.{self.name}.basis.knots need a stated range: they may lie outside a learned one. State "
                "'n_knots' instead, or the range."
            )
        self.to_column({"range": [0.0, 1.0]})  # invalid entries must fail before any record is read

    def to_column(self, entry: Mapping[str, Any]) -> Column:
        """Return the column with a learned range (and transform)."""
        return column_from_dict(self.name, {**entry, **self.rest})

    @property
    def widest_column(self) -> Column:
        """Placeholder column that has the same width in the encoding."""
        return self.to_column({"range": [0.0, 1.0]})

    def to_dict(self) -> dict[str, Any]:
        """Return the column as an entry of the file format."""
        extra: dict[str, Any] = {} if self.unit == 1 else {"unit": self.unit}
        if self.transform is not None:
            extra["transform"] = self.transform
        return {"range": LEARN, **extra, **self.rest}


@dataclass(frozen=True, kw_only=True)
class LearnedCategories:
    """Categorical column whose list is learned: at most `max_categories` common categories, the rest is "other"."""

    name: str
    max_categories: int = DEFAULT_MAX_CATEGORIES
    rest: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check.set_frozen(
            self, max_categories=_check.check_count(f"columns.{self.name}.most", self.max_categories)
        )
        if self.max_categories > 1000:
            raise InvalidParameter(
                f"columns.{self.name}.most must be at most 1000, got {self.max_categories}."
            )
        self.to_column(["a"])

    @property
    def text(self) -> bool:
        """Whether texts are compared character by character."""
        return self.rest.get("as") == "text"

    def to_column(self, categories: Iterable[str]) -> Column:
        """Return the column with its learned list; with an empty list every row is "other"."""
        values = list(categories) or [UNUSED_CATEGORY]
        return column_from_dict(self.name, {"categories": values, **self.rest, "other": "own"})

    def fill_categories(self, learned: Column) -> Column:
        """Return the learned column padded with empty categories up to `max_categories`."""
        labels = (
            [str(value) for value in learned.categories] if isinstance(learned, CategoricalColumn) else []
        )
        empty = (label for index in range(2 * self.max_categories) if (label := f"\0{index}") not in labels)
        return self.to_column([*labels, *itertools.islice(empty, self.max_categories - len(labels))])

    @property
    def widest_column(self) -> Column:
        """Placeholder column of the largest width that the encoding may have."""
        return self.to_column(f"category {index}" for index in range(self.max_categories))

    def to_dict(self) -> dict[str, Any]:
        """Return the column as an entry of the file format."""
        extra = {} if self.max_categories == DEFAULT_MAX_CATEGORIES else {"most": self.max_categories}
        return {"categories": LEARN, **extra, **self.rest}


AnyColumn = Column | LearnedNumber | LearnedCategories


@dataclass(frozen=True, kw_only=True)
class LearnableSchema:
    """Schema of which some columns state only their kind; a fit learns their ranges and lists, within its guarantee.

    Made by `Schema.learn`, or from the plain data of a schema with "range": "learn" or "categories": "learn". Only a
    fit learns it: the result is the fitted estimator's `schema_`, an ordinary public Schema.

    Parameters
    ----------
    columns : columns of a Schema, and columns of which the range or the list is learned.
    target : the column to be predicted; its range may be learned, its classes may not.
    missing, row_norm : as in `Schema`.

    Examples
    --------
    >>> raw = Schema.learn(age="number", job="category", sex={"categories": ["f", "m"]},
    ...                    target={"name": "sick", "classes": ["no", "yes"]})
    >>> [column.name for column in raw.numbers], [column.name for column in raw.categories], raw.names
    (['age'], ['job'], ('age', 'job', 'sex'))
    """

    columns: tuple[AnyColumn, ...]
    target: AnyColumn | None = None
    missing: str | None = None
    row_norm: float = 1.0

    def __post_init__(self) -> None:
        _check.set_frozen(self, columns=tuple(self.columns))
        if isinstance(self.target, LearnedCategories):
            raise InvalidParameter(_NEEDS_CLASSES)
        self.widest_schema()  # invalid stated columns must fail now, not during the fit
        if not self.numbers and not self.categories:
            raise InvalidParameter("the schema has no column to be learned; use Schema.from_dict.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, without the target."""
        return tuple(column.name for column in self.columns)

    @property
    def _all_columns(self) -> tuple[AnyColumn, ...]:
        return self.columns if self.target is None else (*self.columns, self.target)

    @property
    def numbers(self) -> tuple[LearnedNumber, ...]:
        """Columns (possibly including the target) whose range is learned."""
        return tuple(column for column in self._all_columns if isinstance(column, LearnedNumber))

    @property
    def categories(self) -> tuple[LearnedCategories, ...]:
        """Columns whose list is learned."""
        return tuple(column for column in self._all_columns if isinstance(column, LearnedCategories))

    @property
    def learned_columns(self) -> tuple[LearnedNumber | LearnedCategories, ...]:
        """All columns of which something is learned."""
        return (*self.numbers, *self.categories)

    def with_learned(self, learned: Mapping[str, Column]) -> Schema:
        """Return the Schema in which the learned columns replace those to be learned."""
        target = None if self.target is None else learned.get(self.target.name, self.target)
        columns = [learned.get(column.name, column) for column in self.columns]
        return Schema(columns=columns, target=target, missing=self.missing, row_norm=self.row_norm)  # type: ignore[arg-type]

    def widest_schema(self) -> Schema:
        """Return a Schema with the widest encoding that may be learned; its ranges and lists are placeholders."""
        return self.with_learned({column.name: column.widest_column for column in self.learned_columns})

    def pad_schema(self, schema: Schema) -> Schema:
        """Return the learned schema with lists padded by empty categories, so that its encoding has a public width."""
        padded = {
            column.name: column.fill_categories(schema.column(column.name)) for column in self.categories
        }
        return self.with_learned(
            {column.name: padded.get(column.name, column) for column in _all_columns_of(schema)}
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plain data of the file format."""
        content = self.widest_schema().to_dict()
        content["columns"] = {column.name: column.to_dict() for column in self.columns}
        if isinstance(self.target, LearnedNumber):
            content["target"] = {"name": self.target.name, **self.target.to_dict()}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> LearnableSchema:
        """Return the schema from the plain data of the file format."""
        if not isinstance(content, Mapping) or not isinstance(content.get("columns"), Mapping):
            raise InvalidParameter("columns must be a non-empty table of column names.")
        unknown = sorted(set(content) - {"version", "columns", "target", "missing", "row_norm"})
        if unknown:
            raise InvalidParameter(f"the schema has unknown entries {', '.join(unknown)}; remove them.")
        if content.get("version", VERSION) != VERSION:
            raise InvalidParameter(f"schema version must be {VERSION}, got {content['version']!r}.")
        return cls(
            columns=tuple(_read_column(str(name), entry) for name, entry in content["columns"].items()),
            target=_read_target(content.get("target")),
            missing=content.get("missing"),
            row_norm=content.get("row_norm", 1.0),
        )

    def save(self, path: str | Path) -> None:
        """Write the plain data to a .json file."""
        _files.write_text(Path(path), json.dumps(self.to_dict(), indent=2) + "\n")


def _all_columns_of(schema: Schema) -> tuple[Column, ...]:
    return schema.columns if schema.target is None else (*schema.columns, schema.target)


def is_learnable(schema: Any) -> bool:
    """Whether a `schema` argument leaves something to be learned, or everything ("learn")."""
    if isinstance(schema, str):
        return schema == LEARN
    return isinstance(schema, LearnableSchema) or asks_to_learn(schema)


def asks_to_learn(content: Any) -> bool:
    """Whether the plain data of a schema leave something to be learned."""
    if not isinstance(content, Mapping) or not isinstance(content.get("columns"), Mapping):
        return False
    entries = [*content["columns"].values(), content.get("target")]
    keys = ("range", "categories", "classes")
    return any(
        isinstance(entry, Mapping) and LEARN in [_text_or_none(entry, key) for key in keys]
        for entry in entries
    )


def load_schema(path: str | Path) -> Schema | LearnableSchema:
    """Read a schema file (.json or .toml), which may leave something to be learned."""
    what, text = f"the schema {str(path)!r}", _files.read_text(path, "the schema")
    try:
        content = (
            tomllib.loads(text) if Path(path).suffix.lower() == ".toml" else _plain.parse_json(text, what)
        )
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter(f"{what} is not valid TOML: {error}.") from None
    return (
        LearnableSchema.from_dict(_plain.check_nesting(content, what))
        if asks_to_learn(content)
        else Schema.load(path)
    )


def make_learnable_schema(
    columns: Mapping[str, Any], target: Any = None, missing: str | None = None, row_norm: float = 1.0
) -> LearnableSchema:
    """Return the result of `Schema.learn`: each column is a kind ("number" or "category") or an entry of the file."""
    if not columns:
        raise InvalidParameter(
            'name the columns and their kinds: Schema.learn(age="number", job="category").'
        )
    return LearnableSchema(
        columns=tuple(_read_column(str(name), _entry_of_kind(name, kind)) for name, kind in columns.items()),
        target=_read_target(target),
        missing=missing,
        row_norm=row_norm,
    )


def learn_template_error(names: Iterable[str]) -> InvalidParameter:
    """Return the error for schema="learn", with the call to fill in: types in the private table must not decide."""
    columns = list(names) or ["column"]
    call = ", ".join(f'{json.dumps(name, ensure_ascii=False)}: "number" or "category"' for name in columns)
    return InvalidParameter(
        "schema='learn' does not say which columns are numbers and which are categories, and the types in the table "
        f"cannot decide it, since one record may change them: pass schema=Schema.learn({{{call}}}), without the "
        "target and with one kind per column."
    )


def _entry_of_kind(name: str, kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return kind
    if isinstance(kind, str) and kind in KINDS:
        return KINDS[kind]
    if kind == "id":
        raise refuse_identifier(name)
    if kind == "date":
        raise InvalidParameter(
            f"column {name!r} is a date, whose range is stated and not learned: "
            f'{{"dates": ["2015-01-01", "2030-12-31"]}}.'
        )
    raise InvalidParameter(
        f"the kind of column {name!r} must be 'number', 'category', 'hash' or an entry such as "
        f'{{"range": [0, 120]}} or {{"dates": ["2015-01-01", "2030-12-31"]}}; got {kind!r}.'
    )


def _text_or_none(entry: Mapping[str, Any], key: str) -> Any:
    value = entry.get(key)
    return value if isinstance(value, str) else None


def _read_column(name: str, entry: Any) -> AnyColumn:
    if isinstance(entry, Mapping) and _text_or_none(entry, "range") == LEARN:
        rest = {key: value for key, value in entry.items() if key not in ("range", "unit", "transform")}
        unit = entry.get("unit", 1.0)
        return LearnedNumber(name=name, unit=unit, transform=entry.get("transform"), rest=rest)
    if isinstance(entry, Mapping) and _text_or_none(entry, "categories") == LEARN:
        rest = {key: value for key, value in entry.items() if key not in ("categories", "most", "other")}
        return LearnedCategories(
            name=name, max_categories=entry.get("most", DEFAULT_MAX_CATEGORIES), rest=rest
        )
    return column_from_dict(name, entry)


def _read_target(entry: Any) -> AnyColumn | None:
    """Return the target of a file entry; its range may be learned, its classes may not."""
    if entry is None:
        return None
    if isinstance(entry, Mapping) and _text_or_none(entry, "classes") == LEARN:
        raise InvalidParameter(_NEEDS_CLASSES)
    if (
        isinstance(entry, Mapping)
        and _text_or_none(entry, "range") == LEARN
        and isinstance(entry.get("name"), str)
    ):
        if set(entry) - {"name", "range", "unit"}:
            raise InvalidParameter("a learned target has only the entries 'name', 'range' and 'unit'.")
        return LearnedNumber(name=entry["name"], unit=entry.get("unit", 1.0), transform="identity")
    return read_target_column(entry)


def as_schema(schema: Any) -> Schema:
    """Return a Schema from a Schema or from the plain data of its file format."""
    if schema is None:
        raise InvalidParameter("schema is missing; state the columns with their ranges and categories.")
    if isinstance(schema, str | os.PathLike):  # a file could change between fit and predict
        raise InvalidParameter(
            "schema is a path; read the file once: schema=dplangevin.schema.Schema.load(path)."
        )
    if isinstance(schema, LearnableSchema):
        raise InvalidParameter(
            "this schema is to be learned, which only the fit of an estimator does, within its guarantee; after the "
            "fit, use the estimator's schema_."
        )
    return schema if isinstance(schema, Schema) else Schema.from_dict(schema)


_MAX_CODES, _MAX_TEXTS = 10, 50
_HEAD = """\
# The public schema of a table: what holds for EVERY table of this kind, stated and never measured from private rows.
# A range is what is possible, not what occurs; values beyond it are clipped. Values outside a list are ignored,
# or get an indicator of their own with other = "own". Every field is explained in docs/schema.md.
"""
_PUBLIC = """\
# WARNING: this draft was made from the values of {n} rows, which are hereby treated as PUBLIC. If they are private,
# delete this file: its ranges and categories would reveal the values of single people.
"""
_OPEN = """\
# State one of these, and remove the others (the schema is refused until then); an id is no feature: remove the column
# and, if a person may own several rows, fit with person = ... :
# range = [LOW, HIGH]
# categories = ["first", "second"]
# dates = ["2015-01-01", "2030-12-31"]
# hash = 64  # very many categories: a public hash puts each into one of so many buckets
"""


def draft_schema(names: Sequence[str], target: str | None = None) -> str:
    """Return a TOML skeleton for columns of these names; loading it fails until every column is filled in.

    Examples
    --------
    >>> print(draft_schema(["age"], target="sick").splitlines()[-1])
    # classes = ["no", "yes"]
    """
    if not names or len(set(names)) < len(names):
        raise InvalidParameter(
            f"columns must be at least one name, each listed once; got {', '.join(names) or 'none'}."
        )
    lines = [_HEAD, 'version = 1\nmissing = "own"\nrow_norm = 1.0\n']
    for name in names:
        if name != target:
            lines.append(f"[columns.{_quote_text(name)}]\n{_OPEN}")
    if target is not None:
        lines.append(
            f"[target]\nname = {_quote_text(target)}\n# State one of the two, and remove the other:\n"
            '# range = [LOW, HIGH]\n# classes = ["no", "yes"]\n'
        )
    return "\n".join(lines)


def draft_schema_from_public(records: Sequence[Mapping[str, Any]], target: str | None = None) -> str:
    """Return a TOML schema from the values of PUBLIC rows, with comments on what to check; never pass private rows.

    Numbers get a range rounded outwards; up to ten distinct whole numbers, or up to fifty distinct texts, a list.
    """
    names = list(records[0])
    if target is not None and target not in names:
        raise InvalidParameter(f"there is no column {target!r}; the table has {', '.join(names)}.")
    lines = [_HEAD + _PUBLIC.format(n=len(records)), 'version = 1\nmissing = "own"\nrow_norm = 1.0\n']
    for name in names:
        if name != target:
            lines.append(
                f"[columns.{_quote_text(name)}]\n{_draft_column([record.get(name) for record in records])}\n"
            )
    if target is not None:
        entry = _draft_column([record.get(target) for record in records]).replace("categories =", "classes =")
        lines.append(f"[target]\nname = {_quote_text(target)}\n{entry}\n")
    return "\n".join(lines)


def _draft_column(cells: Sequence[Any]) -> str:
    """Return the TOML line with a range or a list for the values of a public column."""
    known = [cell for cell in cells if cell is not None and cell == cell]
    absent = (
        f"  # missing in {len(cells) - len(known)} of {len(cells)} public rows"
        if len(known) < len(cells)
        else ""
    )
    if known and (entry := _draft_dates(known)) is not None:
        return f"{entry}  # check: what is possible, not what occurs{absent}"
    if len(known) > _MAX_TEXTS and _are_identifiers(known):
        hint = f"# {len(known)} distinct cells in as many rows: an id, which is no feature. Remove the column, or:"
        return f"{hint}\n{_OPEN.rstrip()}"
    is_with_commas = any(isinstance(cell, str) and replace_decimal_comma(cell) != cell for cell in known)
    if is_with_commas and all((number := _number_of_cell(cell)) == number for cell in known):
        entry = _draft_column([_number_of_cell(cell) for cell in known])
        return f"# numbers with a decimal comma, as which only --decimal , (Dialect(decimal=',')) reads them\n{entry}"
    numeric = all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known)
    if not known:
        return _OPEN.rstrip()
    if numeric and all(math.isfinite(cell) for cell in known):
        is_whole = all(float(cell).is_integer() for cell in known)
        codes = sorted({int(cell) for cell in known}) if is_whole else []
        if is_whole and len(codes) <= _MAX_CODES:
            return f"categories = {json.dumps(codes)}  # or a range, if these are quantities and not codes{absent}"
        low, high = _round_outwards(min(known), max(known))
        return f"range = {json.dumps([low, high])}  # check: what is possible, not what occurs{absent}"
    texts = sorted({_label_of_cell(cell) for cell in known})
    if len(texts) > _MAX_TEXTS:
        hint = f"# {len(texts)} distinct texts, hashed into buckets; or list the common ones{absent}"
        return f"hash = {DEFAULT_BUCKETS}  {hint}"
    has_leading_zeros = any(text[0] == "0" and text.isdigit() and len(text) > 1 for text in texts if text)
    hint = '; add a line `as = "text"` so that leading zeros count' if has_leading_zeros else ""
    return f"categories = {_format_list(texts)}  # check: every value that is possible{hint}{absent}"


def _draft_dates(cells: Sequence[Any]) -> str | None:
    """Return the line of a column of which every public cell is a date, with the range rounded to whole years."""
    labels = [read_label(cell) for cell in cells]
    if any(label is None or not any(mark in label[1:] for mark in "-./") for label in labels):
        return None  # plain numbers are quantities
    for date_format in ("iso", "day.month.year", "month/day/year"):
        seconds = [read_date(label or "", date_format) for label in labels]
        if any(second is None for second in seconds):
            continue
        times = [second for second in seconds if second is not None]
        first, last = (text_of_days(second / 86400)[:4] for second in (min(times), max(times)))
        extra = "" if date_format == "iso" else f'\nformat = "{date_format}"'
        parts = ["trend", "month", "weekday"] + ["hour"] * any(second % 86400 for second in times)
        return f'parts = {json.dumps(parts)}{extra}\ndates = ["{first}-01-01", "{last}-12-31"]'
    return None


def _are_identifiers(cells: Sequence[Any]) -> bool:
    """Whether every public cell is different, and all are texts or all are whole numbers in increasing order."""
    if all(isinstance(cell, str) for cell in cells):
        return len(set(cells)) == len(cells)
    is_whole = all(isinstance(cell, int | float) and float(cell).is_integer() for cell in cells)
    return is_whole and all(first < second for first, second in pairwise(cells))


def _round_outwards(low: float, high: float) -> tuple[float, float]:
    """Return the range rounded outwards to two significant digits of its width."""
    width = (high - low) or abs(high) or 1.0
    unit = 10.0 ** (math.floor(math.log10(width)) - 1)
    first, last = math.floor(low / unit), math.ceil(high / unit)
    if first == last:
        first, last = first - 1, last + 1
    if unit >= 1:
        return first * int(unit), last * int(unit)
    digits = round(-math.log10(unit))
    return round(first * unit, digits), round(last * unit, digits)


def _number_of_cell(cell: Any) -> float:
    """Return a public cell as a number, with a decimal comma or a point; NaN where it is none."""
    return read_number(replace_decimal_comma(cell) if isinstance(cell, str) else cell)


def _label_of_cell(cell: Any) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _quote_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _format_list(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quote_text, texts)) + "]"
