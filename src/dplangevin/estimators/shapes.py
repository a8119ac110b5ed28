"""What a released model says: the shape of each column's contribution with bands, and how stable its decisions are.

A shape is `design @ coefficients`, centered so that its mean over its own points is 0 (a public choice; with
intervals, the mean of categories is over those whose curvature stands above the noise). Its band has two parts,
sampling error and privacy noise. Everything is post-processing of what was released.

The released score of a row x is s = x' theta, with noise of variance v(x) = x' V x around an unknown answer, V the
covariance that the fit computed for its own coefficients. A second release is another draw around the same answer, so
that its score differs from s by a normal variable of variance 2 v(x): it has the other sign with probability
Phi(-|s| / sqrt(2 v)). Another sample of people adds the sampling variance to V. V follows from a noisy curvature, whose
eigenvectors noise turns, so that v is scaled to the moments that the curvature shows in the direction of x itself
(docs/theory/one_step_intervals.md, section 4). Everything is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy.special import expit, ndtr, ndtri
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

if TYPE_CHECKING:
    from dplangevin.estimators.uncertainty import Uncertainty


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


FLIP_SOURCES = ("noise", "sample")
CONSERVATIVE_QUANTILE, CONSERVATIVE_FACTOR = 1.645, 1.4
"""The conservative variant moves the score by the 95% quantile towards the other decision, with deviations enlarged by
the factor, which covers the error of the estimated covariance."""
MIN_CURVATURE_DEVIATIONS = 0.5
"""The curvature in the direction of a row is at least so many deviations of its noise."""
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
MAX_SCORE = 700.0
"""Largest score of which an exponential is taken."""
WIDE_EPSILON, WIDE_FACTOR = 4.0, 2.3
"""Above this epsilon, deviations are multiplied by this factor: refits also weight the rows anew, and a model that is
not exact then has another minimiser, which no covariance here counts (measured: up to 2.7 times the deviation)."""


def flip_margin(probability: float, noise: float) -> float:
    """Return the |score| at which a refit decides otherwise with this probability, for noise of this deviation."""
    return min(-float(ndtri(probability)) * math.sqrt(2) * noise, MAX_SCORE)


class StabilityMixin:
    """Mixin with the stability of the decisions of a classifier that was fitted with `intervals`."""

    uncertainty_: Uncertainty

    def flip_probability(
        self, X: Any, source: Literal["noise", "sample"] = "noise", *, conservative: bool = False
    ) -> Floats:
        """Return, for each row, the probability that a refit decides otherwise.

        Parameters
        ----------
        X : rows, as for `predict`.
        source : "noise": a refit on the same records, with other noise; "sample": on other records of the same
            population.
        conservative : return instead a bound on the probability that a refit decides otherwise than the model without
            noise would have it, meant to hold for 95% of the rows near the boundary.
        """
        _check.check_choice("source", source, FLIP_SOURCES)
        _check.check_flag("conservative", conservative)
        scores, deviations = self._score_noise(X, source)
        with np.errstate(divide="ignore", invalid="ignore"):
            if conservative:
                ratios = np.abs(scores) / (CONSERVATIVE_FACTOR * deviations)
                return np.where(deviations > 0, ndtr(CONSERVATIVE_QUANTILE - ratios), 0.0)
            return np.where(deviations > 0, ndtr(-np.abs(scores) / (np.sqrt(2) * deviations)), 0.0)

    def typical_score_noise(self) -> float | None:
        """Return the standard deviation of the privacy noise in a score near the boundary; None where it is not known.

        It is the root mean square over the records, weighted by the curvature of the loss, which is largest at the
        boundary: tr(V K) over the mean curvature.
        """
        uncertainty, model = getattr(self, "uncertainty_", None), _as_any(self)
        if uncertainty is None or uncertainty.answer_noise is None or not hasattr(model, "classes_"):
            return None
        mean_curvature = float(uncertainty.curvature[-1, -1])
        if not (model.fit_intercept or model.schema is not None) or not mean_curvature > 0:
            return None
        square = max(float(np.sum(uncertainty.answer_noise * uncertainty.curvature)), 0.0) / mean_curvature
        return (WIDE_FACTOR if model.epsilon > WIDE_EPSILON else 1.0) * math.sqrt(square)

    def _score_noise(self, X: Any, source: str) -> tuple[Floats, Floats]:
        """Return the released score of each row, and its standard deviation over refits."""
        model = _as_any(self)
        uncertainty = getattr(self, "uncertainty_", None)
        if uncertainty is None:
            raise InvalidParameter(
                "flip_probability needs a fit with intervals=True (on the command line: fit --intervals)."
            )
        if not hasattr(model, "classes_") or uncertainty.answer_noise is None:
            raise InvalidParameter(
                "flip_probability is known for classifiers of two classes whose fit releases its own curvature "
                "(logistic regression with delta > 0, as mechanism='auto' plans it); this fit has none."
            )
        rows = model._encode_features(X, reset=False)
        scores = rows @ np.ravel(model.coef_) + float(np.ravel(model.intercept_)[0])
        if uncertainty.center.shape[-1] > rows.shape[1]:
            rows = np.column_stack([rows, np.ones(len(rows))])
        variances = _variances(rows, uncertainty.answer_noise)
        counted = np.ones(len(rows))
        if uncertainty.row_basis is not None:
            spectra = measure_rows(rows, uncertainty)
            counted = _counted_curvature(spectra, scores, uncertainty)
            variances *= counted**2 * _noise_ratio(spectra, uncertainty)
        if source == "sample":
            variances += counted * _variances(rows, uncertainty.covariances[0])
        factor = WIDE_FACTOR if model.epsilon > WIDE_EPSILON else 1.0
        return scores, factor * np.sqrt(variances)


def _variances(rows: Floats, covariance: Floats) -> Floats:
    """Return x' V x of each row."""
    return np.asarray(np.maximum(np.einsum("ij,ij->i", rows @ covariance, rows), 0.0))


