"""The law of reading: read(build(records))[i] == read(build([records[i]]))[0], for every builder and every consumer.

Tables are rebuilt from raw records, never sliced: a slice keeps the type that the container chose for all of them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from contracts._records import BUILDERS, CELLS, NAMES, Record, Unbuildable
from dplangevin.cli import _io
from dplangevin.cli._io import PublicTableOptions
from dplangevin.cli.sample import _read_records as _sample_records
from dplangevin.estimators import DPLogisticRegression, DPRidge, SchemaEncoder
from dplangevin.estimators._held_out import open_held_out
from dplangevin.estimators._scoring import Scoring
from dplangevin.queries import Marginals, column
from dplangevin.queries.row_queries import SqlCounter, _evaluate_rowwise
from dplangevin.rashomon.estimator_adapter import EstimatorAdapter
from dplangevin.schema import Schema
from dplangevin.tables import Table, as_column, as_matrix, read_label, read_number

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "number": {"range": [0, 3]},
            "kind": {"categories": ["1", "2", "a"], "other": "own"},
            "zip": {"categories": ["02139", "2139"], "as": "text", "missing": "never"},
        },
        "target": {"name": "label", "classes": ["0", "1"]},
    }
)
QUERIES = [
    "number > 0.5",
    "kind = '1'",
    "zip = '02139'",
    "cast(kind as int) > 0",
    "kind is null",
    "length(zip) > 4",
]
records = st.lists(st.tuples(*[st.sampled_from(CELLS)] * 4), min_size=1, max_size=4)
lawful = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate],
)


class Fixed(DPLogisticRegression):
    """Fitted coefficients, so that predictions can be compared."""

    def ready(self) -> Fixed:
        columns = 9 if self.schema is not None else 3
        self.coef_, self.intercept_ = np.arange(1.0, columns + 1)[None], np.zeros(1)
        self.classes_, self.slope_clip_, self.n_features_in_ = np.array(["0", "1"]), 1.0, 3
        return self


def features(table: Table) -> Table:
    return table.drop_columns("label")


def encoded_labels(table: Table) -> Any:
    encode = DPLogisticRegression(classes=[0, 1], data_norm=1.0).target_encoder()
    return encode(table.column("label"))


def regression_targets(table: Table) -> Any:
    encode = DPRidge(schema=SCHEMA, target_bounds=(0, 1)).target_encoder()
    return encode(table.column("label"))


def scored(table: Table) -> Any:
    """One row of sums for each record: what it adds to a score, and to the choice between two models."""
    total = [Fixed(schema=SCHEMA).ready(), Fixed(data_norm=1.0).ready()]
    rows = [table.slice(slice(i, i + 1)) for i in range(len(table))]  # sums are over records already read
    out = []
    for row in rows:
        held = open_held_out(features(row), row.column("label"))
        sums = [
            Scoring(metric=m, adjacency="replace-one").exact_sums(total[0], held) for m in ("accuracy", "auc")
        ]
        chosen = Scoring(metric="log-loss", adjacency="replace-one").exact_totals(total, held)
        out.append(np.concatenate([*(np.ravel(s) for group in sums for s in group), np.ravel(chosen)]))
    return np.array(out)


def counted_cells(table: Table) -> Any:
    axes = Marginals.from_schema(SCHEMA, ways=1).axes
    return np.column_stack([axis.codes(table) for axis in axes.values()])


def built_queries(table: Table) -> Any:
    asked = [
        column("number") >= 1,
        column("kind") == 1,
        column("kind").is_in(["a", True]),
        column("zip").is_missing(),
        column("zip") != "2139",
    ]
    return np.column_stack([query.evaluate(table) for query in asked])


def sql(table: Table) -> Any:
    with SqlCounter(table.names, SCHEMA) as engine:
        written = [engine.check_predicate(text) for text in QUERIES]
        return np.array([engine.count(table.slice(slice(i, i + 1)), written) for i in range(len(table))])


def row_functions(table: Table) -> Any:
    def function(row: dict[str, Any]) -> float:
        return isinstance(row["number"], float) + 0.5 * (row["kind"] == "a")

    return np.array([_evaluate_rowwise(function, table.slice(slice(i, i + 1))) for i in range(len(table))])


def rashomon(table: Table) -> Any:
    template = EstimatorAdapter(DPLogisticRegression(schema=SCHEMA), 1.0, 0.01, ledger=None, owner=None)
    rows, targets, encode = template.read_records(features(table), table.column("label"))
    return np.column_stack([rows, encode(targets)])


def sample_command(table: Table) -> Any:
    """What `dplangevin sample` draws from: its features and labels."""
    with (
        mock.patch.object(_io, "read_table", return_value=table),
        mock.patch.object(Schema, "load", return_value=SCHEMA),
    ):
        rows, labels = _sample_records(Path("t"), "label", "logistic", PublicTableOptions(schema=Path("s")))
    return np.column_stack([rows, labels])


def fit_command(table: Table) -> Any:
    """What `dplangevin fit` fits."""
    model = DPLogisticRegression(schema=SCHEMA)
    rows, targets, _ = model.read_records(*_io.split_target(table, "label"))
    return np.column_stack([rows, model.target_encoder(targets)(targets)])


CONSUMERS = {
    "fit: features": lambda t: SchemaEncoder(SCHEMA).transform(features(t)),
    "fit: features without a schema": lambda t: features(t).to_matrix(),
    "fit: labels": encoded_labels,
    "fit: targets": regression_targets,
    "fit: weights": lambda t: t.column("number").numbers(),
    "predict": lambda t: Fixed(schema=SCHEMA).ready().predict_proba(t).round(9),
    "predict without a schema": lambda t: (
        Fixed(data_norm=1.0, bad_rows="zero").ready().predict_proba(features(t))
    ),
    "private_score and private_selection": scored,
    "count_marginals": counted_cells,
    "count_queries": built_queries,
    "functions of a row": row_functions,
    "SQL": sql,
    "rashomon": rashomon,
    "dplangevin sample": sample_command,
    "dplangevin fit": fit_command,
    "labels": lambda t: np.column_stack([t.column(name).texts() for name in NAMES]),
    "texts": lambda t: np.column_stack([t.column(name).texts(text=True) for name in NAMES]),
}


WRITTEN = ("csv", "dask", "raw_csv")  # as texts, by the container itself
SLOW = ("SQL", "private_score and private_selection")


def read(build: Any, rows: list[Record], folder: Path, consumers: Any) -> dict[str, Any] | None:
    """What every consumer reads; neither an error nor a warning, whatever the records are."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the container, before there is a table
            tables = parts_of(build(rows, NAMES, folder))
    except Unbuildable:
        return None
    assert sum(len(table) for table in tables) == len(rows)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = {
            name: np.concatenate([np.asarray(CONSUMERS[name](table)) for table in tables])
            for name in consumers
        }
    assert not told, [str(one.message) for one in told]
    assert all(len(values) == len(rows) for values in found.values())
    return found


