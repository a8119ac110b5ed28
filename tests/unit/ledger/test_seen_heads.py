"""The latest head that a user has seen is remembered across processes, from the first entry, by ledger, not by path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from dplangevin import _files
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger import DatasetBudget, Ledger, _admission, _heads
from unit._ledger import pure

SPEND = """
import sys, warnings
from dplangevin.errors import BudgetExceeded, LedgerError
from dplangevin.ledger import Ledger
from unit._ledger import pure
budget, made = Ledger.open(sys.argv[1]).dataset("a"), 0
try:
    for _ in range(int(sys.argv[2])):
        budget.charge(pure(1.0))
        made += 1
except (BudgetExceeded, LedgerError) as error:
    print(type(error).__name__, file=sys.stderr)
print(made)
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPLANGEVIN_STATE", str(tmp_path / "state"))
    _files._warned_of_state_folder.clear()
    return tmp_path / "state" / "dplangevin" / "heads"


@pytest.fixture
def budget(tmp_path: Path) -> DatasetBudget:
    return Ledger.create(f"sqlite:///{tmp_path}/ledger.db").declare("a", epsilon=10, delta=0)


def copied(budget: DatasetBudget, name: str) -> Path:
    return Ledger.open(budget.url).backup(Path(budget.url.removeprefix("sqlite:///")).with_name(name))


def put_back(copy: Path, budget: DatasetBudget) -> None:
    file = Path(budget.url.removeprefix("sqlite:///"))
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    shutil.copy(copy, file)


