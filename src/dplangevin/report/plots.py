"""Plots of reports as data: curves over common axes, and ranges of named rows; each draws itself as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dplangevin._templates import COLORS, DASHES, TOP_MARGIN, WIDTH, Drawing, RowAxis, round_ticks

if TYPE_CHECKING:
    from markupsafe import Markup

_LEFT, _RIGHT, _TOP, _BOTTOM = 62, WIDTH - 22, 12, 262
_LEGEND_TOP, _LEGEND_HEIGHT = 312, 22


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve of a plot; `style` is an index of COLORS, so that a bound looks the same in every plot."""

    label: str
    points: Sequence[tuple[float, float]]
    style: int = 0
    marker: bool = False


@dataclass(frozen=True, kw_only=True)
class Band:
    """A shaded area, given by its outline."""

    label: str
    outline: Sequence[tuple[float, float]]
    style: int = 0


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Curves over common axes; points that are not finite (or not positive on a logarithmic axis) are left out."""

    lines: Sequence[Line]
    x_label: str
    y_label: str
    description: str
    log: bool = False
    bands: Sequence[Band] = ()

    def to_svg(self) -> Markup | str:
        """Return the plot as inline SVG, readable without colour; a sentence where there is nothing to draw."""
        drawn = [(line, [p for p in line.points if _is_drawable(p, self.log)]) for line in self.lines]
        drawn = [(line, points) for line, points in drawn if points]
        if not drawn:
            return f"{self.description}: there is nothing to draw."
        x_axis = _Axis.from_values([x for _, points in drawn for x, _ in points], _LEFT, _RIGHT, self.log)
        y_axis = _Axis.from_values([y for _, points in drawn for _, y in points], _BOTTOM, _TOP, self.log)
        n_labels = len(drawn) + len(self.bands)
        drawing = Drawing(height=_LEGEND_TOP + _LEGEND_HEIGHT * n_labels, description=self.description)
        self._draw_axes(drawing, x_axis, y_axis)
        y = _LEGEND_TOP + 4.0
        for band in self.bands:
            outline = [(x_axis.position(x), y_axis.position(value)) for x, value in band.outline]
            area = {"fill": COLORS[band.style % len(COLORS)], "fill_opacity": 0.18}
            drawing.add("polygon", points=outline, **area)
            key_y = y + _LEGEND_HEIGHT * len(drawn)
            drawing.add("rect", x=4, y=key_y - 7, width=32, height=14, **area)
            drawing.add_text(band.label, 44, key_y + 5)
            y += _LEGEND_HEIGHT
        for index, (line, points) in enumerate(drawn):
            color, dashes = COLORS[line.style % len(COLORS)], DASHES[line.style % len(COLORS)]
            stroke = {"fill": "none", "stroke": color, "stroke_width": 2.5, "stroke_dasharray": dashes}
            places = [(x_axis.position(x), y_axis.position(value)) for x, value in points]
            key_y = _LEGEND_TOP + 4.0 + _LEGEND_HEIGHT * index
            if len(places) > 1:
                drawing.add("polyline", points=places, **stroke)
                drawing.add_line(4, key_y, 36, key_y, **stroke)
            else:
                drawing.add("circle", cx=20, cy=key_y, r=5.5, fill=color)
            if line.marker or len(places) == 1:
                drawing.add("circle", cx=places[-1][0], cy=places[-1][1], r=5.5, fill=color, stroke="#fff")
            drawing.add_text(line.label, 44, key_y + 5)
        return drawing.to_svg()

    def describe(self) -> list[str]:
        """Return a line of points for each curve."""
        lines = []
        for line in self.lines:
            every = math.ceil(len(line.points) / 10) or 1
            lines.append(
                f"{line.label}: " + ", ".join(f"({x:.4g}, {y:.4g})" for x, y in line.points[::every])
            )
        return lines

    def _draw_axes(self, drawing: Drawing, x_axis: _Axis, y_axis: _Axis) -> None:
        for value in x_axis.tick_values():
            drawing.add_line(x_axis.position(value), _TOP, x_axis.position(value), _BOTTOM)
            drawing.add_text(_format_tick(value), x_axis.position(value), _BOTTOM + 19, "middle")
        for value in y_axis.tick_values():
            drawing.add_line(_LEFT, y_axis.position(value), _RIGHT, y_axis.position(value))
            drawing.add_text(_format_tick(value), _LEFT - 7, y_axis.position(value) + 5, "end")
        drawing.add("path", d=f"M{_LEFT},{_TOP}V{_BOTTOM}H{_RIGHT}", fill="none", stroke="currentColor")
        middle = (_TOP + _BOTTOM) / 2
        drawing.add_text(self.x_label, (_LEFT + _RIGHT) / 2, _BOTTOM + 38, "middle")
        drawing.add_text(self.y_label, 14, middle, "middle", transform=f"rotate(-90 14 {middle})")


@dataclass(frozen=True, kw_only=True)
class _Axis:
    low: float
    high: float
    first: float
    last: float
    log: bool

    @classmethod
    def from_values(cls, values: Sequence[float], first: float, last: float, log: bool) -> _Axis:
        low, high = min(values), max(values)
        if log:
            low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
            high = high if high > low else 10 * low
        else:
            low, high = min(low, 0.0), high if high > min(low, 0.0) else low + 1.0
        return cls(low=low, high=high, first=first, last=last, log=log)

    def position(self, value: float) -> float:
        low, high, x = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.first + (x - low) / (high - low) * (self.last - self.first)

    def tick_values(self) -> list[float]:
        if not self.log:
            return round_ticks(self.low, self.high)
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / 5)))]


def _is_drawable(point: tuple[float, float], log: bool) -> bool:
    return all(math.isfinite(v) and (v > 0 or not log) for v in point)


def _format_tick(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class RangeRow:
    """A named range with a mark at `middle`; `crosses_border` highlights it."""

    name: str
    low: float
    middle: float
    high: float
    crosses_border: bool = False


@dataclass(frozen=True, kw_only=True)
class RangePlot:
    """Ranges as horizontal bars over a common axis, with an optional border line.

    description : text for readers who cannot see the plot. limits : of the axis; None takes those of the rows.
    """

    rows: Sequence[RangeRow]
    x_label: str
    description: str
    border: float | None = None
    limits: tuple[float, float] | None = None

    def to_svg(self) -> Markup | str:
        """Return the plot as inline SVG; rows that are not finite are left out."""
        rows = [row for row in self.rows if all(map(math.isfinite, (row.low, row.middle, row.high)))]
        if not rows:
            return f"{self.description}: there is nothing to draw."
        low, high = self.limits or (min(row.low for row in rows), max(row.high for row in rows))
        if self.border is not None:
            low, high = min(low, self.border), max(high, self.border)
        axis = RowAxis(rows=len(rows), low=low, high=high)
        drawing = axis.start_drawing([row.name for row in rows], self.description, self.x_label)
        if self.border is not None:
            x = axis.x_of(self.border)
            drawing.add_line(x, TOP_MARGIN, x, axis.bottom_y, stroke="currentColor", stroke_dasharray="3 3")
        for index, row in enumerate(rows):
            y, left, right = axis.row_center_y(index), axis.x_of(row.low), axis.x_of(row.high)
            color, width = (COLORS[1], 8) if row.crosses_border else (COLORS[0], 5)
            drawing.add_line(left, y, max(right, left + 1), y, stroke=color, stroke_width=width)
            mark = axis.x_of(row.middle)
            drawing.add("circle", cx=mark, cy=y, r=5, fill="#fff", stroke="#111", stroke_width=1.5)
        return drawing.to_svg()

    def describe(self) -> list[str]:
        """Return a line for each range."""
        return [f"{row.name}: {row.low:.4g} to {row.high:.4g}, {row.middle:.4g}" for row in self.rows]
