"""The ledger in PostgreSQL, against a real server that is started here (skipped where none is installed)."""

from __future__ import annotations

import copy
import json
import math
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dplangevin.accounting import conversions as cv
from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError
from dplangevin.ledger import DatasetBudget, Ledger, _admission, _postgres as postgres_store
from dplangevin.mechanisms.mechanism import run_plan
from unit._ledger import gaussian, pure, tiny_data, tiny_plan
from unit._postgres import server

DRIVER = Path(__file__).parents[2] / "privacy" / "_ledger_driver.py"


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture
def url(server_url: str) -> str:
    """An empty database with somebody else's table in it."""
    execute(server_url, "DROP SCHEMA public CASCADE")
    execute(server_url, "CREATE SCHEMA public")
    execute(server_url, "CREATE TABLE people (name TEXT)")
    return server_url


def execute(url: str, statement: str) -> list[Any]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement)  # type: ignore[call-overload]
        return found.fetchall() if found.description else []


def drive(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, str(DRIVER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def budget_for(url: str, releases: int) -> DatasetBudget:
    """A budget that fits exactly so many tiny runs."""
    mu = tiny_plan().guarantee.mu
    assert mu is not None
    epsilon = cv.gdp_epsilon(mu * math.sqrt(releases + 0.5), 1e-5)
    return Ledger.create(url).declare("tiny", epsilon=epsilon, delta=1e-5)


def test_a_budget_is_spent_and_kept(url: str) -> None:
    ledger = Ledger.create(url)
    budget = ledger.declare("census", epsilon=5, delta=0, parts=["north"]).with_label("Ada é")
    for spender in (budget, copy.deepcopy(budget), pickle.loads(pickle.dumps(budget))):
        spender.charge(pure(1.5))
    with pytest.raises(BudgetExceeded, match=r"pure epsilon = 0.5 or less would fit"):
        budget.charge(pure(1.0))
    budget.for_part("north").charge(pure(0.5))
    entries = Ledger.open(url).dataset("census").history()
    assert [(entry.sequence, entry.part, entry.label) for entry in entries] == [
        (1, "", "Ada é"),
        (2, "", "Ada é"),
        (3, "", "Ada é"),
        (4, "north", "Ada é"),
    ]
    assert json.dumps(ledger.export(), allow_nan=False)
    assert execute(url, "SELECT COUNT(*) FROM people") == [(0,)]


def test_floats_are_kept_exactly(url: str) -> None:
    epsilon, delta = math.nextafter(0.1, 1), math.nextafter(1e-6, 1)
    Ledger.create(url).declare("a", epsilon=epsilon, delta=delta)
    left = Ledger.open(url).declare("a", epsilon=epsilon, delta=delta).remaining()
    assert (left.epsilon, left.delta) == (epsilon, delta)
    with pytest.raises(InvalidParameter, match="does not change"):
        Ledger.open(url).declare("a", epsilon=0.1)


def test_a_run_pays_before_and_signs_after(url: str) -> None:
    plan, budget = tiny_plan(), Ledger.create(url).declare("a", epsilon=9, delta=1e-5)
    release = run_plan(plan, tiny_data(plan), ledger=budget)
    (entry,) = budget.history()
    assert entry.release_hash == release.digest()
    with pytest.raises(LedgerError, match="never charged"):
        budget.commit("nothing", "aa")


def test_gaussian_releases_fit_as_often_as_exact_composition_says(url: str) -> None:
    budget = Ledger.create(url).declare("a", epsilon=5, delta=1e-5)
    expected = math.floor((cv.gdp_mu(5, 1e-5) / 0.3) ** 2)
    for _ in range(expected):
        budget.charge(gaussian(0.3))
    with pytest.raises(BudgetExceeded):
        budget.charge(gaussian(0.3))


@pytest.mark.parametrize(("processes", "attempts"), [(4, 20), pytest.param(8, 100, marks=pytest.mark.slow)])
def test_processes_race_for_half_of_what_they_want(
    url: str, tmp_path: Path, processes: int, attempts: int
) -> None:
    budget = budget_for(url, attempts // 2)
    assert drive("race", budget.url, tmp_path, processes, attempts)["codes"] == [0] * processes
    assert len(list(tmp_path.glob("*.json"))) == attempts // 2
    entries = budget.history()
    assert len(entries) == attempts // 2
    assert all(entry.release_hash for entry in entries)


def test_killed_fits_keep_the_books(url: str, tmp_path: Path) -> None:
    budget = budget_for(url, 15)
    assert drive("crash", budget.url, tmp_path, 20, 3)["killed"] >= 20
    entries = budget.history()
    assert len(entries) <= 15
    published = {json.loads(path.read_text())["hash"] for path in tmp_path.glob("*.json")}
    assert published <= {entry.release_hash for entry in entries}
    for _ in range(15 - len(entries)):
        budget.reserve(tiny_plan())
    with pytest.raises(BudgetExceeded):
        budget.reserve(tiny_plan())


def test_a_serialisable_server_does_not_disturb(url: str, tmp_path: Path) -> None:
    execute(url, "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'")
    try:
        budget = budget_for(url, 5)
        assert drive("race", budget.url, tmp_path, 4, 8)["codes"] == [0] * 4
        assert len(budget.history()) == 5
    finally:
        execute(url, "ALTER DATABASE postgres RESET default_transaction_isolation")


def test_other_versions_and_damage_are_errors(url: str) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(url)
    budget = Ledger.create(url).declare("a", epsilon=3, delta=0)
    budget.charge(pure(0.5))
    execute(url, "UPDATE dplangevin_ledger SET value = '9' WHERE name = 'schema'")
    with pytest.raises(LedgerError, match="upgrade dplangevin"):
        budget.charge(pure(0.5))
    execute(url, "UPDATE dplangevin_ledger SET value = '3' WHERE name = 'schema'")
    execute(url, "UPDATE dplangevin_guarantee SET content = replace(content, '0.5', '0.1')")
    _admission.clear_caches()
    with pytest.raises(LedgerError, match="altered"):
        budget.charge(pure(0.5))
    execute(url, "DROP TABLE dplangevin_entry")
    with pytest.raises(LedgerError, match="cannot be used"):
        budget.history()


def test_a_read_only_server_charges_nothing(url: str) -> None:
    budget = Ledger.create(url).declare("a", epsilon=3, delta=0)
    reader = replace(budget, url=f"{url}?options=-c%20default_transaction_read_only%3Don")
    with pytest.raises(LedgerError, match="read-only"):
        reader.charge(pure(0.5))
    assert reader.history() == ()
    budget.charge(pure(0.5))


def test_a_held_lock_is_an_error_in_the_end(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import psycopg

    monkeypatch.setattr(postgres_store, "WAIT_SECONDS", 1)
    budget = Ledger.create(url).declare("a", epsilon=3, delta=0)
    with psycopg.connect(url) as other:
        other.execute("SELECT * FROM dplangevin_dataset FOR UPDATE")
        with pytest.raises(LedgerError, match="another process has held it"):
            budget.charge(pure(0.5))
    budget.charge(pure(0.5))


def test_no_server_is_an_error_without_secrets() -> None:
    with pytest.raises(LedgerError, match="cannot be used") as refused:
        Ledger.open("postgresql://ada:hushhush@127.0.0.1:1/books")
    assert "hushhush" not in str(refused.value)


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(LedgerError, match=r"pip install 'dplangevin\[postgres\]'"):
        Ledger.open("postgresql://ada@127.0.0.1:1/books")
