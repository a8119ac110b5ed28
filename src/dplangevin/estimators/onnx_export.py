"""ONNX graph of a fitted model: from raw columns to predictions, in double precision.

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

from dplangevin._version import __version__
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import scale_knots
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
