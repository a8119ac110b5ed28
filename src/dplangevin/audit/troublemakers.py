"""Cells that make a reader guess: what one odd record can hold, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from dplangevin.schema import CategoricalColumn, Schema

TROUBLEMAKERS: Mapping[str, Any] = {
    "null": None,
    "NaN": math.nan,
    "infinity": math.inf,
    "empty text": "",
    "blank": " ",
    "text": "abc",
    "question mark": "?",
    "unseen category": "a category nobody listed",
    "number": 7.5,
    "integer": 3,
    "number as text": "1.0",
    "leading zeros": "007",
    "huge integer": 10**400,
    "complex": 1 + 2j,
    "decimal": Decimal("1.10"),
    "true": True,
    "false": False,
    "date": date(2020, 1, 2),
    "time": datetime(2020, 1, 2, 3, 4, 5),
    "bytes": b"\xff\xfe",
    "lone surrogate": "\ud800",
    "byte order mark": "\ufeff1",
    "quote": '"',
    "apostrophe": "'",
    "separator": "a,b;c\td",
    "line break": "a\nb",
    "zero byte": "a\x00b",
}
SHORT, LONG = "too few cells", "too many cells"  # faults of a whole record


def stated_cells(schema: Schema | None, column: str) -> dict[str, Any]:
    """The ordinary extremes of a column that the schema states: both ends, first and last category."""
    if schema is None or column not in {each.name for each in _columns(schema)}:
        return {}
    found = schema.column(column)
    if isinstance(found, CategoricalColumn):
        return {"first category": found.categories[0], "last category": found.categories[-1]}
    return {"low end": found.low, "high end": found.high, "beyond the range": 2 * found.high - found.low}


def _columns(schema: Schema) -> tuple[Any, ...]:
    return (*schema.columns, *(() if schema.target is None else (schema.target,)))
