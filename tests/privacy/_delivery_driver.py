"""Real commands under a ledger in many short-lived processes, each told to stop (or killed) at a random moment.

Started as a script, so that nothing but this single thread is forked. Every command is given again until it has ended
by itself; the tally says how each went, and the books are compared with what the user holds.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from dplangevin.cli.main import run_command_line
from dplangevin.datasets import load_income
from dplangevin.estimators.model_file import load_model
from dplangevin.ledger import Ledger

FILE = "budget.db"
URL = f"sqlite:///{FILE}"
CHARGE = ["--ledger", URL, "--dataset", "people", "-q", "--schema", "schema.json"]
FIT = ["fit", "people.csv", "--target", "income", "--epsilon", "0.01", *CHARGE]
COUNT = ["count", "people.csv", "--columns", "occupation", "--epsilon", "0.01", "--delta", "0", *CHARGE]
LOST = "ended before its result existed"


def start(words: list[str], name: str) -> int:
    """A command in a process of its own, its output in files."""
    process = os.fork()
    if process == 0:
        for number, suffix in ((1, "out"), (2, "err")):
            file = os.open(f"{name}.{suffix}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(file, number)
        code = 1
        try:
            code = run_command_line(words)
            sys.stdout.flush()
            if name == "warm":
                Path("modules").write_text("\n".join(sys.modules))
        finally:
            os._exit(code)
    return process


def has_result(words: list[str], name: str) -> bool:
    """Does the user hold a whole result?"""
    if "-o" not in words:
        return Path(f"{name}.out").stat().st_size > 0
    place = Path(words[-1])
    if place.suffix == ".json" and place.exists():
        load_model(place)
    return place.exists()


def command_of(turn: int) -> list[str]:
    return [[*FIT, "-o", f"model{turn}.json"], [*COUNT, "-o", f"counts{turn}.csv"], COUNT][turn % 3]


def entries() -> int:
    """How many charges are in the books, read past the library."""
    connection = sqlite3.connect(FILE, timeout=30)
    try:
        return int(connection.execute("SELECT count(*) FROM dplangevin_entry").fetchone()[0])
    finally:
        connection.close()


def wait_until(process: int, reached: Callable[[], bool]) -> None:
    """Until the command is as far as that, or has ended: most of its life is imports and planning before."""
    while not reached():
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.0005)


def is_recorded() -> bool:
    """A charge is about to be made."""
    return any(Path("state/dplangevin/pending").glob("*.json"))


def attack(times: int, seed: int, signals: list[int]) -> dict[str, object]:
    """Interrupt so many commands; returns how they went, and what is in the books.

    One in nine at any moment, two from the record on (the charge follows), six from the charge on.
    """
    rng, tally = np.random.default_rng(seed), Counter[str]()
    lives, tails = [1.0, 1.0, 1.0], [0.1, 0.1, 0.1]
    for turn in (0, 1, 2, 0, 1, 2):  # the second time as all later ones
        begun = time.monotonic()
        before = entries()
        process = start(command_of(-3 + turn), "warm")
        wait_until(process, lambda before=before: entries() > before)
        charging = time.monotonic()
        assert os.waitpid(process, 0)[1] == 0
        lives[turn], tails[turn] = time.monotonic() - begun, time.monotonic() - charging
        for module in Path("modules").read_text().split():  # every later process begins with them
            with suppress(Exception):
                importlib.import_module(module)
    budget = Ledger.open(URL).dataset("people")
    for turn in range(times):
        words, name, before = command_of(turn), f"run{turn}", len(budget.history())
        process = start(words, name)
        moment = rng.integers(9)
        if moment == 0:
            time.sleep(rng.uniform(0, 1.05) * lives[turn % 3])
        else:
            wait_until(process, is_recorded if moment < 3 else lambda before=before: entries() > before)
            time.sleep(rng.uniform(0, 0.6) * tails[turn % 3])  # the measured ones are slow
        os.kill(process, signals[turn % len(signals)])
        ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        charged = len(budget.history()) - before
        tally["hit after the charge"] += bool(ended and charged)
        if has_result(words, name):
            tally["delivered in spite of it" if ended else "ended before the signal"] += 1
            assert charged == 1, (turn, charged)
            continue
        first = Path(f"{name}.err").read_text()
        again = os.waitstatus_to_exitcode(os.waitpid(start(words, name), 0)[1])
        assert again == 0, Path(f"{name}.err").read_text()
        assert has_result(words, name), turn
        lost = LOST in Path(f"{name}.err").read_text()
        total = len(budget.history()) - before
        assert total == 1 + lost, (turn, words, ended, charged, total, first, Path(f"{name}.err").read_text())
        assert not lost or (charged and words[0] == "count")  # a fit goes on from its checkpoint
        tally[
            "charged, lost and reported" if lost else "charged, and had again" if charged else "not charged"
        ] += 1
    unnoted = sum(entry.release_hash is None for entry in budget.history())
    left = [path.name for path in Path("state").rglob("*") if path.is_file() and path.parent.name != "heads"]
    left += [path.name for path in Path().glob(".[!d]*")]  # drafts, not what was tried before the charge
    return {"tally": tally, "entries": len(budget.history()), "unnoted": unnoted, "left": left}


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # ignored where a shell started this in the background
    os.environ["DPLANGEVIN_STATE"] = str(Path("state").absolute())
    people, schema = load_income(n=2000)
    people.to_csv("people.csv", index=False)
    schema.save("schema.json")
    Ledger.create(URL).declare("people", epsilon=1000.0, delta=0.5)
    print(
        json.dumps(
            attack(int(sys.argv[2]), int(sys.argv[3]), [signal.Signals[word] for word in sys.argv[4:]])
        )
    )
