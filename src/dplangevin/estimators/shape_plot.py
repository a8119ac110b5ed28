"""Pictures of shapes: SVG without a library, readable on a phone and without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin import _files
from dplangevin._svg import RIGHT, ROW, TOP, RowAxis, shortened, ticks
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.shapes import ColumnShape, shapes_of

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 480, 260, 52, 12, 44
_NAMES, _LONGEST = 170, 24
INK, NOISE, SAMPLING = "#0072B2", "#F0C08A", "#8FC1E3"
LEGEND = (
    "The line is the released model. The inner band (blue) is sampling error alone, the outer one (sand) adds privacy "
    "noise: so far may the true shape lie, point by point. Where no band is drawn, the records at this budget tell too "
    "little for one; summary() says what would do."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ShapePlots:
    """Pictures of a model's shapes: shown in notebooks, saved as one .html page or as one .svg."""

    title: str
    shapes: tuple[ColumnShape, ...]

    def __repr__(self) -> str:
        return f"{self.title}: " + ", ".join(f"{s.name} ({s.importance:.3g})" for s in self.shapes)

    def to_html(self) -> str:
        """Figures without a page around them, the most important first."""
        ordered = sorted(self.shapes, key=lambda shape: -shape.importance)
        figures = "".join(
            f"<figure style='margin:1rem 0'><figcaption><b>{escape(shape.name)}</b></figcaption>"
            f"{shape_svg(shape)}</figure>"
            for shape in ordered
        )
        words = f"<p>{LEGEND}</p>" if any(shape.low is not None for shape in ordered) else ""
        return f"{words}{figures}"

    _repr_html_ = to_html

    def save(self, path: str | Path) -> Path:
        """Write a page (.html), or all pictures below one another (.svg)."""
        target = Path(path)
        kind = target.suffix.lower()
        if kind == ".html":
            text = (
                '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
                '<meta name="viewport" content="width=device-width, initial-scale=1">'
                f"<title>{escape(self.title)}</title><style>body {{ font: 16px/1.5 system-ui, sans-serif; "
                "max-width: 40rem; margin: 1rem auto; padding: 0 1rem; } h1 { font-size: 1.3rem; } "
                "svg { width: 100%; height: auto; }"
                f"</style></head><body><h1>{escape(self.title)}</h1>{self.to_html()}</body></html>\n"
            )
        elif kind == ".svg":
            text = _stacked(self.shapes)
        else:
            raise InvalidParameter(f"shapes are saved as .html or .svg, got {str(path)!r}.")
        _files.write_text(target, text)
        return target


class WithShapes:
    """The methods of a model whose schema makes it a sum of functions of single columns."""

    def shapes(self, level: float = 0.95) -> list[ColumnShape]:
        """What each column adds to the score, with bands where the fit had intervals."""
        return shapes_of(self, level)

    def partial_effect(self, column: str, at: Any = None, level: float = 0.95) -> ColumnShape:
        """What one column (or product "a x b") adds to the score at given values, with its band."""
        return shapes_of(self, level, column, at)[0]

    def plot_shapes(self, path: str | Path | None = None, level: float = 0.95) -> ShapePlots:
        """Pictures of all shapes; with a path, also written there (.html or .svg)."""
        plots = ShapePlots(title=f"Shapes of a {type(self).__name__}", shapes=tuple(shapes_of(self, level)))
        if path is not None:
            plots.save(path)
        return plots


def shape_svg(shape: ColumnShape) -> str:
    """One picture."""
    size, body = _drawn(shape)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {size}" role="img" '
        f'aria-label="{escape(_words(shape))}" font-family="system-ui, sans-serif" font-size="13" fill="#111">'
        f"{body}</svg>"
    )


