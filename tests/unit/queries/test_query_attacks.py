"""One row moves no count by more than it was stated to, and does not show itself beside the counts."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from dplangevin.errors import InvalidParameter
from dplangevin.queries import Marginals, Predicate, column
from dplangevin.queries.marginals import Axis
from dplangevin.queries.row_queries import RowQueries
from dplangevin.schema import Schema
from dplangevin.tables import as_table

pd = pytest.importorskip("pandas")

FRAME = pd.DataFrame({"x": [0.0, 1.0, 2.0, -1.0], "job": ["nurse", "u", None, "x"]})
SCHEMA = Schema.from_dict({"columns": {"x": {"range": [-9, 9]}, "job": {"categories": ["nurse", "u"]}}})
ASKED: dict[str, Any] = {
    "sql": "x > -5",
    "predicate": column("x") > 0,
    "array": np.array([0.5, 0.5, 0.0, 0.0]),
    "function": lambda row: 1.0,
}


@pytest.mark.parametrize(
    ("touched", "expected"),
    [(1, [4, 0, 0, 0]), (2, [4, 2, 0.5, 1]), (3, [4, 2, 1, 3]), (4, [4, 2, 1, 4]), (None, [4, 2, 1, 4])],
)
def test_a_row_counts_in_as_many_queries_as_stated(touched: int | None, expected: list[float]) -> None:
    """The noise is made for so many; rows that satisfy more would have more influence than the guarantee says."""
    pytest.importorskip("duckdb")
    asked = RowQueries.from_queries(ASKED, as_table(FRAME), SCHEMA)
    with asked.sql or nullcontext():
        np.testing.assert_array_equal(asked.count(None, touched), expected)


def test_no_class_of_ones_own_is_a_predicate() -> None:
    """It could answer 100 for a row, or look at all of them."""
    with pytest.raises(TypeError, match="function of one row"):
        type("Own", (Predicate,), {})


def test_no_class_of_ones_own_makes_marginals() -> None:
    """It could count what it likes; an axis could put a row in a cell that depends on the others."""
    own = type("Own", (Marginals,), {"count": lambda self, tables: 10**6 + self.empty_counts()})
    with pytest.raises(InvalidParameter, match=r"Marginals\.from_schema"):
        own.from_schema(SCHEMA)
    axes: Any = {"x": type("OwnAxis", (Axis,), {"labels": ("a",), "codes": lambda self, table: 0})()}
    with pytest.raises(InvalidParameter, match=r"Marginals\.from_schema"):
        Marginals(sets=(("x",),), axes=axes)
    assert Marginals.from_schema(SCHEMA).size > 0


def _leaves(row: Any) -> float:
    raise SystemExit(f"SECRET {row}")


@pytest.mark.parametrize("query", [lambda row: np.log(row["x"]) > 0, lambda row: np.complex128(1j), _leaves])
def test_what_a_row_does_to_a_function_is_not_seen(query: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert 0 <= RowQueries.from_queries([query], as_table(FRAME), None).count()[0] <= 1


@pytest.mark.parametrize("values", ["nurse", [[1, 2]], [""], ["nan"], [None], [np.nan], [], b"nurse"])
def test_a_list_that_no_cell_can_match_is_refused(values: Any) -> None:
    """is_in("nurse") looked for the letters n, u, r, s and e."""
    with pytest.raises(InvalidParameter, match="non-empty list"):
        column("job").is_in(values)


@pytest.mark.parametrize("value", [1j, b"a", float("nan"), True, "1", None])
def test_only_numbers_are_ordered(value: Any) -> None:
    with pytest.raises(InvalidParameter, match="a number only"):
        column("x") < value  # noqa: B015
