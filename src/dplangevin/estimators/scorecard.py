"""Scorecard of a fitted model: its scores as sums of tables over columns; and the SQL query that it gives.

The score of a row is a constant plus one term for each column (and one for each product of columns). A numeric column
is piecewise linear between knots, so its term is a list of values at the knots; a categorical column has one value for
each category; a product has a table of values, multilinear between the knots. Everything is computed from released
coefficients and the public schema: no number here is exact knowledge about a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._version import __version__
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import (
    ColumnBlock,
    as_schema,
    column_blocks,
    encoding_schema,
    knot_design_matrix,
    knots_in_table_units,
    row_scale,
    scale_knots,
)
from dplangevin.schema import CategoricalColumn, NumericColumn
from dplangevin.schema.columns import PlainColumn
from dplangevin.tables import read_label, read_number, shortest_text
from dplangevin.tables.cells import Reading

FORMAT, FORMAT_VERSION = "dplangevin-scorecard", 1
_MISSING_TEXTS = ("", "nan", "NaN", "NAN", "Nan", "NaT")


@dataclass(frozen=True, kw_only=True, eq=False)
class Factor:
    """One column of a term: the values of its cells are weights on knots or on categories.

    Parameters
    ----------
    column : range or categories of the cells.
    missing : weights of a missing cell: "zero" (none), "middle" (of the range), "first" or "other" (category).
    reading : what is derived from a cell first (a part of a date, a hash); None: nothing.
    source : name of the column in the table.
    """

    column: PlainColumn
    missing: str
    reading: Reading | None = None
    source: str = ""

    @property
    def size(self) -> int:
        """Number of knots, or of categories with the one for unlisted values."""
        column = self.column
        if isinstance(column, CategoricalColumn):
            return len(column.categories) + (column.other == "own")
        return len(column.knots)

    def missing_weights(self) -> Floats:
        """Return the weights of a missing cell."""
        weights: Floats = np.zeros(self.size)
        if self.missing == "middle":
            assert isinstance(self.column, NumericColumn)
            knots = scale_knots(self.column)
            weights = np.array([np.interp(0.0, knots, unit) for unit in np.eye(self.size)])
        elif self.missing != "zero":
            weights[0 if self.missing == "first" else -1] = 1.0
        return weights

    def to_dict(self) -> dict[str, Any]:
        """Return the factor as plain data."""
        column = self.column
        derived = {} if self.reading is None else {"derived": self.reading.to_dict()}
        if isinstance(column, CategoricalColumn):
            unlisted = "own" if column.other == "own" else "zero"
            categories = [read_label(value, text=column.text) for value in column.categories]
            return {
                "column": self.source,
                **derived,
                "categories": categories,
                "unlisted": unlisted,
                "missing": self.missing,
            }
        knots = [float(knot) for knot in knots_in_table_units(column)]
        return {
            "column": self.source,
            **derived,
            "knots": knots,
            "scale": column.transform,
            "missing": self.missing,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Term:
    """Term of the score: a table of values over one column, or over two.

    Parameters
    ----------
    factors : one column, or the two of a product.
    values : scores [outputs, size of each factor], to be weighted by the factors.
    missing_score : scores [outputs] added where the cell is missing, or None.
    """

    factors: tuple[Factor, ...]
    values: Floats
    missing_score: Floats | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the term as plain data."""
        plain: dict[str, Any] = {
            "factors": [factor.to_dict() for factor in self.factors],
            "values": self.values.tolist(),
        }
        if self.missing_score is not None:
            plain["missing_score"] = self.missing_score.tolist()
        return plain


