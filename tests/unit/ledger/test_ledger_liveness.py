"""A ledger that stalls, is cut off or is crowded: a bounded wait, and an error that says what was charged."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dplangevin.accounting import serialize
from dplangevin.accounting.parts import Approximate, BoundedRange, SampledGaussian
from dplangevin.errors import BudgetExceeded, LedgerError
from dplangevin.ledger import (
    DatasetBudget,
    Ledger,
    _admission,
    _store,
)
from dplangevin.ledger._rows import content_digest
from dplangevin.ledger.entry import Charge, hash_token, next_link
from dplangevin.mechanisms.mechanism import run_plan
from unit._ledger import gaussian, make_guarantee, mixed, pure, tiny_data, tiny_plan


@pytest.fixture
def budget(tmp_path: Path) -> DatasetBudget:
    return Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}").declare("a", epsilon=20, delta=0)


_HOLDER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def stalled(file: str) -> Iterator[int]:
    """A process that holds the write lock and is stopped: it neither works nor dies."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, file], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        yield holder.pid
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


@pytest.mark.parametrize("stalls", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_a_stalled_spender_is_waited_for_and_then_not(
    budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch, stalls: int
) -> None:
    monkeypatch.setattr(_store, "WAIT_SECONDS", 0.2)
    file = budget.url.removeprefix("sqlite:///")
    for turn in range(stalls):
        with stalled(file):
            start = time.monotonic()
            with pytest.raises(LedgerError, match=r"has held it.*Nothing was charged"):
                budget.charge(pure(0.1))
            assert time.monotonic() - start < 10
            assert len(budget.history()) == turn  # readers see everything meanwhile
        budget.charge(pure(0.1))  # and the dead leave no lock


def test_composing_holds_no_lock(budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, free = _admission.admit, []

    def watched(*arguments: Any) -> Any:
        with closing(sqlite3.connect(budget.url.removeprefix("sqlite:///"), timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")  # raises if the ledger is locked
            free.append(True)
        return honest(*arguments)

    monkeypatch.setattr(_admission, "admit", watched)
    budget.charge(pure(1.0))
    assert free == [True]


def test_a_charge_that_slips_in_between_is_seen(
    budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two releases that fit singly but not together: the later one is composed again, and refused."""
    honest, waiting = _admission.admit, [pure(15.0)]

    def interrupted(*arguments: Any) -> Any:
        answer = honest(*arguments)
        if waiting:
            budget.charge(waiting.pop())  # another spender, after the composition and before the write
        return answer

    monkeypatch.setattr(_admission, "admit", interrupted)
    with pytest.raises(BudgetExceeded):
        budget.charge(pure(15.0))
    assert len(budget.history()) == 1


class Flaky:
    """A connection whose COMMIT fails, after it was carried out or before."""

    def __init__(self, connection: sqlite3.Connection, failures: list[str]) -> None:
        self._connection, self._failures = connection, failures

    def execute(self, statement: str, *values: Any) -> Any:
        writing = self._connection.in_transaction and self._connection.total_changes > 0
        if statement == "COMMIT" and writing and self._failures:
            if self._failures.pop(0) == "after":
                self._connection.execute(statement)
            error = sqlite3.OperationalError("the line went dead")
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error
        return self._connection.execute(statement, *values)

    def close(self) -> None:
        self._connection.close()


def flaky(monkeypatch: pytest.MonkeyPatch, *failures: str) -> list[str]:
    honest, left = _store._connect, list(failures)
    monkeypatch.setattr(_store, "_connect", lambda path, mode: Flaky(honest(path, mode), left))
    return left


@pytest.mark.parametrize("failure", ["before", "after"])
def test_a_lost_answer_is_settled_by_the_token(
    budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    left = flaky(monkeypatch, failure)
    token = budget.charge(pure(1.0))
    assert left == []
    assert budget.was_charged(token)
    assert len(budget.history()) == 1  # charged once, whether or not the first attempt came through


@pytest.mark.parametrize(("failures", "charges"), [(("before", "before"), 0), (("after",), 1)])
def test_what_cannot_be_settled_names_the_token(
    budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch, failures: tuple[str, ...], charges: int
) -> None:
    flaky(monkeypatch, *failures)
    if failures == ("after",):  # and then the ledger is gone
        honest = DatasetBudget._try_charge

        def once(*arguments: Any) -> bool:
            monkeypatch.setattr(DatasetBudget, "_try_charge", gone)
            return honest(*arguments)

        def gone(*_: Any) -> bool:
            raise LedgerError("the ledger cannot be used.")

        monkeypatch.setattr(DatasetBudget, "_try_charge", once)
    with pytest.raises(LedgerError, match=r"perhaps charged: token \w+") as lost:
        budget.charge(pure(1.0))
    monkeypatch.undo()
    assert lost.value.token is not None
    assert budget.was_charged(lost.value.token) == (charges == 1)
    assert len(budget.history()) == charges
    budget.reserve_with_token(
        lost.value.token, _CertifiedSpec()
    )  # asked again under the token, it is charged once
    assert len(budget.history()) == 1


class _CertifiedSpec:
    guarantee = pure(1.0)


def test_charged_and_not_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tiny_plan()
    budget = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare("a", epsilon=9, delta=1e-5)
    honest = DatasetBudget.commit

    def commit(self: DatasetBudget, token: str, digest: str) -> str:
        flaky(monkeypatch, "before")
        return honest(self, token, digest)

    monkeypatch.setattr(DatasetBudget, "commit", commit)
    with pytest.raises(LedgerError, match=r"charged under token \w+.*charged, not released") as lost:
        run_plan(plan, tiny_data(plan), ledger=budget)
    monkeypatch.undo()
    (entry,) = budget.history()
    assert entry.release_hash is None
    assert lost.value.token is not None
    budget.commit(lost.value.token, "ab")
    assert budget.history()[0].release_hash == "ab"


def test_spenders_that_leave_no_gap_are_an_error_in_the_end(
    budget: DatasetBudget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_store, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(_store.Session, "append_entry", lambda *_: False)
    with pytest.raises(LedgerError, match=r"without a pause.*Nothing was charged"):
        budget.charge(pure(0.1))


@pytest.mark.slow
def test_ten_thousand_mixed_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a long-lived ledger costs: a charge in a process that knows the books, in a new one, and what is left."""
    monkeypatch.setenv("DPLANGEVIN_CACHE", str(tmp_path))
    budget = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare("a", epsilon=5, delta=1e-6)
    curve = (
        '{"charged": "curve:1e-11"}'  # entries say how they were charged, which spares a replay the search
    )
    plans = {BoundedRange: curve, SampledGaussian: curve}
    with _store.open_store(budget.url).transaction(write=True) as session:
        head = budget.head().partition("-")[2]
        for place, part in enumerate(mixed(10_000)):
            content = serialize.guarantee_to_json(make_guarantee(part))
            charge = Charge(
                dataset="a", token=hash_token(str(place)), part="", label="", created="now",
                guarantee=content_digest(content), plan=plans.get(type(part), "{}"), library="0",
            )  # fmt: skip
            assert session.append_entry(charge, content, head)
            head = next_link(head, place + 1, charge)
    start = time.process_time()
    budget.charge(pure(0.002))
    cold, warm = time.process_time() - start, []
    for release in (
        gaussian(0.004),
        pure(0.003),
        make_guarantee(Approximate(value=0.001, slack=1e-13)),
        pure(0.0021),
    ):
        start = time.process_time()
        budget.charge(release)
        warm.append(time.process_time() - start)
    start = time.process_time()
    left = budget.remaining()
    last = time.process_time() - start
    _admission.clear_caches()  # as a new process of this user, which finds what was composed
    start = time.process_time()
    budget.charge(pure(0.0022))
    new = time.process_time() - start
    print(
        f"first {cold:.2f} s, warm {sorted(round(value, 3) for value in warm)} s, "
        f"remaining {last:.2f} s, new {new:.3f} s"
    )
    assert min(warm) < 0.05  # 0.003 s on an idle machine
    assert last < 0.5  # 0.02 s on an idle machine
    assert cold < 60
    assert new < 0.1
    assert left.entries == 10_005


# --- threads, forks, coroutines ----------------------------------------------------------------------------------


def test_threads_share_a_budget(budget: DatasetBudget) -> None:
    def spend(_: int) -> int:
        try:
            budget.charge(pure(1.0))
            return 1
        except BudgetExceeded:
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(spend, range(40))) == 20
    entries = budget.history()
    assert [entry.sequence for entry in entries] == list(range(1, 21))
    assert budget.remaining().pure_epsilon == 0


def test_coroutines_spend_in_threads(budget: DatasetBudget) -> None:
    async def many() -> list[str | BaseException]:
        jobs = [asyncio.to_thread(budget.charge, pure(1.0)) for _ in range(25)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    found = asyncio.run(many())
    assert sum(isinstance(answer, str) for answer in found) == 20
    assert all(isinstance(answer, (str, BudgetExceeded)) for answer in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_beside_busy_threads_can_spend(budget: DatasetBudget) -> None:
    budget.charge(pure(1.0))
    children = []
    with _admission._lock:  # as if another thread held it at the moment of the fork
        for _ in range(3):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(60)
                    budget.charge(pure(1.0))
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0, 0]
    assert len(budget.history()) == 4


def test_readers_in_threads_see_whole_books(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare("a", epsilon=5, delta=1e-6)
    stop, seen = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            left = budget.remaining()
            seen.append((left.entries, left.gaussian_mu))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for place in range(12):
        budget.charge(pure(0.05 + place / 1000) if place % 2 else gaussian(0.05))
    stop.set()
    for reader in readers:
        reader.join(60)
    by_entries: dict[int, set[float]] = {}
    for entries, epsilon in seen:
        by_entries.setdefault(entries, set()).add(round(epsilon, 4))
    assert all(len(values) == 1 for values in by_entries.values())
