"""Shapes of an additive model: the contribution of each column to the score, with bands and SVG plots.

A shape is `design @ coefficients`, centered so that its mean over its own points is 0 (a public choice; with
intervals, the mean of categories is over those whose curvature stands above the noise). Its band has two parts,
sampling error and privacy noise. Everything is post-processing of what was released.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check, _files
from dplangevin._arrays import Floats
from dplangevin._templates import (
    DASHES,
    SIDE_MARGIN,
    TOP_MARGIN,
    WIDTH,
    Drawing,
    RowAxis,
    render_template,
    round_ticks,
    shorten_name,
)
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._posterior import MAX_PRIOR_FRACTION, half_width
from dplangevin.estimators.schema_encoder import (
    ColumnBlock,
    as_schema,
    column_blocks,
    encoding_schema,
    knots_in_table_units,
    row_scale,
)
from dplangevin.schema import NumericColumn
from dplangevin.tables import CellColumn, as_column

_N_NORMAL_DRAWS = 4000


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnShape:
    """Contribution of one column (or product) to the score at its points.

    Parameters
    ----------
    name : the column, or "first x second".
    kind : "curve", "bars" or "grid".
    points : numbers in the units of the table, categories, or pairs of them.
    values : of the released model; with K > 2 classes one row per class.
    center, low, high : of the band at each point, without the ridge's bias; None without intervals. The curve and the
        center are two estimates: the former is shrunk. Where it lies outside, the band is extended to it.
    simultaneous_low, simultaneous_high : of the band that covers the whole shape at once.
    sampling, noise : standard deviations of the two errors, at each point.
    """

    name: str
    kind: str
    points: tuple[Any, ...]
    values: Floats
    center: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    simultaneous_low: Floats | None = None
    simultaneous_high: Floats | None = None
    sampling: Floats | None = None
    noise: Floats | None = None

    def to_svg(self) -> str:
        """Return the plot of the shape."""
        return draw_shape(self).to_svg()

    @property
    def importance(self) -> float:
        """Largest minus smallest contribution: by how much the column can change the score."""
        return float(np.ptp(self.values, axis=-1).max())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; None where a band is infinite."""
        bands = ("center", "low", "high", "simultaneous_low", "simultaneous_high", "sampling", "noise")
        known = {name: getattr(self, name) for name in bands}
        plain = {name: _finite_list(values) for name, values in known.items() if values is not None}
        points = [list(point) if isinstance(point, tuple) else point for point in self.points]
        return {
            "name": self.name, "kind": self.kind, "points": points, "values": self.values.tolist(),
            "importance": self.importance, **plain,
        }  # fmt: skip


def compute_shapes(
    model: Any, level: float = 0.95, only: str | None = None, given_points: Any = None
) -> list[ColumnShape]:
    """Return the shapes of a fitted model with an additive schema, in the order of the columns."""
    check_is_fitted(model, "coef_")
    _check.check_open_unit("level", level)
    schema = None if model.schema is None else as_schema(encoding_schema(model))
    if schema is None or not schema.is_additive:
        raise InvalidParameter(
            "shapes need a model whose schema states a basis for some column: without one every contribution is a "
            "straight line, which coefficients() gives. Use DPAdditiveClassifier, or a schema with 'basis'."
        )
    shapes, start, factor = [], 0, row_scale(schema)
    for block in column_blocks(schema):
        size = len(block.feature_names())
        if only is None or block.title == only:
            points, design = _design_rows(block, given_points)
            design = factor * (design - _mean_row(model, block, slice(start, start + size)))
            shapes.append(_build_shape(model, block, points, design, slice(start, start + size), level))
        start += size
    if not shapes:
        raise InvalidParameter(f"the model has no column {only!r}; it has {', '.join(schema.names)}.")
    return shapes


