"""Ranges as horizontal bars with a mark inside, one named row each: inline SVG that is readable on a phone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dplangevin._svg import RIGHT, TOP, RowAxis, shortened
from dplangevin.report.html import escape

_WIDTH, _NAMES, _BOTTOM = 560, 240, 46
_LONGEST = 30  # characters of a name


@dataclass(frozen=True, kw_only=True)
class Range:
    """A named range with a mark; `strong` ones cross the border."""

    name: str
    low: float
    middle: float
    high: float
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class RangePlot:
    """Rows over a common axis, with a border line where one decides.

    words : what a reader who does not see it is told. limits : of the axis; None takes those of the rows.
    """

    rows: Sequence[Range]
    x_label: str
    words: str
    border: float | None = None
    limits: tuple[float, float] | None = None


def range_svg(plot: RangePlot) -> str:
    """The picture; rows that are not finite are left out."""
    rows = [row for row in plot.rows if all(map(math.isfinite, (row.low, row.middle, row.high)))]
    if not rows:
        return f"<p>{escape(plot.words)}: there is nothing to draw.</p>"
    low, high = plot.limits or (min(row.low for row in rows), max(row.high for row in rows))
    if plot.border is not None:
        low, high = min(low, plot.border), max(high, plot.border)
    axis = RowAxis(width=_WIDTH, names=_NAMES, rows=len(rows), low=low, high=high)
    parts, bottom = axis.grid(), axis.bottom
    if plot.border is not None:
        x = axis.place(plot.border)
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#111" stroke-dasharray="3 3"/>'
        )
    parts += [_bar(row, axis.middle(i), axis) for i, row in enumerate(rows)]
    middle = (_NAMES + _WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{bottom + 38}" text-anchor="middle">{escape(plot.x_label)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom + _BOTTOM}" role="img" '
        f'aria-label="{escape(plot.words)}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#111">{"".join(parts)}</svg>'
    )


def _bar(row: Range, y: float, axis: RowAxis) -> str:
    left, right, mark = axis.place(row.low), axis.place(row.high), axis.place(row.middle)
    colour, width = ("#D55E00", 8) if row.strong else ("#0072B2", 5)
    return (
        f'<text x="{_NAMES - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(shortened(row.name, _LONGEST))}</text>'
        f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{max(right, left + 1):.1f}" y2="{y:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
        f'<circle cx="{mark:.1f}" cy="{y:.1f}" r="5" fill="#fff" stroke="#111" stroke-width="1.5"/>'
    )
