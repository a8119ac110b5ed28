"""`dplangevin doctor`: what it sees, and what it warns of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dplangevin.cli.main import run
from dplangevin.ledger import Ledger
from unit._ledger import pure


def examined(
    capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0
) -> dict[str, tuple[str, str]]:
    assert run(["doctor", "--json", *arguments]) == code
    return {each["what"]: (each["state"], each["words"]) for each in json.loads(capsys.readouterr().out)}


def test_a_healthy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = examined(capsys)
    assert {state for state, _ in found.values()} == {"ok"}
    assert {"dplangevin", "libraries", "arithmetic", "kernels", "generator", "system clock"} <= set(found)
    assert run(["doctor"]) == 0
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
