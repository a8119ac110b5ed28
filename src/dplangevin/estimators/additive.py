"""Additive models: sums of linear splines of single columns, with a number of knots chosen from public quantities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._documentation import CLASSES_DOC, TARGET_BOUNDS_DOC, DocExample
from dplangevin.estimators._posterior import interval_budget_fraction
from dplangevin.estimators._reading import open_large_data
from dplangevin.estimators.call_context import learns_row_count
from dplangevin.estimators.linear_models import DPLogisticRegression, DPRidge
from dplangevin.estimators.schema_encoder import as_schema, column_blocks
from dplangevin.planner.fit_plan import Request
from dplangevin.schema import Column, DateColumn, NumericColumn, Schema, SplineBasis
from dplangevin.tables import as_table

MIN_KNOTS, MAX_KNOTS = 2, 16
MAX_KNOTS_WITH_BANDS = 8
"""The curvature that bands need has one row per coordinate: with more knots its noise would dominate."""
KNOTS_FACTOR, PURE_KNOTS_FACTOR = 3.5, 3.0
COLUMNS_PER_CURVE = 8


def choose_n_knots(request: Request, n_curves: int, with_bands: bool = False) -> int:
    """Return the number of knots of each of `n_curves` columns, from public quantities alone.

    It is KNOTS_FACTOR times the cube root of the signal-to-noise ratio effective_n / columns, where the columns are
    those of the linear model and COLUMNS_PER_CURVE more for each curve. One coordinate of the mean gradient has an
    error of about 1 / effective_n, effective_n = n mu / s (pure: n epsilon / (s sqrt p)). The approximation error of
    k knots falls like 1 / k^2 (a power of k between 1 and 4, for functions with steps or smooth ones), the error due
    to noise grows like k / effective_n: hence the cube root. Two knots are a straight line.
    """
    pure = request.delta == 0
    signal_to_noise = request.effective_n(pure) / (request.n_columns + COLUMNS_PER_CURVE * n_curves)
    max_knots = MAX_KNOTS_WITH_BANDS if with_bands else MAX_KNOTS
    if not math.isfinite(signal_to_noise):
        return max_knots
    if not pure:
        return int(min(max_knots, max(MIN_KNOTS, round(KNOTS_FACTOR * signal_to_noise ** (1 / 3)))))
    return max(
        (
            k
            for k in range(MIN_KNOTS, max_knots + 1)
            if k <= _pure_n_knots(request.n_columns, n_curves, k, signal_to_noise)
        ),
        default=MIN_KNOTS,
    )


def _pure_n_knots(columns: int, n_curves: int, n_knots: int, signal_to_noise: float) -> float:
    """Return the same rule for pure DP, where noise grows with the root of the number of all coefficients."""
    growth = (columns + n_knots * n_curves) / columns
    return float(PURE_KNOTS_FACTOR * (signal_to_noise / math.sqrt(growth)) ** (1 / 3))


_EXAMPLE_SCHEMA = '{"columns": {name: {"range": [-1, 1]} for name in "abc"}, "missing": "never"}'
CURVES_DOC = """\
    n_knots : knots of every numeric column without a basis in the schema, equally spaced over its stated range; None
        chooses the number from n, the columns and epsilon.
    smooth : weight of squared second differences in the penalty, for the same columns.
    products : pairs of columns whose products are added as columns.
    monotone : {column: "increasing" or "decreasing"}: released curves are projected, at no privacy cost.
