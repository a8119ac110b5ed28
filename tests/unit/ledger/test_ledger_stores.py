"""Databases that are damaged, foreign, newer or read-only: a clear error, and nothing lost or given away."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dplangevin.errors import BudgetExceeded, DplangevinError, InvalidParameter, LedgerError
from dplangevin.ledger import DatasetBudget, Ledger, _admission, _store
from unit._ledger import pure


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def budget(file: Path) -> DatasetBudget:
    """A budget with three entries."""
    found = Ledger.create(f"sqlite:///{file}").declare("a", epsilon=3, delta=0)
    for _ in range(3):
        found.charge(pure(0.5))
    return found


def change(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "url",
    [
        "ledger.db",
        "",
        "mysql://localhost/x",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://ledger.db",
        "sqlite:///a\0b",
        "postgresql://[broken/x",
        7,
    ],
)
def test_urls_that_name_no_ledger(url: str) -> None:
    with pytest.raises(InvalidParameter):
        Ledger.open(url)


def test_a_url_keeps_its_secrets() -> None:
    with pytest.raises(InvalidParameter) as refused:
        Ledger.open("mysql://ada:secret@host/x")
    assert "secret" not in str(refused.value)
    ledger = Ledger("postgresql://ada:secret@localhost:1/books?password=hidden")
    with pytest.raises(LedgerError) as unreachable:
        ledger.dataset_names()
    texts = [repr(ledger), str(unreachable.value), repr(DatasetBudget(url=ledger.url, name="a"))]
    assert not any(word in text for text in texts for word in ("secret", "hidden"))


def test_nothing_is_created_by_a_mistyped_path(file: Path, budget: DatasetBudget) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(f"sqlite:///{file}x")
    with pytest.raises(LedgerError, match="no ledger"):
        DatasetBudget(url=f"sqlite:///{file}x", name="a").charge(pure(0.5))
    with pytest.raises(LedgerError, match="folder"):
        Ledger.create(f"sqlite:///{file.parent}/missing/ledger.db")
    assert sorted(path.name for path in file.parent.iterdir() if path.suffix == ".dbx") == []


def test_strange_file_names_work(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/100% what? #1 é.db").declare("a", epsilon=1, delta=0)
    budget.charge(pure(0.5))
    assert (tmp_path / "100% what? #1 é.db").is_file()


def test_a_file_that_is_no_database(file: Path) -> None:
    file.write_bytes(b"name,age\nAda,36\n" * 100)
    with pytest.raises(LedgerError, match="not an SQLite database"):
        Ledger.open(f"sqlite:///{file}")
    assert file.read_bytes() == b"name,age\nAda,36\n" * 100


def test_a_database_of_something_else(file: Path) -> None:
    change(file, "CREATE TABLE people (name TEXT)")
    before = file.read_bytes()
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger.open(f"sqlite:///{file}")
    with pytest.raises(LedgerError, match="there is a file already"):
        Ledger.create(f"sqlite:///{file}")
    assert file.read_bytes() == before


def test_an_empty_file_is_no_new_ledger(file: Path) -> None:
    file.touch()
    half = file.with_name("half.db")
    change(half, "PRAGMA journal_mode = WAL")
    assert half.stat().st_size > 0
    for empty in (file, half):
        before = empty.read_bytes()
        with pytest.raises(LedgerError, match="no ledger in"):
            Ledger.open(f"sqlite:///{empty}")
        with pytest.raises(LedgerError, match="there is a file already"):
            Ledger.create(f"sqlite:///{empty}")
        assert empty.read_bytes() == before


def test_what_is_left_of_an_old_ledger_is_no_place_for_a_new_one(file: Path) -> None:
    file.with_name(file.name + "-wal").write_bytes(b"log")
    with pytest.raises(LedgerError, match="-wal"):
        Ledger.create(f"sqlite:///{file}")
    (file.parent / "link.db").symlink_to(file.parent / "nowhere.db")
    with pytest.raises(LedgerError, match="there is a file already"):
        Ledger.create(f"sqlite:///{file.parent}/link.db")


def test_a_new_ledger_is_for_its_owner_alone(file: Path) -> None:
    old = os.umask(0)
    try:
        budget = Ledger.create(f"sqlite:///{file}").declare("a", epsilon=1, delta=0)
        with closing(sqlite3.connect(file)):  # while somebody else has it open, the log stays
            budget.charge(pure(0.5))
            modes = {path.name: path.stat().st_mode & 0o777 for path in file.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes["ledger.db"] == 0o600
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE dplangevin_ledger SET value = '4' WHERE name = 'schema'", "upgrade dplangevin"),
        ("UPDATE dplangevin_ledger SET value = 'two' WHERE name = 'schema'", "does not state its version"),
        ("DELETE FROM dplangevin_ledger", "does not state its version"),
        ("DELETE FROM dplangevin_entry WHERE sequence = 3", "should hold"),
        ("DELETE FROM dplangevin_entry", "should hold"),
        ("UPDATE dplangevin_guarantee SET content = replace(content, '0.5', '0.1')", "altered"),
        ("UPDATE dplangevin_entry SET guarantee = 'x' WHERE sequence = 2", "entry 2 was altered"),
        ("UPDATE dplangevin_entry SET label = 'Bob' WHERE sequence = 1", "entry 1 was altered"),
        ("UPDATE dplangevin_dataset SET epsilon = -1", "epsilon"),
        ("UPDATE dplangevin_dataset SET epsilon = 30", "not the one that was declared"),
        ("UPDATE dplangevin_dataset SET strict = 1", "not the one that was declared"),
        (
            "UPDATE dplangevin_dataset SET entries = 2",
            "not the head of its chain|should hold|older than it was",
        ),
        ("UPDATE dplangevin_dataset SET entries = 4611686018427387904", "should hold"),  # and not counted out
        ("UPDATE dplangevin_dataset SET entries = 0, head = genesis", "should hold"),
        ("UPDATE dplangevin_dataset SET head = genesis", "not the head of its chain|older than it was"),
        ("UPDATE dplangevin_guarantee SET content = x'00'", "text"),
        ("UPDATE dplangevin_dataset SET delta = 'nothing'", "delta"),
        ("UPDATE dplangevin_dataset SET adjacency = 'swap'", "adjacency"),
        ("DROP TABLE dplangevin_guarantee", "damaged"),
    ],
)
def test_altered_rows_are_noticed(file: Path, budget: DatasetBudget, statement: str, words: str) -> None:
    change(file, statement)
    _admission.clear_caches()
    for ask in (lambda: budget.charge(pure(0.1)), budget.history, budget.remaining):
        with pytest.raises(LedgerError, match=words):
            ask()


def test_a_cost_cannot_hide_in_an_unknown_part(file: Path, budget: DatasetBudget) -> None:
    change(file, "UPDATE dplangevin_entry SET part = 'elsewhere' WHERE sequence = 2")
    _admission.clear_caches()
    with pytest.raises(LedgerError, match="entry 2 was altered"):
        budget.charge(pure(0.1))


@pytest.mark.parametrize("damages", [60, pytest.param(300, marks=pytest.mark.slow)])
def test_a_damaged_file_is_an_error_of_ours_or_no_damage(
    file: Path, budget: DatasetBudget, damages: int
) -> None:
    healthy, rng = file.read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(damages):
        broken = bytearray(healthy)
        if rng.random() < 0.3:
            broken = broken[: int(rng.integers(1, len(healthy)))]
        start = int(rng.integers(0, len(broken)))
        broken[start : start + 64] = rng.bytes(min(64, len(broken) - start))
        for suffix in ("-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        file.write_bytes(bytes(broken))
        _admission.clear_caches()
        try:
            Ledger.open(budget.url)
            budget.charge(pure(0.5))
            budget.remaining()
            assert len(budget.history()) == 4
        except DplangevinError:
            refused += 1
    assert refused > 0


def test_a_busy_ledger_waits_and_then_says_so(
    file: Path, budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_store, "WAIT_SECONDS", 0.2)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert len(budget.history()) == 3  # readers do not wait
        with pytest.raises(LedgerError, match="another process has held it"):
            budget.charge(pure(0.5))
        other.execute("COMMIT")
    budget.charge(pure(0.5))


def test_a_full_disk_charges_nothing(
    file: Path, budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = _store._connect

    def cramped(path: Path, mode: str) -> sqlite3.Connection:
        connection = honest(path, mode)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    monkeypatch.setattr(_store, "_connect", cramped)

    def spend() -> None:
        for _ in range(1000):
            budget.charge(pure(0.001))

    with pytest.raises(LedgerError, match="full"):
        spend()
    monkeypatch.undo()
    entries = budget.history()
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    budget.charge(pure(0.001))
    assert len(budget.history()) == len(entries) + 1


# --- a disk that cannot be written ---------------------------------------------------------------------------------


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def as_a_reader(folder: Path, work: Callable[[], str]) -> str:
    """What the work says when the folder cannot be written; root can write everywhere, so it becomes somebody else."""
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_read_only_disk(shared_folder: Path) -> None:
    file = shared_folder / "ledger.db"
    budget = Ledger.create(f"sqlite:///{file}").declare("a", epsilon=3, delta=0)
    budget.charge(pure(0.5))
    before = file.read_bytes()

    def work() -> str:
        said = []
        for ask in (
            lambda: budget.charge(pure(0.5)),
            lambda: Ledger.open(budget.url),
            lambda: Ledger.create(f"sqlite:///{shared_folder}/new.db"),
        ):
            try:
                ask()
                said.append("done")
            except LedgerError as error:
                said.append(str(error))
        return "|".join(said)

    said = as_a_reader(shared_folder, work).split("|")
    assert len(said) == 3
    assert all("can be written" in text for text in said)
    assert file.read_bytes() == before
    shared_folder.chmod(0o755)
    file.chmod(0o644)
    assert len(budget.history()) == 1


# --- many at once --------------------------------------------------------------------------------------------------

_OPENER = """
import sys
from dplangevin.ledger import Ledger
sys.stdin.readline()
from dplangevin.errors import LedgerError
try:
    Ledger.create(sys.argv[1])
