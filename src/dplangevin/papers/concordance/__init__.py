"""The concordance: every statement of the five papers, the code that implements it, its correction and its test."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from dplangevin.papers.concordance.page import Paper as Paper, Row as Row, render_page

_SOURCES = tomllib.loads(files(__package__).joinpath("statements.toml").read_text(encoding="utf-8"))["paper"]

PAPERS: tuple[Paper, ...] = tuple(
    Paper(**{name: value for name, value in each.items() if name != "row"}) for each in _SOURCES
)
ROWS: tuple[Row, ...] = tuple(
    Row(paper=each["key"], **{**row, "where": tuple(row["where"])})
    for each in _SOURCES
    for row in each["row"]
)


def render_concordance() -> str:
    """Return the text of docs/papers.md."""
    return render_page(PAPERS, ROWS)
