"""Exports of a fitted model: coefficients by name, scikit-learn, ONNX, SQL and JSON, and a model card."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dplangevin._arrays import Floats
from dplangevin._templates import escape_markdown
from dplangevin._version import __version__
from dplangevin.accounting.certificate import check_guarantee
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, encoding_schema
from dplangevin.schema import NumericColumn

INTERCEPT = "intercept"
TRUSTED_TYPES = (
    "dplangevin.estimators.exports.ClippedLogistic",
    "dplangevin.estimators.exports.ClippedPoisson",
    "dplangevin.estimators.schema_encoder.SchemaEncoder",
)
"""Types in a pipeline of `to_sklearn` that skops does not know: `skops.io.load(file, trusted=TRUSTED_TYPES)`."""


class FeatureNamesMixin:
    """Mixin for coefficients by name, with and without a schema."""

    schema: Any
    coef_: Any
    intercept_: Any

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of coef_: encoded by the schema, those of the table, or x0, x1, ..."""
        check_is_fitted(self)
        return encoded_column_names(self, np.atleast_2d(self.coef_).shape[1], input_features)

    def coefficients(self) -> dict[Any, Any]:
        """Return coefficients and intercept by name: {name: value}, or {class: {name: value}} with several classes.

        With two classes they are for the second. With a schema, numbers are scaled to [-1, 1] and all rows by one
        factor (see `SchemaEncoder`), so that coefficients are comparable with one another but not in the units of the
        table; "constant" is then the encoded constant column and "intercept" is 0.

        Examples
        --------
        >>> import numpy as np
        >>> from dplangevin import DPRidge
        >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 2))
        >>> model = DPRidge(epsilon=1.0, data_norm=1.5, target_bounds=(-1, 1), random_state=0).fit(X, X[:, 0])
        >>> sorted(model.coefficients())
        ['intercept', 'x0', 'x1']
        """
        names = [*self.get_feature_names_out(), INTERCEPT]
        weights, constants = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        tables = [
            dict(zip(names, map(float, (*row, constant)), strict=True))
            for row, constant in zip(weights, constants, strict=True)
        ]
        if len(tables) == 1:
            return tables[0]
        labels = [getattr(label, "item", lambda label=label: label)() for label in self.classes_]  # type: ignore[attr-defined]
        return dict(zip(labels, tables, strict=True))


def encoded_column_names(
    model: FeatureNamesMixin, n_features: int, input_features: Any = None
) -> NDArray[Any]:
    """Return the names of the encoded columns: those of the schema, of the table, or x0, x1, ..."""
    if model.schema is not None:
        return SchemaEncoder(encoding_schema(model)).get_feature_names_out()
    names = getattr(model, "feature_names_in_", input_features)
    if names is None:
        names = [f"x{position}" for position in range(n_features)]
    return np.asarray(names, dtype=object)