def _mean_row(model: Any, block: ColumnBlock, part: slice) -> Floats:
    """Return the mean row over the block's points; with intervals, over categories whose curvature exceeds noise."""
    rows: Floats = _design_rows(block)[1]
    uncertainty = getattr(model, "uncertainty_", None)
    if uncertainty is None or uncertainty.covariances is None:
        return np.asarray(rows.mean(axis=0))
    if block.other is None and not isinstance(block.column, NumericColumn):
        is_resolved = (
            np.isfinite(uncertainty.noise)
            if uncertainty.resolved_fraction is None
            else uncertainty.resolved_fraction >= 1
        )[part][: len(rows)]
        rows = rows[is_resolved] if is_resolved.any() else rows
    return np.asarray(rows.mean(axis=0))


def _design_rows(block: ColumnBlock, given_points: Any = None) -> tuple[tuple[Any, ...], Floats]:
    """Return points of the block and its encoded rows there, before scaling."""
    points = _shape_points(block) if given_points is None else tuple(given_points)
    first = _point_cells([point[0] for point in points] if block.other is not None else points)
    second = None if block.other is None else _point_cells([point[1] for point in points])
    return points, block.encode(first, second)


def _shape_points(block: ColumnBlock) -> tuple[Any, ...]:
    column = block.column
    if isinstance(column, NumericColumn):
        column_points: tuple[Any, ...] = tuple(float(knot) for knot in knots_in_table_units(column))
    else:
        column_points = tuple(column.categories)
    if block.other is None:
        return column_points
    return tuple((one, two) for one in column_points for two in _shape_points(block.other))


def _point_cells(points: Any) -> CellColumn:
    return as_column(list(points), "points")


def _build_shape(
    model: Any, block: ColumnBlock, points: tuple[Any, ...], design: Floats, part: slice, level: float
) -> ColumnShape:
    """Return the shape of one block, with bands if the fit released its curvature."""
    weights = np.atleast_2d(model.coef_)[:, part]
    values = (design @ weights.T).T
    kind = "grid" if block.other is not None else "bars"
    if block.other is None and isinstance(block.column, NumericColumn):
        kind = "curve"
    values = values[0] if len(values) == 1 else values
    uncertainty = getattr(model, "uncertainty_", None)
    if uncertainty is None or uncertainty.covariances is None:
        return ColumnShape(name=block.title, kind=kind, points=points, values=values)
    parts = [design @ matrix[part, part] @ design.T for matrix in uncertainty.covariances]
    if uncertainty.flat is not None:
        free = uncertainty.prior_scale * design @ uncertainty.flat[part]
        parts[2] = parts[2] + free @ free.T
    sampling_variance, noise, prior = (np.maximum(np.diag(matrix), 0.0) for matrix in parts)
    max_prior_variance = uncertainty.prior_scale**2 * (design * design).sum(axis=1)
    is_unresolved = sampling_variance + noise + prior > MAX_PRIOR_FRACTION * max_prior_variance * (1 + 1e-9)
    middle = design @ uncertainty.center[part]
    width = half_width(level, np.sqrt(sampling_variance + prior), np.sqrt(noise), uncertainty.dimension)
    width = np.where(is_unresolved, math.inf, width)
    wide = width * _simultaneous_factor(np.sum(parts, axis=0)[~is_unresolved][:, ~is_unresolved], level)
    return ColumnShape(
        name=block.title, kind=kind, points=points, values=values, center=middle,
        low=np.minimum(middle - width, values), high=np.maximum(middle + width, values),
        simultaneous_low=np.minimum(middle - wide, values), simultaneous_high=np.maximum(middle + wide, values),
        sampling=np.where(is_unresolved, math.inf, np.sqrt(sampling_variance)),
        noise=np.where(is_unresolved, math.inf, np.sqrt(noise)),
    )  # fmt: skip


