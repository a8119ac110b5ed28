"""A ledger that is older than a release is noticed by whoever holds a head; backups, restores, and entering again."""

from __future__ import annotations

import json
import pickle
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dplangevin import report
from dplangevin.cli.ledger import app
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.estimators import DPLogisticRegression
from dplangevin.estimators.model_file import UNSEALED_CONDITION, load_model as load, save_model as save
from dplangevin.ledger import DatasetBudget, Ledger, _admission, read_head
from dplangevin.ledger._heads import read_release_file
from dplangevin.mechanisms.mechanism import run_plan
from dplangevin.queries import column, count_queries
from unit._ledger import pure, tiny_data, tiny_plan


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def budget(file: Path) -> DatasetBudget:
    return Ledger.create(f"sqlite:///{file}").declare("a", epsilon=50, delta=1e-5)


def put_back(copy: Path, file: Path) -> None:
    """What a hasty operator does: the old file over the new one."""
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    shutil.copy(copy, file)


def test_heads_grow_with_every_charge_and_stay_known(budget: DatasetBudget) -> None:
    ledger, seen = Ledger.open(budget.url), [budget.head()]
    for _ in range(5):
        budget.charge(pure(0.5))
        seen.append(budget.head())
    assert [int(head.partition("-")[0]) for head in seen] == list(range(6))
    assert [entry.head for entry in budget.history()] == seen[1:]
    assert ledger.verify(*seen) == ledger.heads() == {"a": seen[-1]}
    assert Ledger.open(budget.url, expect=seen) == ledger
    assert Ledger.open(budget.url, expect=seen[2]) == ledger
    changed = seen[3][:-1] + ("0" if seen[3][-1] != "0" else "1")
    for wrong in (changed, "4-" + seen[3].partition("-")[2]):
        with pytest.raises(LedgerError, match="older than a release"):
            Ledger.open(budget.url, expect=wrong)
    for text in ("", "5", "x-" + "a" * 64, "05-" + "a" * 64, 7):
        with pytest.raises(InvalidParameter, match="head"):
            Ledger.open(budget.url, expect=[text])  # type: ignore[list-item]


def test_fifty_restores_of_older_files_are_noticed(
    file: Path, budget: DatasetBudget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    copies, rng = [], np.random.default_rng(3)
    for place in range(10):
        copies.append(tmp_path / f"copy{place}.db")
        Ledger.open(budget.url).backup(copies[-1])
        budget.charge(pure(0.1))
    head, newest = budget.head(), Ledger.open(budget.url).backup(tmp_path / "newest.db")
    for turn in range(50):
        monkeypatch.setenv("DPLANGEVIN_STATE", str(state))
        put_back(newest, file)
        _admission.clear_caches()
        assert budget.remaining().entries == 10
        put_back(copies[int(rng.integers(0, 10))], file)
        with pytest.raises(LedgerError, match="older than a release"):
            Ledger.open(budget.url, expect=head)
        with pytest.raises(LedgerError, match="older than it was"):
            budget.charge(pure(0.1))  # this process has seen more, head or no head
        _admission.clear_caches()
        with pytest.raises(LedgerError, match="older than it was"):
            budget.charge(pure(0.1))  # nor does another process of the same user
        monkeypatch.setenv("DPLANGEVIN_STATE", str(tmp_path / f"another_user{turn}"))
        for _ in range(turn % 12):  # where nobody has seen more, spending on does not hide it
            budget.charge(pure(0.01))
        with pytest.raises(LedgerError, match="older than a release"):
            Ledger.open(budget.url).verify(head)
        Ledger.open(budget.url, expect=budget.head())


def test_a_copy_without_its_log_is_noticed(file: Path, budget: DatasetBudget, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as other:
        other.execute("SELECT * FROM dplangevin_entry").fetchall()  # somebody else is there, so the log stays
        budget.charge(pure(0.5))
        head = budget.head()
        shutil.copy(file, tmp_path / "torn.db")
        Ledger.open(budget.url).backup(tmp_path / "whole.db")
    Ledger.open(f"sqlite:///{tmp_path}/whole.db", expect=head)
    with pytest.raises(LedgerError, match="older than a release"):
        Ledger.open(f"sqlite:///{tmp_path}/torn.db", expect=head)


def test_another_ledger_with_the_same_charges_is_another_ledger(
    budget: DatasetBudget, tmp_path: Path
) -> None:
    broken_copy = Ledger.create(f"sqlite:///{tmp_path}/twin.db")
    broken_copy.declare("a", epsilon=50, delta=1e-5).charge(pure(0.5))
    budget.charge(pure(0.5))
    with pytest.raises(LedgerError, match="another ledger"):
        broken_copy.verify(budget.head())


def test_a_restore_forgets_and_releases_are_entered_again(budget: DatasetBudget, tmp_path: Path) -> None:
    ledger = Ledger.open(budget.url)
    budget.charge(pure(0.5))
    copy = ledger.backup(tmp_path / "copy.db")
    assert copy.stat().st_mode & 0o777 == 0o600
    with pytest.raises(LedgerError, match="is not overwritten"):
        ledger.backup(copy)
    budget.commit(budget.charge(pure(49.0)), "ff")
    head = budget.head()
    with pytest.raises(LedgerError, match="there is a file already"):
        Ledger.restore(budget.url, copy)
    with pytest.raises(LedgerError, match="older than a release"):
        Ledger.restore(f"sqlite:///{tmp_path}/new.db", copy, expect=head)
    restored = Ledger.restore(f"sqlite:///{tmp_path}/new.db", copy)
    again = restored.dataset("a")
    assert len(again.history()) == 1
    with pytest.raises(LedgerError, match="accept-restore"):
        again.charge(pure(2.0))
    assert restored.accept_restore() == {"a": f"seen {head}, there is {again.head()}"}
    again.charge(pure(2.0))
    again.enter_release(pure(49.0), "ff", lost_head=head)  # it exists, so it counts, though it does not fit
    assert again.remaining().pure_epsilon == 0
    assert again.remaining().n_over_budget == 1
    assert again.history()[-1].release_hash == "ff"
    restored.verify(head)


# --- what carries a head -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("plan", ['["lost_head"]', '"lost_head"', '{"lost_head": ["a"]}', '{"lost_head"'])
def test_a_strange_plan_of_a_spender_is_no_crash(budget: DatasetBudget, plan: str) -> None:
    """A spender may write any line as its plan, well chained; whoever verifies is told, or not disturbed."""
    budget._charge(pure(1.0), plan, "a-token")
    try:
        assert list(Ledger.open(budget.url).verify()) == [budget.name]
    except LedgerError as error:
        assert "a plan cannot be read" in str(error)  # noqa: PT017


def test_releases_models_and_reports_carry_the_head(budget: DatasetBudget, tmp_path: Path) -> None:
    plan = tiny_plan()
    release = run_plan(plan, tiny_data(plan), ledger=budget)
    assert release.ledger_head == budget.head() == pickle.loads(pickle.dumps(release)).ledger_head
    assert run_plan(plan, tiny_data(plan)).ledger_head is None
    report.write_report(release, tmp_path / "release.json", ledger=budget)
    assert read_head(tmp_path / "release.json") == release.ledger_head
    assert json.loads((tmp_path / "release.json").read_text())["ledger"]["head"] == budget.head()
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=2**0.5, classes=[0, 1], ledger=budget)
    model.fit(X, (X[:, 0] > 0).astype(int))
    save(model, tmp_path / "model.json")
    assert read_head(tmp_path / "model.json") == budget.head() == load(tmp_path / "model.json").ledger_head_
    report.write_report(model, tmp_path / "model.html")
    assert budget.head() in (tmp_path / "model.html").read_text()
    Ledger.open(budget.url, expect=[release.ledger_head, read_head(tmp_path / "model.json")])


def test_counts_carry_the_head(budget: DatasetBudget) -> None:
    import pandas as pd

    frame = pd.DataFrame({"age": [20, 30, 40]})
    table = count_queries(frame, {"older": column("age") > 25}, epsilon=1.0, delta=1e-6, ledger=budget)
    assert table.ledger_head == budget.head()  # type: ignore[attr-defined]


def test_older_model_files_open(budget: DatasetBudget, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (100, 2))
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=2**0.5, classes=[0, 1])
    save(model.fit(X, (X[:, 0] > 0).astype(int)), tmp_path / "model.json")
    plain = json.loads((tmp_path / "model.json").read_text())
    del plain["ledger_head"], plain["digest"]
    (tmp_path / "model.json").write_text(json.dumps(plain))
    assert load(tmp_path / "model.json").ledger_head_ is None  # type: ignore[attr-defined]
    with pytest.raises(InvalidParameter, match="carries no head"):
        read_head(tmp_path / "model.json")


