"""The public schema of a table, read from and written to JSON or TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dplangevin import _check, _files, _plain
from dplangevin.errors import InvalidParameter
from dplangevin.schema._products import checked_products
from dplangevin.schema.columns import (
    MISSING_RULES,
    CategoricalColumn,
    Column,
    Missing,
    NumericColumn,
    column_from_dict,
)

if TYPE_CHECKING:
    from dplangevin.schema.learned import SchemaToLearn

VERSION = 1
_SHOWN = 6  # columns in the repr


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Stated facts about every table of this kind: they are public, and never measured from the data.

    Parameters
    ----------
    columns : the columns, each with a range or a list of categories.
    target : the column to be predicted (classes or a range), if there is one.
    missing : a missing value gets its "own" category, or stands for the "middle" of the range; "never" says that there
        is none (one that occurs all the same is the middle or the first category, and in counts in no cell). A column
        may state its own rule.
    row_norm : the norm every encoded row is scaled into.
    products : pairs of columns whose products are columns too.

    Examples
    --------
    >>> schema = Schema.from_dict({"version": 1, "columns": {"age": {"range": [17, 90]},
    ...     "job": {"categories": ["a", "b"], "other": "own"}}})
    >>> schema.names, schema.column("age").high
    (('age', 'job'), 90.0)
    """

    columns: tuple[Column, ...]
    target: Column | None = None
    missing: Missing = "own"
    row_norm: float = 1.0
    products: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _check.put(self, columns=tuple(self.columns))
        _check.put(self, missing=_check.choice("missing", self.missing, MISSING_RULES))
        _check.each(self, row_norm=_check.positive)
        if not self.columns:
            raise InvalidParameter("columns must not be empty; a schema states at least one column.")
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InvalidParameter(f"columns holds {', '.join(twice)} twice; list each column once.")
        if self.target is not None and self.target.name in names:
            raise InvalidParameter(f"target {self.target.name!r} is also listed in columns; list it once.")
        _check.put(self, products=checked_products(self.products, self.columns))

    @property
    def additive(self) -> bool:
        """Whether rows are scaled by the largest norm, so that the score is a sum of functions of single columns.

        A direction needs it too: divided by its own norm, a row's score need not rise with a column of rising weight.
        """
        curved = any(
            isinstance(column, NumericColumn) and (column.basis is not None or column.monotone is not None)
            for column in self.columns
        )
        return curved or bool(self.products)

    def __repr__(self) -> str:
        """A line: the first few columns, how many there are, and the target."""
        shown = [_short(column) for column in self.columns[:_SHOWN]]
        shown += [f"and {len(self.columns) - _SHOWN} more"] * (len(self.columns) > _SHOWN)
        target = "" if self.target is None else f"; target {_short(self.target)}"
        return f"Schema({', '.join(shown)}{target}; missing = {self.missing!r}, row_norm = {self.row_norm:g})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, without the target."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> Column:
        """The column (or target) of this name."""
        for column in (*self.columns, *([self.target] if self.target is not None else [])):
            if column.name == name:
                return column
        raise InvalidParameter(f"the schema has no column {name!r}; it has {', '.join(self.names)}.")

    def missing_of(self, column: Column) -> Missing:
        """The rule for missing values of a column: its own, or the schema's."""
        return self.missing if column.missing is None else column.missing

    def validate(self, names: Iterable[str]) -> None:
        """Refuse a table that lacks a column of the schema (the target may be absent)."""
        present = set(names)
        absent = [name for name in self.names if name not in present]
        if absent:
            raise InvalidParameter(
                f"schema mismatch: the table has no column {', '.join(map(repr, absent))}; it has "
                f"{', '.join(sorted(present)) or 'none'}. Remove the column from the schema or rename it."
            )

    @staticmethod
    def learn(
        columns: Mapping[str, Any] | None = None,
        /,
        *,
        target: Any = None,
        missing: str = "own",
        row_norm: float = 1.0,
        **kinds: Any,
    ) -> SchemaToLearn:
        """A schema whose ranges and categories a fit learns, under its promise: learn(age="number", job="category").

        Kinds are stated, since one odd cell may change a type. A column may also say what is known of it, as in a file:
        {"range": [0, 120]}, {"range": "learn", "unit": 1000}, {"categories": "learn", "as": "text", "most": 100}.
        Columns whose names are no words go into a dictionary, the first argument.
        """
        from dplangevin.schema.learned import learned

        return learned({**(columns or {}), **kinds}, target, missing, row_norm)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """The schema from the plain data of its file format."""
        if not isinstance(content, Mapping):
            raise InvalidParameter(f"a schema must be a table of settings, got {type(content).__name__}.")
        unknown = sorted(set(content) - {"version", "columns", "target", "missing", "row_norm", "products"})
        if unknown:
            raise InvalidParameter(f"the schema has unknown entries {', '.join(unknown)}; remove them.")
        from dplangevin.schema.learned import asks_to_learn

        if asks_to_learn(content):
            raise InvalidParameter(
                "this schema leaves something to be learned, and only the fit of an estimator learns it: give it as "
                "schema= there, or use the estimator's schema_ after the fit."
            )
        if content.get("version", VERSION) != VERSION:
            raise InvalidParameter(f"schema version must be {VERSION}, got {content['version']!r}.")
        columns = content.get("columns")
        if not isinstance(columns, Mapping) or not columns:
            raise InvalidParameter("columns must be a non-empty table of column names.")
        return cls(
            columns=tuple(column_from_dict(name, entry) for name, entry in columns.items()),
            target=_target(content["target"]) if content.get("target") is not None else None,
            missing=content.get("missing", "own"),
            row_norm=content.get("row_norm", 1.0),
            products=content.get("products", ()),
        )

    def to_dict(self) -> dict[str, Any]:
        """The plain data of the file format."""
        result: dict[str, Any] = {"version": VERSION}
        result["columns"] = {column.name: column.to_dict() for column in self.columns}
        if isinstance(self.target, CategoricalColumn):
            kept = {"as": "text"} if self.target.text else {}
            result["target"] = {"name": self.target.name, "classes": list(self.target.categories), **kept}
        elif isinstance(self.target, NumericColumn):
            result["target"] = {"name": self.target.name, "range": [self.target.low, self.target.high]}
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
            return cls.from_dict(_plain.parse(text, what))
        try:
            content = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidParameter(f"{what} is not valid TOML: {error}.") from None
        return cls.from_dict(_plain.bounded(content, what))

    def save(self, path: str | Path) -> None:
        """Write the schema to a .json or .toml file."""
        place = Path(path)
        content = self.to_dict()
        text = _toml(content) if place.suffix.lower() == ".toml" else json.dumps(content, indent=2) + "\n"
        _files.write_text(place, text)


