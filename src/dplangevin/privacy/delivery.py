"""Delivery: charged means delivered, whatever interrupts the process between its charge and its result.

In this order: a record of the charge is written (in the user's state folder, mode 0600); the ledger is charged; the
data are read; the results are written under temporary names and forced to the disk; the ledger notes the release; the
files get their names; the record goes. Signals wait from the charge on. A process that is killed leaves its record, and
`settle` tells from it how far it came: nothing was charged, the result lies there and is delivered, the run can go on
from its checkpoint, or the charge bought nothing, which is reported (noise is never drawn again from a stored seed).
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol, Self, runtime_checkable

from dplangevin import _files, _results
from dplangevin._results import Result
from dplangevin.errors import DplangevinError, LedgerError
from dplangevin.privacy.spender import Priced, Spender, TokenSpender

_CURRENT: ContextVar[Delivery | None] = ContextVar("dplangevin_delivery", default=None)
_SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None))
)
_AGAIN = 1.0  # seconds: a second Ctrl-C within them may be the same one, sent on by a wrapper


@runtime_checkable
class DeliverySpender(TokenSpender, Protocol):
    """A budget whose note of a release can wait until the result is on the disk."""

    def head_under(self, token: str) -> str:
        """The head of the books right after the charge under this token."""
        ...

    def charged(self, token: str) -> bool:
        """Was it charged under this token?"""
        ...


def current_delivery() -> Delivery | None:
    """The delivery that the present call belongs to; None for a Python caller, to whom the return value is it."""
    return _CURRENT.get()


class Delivery:
    """One command that charges: `with Delivery(...) as delivery: run; delivery.put(...); delivery.finish()`.

    Parameters
    ----------
    command, fingerprint : what the user asked for, in a word, and a hash of all of it: only the same command goes on.
    ledger, dataset : where it is charged, without secrets; None where nothing is charged.
    say : shows one sentence to the user.
    """

    def __init__(
        self,
        command: str,
        fingerprint: str,
        ledger: str | None,
        dataset: str | None,
        say: Callable[[str], None],
    ) -> None:
        self.command, self.fingerprint, self._say = command, fingerprint, say
        self._ledger, self._dataset = ledger, dataset
        self._identity = secrets.token_hex(4)
        self._record: Path | None = None
        self._lock: _files.FileLock | None = None
        self._charges: dict[str, str | None] = {}  # token, and the digest of its release
        self._budgets: dict[str, DeliverySpender] = {}
        self._runs: list[Any] = []
        self._results: list[Result] = []
        self._charging = self._uncertain = self._placing = self._done = False
        self.signal: int | None = None
        self._first = 0.0
        self._handlers: dict[int, Any] = {}
        self._token: Token[Delivery | None] | None = None

    # --- signals ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._token = _CURRENT.set(self)
        if self._ledger is not None and threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup stays nohup
                    self._handlers[number] = signal.signal(number, self._on_signal)
            _let_arrow_cancel(False)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = (
            self.signal is not None and number == signal.SIGINT and time.monotonic() - self._first > _AGAIN
        )
        if not self._charging or (again and not self._placing):
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        if self.signal is None:
            self.signal, self._first = number, time.monotonic()
            words = (
                "the budget is charged: the command stops as soon as nothing is lost by it (Ctrl-C again gives the "
                "result up, and the charge stays).\n"
            )
            with suppress(OSError):  # not through a buffer: the signal may have come while it was written
                os.write(2, words.encode())

    def stop_at_checkpoint(self) -> None:
        """Called by a run that has just saved where it stands."""
        if self.signal is not None and not self._placing:
            raise SystemExit(128 + self.signal)

    # --- charging --------------------------------------------------------------------------------------------------

    def payer(self, ledger: Spender | None) -> Spender | None:
        """The ledger, with every charge written down before it is made and its note put off."""
        return _Recorder(self, ledger) if isinstance(ledger, DeliverySpender) else ledger

    def checkpoint(self, name: str) -> Path | None:
        """Where a run of this command keeps its checkpoint unless the user names a file."""
        folder = _files.state_folder("checkpoints") if self._ledger is not None else None
        return None if folder is None else folder / f"{self.fingerprint[:24]}-{name[:24]}.json"

    def keep(self, run: Any) -> None:
        """Take over a saved run: its file is removed when the result is in its place."""
        if run not in self._runs:
            self._runs.append(run)

    def expect(self, token: str, budget: DeliverySpender) -> None:
        """A charge is about to be made under this token."""
        self._charges[token], self._budgets[token] = None, budget
        if self._record is None and (folder := _files.state_folder("pending")) is not None:
            try:
                self._lock = _files.FileLock(folder / f"{token[:32]}.json")
                self._record = folder / f"{token[:32]}.json"
            except OSError as error:
                self._say(f"no record of this charge can be kept in {folder} ({error.strerror}).")
        self._write_record()
        self._charging = True

    def withdraw(self, token: str, error: DplangevinError) -> None:
        """The ledger refused: nothing was charged under this token, unless nobody knows."""
        if getattr(error, "token", None) is not None:
            self._uncertain = True
            return
        del self._charges[token]
        self._charging = bool(self._charges)

    def release(self, token: str, digest: str) -> None:
        """What a charge paid for exists."""
        self._charges[token] = digest

    # --- results ---------------------------------------------------------------------------------------------------

    def put(
        self, what: str, place: Path | None, write: Callable[[Path], object], text: Callable[[], str]
    ) -> None:
        """Write a result under a temporary name (place None: standard output); what no disk takes is printed.

        write(path) makes all of the file (or folder) or nothing: the record names the path before, so that a killed
        process has delivered exactly what exists there.
        """
        reason = ""
        for draft in self._drafts(place):
            self._results.append(Result(what=what, draft=draft, place=place))
            self._write_record()
            try:
                draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write(draft)
                return
            except OSError as error:
                reason = reason or error.strerror or type(error).__name__
                self._results.pop()
                _results.remove(draft)
        self._results.append(Result(what=what, draft=None, place=place, text=text(), reason=reason))

    def _drafts(self, place: Path | None) -> Iterator[Path]:
        suffix = ".txt" if place is None else place.suffix
        name = f"{self._identity}-{len(self._results)}{suffix}"
        if place is not None and (not place.exists() or place.is_file() or place.is_dir()):
            target = place.expanduser().resolve()
            yield target.with_name(f".{target.stem[:100]}.{name}")
        folder = _files.state_folder("results") if self._ledger is not None else None
        if folder is not None:
            yield folder / name
        with suppress(OSError):
            yield Path(tempfile.mkdtemp(prefix="dplangevin-")) / name

    def finish(self) -> None:
        """The results are on the disk: note the releases, put the results in their places, forget the run."""
        self._placing = True
        self._write_record()
        noted = [self._note(token, digest) for token, digest in self._charges.items() if digest is not None]
        problems = _results.place_all(self._results, self._say)
        self._done = True
        for run in self._runs:
            with suppress(OSError):
                run.end()
            run.close()
        if all(noted):
            self._forget()
        if problems:
            raise DplangevinError(" ".join(problems))

    def _note(self, token: str, digest: str) -> bool:
        """A ledger that cannot be reached does not hold a result back: it is charged, and the note follows."""
        try:
            self._budgets[token].commit(token, digest)
        except LedgerError as error:
            if error.token is None:  # the books do not know of this charge
                raise
            self._say(
                "the ledger could not note the release, which it has charged; the next command on it will."
            )
            return False
        return True

    # --- the record ------------------------------------------------------------------------------------------------

    def _write_record(self) -> None:
        if self._record is None:
            return
        plain = {
            "version": 1,
            "process": os.getpid(),
            "command": self.command,
            "fingerprint": self.fingerprint,
            "ledger": self._ledger,
            "dataset": self._dataset,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "charges": self._charges,
            "checkpoints": [
                str(path) for run in self._runs if (path := getattr(run, "path", None)) is not None
            ],
            "results": [result.to_plain() for result in self._results if result.draft is not None],
            "finished": self._placing,
        }
        with suppress(OSError):  # a full disk: the command itself goes on
            _files.write_private(self._record, json.dumps(plain))

    def _forget(self) -> None:
        if self._record is not None:
            self._record.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            complete = bool(self._charges) and all(self._charges.values()) and self._results
            if not self._done and complete:  # what failed came after the result
                self.finish()
            elif not self._done:
                self._give_up()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            if self._handlers:
                _let_arrow_cancel(True)
            if self._lock is not None:
                self._lock.close()
            if self._token is not None:
                _CURRENT.reset(self._token)
        if error is None and self.signal is not None:
            self._say("the result is in its place; nothing was lost.")
            raise SystemExit(128 + self.signal)

    def _give_up(self) -> None:
        """The command ends without a result."""
        if not self._charging:
            for run in self._runs:
                if getattr(run, "is_default", False):  # it holds noise for which nothing was charged
                    run.end()
        for run in self._runs:
            run.close()
        paths = [
            path for run in self._runs if (path := getattr(run, "path", None)) is not None and path.exists()
        ]
        if not self._charging:
            self._forget()
        elif paths:
            self._write_record()
            self._say(f"the same command goes on from {paths[0]}, charged once; keep that file to yourself.")
        elif not self._uncertain:
            token = next(iter(self._charges))
            self._say(f"the budget was charged (token {token}) and no result came of it; the charge stays.")
            self._forget()


def _let_arrow_cancel(allowed: bool) -> None:
    """Arrow gives a read up at a signal, whatever the handler of the process decides: not after a charge."""
    if importlib.util.find_spec("pyarrow") is not None:
        import pyarrow

        pyarrow.enable_signal_handlers(allowed)


class _Recorder:
    """The ledger as a delivery shows it: a charge is written down first, and noted when its result is on the disk."""

    def __init__(self, delivery: Delivery, ledger: DeliverySpender) -> None:
        self._delivery, self._ledger = delivery, ledger

    def reserve(self, plan: Priced) -> str:
        token = secrets.token_hex(16)
        self.reserve_under(token, plan)
        return token

    def reserve_under(self, token: str, plan: Priced) -> None:
        self._delivery.expect(token, self._ledger)
        try:
            self._ledger.reserve_under(token, plan)
        except DplangevinError as error:
            self._delivery.withdraw(token, error)
            raise

    def commit(self, token: str, release_hash: str) -> str:
        self._delivery.release(token, release_hash)
        return self._ledger.head_under(token)
