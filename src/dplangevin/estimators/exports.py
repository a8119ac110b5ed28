"""Ways out: a fitted scikit-learn pipeline with the same predictions, and a model card."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from dplangevin._plain import markdown_text
from dplangevin._version import __version__
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._sklearn_parts import classifier, regressor
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, schema_of
from dplangevin.schema import CategoricalColumn, NumericColumn


class WithExports:
    """Methods that hand a fitted model to other tools."""

    def to_sklearn(self) -> Pipeline:
        """A fitted scikit-learn Pipeline with the same predictions; the last step is a plain linear model.

        With a schema the first step is SchemaEncoder, whose output is numbers: `pipeline[-1]` alone, on encoded rows,
        is all scikit-learn's (for ONNX, SHAP and the like). A clipped logistic link, which scikit-learn has not, is a
        small class of this library (`ClippedLogistic`). Poisson models have an exponential link and are refused.
        """
        model: Any = self
        check_is_fitted(model, "coef_")
        if type(model)._model == "poisson":
            raise InvalidParameter(
                "to_sklearn has no linear model with an exponential link; save the model as a file instead."
            )
        weights = np.array(model.coef_, np.float64)
        if is_classifier(model):
            last = classifier(model, np.atleast_2d(weights), np.array(model.intercept_, np.float64))
        else:
            last = regressor(weights, float(model.intercept_))
        steps: list[tuple[str, Any]] = [("model", last)]
        if model.schema is not None:
            steps.insert(0, ("schema", SchemaEncoder(as_schema(schema_of(model)).to_dict())))
        return Pipeline(steps)

    def model_card(self) -> str:
        """Markdown: what the model is, what was promised to whom, bounds of the data, and what is not protected."""
        return model_card(self)


def model_card(model: Any) -> str:
    """The text of a model card."""
    check_is_fitted(model, "coef_")
    promise = model.privacy_
    delta = promise.at_delta or 0.0
    lines = [
        f"# {type(model).__name__}",
        "",
        f"Fitted by dplangevin {__version__} under differential privacy.",
        "",
        "## Guarantee",
        "",
        f"- epsilon = {promise.epsilon(delta):.6g}" + (f", delta = {delta:.3g}" if delta else ", pure"),
        f"- neighbours: {promise.adjacency}; rows of a person covered: {promise.rows_per_person}",
        f"- theorem: {markdown_text(promise.theorem)} ({markdown_text(promise.reference)})",
        f"- arithmetic: {promise.arithmetic}",
        "",
        "It holds when:",
        "",
        *(f"- {markdown_text(words)}" for words in promise.hypotheses),
        "",
        "## Bounds of the data",
        "",
        *_bounds(model),
        "",
        "## Intended use",
        "",
        "Predictions for, and statements about, the population that the records were drawn from. Cells outside the "
        "stated ranges are clipped, so predictions outside them do not extrapolate.",
        "",
        "## Not protected",
        "",
        "- what the model teaches about people in general, and hence about a person who shares those traits",
        "- the public choices above; they must not come from the private records",
        "- other releases about the same people: their costs add up",
        *(["- the number of records"] if promise.adjacency == "replace-one" else []),
        *_uncertain(model),
    ]
    return "\n".join(lines) + "\n"


def _bounds(model: Any) -> list[str]:
    if model.schema is None:
        norm = getattr(model, "data_norm_", model.data_norm)
        words = "the learned norm, which its guarantee states" if isinstance(norm, str) else f"norm {norm:g}"
        lines = [f"- rows are scaled back to {words}"]
    else:
        lines = []
        for column in as_schema(schema_of(model)).columns:
            if isinstance(column, CategoricalColumn):
                lines.append(f"- `{_code(column.name)}`: {len(column.categories)} categories")
                continue
            knots = "" if column.basis is None else f", {len(column.knots)} knots"
            direction = "" if column.monotone is None else f", {column.monotone}"
            lines.append(f"- `{_code(column.name)}`: {column.low:g} to {column.high:g}{knots}{direction}")
    target = getattr(model, "classes_", None)
    if target is not None:
        return [*lines, f"- labels: {', '.join(f'`{_code(str(label))}`' for label in target)}"]
    stated = getattr(model, "target_bounds", None)
    if stated is None and model.schema is not None:
        stated_target = as_schema(schema_of(model)).target
        if isinstance(stated_target, NumericColumn):
            stated = (stated_target.low, stated_target.high)
    return lines if stated is None else [*lines, f"- target: {stated[0]:g} to {stated[1]:g}"]


def _uncertain(model: Any) -> list[str]:
    known = getattr(model, "uncertainty_", None)
    if known is None:
        return ["", "## Uncertainty", "", "Not released: the fit had no `intervals`."]
    finite = np.isfinite(known.standard_errors)
    return [
        "",
        "## Uncertainty",
        "",
        f"{int(finite.sum())} of {finite.size} coefficients have a finite interval; sampling and privacy noise are "
        "both counted.",
    ]


def _code(word: str) -> str:
    return word.replace("`", "'").replace("\n", " ")
