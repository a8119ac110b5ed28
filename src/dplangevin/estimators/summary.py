"""Summary table of a fitted model, Wald tests of groups of coefficients, and prediction intervals.

Everything here is post-processing of what a fit with intervals released: it costs no privacy.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit, gammaincc

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._posterior import MAX_PRIOR_FRACTION, half_width, two_sided_p_values
from dplangevin.estimators.exports import INTERCEPT

if TYPE_CHECKING:
    from dplangevin.estimators.uncertainty import Uncertainty

HEADERS = ("released", "estimate", "std. error", "z", "p-value", "low", "high", "privacy share")


@dataclass(frozen=True, kw_only=True)
class SummaryRow:
    """Row of a summary, for one coefficient.

    Parameters
    ----------
    name : of the coefficient.
    released : the coefficient that predictions use.
    estimate : without the ridge's bias, the center of the interval.
    std_error, z, p_value, low, high : of the estimate, privacy noise included.
    privacy_share : fraction of the squared error that is privacy noise.
    note : why an interval is infinite, and how many records or which epsilon would make it finite.
    """

    name: str
    released: float
    estimate: float
    std_error: float
    z: float
    p_value: float
    low: float
    high: float
    privacy_share: float
    note: str = ""

    @property
    def values(self) -> tuple[float, ...]:
        """Numbers of the row, in the order of HEADERS."""
        return (
            self.released, self.estimate, self.std_error, self.z, self.p_value, self.low, self.high, self.privacy_share,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Summary:
    """Summary of a fit, one row per coefficient; printed as text, displayed as a table in notebooks."""

    title: str
    level: float
    rows: tuple[SummaryRow, ...]

    def __repr__(self) -> str:
        width = max(len(row.name) for row in self.rows)
        lines = [self.title, " " * width + "".join(f"{header:>14}" for header in HEADERS)]
        lines += [
            row.name.ljust(width) + "".join(f"{_format_value(x):>14}" for x in row.values)
            for row in self.rows
        ]
        lines.append(f"Intervals of level {self.level:g} count both sampling error and privacy noise.")
        return "\n".join(lines + [f"{row.name}: {row.note}" for row in self.rows if row.note])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON; None where a number is infinite."""
        fields = ("released", "estimate", "std_error", "z", "p_value", "low", "high", "privacy_share")
        rows = [
            {
                "name": row.name,
                **{name: _finite_or_none(x) for name, x in zip(fields, row.values, strict=True)},
            }
            | ({"note": row.note} if row.note else {})
            for row in self.rows
        ]
        return {"title": self.title, "level": self.level, "coefficients": rows}

    def to_json(self) -> str:
        """Return strict JSON, without NaN and infinity."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per coefficient."""
        import pandas as pd

        return pd.DataFrame(
            [row.values for row in self.rows], columns=list(HEADERS), index=[row.name for row in self.rows]
        )

    def to_html(self) -> str:
        """Return an HTML table."""
        head = "".join(f'<th scope="col">{escape(header)}</th>' for header in ("", *HEADERS))
        body = "".join(
            f'<tr><th scope="row">{escape(row.name)}</th>'
            f"{''.join(f'<td>{_format_value(x)}</td>' for x in row.values)}</tr>"
            for row in self.rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    _repr_html_ = to_html


@dataclass(frozen=True, kw_only=True)
class WaldTest:
    """Wald test of linear equations between coefficients: which they concern, statistic and p-value."""

    names: tuple[str, ...]
    statistic: float
    degrees_of_freedom: int
    p_value: float


@dataclass(frozen=True, kw_only=True, eq=False)
class Submodel:
    """A model with fewer columns, computed from the release of a larger one.

    Parameters
    ----------
    names, coefficients : of the coefficients, the intercept last.
    covariances : [3, k, k], covariances due to sampling, privacy noise and the prior.
    prior_scale : standard deviation of the prior.
    """

    names: tuple[str, ...]
    coefficients: Floats
    covariances: Floats
    prior_scale: float

    @property
    def standard_errors(self) -> Floats:
        """Standard errors; infinite where more than a third of the prior's variance is left."""
        variances = np.maximum(np.diag(self.covariances.sum(axis=0)), 0.0)
        return np.where(variances > MAX_PRIOR_FRACTION * self.prior_scale**2, math.inf, np.sqrt(variances))

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Return [low, high] of each coefficient."""
        width = half_width(level, self.standard_errors, 0.0)
        return np.column_stack([self.coefficients - width, self.coefficients + width])


class SummaryMixin:
    """Mixin with the summary methods of an estimator that was fitted with `intervals`."""

    uncertainty_: Uncertainty
    coef_: Any
    intercept_: Any

    def summary(self, level: float = 0.95) -> Summary:
        """Return coefficients with standard errors, z, p-values and intervals that count privacy noise."""
        uncertainty, model = self._require_uncertainty(), _as_any(self)
        names = [*map(str, model.get_feature_names_out())]
        released = np.atleast_2d(self.coef_)
        if uncertainty.center.shape[-1] > len(names):
            names.append(INTERCEPT)
            released = np.column_stack([released, np.ravel(self.intercept_)])
        several = uncertainty.center.ndim > 1
        labels = [f"{label}: " for label in model.classes_] if several else [""]
        rows = tuple(
            row
            for class_index, label in enumerate(labels)
            for row in _summary_rows(
                model, uncertainty, class_index if several else ..., [label + name for name in names],
                released[class_index], level,
            )
        )  # fmt: skip
        return Summary(title=_summary_title(model), level=_check.check_open_unit("level", level), rows=rows)

    def wald_test(self, *hypothesis: Any, value: Any = 0.0) -> WaldTest:
        """Test that coefficients are 0, or that A theta = value for a matrix A.

        The reference distribution is chi-squared, as if privacy noise were normal; under pure DP with few coefficients
        this is only approximate.

        Parameters
        ----------
        hypothesis : names of columns, each of which stands for all its coefficients, or of single coefficients; or one
            matrix A with a column per coefficient (the intercept last, where there is one) and a row per equation.
        value : right-hand side of the equations of a matrix.
        """
        uncertainty = self._require_uncertainty()
        if uncertainty.covariances is None:
            raise InvalidParameter(
                "tests of groups are available for two classes and for regressors, not for several classes."
            )
        all_names = [*map(str, _as_any(self).get_feature_names_out()), INTERCEPT][: len(uncertainty.center)]
        covariance = uncertainty.covariances.sum(axis=0)
        if len(hypothesis) == 1 and not isinstance(hypothesis[0], str):
            equations, right = _read_equations(hypothesis[0], value, len(all_names))
            if uncertainty.flat is not None and np.abs(equations @ uncertainty.flat).max(initial=0.0) > 1e-9:
                raise InvalidParameter(
                    "an equation concerns a direction in which the rows of the schema do not differ, such as the sum "
                    "of all indicators of a column: state contrasts between categories."
                )
            tested = np.flatnonzero(np.abs(equations).max(axis=0) > 0)
            return _wald_statistic(
                tuple(all_names[index] for index in tested),
                equations @ uncertainty.center - right,
                equations @ covariance @ equations.T,
            )
        tested_indices = [
            index
            for index, name in enumerate(all_names)
            if _belongs_to_any(name, tuple(map(str, hypothesis)))
        ]
        if not tested_indices:
            raise InvalidParameter(
                f"no coefficient belongs to {', '.join(map(str, hypothesis)) or 'nothing'}; name columns, or "
                "coefficients as in get_feature_names_out()."
            )
        testable = _testable_directions(uncertainty.flat, tested_indices)
        return _wald_statistic(
            tuple(all_names[index] for index in tested_indices),
            testable.T @ uncertainty.center[tested_indices],
            testable.T @ covariance[np.ix_(tested_indices, tested_indices)] @ testable,
        )

    def submodel(self, *columns: str) -> Submodel:
        """Return the model with these columns only (and the intercept), from the same release and at no cost.

        Its coefficients are those of least loss to second order around the released ones, which takes over the part of
        the other columns that these explain. A fit of its own with the whole budget is more accurate at small budgets.
        """
        uncertainty, model = self._require_uncertainty(), _as_any(self)
        if uncertainty.curvature is None or uncertainty.covariances is None:
            raise InvalidParameter(
                "submodel needs a fit that releases its own curvature (logistic, ridge, Huber or Poisson regression "
                "with delta > 0, as mechanism='auto' plans it); this fit has none."
            )
        names = [*map(str, model.get_feature_names_out()), INTERCEPT][: len(uncertainty.center)]
        kept = [index for index, name in enumerate(names) if _belongs_to_any(name, columns)]
        if not kept:
            raise InvalidParameter(
                f"no coefficient belongs to {', '.join(columns) or 'nothing'}; name columns."
            )
        if (model.fit_intercept or model.schema is not None) and len(names) - 1 not in kept:
            kept.append(len(names) - 1)
        others = [index for index in range(len(names)) if index not in kept]
        curvature = uncertainty.curvature
        projection = np.zeros((len(kept), len(names)))
        projection[np.arange(len(kept)), kept] = 1.0
        # least norm where the kept columns have no curvature of their own
        inverse = np.linalg.pinv(curvature[np.ix_(kept, kept)], rcond=1e-6, hermitian=True)
        projection[:, others] = inverse @ curvature[np.ix_(kept, others)]
        parts = np.array([projection @ part @ projection.T for part in uncertainty.covariances])
        return Submodel(
            names=tuple(names[index] for index in kept),
            coefficients=projection @ uncertainty.center,
            covariances=parts,
            prior_scale=uncertainty.prior_scale or math.inf,
        )

    def predict_interval(self, X: Any, level: float = 0.95, *, new_target: bool = False) -> Floats:
        """Return [low, high] for each row, of the mean target or of the second class's probability.

        With `new_target`, the interval is for a new target itself (least squares only), whose variance around the
        mean was released with the curvature.
        """
        uncertainty, model = self._require_uncertainty(), _as_any(self)
        if uncertainty.covariances is None:
            raise InvalidParameter(
                "prediction intervals are available for two classes and for regressors, not for several classes."
            )
        rows = model._encode_features(X, reset=False)
        shift = 0.0
        if uncertainty.center.shape[-1] > rows.shape[1]:
            rows = np.column_stack([rows, np.ones(len(rows))])
        elif np.ndim(self.intercept_) == 0:
            shift = float(self.intercept_)
        middle = rows @ uncertainty.center + shift
        variance, noise, prior = (
            np.einsum("ij,jk,ik->i", rows, part, rows) for part in uncertainty.covariances
        )
        variance = variance + prior
        if uncertainty.flat is not None and uncertainty.prior_scale is not None:
            # Rows with unlisted categories are not orthogonal to the flat directions, where only the prior is known.
            variance = variance + uncertainty.prior_scale**2 * ((rows @ uncertainty.flat) ** 2).sum(axis=1)
        if new_target:
            if uncertainty.dispersion is None or hasattr(model, "classes_") or model._log_link:
                raise InvalidParameter(
                    "new_target=True needs a regressor that released the variance of its targets, such as DPRidge."
                )
            variance = variance + uncertainty.dispersion
        width = half_width(level, np.sqrt(variance), np.sqrt(noise), uncertainty.dimension)
        bounds: Floats = np.column_stack([middle - width, middle + width])
        if hasattr(model, "predict_proba"):
            return np.asarray(expit(bounds))
        return (
            np.clip(np.exp(np.minimum(bounds, 700.0)), *model.public_targets()) if model._log_link else bounds
        )

    def _require_uncertainty(self) -> Uncertainty:
        if not hasattr(self, "uncertainty_"):
            raise missing_intervals_error("a summary with standard errors needs")
        return self.uncertainty_


def missing_intervals_error(subject: str) -> InvalidParameter:
    """Return the error for a fit that released no curvature."""
    return InvalidParameter(
        f"{subject} a fit with intervals=True: the curvature that they need is released, and charged, by fit."
    )


def _read_equations(matrix: Any, value: Any, n_coefficients: int) -> tuple[Floats, Floats]:
    """Return A [k, d] and its right-hand side, of full row rank."""
    try:
        equations = np.atleast_2d(np.asarray(matrix, float))
        right = np.broadcast_to(np.asarray(value, float), len(equations))
    except (TypeError, ValueError):
        raise InvalidParameter(
            "wald_test takes names of columns, or one matrix and its right-hand side."
        ) from None
    if equations.ndim != 2 or equations.shape[1] != n_coefficients or not np.isfinite(equations).all():
        raise InvalidParameter(
            f"the matrix must have one column for each of the {n_coefficients} coefficients, the intercept last."
        )
    if not len(equations) or np.linalg.matrix_rank(equations) < len(equations):
        raise InvalidParameter("the equations of the hypothesis must be linearly independent.")
    return equations, right


def _wald_statistic(names: tuple[str, ...], difference: Floats, covariance: Floats) -> WaldTest:
    statistic = float(difference @ np.linalg.solve(covariance, difference))
    return WaldTest(
        names=names,
        statistic=statistic,
        degrees_of_freedom=len(difference),
        p_value=float(gammaincc(len(difference) / 2, statistic / 2)),
    )


def _summary_rows(
    model: Any, uncertainty: Uncertainty, class_index: Any, names: list[str], released: Floats, level: float
) -> list[SummaryRow]:
    """Return the summary rows of the coefficients of one class."""
    center, noise, errors = (
        uncertainty.center[class_index],
        uncertainty.noise[class_index],
        uncertainty.standard_errors[class_index],
    )
    own = (
        uncertainty.sampling[class_index]
        if uncertainty.prior is None
        else np.hypot(uncertainty.sampling, uncertainty.prior)[class_index]
    )
    values = two_sided_p_values(center, own, noise, uncertainty.dimension)
    intervals = uncertainty.intervals(level)[class_index]
    scores = np.where(np.isfinite(errors), center / errors, math.nan)
    notes = _infinite_interval_notes(model, uncertainty, errors) if class_index is ... else [""] * len(names)
    with np.errstate(invalid="ignore"):
        privacy_shares = np.where(
            np.isfinite(errors), noise**2 / np.where(errors > 0, errors, 1.0) ** 2, np.nan
        )
    return [
        SummaryRow(
            name=names[j], released=float(released[j]), estimate=float(center[j]), std_error=float(errors[j]),
            z=float(scores[j]), p_value=float(values[j]), low=float(intervals[j, 0]),
            high=float(intervals[j, 1]), privacy_share=float(privacy_shares[j]), note=notes[j],
        )
        for j in range(len(names))
    ]  # fmt: skip


def _infinite_interval_notes(model: Any, uncertainty: Uncertainty, errors: Floats) -> list[str]:
    """Return, for each infinite interval, its reason and about which epsilon or n would make it finite."""
    notes = [""] * len(errors)
    if uncertainty.covariances is None or uncertainty.prior_scale is None:
        return notes
    scale, variances = uncertainty.prior_scale**2, np.diag(uncertainty.covariances.sum(axis=0))
    for j in np.flatnonzero(np.isinf(errors)):
        precision_gain = 1 / variances[j] - 1 / scale
        factor = math.sqrt(2 / (scale * precision_gain)) if precision_gain > 1e-4 / scale else math.inf
        if uncertainty.resolved_fraction is not None and uncertainty.resolved_fraction[j] < 1:
            factor = (
                1 / uncertainty.resolved_fraction[j] if uncertainty.resolved_fraction[j] > 0.05 else math.inf
            )
        reason = "the curvature in this direction does not stand above its noise"
        if not factor < 100:
            notes[j] = (
                f"{reason}: the column is nearly collinear with others, or rarely nonzero, or far more records are "
                "needed."
            )
            continue
        problem = getattr(getattr(getattr(model, "plan_", None), "plan", None), "problem", None)
        records_text = "" if problem is None else f" (n = {_round_up_two_digits(factor * problem.n)})"
        notes[j] = (
            f"{reason}; about {max(factor, 1.1):.2g} times the records{records_text}, or epsilon = "
            f"{max(factor, 1.1) * model.epsilon:.2g}, would give a finite interval."
        )
    return notes


def _testable_directions(flat: Floats | None, tested_indices: list[int]) -> Floats:
    """Return the directions of the tested coefficients that are identified, without those that only shift the constant.

    All indicators of a column sum to the constant, so that their common part is not a property of the column.
    """
    unit = np.eye(len(tested_indices))
    if flat is None or not flat.shape[1]:
        return unit
    others = [index for index in range(len(flat) - 1) if index not in tested_indices]
    _, sizes, turn = np.linalg.svd(flat[others]) if others else (None, np.zeros(0), np.eye(flat.shape[1]))
    sizes = np.concatenate([sizes, np.zeros(flat.shape[1] - len(sizes))])
    inside = flat[tested_indices] @ turn[sizes < 1e-9].T
    if not inside.size:
        return unit
    left_vectors, sizes, _ = np.linalg.svd(inside)
    rank = int((sizes > 1e-9).sum())
    return np.asarray(left_vectors[:, rank:]) if rank < len(tested_indices) else unit


def _round_up_two_digits(n: float) -> int:
    unit = 10 ** max(int(math.log10(n)) - 1, 0)
    return int(math.ceil(n / unit) * unit)


def _belongs_to_any(name: str, columns: tuple[str, ...]) -> bool:
    """Whether a coefficient is one of those named, or belongs to a column that is."""
    ends = (" knot ", "=", " missing", " x ")
    return any(name == column or any(name.startswith(column + end) for end in ends) for column in columns)


def _summary_title(model: Any) -> str:
    guarantee = model.privacy_
    delta = guarantee.at_delta or 0.0
    budget_text = f"epsilon = {guarantee.epsilon(delta):.4g}" + (
        f", delta = {delta:.3g}" if delta else " (pure)"
    )
    return f"{type(model).__name__}: {budget_text}, {guarantee.adjacency}"


def _as_any(model: Any) -> Any:
    return model


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _format_value(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
