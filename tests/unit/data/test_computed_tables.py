"""Tables that others compute (queries, lazy frames), dictionaries and tensors: the same bits as from a Parquet file."""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dplangevin import DPAdditiveClassifier, DPLogisticRegression, Ledger, Schema, private_score
from dplangevin.cli.main import run_command_line
from dplangevin.errors import InvalidParameter
from dplangevin.queries import count_file, count_marginals
from dplangevin.tables import CellColumn, TableFiles, TableQuery, as_table, lazy as reader, open_files
from dplangevin.tables.lazy import query_condition
from fuzz import _matrix as matrix
from unit import _postgres
from unit._proxy import Proxy

N = 600
SCHEMA = {
    "columns": {
        "age": {"range": [18, 90]},
        "job": {"categories": ["a", "b"]},
        "code": {"categories": ["007", "7"], "as": "text"},
        "fee": {"range": [0, 5]},
        "half": {"range": [0, 1]},
        "day": {"categories": ["2020-01-01", "2020-01-02"]},
        "new": {"categories": [False, True]},
    },
    "target": {"name": "y", "classes": [0, 1]},
}
KINDS = {
    "age": "FLOAT8", "job": "TEXT", "code": "TEXT", "fee": "NUMERIC(30, 20)", "half": "REAL", "day": "DATE",
    "new": "BOOLEAN", "y": "INTEGER",
}  # fmt: skip


def records() -> list[tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None]
    return [
        (
            float(rng.uniform(10, 95)),
            [None, "a", "b", "c'd"][rng.integers(4)],
            ["007", "7", "7.0", ""][rng.integers(4)],
            f"{rng.uniform(0, 5):.20f}",
            float(np.float32(rng.uniform())),
            days[rng.integers(3)],
            [True, False, None][rng.integers(3)],
            int(rng.integers(2)),
        )
        for _ in range(N)
    ]


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The URL of a server with the table `people`."""
    with _postgres.server() as url:
        import psycopg

        with psycopg.connect(url, autocommit=True) as connection:
            columns = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
            connection.execute(f"CREATE TABLE people ({columns})")
            with connection.cursor() as cursor:
                cursor.executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", records())
        yield url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with people.parquet and people.duckdb."""
    folder = tmp_path_factory.mktemp("people")
    table = pa.Table.from_pylist([dict(zip(KINDS, row, strict=True)) for row in records()])
    kinds = {"half": pa.float32(), "y": pa.int32()}
    decimals = pa.array([Decimal(row[3]) for row in records()], pa.decimal128(30, 20))
    table = table.set_column(3, "fee", decimals)
    table = table.cast(pa.schema([(f.name, kinds.get(f.name, f.type)) for f in table.schema]))
    pq.write_table(table, folder / "people.parquet")
    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS FROM '{folder / 'people.parquet'}'")
    return folder


