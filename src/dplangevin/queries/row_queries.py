"""Queries over a table: each gives one value in [0, 1] per row, from that row alone; SQL predicates too.

A count has sensitivity 1 only if the predicate reads one row and cannot fail: a subquery, an aggregate, a window or a
row number would let one record change the answers of others, and an error raised by one record would reveal it. So
only column names, literals and listed operators and functions are accepted; every cast becomes TRY_CAST; and the text
that runs is regenerated from the checked tree. Types come from the schema, cells are parsed before DuckDB reads them,
and optimizers that rewrite expressions with statistics of the data, or move them out of the TRY, are disabled.

Predicates built in Python are functions of one row by construction:

>>> adult = column("age") >= 18
>>> query = adult & column("job").is_in(["nurse", "teacher"]) & ~column("gain").is_missing()
"""

from __future__ import annotations

import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin.errors import InvalidParameter
from dplangevin.schema.columns import Column, DateColumn, HashedColumn, NumericColumn
from dplangevin.schema.schema import Schema
from dplangevin.tables import MISSING, CellColumn, Table, label_indices, read_label, read_number
from dplangevin.tables.cells import DateReading
from dplangevin.tables.columns import DerivedColumn

MAX_PREDICATE_LENGTH = 20_000
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
EXPRESSION_CLASSES = frozenset(
    {"CONSTANT", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "BETWEEN", "CASE", "TYPE"}
)
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
_REGULAR_EXPRESSION_FUNCTIONS = ("regexp_full_match", "regexp_matches")


def check_sql_predicate(text: str, columns: Iterable[str], connection: Any) -> str:
    """Return the checked predicate as DuckDB writes it; raise InvalidParameter before any charge otherwise."""
    if not isinstance(text, str) or not text.strip():
        raise InvalidParameter(f'a predicate must be a SQL text such as "age >= 30", got {text!r}.')
    if len(text) > MAX_PREDICATE_LENGTH:
        raise InvalidParameter(
            f"the predicate has {len(text)} characters; the maximum is {MAX_PREDICATE_LENGTH}."
        )
    try:
        statement = _parse_predicate(text, connection)
        _check_shape(statement, text, connection)
        expression = statement["node"]["select_list"][0]
        expression["alias"] = ""
        _check_node(expression, {name.lower() for name in columns}, text)
    except RecursionError:
        raise InvalidParameter("the predicate is nested too deeply; split it.") from None
    document = json.dumps({"error": False, "statements": [statement]})
    (checked,) = connection.execute("SELECT json_deserialize_sql(CAST(? AS JSON))", [document]).fetchone()
    return str(checked).removeprefix("SELECT ").strip().rstrip(";")


def _parse_predicate(text: str, connection: Any) -> dict[str, Any]:
    (answer,) = connection.execute(
        "SELECT json_serialize_sql(CAST(? AS VARCHAR))", [f"SELECT {text}"]
    ).fetchone()
    tree = json.loads(answer)
    if tree.get("error"):
        raise _refusal(text, f"it does not parse: {tree.get('error_message', 'syntax error')}")
    if len(tree["statements"]) != 1:
        raise _refusal(text, "it contains more than one statement")
    return dict(tree["statements"][0])


def _check_shape(statement: dict[str, Any], text: str, connection: Any) -> None:
    """Check that everything around the single expression is as in `SELECT 1`: no FROM, WHERE, GROUP BY, CTE, ..."""
    reference = _parse_predicate("1", connection)
    expressions = statement["node"].get("select_list") or []
    if len(expressions) != 1 or _statement_frame(statement) != _statement_frame(reference):
        raise _refusal(text, "it is more than one expression over a row (no FROM, WHERE, commas or clauses)")


def _statement_frame(statement: Mapping[str, Any]) -> Any:
    node = {key: value for key, value in statement["node"].items() if key != "select_list"}
    return _drop_positions({**statement, "node": node})


def _drop_positions(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _drop_positions(v) for k, v in value.items() if not k.startswith("query_location")}
    return [_drop_positions(item) for item in value] if isinstance(value, list) else value


