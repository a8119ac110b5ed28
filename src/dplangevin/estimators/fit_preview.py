"""Before a fit, from public statements alone: its plan, what to expect, and a check of the schema on public rows.

The plan is the one that `fit` makes: the same functions plan it, on a table that has the stated columns and number of
rows and no cell.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._posterior import interval_budget_fraction, plan_with_intervals
from dplangevin.estimators._raw_fit import plan_raw_table
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema
from dplangevin.mechanisms.learned_schema.spec import LearnedSchemaSpec
from dplangevin.planner.fit_plan import FitPlan, plan_request
from dplangevin.schema import CategoricalColumn, Column, DateColumn, HashedColumn, Schema
from dplangevin.tables import Table, as_table
from dplangevin.tables.cells import replace_decimal_comma
from dplangevin.tables.columns import ArrayColumn

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.05)
_TWO_SIDED_95 = 1.96


@dataclass(frozen=True, kw_only=True)
class FitPreview:
    """What a fit would release and charge, and what to expect of it. Everything in it is public.

    Parameters
    ----------
    fit_plan : the plan of the fit, with the reasons for its choices.
    guarantee : of everything that the fit releases, for a person, as it is charged.
    n_features : encoded columns; with a learned schema the largest number that may be learned.
    category_threshold : with learned categories, the noisy count that a category must reach to be listed.
    """

    fit_plan: FitPlan
    guarantee: Guarantee
    n_features: int
    category_threshold: float | None = None

    @property
    def score_error(self) -> float | None:
        """Half-width of a 95% error bar that noise alone puts on a typical score, an estimate from the excess risk.

        None for losses without curvature (quantiles).

        With curvature h of the loss, an error s of the score costs h s^2 / 2; scores are log-odds (h at most 1/4, so
        that the estimate is from below), the logarithm of a rate, or the target in units of half its range.
        """
        curvature = self.fit_plan.plan.problem.loss.typical_curvature_bound
        if not 0 < curvature < math.inf:
            return None
        return _TWO_SIDED_95 * math.sqrt(2 * max(self.fit_plan.predicted_excess_risk, 0.0) / curvature)

    def attack_powers(self) -> dict[float, float]:
        """Return the largest true positive rate of any membership attack, by its false positive rate."""
        misses = self.guarantee.tradeoff(np.asarray(FALSE_POSITIVE_RATES))
        return {rate: 1 - float(miss) for rate, miss in zip(FALSE_POSITIVE_RATES, misses, strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "mechanism": self.fit_plan.plan.spec.mechanism,
            "n_features": self.n_features,
            "reasons": list(self.fit_plan.reasons),
            "warning": self.fit_plan.warning,
            "predicted_excess_risk": self.fit_plan.predicted_excess_risk,
            "score_error": self.score_error,
            "category_threshold": self.category_threshold,
            "tpr_at_fpr": {str(rate): power for rate, power in self.attack_powers().items()},
            "advantage": self.guarantee.advantage().advantage,
            "guarantee": self.guarantee.to_dict(),
        }

    def __str__(self) -> str:
        fpr, tpr = list(self.attack_powers().items())[-1]
        lines = [
            str(self.fit_plan),
            f"  everything that is released: {self.guarantee.summary_line}",
            f"  any attack on a record: TPR at most {math.ceil(1000 * tpr) / 1000:.1%} at FPR {fpr:.0%}",
        ]
        if self.score_error is not None:
            lines.append(f"  noise of a typical score, 95% (estimate): +/- {self.score_error:.3g}")
        return "\n".join(lines)


def preview_fit(model: Any, *, n: int, names: Sequence[str], target: str) -> FitPreview:
    """Return what `model.fit` would charge and release for a table of n rows with these columns; no table is read.

    Parameters
    ----------
    model : an estimator with a schema, which states classes or target bounds.
    n : public number of rows, or the public divisor (`n_public`).
    names : columns of the table.
    target : the column to be predicted.

    Examples
    --------
    >>> from dplangevin import DPLogisticRegression
    >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-6, schema={
    ...     "columns": {"age": {"range": [0, 100]}}, "target": {"name": "sick", "categories": ["no", "yes"]}})
    >>> preview = preview_fit(model, n=5000, names=["age", "sick"], target="sick")
    >>> preview.n_features, bool(preview.guarantee.epsilon(1e-6) <= 1.0)
    (3, True)
    """
    planned = copy.copy(model)
    rows = _check.check_count("n", n)
    if planned.schema is None:
        raise InvalidParameter(
            "a plan of a table needs a schema: state the ranges and categories, or learn them."
        )
    if planned.public_data is not None:
        raise InvalidParameter("plans of fits with public data are made by the fit itself.")
    table = _empty_table(names, rows)
    if target not in table.names:
        raise InvalidParameter(
            f"there is no column {target!r}; the table has {_check.describe_columns(table.names)}."
        )
    if planned.learned_bounds() == "schema" or planned.person is not None:
        raw_fit = plan_raw_table(planned, table, target, None)
        thresholds = [
            each.spec.threshold for each in raw_fit.plan.learning if isinstance(each.spec, LearnedSchemaSpec)
        ]
        return FitPreview(
            fit_plan=raw_fit.plan.fit_plan,
            guarantee=raw_fit.plan.guarantee,
            n_features=raw_fit.request.n_features,
            category_threshold=next((each for each in thresholds if each is not None), None),
        )
    outline = planned.outline(table.drop_columns(target), table.column(target))
    encode = planned.target_encoder(outline.labels)
    request = planned.planning_request(planned.public_divisor(rows), outline.shape[1], encode.n_classes)
    fit_plan, interval_plan = _plan_stated_schema(planned, request, encode)
    guarantee = fit_plan.plan.guarantee if interval_plan is None else interval_plan.guarantee
    if planned.max_rows_per_person > 1:
        guarantee = guarantee.group(planned.max_rows_per_person)
    return FitPreview(fit_plan=fit_plan, guarantee=guarantee, n_features=outline.shape[1])


def _plan_stated_schema(model: Any, request: Any, encode: Any) -> tuple[FitPlan, Any]:
    budget_fraction = interval_budget_fraction(model)
    if not budget_fraction:
        return plan_request(request), None
    return plan_with_intervals(
        budget_fraction,
        request,
        rows_per_person=model.max_rows_per_person,
        weighted=encode.class_weights is not None,
        is_fraction_stated=model.interval_budget is not None,
    )


def _empty_table(names: Sequence[str], n: int) -> Table:
    """Return a table of n rows without a cell: its columns share one array that takes no memory."""
    blank = ArrayColumn(np.broadcast_to(np.array(None, dtype=object), (n,)), typed=False)
    return Table(dict.fromkeys(names, blank), n)


@dataclass(frozen=True, kw_only=True)
class ColumnCheck:
    """How one column of the schema matches the public rows.

    Parameters
    ----------
    name, kind : of the column.
    unmatched : categories that no row has.
    unlisted, below, above, missing : fractions of the rows outside the list, clipped at either end, or missing.
    commas : fraction of the rows with a decimal comma, which are among the missing.
    """

    name: str
    kind: str
    unmatched: tuple[str, ...] = ()
    unlisted: float = 0.0
    below: float = 0.0
    above: float = 0.0
    missing: float = 0.0
    commas: float = 0.0

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on what should be checked by hand."""
        remarks = []
        if self.unmatched:
            remarks.append(f"no row matches {', '.join(map(repr, self.unmatched))}")
        fractions = {
            "outside the list or missing": self.unlisted,
            "clipped at the low end": self.below,
            "clipped at the high end": self.above,
            "missing or not a number": self.missing,
        }
        remarks += [f"{_format_percent(fraction)} {what}" for what, fraction in fractions.items() if fraction]
        if self.commas:
            remarks.append(
                f"{_format_percent(self.commas)} with a decimal comma: read them with --decimal , "
                "(Dialect(decimal=',')), in pandas decimal=','"
            )
        return tuple(remarks)


