"""HTML forms of objects for notebooks: tables of names and values, with every text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0;border:0"
_FRAME = "border-left:3px solid #3b6ea5;padding:2px 10px;margin:6px 0;max-width:60em"


def render_pairs(title: str, pairs: Iterable[tuple[str, object]], notes: str = "") -> str:
    """Return a title, a table of names and values, and notes that are HTML already.

    Examples
    --------
    >>> "<b>a &lt; b</b>" in render_pairs("a < b", [("epsilon", 1.0)])
    True
    """
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL}">{escape(name)}</th><td style="{_CELL}">{escape(str(value))}</td></tr>'
        for name, value in pairs
    )
    table = f'<table style="border:0"><tbody>{rows}</tbody></table>'
    return f'<div style="{_FRAME}"><b>{escape(title)}</b>{table}{notes}</div>'


def render_table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a title and a table with a header row."""
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(header)}</th>' for header in headers)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(str(cell))}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f'<div style="{_FRAME}"><b>{escape(title)}</b><table style="border:0"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def render_list(title: str, items: Iterable[object]) -> str:
    """Return a list that opens by a click on its title; nothing where it is empty."""
    entries = "".join(f"<li>{escape(str(item))}</li>" for item in items)
    return f"<details><summary>{escape(title)}</summary><ul>{entries}</ul></details>" if entries else ""
