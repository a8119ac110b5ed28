"""Exports of a fitted model: coefficients by name, scikit-learn, ONNX, SQL and JSON, and a model card.

With a schema every column is an input [rows, 1] of its own: numbers (NaN where missing) for columns with a range or
with numeric categories, texts ("" where missing) for the others. Without one the input is the matrix X. The graph uses
operators of the standard and one of ai.onnx.ml (LabelEncoder, for texts), so that no converter is needed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import SchemaEncoder, as_schema, encoding_schema, scale_knots
from dplangevin.estimators.scorecard import (
    Factor,
    Scorecard,
    build_scorecard,
    category_spellings,
    missing_spellings,
    takes_numbers,
    unused_name,
)
from dplangevin.schema import CategoricalColumn, NumericColumn

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8  # of 2022: every maintained runtime reads them


class _Graph:
    """Nodes and constants of a graph in the making."""

    def __init__(self, onnx: Any, taken: Sequence[str]) -> None:
        self.helper, self.taken = onnx.helper, set(taken)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add_node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        name = output or self._new_name(operator)
        domain = "ai.onnx.ml" if operator == "LabelEncoder" else ""
        self.nodes.append(self.helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def add_constant(self, values: Any, dtype: Any = np.float64) -> str:
        """Add a constant, and return its name."""
        from onnx import numpy_helper

        name = self._new_name("constant")
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def add_text_constant(self, texts: Sequence[str]) -> str:
        """Add a constant list of texts, and return its name."""
        name = self._new_name("constant")
        encoded = [text.encode() for text in texts]
        self.constants.append(
            self.helper.make_tensor(name, self.helper.np_dtype_to_tensor_dtype(np.dtype(object)), [len(texts)], encoded)
        )  # fmt: skip
        return name

    def _new_name(self, kind: str) -> str:
        number = len(self.nodes) + len(self.constants)
        name = f"dplangevin/{kind}_{number}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def model_to_onnx(model: Any) -> Any:
    """Return the ONNX model (`onnx.ModelProto`) of a fitted estimator."""
    try:
        import onnx
    except ImportError:
        raise InvalidParameter(
            "to_onnx needs onnx; install it with: pip install 'dplangevin[exports]'."
        ) from None
    helper, kinds = onnx.helper, onnx.TensorProto
    card = build_scorecard(model)
    card.refuse_readings("ONNX")
    label, probabilities = unused_name("label", card.names), unused_name("probabilities", card.names)
    prediction, score = unused_name("prediction", card.names), unused_name("scores", card.names)
    graph = _Graph(onnx, [*card.names, "X", label, probabilities, prediction, score])
    inputs, scores = _add_scores(graph, card, helper, kinds)
    outputs = []
    if card.classes is None:
        if card.limits is None:
            graph.add_node("Identity", scores, output=prediction)
        else:
            low, high = (graph.add_constant([[limit]]) for limit in card.limits)
            graph.add_node(
                "Max", graph.add_node("Min", graph.add_node("Exp", scores), high), low, output=prediction
            )
        outputs.append(helper.make_tensor_value_info(prediction, kinds.DOUBLE, [None, 1]))
    else:
        kind = _add_labels(graph, card, scores, label)
        outputs.append(helper.make_tensor_value_info(label, kind, [None]))
        if card.link in ("logistic", "softmax"):
            _add_probabilities(graph, card, scores, probabilities)
            outputs.append(
                helper.make_tensor_value_info(probabilities, kinds.DOUBLE, [None, len(card.classes)])
            )
        else:
            graph.add_node("Identity", scores, output=score)
            outputs.append(helper.make_tensor_value_info(score, kinds.DOUBLE, [None, card.n_outputs]))
    built = helper.make_graph(graph.nodes, type(model).__name__, inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    proto = helper.make_model(
        built,
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name="dplangevin",
        producer_version=__version__,
    )
    helper.set_model_props(proto, {"guarantee": json.dumps(model.privacy_.to_dict(), allow_nan=False)})
    onnx.checker.check_model(proto)
    return proto


def _add_scores(graph: _Graph, card: Scorecard, helper: Any, kinds: Any) -> tuple[list[Any], str]:
    """Add the nodes of the scores [rows, outputs]; return the inputs of the graph and the name of the scores."""
    constant = graph.add_constant(card.constant[None])
    if card.weights is not None:
        product = graph.add_node("MatMul", "X", graph.add_constant(card.weights.T))
        inputs = [helper.make_tensor_value_info("X", kinds.DOUBLE, [None, card.weights.shape[1]])]
        return inputs, graph.add_node("Add", product, constant)
    columns = {name: factors[0].column for name, factors in card.column_factors().items()}
    inputs = [
        helper.make_tensor_value_info(
            name, kinds.DOUBLE if takes_numbers(column) else kinds.STRING, [None, 1]
        )
        for name, column in columns.items()
    ]
    pieces: list[str] = []
    rows: list[NDArray[Any]] = []
    for term in card.terms:
        names = [_add_weights(graph, factor) for factor in term.factors]
        pieces.append(
            names[0] if len(names) == 1 else _add_products(graph, names[0], names[1], term.values[0].size)
        )
        rows.append(term.values.reshape(card.n_outputs, -1))
        if term.missing_score is not None:
            pieces.append(_add_missing_indicator(graph, term.factors[0]))
            rows.append(term.missing_score[:, None])
    design = graph.add_node("Concat", *pieces, axis=1)
    product = graph.add_node("MatMul", design, graph.add_constant(np.hstack(rows).T))
    return inputs, graph.add_node("Add", product, constant)


def _add_weights(graph: _Graph, factor: Factor) -> str:
    """Add the weights [rows, size] of a column's cells on its knots or categories."""
    column = factor.column
    if isinstance(column, NumericColumn):
        return _add_knot_weights(graph, factor, column)
    n_categories = len(column.categories)
    if takes_numbers(column):
        listed = graph.add_constant([[float(value) for value in column.categories]])
        hits = graph.add_node("Cast", graph.add_node("Equal", column.name, listed), to=_DOUBLE)
        missing = _add_missing_indicator(graph, factor)
        if factor.missing == "first":
            first = graph.add_constant(np.eye(1, n_categories))
            hits = graph.add_node("Add", hits, graph.add_node("Mul", missing, first))
        if column.other == "ignore":
            return hits
        total = graph.add_node("ReduceSum", hits, graph.add_constant([1], np.int64), keepdims=1)
        unlisted = graph.add_node("Sub", graph.add_constant([[1.0]]), total)
        return graph.add_node("Concat", hits, unlisted, axis=1)
    return _add_text_weights(graph, factor, column)


