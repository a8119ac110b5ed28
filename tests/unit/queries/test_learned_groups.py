"""Counts of groups that nobody lists: thresholds, noise, files, the budget, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import Ledger
from dplangevin.accounting import conversions as cv
from dplangevin.cli.main import run_command_line
from dplangevin.errors import InvalidParameter
from dplangevin.queries import Marginals, count_learned_groups
from dplangevin.queries.learned_groups import DELTA_FRACTIONS, plan_learned_groups
from dplangevin.schema import Schema
from dplangevin.tables import as_table

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def people() -> pd.DataFrame:
    jobs = ["nurse"] * 800 + ["clerk"] * 300 + ["01"] * 100 + ["astronaut", None]
    return pd.DataFrame({"job": jobs, "city": (["x", "y"] * 601), "id": [f"p{i}" for i in range(len(jobs))]})


def test_common_values_are_listed_with_their_counts_and_rare_ones_are_not() -> None:
    groups = count_learned_groups(people(), ["job", "id", "city"], **BUDGET, random_state=0)
    assert list(groups.counts["job"]) == ["nurse", "clerk", "1"]
    assert groups.counts["id"] == {}
    exact = {"nurse": 800, "clerk": 300, "1": 100}
    assert all(
        abs(groups.counts["job"][value] - count) < groups.margin(0.9999) for value, count in exact.items()
    )
    assert set(groups.columns()["cell"]) == {"job=nurse", "job=clerk", "job=1", "city=x", "city=y"}
    assert groups.guarantee.epsilon(1e-6) <= 1.0
    assert "given seed" in groups.describe_error()
    with pytest.raises(InvalidParameter, match="no value of 'id' was common enough"):
        groups.column("id")


def test_learned_groups_are_public_from_then_on() -> None:
    groups = count_learned_groups(people(), "job", **BUDGET, text=True, random_state=0)
    job = groups.column("job")
    assert (job.categories, job.text, job.other) == (("nurse", "clerk", "01"), True, "own")
    cells = Marginals.from_schema(Schema(columns=(job,)))
    assert list(cells.count([as_table(people())])) == [800, 300, 100, 1]


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (3, 1), (1, 4), (2, 3)])
def test_the_plan_is_within_the_budget_and_has_the_lowest_threshold(
    adjacency: Any, columns: int, rows: int
) -> None:
    """The guarantee is derived again: a vector of counts moves by rows sqrt(m k), and a label in one table is rare."""
    plan = plan_learned_groups(columns, 1.0, 1e-6, rows_per_person=rows, adjacency=adjacency)
    spec: Any = plan.spec
    assert plan.guarantee.epsilon(1e-6) <= 1.0 < plan.guarantee.epsilon(1e-6) * 1.01
    changed = (2 if adjacency == "replace-one" else 1) * columns
    mu = rows * np.sqrt(changed) / spec.scale
    assert cv.gdp_delta(mu, 1.0) + spec.threshold_delta < 1e-6
    assert min(abs(spec.threshold_delta / 1e-6 - fraction) for fraction in DELTA_FRACTIONS) < 1e-3
    for epsilon, delta in ((0.2, 1e-6), (1.0, 1e-9)):
        tighter: Any = plan_learned_groups(columns, epsilon, delta, rows_per_person=rows, adjacency=adjacency)
        assert tighter.spec.threshold > spec.threshold


def test_margins_hold() -> None:
    """800 counts: a share of .95 with a standard error of .008."""
    table = {f"c{i}": ["a"] * 500 for i in range(8)}
    inside = []
    for seed in range(100):
        groups = count_learned_groups(table, list(table), **BUDGET, random_state=seed)
        inside += [abs(counts["a"] - 500) <= groups.margin() for counts in groups.counts.values()]
    assert 0.925 < np.mean(inside) < 0.975


def test_files_and_tables_give_the_same_counts_and_the_budget_is_charged_once(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/ledger.db").declare("people", epsilon=9.0, delta=1e-5)
    table, releases = people(), []
    table.to_parquet(tmp_path / "people.parquet")
    table.to_csv(tmp_path / "people.csv", index=False)
    for i, source in enumerate((table, tmp_path / "people.parquet", tmp_path / "people.csv")):
        account = budget if i == 0 else None
        releases.append(
            count_learned_groups(source, ["job", "city"], **BUDGET, random_state=3, ledger=account)
        )
    assert releases[0].counts == releases[1].counts == releases[2].counts
    assert len(budget.history()) == 1
    assert releases[0].ledger_head


def test_the_command_writes_groups_and_margins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people().to_csv(tmp_path / "people.csv", index=False)
    command = [
        "count",
        str(tmp_path / "people.csv"),
        "--groups",
        "job,city",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
    ]
    for suffix in ("csv", "json", "parquet"):
        assert run_command_line([*command, "-o", str(tmp_path / f"counts.{suffix}")]) == 0
    written = pd.read_csv(tmp_path / "counts.csv")
    assert list(written.columns) == ["table", "cell", "count", "noise_margin_95"]
    assert {"job=nurse", "city=x"} <= set(written.cell)
    stated = json.loads((tmp_path / "counts.json").read_text())["mechanism"]["guarantee"]
    assert stated["epsilon"] <= 1.0
    assert set(pd.read_parquet(tmp_path / "counts.parquet").columns) == set(written.columns)
    assert "listed if its noisy count is at least" in capsys.readouterr().err
    assert run_command_line([*command, "--marginals", "1"]) == 2
    assert "release of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ([], {}, "at least one column"),
        (["job", "job"], {}, "each once"),
        ("none", {}, "the table has no column 'none'"),
        ("job", {"delta": 0.0}, "need delta > 0"),
        ("job", {"epsilon": -1.0}, "epsilon must be"),
        ("job", {"secure": True, "random_state": 0}, "random_state must be left out"),
        ("job", {"max_rows_per_person": 0}, "at least 1"),
    ],
)
def test_what_is_refused(tmp_path: Path, columns: Any, options: dict[str, Any], words: str) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/ledger.db").declare("people", epsilon=9.0, delta=1e-5)
    with pytest.raises(InvalidParameter, match=words):
        count_learned_groups(people(), columns, **(BUDGET | options), ledger=budget)
    assert not budget.history()