def test_an_edited_model_file_is_reported(tmp_path: Path) -> None:
    """A smaller guarantee in a file is refused; without its digest it is loaded, and says that it may be edited."""
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=2**0.5, classes=[0, 1])
    path = tmp_path / "model.json"
    rows = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    save(model.fit(rows, (rows[:, 0] > 0).astype(int)), path)
    assert UNSEALED_CONDITION not in load(path).privacy_.conditions  # type: ignore[attr-defined]
    plain = json.loads(path.read_text())
    for part in plain["guarantee"]["parts"]:
        part["mu"] = 1e-6
    path.write_text(json.dumps(plain))
    for read in (load, read_release_file, read_head):
        with pytest.raises(InvalidParameter, match="altered"):
            read(path)
    del plain["digest"]
    path.write_text(json.dumps(plain))
    for _ in range(2):  # and it stays told when it is saved again
        found = load(path)
        assert found.privacy_.conditions.count(UNSEALED_CONDITION) == 1  # type: ignore[attr-defined]
        save(found, path)


# --- from the command line ---------------------------------------------------------------------------------------


def ask(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_commands(budget: DatasetBudget, tmp_path: Path) -> None:
    url = budget.url
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    ask("backup", "--ledger", url, tmp_path / "copy.db")
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, data_norm=2**0.5, classes=[0, 1], ledger=budget)
    save(model.fit(X, (X[:, 0] > 0).astype(int)), tmp_path / "model.json")
    assert ask("head", "--ledger", url) == f"{budget.head()} a\n"
    assert json.loads(ask("head", "--ledger", url, "--json")) == {"a": budget.head()}
    assert "1 heads are held" in ask("verify", "--ledger", url, tmp_path / "model.json")
    lost = f"sqlite:///{tmp_path}/lost.db"
    assert "forgotten" in ask("restore", "--ledger", lost, tmp_path / "copy.db")
    with pytest.raises(LedgerError, match="older than a release"):
        ask("verify", "--ledger", lost, tmp_path / "model.json")
    left = budget.remaining().gaussian_mu
    assert "still count" in ask("accept-restore", "--ledger", lost)
    ask("enter", "--ledger", lost, "--dataset", "a", tmp_path / "model.json")
    ask("verify", "--ledger", lost, "--head", tmp_path / "model.json")
    assert Ledger.open(lost).dataset("a").remaining().gaussian_mu == left
    with pytest.raises(LedgerError, match="older than it was, or a copy"):
        budget.remaining()  # the first file is now the copy that was left behind
