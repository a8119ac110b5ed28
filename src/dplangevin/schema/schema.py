"""Public schema of a table, read from and written to JSON or TOML.

Also the JSON Schema of the file, generated from the rules that read it: editors check and complete a draft with it.
It accepts every file that loads; some files that it accepts are still refused, since it cannot compare the ends of a
range or read labels. docs/assets/schemas/schema.json is its text, see `dplangevin.report.file_schemas`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplangevin import _check, _files, _plain
from dplangevin._plain import JSON_SCHEMA_DRAFT
from dplangevin._templates import render_table
from dplangevin.errors import InvalidParameter
from dplangevin.schema.columns import (
    COLUMN_KEYS,
    MAX_BUCKETS,
    MISSING_RULES,
    CategoricalColumn,
    Column,
    Feature,
    Missing,
    NumericColumn,
    column_from_dict,
)
from dplangevin.tables.cells import DATE_FORMATS, DATE_PARTS

if TYPE_CHECKING:
    from dplangevin.schema.learned import LearnableSchema


def check_products(products: Any, columns: tuple[Column, ...]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of columns to multiply; raise unless each has two different listed columns and none repeats."""
    pairs: list[tuple[str, str]] = []
    known = {column.name: column for column in columns}
    if not isinstance(products, list | tuple):
        raise InvalidParameter(f"products must be a list of pairs of columns, got {products!r}.")
    for pair in products:
        if not isinstance(pair, list | tuple) or len(pair) != 2 or pair[0] == pair[1]:
            raise InvalidParameter(f"products holds {pair!r}; each entry is a pair of two different columns.")
        for name in pair:
            if not isinstance(name, str) or name not in known:
                raise InvalidParameter(f"products names {name!r}, which the schema's columns do not list.")
            column = known[name]
            if not isinstance(column, NumericColumn | CategoricalColumn):
                raise InvalidParameter(
                    f"products names {name!r}, whose cells are dates or hashed; only ranges and lists of categories "
                    "have products."
                )
            if isinstance(column, NumericColumn) and column.monotone is not None:
                raise InvalidParameter(
                    f"column {name!r} is monotone and also in products, but a product has no single direction; drop "
                    "one of the two."
                )
        if tuple(pair) in pairs or tuple(pair[::-1]) in pairs:
            raise InvalidParameter(f"products holds {list(pair)} twice; list each pair once.")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