def _check_node(node: Any, columns: set[str], text: str) -> None:
    for expression in _iterate_expressions(node):
        kind = expression.get("class")
        if kind == "FUNCTION":
            _check_function(expression, text)
        elif kind == "CAST":
            _check_cast(expression, text)
        elif kind == "COLUMN_REF":
            names = expression.get("column_names", [])
            if len(names) != 1 or str(names[0]).lower() not in columns:
                raise _refusal(text, f"{'.'.join(map(str, names))!r} is not a column of the table")
        elif kind == "OPERATOR":
            if expression.get("type") not in OPERATORS:
                raise _refusal(text, f"the operator {expression.get('type')} is not on the list")
        elif kind not in EXPRESSION_CLASSES:
            raise _refusal(
                text,
                f"{_NODE_NAMES.get(str(kind), str(kind).lower())} read more than one row or are unsafe",
            )


_NODE_NAMES = {
    "SUBQUERY": "subqueries",
    "WINDOW": "windows",
    "STAR": "stars",
    "LAMBDA": "lambdas",
    "COLLATE": "collations",
}


def _iterate_expressions(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every expression of the tree, in whatever field it is."""
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
        raise _refusal(text, f"the function {name} is not on the list of row-wise functions")
    orders = (expression.get("order_bys") or {}).get("orders")
    if expression.get("filter") or expression.get("distinct") or expression.get("export_state") or orders:
        raise _refusal(text, f"{name} is used as an aggregate")
    arguments = expression.get("arguments", expression.get("children", []))
    plain = [argument.get("expression", argument) for argument in arguments]
    if any(argument.get("name") for argument in arguments if "expression" in argument):
        raise _refusal(text, f"{name} has named arguments")
    if name in _REGULAR_EXPRESSION_FUNCTIONS and any(
        argument.get("class") != "CONSTANT" for argument in plain[1:]
    ):
        raise _refusal(text, "the pattern of a regular expression must be a literal")


def _check_cast(expression: dict[str, Any], text: str) -> None:
    target_type = expression.get("type_expr") or expression.get("cast_type") or {}
    name = str(target_type.get("type_name", target_type.get("id", "")))
    if name.upper() not in TYPES:
        raise _refusal(text, f"a cast to {name or 'this type'} is not on the list")
    expression["try_cast"] = True


def _refusal(text: str, reason: str) -> InvalidParameter:
    short = text if len(text) <= 80 else text[:77] + "..."
    return InvalidParameter(
        f"the SQL {short!r} is not a predicate over one row: {reason}. Use columns, literals, comparisons, AND, OR, "
        "NOT, IN, BETWEEN, LIKE, CASE, CAST and plain row functions. Nothing was charged."
    )


def import_optional(module: str, what: str) -> Any:
    """Import an optional package, or raise an error that names the extra to install; `what` needs it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise InvalidParameter(
            f'{what} needs the package {package}; install it with: pip install "dplangevin[queries]".'
        ) from None


_ALLOWED_OPTIMIZERS = ("unused_columns", "column_lifetime")
_MAX_PREDICATES_PER_QUERY = 500


class SqlCounter:
    """Counts checked predicates in a private in-memory DuckDB, with bounded memory and without access to files.

    Numeric columns, and categories that are all numbers, are DOUBLE; truth values are BOOLEAN; dates are TIMESTAMP (in
    whole seconds, UTC where the cell has a zone); all others are VARCHAR,
    where a listed category is written as in the schema and any other cell as its label.

    Parameters
    ----------
    names : the columns of the table. schema : gives each column its type; required.
    memory : DuckDB's memory limit. threads : its number of threads; None takes its default.
    """

    def __init__(
        self,
        names: Sequence[str],
        schema: Schema | None,
        *,
        memory: str = "1GB",
        threads: int | None = None,
    ) -> None:
        if schema is None:
            raise InvalidParameter(
                "SQL predicates need a schema: the type of a column must not be guessed from private values. Give "
                "schema=..., or build the query with column(...)."
            )
        schema.validate(names)
        target = [schema.target] if schema.target is not None and schema.target.name in names else []
        self._columns: list[Column] = [*schema.columns, *target]
        duckdb, self._arrow = (
            import_optional("duckdb", "SQL predicates"),
            import_optional("pyarrow", "SQL predicates"),
        )
        self._errors = duckdb.Error
        settings: dict[str, Any] = {} if threads is None else {"threads": int(threads)}
        self._link = duckdb.connect(":memory:", config=settings)
        try:
            self._link.execute(f"SET memory_limit = {_to_text(memory)}")
            self._link.execute("SET enable_external_access = false")
            optimizers = self._link.execute("SELECT name FROM duckdb_optimizers()").fetchall()
            disabled = ",".join(name for (name,) in optimizers if name not in _ALLOWED_OPTIMIZERS)
            self._link.execute(f"SET disabled_optimizers = {_to_text(disabled)}")
            self._link.execute("SET lock_configuration = true")
        except duckdb.Error as error:
            self._link.close()
            raise InvalidParameter(f"DuckDB cannot be used: {str(error).splitlines()[0]}.") from None
        empty = np.empty(0, dtype=object)
        self._register({column.name: _to_arrow(self._arrow, column, empty) for column in self._columns})

    def __enter__(self) -> SqlCounter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._link.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that predicates may use."""
        return tuple(column.name for column in self._columns)

    def check_predicate(self, text: str) -> str:
        """Check a predicate on its parse tree and on the types of the columns, and return it as DuckDB writes it."""
        try:
            predicate = check_sql_predicate(text, self.names, self._link)
            (row,) = self._link.execute(f"DESCRIBE SELECT {predicate} AS answer FROM data").fetchall()
        except self._errors as error:
            reason = str(error).splitlines()[0]
            raise InvalidParameter(f"the SQL {text!r} is refused: {reason}. Nothing was charged.") from None
        if row[1] != "BOOLEAN":
            raise InvalidParameter(
                f"the SQL {text!r} is {row[1]}, not true or false; compare it with a value."
            )
        return predicate

    def count(self, table: Table, predicates: Sequence[str]) -> NDArray[np.int64]:
        """Return exact counts of checked predicates over a table; a predicate that fails on a row is false there."""
        self._register_rows(table)
        all_counts: list[int] = []
        for start in range(0, len(predicates), _MAX_PREDICATES_PER_QUERY):
            batch = predicates[start : start + _MAX_PREDICATES_PER_QUERY]
            counts = ", ".join(f"count(*) FILTER (WHERE coalesce(TRY({text}), false))" for text in batch)
            all_counts += self._run_quietly(partial(self._fetch_row, f"SELECT {counts} FROM data"))
        return np.asarray(all_counts, np.int64)

    def evaluate(self, table: Table, predicates: Sequence[str]) -> NDArray[np.bool_]:
        """Return which rows satisfy which predicates, [rows, predicates], as `count` counts them."""
        self._register_rows(table)
        satisfied = np.zeros((len(table), len(predicates)), bool)
        for start in range(0, len(predicates), _MAX_PREDICATES_PER_QUERY):
            batch = predicates[start : start + _MAX_PREDICATES_PER_QUERY]
            answers = ", ".join(f"coalesce(TRY({text}), false) AS a{i}" for i, text in enumerate(batch))
            columns = self._run_quietly(partial(self._fetch_columns, f"SELECT {answers} FROM data"))
            for i in range(len(batch)):
                satisfied[:, start + i] = columns[f"a{i}"]
        return satisfied

    def _register_rows(self, table: Table) -> None:
        """Register the rows with DuckDB, typed by the schema."""
        self._register(
            {
                column.name: _to_arrow(self._arrow, column, _typed_values(column, table.column(column.name)))
                for column in self._columns
            }
        )

    def _register(self, columns: dict[str, Any]) -> None:
        self._link.register("data", self._arrow.table(columns))

    def _fetch_row(self, query: str) -> tuple[int, ...]:
        return tuple(self._link.execute(query).fetchall()[0])  # all: an open result would lock the connection

    def _fetch_columns(self, query: str) -> Any:
        return self._link.execute(query).fetchnumpy()

    def _run_quietly(self, work: Callable[[], Any]) -> Any:
        """Run a query; errors of the engine may quote values of records, so their text is dropped."""
        try:
            return work()
        except self._errors as error:
            raise InvalidParameter(
                f"the table could not be read ({type(error).__name__}); nothing was released. Check the file by hand."
            ) from None


def _typed_values(column: Column, cells: CellColumn) -> NDArray[Any]:
    """Return the cells typed by the schema; NaN or None where a cell is missing."""
    if isinstance(column, DateColumn):
        days = DerivedColumn(cells, DateReading(part="trend", date_format=column.date_format)).numbers()
        with np.errstate(invalid="ignore"):
            return np.asarray(np.rint(days * 86400), "datetime64[s]")
    if isinstance(column, HashedColumn):
        return cells.texts(text=column.text)
    if isinstance(column, NumericColumn) or column.is_numeric:
        return np.asarray(cells.numbers(), np.float64)
    if column.is_boolean:
        return _to_booleans(np.asarray(cells.numbers()))
    text_by_label = {label: str(column.categories[code]) for label, code in column.category_codes.items()}
    return cells.texts(text_by_label, text=column.text)


def _to_booleans(numbers: NDArray[Any]) -> NDArray[Any]:
    booleans = np.full(len(numbers), None, dtype=object)
    booleans[numbers == 1], booleans[numbers == 0] = True, False
    return booleans


def _to_arrow(pa: Any, column: Column, values: NDArray[Any]) -> Any:
    if isinstance(column, DateColumn):
        return pa.array(np.asarray(values, "datetime64[s]"), pa.timestamp("s"))
    if isinstance(column, HashedColumn):
        return pa.array(values, pa.string())
    if isinstance(column, NumericColumn) or column.is_numeric:
        return pa.array(values, pa.float64(), from_pandas=True)
    return pa.array(values, pa.bool_() if column.is_boolean else pa.string())


def _to_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


Booleans = NDArray[np.bool_]
Counts = NDArray[np.float64]
MAX_CELLS_AT_ONCE = 2**20
"""Answers in memory at a time where the counts that a row touches are limited."""


class Predicate(ABC):
    """A condition that is true or false for each row on its own; a comparison with a missing value is false.

    Subclasses outside this module are refused: they could read several rows, or count a row twice.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        if cls.__module__ != __name__:
            raise TypeError(
                "predicates are built with column(...); for anything else pass a function of one row."
            )
        super().__init_subclass__(**keywords)

    @abstractmethod
    def evaluate(self, table: Table) -> Booleans:
        """Return which of the rows satisfy the predicate."""

    @abstractmethod
    def columns(self) -> frozenset[str]:
        """Return the columns that the predicate reads."""

    def __and__(self, other: Predicate) -> Predicate:
        return _BinaryPredicate(left=self, right=_check_predicate(other), both=True)

    def __or__(self, other: Predicate) -> Predicate:
        return _BinaryPredicate(left=self, right=_check_predicate(other), both=False)

    def __invert__(self) -> Predicate:
        return _NegatedPredicate(inner=self)

    def __bool__(self) -> bool:
        raise InvalidParameter("combine predicates with &, | and ~ (and parentheses), not with and, or, not.")


@dataclass(frozen=True, kw_only=True)
class _BinaryPredicate(Predicate):
    left: Predicate
    right: Predicate
    both: bool

    def evaluate(self, table: Table) -> Booleans:
        first, second = self.left.evaluate(table), self.right.evaluate(table)
        return first & second if self.both else first | second

    def columns(self) -> frozenset[str]:
        return self.left.columns() | self.right.columns()


@dataclass(frozen=True, kw_only=True)
class _NegatedPredicate(Predicate):
    inner: Predicate

    def evaluate(self, table: Table) -> Booleans:
        return ~self.inner.evaluate(table)

    def columns(self) -> frozenset[str]:
        return self.inner.columns()


@dataclass(frozen=True, eq=False)
class _ColumnPredicate(Predicate):
    name: str

    def columns(self) -> frozenset[str]:
        return frozenset({self.name})


@dataclass(frozen=True, eq=False)
class _ComparisonPredicate(_ColumnPredicate):
    compare: Callable[[Any, Any], Any]
    limit: float

    def evaluate(self, table: Table) -> Booleans:
        return np.asarray(self.compare(table.column(self.name).numbers(), self.limit), bool)


@dataclass(frozen=True, eq=False)
class _MembershipPredicate(_ColumnPredicate):
    label_codes: Mapping[str, int]

    def evaluate(self, table: Table) -> Booleans:
        return np.asarray(table.column(self.name).codes(self.label_codes) >= 0)


class _MissingPredicate(_ColumnPredicate):
    def evaluate(self, table: Table) -> Booleans:
        return np.asarray(table.column(self.name).codes({}) == MISSING)


@dataclass(frozen=True, eq=False)
class ColumnReference:
    """A column by name; comparisons with it are predicates."""

    name: str

    def _compare(self, value: Any, compare: Callable[[Any, Any], Any]) -> Predicate:
        if isinstance(value, bool) or not isinstance(value, Real | Decimal) or value != value:
            raise InvalidParameter(
                f"column {self.name!r} can be ordered against a number only, got {value!r}."
            )
        return _ComparisonPredicate(self.name, compare, read_number(value))

    def __lt__(self, value: float) -> Predicate:
        return self._compare(value, np.less)

    def __le__(self, value: float) -> Predicate:
        return self._compare(value, np.less_equal)

    def __gt__(self, value: float) -> Predicate:
        return self._compare(value, np.greater)

    def __ge__(self, value: float) -> Predicate:
        return self._compare(value, np.greater_equal)

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return self.is_in([value])

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return ~self.is_in([value]) & ~self.is_missing()

    def between(self, low: float, high: float) -> Predicate:
        """Return the predicate low <= value <= high."""
        return (self >= low) & (self <= high)

    def is_in(self, values: Sequence[object]) -> Predicate:
        """Return the predicate that the value is one of these, compared by labels: 1, 1.0 and "1" are equal."""
        listed: list[object] = []
        if not isinstance(values, str | bytes):
            listed = [value.item() if isinstance(value, np.generic) else value for value in values]
        if not listed or any(read_label(value) is None for value in listed):
            raise InvalidParameter(
                f"is_in needs a non-empty list without missing values (None, NaN, '', 'nan', lists), got {values!r}."
            )
        return _MembershipPredicate(self.name, label_indices(listed))

    def is_missing(self) -> Predicate:
        """Return the predicate that the value is missing."""
        return _MissingPredicate(self.name)


def column(name: str) -> ColumnReference:
    """Return a reference to a column of the table, for predicates."""
    return ColumnReference(name)


def _check_predicate(value: object) -> Predicate:
    if not isinstance(value, Predicate):
        raise InvalidParameter(f"& and | combine predicates; got {value!r}. Put comparisons in parentheses.")
    return value


@dataclass(frozen=True, kw_only=True, eq=False)
class RowQueries:
    """Checked queries over one table.

    predicates : the checked SQL texts, by the index of their query.
    """

    names: tuple[str, ...]
    queries: tuple[Any, ...]
    table: Table
    sql: SqlCounter | None
    predicates: Mapping[int, str]

    @classmethod
    def from_queries(
        cls, queries: Mapping[str, Any] | Sequence[Any], table: Table, schema: Schema | None
    ) -> RowQueries:
        """Check every query without reading a value of the table."""
        if isinstance(queries, str) or not isinstance(queries, (Mapping, Sequence)):
            raise InvalidParameter(
                f"queries must be a list or a mapping of named queries, got {type(queries).__name__}."
            )
        named = dict(queries) if isinstance(queries, Mapping) else _number_queries(queries)
        if not named:
            raise InvalidParameter("the list of queries is empty; give at least one.")
        if schema is not None:
            schema.validate(table.names)
        texts = {i: query for i, query in enumerate(named.values()) if isinstance(query, str)}
        sql = SqlCounter(table.names, schema) if texts else None
        predicates = {i: sql.check_predicate(text) for i, text in texts.items()} if sql is not None else {}
        checked = tuple(_check_query(name, query, table) for name, query in named.items())
        return cls(names=tuple(named), queries=checked, table=table, sql=sql, predicates=predicates)

    def count(self, grid: float | None = None, touched: int | None = None) -> Counts:
        """Return exact counts (private); with a grid, a power of two up to 1, round every row's value to it first.

        Sums of multiples of the grid are then exact, in any order of the rows. Of a row that satisfies more queries
        than `touched` only the first so many count, as the noise was calibrated for.
        """
        totals = np.zeros(len(self.names))
        if touched is not None and touched < len(self.names):
            step = max(1, MAX_CELLS_AT_ONCE // len(self.names))
            for start in range(0, len(self.table), step):
                values = _clip_answers(self._evaluate_rows(slice(start, start + step)), grid)
                totals += np.where(np.cumsum(values != 0, axis=1) <= touched, values, 0.0).sum(axis=0)
            return totals
        for i, query in enumerate(self.queries):
            if isinstance(query, np.ndarray):
                totals[i] = _clip_answers(query, grid).sum()
        for block in self.table.blocks():
            if self.sql is not None:
                totals[list(self.predicates)] += self.sql.count(block, list(self.predicates.values()))
            for i, query in enumerate(self.queries):
                if isinstance(query, Predicate):
                    totals[i] += int(query.evaluate(block).sum())
                elif callable(query):
                    totals[i] += _clip_answers(_evaluate_rowwise(query, block), grid).sum()
        return totals

    def _evaluate_rows(self, rows: slice) -> Counts:
        """Return the values of all queries for some rows, [rows, queries]."""
        part = self.table.slice(rows)
        values = np.zeros((len(part), len(self.names)))
        if self.sql is not None:
            values[:, list(self.predicates)] = self.sql.evaluate(part, list(self.predicates.values()))
        for i, query in enumerate(self.queries):
            if isinstance(query, np.ndarray):
                values[:, i] = query[rows]
            elif isinstance(query, Predicate):
                values[:, i] = query.evaluate(part)
            elif callable(query):
                values[:, i] = _evaluate_rowwise(query, part)
        return values


def _evaluate_rowwise(query: Callable[[dict[str, Any]], Any], table: Table) -> Counts:
    """Apply a function to rows of plain cells (numbers, texts, None); its warnings could reveal a row, so none show."""
    columns = [table.column(name).plain_values() for name in table.names]
    rows = (dict(zip(table.names, row, strict=True)) for row in zip(*columns, strict=True))
    with warnings.catch_warnings(action="ignore"):
        return np.array([_answer_row(query, row) for row in rows], float)


def _number_queries(queries: Sequence[Any]) -> dict[str, Any]:
    names = [query if isinstance(query, str) else f"query {i + 1}" for i, query in enumerate(queries)]
    if len(set(names)) < len(names):
        raise InvalidParameter("the list of queries contains one twice; list each once.")
    return dict(zip(names, queries, strict=True))


def _check_query(name: str, query: Any, table: Table) -> Any:
    if isinstance(query, Predicate):
        for column in query.columns():
            table.column(column)
        return query
    if isinstance(query, str) or (callable(query) and not hasattr(query, "__array__")):
        return query
    values = np.asarray(query)
    if values.ndim != 1 or values.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"query {name!r} must be a predicate, a SQL text, a function of one row, or one number per row; "
            f"got {type(query).__name__}."
        )
    if values.size != table.n_rows:
        raise InvalidParameter(f"query {name!r} has {values.size} values for a table of {table.n_rows} rows.")
    return np.asarray(values, float)


def _answer_row(query: Callable[[dict[str, Any]], Any], row: dict[str, Any]) -> float:
    """Return the query's value, or 0 where the query raises: an error would reveal something about the row."""
    try:
        return float(query(row))
    except KeyboardInterrupt:  # comes from the user, not from the row
        raise
    except BaseException:
        return 0.0


def _clip_answers(values: NDArray[Any], grid: float | None) -> NDArray[Any]:
    """Clip answers to [0, 1] silently, since an error would reveal something about a row; round them to the grid."""
    answers = np.asarray(np.clip(np.nan_to_num(np.asarray(values, float), nan=0.0), 0.0, 1.0))
    return answers if grid is None else np.asarray(np.rint(answers / grid) * grid)
