"""Charged means delivered: a command that is killed or told to stop at any step of its delivery loses nothing, gives
nothing for free, and charges once."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dplangevin import _files, _results
from dplangevin.accounting import delivery as module
from dplangevin.accounting.delivery import Delivery
from dplangevin.cli.main import run_command_line
from dplangevin.datasets import load_income
from dplangevin.ledger import DatasetBudget, Ledger
from dplangevin.mechanisms.run_state import RunState

URL = "sqlite:///budget.db"
CHARGE = ["--ledger", URL, "--dataset", "people", "-q"]
FIT = [
    "fit",
    "people.csv",
    "--schema",
    "schema.json",
    "--target",
    "income",
    "--epsilon",
    "1",
    "-o",
    "model.json",
    *CHARGE,
]
COUNT = [
    "count",
    "people.csv",
    "--schema",
    "schema.json",
    "--columns",
    "occupation,married",
    "--epsilon",
    "1",
    "--delta",
    "0",
    *CHARGE,
]
FILE = [*COUNT, "-o", "counts.csv"]
COMMANDS = {"fit": FIT, "count to a file": FILE, "count to standard output": COUNT}


class Killed(BaseException):
    """The process is gone: nothing of its own runs any more, and the system frees its locks."""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPLANGEVIN_STATE", str(tmp_path / "state"))
    people, schema = load_income(n=300)
    people.to_csv("people.csv", index=False)
    schema.save("schema.json")
    Ledger.create(URL).declare("people", epsilon=9.0, delta=1e-4)
    # those of a terminal, also where the tests run under nohup or in the background
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield tmp_path / "state" / "dplangevin"
    after = {number: signal.signal(number, handler) for number, handler in before.items()}
    assert after == handlers
    assert module.current_delivery() is None


def entries() -> tuple[Any, ...]:
    return Ledger.open(URL).dataset("people").history()


def left_over(folder: Path) -> list[str]:
    """Whatever a finished command must not leave."""
    drafts = [path.name for path in Path().iterdir() if path.name.startswith(".")]
    kept = [str(path) for name in ("pending", "checkpoints", "results") for path in (folder / name).glob("*")]
    return drafts + kept


def gone(self: Delivery, *_: object) -> None:
    """What the operating system does for a process that was killed."""
    for number, handler in self._handlers.items():
        signal.signal(number, handler)
    for held in (*self._runs, *([] if self._lock is None else [self._lock])):
        held.close()
    assert self._token is not None
    module._CURRENT_DELIVERY.reset(self._token)


class At:
    """Does something the first time that a function is called, before or after it."""

    def __init__(self, where: Callable[..., Any], act: Callable[[], None], *, after: bool) -> None:
        self.where, self.act, self.after, self.armed = where, act, after, True

    def method(self) -> Callable[..., Any]:
        def called(*given: Any, **named: Any) -> Any:
            armed, self.armed = self.armed, False
            if armed and not self.after:
                self.act()
            made = self.where(*given, **named)
            if armed and self.after:
                self.act()
            return made

        return called


STEPS: dict[str, tuple[Any, str]] = {
    "record": (Delivery, "expect_charge"),
    "charge": (DatasetBudget, "reserve_with_token"),
    "release": (Delivery, "note_release"),
    "draft": (Delivery, "add_result"),
    "note": (DatasetBudget, "commit"),
    "name": (_results, "deliver_result"),
    "forget": (Delivery, "_remove_record"),
}


def arm(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], None], *, after: bool) -> At:
    home, name = STEPS[step]
    at = At(getattr(home, name), act, after=after)
    monkeypatch.setattr(home, name, at.method())
    return at


def delivered(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What the user has at the end."""
    if command == "fit":
        return Path("model.json").read_text()
    return Path("counts.csv").read_text() if "file" in command else capsys.readouterr().out


CASES = [(step, after) for step in STEPS for after in (False, True)]
BRIEF = {
    "fit": [("charge", True), ("draft", True), ("forget", False)],
    "count to a file": [("charge", False), ("release", True), ("name", True)],
    "count to standard output": [("charge", True), ("name", False)],
}


def slowly(chosen: bool, *case: object) -> Any:
    return pytest.param(*case, marks=() if chosen else pytest.mark.slow)


