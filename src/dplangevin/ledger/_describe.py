"""A plan in a few lines of JSON, for the history. Everything in a plan is public."""

from __future__ import annotations

import json
import math
import numbers
from dataclasses import fields, is_dataclass
from typing import Any

_LONGEST = 200
_MOST_ITEMS = 20


def described(plan: Any) -> str:
    """JSON text of what was planned."""
    schedule = getattr(plan, "schedule", None)
    found = {
        "mechanism": getattr(schedule, "mechanism", type(plan).__name__),
        "delta": _plain(getattr(plan, "delta", None)),
        "schedule": _record(schedule),
        "problem": _record(getattr(plan, "problem", None)),
        "constants": _record(getattr(plan, "constants", None)),
    }
    return json.dumps({name: value for name, value in found.items() if value is not None}, allow_nan=False)


def _record(value: Any) -> dict[str, Any] | None:
    if not is_dataclass(value):
        return None
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.init}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, (list, tuple)):
        if len(value) > _MOST_ITEMS:
            return {"length": len(value), "first": _plain(value[0]), "last": _plain(value[-1])}
        return [_plain(item) for item in value]
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