except LedgerError:
    sys.exit(3)
"""


def test_one_of_many_processes_creates_the_ledger(file: Path) -> None:
    command = [sys.executable, "-c", _OPENER, f"sqlite:///{file}"]
    openers = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(4)]
    said = [opener.communicate(b"go\n", timeout=120)[1] for opener in openers]
    assert sorted(opener.returncode for opener in openers) == [0, 3, 3, 3], said
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    assert Ledger.open(f"sqlite:///{file}").dataset_names() == ()


def test_a_second_name_of_the_file_is_refused(tmp_path: Path) -> None:
    """Each name has its own log: charges under one were not seen under the other, and the budget was spent twice."""
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    budget = Ledger.create(f"sqlite:///{path}").declare("a", epsilon=1, delta=0)
    with closing(sqlite3.connect(path)) as reader:  # keeps the log open
        reader.execute("SELECT * FROM dplangevin_ledger").fetchall()
        budget.charge(pure(0.75))
        os.link(path, other)
        for address in (path, other):
            with pytest.raises(LedgerError, match="second name"):
                Ledger.open(f"sqlite:///{address}").dataset("a").charge(pure(0.75))
        other.unlink()
        with pytest.raises(BudgetExceeded):
            budget.charge(pure(0.75))
    (tmp_path / "link.db").symlink_to(path)  # a symbolic link is the same name
    with pytest.raises(BudgetExceeded):
        Ledger.open(f"sqlite:///{tmp_path}/link.db").dataset("a").charge(pure(0.75))


def test_a_relative_address_is_made_absolute_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Ledger.create("sqlite:///a.db").declare("a", epsilon=1, delta=0)
    ledger, budget = Ledger("sqlite:///a.db"), DatasetBudget(url="sqlite:///a.db", name="a")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    Ledger.create("sqlite:///a.db").declare("a", epsilon=1, delta=0)
    budget.charge(pure(0.75))
    with pytest.raises(BudgetExceeded):
        ledger.dataset("a").charge(pure(0.75))
    assert Ledger("sqlite:///a.db").dataset("a").history() == ()
