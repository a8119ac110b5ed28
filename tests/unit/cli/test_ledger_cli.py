"""`dplangevin ledger`: declare, show, history, export."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dplangevin.accounting import conversions as cv
from dplangevin.cli.ledger import app
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.mechanism import run_plan
from unit._ledger import pure, tiny_data, tiny_plan

ROOT = typer.Typer(pretty_exceptions_enable=False)
ROOT.callback()(lambda: None)
ROOT.add_typer(app, name="ledger")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'ledger.db'}"


def ask(*arguments: str, **environment: str) -> str:
    """What a command prints; its errors are raised, as the entry point expects."""
    done = CliRunner().invoke(ROOT, ["ledger", *arguments], env=environment, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def declare(url: str, name: str = "census", epsilon: str = "5", delta: str = "0", *more: str) -> str:
    if not Path(url.removeprefix("sqlite:///")).exists():
        ask("init", "--ledger", url)
    return ask(
        "declare", "--ledger", url, "--dataset", name, "--epsilon", epsilon, "--delta", delta, *more
    )  # fmt: skip


def test_a_ledger_from_the_command_line(url: str) -> None:
    assert declare(url) == "census: epsilon = 5, delta = 0 (replace-one)\n"
    budget = Ledger.open(url).dataset("census", label="Ada: mean income")
    budget.commit(budget.charge(pure(1.5)), "ab" * 32)
    budget.charge(pure(1.0))
    assert ask("show", "--ledger", url) == (
        "census: budget epsilon = 5, delta = 0 (replace-one), 2 releases charged; "
        "would fit: pure epsilon = 2.5; about 2 more like the last one\n"
    )
    first, second = ask("history", "--ledger", url, "--dataset", "census").splitlines()
    assert first.startswith("1 20")
    assert first.endswith("composition, release abababababab: Ada: mean income")
    assert "epsilon = 1.5 at delta = 0" in first
    assert "no release came back" in second


def test_show_names_what_would_fit(url: str) -> None:
    declare(url, "a", "3", "1e-6")
    declare(url, "b", "1", "0", "--adjacency", "add-remove", "--part", "north", "--part", "south")
    Ledger.open(url).dataset("b").for_part("south").charge(pure(0.25, adjacency="add-remove"))
    shown = ask("show", "--ledger", url)
    assert "a: budget epsilon = 3, delta = 1e-06" in shown
    assert f"(GDP mu = {math.floor(1e4 * cv.gdp_mu(3, 1e-6)) / 1e4:.4g}), or pure epsilon = 3\n" in shown
    found = json.loads(ask("show", "--json", "--dataset", "b", DPLANGEVIN_LEDGER=url))
    assert found["b"]["pure_epsilon"] == 0.75
    assert found["b"]["pure_epsilon"] == 0.75


def test_history_and_export_as_json(url: str, tmp_path: Path) -> None:
    declare(url, "a", "9", "1e-5")
    plan, budget = tiny_plan(), Ledger.open(url).dataset("a")
    release = run_plan(plan, tiny_data(plan), ledger=budget)
    (entry,) = json.loads(ask("history", "--ledger", url, "--dataset", "a", "--json"))
    assert entry["release_hash"] == release.digest()
    assert entry["plan"]["mechanism"] == plan.spec.mechanism
    printed: dict[str, Any] = json.loads(ask("export", "--ledger", url))
    assert printed == json.loads(json.dumps(Ledger.open(url).export()))
    ask("export", "--ledger", url, "--output", str(tmp_path / "out.json"))
    assert json.loads((tmp_path / "out.json").read_text()) == printed


def test_looking_declares_nothing(url: str) -> None:
    for command in (["show"], ["export"], ["history", "--dataset", "a"]):
        with pytest.raises(LedgerError, match=r"no ledger.*ledger init"):
            ask(*command, "--ledger", url)
    assert ask("init", "--ledger", url) == f"created {url}\n"
    assert "no data set yet" in ask("show", "--ledger", url)
    for command in ("show", "history"):
        with pytest.raises(LedgerError, match="it has: none"):
            ask(command, "--ledger", url, "--dataset", "a")
    assert Ledger.open(url).dataset_names() == ()


def test_bad_budgets_are_refused(url: str) -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        declare(url, "a", "-1")
    declare(url, "a", "2")
    with pytest.raises(InvalidParameter, match="does not change"):
        declare(url, "a", "3")