def fit(X: Any, y: Any = "y", cls: Any = DPLogisticRegression, **changes: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return cls(**({"schema": SCHEMA, "random_state": 0, "epsilon": 2.0} | changes)).fit(X, y)


def connect(folder: Path) -> Any:
    """A connection that stays open: older versions close one that nobody holds, with its relations."""
    CONNECTIONS.append(duckdb.connect(str(folder / "people.duckdb"), read_only=True))
    return CONNECTIONS[-1]


CONNECTIONS: list[Any] = []


def open_ibis(folder: Path) -> Any:
    ibis = pytest.importorskip("ibis", reason="ibis is not installed")
    return ibis.duckdb.connect(str(folder / "people.duckdb"), read_only=True).table("people")


def open_modin(folder: Path) -> Any:
    modin = pytest.importorskip("modin.pandas", reason="modin is not installed")
    return modin.DataFrame(pd.read_parquet(folder / "people.parquet", dtype_backend="pyarrow"))


SOURCES: dict[str, Callable[[Path], Any]] = {
    "DuckDB query": lambda f: TableQuery(str(f / "people.duckdb"), "SELECT * FROM people WHERE age > 0"),
    "DuckDB table": lambda f: TableQuery(f"duckdb:///{f / 'people.duckdb'}", "people"),
    "DuckDB relation": lambda f: connect(f).table("people"),
    "Ibis": open_ibis,
    "Modin": open_modin,
    "scanned file": lambda f: pl.scan_parquet(f / "people.parquet"),
    "LazyFrame": lambda f: pl.read_parquet(f / "people.parquet").lazy().filter(pl.col("age") > 0),
    "narwhals LazyFrame": lambda f: nw.from_native(pl.scan_parquet(f / "people.parquet")),
    "polars": lambda f: pl.read_parquet(f / "people.parquet"),
    "narwhals DataFrame": lambda f: nw.from_native(pl.read_parquet(f / "people.parquet")),
    "pandas": lambda f: pd.read_parquet(f / "people.parquet"),
    "pandas of Arrow": lambda f: pd.read_parquet(f / "people.parquet", dtype_backend="pyarrow"),
    "Arrow": lambda f: pq.read_table(f / "people.parquet"),
    "dictionary of lists": lambda f: pq.read_table(f / "people.parquet").to_pydict(),
    "dictionary of series": lambda f: dict(pd.read_parquet(f / "people.parquet")),
}
COMPUTED = {"DuckDB query", "LazyFrame", "Ibis"}
"""Sources that may compute rows from several records: what Ibis calls a table may be a view."""


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("cls", [DPLogisticRegression, DPAdditiveClassifier])
def test_every_source_gives_the_bits_of_the_parquet_file(source: str, cls: Any, folder: Path) -> None:
    data = SOURCES[source](folder)
    model, reference = fit(data, cls=cls), fit(folder / "people.parquet", cls=cls)
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    in_memory = pq.read_table(folder / "people.parquet")
    np.testing.assert_array_equal(model.predict_proba(data), reference.predict_proba(in_memory))
    assert [part.kind for part in model.privacy_.conditions] == ["upstream-steps"] * (source in COMPUTED)


@pytest.mark.parametrize(
    "sql", ["people", 'public."people"', "SELECT * FROM people WHERE age > 0 ORDER BY ctid"]
)
def test_postgresql_gives_the_bits_of_the_parquet_file(sql: str, postgres: str, folder: Path) -> None:
    query = TableQuery(postgres, sql)
    model, reference = fit(query), fit(folder / "people.parquet")
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    np.testing.assert_array_equal(
        model.predict(query), reference.predict(pq.read_table(folder / "people.parquet"))
    )
    assert len(model.privacy_.conditions) == sql.startswith("SELECT")
    learned = {**SCHEMA, "columns": {**SCHEMA["columns"], "age": {"range": "learn"}}}  # type: ignore[dict-item]
    models = [fit(source, schema=learned) for source in (query, folder / "people.parquet")]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_single_precision_without_a_schema(postgres: str, folder: Path) -> None:
    stated = {"schema": None, "data_norm": 1.0, "classes": [0, 1], "bad_rows": "zero"}
    pq.write_table(pq.read_table(folder / "people.parquet").select(["half", "y"]), folder / "half.parquet")
    model = fit(TableQuery(postgres, "SELECT half, y FROM people"), **stated)
    np.testing.assert_array_equal(model.coef_, fit(folder / "half.parquet", **stated).coef_)


def test_the_command_reads_a_query(
    postgres: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema_file = tmp_path / "schema.json"
    schema_file.write_text(json.dumps(SCHEMA))
    options = ["--target", "y", "--epsilon", "2", "--schema", str(schema_file), "--random-state", "0", "-q"]
    outputs = []
    sources = (
        [str(folder / "people.parquet")],
        [postgres, "--sql", "people"],
        [str(folder / "people.duckdb"), "--sql", "SELECT * FROM people"],
    )
    for k, source in enumerate(sources):
        assert run_command_line(["fit", *source, *options, "-o", str(tmp_path / f"{k}.json")]) == 0
        outputs.append(json.loads((tmp_path / f"{k}.json").read_text()))
    assert outputs[0]["coefficients"] == outputs[1]["coefficients"] == outputs[2]["coefficients"]
    assert not outputs[1]["guarantee"]["conditions"]
    assert outputs[2]["guarantee"]["conditions"]
    assert run_command_line(["fit", postgres, *options, "-o", str(tmp_path / "x.json")]) == 2
    assert "--sql" in capsys.readouterr().err
    assert not (tmp_path / "x.json").exists()


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.declare("people", epsilon=10.0, delta=1e-3)
    return ledger.dataset("people")


BAD_QUERIES = {
    "no_such_table": "does not exist",
    "SELECT no_such_column FROM people": "does not exist",
    "SELECT FROM FROM": "syntax",
    "SELECT 1 / (y - 1) AS y FROM people": "is not shown",
    "SELECT CAST(job AS INTEGER) AS y FROM people": "is not shown",
    "SELECT age, age FROM people": "two columns named",
    "DELETE FROM people": "syntax",
}


@pytest.mark.parametrize("sql", BAD_QUERIES)
def test_bad_queries_are_one_sentence_and_nothing_is_charged(sql: str, postgres: str, ledger: Any) -> None:
    with pytest.raises(InvalidParameter, match=BAD_QUERIES[sql]) as error:
        fit(TableQuery(postgres, sql), ledger=ledger)
    assert "c'd" not in str(error.value)
    assert error.value.__suppress_context__ or error.value.__cause__ is None
    assert not ledger.history()


def test_a_vanished_server_or_database_is_one_sentence(postgres: str, ledger: Any, folder: Path) -> None:
    gone = [
        TableQuery("postgresql://ana:geheim@127.0.0.1:9/clinic", "people"),
        TableQuery(postgres.replace("/postgres", "/nowhere"), "people"),
        TableQuery(str(folder / "nowhere.duckdb"), "people"),
        TableQuery(str(folder / "people.duckdb"), "no_such_table"),
        TableQuery(str(folder / "people.duckdb"), "SELECT CAST(job AS INTEGER) AS y FROM people"),
        pl.scan_parquet(folder / "nowhere.parquet"),
        pl.scan_parquet(folder / "people.parquet").select("no_such_column"),
    ]
    for data in gone:
        with pytest.raises(InvalidParameter, match=r"Nothing was charged\.") as error:
            fit(data, ledger=ledger)
        assert "geheim" not in str(error.value)
        assert "c'd" not in str(error.value)
    assert not ledger.history()


@pytest.mark.parametrize("what", ["stall", "cut"])
@pytest.mark.parametrize("word", [b"DECLARE", b"FETCH"])
def test_a_server_that_stalls_is_one_sentence(what: str, word: bytes, postgres: str, ledger: Any) -> None:
    port = int(postgres.rpartition(":")[2].partition("/")[0])
    proxy = Proxy(port)
    proxy.trouble(word, what, passed=False)
    url = postgres.replace(f":{port}/", f":{proxy.port}/")
    with pytest.raises(InvalidParameter, match=r"Nothing was charged\."):
        fit(TableQuery(url, "people", timeout=1.0), ledger=ledger)
    assert proxy.suffered == 1
    proxy.close()
    assert not ledger.history()


def test_a_strict_data_set_takes_stored_tables_only(postgres: str, tmp_path: Path, folder: Path) -> None:
    ledger = Ledger.create(f"sqlite:///{tmp_path / 'strict.db'}")
    ledger.declare("people", epsilon=10.0, delta=1e-3, strict=True)
    for data in (
        TableQuery(postgres, "SELECT * FROM people"),
        pl.scan_parquet(folder / "people.parquet").head(500),
    ):
        with pytest.raises(InvalidParameter, match="this data set is strict"):
            fit(data, ledger=ledger.dataset("people"), random_state=None)
    fit(TableQuery(postgres, "people"), ledger=ledger.dataset("people"), random_state=None)


def test_scores_and_counts_take_stored_tables_only(postgres: str, folder: Path) -> None:
    model = fit(folder / "people.parquet")
    stored, computed = TableQuery(postgres, "people"), TableQuery(postgres, "SELECT * FROM people")
    scores = [
        private_score(model, data, "y", epsilon=1.0, random_state=0).value
        for data in (stored, folder / "people.parquet", pl.scan_parquet(folder / "people.parquet"))
    ]
    assert len(set(scores)) == 1
    schema = Schema.from_dict(SCHEMA)
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    for ask in (
        lambda: private_score(model, computed, "y", epsilon=1.0),
        lambda: count_file(computed, schema=schema, queries=["age > 30"], **options),
        lambda: count_marginals(computed, schema, **options),
    ):
        with pytest.raises(InvalidParameter, match="must be a stored table"):
            ask()
    counts = [
        count_file(data, schema=schema, queries=["age > 30"], random_state=0, **options)
        for data in (stored, folder / "people.parquet")
    ]
    np.testing.assert_array_equal(counts[0].values, counts[1].values)


def test_views_and_chosen_rows_are_no_stored_tables(postgres: str, tmp_path: Path, folder: Path) -> None:
    """A view computes whatever it likes under the name of a table; a limit lets one row decide on another."""
    import duckdb
    import psycopg

    mean = "SELECT y, age - avg(age) OVER () AS age FROM people"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE OR REPLACE VIEW centred AS {mean}")
        connection.execute("CREATE TABLE IF NOT EXISTS guarded (a int)")
        connection.execute("ALTER TABLE guarded ENABLE ROW LEVEL SECURITY")
    with duckdb.connect(str(tmp_path / "views.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS SELECT * FROM '{folder / 'people.parquet'}'")
        connection.execute(f"CREATE VIEW centred AS {mean}")
    rows = folder / "people.parquet"
    for data in (
        TableQuery(postgres, "centred"),
        TableQuery(postgres, "guarded"),
        TableQuery(str(tmp_path / "views.duckdb"), "centred"),
        pl.scan_parquet(rows, n_rows=100),
        pl.scan_parquet(rows, row_index_name="i"),
    ):
        assert query_condition(data) is not None, data
    for data in (
        TableQuery(postgres, "people"),
        TableQuery(postgres, "public.people"),
        TableQuery(str(tmp_path / "views.duckdb"), "people"),
        pl.scan_parquet(rows),
        pl.read_parquet(rows).lazy(),
    ):
        assert query_condition(data) is None, data


def test_types_that_depend_on_records_are_a_condition(tmp_path: Path) -> None:
    """polars infers the types of a text file from its first lines: one odd cell changes a whole column."""
    (tmp_path / "t.csv").write_text("a,y\n" + "1,0\n2,1\n" * 50)
    schema = {"columns": {"a": {"range": [0, 3]}}, "target": {"name": "y", "classes": [0, 1]}}
    assert fit(pl.scan_csv(tmp_path / "t.csv"), schema=schema).privacy_.conditions


def test_no_copy_stays_behind(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPLANGEVIN_SCRATCH", str(tmp_path))
    fit(pl.scan_parquet(folder / "people.parquet"))
    with pytest.raises(InvalidParameter):
        fit(TableQuery(str(folder / "people.duckdb"), "SELECT CAST(job AS INTEGER) AS y FROM people"))
    assert list(tmp_path.iterdir()) == []


ODD_VALUES = {
    "FLOAT8": ["1.5", "0", "'NaN'", "'Infinity'", "NULL", "1e308", "-1e-308"],
    "REAL": ["0.1", "'NaN'", "'-Infinity'", "NULL", "1e-45"],
    "BIGINT": ["1", "9007199254740993", "-9223372036854775808", "NULL"],
    "NUMERIC": ["1.10", "'NaN'", "'Infinity'", "1e1000", "0." + "1" * 60, "NULL", "7"],
    "TEXT": ["'a'", "'007'", "''", "'1e5'", "E'\\u00e9\\n\\t'", "NULL", "'nan'", "repeat('9', 5000)"],
    "BYTEA": ["'\\x31'", "'\\xff00'", "''", "NULL"],
    "BOOLEAN": ["true", "false", "NULL"],
    "DATE": ["'2020-01-01'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "NULL", "'5874897-12-31'"],
    "TIMESTAMP": ["'2020-01-01'", "'infinity'", "'2020-01-01 05:30:00.123456'", "NULL"],
    "TIMESTAMPTZ": ["'2020-01-01 00:00:00+00'", "'infinity'", "NULL", "'1883-01-01 00:00:00-00:00:01'"],
    "INTERVAL": ["'1 day'", "'-3 months'", "NULL"],
    "JSON": ["'{\"a\": 1}'", "'[1, 2]'", "'1'", "NULL"],
    "INTEGER[]": ["'{1,2}'", "'{}'", "'{1}'", "NULL"],
}


@pytest.mark.parametrize("kind", ODD_VALUES)
def test_one_odd_cell_of_a_database_changes_its_own_reading_only(kind: str, postgres: str) -> None:
    import psycopg

    values = ODD_VALUES[kind]

    def read(cells: list[str]) -> list[Any]:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS odd")
            connection.execute(f"CREATE TABLE odd (x {kind}, i SERIAL)")
            connection.execute(f"INSERT INTO odd (x) VALUES {', '.join(f'({cell})' for cell in cells)}")
        with warnings.catch_warnings(action="error"):
            return matrix.readings(column_of(TableQuery(postgres, "odd")))

    plain = read([values[0]] * 4)
    for value in values:
        cells = [values[0], value, values[0], values[0]]
        found = read(cells)
        assert [found[i] for i in (0, 2, 3)] == [plain[i] for i in (0, 2, 3)]


def column_of(data: Any) -> CellColumn:
    return as_table(data).column("x")


def test_cells_of_a_database_are_read_by_the_rule(postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS rule")
        connection.execute(
            "CREATE TABLE rule AS SELECT 1.10::numeric a, true b, '2020-01-01 00:00:00+00'::timestamptz c, "
            "'x'::bytea d, 0.1::real e, '1 day'::interval f, 9007199254740993::bigint g"
        )
    table = as_table(TableQuery(postgres, "rule"))
    labels = {name: table.column(name).texts()[0] for name in table.names}
    assert labels | {"e": None, "f": None} == {
        "a": "1.1", "b": "1", "c": "2020-01-01Z", "d": "x", "e": None, "f": None, "g": "9007199254740992",
    }  # fmt: skip
    assert table.column("e").numbers()[0] == np.float32(0.1)
    assert table.column("g").persons()[1] == []


def test_blocks_are_streamed(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "ROWS_PER_FETCH", 7)
    copied = open_files(TableQuery(postgres, "people"))
    assert isinstance(copied, TableFiles)
    assert copied.count_rows() == N
    assert sum(len(batch) for batch in copied.batches(["age"])) == N


def test_dictionaries_are_checked(folder: Path) -> None:
    for wrong in ({}, {"age": [1.0], "job": ["a", "b"]}, {"age": "abc"}, {1: [1.0], "1": [2.0]}):
        with pytest.raises(InvalidParameter):
            as_table(wrong)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    stated = {"schema": None, "data_norm": 1.5, "classes": [0, 1]}
    y = (X[:, 0] > 0).astype(int)
    of_columns = fit({"a": X[:, 0].tolist(), "b": X[:, 1]}, y, **stated)
    np.testing.assert_array_equal(of_columns.coef_, fit(X, y, **stated).coef_)
    np.testing.assert_array_equal(of_columns.predict({"a": X[:, 0], "b": X[:, 1]}), of_columns.predict(X))


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_tensors_are_their_arrays(library: str) -> None:
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    make = module.tensor if library == "torch" else module.array
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(np.int32)
    stated = {"schema": None, "data_norm": 1.5, "classes": [0, 1]}
    model = fit(make(X), make(y), **stated)
    np.testing.assert_array_equal(model.coef_, fit(X, y, **stated).coef_)
    schema = {"columns": {"a": {"range": [-1, 1]}, "b": {"range": [-1, 1]}}}
    np.testing.assert_array_equal(
        fit(make(X), make(y), schema=schema, classes=[0, 1]).coef_,
        fit(X, y, schema=schema, classes=[0, 1]).coef_,
    )
    small = make(X).bfloat16() if library == "torch" else make(X).astype("bfloat16")
    assert fit(small, y, **stated).coef_.shape == (1, 2)
    if library == "torch":
        assert np.array_equal(fit(make(X).requires_grad_(), y, **stated).coef_, model.coef_)