def _simultaneous_factor(covariance: Floats, level: float) -> float:
    """Return the width of a simultaneous band over that of a pointwise one: a quantile of the largest |normal|."""
    if not len(covariance):
        return 1.0
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    draws = _standard_normals(len(scale)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return max(1.0, float(np.quantile(np.abs(draws).max(axis=1), level)) / float(ndtri((1 + level) / 2)))


@lru_cache(maxsize=16)
def _standard_normals(size: int) -> Floats:
    """Return fixed draws, so that a plot does not change when it is drawn again."""
    return np.random.default_rng(0).standard_normal((_N_NORMAL_DRAWS, size))


def _finite_list(values: Floats) -> list[Any]:
    return [float(value) if math.isfinite(value) else None for value in values]


_HEIGHT, _LEFT, _TOP, _BOTTOM = 260, 52, 12, 44
_GRID_LEFT, _GRID_ROW_HEIGHT = 110, 26
LINE_COLOR, NOISE_COLOR, SAMPLING_COLOR = "#0072B2", "#F0C08A", "#8FC1E3"
LEGEND = (
    "The line is the released model. The inner band (blue) is sampling error alone, the outer band (sand) includes "
    "privacy noise; it is a pointwise confidence band of the true shape, extended to the line, which is another "
    "estimate than its middle. Where no band is drawn, the data at this budget do not determine one; summary() "
    "estimates how many records or which epsilon would."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class ShapePlots:
    """Plots of a model's shapes: displayed in notebooks, saved as one .html page or one .svg file."""

    title: str
    shapes: tuple[ColumnShape, ...]

    def __repr__(self) -> str:
        return f"{self.title}: " + ", ".join(f"{s.name} ({s.importance:.3g})" for s in self.shapes)

    @property
    def shapes_by_importance(self) -> list[ColumnShape]:
        """The shapes, the most important first."""
        return sorted(self.shapes, key=lambda shape: -shape.importance)

    @property
    def has_bands(self) -> bool:
        """Whether some shape has a band, which the legend explains."""
        return any(shape.low is not None for shape in self.shapes)

    def to_html(self) -> str:
        """Return HTML figures without a page around them, the most important first."""
        return str(render_template("shapes.html", plots=self, legend=LEGEND))

    _repr_html_ = to_html

    def save(self, path: str | Path) -> Path:
        """Write a page (.html), or all plots below one another (.svg), and return the path."""
        target = Path(path)
        kind = target.suffix.lower()
        if kind == ".html":
            text = str(render_template("shapes_page.html", plots=self, legend=LEGEND))
        elif kind == ".svg":
            text = _stack_svg(self.shapes_by_importance)
        else:
            raise InvalidParameter(f"shapes are saved as .html or .svg, got {str(path)!r}.")
        _files.write_text(target, text)
        return target


class ShapesMixin:
    """Mixin with the methods of a model whose score is a sum of functions of single columns."""

    def shapes(self, level: float = 0.95) -> list[ColumnShape]:
        """Return the contribution of each column to the score, with bands if the fit had intervals."""
        return compute_shapes(self, level)

    def partial_effect(self, column: str, at: Any = None, level: float = 0.95) -> ColumnShape:
        """Return the contribution of one column (or product "a x b") to the score at given values, with its band."""
        return compute_shapes(self, level, column, at)[0]

    def plot_shapes(self, path: str | Path | None = None, level: float = 0.95) -> ShapePlots:
        """Return plots of all shapes; with a path, also write them there (.html or .svg)."""
        plots = ShapePlots(
            title=f"Shapes of a {type(self).__name__}", shapes=tuple(compute_shapes(self, level))
        )
        if path is not None:
            plots.save(path)
        return plots


def draw_shape(shape: ColumnShape) -> Drawing:
    """Return the plot of one shape."""
    return {"curve": _draw_curve, "bars": _draw_bars, "grid": _draw_grid}[shape.kind](shape)


def _stack_svg(shapes: Sequence[ColumnShape]) -> str:
    page, top = Drawing(height=0), 0.0
    page.add("rect", width="100%", height="100%", fill="#fff")
    for shape in shapes:
        drawing = draw_shape(shape)
        page.add_text(shape.name, 8, top + 18, font_weight="bold")
        page.add("svg", drawing.to_svg(), y=top + 26, width=WIDTH, height=drawing.height)
        top += drawing.height + 34
    page.height = top
    return page.to_svg()


def _describe_shape(shape: ColumnShape) -> str:
    values = np.atleast_2d(shape.values)[0]
    return f"contribution of {shape.name}: from {values.min():.3g} to {values.max():.3g} over {len(values)} points"


def _shape_bands(shape: ColumnShape) -> list[tuple[str, Any, Any]]:
    """Return (color, low, high) of the outer band and of that of sampling error alone."""
    if shape.low is None or shape.high is None or shape.center is None:
        return []
    if shape.sampling is None or shape.noise is None:
        return []
    total = np.hypot(shape.sampling, shape.noise)
    with np.errstate(invalid="ignore"):
        sampling_fraction = np.where(
            np.isfinite(total), shape.sampling / np.where(total > 0, total, 1.0), 0.0
        )
        inner = sampling_fraction * np.minimum(shape.center - shape.low, shape.high - shape.center)
    return [
        (NOISE_COLOR, shape.low, shape.high),
        (SAMPLING_COLOR, shape.center - inner, shape.center + inner),
    ]


def _value_limits(shape: ColumnShape) -> tuple[float, float]:
    """Return the limits of the value axis; bands extend it by at most the height of the curve on either side."""
    values = np.ravel(shape.values)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    curve_height = max(high - low, 1e-9)
    for _, under, over in _shape_bands(shape)[:1]:
        known = np.isfinite(under) & np.isfinite(over)
        if known.any():
            low = max(min(low, float(under[known].min())), low - curve_height)
            high = min(max(high, float(over[known].max())), high + curve_height)
    return low, high


def _draw_curve(shape: ColumnShape) -> Drawing:
    """Return the drawing of a curve with its bands."""
    points = np.asarray(shape.points, float)
    low, high = _value_limits(shape)
    span, width = high - low or 1.0, points[-1] - points[0] or 1.0
    order = np.linspace(points[0], points[-1], len(points))
    even = bool(np.allclose(points, order, atol=1e-9 * abs(width)))
    # Knots of a transformed column are drawn at equal distances.
    scale = points if even else np.arange(len(points), dtype=float)
    right, bottom = WIDTH - SIDE_MARGIN, _HEIGHT - _BOTTOM

    def to_x(position: float) -> float:
        return float(_LEFT + (position - scale[0]) / (scale[-1] - scale[0]) * (right - _LEFT))

    def to_y(value: float) -> float:
        return float(bottom - (min(max(value, low), high) - low) / span * (bottom - _TOP))

    drawing = Drawing(height=_HEIGHT, description=_describe_shape(shape))
    for tick in round_ticks(low, high):
        drawing.add_line(_LEFT, to_y(tick), right, to_y(tick))
        drawing.add_text(f"{tick:.3g}", _LEFT - 6, to_y(tick) + 4, "end")
    for color, under, over in _shape_bands(shape):
        for run in _consecutive_runs(np.isfinite(under) & np.isfinite(over)):
            ends = [(to_x(scale[j]), over[j], under[j]) for j in run]
            if len(run) == 1:  # a single point is drawn as a bar
                ends = [(ends[0][0] - 4, *ends[0][1:]), (ends[0][0] + 4, *ends[0][1:])]
            edge = [(x, to_y(top)) for x, top, _ in ends] + [
                (x, to_y(value)) for x, _, value in reversed(ends)
            ]
            drawing.add("polygon", points=edge, fill=color)
    drawing.add_line(_LEFT, to_y(0), right, to_y(0), stroke="currentColor", stroke_dasharray="3 3")
    for index, row in enumerate(np.atleast_2d(shape.values)):
        path = [(to_x(scale[j]), to_y(row[j])) for j in range(len(points))]
        dashes = DASHES[index % len(DASHES)]
        drawing.add(
            "polyline", points=path, fill="none", stroke=LINE_COLOR, stroke_width=2.5, stroke_dasharray=dashes
        )
    marks = (
        [(tick, tick) for tick in round_ticks(points[0], points[-1])]
        if even
        else list(zip(scale, points, strict=True))
    )
    for x, label in _place_labels([(to_x(position), _format_point(point)) for position, point in marks]):
        drawing.add_text(label, x, bottom + 18, "middle")
    drawing.add_text(shape.name, (_LEFT + WIDTH) / 2, _HEIGHT - 8, "middle")
    return drawing


def _place_labels(marks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the labels below an axis, from left to right, without those that would touch a neighbour or the last."""
    half = [4.5 * len(label) for _, label in marks]
    places = [min(x, WIDTH - size) for (x, _), size in zip(marks, half, strict=True)]
    shown = [(places[0], half[0], marks[0][1])] if len(marks) > 1 else []
    last = (places[-1], half[-1], marks[-1][1])
    for x, size, (_, label) in zip(places[1:-1], half[1:-1], marks[1:-1], strict=True):
        left = shown[-1]
        if x - left[0] > size + left[1] + 6 and last[0] - x > size + last[1] + 6:
            shown.append((x, size, label))
    return [(x, label) for x, _, label in [*shown, last]]


def _draw_bars(shape: ColumnShape) -> Drawing:
    """Return the drawing of the bars of a categorical column."""
    low, high = _value_limits(shape)
    rows = np.atleast_2d(shape.values)[0]
    axis = RowAxis(rows=len(rows), low=low, high=high)
    drawing, x = axis.start_drawing([str(point) for point in shape.points], _describe_shape(shape)), axis.x_of

    def add_bar(ends: tuple[float, float], row: int, height: int, color: str) -> None:
        left, right = x(min(ends)), x(max(ends))
        y = axis.row_center_y(row) - height / 2
        drawing.add("rect", x=left, y=y, width=max(right - left, 1.0), height=height, fill=color)

    for j, value in enumerate(rows):
        for color, under, over in _shape_bands(shape):
            if math.isfinite(under[j]) and math.isfinite(over[j]):
                add_bar((under[j], over[j]), j, 14, color)
        add_bar((0.0, value), j, 5, LINE_COLOR)
    drawing.add_line(x(0), TOP_MARGIN, x(0), axis.bottom_y, stroke="currentColor")
    return drawing


def _draw_grid(shape: ColumnShape) -> Drawing:
    """Return a table of a product: the first column downwards, the second to the right, cells tinted by value."""
    first = list(dict.fromkeys(point[0] for point in shape.points))
    second = list(dict.fromkeys(point[1] for point in shape.points))
    values = np.atleast_2d(shape.values)[0].reshape(len(first), len(second))
    max_value = float(np.abs(values).max()) or 1.0
    width = (WIDTH - _GRID_LEFT - SIDE_MARGIN) / len(second)
    drawing = Drawing(height=36 + _GRID_ROW_HEIGHT * len(first), description=_describe_shape(shape))
    for j, two in enumerate(second):
        drawing.add_text(_format_label(two), _GRID_LEFT + width * (j + 0.5), 20, "middle")
    for i, one in enumerate(first):
        y = 28 + _GRID_ROW_HEIGHT * i
        drawing.add_text(_format_label(one), _GRID_LEFT - 8, y + 17, "end")
        for j, value in enumerate(values[i]):
            tint = SAMPLING_COLOR if value > 0 else NOISE_COLOR
            x, opacity = _GRID_LEFT + width * j, float(abs(value) / max_value)
            size = {"width": width - 2, "height": _GRID_ROW_HEIGHT - 2}
            drawing.add("rect", x=x, y=y, **size, fill=tint, fill_opacity=opacity)
            drawing.add_text(f"{value:.2g}", x + width / 2, y + 17, "middle")
    return drawing


def _format_point(point: float) -> str:
    """Return the point with three digits; thousands are written in full."""
    return f"{point:,.0f}" if 1000 <= abs(point) < 1e9 else f"{point:.3g}"


def _format_label(point: Any) -> str:
    text = _format_point(point) if isinstance(point, float) else str(point)
    return shorten_name(text, 12)


def _consecutive_runs(mask: Any) -> list[list[int]]:
    """Return the runs of consecutive indices at which the mask is true."""
    runs: list[list[int]] = [[]]
    for j, is_set in enumerate(mask):
        if is_set:
            runs[-1].append(j)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