class RowSpectra(NamedTuple):
    """What is known of the curvature in the directions of whitened rows z, over the bound on their length.

    Parameters
    ----------
    squares : |z|^2.
    along, along_square : z' K z / |z|^2 and |K z|^2 / |z|^2, estimated without bias from the released curvature.
    shrunk, shrunk_square : the same of the shrunk estimate of K.
    """

    squares: Floats
    along: Floats
    along_square: Floats
    shrunk: Floats
    shrunk_square: Floats


def measure_rows(rows: Floats, uncertainty: Uncertainty) -> RowSpectra:
    """Return the moments of the spectrum of K that each row sees.

    Noise E of standard deviation sigma on the diagonal has E[E^2] = sigma^2 (k + 1) / 2, which |(K + E) z|^2 exceeds
    |K z|^2 by.
    """
    assert uncertainty.row_basis is not None
    assert uncertainty.row_curvatures is not None
    assert uncertainty.curvature_noise is not None
    whitened = rows @ uncertainty.row_basis
    squares = np.maximum(np.einsum("ij,ij->i", whitened, whitened), 1e-300)
    moments = [squares]
    for matrix in uncertainty.row_curvatures:
        images = whitened @ matrix
        moments += [np.einsum("ij,ij->i", each, images) / squares for each in (whitened, images)]
    moments[1] = np.maximum(moments[1], MIN_CURVATURE_DEVIATIONS * uncertainty.curvature_noise)
    moments[2] = moments[2] - uncertainty.curvature_noise**2 * (whitened.shape[1] + 1) / 2
    return RowSpectra(*moments)


def _noise_ratio(spectra: RowSpectra, uncertainty: Uncertainty) -> Floats:
    """Return the variance of the noise that a row's own moments give, over that which the shrunk curvature's give.

    The noise of a curvature turns its eigenvectors: rows of a table have no component where it has no curvature, but
    they have one where the released or shrunk estimate has little. Moments in the direction of one row are hardly
    touched by it. Both variances are those of a lognormal spectrum with these two moments.
    """
    assert uncertainty.noise_law is not None
    law = np.log(np.maximum(uncertainty.noise_law, 1e-300))
    own = _lognormal_noise(spectra.along, spectra.along_square, law)
    return own / _lognormal_noise(spectra.shrunk, spectra.shrunk_square, law)


def _lognormal_noise(mean: Floats, square: Floats, law: Floats) -> Floats:
    """Return the mean of the variance, a table of logarithms, over lognormal curvatures of this mean and square."""
    mean = np.maximum(mean, 1e-300)
    spread = np.log(np.maximum(square / mean**2, 1.0))
    nodes = (np.log(mean) - spread / 2)[:, None] + np.sqrt(spread)[:, None] * _NODES
    return np.asarray(np.exp(np.interp(nodes, *law)) @ _WEIGHTS)


def _counted_curvature(spectra: RowSpectra, scores: Floats, uncertainty: Uncertainty) -> Floats:
    """Return the fraction of the curvature in the direction of each row that the released curvature counted.

    A long row near the boundary counts with the share f of its curvature w h'' |z|^2 that stays within the limit on a
    record. Where the curvature in its direction exceeds the mean of all directions, it does so by rows like this one,
    and those of them that are far from the boundary were counted in full: half of what is missing at most is added.
    """
    assert uncertainty.row_curvatures is not None
    assert uncertainty.curvature_limit is not None
    lengths = np.sqrt(spectra.squares)
    own = expit(scores) * expit(-scores) * lengths * np.minimum(lengths, 1.0)
    shares = np.minimum(uncertainty.curvature_limit / np.maximum(own, 1e-300), 1.0)
    mean = float(np.trace(uncertainty.row_curvatures[0])) / len(uncertainty.row_curvatures[0])
    missing = np.maximum(spectra.along - mean, 0.0) * (1 / shares - 1) / 2
    return np.asarray(spectra.along / np.maximum(spectra.along + missing, 1e-300))


def _as_any(model: Any) -> Any:
    return model
