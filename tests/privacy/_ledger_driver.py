"""Runs under a ledger in many short-lived processes: killed at random moments, or racing for the last of a budget.

Started as a script, so that nothing but this single thread is forked.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dplangevin.errors import BudgetExceeded
from dplangevin.ledger import Ledger
from dplangevin.mechanisms.mechanism import run_plan
from unit._ledger import tiny_data, tiny_plan

PLAN = tiny_plan()
DATA = tiny_data(PLAN)
AT_ONCE = 4


def fit(url: str, folder: Path, name: str) -> bool:
    """One release under the ledger, published as a file named after it; False when the budget is spent."""
    budget = Ledger.open(url).dataset("tiny", label=name)
    try:
        release = run_plan(PLAN, DATA, ledger=budget)
    except BudgetExceeded:
        return False
    draft = folder / f"{name}.draft"
    draft.write_text(json.dumps({"hash": release.digest()}))
    draft.rename(folder / f"{name}.json")
    return True


def child(work: Callable[[], object]) -> int:
    """Run the work in a process of its own."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return process


def crash(url: str, folder: Path, kills: int, seed: int) -> dict[str, object]:
    """Start fits a few at a time and kill each at a random moment, until so many have died of it."""
    rng = np.random.default_rng(seed)
    start = time.monotonic()
    os.waitpid(child(lambda: fit(url, folder, "whole")), 0)
    life, killed, started = time.monotonic() - start, 0, 0
    while killed < kills:
        born = time.monotonic()
        running = [child(lambda name=f"fit{started + i}": fit(url, folder, name)) for i in range(AT_ONCE)]  # type: ignore[misc]
        started += AT_ONCE
        for process, moment in zip(running, sorted(rng.uniform(0, 1, AT_ONCE)), strict=True):
            time.sleep(max(0.0, born + moment * life - time.monotonic()))
            os.kill(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
            died = os.WIFSIGNALED(status)
            killed += died
            life *= 1.1 if died else 0.8  # most are killed alive, and some at the very end
    return {"killed": killed, "started": started}


def race(url: str, folder: Path, processes: int, attempts: int) -> dict[str, object]:
    """Let processes attempt releases all at once."""

    def racer(place: int) -> None:
        for i in range(place, attempts, processes):
            fit(url, folder, f"race{i}")

    running = [child(lambda place=place: racer(place)) for place in range(processes)]  # type: ignore[misc]
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in running]
    return {"codes": codes}


if __name__ == "__main__":
    what, address, place, *numbers = sys.argv[1:]
    job = {"crash": crash, "race": race}[what]
    print(json.dumps(job(address, Path(place), *map(int, numbers))))
