"""From a raw table on the command line: what is learned is shown, what is wrong is said and not charged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dplangevin import Ledger
from dplangevin.cli.main import run_command_line

FIT = [
    "fit",
    "raw.csv",
    "--target",
    "sick",
    "--classes",
    "no,yes",
    "--epsilon",
    "4",
    "-o",
    "m.json",
    "--random-state",
    "0",
]
CHARGE = ["--ledger", "sqlite:///l.db", "--dataset", "d"]


@pytest.fixture(autouse=True)
def messy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that are no numbers, labels with commas, a column without a cell, rows of nobody, an unknown class."""
    monkeypatch.chdir(tmp_path)
    rng, n = np.random.default_rng(0), 3000
    age = rng.integers(18, 90, n)
    table = pd.DataFrame({"patient id": rng.integers(1, 1500, n).astype(object), "age": age.astype(object)})
    table["job"] = rng.choice(["nurse", "smith, sen.", "B\u00e4cker", ""], n)
    table["sick"] = np.where(rng.random(n) < 1 / (1 + np.exp((50 - age) / 12)), "yes", "no")
    table.loc[:6, "age"] = ["?", "unknown", "", "1e999", "nan", " 42 ", "-1"]
    table.loc[:3, "patient id"], table.loc[5, "sick"] = "", "maybe"
    table.assign(empty="").to_csv("raw.csv", index=False)


def test_what_was_learned_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line([*FIT, "--learn", "age=number,job=category,empty=number"]) == 0
    said = capsys.readouterr().out
    assert "Learned the range -1 to 1 for empty." in said
    assert "Learned the categories 'B\u00e4cker', 'nurse', 'smith, sen.' for job." in said
    by_person = ["--person", "patient id", "--max-rows-per-person", "2", "--n-public", "2900", "--json"]
    assert run_command_line([*FIT, "--learn", "age=number", *by_person]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["guarantee"]["epsilon"] <= 4
    assert found["schema"]["columns"]["age"]["range"][1] > 60


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--learn", "age"], "--learn 'patient id=number|category,age=number|category,job"),
        (["--learn", "age=int"], "must be 'number', 'category'"),
        (["--learn", "height=number"], "no column 'height'"),
        (["--learn", "age=number,job=category", "--delta", "0"], "pure epsilon-DP"),
        (["--learn", "age=number", "--person", "patient id"], "needs n_public="),
    ],
)
def test_mistakes_are_said_and_not_charged(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = Ledger.create("sqlite:///l.db").declare("d", epsilon=9.0, delta=1e-4)
    assert run_command_line([*FIT, *options, *CHARGE]) != 0
    assert words in capsys.readouterr().err
    assert not budget.history()
    assert not Path("m.json").exists()