@pytest.mark.parametrize(
    ("command", "step", "after"),
    [slowly(case in BRIEF[command], command, *case) for command in COMMANDS for case in CASES],
)
def test_killed_at_every_step(
    command: str, step: str, after: bool, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same command is given again: one charge and one result, or two charges and a word on the first."""

    def die() -> None:
        raise Killed

    words = COMMANDS[command]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "__exit__", gone)
        at = arm(patch, step, die, after=after)
        with pytest.raises(Killed):
            run_command_line(words)
    assert not at.armed
    printed = capsys.readouterr().out
    charged, result = len(entries()), bool(printed)
    assert charged == (0 if CASES.index((step, after)) <= CASES.index(("charge", False)) else 1)
    existed = CASES.index((step, after)) >= CASES.index(("draft", True))
    complete = (step, after) == ("forget", True)
    assert run_command_line(words) == 0
    said = capsys.readouterr()
    one_shot = command != "fit"
    if charged and one_shot and not existed:  # its noise is not drawn again
        assert "ended before its result existed; the charge stays" in said.err
        assert len(entries()) == 2
        assert [entry.release_hash is None for entry in entries()] == [True, False]
    else:
        assert len(entries()) == (2 if complete else 1)
        assert entries()[0].release_hash is not None
    there = printed + said.out if "standard" in command else Path(words[words.index("-o") + 1]).read_text()
    assert there
    if result and not complete:
        assert not said.out  # it was printed already
    assert left_over(state) == []


@pytest.mark.parametrize("command", ["fit", *(slowly(False, name) for name in COMMANDS if name != "fit")])
@pytest.mark.parametrize("whole", [False, True])
def test_killed_while_a_result_is_written(
    command: str, whole: bool, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What exists as a whole is delivered, although nothing was written down since; a part of it is removed."""
    real = Delivery.add_result

    def add_result(self: Delivery, what: str, place: Any, write: Any, text: Any) -> None:
        def die(path: Path) -> None:
            if whole:
                write(path)
            else:
                path.with_name(f".{path.name}.0123.new").write_text("a part")
            raise Killed

        real(self, what, place, die, text)

    words = COMMANDS[command]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "__exit__", gone)
        patch.setattr(Delivery, "add_result", add_result)
        with pytest.raises(Killed):
            run_command_line(words)
    for checkpoint in (state / "checkpoints").glob("*.json"):
        checkpoint.with_name(
            f"{checkpoint.name}.lock"
        ).touch()  # the system frees a lock, and leaves its file
    assert run_command_line(words) == 0
    said = capsys.readouterr()
    lost = not whole and command != "fit"
    assert ("ended before its result existed" in said.err) == lost
    assert ("nothing more was charged" in said.err) == whole
    assert len(entries()) == 1 + lost
    assert said.out if "standard" in command else Path(words[words.index("-o") + 1]).exists()
    assert left_over(state) == []


LEARNED = [*FIT[:2], "--learn", "age=number,hours_per_week=number", "--classes", "<=50K,>50K", *FIT[4:]]
PERSONS = [*FIT, "--person", "who", "--n-public", "300"]
REGION = ["rashomon", *FIT[1:8], "--threshold", "0.1", "--delta", "1e-5", "--report", "model.json", *CHARGE]


