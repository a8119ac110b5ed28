"""Pieces of a self-contained HTML page without network access or scripts: tables, lists, and plots as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as _escape

from dplangevin._plain import CONTROL_CHARACTERS
from dplangevin._svg import RIGHT_MARGIN, TOP_MARGIN, RowAxis, shorten_name

# Okabe and Ito's colours survive the common kinds of colour blindness; dashes tell the lines apart as well.
LINE_STYLES = (
    ("#0072B2", ""),
    ("#D55E00", "7 4"),
    ("#000000", "2 3"),
    ("#009E73", "9 3 2 3"),
    ("#CC79A7", "4 2"),
)
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 480, 330, 62, 26, 12, 48

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #111; background: #fff; max-width: 46rem; margin: 1.5rem auto;
  padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ccc; }
thead th { border-bottom: 2px solid #111; } tbody th { font-weight: 400; color: #333; } .facts th { width: 45%; }
.wide td { white-space: nowrap; } .wide th { min-width: 4.5rem; } .facts td { white-space: normal; }
.wide th, .wide td { overflow-wrap: break-word; } .wide td:last-child { white-space: normal; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; display: block; } figcaption, footer { color: #333; }
figcaption, footer { font-size: .9rem; } ul { padding-left: 1.2rem; } li { margin: .2rem 0; }
@media print { body { margin: 0; max-width: none; font-size: 11pt; } h2, figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; } }
"""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One curve of a plot; `style` is an index of LINE_STYLES, so that a bound looks the same in every plot."""

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


def escape_html(value: object) -> str:
    """Return text that is safe anywhere in a page."""
    return _escape(str(value).translate(CONTROL_CHARACTERS), quote=True)


def render_number(value: float, text: str) -> str:
    """Return HTML that shows a rounded number and carries its full precision."""
    return f'<data value="{escape_html(repr(value))}">{escape_html(text)}</data>'


def render_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are HTML and whose first column names the rows; without headers, a fact table."""
    head = "".join(f'<th scope="col">{escape_html(word)}</th>' for word in headers)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    kind, top = ("wide", f"<thead><tr>{head}</tr></thead>") if headers else ("facts", "")
    return f'<div class="{kind}"><table>{top}<tbody>{body}</tbody></table></div>'


def render_list(items: Iterable[str]) -> str:
    """Return a bullet list whose items are HTML."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def render_page(title: str, body: str) -> str:
    """Return a complete page; its content security policy forbids loading anything."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape_html(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape_html(title)}</h1>\n{body}\n"
        "</body></html>\n"
    )


def render_svg(plot: Plot) -> str:
    """Return the plot as inline SVG, readable without colour."""
    drawn = [(line, [point for point in line.points if _is_drawable(point, plot.log)]) for line in plot.lines]
    drawn = [(line, points) for line, points in drawn if points]
    if not drawn:
        return f"<p>{escape_html(plot.description)}: there is nothing to draw.</p>"
    x_axis = _Axis.from_values(
        [x for _, points in drawn for x, _ in points], _LEFT, _WIDTH - _RIGHT, plot.log
    )
    y_axis = _Axis.from_values(
        [y for _, points in drawn for _, y in points], _HEIGHT - _BOTTOM, _TOP, plot.log
    )
    shapes = [_render_grid(x_axis, y_axis), _render_labels(plot)]
    for band in plot.bands:
        path = " ".join(f"{x_axis.position(x):.1f},{y_axis.position(y):.1f}" for x, y in band.outline)
        shapes.append(
            f'<polygon points="{path}" fill="{LINE_STYLES[band.style % len(LINE_STYLES)][0]}" fill-opacity="0.18"/>'
        )
    for line, points in drawn:
        colour, dashes = LINE_STYLES[line.style % len(LINE_STYLES)]
        positions = [(x_axis.position(x), y_axis.position(y)) for x, y in points]
        if len(positions) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in positions)
            shapes.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
                f'stroke-dasharray="{dashes}"/>'
            )
        if line.marker or len(positions) == 1:
            x, y = positions[-1]
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{colour}" stroke="#fff"/>')
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 20 * (len(drawn) + len(plot.bands))}" role="img" '
        f'aria-label="{escape_html(plot.description)}" '
        f'font-family="system-ui, sans-serif" font-size="14" fill="#111">{"".join(shapes)}'
        f"{_render_legend([line for line, _ in drawn])}{_render_band_legend(plot.bands, len(drawn))}</svg>"
    )


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
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = max(1, math.ceil((last - first) / 6))
            return [10.0**power for power in range(first, last + 1, every)]
        unit = 10.0 ** math.floor(math.log10(self.high - self.low))
        step = next(s * unit for s in (0.1, 0.2, 0.5, 1.0, 2.0) if (self.high - self.low) / (s * unit) <= 6)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def _is_drawable(point: tuple[float, float], log: bool) -> bool:
    return all(math.isfinite(v) and (v > 0 or not log) for v in point)


