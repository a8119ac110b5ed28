"""SQL predicates and tables on disk: the allow-list, failed casts, agreement with tables in memory, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from dplangevin.cli.count import count_table
from dplangevin.errors import InvalidParameter
from dplangevin.queries import Marginals, column, count_file, count_queries
from dplangevin.queries.row_queries import FUNCTIONS, SqlCounter, check_sql_predicate
from dplangevin.schema import Schema
from dplangevin.tables import TableFiles, as_table

duckdb = pytest.importorskip("duckdb")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

COLUMNS = ("age", "job", "day")
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"range": [17, 90]},
            "job": {"categories": ["a", "b", "c'd"], "other": "own"},
            "code": {"categories": [1, 2, 3]},
            "gain": {"range": [0, 99999], "transform": "log1p"},
            "flag": {"categories": [True, False]},
            "text": {"range": [0, 3]},
        }
    }
)


def table(n: int = 2000, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(10, 100, n).astype(float),
            "job": rng.choice(["a", "b", "c'd", "zz"], n),
            "code": rng.choice([1, 2, 3, 9], n),
            "gain": np.where(rng.random(n) < 0.1, np.nan, rng.exponential(3000, n)),
            "flag": rng.random(n) < 0.3,
            "text": rng.choice(["1", "2.5", "bad", ""], n),
        }
    )
    frame.loc[3, "age"], frame.loc[5, "age"] = np.nan, np.inf
    frame.loc[7, "job"] = None
    return frame


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    frame = table()
    frame.to_parquet(folder / "table.parquet")
    frame.to_csv(folder / "table.csv", index=False)
    frame.to_csv(folder / "table.tsv", index=False, sep="\t")
    SCHEMA.save(folder / "schema.json")
    return {path.suffix: path for path in folder.iterdir()}


# --- the allow-list ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "age > 30",
        "age >= 30 and job in ('a', 'b') or not (age between 1 and 2)",
        "lower(job) like 'x%' -- a comment",
        "case when age > 3 then job = 'a' else false end",
        "day >= date '2020-01-01'",
        "regexp_matches(job, '^a')",
        "coalesce(age, 0) % 2 = 0",
        '"age" is not null',
        "age is distinct from 3",
        "age > 3 as name",
        "round(age / 2, 1) = 2.5",
    ],
)
def test_row_predicates_pass(text: str) -> None:
    assert check_sql_predicate(text, COLUMNS, duckdb.connect())


def test_casts_cannot_fail() -> None:
    written = check_sql_predicate("cast(job as int) > 3 and age::varchar = 'x'", COLUMNS, duckdb.connect())
    assert written.count("TRY_CAST(") == 2
    assert written.count("CAST(") == 2


REFUSED = [
    "",
    "age >",
    "(select 1) = 1",
    "age in (select age from data)",
    "exists(select 1)",
    "age = any([1, 2])",
    "sum(age) > 3",
    "count(*) > 3",
    "max(age) = age",
    "first(age) > 2",
    "lower(job) filter (where true) = 'a'",
    "lower(distinct job) = 'a'",
    "lower(job order by job) = 'a'",
    "avg(age) over () > 2",
    "row_number() over () > 2",
    "random() > 0.5",
    "uuid() = 'a'",
    "now() > day",
    "current_date > day",
    "nextval('s') > 1",
    "setseed(0.1) is null",
    "read_text('x') = 'x'",
    "getenv('HOME') = 'x'",
    "error('x')",
    "rowid > 3",
    "filename = 'x'",
    "data.age > 3",
    "main.lower(job) = 'a'",
    "age > 3; select 1",
    "age > 3; drop table data",
    "age > 3 from data",
    "true where true",
    "age > 3 group by age",
    "age > 3 having true",
    "age > 3 qualify true",
    "age > 3 order by 1",
    "age > 3 limit 1",
    "(age > 3) union select true",
    "age > 3, job = 'a'",
    "*",
    "columns(*) > 3",
    "$1 > 3",
    "? > 3",
    "#1 > 3",
    "job collate nocase = 'a'",
    "cast(job as mood) = 'a'",
    "regexp_matches(job, job)",
    "list_transform([1], x -> x)[1] = 1",
    "{'a': 1}.a = 1",
    "unnest([1]) = 1",
    "grouping(age) = 1",
    "height > 3",
    "not " * 3000 + "true",
    "age > 3) or (true",
    "x" * 30_000,
]


@pytest.mark.parametrize("text", REFUSED)
def test_everything_else_is_refused_and_spends_nothing(text: str) -> None:
    with pytest.raises(InvalidParameter):
        check_sql_predicate(text, COLUMNS, duckdb.connect())


def test_no_aggregate_is_on_the_list() -> None:
    """Whatever DuckDB calls an aggregate, a table function or a macro must not be called by a listed name."""
    kinds = duckdb.connect().execute("SELECT function_name, function_type FROM duckdb_functions()").fetchall()
    assert (
        not {name for name, kind in kinds if kind in ("aggregate", "table", "table_macro", "pragma")}
        & FUNCTIONS
    )


def test_listed_functions_are_deterministic() -> None:
    rows = duckdb.connect().execute("SELECT function_name, stability FROM duckdb_functions()").fetchall()
    assert not {name for name, stability in rows if name in FUNCTIONS and stability == "VOLATILE"}


# --- counting ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".tsv"])
def test_files_and_memory_agree_on_all_pairs(files: dict[str, Path], suffix: str) -> None:
    cells = Marginals.from_schema(SCHEMA, ways=2, bins={"age": 7, "gain": [0, 10, 1000, 99999]})
    found = cells.count(TableFiles(files[suffix]).batches(SCHEMA.names))
    assert np.array_equal(found, cells.count([as_table(table())]))


def counted(given: Any, queries: list[str], schema: Schema = SCHEMA) -> Any:
    with SqlCounter(given.names, schema) as engine:
        return engine.count(given, [engine.check_predicate(text) for text in queries])


def test_failed_casts_are_false_even_when_shared() -> None:
    """The optimiser would pull the shared cast out of TRY, and one bad value would fail the whole query."""
    frame = table()
    queries = [
        "cast(job as int) > 1",
        "cast(job as int) > 0",
        "not (cast(job as int) > 1)",
        "cast(code as bigint) * 9000000000000000000 > 0",
    ]
    frame["job"] = frame.text.replace("", "zz")
    found = counted(as_table(frame), queries)
    number = pd.to_numeric(frame.text, errors="coerce").round()
    assert list(found) == [
        (number > 1).sum(),
        (number > 0).sum(),
        (number <= 1).sum(),
        (frame.code == 1).sum(),
    ]


def test_one_bad_record_changes_each_count_by_one() -> None:
    frame = table(3000).astype(object)
    other = frame.copy()
    other.loc[11] = ["9" * 400, "bad'--", "x", "-1e999", None, "0x1"]
    queries = [
        "cast(age as int) > 50",
        "cast(gain as double) * 1e300 * 1e300 > 0",
        "length(job) = 1",
        "text < 2",
    ]
    counts = [counted(as_table(given), queries) for given in (frame, other)]
    assert np.abs(counts[0] - counts[1]).max() <= 1


def test_types_come_from_the_schema_alone() -> None:
    """Texts that look like numbers are compared as texts or numbers as the schema says, whatever the others hold."""
    texts = Schema.from_dict({"columns": {"v": {"categories": ["10", "x"]}}})
    numbers = Schema.from_dict({"columns": {"v": {"categories": [10, 7]}}})
    for last in ("7", "x"):
        frame = as_table(pd.DataFrame({"v": pd.Series(["10"] * 5000 + [last], dtype=object)}))
        assert counted(frame, ["v < '5'"], texts) == (5000 + (last < "5"))
        assert counted(frame, ["v < 5"], numbers) == 0


def test_sql_over_frames_beside_other_queries() -> None:
    frame = table(500)
    found = count_queries(
        frame,
        {"sql": "age > 50 and job = 'a'", "built": column("age") > 50, "flag": "flag"},
        epsilon=300,
        delta=1e-2,
        p=2,
        schema=SCHEMA,
        random_state=1,
    )
    expected = [((frame.age > 50) & (frame.job == "a")).sum(), (frame.age > 50).sum(), frame.flag.sum()]
    assert list(np.rint(found.values)) == expected


def test_many_predicates_and_marginals_in_one_call(files: dict[str, Path]) -> None:
    queries = [f"age > {i / 10}" for i in range(700)]
    cells = Marginals.from_schema(SCHEMA, columns=["job"])
    seen: list[Any] = []
    found = count_file(
        files[".parquet"],
        schema=SCHEMA,
        queries=queries,
        marginals=cells,
        epsilon=500,
        delta=1e-2,
        p=2,
        random_state=0,
        announce=seen.append,
        progress=seen.append,
    )
    assert len(found) == 700 + cells.size
    assert found.mechanism.changed_counts == 700 + 2
    assert seen == [found.mechanism, 2000]
    assert found.values[0] == pytest.approx((table().age > 0).sum(), abs=3)


def test_other_files_are_out_of_reach(files: dict[str, Path]) -> None:
    with SqlCounter(SCHEMA.names, SCHEMA) as source, pytest.raises(duckdb.Error):
        source._link.execute(f"SELECT * FROM read_csv('{files['.csv']}')")


@pytest.mark.parametrize(
    ("name", "schema", "queries", "words"),
    [
        ("table.csv", None, ["age > 3"], "needs a schema"),
        ("none.parquet", SCHEMA, ["age > 3"], "there is no file"),
        ("schema.json", SCHEMA, ["age > 3"], "all Arrow or all text"),
        ("table.parquet", None, [], "nothing to count"),
        ("table.parquet", SCHEMA, "age > 3", "not one text"),
        ("table.parquet", SCHEMA, ["age"], "is DOUBLE, not true or false"),
        ("table.parquet", SCHEMA, ["age > 'x' || job"], "is refused"),
        (
            "table.parquet",
            Schema.from_dict({"columns": {"b": {"range": [0, 1]}}}),
            ["b > 0"],
            "no column 'b'",
        ),
    ],
)
def test_bad_files_and_queries(
    files: dict[str, Path], name: str, schema: Any, queries: Any, words: str
) -> None:
    with pytest.raises(InvalidParameter, match=words):
        count_file(files[".csv"].parent / name, schema=schema, queries=queries, epsilon=1, delta=1e-6)


def test_errors_of_the_engine_do_not_quote_the_data(tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    table(200).to_parquet(path)

    def damage(_: Any) -> None:
        path.write_bytes(b"PAR1 secret PAR1")

    with pytest.raises(InvalidParameter, match="could not be read") as caught:
        count_file(path, schema=SCHEMA, queries=["age > 3"], epsilon=1, delta=1e-6, announce=damage)
    assert "secret" not in str(caught.value)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, files: dict[str, Path]) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(InvalidParameter, match=r'pip install "dplangevin\[queries\]"'):
        count_file(files[".parquet"], schema=SCHEMA, queries=["age > 3"], epsilon=1, delta=1e-6)


# --- the command -------------------------------------------------------------------------------------------------

app = typer.Typer()
app.command("count")(count_table)


def run(*words: str) -> Any:
    return CliRunner().invoke(app, [*words, "--epsilon", "1", "--delta", "1e-6"])


def test_command_writes_marginals(files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "counts.parquet"
    result = run(
        str(files[".parquet"]), "--schema", str(files[".json"]), "--marginals", "2", "--output", str(output)
    )
    assert result.exit_code == 0, result.output
    assert "About to read" in result.stderr
    assert "Expected maximum error" in result.stderr
    written = pd.read_parquet(output)
    assert len(written) == Marginals.from_schema(SCHEMA, ways=2).size
    assert (written["count"] >= 0).all()


def test_command_prints_and_speaks_json(files: dict[str, Path]) -> None:
    asked = [
        "--schema",
        str(files[".json"]),
        "--where",
        "age > 30",
        "--where",
        "job = 'a'",
        "-q",
        "--random-state",
        "1",
    ]
    shown = run(str(files[".parquet"]), *asked)
    assert [line.split("\t")[1] for line in shown.stdout.splitlines()] == ["age > 30", "job = 'a'"]
    spoken = run(str(files[".csv"]), "--schema", str(files[".json"]), "--columns", "job,flag", "--json")
    assert json.loads(spoken.stdout)["mechanism"]["changed_counts"] == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--marginals", "2"], "need --schema"),
        (["--where", "age > 3", "--output", "x.txt"], "must end in .parquet"),
        (["--where", "age > 3", "--ledger", "sqlite:///x.db"], "go together"),
        (["--where", "random() > 3", "--schema", "SCHEMA"], "not a predicate"),
        (["--where", "age > 3"], "needs a schema"),
        ([], "nothing to count"),
    ],
)
def test_command_refuses(files: dict[str, Path], words: list[str], reason: str) -> None:
    result = run(
        str(files[".parquet"]), *(str(files[".json"]) if word == "SCHEMA" else word for word in words)
    )
    assert isinstance(result.exception, InvalidParameter)
    assert reason in str(result.exception)