"""


@dataclass(kw_only=True, eq=False, repr=False)
class AdditiveMixin:
    """Mixin that adds a spline basis to the numeric columns of the schema; the rest is the linear estimator's."""

    n_knots: int | None = None
    smooth: float = 0.0
    products: Any = ()
    monotone: Any = None

    def complete_schema(self, X: Any, y: Any, weights: Any) -> None:
        """Set schema_ to the stated schema with a basis for every numeric column."""
        model: Any = self
        rows = model.n_public
        if learns_row_count(model):
            raise InvalidParameter(
                "curves have knots that are chosen for a number of rows before any is read: state about how many to "
                "expect, n_public=, instead of 'learn'."
            )
        if rows is None:
            large_data = open_large_data(X, y, weights)
            rows = len(large_data) if large_data is not None else _number_of_rows(X, self._stated_schema())
        self.complete_schema_for(_check.check_count("n_public", rows))

    def complete_schema_for(self, n: int) -> None:
        """Set schema_ to the stated schema with a basis for every numeric column, chosen for n rows."""
        model: Any = self
        model.__dict__.pop("schema_", None)
        model.schema_ = self._add_bases(self._stated_schema(), n)

    def _stated_schema(self) -> Schema:
        """Return the schema with the stated directions and products."""
        model: Any = self
        if model.schema is None:
            raise InvalidParameter(
                f"{type(self).__name__} needs a schema: its knots are spaced over the stated ranges of the columns."
            )
        schema = as_schema(model.schema)
        if not self.monotone and not self.products:
            return schema
        directions = {} if self.monotone is None else self.monotone
        if not isinstance(directions, Mapping):
            raise InvalidParameter(
                "monotone must be a table such as {'age': 'increasing'} of columns and directions."
            )
        for name in directions:
            if not isinstance(schema.column(name), NumericColumn):
                raise InvalidParameter(
                    f"monotone names {name!r}, whose categories have no order; name numeric columns only."
                )
        columns = tuple(
            replace(column, monotone=directions[column.name]) if column.name in directions else column
            for column in schema.columns
        )
        return replace(schema, columns=columns, products=self.products or schema.products)

    def _add_bases(self, schema: Schema, n: int) -> Schema:
        """Return the schema with a spline basis for every numeric column that has none."""
        open_columns = [column for column in schema.columns if _lacks_basis(column)]
        if not open_columns:
            return schema
        n_knots = self.n_knots
        if n_knots is None:
            model: Any = self
            width = sum(len(block.feature_names()) for block in column_blocks(schema)) + 1
            stated = model.public_targets() if hasattr(model, "classes") else None
            request = model.planning_request(n, width, None if stated is None else len(stated))
            n_knots = choose_n_knots(request, len(open_columns), bool(interval_budget_fraction(model)))
        basis = SplineBasis(n_knots=n_knots, smooth=self.smooth)

        def fill_basis(column: Column) -> Column:
            if not isinstance(column, NumericColumn | DateColumn) or column not in open_columns:
                return column
            return replace(column, basis=basis)

        return replace(schema, columns=tuple(map(fill_basis, schema.columns)))


def _number_of_rows(X: Any, schema: Schema) -> int:
    return len(X) if isinstance(X, list | tuple) else len(as_table(X, schema.names))


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdditiveClassifier(AdditiveMixin, DPLogisticRegression):
    """Differentially private additive classifier: logistic regression on linear splines of the numeric columns.

    {parameters}

    {example}
    """

    _own_parameters_doc: ClassVar[str] = CLASSES_DOC + CURVES_DOC
    _example: ClassVar[DocExample] = DocExample(
        "(np.abs(X[:, 0]) > 0.5) ^ (rng.random(5000) < 0.1)", "classes=[False, True]", 0.85, _EXAMPLE_SCHEMA
    )


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdditiveRegressor(AdditiveMixin, DPRidge):
    """Differentially private additive regressor: least squares on linear splines of the numeric columns.

    {parameters}

    {example}
    """

    _own_parameters_doc: ClassVar[str] = TARGET_BOUNDS_DOC + CURVES_DOC
    _example: ClassVar[DocExample] = DocExample(
        "np.clip(X[:, 0] ** 2 + 0.1 * rng.standard_normal(5000), -1, 1)",
        "target_bounds=(-1, 1)",
        0.6,
        _EXAMPLE_SCHEMA,
    )


def _lacks_basis(column: Column) -> bool:
    """Whether a column has a range, of numbers or of dates, and no spline basis on it."""
    if isinstance(column, DateColumn):
        return "trend" in column.parts and column.basis is None
    return isinstance(column, NumericColumn) and column.basis is None
