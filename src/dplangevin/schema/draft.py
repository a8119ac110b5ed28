"""Draft schemas: a TOML text to edit by hand, from column names alone or from public rows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from dplangevin.errors import InvalidParameter
from dplangevin.schema.learned import DEFAULT_BUCKETS
from dplangevin.tables.cells import (
    read_date,
    read_label,
    read_number,
    replace_decimal_comma,
    text_of_days,
)

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