def _add_text_weights(graph: _Graph, factor: Factor, column: CategoricalColumn) -> str:
    """Add the indicators [rows, size] of the categories of a column of texts."""
    unlisted = len(column.categories) if column.other == "own" else -1
    codes = {text: code for code, texts in enumerate(category_spellings(column)) for text in texts}
    for text in missing_spellings():
        codes.setdefault(text, 0 if factor.missing == "first" else unlisted)
    code = graph.add_node(
        "LabelEncoder",
        column.name,
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=unlisted,
    )
    positions = graph.add_constant([range(factor.size)], np.int64)
    return graph.add_node("Cast", graph.add_node("Equal", code, positions), to=_DOUBLE)


_DOUBLE = 11  # onnx.TensorProto.DOUBLE


def _add_knot_weights(graph: _Graph, factor: Factor, column: NumericColumn) -> str:
    """Add the linear B-splines [rows, knots] of a column of numbers, clipped to its range."""
    low, high = column.low, column.high
    absent = graph.add_node("IsNaN", column.name)
    present = graph.add_node("Where", absent, graph.add_constant([[low]]), column.name)
    number = graph.add_node(
        "Min", graph.add_node("Max", present, graph.add_constant([[low]])), graph.add_constant([[high]])
    )
    if column.transform == "log1p":
        number = graph.add_node("Log", graph.add_node("Add", number, graph.add_constant([[1.0]])))
        low, high = float(np.log1p(low)), float(np.log1p(high))
    shifted = graph.add_node("Sub", number, graph.add_constant([[low]]))
    unit = graph.add_node("Mul", shifted, graph.add_constant([[2 / (high - low)]]))
    scaled = graph.add_node("Sub", unit, graph.add_constant([[1.0]]))
    scaled = graph.add_node("Where", absent, graph.add_constant([[0.0]]), scaled)
    knots = scale_knots(column)
    gaps = np.diff(knots)
    left_gaps, right_gaps = np.append(gaps[:1], gaps), np.append(gaps, gaps[-1:])
    rising = graph.add_node("Sub", scaled, graph.add_constant([knots - left_gaps]))
    rising = graph.add_node("Div", rising, graph.add_constant([left_gaps]))
    falling = graph.add_node("Sub", graph.add_constant([knots + right_gaps]), scaled)
    falling = graph.add_node("Div", falling, graph.add_constant([right_gaps]))
    peaks = graph.add_node("Min", rising, falling)
    weights = graph.add_node("Max", peaks, graph.add_constant([[0.0]]))
    if factor.missing == "middle":
        return weights
    return graph.add_node("Where", absent, graph.add_constant([[0.0]]), weights)


