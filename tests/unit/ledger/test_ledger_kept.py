"""A composition kept between processes: equal to a new one, and never believed where anything about it is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin.errors import BudgetExceeded
from dplangevin.ledger import DatasetBudget, Ledger, _admission
from fuzz._states import changed
from unit._ledger import gaussian, pure

LIMIT = 2.0


@pytest.fixture
def budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatasetBudget:
    """Nearly everything is spent, and the composition of it is kept."""
    monkeypatch.setenv("DPLANGEVIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_admission, "MIN_NEW_ENTRIES_TO_SAVE", 4)
    found = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare(
        "a", epsilon=LIMIT, delta=1e-6, parts=["x"]
    )
    for cost in (pure(0.5), gaussian(0.1), pure(0.1), pure(0.05), gaussian(0.05), pure(0.02)):
        found.charge(cost)
    found.for_part("x").reserve_program([pure(0.01), gaussian(0.01)])
    found.remaining()
    return found


@pytest.fixture
def kept(budget: DatasetBudget, tmp_path: Path) -> Path:
    [path] = (tmp_path / "cache" / "dplangevin").iterdir()
    return path


def read_entries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many entries each new process composes."""
    counts: list[int] = []
    honest = _admission.replay_entry

    def noted(*arguments: Any) -> Any:
        counts.append(1)
        return honest(*arguments)

    monkeypatch.setattr(_admission, "replay_entry", noted)
    return counts


def test_a_new_process_composes_only_what_is_new(
    budget: DatasetBudget, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = budget.remaining()
    counts = read_entries(monkeypatch)
    _admission.clear_caches()
    assert budget.remaining() == before
    with pytest.raises(BudgetExceeded):
        budget.charge(pure(1.5))
    assert sum(counts) <= 4
    assert kept.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("DPLANGEVIN_CACHE", "off")
    counts.clear()
    _admission.clear_caches()
    assert budget.remaining() == before
    assert sum(counts) == 7


def lowered(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """The file with one thing changed; the seal is made anew, as it has no secret."""
    plain = json.loads(path.read_text().partition("\n")[2])
    change(plain)
    text = json.dumps(plain)
    path.write_text(f"{_admission._checksum(text)}\n{text}")


def _symlink(path: Path) -> None:
    other = path.with_name("other")
    path.rename(other)
    path.symlink_to(other)


WRONG: dict[str, Callable[[Path], Any]] = {
    "others may read it": lambda path: path.chmod(0o644),
    "a link": _symlink,
    "a bit": lambda path: path.write_bytes(
        path.read_bytes().replace(b'"n_over_budget": 0', b'"n_over_budget": 1')
    ),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-9]),
    "nothing": lambda path: path.write_bytes(b""),
    "another head": lambda path: lowered(path, lambda plain: plain.update(head="0" * 64)),
    "a later head": lambda path: lowered(path, lambda plain: plain.update(sequence=1000)),
    "another library": lambda path: lowered(path, lambda plain: plain.update(library="0")),
    "another ledger": lambda path: lowered(path, lambda plain: plain.update(ledger="0" * 64)),
    "another data set": lambda path: lowered(path, lambda plain: plain.update(genesis="0" * 64)),
    "no whole": lambda path: lowered(path, lambda plain: plain["standing"]["states"].pop("")),
}


@pytest.mark.parametrize("what", WRONG)
def test_whatever_does_not_agree_is_composed_anew(
    budget: DatasetBudget, kept: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    before = budget.remaining()
    WRONG[what](kept)
    counts = read_entries(monkeypatch)
    _admission.clear_caches()
    assert budget.remaining() == before
    assert sum(counts) == 7


def test_an_older_ledger_is_composed_from_its_own_entries(
    budget: DatasetBudget, kept: Path, tmp_path: Path
) -> None:
    """Bound to the chain: what was composed under a later head says nothing about an older file."""
    copy = tmp_path / "old.db"
    Ledger(budget.url).backup(copy)
    for _ in range(6):
        budget.charge(pure(0.01))
    budget.remaining()
    file = Path(budget.url.removeprefix("sqlite:///"))
    for suffix in ("", "-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    copy.rename(file)
    Ledger(budget.url).accept_restore()
    assert budget.remaining().entries == 7


def test_a_changed_file_is_no_crash(budget: DatasetBudget, kept: Path) -> None:
    plain, rng = json.loads(kept.read_text().partition("\n")[2]), np.random.default_rng(0)
    genesis = plain["genesis"]
    assert _admission.load_standing(budget.url, genesis) is not None
    for _ in range(200):
        lowered(kept, lambda found: (found.clear(), found.update(changed(plain, rng))))
        _admission.load_standing(budget.url, genesis)


def test_a_standing_reads_back_as_it_was(budget: DatasetBudget, kept: Path) -> None:
    ((genesis, known),) = _admission.caches_in_memory(budget.url).items()
    _admission.write_standing(budget.url, genesis, known.sequence, known.head, known.standing)
    found = _admission.load_standing(budget.url, genesis)
    assert found is not None
    assert (found[0], found[1]) == (known.sequence, known.head)
    assert found[2].states == known.standing.states
    assert found[2].programs == known.standing.programs != {}


def test_no_folder_is_no_error(
    budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "a-file"
    file.touch()
    monkeypatch.setenv("DPLANGEVIN_CACHE", str(file))
    _admission.clear_caches()
    assert budget.remaining().entries == 7
    monkeypatch.delenv("DPLANGEVIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    _admission.clear_caches()
    assert budget.remaining().entries == 7
    assert os.listdir(tmp_path / "home") == ["dplangevin"]
