"""Means, sums and quantiles: sensitivity, closed forms, coverage of the intervals, sources, budget and command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.cli.main import run_command_line
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.ledger import Ledger
from dplangevin.queries import SummaryTable, summarize_table
from dplangevin.queries.summaries import bound_laplace_sums, fit_bin_counts
from dplangevin.schema import Schema
from dplangevin.tables import as_table

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "income": {"range": [0, 200_000], "transform": "log1p", "missing": "middle"},
            "age": {"range": [-10, 100]},
            "job": {"categories": ["a", "b", "c"], "other": "own", "missing": "own"},
        }
    }
)
CELLS = st.one_of(
    st.floats(), st.none(), st.integers(-(10**30), 10**30), st.sampled_from(["", "5", "x", "a", "d"])
)


def people(n: int = 4000) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "income": rng.lognormal(10, 1, n),
            "age": rng.integers(0, 60, n).astype(float),
            "job": rng.choice(["a", "b", "z"], n, p=[0.6, 0.3, 0.1]),
        }
    )
    table.loc[rng.random(n) < 0.2, "age"] = np.nan
    return table


def truths(table: pd.DataFrame, by: str | None = None) -> dict[tuple[str, str, str], float]:
    """The exact statistics of the clipped values, computed without the library."""
    clipped = table.assign(income=table.income.clip(0, 200_000))
    groups = {"all rows": clipped}
    if by is not None:
        groups = {
            "a": clipped[clipped.job == "a"],
            "b": clipped[clipped.job == "b"],
            "other": clipped[clipped.job == "z"],
        }
    exact = {}
    for name, part in groups.items():
        exact["age", name, "rows"] = float(part.age.notna().sum())
        exact["income", name, "rows"] = float(len(part))
        for column in ("income", "age"):
            exact[column, name, "mean"] = float(part[column].mean())
            exact[column, name, "sum"] = float(part[column].sum())
            for q in (0.1, 0.5, 0.9):
                exact[column, name, f"quantile {q:g}"] = float(
                    part[column].quantile(q, interpolation="inverted_cdf")
                )
    return exact


def by_key(summary: SummaryTable) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(row["column"], row["group"], row["statistic"]): row for row in summary.rows}


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=2, max_size=6),
    st.tuples(CELLS, CELLS, CELLS),
    st.booleans(),
)
def test_a_replaced_row_changes_as_much_as_is_accounted(rows: Any, other: Any, grouped: bool) -> None:
    options: dict[str, Any] = {"by": "job"} if grouped else {"quantiles": (0.5,)}
    summary = summarize_table(people(4), SCHEMA, epsilon=1.0, delta=1e-6, **options)
    names = ["income", "age", "job"]
    exact = [
        summary.request.sum_rows(as_table(table, names).blocks(), summary.mechanism.grid)
        for table in ([list(row) for row in rows], [list(other), *map(list, rows[1:])])
    ]
    change = np.abs(exact[0] - exact[1])
    assert change.max() <= summary.mechanism.sensitivity
    assert np.count_nonzero(change) <= summary.mechanism.changed_counts
    assert np.array_equal(exact[0], np.rint(exact[0] / summary.mechanism.grid) * summary.mechanism.grid)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("by", [None, "job"])
def test_little_noise_gives_the_exact_statistics(delta: float, by: str | None) -> None:
    table = people()
    quantiles = () if by else (0.1, 0.5, 0.9)
    summary = summarize_table(table, SCHEMA, epsilon=900.0, delta=delta, by=by, quantiles=quantiles)
    exact, released = truths(table, by), by_key(summary)
    assert len(released) == (2 * 6 + 5 * 6 - 12 if by else 5 + 6)
    for key, row in released.items():
        if key in exact:
            assert row["low_95"] <= row["value"] <= row["high_95"]
            assert abs(row["value"] - exact[key]) <= max(0.03 * abs(exact[key]), 1.0)


@pytest.mark.parametrize(
    ("delta", "adjacency"), [(1e-6, "replace-one"), (1e-6, "add-remove"), (0.0, "replace-one")]
)
def test_intervals_cover(delta: float, adjacency: Any) -> None:
    """100 releases: an interval of 95% covers less than 86% of them with probability 2e-4; half of it fails."""
    table = people(3000)
    exact, covered, halves = truths(table), {}, {}
    for seed in range(100):
        summary = summarize_table(
            table,
            SCHEMA,
            epsilon=0.5,
            delta=delta,
            adjacency=adjacency,
            quantiles=(0.1, 0.5, 0.9),
            random_state=seed,
        )
        for key, row in by_key(summary).items():
            covered.setdefault(key, []).append(row["low_95"] <= exact[key] <= row["high_95"])
            middle = (row["low_95"] + row["high_95"]) / 2
            halves.setdefault(key, []).append(
                abs(exact[key] - middle) <= (row["high_95"] - row["low_95"]) / 4
            )
    assert min(np.mean(hits) for hits in covered.values()) >= 0.86
    assert np.mean(halves["age", "all rows", "rows"]) < 0.85  # .67 for Gaussian noise, .78 for Laplace noise


def test_the_bound_for_laplace_sums_holds() -> None:
    rng = np.random.default_rng(0)
    for weights in (np.array([1.0]), np.array([1.0, 1.0]), rng.random(30), np.array([5.0, *[0.1] * 20])):
        draws = np.abs(rng.laplace(size=(40_000, len(weights))) @ weights)
        bound = bound_laplace_sums(weights[None], 0.05)[0]
        assert np.mean(draws > bound) < 0.05
        assert bound < 3 * np.quantile(draws, 0.95)


def test_reconciled_levels_are_consistent_and_linear() -> None:
    rng = np.random.default_rng(0)
    exact = rng.integers(0, 100, 16).astype(float)
    levels = [exact.reshape(2**i, -1).sum(axis=1) for i in range(1, 5)]
    noise = [rng.standard_normal(len(level)) for level in levels]
    for is_exact in (True, False):
        total = exact.sum() + (0.0 if is_exact else 1.5)
        counts, decoder = fit_bin_counts(
            [a + b for a, b in zip(levels, noise, strict=True)], total, total_is_exact=is_exact
        )
        errors = np.concatenate([*noise, *([] if is_exact else [[1.5]])])
        np.testing.assert_allclose(counts, exact + decoder @ errors, atol=1e-9)
        assert not is_exact or abs(counts.sum() - exact.sum()) < 1e-8


def test_sources_agree_and_the_budget_is_charged_before_reading(tmp_path: Path) -> None:
    table = people(500)
    table.to_parquet(tmp_path / "people.parquet")
    table.to_csv(tmp_path / "people.csv", index=False)
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "random_state": 3, "by": "job"}
    first = summarize_table(table, SCHEMA, **options)
    for source in (
        pl.from_pandas(table),
        tmp_path / "people.parquet",
        tmp_path / "people.csv",
        table.to_dict("list"),
    ):
        np.testing.assert_array_equal(summarize_table(source, SCHEMA, **options).answers, first.answers)
    books = Ledger.create(f"sqlite:///{tmp_path}/ledger.db")
    ledger = books.declare("people", epsilon=1.1, delta=1e-6)
    assert summarize_table(table, SCHEMA, ledger=ledger, **options).ledger_head
    with pytest.raises(DplangevinError):
        summarize_table(table, SCHEMA, ledger=ledger, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "age"}, "list of names"),
        ({"columns": ["job"]}, "no range"),
        ({"columns": ["town"]}, "no column 'town'"),
        ({"columns": ["age", "age"]}, "each once"),
        ({"statistics": ()}, "nothing to release"),
        ({"statistics": ("median",)}, "statistics"),
        ({"quantiles": (1.0,)}, "quantiles"),
        ({"quantiles": (0.5,), "by": "job"}, "not by group"),
        ({"by": "town"}, "no column 'town'"),
        ({"secure": True, "random_state": 0}, "random_state"),
    ],
)
def test_refused_requests_charge_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        summarize_table(people(5), SCHEMA, **{"epsilon": 1.0, "delta": 1e-6, **options})


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people(2000).to_csv(tmp_path / "people.csv", index=False)
    SCHEMA.save(tmp_path / "schema.toml")
    common = ["summarize", str(tmp_path / "people.csv"), "--schema", str(tmp_path / "schema.toml"), "--epsilon", "1",
              "--delta", "1e-6", "--random-state", "1"]  # fmt: skip
    assert run_command_line([*common, "--columns", "age", "--quantiles", ".25,.75", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["statistic"] for row in content["rows"]] == [
        "rows",
        "mean",
        "sum",
        "quantile 0.25",
        "quantile 0.75",
    ]
    assert run_command_line([*common, "--by", "job", "-o", str(tmp_path / "out.csv")]) == 0
    assert "sigma" in capsys.readouterr().err
    assert list(pd.read_csv(tmp_path / "out.csv").columns) == [
        "column",
        "group",
        "statistic",
        "value",
        "low_95",
        "high_95",
    ]
    assert run_command_line([*common, "--quantiles", "half"]) == 2
