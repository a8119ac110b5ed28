"""SQL predicates over one row, checked on DuckDB's own parse tree.

A count has sensitivity 1 only if the predicate looks at one row and cannot fail: a subquery, an aggregate, a window or
a row number would let one record change the answers of others, and an error raised by one record would tell about it.
So only column names, literals and listed operators and functions pass; every cast becomes TRY_CAST; and the text that
runs is regenerated from the checked tree, never the text that was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dplangevin.errors import InvalidParameter

LONGEST = 20_000
OPERATORS = frozenset(
    {
        "OPERATOR_NOT",
        "OPERATOR_IS_NULL",
        "OPERATOR_IS_NOT_NULL",
        "OPERATOR_COALESCE",
        "OPERATOR_NULLIF",
        "OPERATOR_TRY",
        "COMPARE_IN",
        "COMPARE_NOT_IN",
    }
)
CLASSES = frozenset({"CONSTANT", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "BETWEEN", "CASE", "TYPE"})
_FUNCTION_WORDS = """
+ - * / // % ~~ !~~ ~~* !~~* || abs ceil ceiling concat contains date_part date_trunc day dayofweek dayofyear ends_with
exp floor greatest hour isfinite isinf isnan least left length ln log10 lower ltrim minute month nullif prefix quarter
regexp_full_match regexp_matches right round rtrim second sign sqrt starts_with strlen substr substring suffix trim
trunc upper week weekday year
"""
_TYPE_WORDS = """
BOOLEAN TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL VARCHAR DATE
TIME TIMESTAMP
"""
FUNCTIONS = frozenset(_FUNCTION_WORDS.split())
TYPES = frozenset(_TYPE_WORDS.split())
_REGULAR = ("regexp_full_match", "regexp_matches")


def checked_predicate(text: str, columns: Iterable[str], connection: Any) -> str:
    """The predicate as DuckDB writes it after the check; raises InvalidParameter and spends nothing otherwise."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidParameter(f'a predicate must be a SQL text such as "age >= 30", got {text!r}.')
    if len(text) > LONGEST:
        raise InvalidParameter(f"the predicate has {len(text)} characters; the most is {LONGEST}.")
    try:
        statement = _parsed(text, connection)
        _check_shape(statement, text, connection)
        expression = statement["node"]["select_list"][0]
        expression["alias"] = ""
        _check_node(expression, {name.lower() for name in columns}, text)
    except RecursionError:
        raise InvalidParameter("the predicate is nested too deeply; split it.") from None
    document = json.dumps({"error": False, "statements": [statement]})
    (written,) = connection.execute("SELECT json_deserialize_sql(CAST(? AS JSON))", [document]).fetchone()
    return str(written).removeprefix("SELECT ").strip().rstrip(";")


def _parsed(text: str, connection: Any) -> dict[str, Any]:
    (answer,) = connection.execute(
        "SELECT json_serialize_sql(CAST(? AS VARCHAR))", [f"SELECT {text}"]
    ).fetchone()
    tree = json.loads(answer)
    if tree.get("error"):
        raise _refused(text, f"it does not parse: {tree.get('error_message', 'syntax error')}")
    if len(tree["statements"]) != 1:
        raise _refused(text, "it holds more than one statement")
    return dict(tree["statements"][0])


def _check_shape(statement: dict[str, Any], text: str, connection: Any) -> None:
    """Everything around the single expression must be what `SELECT 1` has: no FROM, WHERE, GROUP BY, CTE, ..."""
    plain = _parsed("1", connection)
    given = statement["node"].get("select_list") or []
    if len(given) != 1 or _frame(statement) != _frame(plain):
        raise _refused(text, "it is more than one expression over a row (no FROM, WHERE, commas or clauses)")


def _frame(statement: Mapping[str, Any]) -> Any:
    node = {key: value for key, value in statement["node"].items() if key != "select_list"}
    return _without_places({**statement, "node": node})


def _without_places(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_places(v) for k, v in value.items() if not k.startswith("query_location")}
    return [_without_places(item) for item in value] if isinstance(value, list) else value


def _check_node(node: Any, columns: set[str], text: str) -> None:
    for expression in _expressions(node):
        kind = expression.get("class")
        if kind == "FUNCTION":
            _check_function(expression, text)
        elif kind == "CAST":
            _check_cast(expression, text)
        elif kind == "COLUMN_REF":
            names = expression.get("column_names", [])
            if len(names) != 1 or str(names[0]).lower() not in columns:
                raise _refused(text, f"{'.'.join(map(str, names))!r} is not a column of the table")
        elif kind == "OPERATOR":
            if expression.get("type") not in OPERATORS:
                raise _refused(text, f"the operator {expression.get('type')} is not on the list")
        elif kind not in CLASSES:
            raise _refused(
                text, f"{_WORDS.get(str(kind), str(kind).lower())} look at more than one row or are unsafe"
            )


_WORDS = {
    "SUBQUERY": "subqueries",
    "WINDOW": "windows",
    "STAR": "stars",
    "LAMBDA": "lambdas",
    "COLLATE": "collations",
}


def _expressions(node: Any) -> Iterator[dict[str, Any]]:
    """Every expression of the tree, whatever field it hides in."""
    pending = [node]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "class" in value:
                yield value
            elif "node" in value or value.get("type") == "SELECT_NODE":
                yield {"class": "SUBQUERY"}
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _check_function(expression: Mapping[str, Any], text: str) -> None:
    name = str(expression.get("function_name", "")).lower()
    if name not in FUNCTIONS or expression.get("schema") or expression.get("catalog"):
        raise _refused(text, f"the function {name} is not on the list of row-wise functions")
    ordered = (expression.get("order_bys") or {}).get("orders")
    if expression.get("filter") or expression.get("distinct") or expression.get("export_state") or ordered:
        raise _refused(text, f"{name} is used as an aggregate")
    arguments = expression.get("arguments", expression.get("children", []))
    plain = [argument.get("expression", argument) for argument in arguments]
    if any(argument.get("name") for argument in arguments if "expression" in argument):
        raise _refused(text, f"{name} has named arguments")
    if name in _REGULAR and any(argument.get("class") != "CONSTANT" for argument in plain[1:]):
        raise _refused(text, "the pattern of a regular expression must be a literal")


def _check_cast(expression: dict[str, Any], text: str) -> None:
    wanted = expression.get("type_expr") or expression.get("cast_type") or {}
    name = str(wanted.get("type_name", wanted.get("id", "")))
    if name.upper() not in TYPES:
        raise _refused(text, f"a cast to {name or 'this type'} is not on the list")
    expression["try_cast"] = True


def _refused(text: str, reason: str) -> InvalidParameter:
    short = text if len(text) <= 80 else text[:77] + "..."
    return InvalidParameter(
        f"the SQL {short!r} is not a predicate over one row: {reason}. Use columns, literals, comparisons, AND, OR, "
        "NOT, IN, BETWEEN, LIKE, CASE, CAST and plain row functions. Nothing was spent."
    )