VERSION = 1
LEARN = "learn"
"""What a schema file states in place of a range, categories or classes that the fit is to learn."""
_MAX_SHOWN_COLUMNS = 6  # in the repr


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Public facts that hold for every table of this kind: stated by the user, never measured from private data.

    Parameters
    ----------
    columns : the columns, each with a range or a list of categories.
    target : the column to be predicted (classes or a range), if there is one.
    missing : "own" gives missing values an indicator of their own and a cell in counts, "middle" replaces them by the
        middle of the range, "never" states that none occur (one that does is read as the middle or the first category,
        and belongs to no cell of a count). A column may state its own rule. None: nothing is declared; a fit gives
        missing values an indicator, counts have no cell for them.
    row_norm : bound on the norm of an encoded row; all rows are scaled by the same public factor.
    products : pairs of columns whose products are added as columns of the encoded table.

    Examples
    --------
    >>> schema = Schema.from_dict({"version": 1, "columns": {"age": {"range": [17, 90]},
    ...     "job": {"categories": ["a", "b"], "other": "own"}}})
    >>> schema.names, schema.column("age").high
    (('age', 'job'), 90.0)
    """

    columns: tuple[Column, ...]
    target: Column | None = None
    missing: Missing | None = None
    row_norm: float = 1.0
    products: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _check.set_frozen(self, columns=tuple(self.columns))
        if self.missing is not None:
            _check.set_frozen(self, missing=_check.check_choice("missing", self.missing, MISSING_RULES))
        _check.validate_fields(self, row_norm=_check.check_positive)
        if not self.columns:
            raise InvalidParameter("columns must not be empty; a schema states at least one column.")
        names = [column.name for column in self.columns]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise InvalidParameter(f"columns holds {', '.join(repeated)} twice; list each column once.")
        if self.target is not None and self.target.name in names:
            raise InvalidParameter(f"target {self.target.name!r} is also listed in columns; list it once.")
        if self.target is not None and not isinstance(self.target, NumericColumn | CategoricalColumn):
            raise InvalidParameter("the target must state classes or a range; it cannot be dates or hashed.")
        encoded = [feature.column.name for feature in self.features]
        repeated = sorted({name for name in encoded if encoded.count(name) > 1})
        if repeated:
            raise InvalidParameter(f"two columns would be encoded as {repeated[0]!r}; rename one of them.")
        _check.set_frozen(self, products=check_products(self.products, self.columns))

    @property
    def is_additive(self) -> bool:
        """Whether the schema states shapes (a basis, a monotone column or a product) and not only straight lines."""
        curved = any(
            isinstance(column, NumericColumn) and (column.basis is not None or column.monotone is not None)
            for column in (feature.column for feature in self.features)
        )
        return curved or bool(self.products)

    def __repr__(self) -> str:
        """Return one line: the first few columns, how many there are, and the target."""
        shown = [_describe_column(column) for column in self.columns[:_MAX_SHOWN_COLUMNS]]
        shown += [f"and {len(self.columns) - _MAX_SHOWN_COLUMNS} more"] * (
            len(self.columns) > _MAX_SHOWN_COLUMNS
        )
        target = "" if self.target is None else f"; target {_describe_column(self.target)}"
        return f"Schema({', '.join(shown)}{target}; missing = {self.missing or 'own'!r}, row_norm = {self.row_norm:g})"

    def _repr_html_(self) -> str:
        rows = [
            (column.name, column.extent, rule)
            for column, rule in [
                *((column, self.missing_rule(column)) for column in self.columns),
                *([] if self.target is None else [(self.target, "target")]),
            ]
        ]
        title = f"Public schema, rows of norm at most {self.row_norm:g}"
        return render_table(title, ("column", "stated", "missing cells"), rows)

    @property
    def features(self) -> tuple[Feature, ...]:
        """What is encoded of the columns, in order: themselves, the parts of dates, the buckets of hashes."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, without the target."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """Return the column (or target) of this name."""
        for column in (*self.columns, *([self.target] if self.target is not None else [])):
            if column.name == name:
                return column
        raise InvalidParameter(f"the schema has no column {name!r}; it has {', '.join(self.names)}.")

    def missing_rule(self, column: Column) -> Missing:
        """Return the rule for missing values of a column: its own, or the schema's, or "own"."""
        return self.declared_missing_rule(column) or "own"

    def declared_missing_rule(self, column: Column) -> Missing | None:
        """Return the rule that the column or the schema states; None where neither does."""
        return self.missing if column.missing is None else column.missing

    def validate(self, names: Iterable[str]) -> None:
        """Raise if a table with these column names lacks a column of the schema (the target may be absent)."""
        present = set(names)
        absent = [name for name in self.names if name not in present]
        if absent:
            raise InvalidParameter(
                f"schema mismatch: the table has no column {', '.join(map(repr, absent))}; it has "
                f"{_check.describe_columns(sorted(present))}. Remove the column from the schema or rename it."
            )

    @staticmethod
    def learn(
        columns: Mapping[str, Any] | None = None,
        /,
        *,
        target: Any = None,
        missing: str | None = None,
        row_norm: float = 1.0,
        **kinds: Any,
    ) -> LearnableSchema:
        """Return a schema whose ranges and categories the fit learns: learn(age="number", job="category").

        Kinds must be stated, since a single record may change a type. Instead of a kind, a column may be an entry as
        in a file: {"range": [0, 120]}, {"range": "learn", "unit": 1000}, {"categories": "learn", "as": "text",
        "most": 100}. Columns whose names are not Python identifiers go into a dictionary, the first argument.

        Privacy
        -------
        The fit learns ranges and categories from noisy counts, as part of its own privacy guarantee.
        """
        from dplangevin.schema.learned import make_learnable_schema

        return make_learnable_schema({**(columns or {}), **kinds}, target, missing, row_norm)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Return the schema from the plain data of its file format."""
        if not isinstance(content, Mapping):
            raise InvalidParameter(f"a schema must be a table of settings, got {type(content).__name__}.")
        unknown = sorted(set(content) - {"version", "columns", "target", "missing", "row_norm", "products"})
        if unknown:
            raise InvalidParameter(f"the schema has unknown entries {', '.join(unknown)}; remove them.")
        from dplangevin.schema.learned import asks_to_learn

        if asks_to_learn(content):
            raise InvalidParameter(
                "this schema leaves something to be learned, and only the fit of an estimator learns it: pass it to "
                "the estimator as schema=, or use the estimator's schema_ after the fit."
            )
        if content.get("version", VERSION) != VERSION:
            raise InvalidParameter(f"schema version must be {VERSION}, got {content['version']!r}.")
        columns = content.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            raise InvalidParameter("columns must be a non-empty table of column names.")
        return cls(
            columns=tuple(column_from_dict(name, entry) for name, entry in columns.items()),
            target=read_target_column(content["target"]) if content.get("target") is not None else None,
            missing=content.get("missing"),
            row_norm=content.get("row_norm", 1.0),
            products=content.get("products", ()),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plain data of the file format."""
        result: dict[str, Any] = {"version": VERSION}
        result["columns"] = {column.name: column.to_dict() for column in self.columns}
        if isinstance(self.target, CategoricalColumn):
            extra = {"as": "text"} if self.target.text else {}
            result["target"] = {"name": self.target.name, "classes": list(self.target.categories), **extra}
        elif isinstance(self.target, NumericColumn):
            result["target"] = {"name": self.target.name, "range": [self.target.low, self.target.high]}
        if self.missing is not None:
            result["missing"] = self.missing
        result["row_norm"] = self.row_norm
        if self.products:
            result["products"] = [list(pair) for pair in self.products]
        return result

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema from a .json or .toml file."""
        what, text = f"the schema {str(path)!r}", _files.read_text(path, "the schema")
        if Path(path).suffix.lower() != ".toml":
            return cls.from_dict(_plain.parse_json(text, what))
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidParameter(f"{what} is not valid TOML: {error}.") from None
        return cls.from_dict(_plain.check_nesting(content, what))

    def save(self, path: str | Path) -> None:
        """Write the schema to a .json or .toml file."""
        content = self.to_dict()
        is_toml = Path(path).suffix.lower() == ".toml"
        _files.write_text(Path(path), _to_toml(content) if is_toml else json.dumps(content, indent=2) + "\n")


def _describe_column(column: Column) -> str:
    if isinstance(column, NumericColumn):
        return f"{column.name} [{column.low:g}, {column.high:g}]"
    return f"{column.name} ({column.extent})"


def read_target_column(entry: object) -> Column:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise InvalidParameter(f"target must be a table with 'name' and 'classes' or 'range', got {entry!r}.")
    rest = {("categories" if key == "classes" else key): entry[key] for key in entry if key != "name"}
    if set(rest) - {"as"} != {"categories"} and set(rest) != {"range"}:
        raise InvalidParameter(
            f"target needs 'classes' or 'range' in addition to its name, got {sorted(entry)}."
        )
    return column_from_dict(entry["name"], rest)


def _to_toml(content: Mapping[str, Any]) -> str:
    """Write the subset of TOML that a schema needs."""
    lines = [
        f"{key} = {_to_toml_value(value)}" for key, value in content.items() if not isinstance(value, Mapping)
    ]
    for name, entry in content["columns"].items():
        lines += [
            "",
            f"[columns.{_to_toml_value(name)}]",
            *(f"{key} = {_to_toml_value(entry[key])}" for key in entry),
        ]
    if "target" in content:
        lines += [
            "",
            "[target]",
            *(f"{key} = {_to_toml_value(value)}" for key, value in content["target"].items()),
        ]
    return "\n".join(lines) + "\n"


def _to_toml_value(value: object) -> str:
    """Write a value as TOML: JSON is valid TOML except for surrogate pairs and the delete character."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_to_toml_value(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_NUMBER, _NAME, _LEARN = {"type": "number"}, {"type": "string"}, {"const": LEARN}