@dataclass(frozen=True, kw_only=True, eq=False)
class Scorecard:
    """Scores of a fitted model by column, with the link from scores to predictions.

    Parameters
    ----------
    terms : one for each column and product of the schema; empty without a schema.
    weights : coefficients [outputs, columns] of a model without a schema, whose columns are numbers; else None.
    constant : scores [outputs] of a row whose terms are all zero.
    names : columns of the table, in order.
    link : "identity", "exp", "logistic", "softmax", "sign" or "argmax"; the last two give labels only.
    clip : bound C of a clipped logistic link, see `DPLogisticRegression.predict_proba`; 1 is the sigmoid.
    limits : range to which predictions of the link "exp" are clipped, that of the counts; else None.
    classes : labels of a classifier, or None.
    """

    terms: tuple[Term, ...]
    weights: Floats | None
    constant: Floats
    names: tuple[str, ...]
    link: str
    clip: float = 1.0
    limits: tuple[float, float] | None = None
    classes: NDArray[Any] | None = None

    @property
    def n_outputs(self) -> int:
        """Number of scores of a row: one, or one for each of several classes."""
        return len(self.constant)

    def column_factors(self) -> dict[str, list[Factor]]:
        """Return the factors that read each column, by the column's name."""
        factors: dict[str, list[Factor]] = {name: [] for name in self.names}
        for term in self.terms:
            for factor in term.factors:
                factors[factor.source].append(factor)
        return factors

    def refuse_readings(self, target: str) -> None:
        """Raise if a term reads dates or hashes, which the target of an export does not read as the schema does."""
        for name, factors in self.column_factors().items():
            if any(factor.reading is not None for factor in factors):
                raise InvalidParameter(
                    f"{target} has no reading of column {name!r} that agrees with the schema's for every cell (its "
                    "cells are dates or hashed). Export to_sklearn() or to_scorecard(), or encode the column before "
                    "the fit and state it as a range or categories."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the scorecard as plain data."""
        plain: dict[str, Any] = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "library": __version__,
            "columns": list(self.names),
            "constant": self.constant.tolist(),
            "link": {"kind": self.link},
        }
        if self.link == "logistic":
            plain["link"]["clip"] = self.clip
        if self.limits is not None:
            plain["link"] |= dict(zip(("low", "high"), self.limits, strict=True))
        if self.classes is not None:
            plain["classes"] = self.classes.tolist()
        if self.weights is not None:
            return plain | {"weights": self.weights.tolist()}
        return plain | {"terms": [term.to_dict() for term in self.terms]}


def build_scorecard(model: Any) -> Scorecard:
    """Return the scorecard of a fitted estimator."""
    check_is_fitted(model, "coef_")
    coefficients = np.atleast_2d(np.array(model.coef_, np.float64))
    constant = np.array(np.atleast_1d(model.intercept_), np.float64)
    link, clip = _link_of_model(model, len(coefficients))
    limits = model.public_targets() if link == "exp" else None
    classes = model.classes_.copy() if is_classifier(model) else None
    if model.schema is None:
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            names = [f"x{j}" for j in range(coefficients.shape[1])]
        return Scorecard(
            terms=(), weights=coefficients, constant=constant, names=tuple(map(str, names)), link=link,
            clip=clip, limits=limits, classes=classes,
        )  # fmt: skip
    schema = as_schema(encoding_schema(model))
    coefficients *= row_scale(schema)
    terms, start = [], 0
    for block in column_blocks(schema):
        stop = start + len(block.feature_names())
        terms.append(_term_of_block(block, coefficients[:, start:stop]))
        start = stop
    return Scorecard(
        terms=tuple(terms), weights=None, constant=constant + coefficients[:, -1], names=schema.names,
        link=link, clip=clip, limits=limits, classes=classes,
    )  # fmt: skip


def _link_of_model(model: Any, n_outputs: int) -> tuple[str, float]:
    if not is_classifier(model):
        return ("exp" if model._log_link else "identity"), 1.0
    if not hasattr(model, "predict_proba"):
        return ("sign" if n_outputs == 1 else "argmax"), 1.0
    if n_outputs > 1:
        return "softmax", 1.0
    return "logistic", float(getattr(model, "slope_clip_", 1.0))


def _term_of_block(block: ColumnBlock, weights: Floats) -> Term:
    """Return the term of a block of coefficients [outputs, names], already multiplied by the scale of the rows."""
    first, missing_score = _factor_of_block(block), None
    if block.other is None:
        if isinstance(block.column, NumericColumn) and block.missing == "own":
            weights, missing_score = weights[:, :-1], weights[:, -1]
        values = weights @ _weights_to_values(block).T
        return Term(factors=(first,), values=values, missing_score=missing_score)
    one, two = _weights_to_values(block), _weights_to_values(block.other)
    table = weights.reshape(len(weights), one.shape[1], two.shape[1])
    return Term(
        factors=(first, _factor_of_block(block.other)), values=np.einsum("oij,ai,bj->oab", table, one, two)
    )


def _weights_to_values(block: ColumnBlock) -> Floats:
    """Return the matrix [size, names] from the coefficients of one column to its values at knots or categories."""
    if isinstance(block.column, CategoricalColumn):
        return np.eye(_factor_of_block(block).size)
    return knot_design_matrix(block.column)


def _factor_of_block(block: ColumnBlock) -> Factor:
    column = block.column
    if isinstance(column, CategoricalColumn):
        missing = "first" if block.missing == "never" else "other" if column.other == "own" else "zero"
    else:  # without a basis a missing number is the middle of the range, whose value is zero: both rules agree
        missing = "zero" if block.missing in ("own", "ignored") else "middle"
    return Factor(column=column, missing=missing, reading=block.feature.reading, source=block.feature.source)


def takes_numbers(column: PlainColumn) -> bool:
    """Whether exports read the column as numbers: it has a range, or all its categories are numbers or booleans."""
    if isinstance(column, NumericColumn):
        return True
    return not column.text and all(isinstance(value, bool | int | float) for value in column.categories)


def category_spellings(column: CategoricalColumn) -> list[list[str]]:
    """Return, for each category, texts that are read as it: its label, and how programs write numbers and dates.

    Examples
    --------
    >>> category_spellings(CategoricalColumn(name="g", categories=("a", 1)))
    [['a'], ['1', '1.0', 'True', 'true']]
    """
    return [_spellings_of_category(value, column.text) for value in column.categories]


def _spellings_of_category(value: Any, text: bool) -> list[str]:
    label = read_label(value, text=text)
    number = read_number(label)
    candidates = [str(label), str(value)]
    if number == number and shortest_text(number) == label:
        candidates += [repr(number), "True", "true", "False", "false"]
    candidates += [f"{label} 00:00:00", f"{label}T00:00:00", str(label).replace(" ", "T")]
    distinct = dict.fromkeys(text for text in candidates if "\0" not in text)
    return [candidate for candidate in distinct if read_label(candidate, text=text) == label]


def missing_spellings() -> Sequence[str]:
    """Return texts that are read as missing, as programs write them."""
    return [text for text in _MISSING_TEXTS if read_label(text) is None]


def unused_name(name: str, taken: Sequence[str]) -> str:
    """Return the name, with underscores appended until no column has it."""
    while name in taken:
        name += "_"
    return name


DIALECTS = ("duckdb", "postgresql")
_MAX_EXPONENT = 700.0  # PostgreSQL raises where exp() overflows or underflows


def model_to_sql(model: Any, table: str, dialect: str = "duckdb") -> str:
    """Return a query that selects the rows of a table with their scores and predictions.

    Parameters
    ----------
    model : a fitted estimator.
    table : name of the table, with its schema if it has one: people, or staff.people.
    dialect : "duckdb" or "postgresql".
    """
    _check.check_choice("dialect", dialect, DIALECTS)
    card = build_scorecard(model)
    card.refuse_readings("SQL")
    if not isinstance(table, str) or not table.strip():
        raise InvalidParameter("table must be the name of the table that the query reads.")
    score_names = _score_names(card)
    scores = [f"{_score_expression(card, k)} AS {quote_name(name)}" for k, name in enumerate(score_names)]
    inner = ",\n    ".join(['"records".*', *scores])
    results = ",\n  ".join(['"scored".*', *_result_columns(card, score_names)])
    source = ".".join(quote_name(part) for part in table.split("."))
    return (
        f'SELECT\n  {results}\nFROM (\n  SELECT\n    {inner}\n  FROM {source} AS "records"\n) AS "scored"\n'
    )


def quote_name(name: str) -> str:
    """Return a name as an SQL identifier."""
    if "\0" in name:
        raise InvalidParameter(f"SQL has no name such as {name!r}.")
    return '"' + name.replace('"', '""') + '"'


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _write_number(value: float) -> str:
    """Return a number as a literal of a double: with an exponent, since DuckDB reads others as decimals."""
    text = repr(float(value))
    text = text if "e" in text else text + "e0"
    return f"({text})" if text.startswith("-") else text


def _score_names(card: Scorecard) -> list[str]:
    if card.n_outputs == 1:
        return [unused_name("score", card.names)]
    assert card.classes is not None
    return [unused_name(f"score_{label}", card.names) for label in card.classes]


def _score_expression(card: Scorecard, output: int) -> str:
    """Return one score of a row as an expression."""
    parts = [_write_number(card.constant[output])]
    if card.weights is not None:
        parts += [
            f"{_write_number(weight)} * {_number_cell(name)}"
            for weight, name in zip(card.weights[output], card.names, strict=True)
        ]
    for term in card.terms:
        missing = None if term.missing_score is None else float(term.missing_score[output])
        parts.append(_table_expression(term.factors, term.values[output], missing))
    return "(" + "\n      + ".join(parts) + ")"


def _table_expression(factors: Sequence[Factor], values: Floats, missing_score: float | None = None) -> str:
    """Return a term as a CASE over the cells of its first column; of a product, with one over the second inside."""
    first, rest = factors[0], factors[1:]

    def write(row: Any) -> str:
        return _table_expression(rest, row) if rest else _write_number(row)

    missing = np.tensordot(first.missing_weights(), values, axes=1)
    is_missing = write(missing if missing_score is None else missing_score)
    column = first.column
    if isinstance(column, NumericColumn):
        return _write_case(_missing_number(column.name), is_missing, _numeric_cases(column, values, write))
    nothing = write(0.0 * values[0])
    return _category_case(column, [write(row) for row in values], is_missing, nothing)


def _write_case(is_missing: str, missing: str, cases: Sequence[tuple[str | None, str]]) -> str:
    branches = [f"WHEN {is_missing} THEN {missing}"]
    branches += [f"WHEN {condition} THEN {value}" for condition, value in cases if condition is not None]
    branches += [f"ELSE {value}" for condition, value in cases if condition is None]
    return f"CAST(CASE {' '.join(branches)} END AS FLOAT8)"


def _number_cell(name: str) -> str:
    return f'CAST("records".{quote_name(name)} AS FLOAT8)'


def _missing_number(name: str) -> str:
    cell = _number_cell(name)
    return f"{cell} IS NULL OR {cell} = CAST('NaN' AS FLOAT8)"


def _numeric_cases(column: NumericColumn, values: Floats, write: Any) -> list[tuple[str | None, str]]:
    """Return condition and value of each part of the range: the ends, then a straight line between two knots."""
    cell, ends = _number_cell(column.name), knots_in_table_units(column)
    position = cell
    if column.transform == "log1p":  # of a clipped cell: a database may compute it for every row
        position = f"LN(1e0 + GREATEST({cell}, {_write_number(column.low)}))"
    cases: list[tuple[str | None, str]] = [(f"{cell} <= {_write_number(column.low)}", write(values[0]))]
    segments = zip(pairwise(column.knots), ends[1:], pairwise(values), strict=True)
    for (left, right), end, (one, two) in segments:
        weight = f"(({position} - {_write_number(left)}) * {_write_number(1 / (right - left))})"
        value = f"({write(one)} + {weight} * {write(two - one)})"
        cases.append((f"{cell} < {_write_number(end)}", value))
    return [*cases, (None, write(values[-1]))]


def _category_case(column: CategoricalColumn, values: list[str], missing: str, nothing: str) -> str:
    """Return a CASE over categories; an unlisted one has the last value where it is a category of its own."""
    if column.is_numeric:
        cell, is_missing = _number_cell(column.name), _missing_number(column.name)
        conditions = [f"{cell} = {_write_number(float(value))}" for value in column.categories]
    else:
        cell = f'CAST("records".{quote_name(column.name)} AS TEXT)'
        absent = ", ".join(map(_quote_text, missing_spellings()))
        is_missing = f"{cell} IS NULL OR {cell} IN ({absent})"
        conditions = [
            f"{cell} IN ({', '.join(map(_quote_text, texts))})" for texts in category_spellings(column)
        ]
    cases: list[tuple[str | None, str]] = list(zip(conditions, values, strict=False))
    return _write_case(
        is_missing, missing, [*cases, (None, values[-1] if column.other == "own" else nothing)]
    )


def _result_columns(card: Scorecard, score_names: Sequence[str]) -> list[str]:
    """Return the selected predictions, as expressions of the scores."""
    scores = [f'"scored".{quote_name(name)}' for name in score_names]
    prediction = quote_name(unused_name("prediction", card.names))
    if card.classes is None:
        if card.limits is not None:
            low, high = map(_write_number, card.limits)
            return [f"GREATEST(LEAST(EXP({_clip_exponent(scores[0])}), {high}), {low}) AS {prediction}"]
        return [f"{scores[0]} AS {prediction}"]
    labels = [_write_label(label) for label in card.classes.tolist()]
    columns = [f"{_best_label(scores, labels)} AS {prediction}"]
    if card.link in ("logistic", "softmax"):
        columns += [
            f"{expression} AS {quote_name(unused_name(f'probability_{label}', card.names))}"
            for label, expression in zip(card.classes.tolist(), _probabilities(card, scores), strict=True)
        ]
    return columns


def _best_label(scores: Sequence[str], labels: Sequence[str]) -> str:
    if len(scores) == 1:
        return f"CASE WHEN {scores[0]} > 0 THEN {labels[1]} ELSE {labels[0]} END"
    branches = [
        f"WHEN {' AND '.join(f'{score} >= {other}' for other in scores[k + 1 :])} THEN {labels[k]}"
        for k, score in enumerate(scores[:-1])
    ]
    return f"CASE {' '.join(branches)} ELSE {labels[-1]} END"


def _probabilities(card: Scorecard, scores: Sequence[str]) -> list[str]:
    """Return the probability of each class as an expression."""
    if card.link == "softmax":
        largest = f"GREATEST({', '.join(scores)})"
        weights = [f"EXP(GREATEST({score} - {largest}, {_write_number(-_MAX_EXPONENT)}))" for score in scores]
        total = " + ".join(weights)
        return [f"{weight} / ({total})" for weight in weights]
    exponent = _clip_exponent(scores[0])
    one, zero = f"(1e0 / (1e0 + EXP(-{exponent})))", f"(1e0 / (1e0 + EXP({exponent})))"
    if card.clip < 1:
        one, zero = (f"LEAST({_write_number(card.clip)}, {part})" for part in (one, zero))
    return [f"{part} / ({one} + {zero})" for part in (zero, one)]


def _clip_exponent(score: str) -> str:
    return f"GREATEST(LEAST({score}, {_write_number(_MAX_EXPONENT)}), {_write_number(-_MAX_EXPONENT)})"


def _write_label(label: Any) -> str:
    if isinstance(label, bool):
        return "TRUE" if label else "FALSE"
    if isinstance(label, int):
        return str(label)
    return _write_number(label) if isinstance(label, float) else _quote_text(str(label))
