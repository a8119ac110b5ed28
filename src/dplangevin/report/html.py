"""Pieces of a self-contained HTML page: skeleton, table, list, number and line plot. No network, no scripts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape as _escape

from dplangevin._plain import CONTROLS

# Okabe and Ito's colours survive the common kinds of colour blindness; dashes tell the lines apart as well.
STYLES = (("#0072B2", ""), ("#D55E00", "7 4"), ("#000000", "2 3"), ("#009E73", "9 3 2 3"), ("#CC79A7", "4 2"))
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
    """One curve of a plot; `style` counts the colours, so that one account looks the same in every plot."""

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
    words: str
    log: bool = False
    bands: Sequence[Band] = ()


def escape(value: object) -> str:
    """Text that is safe anywhere in a page."""
    return _escape(str(value).translate(CONTROLS), quote=True)


def quantity(value: float, shown: str) -> str:
    """A number as it is shown, carrying the number itself."""
    return f'<data value="{escape(repr(value))}">{escape(shown)}</data>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML. The first cell of a row names it. Without headers: names and values."""
    head = "".join(f'<th scope="col">{escape(word)}</th>' for word in headers)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    kind, top = ("wide", f"<thead><tr>{head}</tr></thead>") if headers else ("facts", "")
    return f'<div class="{kind}"><table>{top}<tbody>{body}</tbody></table></div>'


def bullets(items: Iterable[str]) -> str:
    """A list; items are HTML."""
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def page(title: str, body: str) -> str:
    """A complete page that fetches nothing and forbids itself to."""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n"
        "</body></html>\n"
    )


def svg(plot: Plot) -> str:
    """The plot as inline SVG, readable without colour."""
    drawn = [(line, [point for point in line.points if _drawable(point, plot.log)]) for line in plot.lines]
    drawn = [(line, points) for line, points in drawn if points]
    if not drawn:
        return f"<p>{escape(plot.words)}: there is nothing to draw.</p>"
    x_axis = _Axis.over([x for _, points in drawn for x, _ in points], _LEFT, _WIDTH - _RIGHT, plot.log)
    y_axis = _Axis.over([y for _, points in drawn for _, y in points], _HEIGHT - _BOTTOM, _TOP, plot.log)
    shapes = [_grid(x_axis, y_axis), _labels(plot)]
    for band in plot.bands:
        path = " ".join(f"{x_axis.place(x):.1f},{y_axis.place(y):.1f}" for x, y in band.outline)
        shapes.append(
            f'<polygon points="{path}" fill="{STYLES[band.style % len(STYLES)][0]}" fill-opacity="0.18"/>'
        )
    for line, points in drawn:
        colour, dashes = STYLES[line.style % len(STYLES)]
        places = [(x_axis.place(x), y_axis.place(y)) for x, y in points]
        if len(places) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            shapes.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
                f'stroke-dasharray="{dashes}"/>'
            )
        if line.marker or len(places) == 1:
            x, y = places[-1]
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{colour}" stroke="#fff"/>')
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 20 * (len(drawn) + len(plot.bands))}" role="img" '
        f'aria-label="{escape(plot.words)}" '
        f'font-family="system-ui, sans-serif" font-size="14" fill="#111">{"".join(shapes)}'
        f"{_legend([line for line, _ in drawn])}{_band_legend(plot.bands, len(drawn))}</svg>"
    )


@dataclass(frozen=True, kw_only=True)
class _Axis:
    low: float
    high: float
    first: float
    last: float
    log: bool

    @classmethod
    def over(cls, values: Sequence[float], first: float, last: float, log: bool) -> _Axis:
        low, high = min(values), max(values)
        if log:
            low, high = 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high))
            high = high if high > low else 10 * low
        else:
            low, high = min(low, 0.0), high if high > min(low, 0.0) else low + 1.0
        return cls(low=low, high=high, first=first, last=last, log=log)

    def place(self, value: float) -> float:
        low, high, here = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.first + (here - low) / (high - low) * (self.last - self.first)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = round(math.log10(self.low)), round(math.log10(self.high))
            every = max(1, math.ceil((last - first) / 6))
            return [10.0**power for power in range(first, last + 1, every)]
        unit = 10.0 ** math.floor(math.log10(self.high - self.low))
        step = next(s * unit for s in (0.1, 0.2, 0.5, 1.0, 2.0) if (self.high - self.low) / (s * unit) <= 6)
        return [step * i for i in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def _drawable(point: tuple[float, float], log: bool) -> bool:
    return all(math.isfinite(v) and (v > 0 or not log) for v in point)


def _grid(x_axis: _Axis, y_axis: _Axis) -> str:
    bottom, parts = _HEIGHT - _BOTTOM, []
    for value in x_axis.ticks():
        x = x_axis.place(value)
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{_tick(value)}</text>')
    for value in y_axis.ticks():
        y = y_axis.place(value)
        parts.append(f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 5:.1f}" text-anchor="end">{_tick(value)}</text>')
    frame = f'<path d="M{_LEFT},{_TOP}V{bottom}H{_WIDTH - _RIGHT}" fill="none" stroke="#111"/>'
    return "".join(parts) + frame


def _labels(plot: Plot) -> str:
    x, y = (_LEFT + _WIDTH - _RIGHT) / 2, (_TOP + _HEIGHT - _BOTTOM) / 2
    return (
        f'<text x="{x}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(plot.x_label)}</text>'
        f'<text x="15" y="{y}" text-anchor="middle" transform="rotate(-90 15 {y})">{escape(plot.y_label)}</text>'
    )


def _legend(lines: Sequence[Line]) -> str:
    parts = []
    for i, line in enumerate(lines):
        y, (colour, dashes) = _HEIGHT + 6 + 20 * i, STYLES[line.style % len(STYLES)]
        parts.append(
            f'<circle cx="{_LEFT + 16}" cy="{y}" r="5.5" fill="{colour}"/>'
            if len(line.points) == 1
            else f'<line x1="{_LEFT}" y1="{y}" x2="{_LEFT + 32}" y2="{y}" stroke="{colour}" stroke-width="2.5" '
            f'stroke-dasharray="{dashes}"/>'
        )
        parts.append(f'<text x="{_LEFT + 42}" y="{y + 5}">{escape(line.label)}</text>')
    return "".join(parts)


def _band_legend(bands: Sequence[Band], above: int) -> str:
    parts = []
    for i, band in enumerate(bands):
        y, colour = _HEIGHT + 6 + 20 * (above + i), STYLES[band.style % len(STYLES)][0]
        parts.append(
            f'<rect x="{_LEFT}" y="{y - 7}" width="32" height="14" fill="{colour}" fill-opacity="0.18"/>'
        )
        parts.append(f'<text x="{_LEFT + 42}" y="{y + 5}">{escape(band.label)}</text>')
    return "".join(parts)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"
