"""Nothing is paid for a result that cannot be delivered, and nothing that is paid for is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dplangevin import DPLogisticRegression, DPRidge, private_score, private_selection
from dplangevin.accounting.delivery import Delivery
from dplangevin.cli.main import run_command_line
from dplangevin.datasets import load_income
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators import model_file
from dplangevin.ledger import Ledger

URL = "sqlite:///budget.db"
CHARGE = ["--ledger", URL, "--dataset", "people"]
SCHEMA = ["--schema", "schema.json", "--target", "income"]
COMMANDS = {
    "fit": ["fit", "people.csv", *SCHEMA, "--epsilon", "1", *CHARGE],
    "sample": ["sample", "people.csv", *SCHEMA, "--epsilon", "1", "--radius", "1", *CHARGE],
    "rashomon": [
        "rashomon", "people.csv", *SCHEMA, "--epsilon", "1", "--radius", "1", "--threshold", "0.1", "--n-models", "2",
        *CHARGE,
    ],
    "count": [
        "count", "people.csv", "--schema", "schema.json", "--marginals", "1", "--epsilon", "1", "--delta", "1e-6",
        *CHARGE,
    ],
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    people, schema = load_income(n=300)
    people.to_csv("people.csv", index=False)
    schema.save("schema.json")
    Ledger.create(URL).declare("people", epsilon=5.0, delta=1e-4)
    Path("a_folder").mkdir()
    Path("a_file").write_text("")
    return tmp_path


def _charged() -> int:
    return Ledger.open(URL).dataset("people").remaining().entries


@pytest.mark.parametrize(
    ("command", "more", "words"),
    [
        ("fit", ["-o", "nowhere/model.json"], "--output: the directory"),
        ("fit", ["-o", "a_folder"], "is a directory"),
        ("fit", ["-o", "people.csv"], "a file that the command reads"),
        ("fit", ["-o", "./a_folder/../schema.json"], "a file that the command reads"),
        ("fit", ["-o", "budget.db"], "is the ledger"),
        ("fit", ["-o", "model.json", "--report", "nowhere/r.html"], "does not exist"),
        ("fit", ["-o", "model.json", "--report", "model.json"], "the file of --output"),
        ("fit", ["-o", "model.json", "--report", "report.pdf"], "must end in"),
        ("fit", ["-o", "model.json", "--checkpoint", "model.json"], "the file of --output"),
        ("fit", ["-o", "model.json", "--checkpoint", "nowhere/state"], "--checkpoint"),
        ("fit", ["-o", "model.json", "--compare"], "compare"),
        ("fit", ["-o", "model.json", "--public", "people.csv"], "private table itself"),
        ("sample", ["--checkpoint", "nowhere/state"], "--checkpoint"),
        ("sample", ["--checkpoint", "people.csv"], "a file that the command reads"),
        ("rashomon", ["--report", "nowhere/report.html"], "does not exist"),
        ("rashomon", ["--report", "people.csv"], "must end in"),
        ("rashomon", ["-o", "a_file"], "cannot be created"),
        ("rashomon", ["--checkpoint", "nowhere/state"], "--checkpoint"),
        ("rashomon", ["--group", "nonsense"], "--group"),
        ("rashomon", ["--public", "narrow.csv"], "no column"),
        ("count", ["--output", "nowhere/counts.csv"], "does not exist"),
        ("count", ["--output", "people.csv"], "a file that the command reads"),
        ("count", ["--output", "counts.txt"], "must end in"),
        ("count", ["--total", "-3"], "--total must not be negative"),
        ("count", ["--total", "inf"], "--total must not be negative"),
    ],
)
def test_what_cannot_be_delivered_costs_nothing(
    command: str, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pd.DataFrame({"age": [20, 30]}).to_csv("narrow.csv", index=False)
    before = Path("people.csv").read_bytes(), Path("schema.json").read_bytes()
    assert run_command_line([*COMMANDS[command], *more]) == 2
    assert words in capsys.readouterr().err
    assert _charged() == 0
    assert (Path("people.csv").read_bytes(), Path("schema.json").read_bytes()) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_what_can_be_delivered_is_charged_once(command: str) -> None:
    outputs = {"fit": ["-o", "model.json", "--report", "r.html"], "rashomon": ["-o", "new/folder"]}
    assert run_command_line([*COMMANDS[command], *outputs.get(command, []), "-q"]) == 0
    assert _charged() == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
@pytest.mark.parametrize(("command", "name"), [("fit", "model.json"), ("count", "counts.json")])
def test_a_full_disk_loses_nothing(command: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).symlink_to("/dev/full")
    assert run_command_line([*COMMANDS[command], "--output", name, "-q"]) == 2
    said = capsys.readouterr().err
    rescued = Path(name).with_suffix("").name + ".rescued.json"
    assert "charged and not lost" in said
    assert rescued in said
    assert json.loads(Path(rescued).read_text())
    assert _charged() == 1


def test_the_last_resort_is_to_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with Delivery("fit", "", None, None, print) as delivery:
        delivery.add_result("the model", tmp_path / "model.json", full, lambda: "all of it")
        with pytest.raises(DplangevinError, match="it was printed"):
            delivery.finish()
    assert capsys.readouterr().out == "all of it\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "--n", "100", "--n-features", "2", "--epsilon", "1", "-o", "nowhere/plan.json"],
        ["predict", "model.json", "people.csv", "-o", "people.csv"],
        ["predict", "model.json", "people.csv", "-o", "nowhere/out.csv"],
        ["report", "model.json", "nowhere/report.html"],
        ["reproduce", "packing", "-o", "a_file"],
        ["ledger", "export", "--ledger", URL, "-o", "budget.db"],
        ["ledger", "export", "--ledger", URL, "-o", "nowhere/x.json"],
        ["audit", "--model", "ridge", "--epsilon", "1", "--report", "a_folder/none/x.html"],
        ["audit", "pipeline", "json:dumps", "--table", "people.csv", "-o", "people.csv"],
        ["schema", "init", "--columns", "a", "-o", "nowhere/schema.toml"],
    ],
)
def test_every_command_checks_its_output_first(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in Path().iterdir() if path.is_file()}
    assert run_command_line(arguments) == 2
    said = capsys.readouterr()
    assert "error: " in said.err
    assert "internal" not in said.err
    assert {path: path.read_bytes() for path in Path().iterdir() if path.is_file()} == before


class _Spy:
    """A spender that counts."""

    def __init__(self) -> None:
        self.charged = 0

    def reserve(self, plan: Any) -> str:
        self.charged += 1
        return "token"

    def commit(self, token: str, release_hash: str) -> None:
        pass


X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
Y = (X[:, 0] > 0).astype(int)
STATED: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "data_norm": 1.5, "random_state": 0}
FITTED = DPLogisticRegression(classes=[0, 1], **STATED).fit(X, Y)
NAMED = DPLogisticRegression(classes=[0, 1], **STATED).fit(pd.DataFrame(X, columns=["a", "b"]), Y)
WIDE = np.hstack([X, X])


def _logistic(**changes: Any) -> Callable[[_Spy], object]:
    return lambda spy: DPLogisticRegression(**{"classes": [0, 1], **STATED, **changes}, ledger=spy).fit(X, Y)


@pytest.mark.parametrize(
    "call",
    [
        _logistic(random_state="x"),
        _logistic(intervals=2.0),
        _logistic(intervals=True, interval_budget=2.0),
        _logistic(secure="yes"),
        _logistic(compare=True),
        _logistic(public_method="nonsense"),
        _logistic(public_data=(X[:50], Y[:50]), public_method="nonsense"),
        _logistic(public_data=(X[:50, :1], Y[:50])),
        _logistic(mechanism="nonsense"),
        _logistic(theorem="nonsense"),
        _logistic(checkpoint="/nonexistent/state"),
        _logistic(max_rows_per_person=0),
        lambda spy: DPLogisticRegression(classes=[0, 1], **STATED, ledger=spy).fit(X, Y, np.ones(3)),
        lambda spy: DPRidge(target_bounds=(1, 0), **STATED, ledger=spy).fit(X, X[:, 0]),
        lambda spy: private_score(FITTED, WIDE, Y, epsilon=1.0, ledger=spy),
        lambda spy: private_score(DPLogisticRegression(**STATED), X, Y, epsilon=1.0, ledger=spy),
        lambda spy: private_score(
            NAMED, pd.DataFrame(X, columns=["a", "c"]), Y, epsilon=1.0, ledger=spy
        ),
        lambda spy: private_score(FITTED, X, Y, epsilon=1.0, level=2, ledger=spy),
        lambda spy: private_score(FITTED, X, Y, epsilon=1.0, random_state="x", ledger=spy),
        lambda spy: private_selection([FITTED, FITTED], WIDE, Y, epsilon=1.0, ledger=spy),
    ],
)  # fmt: skip
def test_python_calls_check_their_arguments_first(call: Callable[[_Spy], object]) -> None:
    spy = _Spy()
    with pytest.raises(DplangevinError):
        call(spy)
    assert spy.charged == 0


def test_a_table_without_a_column_of_the_model_costs_nothing() -> None:
    people, schema = load_income(n=300)
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, schema=schema, random_state=0)
    model.fit(people, people["income"])
    spy = _Spy()
    with pytest.raises(InvalidParameter, match="no column 'age'"):
        private_score(model, people.drop(columns="age"), people["income"], epsilon=1.0, ledger=spy)
    assert spy.charged == 0


def test_a_model_that_cannot_be_saved_stays_fitted(tmp_path: Path) -> None:
    with pytest.raises(DplangevinError, match=r"still fitted.*save_model"):
        model_file.save_model(FITTED, tmp_path / "nowhere" / "model.json")
    model_file.save_model(FITTED, tmp_path / "model.json")
    assert np.array_equal(model_file.load_model(tmp_path / "model.json").predict(X), FITTED.predict(X))


@pytest.mark.parametrize(("adjacency", "rows"), [("add-remove", 1), ("replace-one", 3)])
def test_counts_are_charged_to_the_people_that_were_stated(adjacency: str, rows: int) -> None:
    """A ledger for other people, or other neighbours, would refuse what was asked for."""
    budget = Ledger.open(URL).declare(
        "others", epsilon=5.0, delta=1e-4, adjacency=adjacency, max_rows_per_person=rows
    )
    stated = ["--adjacency", adjacency, "--max-rows-per-person", str(rows)]
    assert run_command_line([*COMMANDS["count"][:-1], "others", *stated, "-o", "counts.json"]) == 0
    (entry,) = budget.history()
    assert (entry.guarantee.adjacency, entry.guarantee.rows_per_person) == (adjacency, rows)


@pytest.mark.parametrize("half", [CHARGE[:2], CHARGE[2:]])
def test_half_of_a_budget_is_no_budget(half: list[str]) -> None:
    """A command that dropped the other half would release without a charge."""
    assert run_command_line([*COMMANDS["count"][: -len(CHARGE)], *half, "-o", "counts.json"]) != 0
    assert not Path("counts.json").exists()
