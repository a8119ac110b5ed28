"""Templates: whatever a user's name contains is text in HTML, SVG and Markdown."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from jinja2 import UndefinedError

from dplangevin._templates import render_list, render_pairs, render_table, template_environment
from dplangevin.estimators.shapes import ColumnShape, ShapePlots
from dplangevin.report import RangePlot, RangeRow
from dplangevin.report.plots import Band, Line, Plot

HOSTILE = (
    """</text></svg></script><script>alert(1)</script>"><img src=x onerror='alert(2)'>\x1b[31m{{ 7 * 7 }}"""
)
LINE = [(0.0, 1.0), (1.0, 2.0)]
SHAPE = {"name": HOSTILE, "values": np.array([0.5, -1.0])}


def _pages() -> dict[str, str]:
    ranges = RangePlot(
        rows=[RangeRow(name=HOSTILE, low=0, middle=1, high=2)],
        x_label=HOSTILE,
        description=HOSTILE,
        border=1.0,
    )
    plot = Plot(
        lines=[Line(label=HOSTILE, points=LINE)], bands=[Band(label=HOSTILE, outline=LINE)], x_label=HOSTILE,
        y_label=HOSTILE, description=HOSTILE,
    )  # fmt: skip
    shapes = ShapePlots(
        title=HOSTILE,
        shapes=(
            ColumnShape(kind="bars", points=(HOSTILE, "b"), **SHAPE),
            ColumnShape(kind="curve", points=(0.0, 1.0), **SHAPE),
            ColumnShape(kind="grid", points=((HOSTILE, "a"), (HOSTILE, "b")), **SHAPE),
        ),
    )
    empty = Plot(lines=[], x_label="", y_label="", description=HOSTILE)
    return {
        "ranges": str(ranges.to_svg()), "plot": str(plot.to_svg()), "shapes": shapes.to_html(),
        "nothing": str(template_environment().from_string("{{ plot.to_svg() }}").render(plot=empty)),
        "pairs": render_pairs(HOSTILE, [(HOSTILE, HOSTILE)]), "table": render_table(HOSTILE, [HOSTILE], [[HOSTILE]]),
        "list": render_list(HOSTILE, [HOSTILE]),
    }  # fmt: skip


def find_faults(page: str) -> set[str]:
    """Return the tags and attributes that a hostile name made, and the control characters it left."""
    faults = {"control character"} if "\x1b" in page else set()
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: faults.update(  # type: ignore[method-assign]
        {tag} & {"script", "img"} | {name for name, _ in attributes if name.startswith("on")}
    )
    parser.feed(page)
    return faults | ({"evaluated"} if "49" in re.sub(r'="[^"]*"', "", page) else set())


def test_hostile_names_stay_text() -> None:
    for kind, page in _pages().items():
        assert not find_faults(page), kind
        assert "alert" in page, kind


def test_the_search_for_faults_finds_them() -> None:
    assert find_faults(HOSTILE) == {"script", "img", "onerror", "control character"}


def test_only_finished_markup_is_put_in_unescaped() -> None:
    """`notes` are made by other templates and `svg` by matplotlib."""
    unescaped = {
        (path.name, name)
        for folder in (files("dplangevin") / "templates", files("dplangevin") / "templates" / "page")
        for path in folder.iterdir()
        if path.is_file()
        for name in re.findall(r"(\w+)\s*\|\s*safe", path.read_text(encoding="utf-8"))
    }
    assert unescaped == {("notebook.html", "notes"), ("plot_page.html", "svg")}


def test_a_name_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        template_environment().from_string("{{ nothing }}").render()


def test_no_line_breaks_within_a_number() -> None:
    unbroken = template_environment().filters["unbroken"]
    assert str(unbroken("delta <= 1e-06, 2.5e-7; a-b")) == (
        'delta &lt;= <span class="number">1e-06</span>, <span class="number">2.5e-7</span>; a-b'
    )


@pytest.mark.parametrize(
    "points", [(0.0, 4.2, 25.8, 138.0, 719.0, 3727.0, 19305.0, 100_000.0), (0.0, 1e-3, 1e9)]
)
def test_labels_of_knots_do_not_touch(points: tuple[float, ...]) -> None:
    shape = ColumnShape(name="gain", kind="curve", points=points, values=np.linspace(0, 1, len(points))[None])
    texts = re.findall(r"<text ([^>]*)>([\d,.e+-]+)</text>", shape.to_svg())
    labels = [(re.search(r'x="([\d.]+)"', given)[1], text) for given, text in texts if "middle" in given]  # type: ignore[index]
    assert len(labels) >= 2
    ends = [(float(x) - 3.5 * len(text), float(x) + 3.5 * len(text)) for x, text in labels]
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ends))
