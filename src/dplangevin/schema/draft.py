"""Draft schemas: a TOML text to edit by hand, from column names alone or from public rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dplangevin.errors import InvalidParameter

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
# State one of the two, and remove the other (the schema is refused until then):
# range = [LOW, HIGH]
# categories = ["first", "second"]
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
        return f"# {len(texts)} distinct texts: shorten the list, or leave the column out\n{_OPEN.rstrip()}"
    has_leading_zeros = any(text[0] == "0" and text.isdigit() and len(text) > 1 for text in texts if text)
    hint = '; add a line `as = "text"` so that leading zeros count' if has_leading_zeros else ""
    return f"categories = {_format_list(texts)}  # check: every value that is possible{hint}{absent}"


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


def _label_of_cell(cell: Any) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _quote_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _format_list(texts: Sequence[str]) -> str:
    return "[" + ", ".join(map(_quote_text, texts)) + "]"