def spend(url: str, times: int) -> tuple[int, str]:
    """Charge so often in a process of its own."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SPEND, url, str(times)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), done.stderr.strip()


def test_ten_releases_where_ten_fit_whatever_is_put_back(budget: DatasetBudget) -> None:
    """The fault: four charges, the empty file put back, and a new process spent ten more."""
    empty = copied(budget, "empty.db")
    for _ in range(4):
        budget.charge(pure(1.0))
    put_back(empty, budget)
    assert spend(budget.url, 10) == (0, "LedgerError")
    assert budget.head().startswith("0-")


def test_from_the_first_entry(budget: DatasetBudget) -> None:
    empty = copied(budget, "empty.db")
    budget.charge(pure(1.0))
    put_back(empty, budget)
    _admission.clear_caches()
    with pytest.raises(LedgerError, match="you have seen 1 entries"):
        budget.charge(pure(1.0))
    with pytest.raises(LedgerError, match="older"):
        budget.remaining()
    assert budget.history() == ()  # looking at the rows themselves is free


def test_a_copy_elsewhere_is_the_same_ledger(budget: DatasetBudget) -> None:
    budget.charge(pure(1.0))
    copy = DatasetBudget(url=f"sqlite:///{copied(budget, 'copy.db')}", name="a")
    assert copy.remaining().entries == 1  # as new as what was seen
    budget.charge(pure(1.0))
    with pytest.raises(LedgerError, match="older than it was"):
        copy.charge(pure(1.0))


def test_of_two_branches_the_one_that_was_seen_goes_on(budget: DatasetBudget, tmp_path: Path) -> None:
    budget.charge(pure(1.0))
    copy = DatasetBudget(url=f"sqlite:///{copied(budget, 'copy.db')}", name="a")
    copy.charge(pure(1.0))
    copy.charge(pure(1.0))
    with pytest.raises(LedgerError, match="older than it was"):
        budget.charge(pure(1.0))
    with pytest.MonkeyPatch.context() as other:  # another user spends on the first file, past the copy
        other.setenv("DPLANGEVIN_STATE", str(tmp_path / "other"))
        _admission.clear_caches()
        for _ in range(4):
            budget.charge(pure(1.0))
    _admission.clear_caches()
    with pytest.raises(LedgerError, match="a copy that diverged"):
        budget.charge(pure(1.0))
    copy.charge(pure(1.0))


def test_the_way_back(budget: DatasetBudget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, other = Ledger.open(budget.url), str(tmp_path / "other")
    with pytest.raises(InvalidParameter, match="nothing to accept"):
        ledger.accept_restore()
    old = copied(budget, "old.db")
    for _ in range(3):
        budget.charge(pure(1.0))
    lost = budget.head()
    mine = os.environ["DPLANGEVIN_STATE"]
    monkeypatch.setenv("DPLANGEVIN_STATE", other)
    budget.remaining()  # another user has seen it as well
    monkeypatch.setenv("DPLANGEVIN_STATE", mine)
    put_back(old, budget)
    forgotten = ledger.accept_restore()
    assert forgotten == {"a": f"seen {lost}, there is {budget.head()}"}
    budget.charge(pure(1.0))
    after = copied(budget, "after.db")
    monkeypatch.setenv("DPLANGEVIN_STATE", other)
    with pytest.warns(UserWarning, match="accepted a restore"):
        budget.charge(pure(1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told once
        budget.charge(pure(1.0))
    put_back(old, budget)  # the acceptance is not in this copy
    _admission.clear_caches()
    with pytest.raises(LedgerError, match="older than it was"):
        budget.charge(pure(1.0))
    put_back(after, budget)  # and where it is, it does not excuse another restore
    with pytest.raises(LedgerError, match="older than it was"):
        budget.charge(pure(1.0))


def test_a_long_process_goes_on_after_the_owners_word(budget: DatasetBudget) -> None:
    old = copied(budget, "old.db")
    budget.charge(pure(1.0))
    put_back(old, budget)
    command = [
        sys.executable,
        "-m",
        "dplangevin.cli.main",
        "ledger",
        "accept-restore",
        "--ledger",
        budget.url,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "forgotten of a: seen 1-" in done.stdout
    budget.charge(pure(1.0))
    assert budget.remaining().entries == 1


def test_a_folder_that_cannot_be_written_is_one_warning(
    budget: DatasetBudget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_file").write_text("")
    monkeypatch.setenv("DPLANGEVIN_STATE", str(tmp_path / "a_file"))
    with pytest.warns(UserWarning, match="older copy of a ledger is not noticed") as said:
        budget.charge(pure(1.0))
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        budget.charge(pure(1.0))
    monkeypatch.setenv("DPLANGEVIN_STATE", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        budget.charge(pure(1.0))


@pytest.mark.parametrize("content", ["", "{}", "x", '{"genesis": "a", "head": "1-a", "restores": 0}'])
def test_a_damaged_memory_is_one_warning(budget: DatasetBudget, state: Path, content: str) -> None:
    budget.charge(pure(1.0))
    (file,) = state.glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert state.stat().st_mode & 0o777 == 0o700
    file.write_text(content)
    with pytest.warns(UserWarning, match="cannot be read"):
        budget.charge(pure(1.0))
    found = _heads.load_seen_head(file.stem) or _heads.load_seen_head(_genesis(budget))
    assert found is not None
    assert found.sequence == 2


def _genesis(budget: DatasetBudget) -> str:
    return budget._read_row().genesis


def test_a_head_never_goes_back(budget: DatasetBudget) -> None:
    genesis = "a" * 64
    heads = [(number, f"{number:064x}") for number in range(1, 201)]
    threads = [
        threading.Thread(
            target=lambda part=part: [_heads.remember_head(genesis, *head, 0) for head in heads[part::8]]
        )
        for part in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = _heads.load_seen_head(genesis)
    assert found is not None
    assert found.sequence == 200
    _heads.remember_head(genesis, 5, "b" * 64, 0)
    assert _heads.load_seen_head(genesis) == found
    _heads.remember_head(genesis, 5, "b" * 64, 1)  # the owner's word
    assert _heads.load_seen_head(genesis) == _heads.SeenHead(
        genesis=genesis, head="5-" + "b" * 64, restores=1
    )


@pytest.mark.slow
def test_a_spender_that_is_overtaken_is_not_refused(
    budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process charges between this one's rows and its memory: the memory is newer, and nothing is wrong."""
    real = _heads.load_seen_head

    def overtaken(genesis: str) -> _heads.SeenHead | None:
        monkeypatch.setattr(_heads, "load_seen_head", real)
        assert spend(budget.url, 1) == (1, "")
        return real(genesis)

    monkeypatch.setattr(_heads, "load_seen_head", overtaken)
    assert budget.remaining().entries == 0
    assert budget.remaining().entries == 1
