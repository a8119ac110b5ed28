"""Jinja2 templates of all that is written as HTML, SVG and Markdown: reports, notebooks, pictures, the local page.

Every value is escaped where it is put into a template, for HTML by default and for Markdown by the filter `markdown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

CONTROL_CHARACTERS = {code: " " for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Translation table for `str.translate` that blanks the characters a terminal or a page would interpret."""


@cache
def template_environment() -> Environment:
    """Return the one environment of all templates: it escapes, and refuses names that are not given."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # it takes a tenth of a second

    environment = Environment(
        loader=PackageLoader("dplangevin"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_blank_control_characters,
    )
    environment.filters["markdown"] = _markdown_markup
    environment.filters["unbroken"] = _keep_numbers_together
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment


def render_template(name: str, **values: Any) -> Markup:
    """Return the text of a template, which is safe to put into another one."""
    from markupsafe import Markup

    return Markup(template_environment().get_template(name).render(**values))


def render_pairs(title: str, pairs: Iterable[tuple[str, object]], notes: str = "") -> str:
    """Return a title, a table of names and values, and notes that are HTML already, for a notebook.

    Examples
    --------
    >>> "<b>a &lt; b</b>" in render_pairs("a < b", [("epsilon", 1.0)])
    True
    """
    return str(render_template("notebook.html", title=title, headers=(), rows=pairs, notes=notes))


def render_table(title: str, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a title and a table with a header row, for a notebook."""
    return str(render_template("notebook.html", title=title, headers=headers, rows=rows, notes=""))


def render_list(title: str, items: Iterable[object]) -> str:
    """Return a list that opens by a click on its title; nothing where it is empty."""
    return str(render_template("list.html", title=title, items=list(items))).strip()


def escape_markdown(text: str) -> str:
    """Escape text for Markdown, so that it makes no HTML, links, code or table cells.

    Backslashes are doubled first: one before a bracket would undo the bracket's own escape.
    """
    text = " ".join(
        escape(text.translate(CONTROL_CHARACTERS)).replace("&#x27;", "'").replace("&quot;", '"').split()
    )
    for character in "\\|[]`*":
        text = text.replace(character, "\\" + character)
    return text


def _markdown_markup(value: object) -> Markup:
    from markupsafe import Markup

    return Markup(escape_markdown(str(value)))


_EXPONENT = re.compile(r"\d[\d.]*e-\d+")


def _keep_numbers_together(value: object) -> Markup:
    """Return text in which no line breaks at the hyphen of a number such as 1e-06."""
    from markupsafe import Markup

    text = escape(str(value).translate(CONTROL_CHARACTERS))
    return Markup(_EXPONENT.sub(r'<span class="number">\g<0></span>', text))


def _blank_control_characters(value: Any) -> Any:
    """Return what a template shows for a value; markup was made by a template and is left alone."""
    return value if hasattr(value, "__html__") else str(value).translate(CONTROL_CHARACTERS)