def _stacked(shapes: Sequence[ColumnShape]) -> str:
    top, parts = 0, []
    for shape in sorted(shapes, key=lambda one: -one.importance):
        size, body = _drawn(shape)
        parts.append(f'<text x="8" y="{top + 18}" font-weight="bold">{escape(shape.name)}</text>')
        parts.append(f'<g transform="translate(0 {top + 26})">{body}</g>')
        top += size + 34
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" font-family="system-ui, sans-serif" '
        f'font-size="13" fill="#111"><rect width="{_WIDTH}" height="{top}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _words(shape: ColumnShape) -> str:
    values = np.atleast_2d(shape.values)[0]
    return f"contribution of {shape.name}: from {values.min():.3g} to {values.max():.3g} over {len(values)} points"


def _drawn(shape: ColumnShape) -> tuple[int, str]:
    if shape.kind == "curve":
        return _HEIGHT, _curve(shape)
    return _bars(shape) if shape.kind == "bars" else _grid(shape)


def _bands(shape: ColumnShape) -> list[tuple[str, Any, Any]]:
    """(colour, low, high) of the outer band and of sampling error alone, where they are finite."""
    if shape.low is None or shape.middle is None or shape.sampling is None or shape.noise is None:
        return []
    total = np.hypot(shape.sampling, shape.noise)
    with np.errstate(invalid="ignore"):
        share = np.where(np.isfinite(total), shape.sampling / np.where(total > 0, total, 1.0), 0.0)
        inner = share * (shape.middle - shape.low)
    return [(NOISE, shape.low, shape.high), (SAMPLING, shape.middle - inner, shape.middle + inner)]


def _limits(shape: ColumnShape) -> tuple[float, float]:
    """Of the contributions drawn: bands count up to twice the height of the curve itself."""
    values = np.ravel(shape.values)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    room = max(high - low, 1e-9)
    for _, under, over in _bands(shape)[:1]:
        known = np.isfinite(under) & np.isfinite(over)
        if known.any():
            low = max(min(low, float(under[known].min())), low - room)
            high = min(max(high, float(over[known].max())), high + room)
    return low, high


def _curve(shape: ColumnShape) -> str:
    points = np.asarray(shape.points, float)
    low, high = _limits(shape)
    span, width = high - low or 1.0, points[-1] - points[0] or 1.0
    order = np.linspace(points[0], points[-1], len(points))
    even = bool(np.allclose(points, order, atol=1e-9 * abs(width)))
    scale = points if even else np.arange(len(points), dtype=float)  # knots of a logarithm: one step each

    def x(place: float) -> float:
        return float(_LEFT + (place - scale[0]) / (scale[-1] - scale[0]) * (_WIDTH - _LEFT - RIGHT))

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (min(max(value, low), high) - low) / span * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<line x1="{_LEFT}" x2="{_WIDTH - RIGHT}" y1="{y(t):.1f}" y2="{y(t):.1f}" stroke="#e3e3e3"/>'
        f'<text x="{_LEFT - 6}" y="{y(t) + 4:.1f}" text-anchor="end">{t:.3g}</text>'
        for t in ticks(low, high)
    ]
    for colour, under, over in _bands(shape):
        for run in _runs(np.isfinite(under) & np.isfinite(over)):
            ends = [(x(scale[j]), over[j], under[j]) for j in run]
            if len(run) == 1:  # a point by itself: a bar
                ends = [(ends[0][0] - 4, *ends[0][1:]), (ends[0][0] + 4, *ends[0][1:])]
            edge = [f"{place:.1f},{y(top):.1f}" for place, top, _ in ends]
            edge += [f"{place:.1f},{y(bottom):.1f}" for place, _, bottom in reversed(ends)]
            parts.append(f'<polygon points="{" ".join(edge)}" fill="{colour}" stroke="none"/>')
    parts.append(
        f'<line x1="{_LEFT}" x2="{_WIDTH - RIGHT}" y1="{y(0):.1f}" y2="{y(0):.1f}" stroke="#111" '
        'stroke-dasharray="3 3"/>'
    )
    dashes = ("", "7 4", "2 3", "9 3 2 3", "4 2")
    for place, row in enumerate(np.atleast_2d(shape.values)):
        path = " ".join(f"{x(scale[j]):.1f},{y(row[j]):.1f}" for j in range(len(points)))
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="2.5" '
            f'stroke-dasharray="{dashes[place % 5]}"/>'
        )
    knots = sorted({round(j * (len(points) - 1) / 4) for j in range(5)})
    marks = [(scale[j], points[j]) for j in knots]
    if even:
        marks = [(tick, tick) for tick in ticks(points[0], points[-1])]
    parts += [
        f'<text x="{min(x(place), _WIDTH - 5 * len(_mark(point))):.1f}" y="{_HEIGHT - _BOTTOM + 18}" '
        f'text-anchor="middle">{_mark(point)}</text>'
        for place, point in marks
    ]
    parts.append(
        f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(shape.name)}</text>'
    )
    return "".join(parts)