class ClippedLogistic(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Logistic model whose loss derivative was clipped at `bound`: odds min(bound, s) / min(bound, 1 - s).

    Here s = sigmoid(score). scikit-learn has no such link; the decisions are those of LogisticRegression.
    """

    def __init__(self, bound: float = 1.0) -> None:
        self.bound = bound

    def fit(self, X: Any, y: Any) -> ClippedLogistic:
        """Raise: the coefficients come from a private fit."""
        raise TypeError(
            "ClippedLogistic carries the coefficients of a private fit and cannot be fitted itself."
        )

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of the second class."""
        check_is_fitted(self, "coef_")
        return np.asarray(np.asarray(X, np.float64) @ self.coef_[0] + self.intercept_[0])

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of the two labels."""
        scores = self.decision_function(X)
        one, zero = (np.minimum(self.bound, expit(sign * scores)) for sign in (1, -1))
        return np.asarray(np.column_stack([zero, one]) / (one + zero)[:, None])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more likely label."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])


class ClippedPoisson(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Poisson model whose predictions are clipped to the stated range [low, high] of the counts."""

    def __init__(self, low: float = 0.0, high: float = np.inf) -> None:
        self.low, self.high = low, high

    def fit(self, X: Any, y: Any) -> ClippedPoisson:
        """Raise: the coefficients come from a private fit."""
        raise TypeError(
            "ClippedPoisson carries the coefficients of a private fit and cannot be fitted itself."
        )

    def predict(self, X: Any) -> Floats:
        """Return predicted means."""
        check_is_fitted(self, "coef_")
        scores = np.asarray(X, np.float64) @ self.coef_ + self.intercept_
        return np.asarray(np.clip(np.exp(np.minimum(scores, 700.0)), self.low, self.high))


def sklearn_classifier(model: Any, coefficients: Floats, intercept: Floats) -> Any:
    """Return a fitted scikit-learn classifier with these coefficients."""
    clip = float(getattr(model, "slope_clip_", 1.0))
    last: Any = LogisticRegression() if clip >= 1 or len(coefficients) > 1 else ClippedLogistic(bound=clip)
    last.classes_, last.coef_, last.intercept_ = model.classes_.copy(), coefficients, intercept
    last.n_features_in_ = coefficients.shape[1]
    if isinstance(last, LogisticRegression):
        last.n_iter_ = np.array([1], np.int32)
    return last


def sklearn_regressor(model: Any, coefficients: Floats, intercept: float) -> Any:
    """Return a fitted scikit-learn regressor with these coefficients."""
    last: Any = ClippedPoisson(*model.public_targets()) if model._log_link else LinearRegression()
    last.coef_, last.intercept_, last.n_features_in_ = coefficients, intercept, len(coefficients)
    return last


class ExportMixin:
    """Mixin with methods that export a fitted model to other tools."""

    def to_sklearn(self) -> Pipeline:
        """Return a fitted scikit-learn Pipeline with the same predictions; the last step is a plain linear model.

        With a schema the first step is SchemaEncoder, and `pipeline[-1]` alone, on encoded rows, is a model of
        scikit-learn (for SHAP, mlflow and similar tools). What scikit-learn lacks, a clipped logistic link and counts
        within their range, are the small classes `ClippedLogistic` and `ClippedPoisson` of this library.
        `TRUSTED_TYPES` lists what skops must be told to load.
        """
        model: Any = self
        check_is_fitted(model, "coef_")
        weights = np.array(model.coef_, np.float64)
        if is_classifier(model):
            last = sklearn_classifier(model, np.atleast_2d(weights), np.array(model.intercept_, np.float64))
        else:
            last = sklearn_regressor(model, weights, float(model.intercept_))
        steps: list[tuple[str, Any]] = [("model", last)]
        if model.schema is not None:
            steps.insert(0, ("schema", SchemaEncoder(as_schema(encoding_schema(model)).to_dict())))
        return Pipeline(steps)

    def to_onnx(self) -> Any:
        """Return an ONNX model with the same predictions from raw columns, in double precision; it needs `onnx`.

        With a schema each column is an input [rows, 1] by its name: doubles (missing: NaN) for columns with a range or
        with numeric categories, texts (missing: "") for others. Without one the input is the matrix X of doubles.
        Outputs are "label" and "probabilities" (or "scores"), or "prediction". The guarantee is in its metadata.
        """
        from dplangevin.estimators.onnx_export import model_to_onnx

        return model_to_onnx(self)

    def to_sql(self, table: str, dialect: str = "duckdb") -> str:
        """Return a query that selects the rows of a table with their predictions, for "duckdb" or "postgresql".

        Columns with a range, or with numeric categories, must have a type that the database casts to a double.
        """
        from dplangevin.estimators.sql_export import model_to_sql

        return model_to_sql(self, table, dialect)

    def to_scorecard(self) -> dict[str, Any]:
        """Return the score as tables of values by column, with link and guarantee, as plain data for JSON."""
        from dplangevin.estimators.scorecard import build_scorecard

        model: Any = self
        return {
            **build_scorecard(model).to_dict(),
            "estimator": type(model).__name__,
            "guarantee": model.privacy_.to_dict(),
        }

    def model_card(self) -> str:
        """Return a model card in Markdown: model, guarantee, bounds of the data, and what is not protected."""
        return model_card(self)


def model_card(model: Any) -> str:
    """Return the text of a model card."""
    check_is_fitted(model, "coef_")
    guarantee = model.privacy_
    delta = guarantee.at_delta or 0.0
    lines = [
        f"# {type(model).__name__}",
        "",
        f"Fitted by dplangevin {__version__} under differential privacy.",
        "",
        "## Guarantee",
        "",
        f"- epsilon = {guarantee.epsilon(delta):.6g}" + (f", delta = {delta:.3g}" if delta else ", pure"),
        f"- neighbours: {guarantee.adjacency}; rows per person covered: {guarantee.rows_per_person}",
        f"- theorem: {escape_markdown(guarantee.theorem)} ({escape_markdown(guarantee.reference)})",
        f"- arithmetic: {guarantee.arithmetic}",
        f"- {escape_markdown(check_guarantee(guarantee)[1])}",
        "",
        "It holds when:",
        "",
        *(f"- {escape_markdown(assumption)}" for assumption in guarantee.hypotheses),
        "",
        "## Bounds of the data",
        "",
        *_data_bound_lines(model),
        "",
        "## Intended use",
        "",
        "Predictions for, and statements about, the population that the records were drawn from. Cells outside the "
        "stated ranges are clipped, so predictions outside them do not extrapolate.",
        "",
        "## Not protected",
        "",
        "- what the model reveals about people in general, and hence about a person who shares those traits",
        "- the public choices above; they must not come from the private records",
        "- other releases about the same people: their costs add up",
        *(["- the number of records"] if guarantee.adjacency == "replace-one" else []),
        *_uncertainty_lines(model),
    ]
    return "\n".join(lines) + "\n"


def _data_bound_lines(model: Any) -> list[str]:
    """Return the lines of the model card about the bounds of the data."""
    if model.schema is None:
        norm = getattr(model, "data_norm_", model.data_norm)
        norm_text = (
            "the learned norm, which the guarantee states" if isinstance(norm, str) else f"norm {norm:g}"
        )
        lines = [f"- rows are scaled back to {norm_text}"]
    else:
        lines = []
        for column in as_schema(encoding_schema(model)).columns:
            line = f"- `{_escape_code(column.name)}`: {column.extent}"
            if isinstance(column, NumericColumn) and column.basis is not None:
                line += f", {len(column.knots)} knots"
            if isinstance(column, NumericColumn) and column.monotone is not None:
                line += f", {column.monotone}"
            lines.append(line)
    target = getattr(model, "classes_", None)
    if target is not None:
        return [*lines, f"- labels: {', '.join(f'`{_escape_code(str(label))}`' for label in target)}"]
    stated = getattr(model, "target_bounds", None)
    if stated is None and model.schema is not None:
        stated_target = as_schema(encoding_schema(model)).target
        if isinstance(stated_target, NumericColumn):
            stated = (stated_target.low, stated_target.high)
    return lines if stated is None else [*lines, f"- target: {stated[0]:g} to {stated[1]:g}"]


def _uncertainty_lines(model: Any) -> list[str]:
    """Return the lines of the model card about confidence intervals."""
    uncertainty = getattr(model, "uncertainty_", None)
    if uncertainty is None:
        return ["", "## Uncertainty", "", "Not released: the fit had no `intervals`."]
    finite = np.isfinite(uncertainty.standard_errors)
    return [
        "",
        "## Uncertainty",
        "",
        f"{int(finite.sum())} of {finite.size} coefficients have a finite interval; intervals count both sampling "
        "error and privacy noise.",
    ]


def _escape_code(text: str) -> str:
    return text.replace("`", "'").replace("\n", " ")
