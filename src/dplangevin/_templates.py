"""Jinja2 templates of all that is written as HTML, SVG and Markdown: reports, notebooks, pictures, the local page.

Every value is escaped where it is put into a template, for HTML by default and for Markdown by the filter `markdown`.
Pictures are SVG drawings of lines, shapes and texts, and plots with one row per name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
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


WIDTH = 400
"""Width of every drawing in its own units: on a phone a unit is a little less than a pixel, so texts stay readable."""
# Okabe and Ito's colours survive the common kinds of colour blindness; dashes tell the lines apart as well.
COLORS = ("#0072B2", "#D55E00", "#222222", "#009E73", "#CC79A7")
DASHES = ("none", "7 4", "2 3", "9 3 2 3", "4 2")
_GRID = {"stroke": "#888", "stroke_opacity": 0.3}


@dataclass(kw_only=True)
class Drawing:
    """SVG elements over WIDTH units; `description` is for readers who cannot see them. Every text is escaped."""

    height: float
    description: str = ""
    width: int = WIDTH
    elements: list[tuple[str, dict[str, str], object]] = field(default_factory=list)

    def add(self, tag: str, text: object = "", **attributes: Any) -> None:
        """Add an element: `stroke_width=2` is written as stroke-width, and `points` are pairs of numbers."""
        plain = {name.replace("_", "-"): _format_attribute(value) for name, value in attributes.items()}
        self.elements.append((tag, plain, text))

    def add_text(self, text: object, x: float, y: float, anchor: str = "start", **attributes: Any) -> None:
        """Add a text that starts, ends or is centred ("middle") at x."""
        self.add("text", text, x=x, y=y, text_anchor=anchor, **attributes)

    def add_line(self, x1: float, y1: float, x2: float, y2: float, **attributes: Any) -> None:
        """Add a straight line; that of a grid where no stroke is given."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, **(attributes or _GRID))

    def to_svg(self) -> Markup:
        """Return the SVG element."""
        return render_template("drawing.svg", drawing=self)


def _format_attribute(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    if isinstance(value, list):
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in value)
    return str(value).translate(CONTROL_CHARACTERS)


TOP_MARGIN, ROW_HEIGHT, SIDE_MARGIN = 8, 40, 16


@dataclass(frozen=True, kw_only=True)
class RowAxis:
    """The coordinates of rows over an axis [low, high]: each has its name above its marks."""

    rows: int
    low: float
    high: float

    @property
    def bottom_y(self) -> int:
        """The y coordinate below the last row."""
        return TOP_MARGIN + ROW_HEIGHT * self.rows

    def row_center_y(self, row: int) -> float:
        """Return the y coordinate of the marks of a row."""
        return TOP_MARGIN + ROW_HEIGHT * (row + 0.72)

    def x_of(self, value: float) -> float:
        """Return the x coordinate of a value; values beyond the axis are put at its end."""
        fraction = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low or 1.0)
        return SIDE_MARGIN + fraction * (WIDTH - 2 * SIDE_MARGIN)

    def start_drawing(self, names: Sequence[str], description: str, x_label: str = "") -> Drawing:
        """Return a drawing with the grid, its labels and the names of the rows."""
        drawing = Drawing(height=self.bottom_y + (46 if x_label else 26), description=description)
        for tick in round_ticks(self.low, self.high):
            drawing.add_line(self.x_of(tick), TOP_MARGIN, self.x_of(tick), self.bottom_y)
            drawing.add_text(f"{tick:.4g}", self.x_of(tick), self.bottom_y + 18, "middle")
        for row, name in enumerate(names):
            drawing.add_text(shorten_name(name, 48), 2, self.row_center_y(row) - 11)
        if x_label:
            drawing.add_text(x_label, WIDTH / 2, self.bottom_y + 38, "middle")
        return drawing


def round_ticks(low: float, high: float) -> list[float]:
    """Return at most seven round numbers from low to high."""
    unit = 10.0 ** math.floor(math.log10(max(high - low, 1e-300)))
    step = next(s * unit for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / (s * unit) <= 5)
    first = math.ceil(low / step - 1e-9)
    return [step * i + 0.0 for i in range(first, math.floor(high / step + 1e-9) + 1)]


def shorten_name(name: str, max_length: int) -> str:
    """Return a name, cut to at most `max_length` characters with an ellipsis."""
    return name if len(name) <= max_length else name[: max_length - 1] + "…"