def _add_missing_indicator(graph: _Graph, factor: Factor) -> str:
    return graph.add_node("Cast", graph.add_node("IsNaN", factor.column.name), to=_DOUBLE)


def _add_products(graph: _Graph, first: str, second: str, size: int) -> str:
    """Add all products [rows, size] of the weights of two columns."""
    rows = graph.add_node("Unsqueeze", first, graph.add_constant([2], np.int64))
    columns = graph.add_node("Unsqueeze", second, graph.add_constant([1], np.int64))
    table = graph.add_node("Mul", rows, columns)
    return graph.add_node("Reshape", table, graph.add_constant([0, size], np.int64))


def _add_labels(graph: _Graph, card: Scorecard, scores: str, output: str) -> Any:
    """Add the predicted labels [rows]; return their type."""
    assert card.classes is not None
    if card.n_outputs == 1:
        positive = graph.add_node("Greater", scores, graph.add_constant([[0.0]]))
        column = graph.add_node("Cast", positive, to=7)  # onnx.TensorProto.INT64
        best = graph.add_node("Squeeze", column, graph.add_constant([1], np.int64))
    else:
        best = graph.add_node("ArgMax", scores, axis=1, keepdims=0)
    kind = card.classes.dtype.kind
    if kind in "US" or kind == "O":
        labels = graph.add_text_constant([str(label) for label in card.classes])
        element = 8  # onnx.TensorProto.STRING
    else:
        dtype = {"b": np.bool_, "i": np.int64, "u": np.int64}.get(kind, np.float64)
        labels = graph.add_constant(card.classes, dtype)
        element = {"b": 9, "i": 7, "u": 7}.get(kind, _DOUBLE)
    graph.add_node("Gather", labels, best, output=output, axis=0)
    return element


def _add_probabilities(graph: _Graph, card: Scorecard, scores: str, output: str) -> None:
    """Add the probabilities [rows, classes] of the labels, by the link of the loss that was minimized."""
    if card.link == "softmax":
        graph.add_node("Softmax", scores, output=output, axis=1)
        return
    bound = graph.add_constant([[card.clip]])
    one = graph.add_node("Min", graph.add_node("Sigmoid", scores), bound)
    zero = graph.add_node("Min", graph.add_node("Sigmoid", graph.add_node("Neg", scores)), bound)
    both = graph.add_node("Concat", zero, one, axis=1)
    graph.add_node("Div", both, graph.add_node("Add", one, zero), output=output)


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

        return model_to_onnx(self)

    def to_sql(self, table: str, dialect: str = "duckdb") -> str:
        """Return a query that selects the rows of a table with their predictions, for "duckdb" or "postgresql".

        Columns with a range, or with numeric categories, must have a type that the database casts to a double.
        """
        from dplangevin.estimators.scorecard import model_to_sql

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