def _bars(shape: ColumnShape) -> tuple[int, str]:
    low, high = _limits(shape)
    rows = np.atleast_2d(shape.values)[0]
    axis = RowAxis(width=_WIDTH, names=_NAMES, rows=len(rows), low=low, high=high)
    parts, bottom, x = axis.grid(), axis.bottom, axis.place
    for j, value in enumerate(rows):
        middle, name = axis.middle(j), shortened(str(shape.points[j]), _LONGEST)
        parts.append(f'<text x="{_NAMES - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}</text>')
        for colour, under, over in _bands(shape):
            if math.isfinite(under[j]) and math.isfinite(over[j]):
                parts.append(_bar(x(under[j]), x(over[j]), middle, 14, colour))
        parts.append(_bar(min(x(0), x(value)), max(x(0), x(value)), middle, 5, INK))
    parts.append(f'<line x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{TOP}" y2="{bottom}" stroke="#111"/>')
    return bottom + 26, "".join(parts)


def _bar(left: float, right: float, middle: float, height: int, colour: str) -> str:
    return (
        f'<rect x="{left:.1f}" y="{middle - height / 2:.1f}" width="{max(right - left, 1):.1f}" height="{height}" '
        f'fill="{colour}"/>'
    )


def _grid(shape: ColumnShape) -> tuple[int, str]:
    """A product: the first column downwards, the second to the right; numbers in cells, tinted by their size."""
    first = list(dict.fromkeys(point[0] for point in shape.points))
    second = list(dict.fromkeys(point[1] for point in shape.points))
    values = np.atleast_2d(shape.values)[0].reshape(len(first), len(second))
    most = float(np.abs(values).max()) or 1.0
    left, wide = 110, (_WIDTH - 110 - RIGHT) / len(second)
    parts = []
    for i, one in enumerate(first):
        parts.append(
            f'<text x="{left - 8}" y="{44 + ROW * i}" text-anchor="end">{escape(_label(one))}</text>'
        )
        for j in range(len(second)):
            share = values[i, j] / most
            tint = SAMPLING if share > 0 else NOISE
            parts.append(
                f'<rect x="{left + wide * j:.1f}" y="{28 + ROW * i}" width="{wide - 2:.1f}" height="{ROW - 2}" '
                f'fill="{tint}" fill-opacity="{abs(share):.2f}"/>'
                f'<text x="{left + wide * (j + 0.5):.1f}" y="{44 + ROW * i}" text-anchor="middle">'
                f"{values[i, j]:.2g}</text>"
            )
    parts += [
        f'<text x="{left + wide * (j + 0.5):.1f}" y="20" text-anchor="middle">{escape(_label(two))}</text>'
        for j, two in enumerate(second)
    ]
    return 36 + ROW * len(first), "".join(parts)


def _mark(point: float) -> str:
    """Four digits; thousands are not rounded away."""
    return f"{point:,.0f}" if 1000 <= abs(point) < 1e9 else f"{point:.4g}"


def _label(point: Any) -> str:
    text = _mark(point) if isinstance(point, float) else str(point)
    return shortened(text, 12)


def _runs(good: Any) -> list[list[int]]:
    """Stretches of points that are good."""
    runs: list[list[int]] = [[]]
    for j, fine in enumerate(good):
        if fine:
            runs[-1].append(j)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
