"""Adversarial cells: values of one record that can change how a table's other records are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from dplangevin.schema import CategoricalColumn, DateColumn, HashedColumn, Schema
from dplangevin.tables.readings import text_of_days

ADVERSARIAL_CELLS: Mapping[str, Any] = {
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
SHORT_RECORD, LONG_RECORD = "too few cells", "too many cells"  # adversarial records as a whole


def schema_boundary_cells(schema: Schema | None, column: str) -> dict[str, Any]:
    """Return boundary values of a column of the schema: both ends of its range, first and last category."""
    if schema is None or column not in {each.name for each in _all_columns(schema)}:
        return {}
    stated_column = schema.column(column)
    if isinstance(stated_column, CategoricalColumn):
        return {"first category": stated_column.categories[0], "last category": stated_column.categories[-1]}
    if isinstance(stated_column, HashedColumn):
        return {}
    beyond = 2 * stated_column.high - stated_column.low
    if isinstance(stated_column, DateColumn):
        ends = {"low end": stated_column.low, "high end": stated_column.high}
        return {name: text_of_days(day) for name, day in ends.items()}
    return {"low end": stated_column.low, "high end": stated_column.high, "beyond the range": beyond}


def _all_columns(schema: Schema) -> tuple[Any, ...]:
    return (*schema.columns, *(() if schema.target is None else (schema.target,)))
