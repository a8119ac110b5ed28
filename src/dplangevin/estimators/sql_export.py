"""SQL of a fitted model: a query that predicts the rows of a table where they are stored, in DuckDB or PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators.schema_encoder import knots_in_table_units
from dplangevin.estimators.scorecard import (
    Factor,
    Scorecard,
    build_scorecard,
    category_spellings,
    missing_spellings,
    unused_name,
)
from dplangevin.schema import CategoricalColumn, NumericColumn

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