def _render_grid(x_axis: _Axis, y_axis: _Axis) -> str:
    bottom, parts = _HEIGHT - _BOTTOM, []
    for value in x_axis.tick_values():
        x = x_axis.position(value)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_format_tick(value)}</text>')
    for value in y_axis.tick_values():
        y = y_axis.position(value)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 5:.1f}" text-anchor="end">{_format_tick(value)}</text>')
    frame = f'<path d="M{_LEFT},{_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="#111"/>'
    return "".join(parts) + frame


def _render_labels(plot: Plot) -> str:
    x, y = (_LEFT + _WIDTH - _RIGHT) / 2, (_TOP + _HEIGHT - _BOTTOM) / 2
    return (
        f'<text x="{x}" y="{_HEIGHT - 10}" text-anchor="middle">{escape_html(plot.x_label)}</text>'
        f'<text x="15" y="{y}" text-anchor="middle" transform="rotate(-90 15 {y})">{escape_html(plot.y_label)}</text>'
    )


def _render_legend(lines: Sequence[Line]) -> str:
    parts = []
    for i, line in enumerate(lines):
        y, (colour, dashes) = _HEIGHT + 6 + 20 * i, LINE_STYLES[line.style % len(LINE_STYLES)]
        parts.append(
            f'<circle cx="{_LEFT + 16}" cy="{y}" r="5.5" fill="{colour}"/>'
            if len(line.points) == 1
            else f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + 32}" y2="{y}" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dashes}"/>'
        )
        parts.append(f'<text x="{_LEFT + 42}" y="{y + 5}">{escape_html(line.label)}</text>')
    return "".join(parts)


def _render_band_legend(bands: Sequence[Band], above: int) -> str:
    parts = []
    for i, band in enumerate(bands):
        y, colour = _HEIGHT + 6 + 20 * (above + i), LINE_STYLES[band.style % len(LINE_STYLES)][0]
        parts.append(
            f'<rect x="{_LEFT}" y="{y - 7}" width="32" height="14" fill="{colour}" fill-opacity="0.18"/>'
        )
        parts.append(f'<text x="{_LEFT + 42}" y="{y + 5}">{escape_html(band.label)}</text>')
    return "".join(parts)


def _format_tick(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


_RANGE_WIDTH, _RANGE_NAMES_WIDTH, _RANGE_BOTTOM = 560, 240, 46
_MAX_NAME_LENGTH = 30  # characters of a name


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


def render_range_svg(plot: RangePlot) -> str:
    """Return the plot as inline SVG; rows that are not finite are left out."""
    rows = [row for row in plot.rows if all(map(math.isfinite, (row.low, row.middle, row.high)))]
    if not rows:
        return f"<p>{escape_html(plot.description)}: there is nothing to draw.</p>"
    low, high = plot.limits or (min(row.low for row in rows), max(row.high for row in rows))
    if plot.border is not None:
        low, high = min(low, plot.border), max(high, plot.border)
    axis = RowAxis(width=_RANGE_WIDTH, names=_RANGE_NAMES_WIDTH, rows=len(rows), low=low, high=high)
    parts, bottom = axis.draw_grid(), axis.bottom_y
    if plot.border is not None:
        x = axis.x_of(plot.border)
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP_MARGIN}" x2="{x:.1f}" y2="{bottom}" stroke="#111" stroke-dasharray="3 3"/>'
        )
    parts += [_render_bar(row, axis.row_center_y(i), axis) for i, row in enumerate(rows)]
    middle = (_RANGE_NAMES_WIDTH + _RANGE_WIDTH - RIGHT_MARGIN) / 2
    parts.append(
        f'<text x="{middle}" y="{bottom + 38}" text-anchor="middle">{escape_html(plot.x_label)}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_RANGE_WIDTH} {bottom + _RANGE_BOTTOM}" role="img" '
        f'aria-label="{escape_html(plot.description)}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="#111">{"".join(parts)}</svg>'
    )


def _render_bar(row: RangeRow, y: float, axis: RowAxis) -> str:
    left, right, mark = axis.x_of(row.low), axis.x_of(row.high), axis.x_of(row.middle)
    colour, width = ("#D55E00", 8) if row.crosses_border else ("#0072B2", 5)
    name = escape_html(shorten_name(row.name, _MAX_NAME_LENGTH))
    return (
        f'<text x="{_RANGE_NAMES_WIDTH - 10}" y="{y + 4:.1f}" text-anchor="end">{name}</text>'
        f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{max(right, left + 1):.1f}" y2="{y:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"/>'
        f'<circle cx="{mark:.1f}" cy="{y:.1f}" r="5" fill="#fff" stroke="#111" stroke-width="1.5"/>'
    )