@pytest.mark.parametrize(
    "words",
    [LEARNED, slowly(False, PERSONS), slowly(False, REGION)],
    ids=["learned schema", "person", "region"],
)
def test_a_killed_fit_of_several_parts_goes_on(
    words: list[str], state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It draws the same noise on the same records again: one charge, one release."""
    people, _ = load_income(n=300)
    people.assign(who=range(300)).to_csv("people.csv", index=False)

    digests, real = [], Delivery.note_release

    def release(self: Delivery, token: str, digest: str) -> None:
        digests.append(digest)
        if len(digests) == 1:
            raise Killed
        real(self, token, digest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Delivery, "note_release", release)
        with pytest.MonkeyPatch.context() as killed:
            killed.setattr(Delivery, "__exit__", gone)
            with pytest.raises(Killed):
                run_command_line(words)
        assert run_command_line(words) == 0, capsys.readouterr().err
    (entry,) = entries()
    assert digests == [entry.release_hash] * 2
    assert Path("model.json").exists()
    assert left_over(state) == []


def test_a_damaged_record_stops_nothing(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (state / "pending").mkdir(parents=True)
    record = state / "pending" / "0.json"
    record.write_text("{}")
    record.chmod(0o600)
    for name in ("1.json.new", "2.json.lock"):  # of a process that was killed before its first record
        (state / "pending" / name).write_text("")
    assert run_command_line(FILE) == 0
    assert left_over(state) == [str(record)]
    assert f"the record of a charge in {record} cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "step", "after"),
    [
        slowly(
            (number == signal.SIGINT and not after) or (step, after) == ("release", True), number, step, after
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for step, after in CASES
    ],
)
def test_stopped_at_every_step(
    step: str,
    after: bool,
    number: int,
    state: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Before the charge it stops; after it, a count is finished first."""
    at = arm(monkeypatch, step, lambda: os.kill(os.getpid(), number), after=after)
    code = run_command_line(FILE)
    assert not at.armed
    assert code == 128 + number
    if step == "record":
        assert (entries(), Path("counts.csv").exists()) in (((), False), (entries(), True))
    else:
        assert len(entries()) == 1
        assert entries()[0].release_hash is not None
        assert Path("counts.csv").exists()
        assert "nothing was lost" in capfd.readouterr().err
    assert left_over(state) == []


def test_a_stopped_fit_resumes(
    state: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """At its next step it saves where it stands; the same command gives what an undisturbed one gives."""
    assert run_command_line([*FIT, "--random-state", "1"]) == 0
    whole = json.loads(Path("model.json").read_text())["coefficients"]
    Path("model.json").unlink()
    real, steps = RunState.save_if_due, []

    def after(self: RunState, *given: Any, **named: Any) -> None:
        steps.append(1)
        if len(steps) == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        real(self, *given, **named)

    monkeypatch.setattr(RunState, "save_if_due", after)
    assert run_command_line([*FIT, "--random-state", "1"]) == 143
    assert len(steps) == 4
    assert "resumes from" in capfd.readouterr().err
    assert not Path("model.json").exists()
    (checkpoint,) = (state / "checkpoints").glob("*.json")
    assert checkpoint.stat().st_mode & 0o777 == 0o600
    assert checkpoint.parent.stat().st_mode & 0o777 == 0o700
    assert run_command_line(["count", *FILE[1:]]) == 0  # another command says so, and leaves it alone
    assert "the same command resumes" in capfd.readouterr().err
    assert len(entries()) == 2 + 1
    assert run_command_line([*FIT, "--random-state", "1"]) == 0
    assert len(entries()) == 3
    assert json.loads(Path("model.json").read_text())["coefficients"] == whole
    assert left_over(state) == []


def test_a_second_interrupt_gives_the_result_up(
    state: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "_SIGNAL_REPEAT_SECONDS", -1.0)
    real = Delivery.note_release

    def twice(self: Delivery, *given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        real(self, *given)

    monkeypatch.setattr(Delivery, "note_release", twice)
    assert run_command_line(FILE) == 130
    assert "there is no result; the charge stays" in capfd.readouterr().err
    assert len(entries()) == 1
    assert left_over(state) == []


def test_another_command_delivers_without_overwriting(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(result: Any) -> None:
        raise Killed

    for words in (COUNT, FILE):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Delivery, "__exit__", gone)
            patch.setattr(_results, "deliver_result", die)
            with pytest.raises(Killed):
                run_command_line(words)
    Path("counts.csv").write_text("something later")
    assert run_command_line(FIT) == 0
    said = capsys.readouterr()
    assert "counts.rescued.csv" in said.err
    assert "`dplangevin ledger pending` prints it" in said.err
    assert Path("counts.csv").read_text() == "something later"
    assert Path("counts.rescued.csv").read_text().startswith("table,cell,count")
    assert run_command_line(["ledger", "pending", "--ledger", URL]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 10
    assert [entry.release_hash is None for entry in entries()] == [False] * 3
    assert left_over(state) == []


def test_a_running_command_is_left_alone(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two commands at once: neither takes the other's record for that of a dead process."""
    real, inner = Delivery.finish, []

    def finish(self: Delivery) -> None:
        if not inner:
            inner.append(1)
            token = module._CURRENT_DELIVERY.set(None)
            assert run_command_line(["ledger", "pending", "--ledger", URL]) == 0
            module._CURRENT_DELIVERY.reset(token)
        real(self)

    monkeypatch.setattr(Delivery, "finish", finish)
    assert run_command_line(FILE) == 0
    assert len(entries()) == 1
    assert Path("counts.csv").exists()


def test_a_read_goes_on_when_a_signal_comes() -> None:
    """Arrow gives up at a signal by itself: a count was charged, its table not read, and nothing delivered."""
    pytest.importorskip("pyarrow")
    import pyarrow as pa
    from pyarrow import csv

    content, done = b"a,b\n" + b"1,2\n" * 4_000_000, threading.Event()

    def disturb() -> None:
        while not done.wait(0.01):
            os.kill(os.getpid(), signal.SIGINT)

    def read() -> None:
        with Delivery("count", "", URL, "people", print) as delivery:
            delivery._charging = delivery._placing = delivery._done = True  # as after a charge
            helper = threading.Thread(target=disturb)
            helper.start()
            try:
                rows.append(csv.read_csv(pa.BufferReader(content)).num_rows)
            finally:
                done.set()
                helper.join()

    rows: list[int] = []
    with pytest.raises(SystemExit):
        read()
    assert rows == [4_000_000]


def full(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up_after_the_charge(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the record nor the checkpoint stops a run that is charged, and the result goes where there is room."""
    real = DatasetBudget.reserve_with_token

    def charged(self: DatasetBudget, *given: Any) -> None:
        real(self, *given)
        monkeypatch.setattr(_files, "write_private", full)

    monkeypatch.setattr(DatasetBudget, "reserve_with_token", charged)
    monkeypatch.setattr(
        RunState,
        "save_if_due",
        lambda self, at, rng, now=False, real=RunState.save_if_due: real(self, at, rng, now=False),
    )
    assert run_command_line(FIT) == 0
    assert len(entries()) == 1
    assert entries()[0].release_hash is not None
    assert Path("model.json").exists()


def test_a_folder_that_is_full_is_refused_before_the_charge(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    real = os.fsync
    monkeypatch.setattr(os, "fsync", full)
    assert run_command_line(FILE) == 2
    monkeypatch.setattr(os, "fsync", real)
    assert "No space left on device" in capsys.readouterr().err
    assert entries() == ()


def test_a_ledger_that_cannot_be_reached_holds_nothing_back(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dplangevin.errors import LedgerError

    def unreachable(self: DatasetBudget, token: str, digest: str) -> str:
        error = LedgerError("away")
        error.token = token
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DatasetBudget, "commit", unreachable)
        assert run_command_line(FILE) == 0
    assert "the next command on it will" in capsys.readouterr().err
    assert Path("counts.csv").exists()
    assert entries()[0].release_hash is None
    assert run_command_line(["ledger", "pending", "--ledger", URL]) == 0
    assert entries()[0].release_hash is not None
    assert left_over(state) == []


def test_the_error_states_that_the_charge_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    from dplangevin.mechanisms.mechanism import run_plan as run_plan
    from unit._ledger import tiny_data, tiny_plan

    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    plan, budget = tiny_plan(), Ledger.open(URL).dataset("people")
    data = tiny_data(plan)
    monkeypatch.setattr(type(data), "gradient_sum", interrupted)
    with pytest.raises(KeyboardInterrupt) as found:
        run_plan(plan, data, ledger=budget)
    (note,) = found.value.__notes__
    assert "was charged (token " in note
    assert len(entries()) == 1


def command_line(*words: str) -> list[str]:
    return [sys.executable, "-m", "dplangevin.cli.main", *words]


@pytest.mark.skipif(os.name != "posix", reason="pipes of a shell")
@pytest.mark.parametrize("command", [slowly(False, "fit"), "count"])
def test_a_closed_pipe(command: str) -> None:
    """A model is in its file, whoever reads the rest; counts that nobody read are kept, and it is said where."""
    words = [word for word in FIT if word != "-q"] if command == "fit" else COUNT
    process = subprocess.Popen(
        command_line(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 0, said
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    if command == "fit":
        assert Path("model.json").exists()
    else:
        assert "charged and not lost" in said
        (place,) = [word.rstrip(".") for word in said.split() if "results" in word]
        assert Path(place).read_text().count("\n") > 10
    assert [entry.release_hash is None for entry in entries()] == [False]