@dataclass(frozen=True, kw_only=True, repr=False)
class SchemaCheck:
    """Result of `check_schema`: one ColumnCheck for each column of the schema, the target last."""

    n_rows: int
    columns: tuple[ColumnCheck, ...]

    @property
    def is_clean(self) -> bool:
        """Whether there are no remarks."""
        return not any(column.remarks for column in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        columns = {each.name: {**each.__dict__, "unmatched": list(each.unmatched)} for each in self.columns}
        return {"n_rows": self.n_rows, "is_clean": self.is_clean, "columns": columns}

    def __repr__(self) -> str:
        lines = [f"{self.n_rows} public rows against the schema:"]
        lines += [
            f"  {each.name} ({each.kind}): {'; '.join(each.remarks) or 'fits'}" for each in self.columns
        ]
        return "\n".join(lines)


def check_schema(schema: Any, public: Any) -> SchemaCheck:
    """Check how a schema matches PUBLIC rows; the result depends on single rows, so never pass private ones.

    Cells are read by SchemaEncoder itself, so that the check agrees with the encoding. The target may be absent.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"age": [20, 200, 50, 60], "job": ["a", "a", "b", "z"]})
    >>> check_schema({"columns": {"age": {"range": [17, 90]}, "job": {"categories": ["a", "b", "c"]}}}, rows)
    4 public rows against the schema:
      age (range 17 to 90): 25% clipped at the high end
      job (3 categories): no row matches 'c'; 25% outside the list or missing
    """
    stated = as_schema(schema)
    names = {str(name) for name in getattr(public, "columns", getattr(public, "names", ()))}
    stated.validate(names)
    columns = list(stated.columns)
    if stated.target is not None and stated.target.name in names:
        columns.append(stated.target)
    return SchemaCheck(n_rows=len(public), columns=tuple(_check_column(column, public) for column in columns))


def _check_column(column: Column, public: Any) -> ColumnCheck:
    """Check one column: encode it alone, with a wider range or list, to see what falls outside."""
    if isinstance(column, CategoricalColumn):
        encoder, rows = _encode_alone(replace(column, other="own"), public)
        hits = rows[:, : len(column.categories)] > 0
        pairs = zip(column.categories, hits.any(axis=0), strict=True)
        return ColumnCheck(
            name=column.name,
            kind=column.extent,
            unmatched=tuple(str(category) for category, has_match in pairs if not has_match),
            unlisted=_mean_of(~hits.any(axis=1)),
        )
    if isinstance(column, HashedColumn):
        encoder, rows = _encode_alone(column, public)
        return ColumnCheck(name=column.name, kind=column.extent, missing=_mean_of(rows.sum(axis=1) == 0))
    if isinstance(column, DateColumn):
        trend = replace(column, parts=("trend",), basis=None).features[0]
        days = np.asarray(trend.cells(as_table(public, [column.name])).numbers())
        return ColumnCheck(
            name=column.name,
            kind=column.extent,
            below=_mean_of(days < column.low),
            above=_mean_of(days > column.high),
            missing=_mean_of(np.isnan(days)),
        )
    width = column.high - column.low
    line = replace(column, transform="identity", basis=None, monotone=None)
    wide = replace(line, low=column.low - width, high=column.high + width)
    encoder, rows = _encode_alone(wide, public)
    # In the wide range the stated one is [-1/3, 1/3]; the slack covers rounding in the encoder.
    absent = rows[:, encoder.index(f"{column.name} missing")] > 0
    return ColumnCheck(
        name=column.name,
        kind=f"range {column.extent}",
        below=_mean_of(~absent & (rows[:, 0] < -1 / 3 - 1e-12)),
        above=_mean_of(~absent & (rows[:, 0] > 1 / 3 + 1e-12)),
        missing=_mean_of(absent),
        commas=_mean_of(_has_decimal_comma(column.name, public)),
    )


def _has_decimal_comma(name: str, public: Any) -> NDArray[np.bool_]:
    """Return which public cells are numbers once their comma is a point."""
    cells = as_table(public, [name]).column(name)
    texts, numbers = cells.texts(), cells.numbers()
    is_changed = [text is not None and replace_decimal_comma(text) != text for text in texts]
    return np.asarray(np.isnan(numbers) & np.array(is_changed, bool))


def _encode_alone(column: Column, public: Any) -> tuple[list[str], Any]:
    """Return names and values of the encoded column, before rows are scaled to their norm."""
    schema = Schema(columns=(column,)).to_dict()
    schema["columns"][column.name].pop("missing", None)  # missing cells must show whatever the column's rule
    encoder = SchemaEncoder({**schema, "missing": "own"})
    rows = encoder.transform(public)
    return list(encoder.get_feature_names_out()), rows[:, :-1] / rows[:, -1:]


def _mean_of(hits: Any) -> float:
    return float(np.mean(hits)) if len(hits) else 0.0


def _format_percent(fraction: float) -> str:
    return f"{100 * fraction:.3g}%"