_RANGE = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_LABELS = {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1}
_NULLABLE_CHOICE = {"enum": [*MISSING_RULES, None]}
_BASIS = {
    "type": ["object", "null"],
    "properties": {
        "n_knots": {"type": "integer", "minimum": 2},
        "knots": {"type": "array", "items": _NUMBER},
        "smooth": {"type": "number", "minimum": 0},
    },
    "additionalProperties": False,
}
_ENTRIES: dict[str, dict[str, Any]] = {
    "range": {"anyOf": [_RANGE, _LEARN]},
    "categories": {"anyOf": [_LABELS, _LEARN]},
    "dates": {"type": "array", "items": _NAME, "minItems": 2, "maxItems": 2},
    "hash": {"type": "integer", "minimum": 2, "maximum": MAX_BUCKETS},
    "transform": {"enum": ["identity", "log1p"]},
    "missing": _NULLABLE_CHOICE,
    "basis": _BASIS,
    "monotone": {"enum": ["increasing", "decreasing", None]},
    "other": {"enum": ["ignore", "own"]},
    "as": {"enum": ["label", "text"]},
    "parts": {"type": "array", "items": {"enum": list(DATE_PARTS)}, "minItems": 1, "uniqueItems": True},
    "format": {"enum": list(DATE_FORMATS)},
    "unit": {"type": "number", "exclusiveMinimum": 0},
    "most": {"type": "integer", "minimum": 1, "maximum": 1000},
}
_LEARNED_KEYS = {"range": {"unit"}, "categories": {"most"}}


