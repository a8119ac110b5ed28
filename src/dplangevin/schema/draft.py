"""A schema to start from: a TOML text for people to edit, made from names or from rows that are public."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dplangevin.errors import InvalidParameter

_MOST_CODES, _MOST_TEXTS = 10, 50
_HEAD = """\
# The public schema of a table: what is TRUE OF EVERY table of this kind, stated and never measured from private rows.
# A range is what is possible, not what occurs; values beyond it are clipped. Values outside a list are ignored,
# or get an indicator of their own with other = "own". Every field is explained in docs/schema.md.
"""
_PUBLIC = """\
# WARNING: this draft was made from the values of {n} rows, which are hereby treated as PUBLIC. If they are private,
# delete this file: ranges and categories in it would tell about single people.
"""
_OPEN = """\
# State one of the two, and remove the other (the schema is refused until then):
# range = [LOW, HIGH]
# categories = ["first", "second"]
"""


def draft(names: Sequence[str], target: str | None = None) -> str:
    """A skeleton for columns of these names; it is refused until every column is filled in.

    Examples
    --------
    >>> print(draft(["age"], target="sick").splitlines()[-1])
    # classes = ["no", "yes"]
    """
    if not names or len(set(names)) < len(names):
        raise InvalidParameter(
            f"columns must be different names, at least one, got {', '.join(names) or 'none'}."
        )
    lines = [_HEAD, 'version = 1\nmissing = "own"\nrow_norm = 1.0\n']
    for name in names:
        if name != target:
            lines.append(f"[columns.{_text(name)}]\n{_OPEN}")
    if target is not None:
        lines.append(
            f"[target]\nname = {_text(target)}\n# State one of the two, and remove the other:\n"
            '# range = [LOW, HIGH]\n# classes = ["no", "yes"]\n'
        )
    return "\n".join(lines)


def draft_from_public(records: Sequence[Mapping[str, Any]], target: str | None = None) -> str:
    """A schema from the values of PUBLIC rows, with remarks on what to check; never give it private ones.

    Numbers get a range rounded outwards; up to ten different whole numbers and up to fifty texts a list.
    """
    names = list(records[0])
    if target is not None and target not in names:
        raise InvalidParameter(f"there is no column {target!r}; the table has {', '.join(names)}.")
    lines = [_HEAD + _PUBLIC.format(n=len(records)), 'version = 1\nmissing = "own"\nrow_norm = 1.0\n']
    for name in names:
        if name != target:
            lines.append(f"[columns.{_text(name)}]\n{_entry([record.get(name) for record in records])}\n")
    if target is not None:
        entry = _entry([record.get(target) for record in records]).replace("categories =", "classes =")
        lines.append(f"[target]\nname = {_text(target)}\n{entry}\n")
    return "\n".join(lines)


def _entry(cells: Sequence[Any]) -> str:
    """A range or a list for the values of a public column."""
    known = [cell for cell in cells if cell is not None and cell == cell]
    absent = (
        f"  # {len(cells) - len(known)} of {len(cells)} public rows are missing"
        if len(known) < len(cells)
        else ""
    )
    numeric = all(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known)
    if not known:
        return _OPEN.rstrip()
    if numeric and all(math.isfinite(cell) for cell in known):
        whole = all(float(cell).is_integer() for cell in known)
        codes = sorted({int(cell) for cell in known}) if whole else []
        if whole and len(codes) <= _MOST_CODES:
            return (
                f"categories = {json.dumps(codes)}  # or a range, if these are numbers and no codes{absent}"
            )
        low, high = _outwards(min(known), max(known))
        return f"range = {json.dumps([low, high])}  # check: what is possible, not what occurs{absent}"
    texts = sorted({_word(cell) for cell in known})
    if len(texts) > _MOST_TEXTS:
        return f"# {len(texts)} different texts: shorten the list, or leave the column out\n{_OPEN.rstrip()}"
    zeros = any(text[0] == "0" and text.isdigit() and len(text) > 1 for text in texts if text)
    keep = '; add a line `as = "text"` so that leading zeros count' if zeros else ""
    return f"categories = {_list(texts)}  # check: every value that is possible{keep}{absent}"


def _outwards(low: float, high: float) -> tuple[float, float]:
    """The next round numbers outside: two digits of the width."""
    width = (high - low) or abs(high) or 1.0
    unit = 10.0 ** (math.floor(math.log10(width)) - 1)
    first, last = math.floor(low / unit), math.ceil(high / unit)
    if first == last:
        first, last = first - 1, last + 1
    if unit >= 1:
        return first * int(unit), last * int(unit)
    digits = round(-math.log10(unit))
    return round(first * unit, digits), round(last * unit, digits)


def _word(cell: Any) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _text(word: str) -> str:
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")


def _list(words: Sequence[str]) -> str:
    return "[" + ", ".join(map(_text, words)) + "]"
