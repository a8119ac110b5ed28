"""The curves of an additive model: what each column adds to the score, with bands.

A shape is `design @ coefficients`, centred so that its mean over its own points is 0 (a public choice; the constant
takes the rest; of categories, with intervals, over those that the records tell of). Its band has two parts, sampling
and privacy noise. Everything is post-processing of what was released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._blocks import ColumnBlock, blocks_of, largest_norm, shown_knots
from dplangevin.estimators._intervals import half_width
from dplangevin.estimators._posterior import MOST_PRIOR
from dplangevin.estimators.schema_encoder import as_schema, schema_of
from dplangevin.schema import NumericColumn, Schema
from dplangevin.tables import Cells, cells_of

_DRAWS = 4000


@dataclass(frozen=True, kw_only=True, eq=False)
class ColumnShape:
    """What one column (or product) adds to the score at its points.

    Parameters
    ----------
    name : the column, or "first x second". kind : "curve", "bars" or "grid".
    points : numbers in the units of the table, categories, or pairs of them.
    values : of the released model; with K > 2 classes a row per class.
    middle, low, high : of the band at each point, without the ridge's bias; None without intervals.
    wide_low, wide_high : of the band that holds the whole shape at once.
    sampling, noise : standard deviations of the two errors, at each point.
    """

    name: str
    kind: str
    points: tuple[Any, ...]
    values: Floats
    middle: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    wide_low: Floats | None = None
    wide_high: Floats | None = None
    sampling: Floats | None = None
    noise: Floats | None = None

    @property
    def importance(self) -> float:
        """Largest minus smallest contribution: how much the column can move the score."""
        return float(np.ptp(self.values, axis=-1).max())

    def to_dict(self) -> dict[str, Any]:
        """Plain data; null where a band is infinite."""
        bands = ("middle", "low", "high", "wide_low", "wide_high", "sampling", "noise")
        known = {name: getattr(self, name) for name in bands}
        plain = {name: _plain(values) for name, values in known.items() if values is not None}
        points = [list(point) if isinstance(point, tuple) else point for point in self.points]
        return {
            "name": self.name, "kind": self.kind, "points": points, "values": self.values.tolist(),
            "importance": self.importance, **plain,
        }  # fmt: skip


def shapes_of(model: Any, level: float = 0.95, only: str | None = None, at: Any = None) -> list[ColumnShape]:
    """The shapes of a fitted model whose schema makes it additive, in the order of the columns."""
    check_is_fitted(model, "coef_")
    _check.open_unit("level", level)
    schema = None if model.schema is None else as_schema(schema_of(model))
    if schema is None or not schema.additive:
        raise InvalidParameter(
            "shapes need a model whose schema states a basis for some column: its rows are then scaled alike, and the "
            "score is a sum over columns. Use DPAdditiveClassifier, or a schema with 'basis'."
        )
    found, start, factor = [], 0, _factor(schema)
    for block in blocks_of(schema):
        size = len(block.names())
        if only is None or block.title == only:
            points, design = _design(block, at)
            design = factor * (design - _middle(model, block, slice(start, start + size)))
            found.append(_shape(model, block, points, design, slice(start, start + size), level))
        start += size
    if not found:
        raise InvalidParameter(f"the model has no column {only!r}; it has {', '.join(schema.names)}.")
    return found


def _middle(model: Any, block: ColumnBlock, part: slice) -> Floats:
    """The mean row over the block's points; of categories with intervals, over those whose curvature is seen."""
    rows: Floats = _design(block)[1]
    seen = getattr(getattr(model, "uncertainty_", None), "seen", None)
    if seen is not None and block.other is None and not isinstance(block.column, NumericColumn):
        fine = seen[part][: len(rows)] >= 1
        rows = rows[fine] if fine.any() else rows
    return np.asarray(rows.mean(axis=0))


def _factor(schema: Schema) -> float:
    return schema.row_norm * (1 - 1e-15) / largest_norm(schema)


def _design(block: ColumnBlock, at: Any = None) -> tuple[tuple[Any, ...], Floats]:
    """Points of the block and its rows there, before scaling."""
    points = _points(block) if at is None else tuple(at)
    first = _cells([point[0] for point in points] if block.other is not None else points)
    second = None if block.other is None else _cells([point[1] for point in points])
    return points, block.encoded(first, second)


def _points(block: ColumnBlock) -> tuple[Any, ...]:
    column = block.column
    if isinstance(column, NumericColumn):
        own: tuple[Any, ...] = tuple(float(knot) for knot in shown_knots(column))
    else:
        own = tuple(column.categories)
    if block.other is None:
        return own
    return tuple((one, two) for one in own for two in _points(block.other))


def _cells(points: Any) -> Cells:
    return cells_of(list(points), "points")


def _shape(
    model: Any, block: ColumnBlock, points: tuple[Any, ...], design: Floats, part: slice, level: float
) -> ColumnShape:
    weights = np.atleast_2d(model.coef_)[:, part]
    values = (design @ weights.T).T
    kind = "grid" if block.other is not None else "bars"
    if block.other is None and isinstance(block.column, NumericColumn):
        kind = "curve"
    values = values[0] if len(values) == 1 else values
    known = getattr(model, "uncertainty_", None)
    if known is None or known.covariances is None:
        return ColumnShape(name=block.title, kind=kind, points=points, values=values)
    parts = [design @ matrix[part, part] @ design.T for matrix in known.covariances]
    if known.flat is not None:
        free = known.prior_scale * design @ known.flat[part]
        parts[2] = parts[2] + free @ free.T
    own, noise, prior = (np.maximum(np.diag(matrix), 0.0) for matrix in parts)
    most = known.prior_scale**2 * (design * design).sum(axis=1)
    lost = own + noise + prior > MOST_PRIOR * most * (1 + 1e-9)
    middle = design @ known.centre[part]
    width = half_width(level, np.sqrt(own + prior), np.sqrt(noise), known.dimension)
    width = np.where(lost, math.inf, width)
    wide = width * _widening(np.sum(parts, axis=0)[~lost][:, ~lost], level)
    return ColumnShape(
        name=block.title, kind=kind, points=points, values=values, middle=middle, low=middle - width,
        high=middle + width, wide_low=middle - wide, wide_high=middle + wide,
        sampling=np.where(lost, math.inf, np.sqrt(own)), noise=np.where(lost, math.inf, np.sqrt(noise)),
    )  # fmt: skip


def _widening(covariance: Floats, level: float) -> float:
    """By how much a band for all points at once is wider than one for each: the quantile of the largest of normals."""
    if not len(covariance):
        return 1.0
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    draws = _normals(len(scale)) @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    return max(1.0, float(np.quantile(np.abs(draws).max(axis=1), level)) / float(ndtri((1 + level) / 2)))


@lru_cache(maxsize=16)
def _normals(size: int) -> Floats:
    """The same draws every time: a picture does not change when it is drawn again."""
    return np.random.default_rng(0).standard_normal((_DRAWS, size))


def _plain(values: Floats) -> list[Any]:
    return [float(value) if math.isfinite(value) else None for value in values]