def _short(column: Column) -> str:
    if isinstance(column, CategoricalColumn):
        return f"{column.name} ({len(column.categories)} categories)"
    return f"{column.name} [{column.low:g}, {column.high:g}]"


def _target(entry: object) -> Column:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise InvalidParameter(f"target must be a table with 'name' and 'classes' or 'range', got {entry!r}.")
    rest = {("categories" if key == "classes" else key): entry[key] for key in entry if key != "name"}
    if set(rest) - {"as"} != {"categories"} and set(rest) != {"range"}:
        raise InvalidParameter(f"target needs 'classes' or 'range' beside its name, got {sorted(entry)}.")
    return column_from_dict(entry["name"], rest)


def _toml(content: Mapping[str, Any]) -> str:
    """The few shapes of TOML a schema needs."""
    lines = [
        f"{key} = {_toml_value(value)}" for key, value in content.items() if not isinstance(value, Mapping)
    ]
    for name, entry in content["columns"].items():
        lines += [
            "",
            f"[columns.{_toml_value(name)}]",
            *(f"{key} = {_toml_value(entry[key])}" for key in entry),
        ]
    if "target" in content:
        lines += [
            "",
            "[target]",
            *(f"{key} = {_toml_value(value)}" for key, value in content["target"].items()),
        ]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    """JSON texts, numbers and lists are valid TOML, but for surrogate pairs and the delete character."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml_value(entry)}" for key, entry in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
