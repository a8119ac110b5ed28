"""Counting front ends over DataFrames: predicates, histograms, marginals, post-processing, sensitivity."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.errors import InvalidParameter
from dplangevin.queries import (
    Marginals,
    clip_nonnegative,
    column,
    count_marginals,
    count_queries,
    make_totals_consistent,
    round_to_integers,
)
from dplangevin.schema import Schema
from dplangevin.tables import as_table

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"range": [17, 90]},
            "job": {"categories": ["a", "b", "c'd"], "other": "own"},
            "code": {"categories": [1, 2, 3]},
            "gain": {"range": [0, 99999], "transform": "log1p"},
            "flag": {"categories": [True, False]},
            "text": {"range": [0, 3]},
        },
        "missing": "own",
    }
)


def table(n: int = 400, seed: int = 0) -> Any:
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


def exact(frame: Any, queries: Any, **options: Any) -> list[float]:
    """Counts with hardly any noise: epsilon = 1000 for a few queries."""
    found = count_queries(frame, queries, epsilon=1000, delta=1e-2, random_state=1, **{"p": 2, **options})
    assert found.mechanism.maximum_error_quantile(1e-6) < 0.5
    return list(np.rint(found.values))


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_predicates_count_what_they_say(kind: str) -> None:
    frame = table()
    queries = {
        "old": column("age") >= 60,
        "range": column("age").between(20, 30),
        "job": column("job") == "c'd",
        "not": column("job") != "a",
        "in": column("code").is_in([1, 9]),
        "both": (column("age") < 50) & ~(column("job") == "a"),
        "either": (column("age") > 80) | column("flag").is_in([True]),
        "missing": column("gain").is_missing(),
    }
    expected = [
        (frame.age >= 60).sum(),
        frame.age.between(20, 30).sum(),
        (frame.job == "c'd").sum(),
        ((frame.job != "a") & frame.job.notna()).sum(),
        frame.code.isin([1, 9]).sum(),
        ((frame.age < 50) & (frame.job != "a")).sum(),
        ((frame.age > 80) | frame.flag).sum(),
        frame.gain.isna().sum(),
    ]
    assert exact(frame if kind == "pandas" else pl.from_pandas(frame), queries) == expected


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_functions_of_a_row_and_columns_of_answers(kind: str) -> None:
    frame = table()
    given = frame if kind == "pandas" else pl.from_pandas(frame)
    queries = [
        lambda row: row["age"] > 50,
        lambda row: row["job"] + 1 > 0,  # fails on every row: counts as 0
        (frame.age > 50).to_numpy(),
        np.full(len(frame), 0.25),
    ]
    assert exact(given, queries) == [(frame.age > 50).sum(), 0, (frame.age > 50).sum(), 100]


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ([], "list of queries is empty"),
        ({}, "list of queries is empty"),
        ("age > 3", "queries must be a list"),
        ([column("height") > 3], "no column 'height'"),
        ([np.ones(3)], "3 values for a table of 400 rows"),
        ([3], "must be a predicate"),
        ([np.array(["a"] * 400)], "must be a predicate"),
    ],
)
def test_bad_queries(queries: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        count_queries(table(), queries, epsilon=1, delta=1e-6)


def test_answers_outside_the_unit_interval_are_clipped_in_silence() -> None:
    """An error would tell that some record answered so."""
    values = np.zeros(400)
    values[:5] = 7.5, np.nan, np.inf, -3.0, 1.0
    assert exact(table(), [values, lambda row: 2, lambda row: -1, lambda row: float("nan")]) == [3, 400, 0, 0]


def test_predicates_refuse_python_logic() -> None:
    with pytest.raises(InvalidParameter, match="combine predicates with &"):
        bool((column("a") > 1) and (column("b") > 1))
    with pytest.raises(InvalidParameter, match="against a number only"):
        column("a") > "x"  # type: ignore[operator]  # noqa: B015
    with pytest.raises(InvalidParameter, match="combine predicates; got True"):
        (column("a") > 1) & True  # type: ignore[operator]
    with pytest.raises(InvalidParameter, match="non-empty list"):
        column("a").is_in([])
    with pytest.raises(InvalidParameter, match="pandas or polars"):
        count_queries([1, 2], [column("a") > 1], epsilon=1, delta=1e-6)
    with pytest.raises(InvalidParameter, match="unknown option shape"):
        count_queries(table(), [column("age") > 1], epsilon=1, delta=1e-6, shape=3)


# --- marginals ---------------------------------------------------------------------------------------------------


def test_histogram_cells_are_public_and_clip() -> None:
    frame = table()
    cells = Marginals.from_schema(SCHEMA, columns=["age", ["code"], "job"], bins={"age": [17, 40, 90]})
    counts = cells.count([as_table(frame)])
    assert cells.axes["age"].labels == ("[17, 40)", "[40, 90]", "missing")
    assert list(counts[:3]) == [(frame.age < 40).sum(), (frame.age >= 40).sum(), 1]
    assert list(counts[3:7]) == [(frame.code == c).sum() for c in (1, 2, 3)] + [0]
    assert list(counts[7:]) == [
        *((frame.job == j).sum() for j in ("a", "b", "c'd")),
        (frame.job == "zz").sum(),
        1,
    ]
    assert cells.is_complete() == (True, False, True)


@pytest.mark.parametrize(
    ("stated", "labels", "counts", "complete"),
    [
        ({}, ("[0, 1)", "[1, 2]", "a", "other"), [1, 2, 1, 2], (False, False)),
        ({"missing": "never"}, ("[0, 1)", "[1, 2]", "a", "other"), [1, 2, 1, 2], (True, True)),
        ({"missing": "middle"}, ("[0, 1)", "[1, 2]", "a", "other"), [1, 3, 1, 3], (True, True)),
        (
            {"missing": "own"},
            ("[0, 1)", "[1, 2]", "missing", "a", "other", "missing"),
            [1, 2, 1, 1, 2, 1],
            (True, True),
        ),
    ],
)
def test_missing_values_have_a_cell_only_where_one_is_declared(
    stated: dict[str, Any], labels: tuple[str, ...], counts: list[int], complete: tuple[bool, bool]
) -> None:
    columns = {"x": {"range": [0, 2]}, "g": {"categories": ["a"], "other": "own"}}
    cells = Marginals.from_schema(Schema.from_dict({"columns": columns, **stated}), bins=2)
    frame = pd.DataFrame({"x": [0.5, 1.5, 1.5, None], "g": ["a", "b", "c", None]})
    assert tuple(label for axis in cells.axes.values() for label in axis.labels) == labels
    assert list(cells.count([as_table(frame)])) == counts
    assert cells.is_complete() == complete
    by_column = {name: {**entry, **stated} for name, entry in columns.items()}
    assert (
        list(Marginals.from_schema(Schema.from_dict({"columns": by_column}), bins=2).count([as_table(frame)]))
        == counts
    )


def test_missing_in_the_middle_and_log_scale() -> None:
    schema = Schema.from_dict(
        {"columns": {"g": {"range": [0, 99], "transform": "log1p"}}, "missing": "middle"}
    )
    cells = Marginals.from_schema(schema, bins=2)
    assert cells.axes["g"].edges[1] == pytest.approx(9.0)  # type: ignore[attr-defined]
    counts = cells.count([as_table(pd.DataFrame({"g": [0.0, 8.9, 9.1, 1e6, -5, None]}))])
    assert list(counts) == [3, 3]


def test_pandas_and_polars_agree_on_all_pairs() -> None:
    frame = table(3000, seed=4)
    cells = Marginals.from_schema(SCHEMA, ways=2, bins={"age": 7})
    first, second = cells.count([as_table(frame)]), cells.count([as_table(pl.from_pandas(frame))])
    assert np.array_equal(first, second)
    assert sum(cells.cell_labels(names).size for names in cells.sets) == cells.size == first.size
    assert len(cells.sets) == 15


@settings(max_examples=40, deadline=None)
@given(
    row=st.integers(0, 59),
    age=st.one_of(st.none(), st.floats(), st.just("x")),
    job=st.one_of(st.none(), st.text(max_size=3), st.just("a")),
    gain=st.one_of(st.none(), st.floats()),
    text=st.text(max_size=4),
)
def test_replacing_one_record_changes_what_the_guarantee_assumes(
    row: int, age: Any, job: Any, gain: Any, text: str
) -> None:
    """At most two cells per table change, each by one; a predicate changes by at most one."""
    frame = table(60).astype(object)
    other = frame.copy()
    other.loc[row, ["age", "job", "gain", "text"]] = [age, job, gain, text]
    cells = Marginals.from_schema(SCHEMA, ways=2)
    change = np.abs(cells.count([as_table(frame)]) - cells.count([as_table(other)]))
    assert change.max() <= 1
    assert (change > 0).sum() <= 2 * len(cells.sets)
    for predicate in (column("age") > 40, ~(column("job") == "a"), column("text").is_in([1.0, 2.5])):
        counts = [predicate.evaluate(as_table(f)).sum() for f in (frame, other)]
        assert abs(int(counts[0]) - int(counts[1])) <= 1


def test_marginals_know_how_many_counts_a_record_touches() -> None:
    found = count_marginals(table(), SCHEMA, ways=2, epsilon=1, delta=1e-6, p=2, random_state=0)
    assert found.mechanism.changed_counts == 30
    added = count_marginals(
        table(), SCHEMA, ways=2, epsilon=1, delta=1e-6, p=2, adjacency="add-remove", random_state=0
    )
    assert added.mechanism.changed_counts == 15
    family = count_marginals(
        table(), SCHEMA, ways=2, epsilon=1, delta=1e-6, p=2, max_rows_per_person=3, random_state=0
    )
    assert (family.mechanism.changed_counts, family.mechanism.sensitivity) == (90, 3.0)
    assert family.mechanism.sigma == pytest.approx(3 * math.sqrt(3) * found.mechanism.sigma, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ways": 7}, "more than the 6 columns"),
        ({"columns": ["height"]}, "no column 'height'"),
        ({"columns": []}, "at least one set"),
        ({"columns": [("age", "age")]}, "different columns"),
        ({"bins": {"height": 3}}, "bins names height"),
        ({"bins": {"age": [3, 2]}}, "increasing edges"),
        ({"bins": 0}, "bins"),
        ({"ways": 4, "bins": 400}, "more than 16777216 .* use fewer columns"),
    ],
)
def test_bad_marginals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        count_marginals(table(), SCHEMA, epsilon=1, delta=1e-6, **options)


def test_a_table_that_lacks_a_column_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="schema mismatch: the table has no column 'job'"):
        count_marginals(table().drop(columns="job"), SCHEMA, epsilon=1, delta=1e-6)


# --- what leaves -------------------------------------------------------------------------------------------------


def test_post_processing_is_consistent() -> None:
    found = count_marginals(table(), SCHEMA, ways=1, epsilon=1, delta=1e-6, random_state=3)
    mended = found.postprocess(total=400)
    assert mended.tables is not None
    tables = np.split(mended.values, np.cumsum(mended.tables.sizes())[:-1])
    for counts, complete in zip(tables, mended.tables.is_complete(), strict=True):
        assert np.all(counts >= 0)
        assert np.all(counts == np.rint(counts))
        assert not complete or counts.sum() == 400
    assert mended.postprocessing == ("totals", "nonnegative", "rounded")
    with pytest.raises(InvalidParameter, match="before post-processing"):
        mended.intervals()
    low, high = found.intervals(0.9)
    assert np.all(high - low == pytest.approx(2 * found.mechanism.margin(0.9)))


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-50, 50), min_size=1, max_size=12),
    total=st.floats(0, 100),
)
def test_projection_on_the_simplex(values: list[float], total: float) -> None:
    found = clip_nonnegative(values, total)
    assert np.all(found >= 0)
    assert found.sum() == pytest.approx(total, abs=1e-9)
    whole = round_to_integers(found, round(total))
    assert whole.sum() == round(total)
    assert np.all(np.abs(whole - found) <= 1 + 1e-9)


def test_totals_are_the_least_squares_projection() -> None:
    first, second = make_totals_consistent([[10.0, 20.0], [12.0, 12.0, 12.0, 0.0]])
    assert first.sum() == pytest.approx(second.sum())
    assert first.sum() == pytest.approx((30 / 2 + 36 / 4) / (1 / 2 + 1 / 4))


def test_written_files_hold_the_guarantee(tmp_path: Path) -> None:
    found = count_marginals(table(), SCHEMA, columns=["job"], epsilon=1, delta=1e-6, p=2, random_state=3)
    for suffix in (".parquet", ".csv", ".json"):
        found.write(tmp_path / f"counts{suffix}")
    assert list(pd.read_parquet(tmp_path / "counts.parquet")["count"]) == list(found.values)
    assert list(pd.read_csv(tmp_path / "counts.csv")["count"]) == pytest.approx(list(found.values))
    low, high = found.intervals(0.95)
    for frame in (pd.read_parquet(tmp_path / "counts.parquet"), pd.read_csv(tmp_path / "counts.csv")):
        np.testing.assert_allclose(frame["noise_margin_95"], (high - low) / 2)
    rounded = found.postprocess().to_pandas()["noise_margin_95"]  # of the counts as released, still
    np.testing.assert_allclose(rounded, (high - low) / 2)
    content = json.loads((tmp_path / "counts.json").read_text())
    assert content["mechanism"]["guarantee"]["delta"] == 1e-6
    assert content["seeded"] is True
    with pytest.raises(InvalidParameter, match=r"must end in .parquet"):
        found.write(tmp_path / "counts.txt")


def test_statement_is_in_words_and_warns_of_seeds() -> None:
    seeded = count_queries(table(), [column("age") > 30], epsilon=1, delta=1e-6, random_state=3)
    assert "expected maximum error" in seeded.describe_error().lower()
    assert "seed" in seeded.describe_error()
    fresh = count_queries(table(), [column("age") > 30], epsilon=1, delta=1e-6)
    assert not fresh.seeded
    assert "seed" not in fresh.describe_error()


class Purse:
    """A budget that keeps what it was asked."""

    def __init__(self, refuse: bool = False) -> None:
        self.calls: list[str] = []
        self.refuse = refuse

    def reserve(self, plan: Any) -> str:
        self.calls.append(f"reserve {plan.guarantee.epsilon():.2f}")
        if self.refuse:
            raise RuntimeError("spent")
        return "token"

    def commit(self, token: str, release_hash: str) -> None:
        self.calls.append(f"commit {token} {len(release_hash)}")


def test_the_budget_is_charged_before_reading() -> None:
    purse = Purse()
    count_queries(table(), [column("age") > 30], epsilon=1, delta=1e-6, random_state=0, ledger=purse)
    assert purse.calls == ["reserve 1.00", "commit token 64"]
    looked: list[int] = []

    def spy(row: dict[str, Any]) -> bool:
        looked.append(1)
        return True

    with pytest.raises(RuntimeError, match="spent"):
        count_queries(table(), [spy], epsilon=1, delta=1e-6, ledger=Purse(refuse=True))
    assert not looked
    idle = Purse()
    with pytest.raises(InvalidParameter):
        count_queries(table(), [column("height") > 30], epsilon=1, delta=1e-6, ledger=idle)
    assert not idle.calls


@pytest.mark.parametrize("touched", [None, 1])
def test_values_of_functions_lie_on_the_grid_of_secure_noise(touched: int | None) -> None:
    """A third is no multiple of a power of two: unrounded, a row's value would end the run."""
    asked = {"third": lambda row: 1 / 3, "share": np.full(400, 1 / 3)}
    found = count_queries(table(), asked, epsilon=1.0, delta=1e-6, p=2.0, secure=True, touched_counts=touched)
    assert np.isfinite(found.values).all()
