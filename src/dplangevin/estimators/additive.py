"""Additive models: a sum of piecewise-linear functions of single columns, read as curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._blocks import blocks_of
from dplangevin.estimators._documentation import CLASSES, TARGET_BOUNDS, Example
from dplangevin.estimators._interval_plan import interval_share
from dplangevin.estimators._knots import hats_for
from dplangevin.estimators._reading import large
from dplangevin.estimators.logistic import DPLogisticRegression
from dplangevin.estimators.ridge import DPRidge
from dplangevin.estimators.schema_encoder import as_schema
from dplangevin.schema import Basis, Column, NumericColumn, Schema
from dplangevin.tables import table_of

_SCHEMA = '{"columns": {name: {"range": [-1, 1]} for name in "abc"}, "missing": "never"}'
OWN = """\
    hats : knots of every numeric column that states no basis, spread over its range, which the schema must state;
        None chooses them from n, the columns and epsilon.
    smooth : weight of squared second differences in the penalty, for the same columns.
    products : pairs of columns whose products are columns too.
    monotone : {column: "increasing" or "decreasing"}: released curves are projected, at no privacy cost.
"""


@dataclass(kw_only=True, eq=False, repr=False)
class WithCurves:
    """Fills in the schema's bases from public quantities; everything else is the linear estimator's."""

    hats: int | None = None
    smooth: float = 0.0
    products: Any = ()
    monotone: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit under the stated guarantee; knots are chosen first, from public quantities."""
        model: Any = self
        if model.learns() == "schema" or model.person is not None:
            raise InvalidParameter(
                f"{type(self).__name__} needs stated ranges, and a row for each person: to learn ranges, or to choose "
                "rows by person, use a linear estimator whose schema states a 'basis'."
            )
        parent: Any = super()
        fitted: Self = parent.fit(X, y, sample_weight)
        return fitted

    def prepare(self, X: Any, y: Any, weights: Any) -> None:
        """schema_: the stated schema with a basis for every numeric column."""
        model: Any = self
        model.__dict__.pop("schema_", None)
        stated = self._stated_schema()
        rows = model.n
        if rows is None:
            away = large(X, y, weights)
            rows = len(away) if away is not None else _number_of_rows(X, stated)
        model.schema_ = self._with_bases(stated, _check.count("n", rows))

    def _stated_schema(self) -> Schema:
        model: Any = self
        if model.schema is None:
            raise InvalidParameter(
                f"{type(self).__name__} needs a schema: its knots are spread over the stated ranges of the columns."
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
                    f"monotone names {name!r}, whose categories have no order; give numeric columns only."
                )
        columns = tuple(
            replace(column, monotone=directions[column.name]) if column.name in directions else column
            for column in schema.columns
        )
        return replace(schema, columns=columns, products=self.products or schema.products)

    def _with_bases(self, schema: Schema, n: int) -> Schema:
        open_columns = [
            column for column in schema.columns if isinstance(column, NumericColumn) and column.basis is None
        ]
        if not open_columns:
            return schema
        hats = self.hats
        if hats is None:
            model: Any = self
            width = sum(len(block.names()) for block in blocks_of(schema)) + 1
            stated = model.stated_targets() if hasattr(model, "classes") else None
            request = model.request(n, width, None if stated is None else len(stated))
            hats = hats_for(request, len(open_columns), bool(interval_share(model.intervals)))
        basis = Basis(hats=hats, smooth=self.smooth)

        def filled(column: Column) -> Column:
            return replace(column, basis=basis) if column in open_columns else column

        return replace(schema, columns=tuple(map(filled, schema.columns)))


def _number_of_rows(X: Any, schema: Schema) -> int:
    return len(X) if isinstance(X, list | tuple) else len(table_of(X, schema.names))


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdditiveClassifier(WithCurves, DPLogisticRegression):
    """A private additive classifier: logistic regression on piecewise-linear functions of the numeric columns.

    {parameters}

    {example}
    """

    _own_parameters: ClassVar[str] = CLASSES + OWN
    _example: ClassVar[Example] = Example(
        "(np.abs(X[:, 0]) > 0.5) ^ (rng.random(5000) < 0.1)", "classes=[False, True]", 0.85, _SCHEMA
    )


@dataclass(kw_only=True, eq=False, repr=False)
class DPAdditiveRegressor(WithCurves, DPRidge):
    """A private additive regressor: least squares on piecewise-linear functions of the numeric columns.

    {parameters}

    {example}
    """

    _own_parameters: ClassVar[str] = TARGET_BOUNDS + OWN
    _example: ClassVar[Example] = Example(
        "np.clip(X[:, 0] ** 2 + 0.1 * rng.standard_normal(5000), -1, 1)",
        "target_bounds=(-1, 1)",
        0.6,
        _SCHEMA,
    )
