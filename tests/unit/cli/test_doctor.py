"""`dplangevin doctor`: what it sees, and what it warns of."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from dplangevin.cli import main
from dplangevin.cli.main import run_command_line
from dplangevin.ledger import Ledger
from unit._ledger import pure


def examined(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> dict[str, tuple[str, str]]:
    assert run_command_line(["doctor", "--json", *arguments]) == code
    return {
        each["subject"]: (each["status"], each["message"]) for each in json.loads(capsys.readouterr().out)
    }


def test_a_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = examined(capsys)
    assert {state for state, _ in found.values()} == {"ok"}
    assert {"dplangevin", "libraries", "arithmetic", "kernels", "generator", "system clock"} <= set(found)
    assert run_command_line(["doctor"]) == 0
    assert "IEEE double precision" in capsys.readouterr().out


def test_a_ledger_is_looked_at_and_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ledger.db"
    url = f"sqlite:///{file}"
    found = examined(capsys, "--ledger", url, code=2)
    assert found["ledger"][0] == "failure"
    assert not file.exists()
    budget = Ledger.create(url).declare("a", epsilon=1, delta=0)
    budget.charge(pure(0.5))
    tmp_path.chmod(0o700)
    found = examined(capsys, "--ledger", url)
    assert "1 data sets, 1 entries" in found["ledger"][1]
    assert found["ledger permissions"][0] == "ok"
    assert budget.history()[0].sequence == 1
    file.chmod(0o644)
    assert found != (worse := examined(capsys, "--ledger", url))
    assert worse["ledger permissions"][0] == "warning"
    assert "chmod 600" in worse["ledger permissions"][1]


def test_a_repeating_generator_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: bytes(size))
    assert examined(capsys, code=2)["generator"][0] == "failure"


def test_needed_are_the_libraries_that_the_package_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An extra that is not installed is no fault."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    needed = {re.split("[>=<]", each)[0] for each in project["dependencies"]}
    assert set(main._REQUIRED_LIBRARIES) <= needed
    honest = main._installed_version
    monkeypatch.setattr(main, "_installed_version", lambda name: None if name == "pandas" else honest(name))
    assert "not installed: pandas" in examined(capsys)["optional libraries"][1]
    monkeypatch.setattr(main, "_installed_version", lambda name: None)
    assert examined(capsys, code=2)["libraries"][0] == "failure"