def parts_of(built: Any) -> list[Table]:
    """A table, or the partitions of one."""
    return built if isinstance(built, list) else [built]


def same(first: Any, second: Any) -> bool:
    if first.dtype == object:
        return list(np.ravel(first)) == list(np.ravel(second))
    return bool(np.array_equal(first, second, equal_nan=True))


def check_law(builder: str, consumers: Any, examples: int, folder: Path) -> None:
    @settings(lawful, max_examples=examples)
    @given(records)
    def law(rows: list[Record]) -> None:
        together = read(BUILDERS[builder], rows, folder, consumers)
        if together is None:
            return
        for i, record in enumerate(rows):
            alone = read(BUILDERS[builder], [record], folder, consumers)
            for name in together if alone is not None else ():
                assert same(together[name][i : i + 1], alone[name]), (builder, name, i)

    law()


@pytest.mark.parametrize("builder", BUILDERS)
def test_every_record_is_read_alone(builder: str, tmp_path: Path) -> None:
    check_law(
        builder, [name for name in CONSUMERS if name not in SLOW], 6 if builder == "dask" else 25, tmp_path
    )


@pytest.mark.parametrize("builder", ["pandas", "raw_csv"])
def test_every_record_is_counted_and_scored_alone(builder: str, tmp_path: Path) -> None:
    check_law(builder, SLOW, 4, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("builder", BUILDERS)
def test_every_record_is_read_alone_by_everyone(builder: str, tmp_path: Path) -> None:
    check_law(builder, CONSUMERS, 100 if builder == "dask" else 300, tmp_path)


@pytest.mark.parametrize("builder", BUILDERS)
def test_replacing_one_record_changes_one_row(builder: str, tmp_path: Path) -> None:
    """Ordinary records, one of them replaced by every adversarial cell in every column."""
    plain: list[Record] = [(1, 1, "02139", 1), (2, 2, "2139", 0), (0, 1, "02139", 1)]
    consumers = ("fit: features", "fit: labels", "count_marginals")
    before = read(BUILDERS[builder], plain, tmp_path, consumers)
    assert before is not None
    for place in range(4):
        for cell in CELLS[:: 9 if builder == "dask" else 1 + (place > 1)]:  # partitions take long
            changed = [plain[0], tuple(cell if j == place else c for j, c in enumerate(plain[1])), plain[2]]
            after = read(BUILDERS[builder], changed, tmp_path, consumers)
            for name in after or ():
                assert same(before[name][[0, 2]], after[name][[0, 2]]), (builder, name, place)


@pytest.mark.parametrize("builder", [name for name in BUILDERS if name not in WRITTEN])
def test_fast_paths_agree_with_the_law_of_one_cell(builder: str, tmp_path: Path) -> None:
    """Containers that hold a cell as it is: the column's reading is cells.number and cells.label."""

    @settings(lawful, max_examples=50)
    @given(st.lists(st.sampled_from(CELLS), min_size=1, max_size=3))
    def law(cells: list[Any]) -> None:
        try:
            with warnings.catch_warnings(action="ignore"):
                tables = parts_of(BUILDERS[builder]([(cell,) for cell in cells], ("x",), tmp_path))
        except Unbuildable:
            return
        columns = [table.column("x") for table in tables]
        numbers = np.concatenate([column.numbers() for column in columns])
        np.testing.assert_array_equal(numbers, [read_number(cell) for cell in cells])
        for text in (False, True):
            texts = [word for column in columns for word in column.texts(text=text)]
            assert texts == [read_label(cell, text=text) for cell in cells]

    law()


@given(st.lists(st.floats() | st.integers() | st.booleans() | st.text(max_size=4), min_size=1, max_size=5))
@settings(lawful, max_examples=50)
def test_numbers_and_texts_of_any_kind(cells: list[Any]) -> None:
    expected = [read_number(cell) for cell in cells]
    for given_cells in (cells, np.array(cells, dtype=object)):
        np.testing.assert_array_equal(as_column(given_cells, "x").numbers(), expected)
    np.testing.assert_array_equal(np.ravel(as_matrix([[cell] for cell in cells])), expected)
