"""The ledger under kill -9 and under a race: no release without its cost, never more than the budget."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dplangevin.accounting import conversions as cv
from dplangevin.errors import BudgetExceeded
from dplangevin.ledger import DatasetBudget, Ledger
from unit._ledger import tiny_plan

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
DRIVER = Path(__file__).with_name("_ledger_driver.py")
DELTA = 1e-5


def drive(*arguments: object) -> dict[str, Any]:
    """Run the driver and return what it prints."""
    command = [sys.executable, str(DRIVER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def budget_for(url: str, releases: int) -> DatasetBudget:
    """A budget that fits exactly so many tiny runs: between the cost of so many and one more.

    Nearer to the latter: of a hundred Gaussian releases the filter keeps about six tenths of one as its reserve.
    """
    mu = tiny_plan().guarantee.mu
    assert mu is not None
    epsilon = cv.gdp_epsilon(mu * math.sqrt(releases + 0.9), DELTA)
    return Ledger.create(url).declare("tiny", epsilon=epsilon, delta=DELTA)


def published(folder: Path) -> list[str]:
    """Hashes of the releases that exist."""
    return [json.loads(path.read_text())["hash"] for path in folder.glob("*.json")]


def check_books(budget: DatasetBudget, folder: Path, fitting: int) -> tuple[int, int]:
    """Every release is in the books and the books are within the budget; returns charges and releases."""
    entries = budget.history()
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    paid = [entry.release_hash for entry in entries if entry.release_hash is not None]
    assert set(published(folder)) <= set(paid)
    assert len(set(paid)) == len(paid)
    assert len(entries) <= fitting
    mu = tiny_plan().guarantee.mu
    assert mu is not None
    left = budget.remaining()
    assert float(cv.gdp_delta(mu * math.sqrt(len(entries)), left.epsilon)) <= left.delta
    return len(entries), len(paid)


def crash_course(tmp_path: Path, kills: int, fitting: int, seed: int) -> int:
    """Kill so many fits, check the books, spend the rest; returns how many paid and released nothing."""
    file = tmp_path / "ledger.db"
    budget = budget_for(f"sqlite:///{file}", fitting)
    found = drive("crash", budget.url, tmp_path, kills, seed)
    charged, released = check_books(budget, tmp_path, fitting)
    assert found["killed"] >= kills
    assert charged >= released >= 1
    with sqlite3.connect(file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
    for _ in range(fitting - charged):  # what no crash has spent is still there, and not a release more
        budget.reserve(tiny_plan())
    with pytest.raises(BudgetExceeded):
        budget.reserve(tiny_plan())
    check_books(budget, tmp_path, fitting)
    return charged - released


def test_killed_fits_keep_the_books(tmp_path: Path) -> None:
    crash_course(tmp_path, kills=20, fitting=15, seed=1)


@pytest.mark.slow
def test_two_hundred_killed_fits_keep_the_books(tmp_path: Path) -> None:
    assert crash_course(tmp_path, kills=200, fitting=100, seed=2) > 0


def test_eight_processes_race_for_fifty_of_a_hundred(tmp_path: Path) -> None:
    budget = budget_for(f"sqlite:///{tmp_path / 'ledger.db'}", 50)
    assert drive("race", budget.url, tmp_path, 8, 100)["codes"] == [0] * 8
    assert len(published(tmp_path)) == 50
    assert check_books(budget, tmp_path, 50) == (50, 50)
