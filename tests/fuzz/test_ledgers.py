"""Changed ledger files: only the library's errors, and no charge on a budget that has nothing left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dplangevin.errors import DplangevinError
from dplangevin.ledger import Ledger, _admission, _rows
from dplangevin.ledger.ledger import inspect_ledger
from fuzz import _ledgers as ledgers
from fuzz._states import changed
from unit._ledger import gaussian, pure

SOME = 150
MANY = int(os.environ.get("DPLANGEVIN_FUZZ", "100000"))
SHARE = 0.2
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> ledgers.Tables:
    return ledgers.healthy(tmp_path_factory.mktemp("ledgers"))


def _asked(url: str) -> list[Callable[[], Any]]:
    """Everything that reads a ledger."""
    ledger = Ledger(url)
    return [
        lambda: Ledger.open(url),
        ledger.heads,
        ledger.verify,
        ledger.export,
        lambda: ledger.dataset("mixed").history(),
        lambda: ledger.dataset("full").remaining(),
        lambda: ledger.dataset("mixed").charge(gaussian(0.01)),
        lambda: ledger.dataset("mixed").for_part("south").charge(pure(0.01)),
    ]


def _shake(
    tables: ledgers.Tables, path: Path, count: int, seed: int, change: Callable[..., ledgers.Tables] = changed
) -> Counter[str]:
    """Every third case has all of its hashes made anew; every tenth some bytes changed besides."""
    rng, outcomes, url = np.random.default_rng(seed), Counter[str](), f"sqlite:///{path}"
    for case in range(count):
        known = case % 3 == 2
        ledgers.write(ledgers.rewritten(tables, rng) if known else change(tables, rng), path)
        if case % 10 == 0:
            content = bytearray(path.read_bytes())
            for place in rng.integers(len(content), size=4):
                content[place] ^= 1 << int(rng.integers(8))
            path.write_bytes(content)
        asked = _asked(url)
        if case % 1000 == 999:
            asked = [lambda: Ledger(url).dataset("mixed").remaining()]
        for ask in (asked[rng.integers(len(asked))], lambda: Ledger(url).dataset("full").charge(pure(0.25))):
            _admission.clear_caches()
            try:
                ask()
                outcomes["answered"] += 1
            except DplangevinError:
                outcomes["refused"] += 1
                continue
            except Exception as error:
                raise AssertionError(f"case {case}: {type(error).__name__}: {error}") from error
            if ask not in asked and not known:
                outcomes["charged in full"] += 1
        assert inspect_ledger(url)
    return outcomes


def test_an_unchanged_ledger_answers(tables: ledgers.Tables, tmp_path: Path) -> None:
    """The honest twin, written anew: all answer, and the full budget refuses."""
    path = tmp_path / "ledger.db"
    ledgers.write(tables, path)
    for ask in _asked(f"sqlite:///{path}"):
        ask()
    with pytest.raises(DplangevinError, match="budget"):
        Ledger(f"sqlite:///{path}").dataset("full").charge(pure(0.25))


def test_no_charge_in_a_changed_ledger(tables: ledgers.Tables, tmp_path: Path) -> None:
    found = _shake(tables, tmp_path / "ledger.db", SOME, 1)
    assert found["charged in full"] == 0
    assert found["refused"] > SOME


def test_the_fuzzer_sees_a_charge(
    tables: ledgers.Tables, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: a budget that is not bound to its first link can be raised by one field."""

    def budget(tables: ledgers.Tables, rng: np.random.Generator) -> ledgers.Tables:
        first, *others = tables["dplangevin_dataset"]
        return {**tables, "dplangevin_dataset": [changed(first, rng), *others]}

    assert _shake(tables, tmp_path / "ledger.db", 150, 1, budget)["charged in full"] == 0
    monkeypatch.setattr(_rows, "first_link", lambda *_: _Anything())
    assert _shake(tables, tmp_path / "ledger.db", 150, 1, budget)["charged in full"] > 0


class _Anything:
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.slow
def test_no_charge_in_very_many_changed_ledgers(tables: ledgers.Tables, tmp_path: Path) -> None:
    assert _shake(tables, tmp_path / "ledger.db", int(MANY * SHARE), 2)["charged in full"] == 0
