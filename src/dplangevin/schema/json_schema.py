"""JSON Schema of the schema file, generated from the rules that read it: editors check and complete a draft with it.

It accepts every file that loads; some files that it accepts are still refused, since it cannot compare the ends of a
range or read labels. docs/assets/schemas/schema.json is its text, see `dplangevin.report.file_schemas`.
"""

from __future__ import annotations

from typing import Any

from dplangevin._plain import JSON_SCHEMA_DRAFT
from dplangevin.schema.columns import COLUMN_KEYS, MAX_BUCKETS, MISSING_RULES
from dplangevin.schema.learned import LEARN
from dplangevin.schema.schema import VERSION
from dplangevin.tables.readings import DATE_FORMATS, DATE_PARTS

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