def build_json_schema() -> dict[str, Any]:
    """Return the JSON Schema, draft 2020-12, of the schema file.

    Examples
    --------
    >>> sorted(build_json_schema()["properties"])
    ['columns', 'missing', 'products', 'row_norm', 'target', 'version']
    """
    kinds = [_describe_kind(kind, keys) for kind, keys in COLUMN_KEYS.items()]
    targets = [
        _describe_object(
            {"name": _NAME, "range": _ENTRIES["range"], "unit": _ENTRIES["unit"]}, ["name", "range"]
        ),
        _describe_object({"name": _NAME, "classes": _LABELS, "as": _ENTRIES["as"]}, ["name", "classes"]),
    ]
    pair = {"type": "array", "items": _NAME, "minItems": 2, "maxItems": 2}
    return {
        "$schema": JSON_SCHEMA_DRAFT,
        "title": "Public schema of a table",
        **_describe_object(
            {
                "version": {"const": VERSION},
                "columns": {"type": "object", "minProperties": 1, "additionalProperties": {"oneOf": kinds}},
                "target": {"oneOf": [*targets, {"type": "null"}]},
                "missing": {"enum": list(MISSING_RULES)},
                "row_norm": {"type": "number", "exclusiveMinimum": 0},
                "products": {"type": "array", "items": pair, "uniqueItems": True},
            },
            ["columns"],
        ),
    }


def _describe_kind(kind: str, keys: set[str]) -> dict[str, Any]:
    """Return the description of a column of one kind."""
    allowed = sorted({kind} | keys | _LEARNED_KEYS.get(kind, set()))
    return _describe_object({key: _ENTRIES[key] for key in allowed}, [kind])


def _describe_object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
