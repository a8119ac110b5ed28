"""The section of a report that shows an additive model's shapes and its coefficients' standard errors."""

from __future__ import annotations

from typing import Any

from dplangevin.estimators.shape_plot import LEGEND, shape_svg
from dplangevin.estimators.shapes import ColumnShape
from dplangevin.report.document import Block, Figure, Number, Picture, ReportTable, Section, Text

_MOST = 40
_BARE = (
    "There are no bands: the model was fitted without intervals. Where few records lie, a curve is noise and prior; "
    "intervals=True draws how far it may be off."
)


def shape_sections(model: Any, plain: dict[str, Any]) -> list[Section]:
    """What the model says, for estimators whose schema makes them additive; `plain` gets the same as data."""
    schema = getattr(model, "schema_", getattr(model, "schema", None))
    if not hasattr(model, "shapes") or not getattr(schema, "additive", False):
        return []
    shapes = sorted(model.shapes(), key=lambda shape: -shape.importance)
    plain["shapes"] = [shape.to_dict() for shape in shapes]
    banded = any(shape.low is not None for shape in shapes)
    rows = [(shape.name, Number(value=float(f"{shape.importance:.4g}"))) for shape in shapes]
    blocks: list[Block] = [
        Text(words="The score is a sum: what each column adds to it is drawn below, the largest first."),
        Text(words=LEGEND if banded else _BARE),
        ReportTable(headers=("column", "largest minus smallest contribution"), rows=rows),
        *(_figure(shape) for shape in shapes[:_MOST]),
    ]
    return [Section(title="What the model says", blocks=blocks)]


def _figure(shape: ColumnShape) -> Figure:
    return Figure(plot=Picture(svg=shape_svg(shape), lines=_lines(shape)), caption=shape.name)


def _lines(shape: ColumnShape) -> tuple[str, ...]:
    values = shape.values if shape.values.ndim == 1 else shape.values[0]
    return tuple(
        f"{point if not isinstance(point, tuple) else ' x '.join(map(str, point))}: {value:.4g}"
        for point, value in zip(shape.points, values, strict=True)
    )
