"""Protocols of a privacy budget, and delivery of charged results, whatever interrupts the process after the charge.

Protocols of a privacy budget that releases are charged to. The ledger implements them; mechanisms know no more.

A command writes a record of its charge (in the user's state folder, mode 0600), charges the ledger, reads the data,
writes its results under temporary names, notes the release in the ledger, renames the files and removes the record.
Signals are deferred from the charge on. A killed process leaves its record, from which `deliver_pending` tells
whether nothing was charged, a result exists and is delivered, the run can be resumed from its checkpoint, or the
charge gave no result, which is reported (noise is never drawn again from a stored seed).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

from dplangevin import _files, _plain, _results
from dplangevin._results import PendingResult
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import DplangevinError, LedgerError

R = TypeVar("R")


def attach_ledger_head(release: R, head: object) -> R:
    """Store the head of the ledger after the charge as `ledger_head` (None without a ledger); return the release."""
    object.__setattr__(release, "ledger_head", head if isinstance(head, str) else None)
    return release


class Chargeable(Protocol):
    """Anything that can be charged for, because it has a guarantee: a Plan, a noisy sum, a private selection."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the release, which is what is charged."""
        ...


@runtime_checkable
class BudgetAccount(Protocol):
    """A budget. The cost is charged before any record is read, and a crash does not give it back."""

    def reserve(self, plan: Chargeable) -> str:
        """Charge the plan's guarantee, or raise BudgetExceeded; return a token for `commit`."""
        ...

    def commit(self, token: str, release_hash: str) -> str | None:
        """Note the hash of the release charged under this token; return the ledger's head after the charge."""
        ...


@runtime_checkable
class ResumableAccount(BudgetAccount, Protocol):
    """A budget whose charge can be repeated safely: after a crash it may be unknown whether `reserve` succeeded."""

    def reserve_with_token(self, token: str, plan: Chargeable) -> None:
        """Charge under the caller's token; a second call with the same token and cost charges nothing."""
        ...


_CURRENT_DELIVERY: ContextVar[Delivery | None] = ContextVar("dplangevin_delivery", default=None)
_DEFERRED_SIGNALS = tuple(
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None))
)
_SIGNAL_REPEAT_SECONDS = 1.0  # a second Ctrl-C within this time may be the same one, forwarded by a wrapper


@runtime_checkable
class DeliverableAccount(ResumableAccount, Protocol):
    """A budget in which a release can be noted later than it is made, once the result is on the disk."""

    def head_for_token(self, token: str) -> str:
        """Return the head of the ledger right after the charge under this token."""
        ...

    def was_charged(self, token: str) -> bool:
        """Return whether the budget was charged under this token."""
        ...


def fingerprint_command(arguments: Sequence[str], folder: str) -> str:
    """Return a hash of a command's arguments and its working folder: the same hash is the same command."""
    return hashlib.sha256(json.dumps([folder, *arguments]).encode()).hexdigest()


def current_delivery() -> Delivery | None:
    """Return the delivery of the running command; None for a Python caller, who gets the release as return value."""
    return _CURRENT_DELIVERY.get()


class Delivery:
    """One command that charges: `with Delivery(...) as delivery: run; delivery.add_result(...); delivery.finish()`.

    Parameters
    ----------
    command : the name of the command.
    fingerprint : a hash of all its arguments: only the same command resumes a run.
    ledger, dataset : where it is charged, without secrets; None where nothing is charged.
    notify : shows one sentence to the user.

    Attributes
    ----------
    signal : the number of the signal that was deferred, if any.
    """

    def __init__(
        self,
        command: str,
        fingerprint: str,
        ledger: str | None,
        dataset: str | None,
        notify: Callable[[str], None],
    ) -> None:
        self.command, self.fingerprint, self._notify = command, fingerprint, notify
        self._ledger, self._dataset = ledger, dataset
        self._identity = secrets.token_hex(4)
        self._record: Path | None = None
        self._lock: _files.FileLock | None = None
        self._charges: dict[str, str | None] = {}  # token, and the digest of its release
        self._budgets: dict[str, DeliverableAccount] = {}
        self._runs: list[Any] = []
        self._results: list[PendingResult] = []
        self._charging = self._uncertain = self._placing = self._done = False
        self.signal: int | None = None
        self._first_signal_time = 0.0
        self._handlers: dict[int, Any] = {}
        self._token: Token[Delivery | None] | None = None

    # --- signals ---------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._token = _CURRENT_DELIVERY.set(self)
        if self._ledger is not None and threading.current_thread() is threading.main_thread():
            for number in _DEFERRED_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # respect nohup
                    self._handlers[number] = signal.signal(number, self._on_signal)
            _allow_arrow_cancel(False)
        return self

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        again = (
            self.signal is not None
            and number == signal.SIGINT
            and time.monotonic() - self._first_signal_time > _SIGNAL_REPEAT_SECONDS
        )
        if not self._charging or (again and not self._placing):
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        if self.signal is None:
            self.signal, self._first_signal_time = number, time.monotonic()
            message = (
                "the budget is charged: the command stops as soon as nothing is lost by it (Ctrl-C again "
                "gives the result up, and the charge stays).\n"
            )
            with suppress(OSError):  # unbuffered: the signal may have come while the buffer was being written
                os.write(2, message.encode())

    def stop_at_checkpoint(self) -> None:
        """Exit if a signal was deferred; a run calls this right after it has saved a checkpoint."""
        if self.signal is not None and not self._placing:
            raise SystemExit(128 + self.signal)

    # --- charging --------------------------------------------------------------------------------------------------

    def deferring_account(self, ledger: BudgetAccount | None) -> BudgetAccount | None:
        """Return the ledger in a form that records every charge before it is made, and defers noting its release."""
        return _RecordingAccount(self, ledger) if isinstance(ledger, DeliverableAccount) else ledger

    def checkpoint_path(self, name: str) -> Path | None:
        """Return the default path of the checkpoint of a run of this command; None where there is none."""
        folder = _files.state_folder("checkpoints") if self._ledger is not None else None
        return None if folder is None else folder / f"{self.fingerprint[:24]}-{name[:24]}.json"

    def adopt_checkpoint(self, checkpoint: Any) -> None:
        """Take over the checkpoint of a run: its file is removed once the result is delivered."""
        if checkpoint not in self._runs:
            self._runs.append(checkpoint)

    def expect_charge(self, token: str, budget: DeliverableAccount) -> None:
        """Record that a charge is about to be made under this token."""
        self._charges[token], self._budgets[token] = None, budget
        if self._record is None and (folder := _files.state_folder("pending")) is not None:
            try:
                self._lock = _files.FileLock(folder / f"{token[:32]}.json")
                self._record = folder / f"{token[:32]}.json"
            except OSError as error:
                self._notify(f"no record of this charge can be kept in {folder} ({error.strerror}).")
        self._write_record()
        self._charging = True

    def withdraw_charge(self, token: str, error: DplangevinError) -> None:
        """Forget a charge that the ledger refused; keep it where the ledger does not know whether it was made."""
        if getattr(error, "token", None) is not None:
            self._uncertain = True
            return
        del self._charges[token]
        self._charging = bool(self._charges)

    def note_release(self, token: str, digest: str) -> None:
        """Record the digest of the release that was charged under this token."""
        self._charges[token] = digest

    # --- results ---------------------------------------------------------------------------------------------------

    def add_result(
        self, what: str, destination: Path | None, write: Callable[[Path], object], text: Callable[[], str]
    ) -> None:
        """Write a result under a temporary name; print it where it can be written nowhere.

        Parameters
        ----------
        what : name of the result in messages.
        destination : where it belongs; None is standard output.
        write : write(path) makes all of the file (or folder) or nothing. The record names the path beforehand, so
            whatever exists there after a crash is a complete result.
        text : makes the text that is printed where nothing can be written.
        """
        reason = ""
        for draft in self._draft_paths(destination):
            self._results.append(PendingResult(what=what, draft=draft, destination=destination))
            self._write_record()
            try:
                draft.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write(draft)
                return
            except OSError as error:
                reason = reason or error.strerror or type(error).__name__
                self._results.pop()
                _results.remove_draft(draft)
        self._results.append(
            PendingResult(what=what, draft=None, destination=destination, text=text(), reason=reason)
        )

    def _draft_paths(self, destination: Path | None) -> Iterator[Path]:
        suffix = ".txt" if destination is None else destination.suffix
        name = f"{self._identity}-{len(self._results)}{suffix}"
        if destination is not None and (
            not destination.exists() or destination.is_file() or destination.is_dir()
        ):
            target = destination.expanduser().resolve()
            yield target.with_name(f".{target.stem[:100]}.{name}")
        folder = _files.state_folder("results") if self._ledger is not None else None
        if folder is not None:
            yield folder / name
        with suppress(OSError):
            yield Path(tempfile.mkdtemp(prefix="dplangevin-")) / name

    def finish(self) -> None:
        """Note the releases in the ledger, move the results to their destinations, remove checkpoints and record."""
        self._placing = True
        self._write_record()
        noted = [
            self._commit_release(token, digest)
            for token, digest in self._charges.items()
            if digest is not None
        ]
        problems = _results.deliver_all(self._results, self._notify)
        self._done = True
        for run in self._runs:
            with suppress(OSError):
                run.finish()
            run.close()
        if all(noted):
            self._remove_record()
        if problems:
            raise DplangevinError(" ".join(problems))

    def _commit_release(self, token: str, digest: str) -> bool:
        """Note a release; return False where the ledger cannot be reached: the result is delivered all the same."""
        try:
            self._budgets[token].commit(token, digest)
        except LedgerError as error:
            if error.token is None:  # the ledger does not know of this charge
                raise
            self._notify(
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
            "checkpoints": [  # absolute: a command in another folder may settle this record
                str(Path(path).absolute())
                for run in self._runs
                if (path := getattr(run, "path", None)) is not None
            ],
            "results": [result.to_plain() for result in self._results if result.draft is not None],
            "finished": self._placing,
        }
        with suppress(OSError):  # a full disk must not stop the command itself
            _files.write_private(self._record, json.dumps(plain))

    def _remove_record(self) -> None:
        if self._record is not None:
            self._record.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            complete = bool(self._charges) and all(self._charges.values()) and self._results
            if not self._done and complete:  # the failure came after the result was written
                self.finish()
            elif not self._done:
                self._give_up()
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            if self._handlers:
                _allow_arrow_cancel(True)
            if self._lock is not None:
                self._lock.close()
            if self._token is not None:
                _CURRENT_DELIVERY.reset(self._token)
        if error is None and self.signal is not None:
            self._notify("the result is delivered; nothing was lost.")
            raise SystemExit(128 + self.signal)

    def _give_up(self) -> None:
        """End without a result: keep what allows the same command to resume, and report the charge."""
        if not self._charging:
            for run in self._runs:
                if getattr(run, "is_default", False):  # its noise belongs to a run that was never charged
                    run.finish()
        for run in self._runs:
            run.close()
        paths = [
            path for run in self._runs if (path := getattr(run, "path", None)) is not None and path.exists()
        ]
        if not self._charging:
            self._remove_record()
        elif paths:
            self._write_record()
            self._notify(
                f"the same command resumes from {paths[0]}, charged once; keep that file to yourself."
            )
        elif not self._uncertain:
            token = next(iter(self._charges))
            self._notify(f"the budget was charged (token {token}) and there is no result; the charge stays.")
            self._remove_record()


def _allow_arrow_cancel(allowed: bool) -> None:
    """Allow or forbid Arrow to cancel a read at a signal, which it would do whatever this process decides."""
    if importlib.util.find_spec("pyarrow") is not None:
        import pyarrow

        pyarrow.enable_signal_handlers(allowed)


class _RecordingAccount:
    """A ledger whose charges are recorded first, and whose releases are noted once the results are on the disk."""

    def __init__(self, delivery: Delivery, ledger: DeliverableAccount) -> None:
        self._delivery, self._ledger = delivery, ledger

    def reserve(self, plan: Chargeable) -> str:
        token = secrets.token_hex(16)
        self.reserve_with_token(token, plan)
        return token

    def reserve_with_token(self, token: str, plan: Chargeable) -> None:
        self._delivery.expect_charge(token, self._ledger)
        try:
            self._ledger.reserve_with_token(token, plan)
        except DplangevinError as error:
            self._delivery.withdraw_charge(token, error)
            raise

    def commit(self, token: str, release_hash: str) -> str:
        self._delivery.note_release(token, release_hash)
        return self._ledger.head_for_token(token)


_MAX_RECORD_BYTES = _files.MEGABYTE
_FIELDS = {
    "version": _plain.whole_number_reader(1),
    "process": _plain.whole_number_reader(0),
    "command": _plain.read_text,
    "fingerprint": _plain.read_text,
    "ledger": _plain.read_text,
    "dataset": _plain.read_text,
    "created": _plain.read_text,
    "charges": _plain.read_mapping,
    "checkpoints": _plain.list_reader(_plain.read_text),
    "results": _plain.list_reader(_plain.read_mapping),
    "finished": _plain.read_boolean,
}


def deliver_pending(
    ledger: str,
    dataset: Callable[[str], DeliverableAccount],
    notify: Callable[[str], None],
    *,
    fingerprint: str | None = None,
    everything: bool = False,
) -> bool:
    """Deliver or report the charged results of processes that ended early; return whether one was this command's.

    Parameters
    ----------
    ledger : only charges of this ledger are considered.
    dataset : returns the budget of a data set of that ledger.
    notify : shows one sentence to the user.
    fingerprint : hash of this command's arguments.
    everything : also print results meant for the standard output of other commands.
    """
    folder, delivered = _files.state_folder("pending"), False
    for path in [] if folder is None else _record_paths(folder):
        try:
            lock = _files.FileLock(path)
        except (DplangevinError, OSError):  # its process is still running
            continue
        try:
            _files.draft_path(path).unlink(missing_ok=True)
            record = _DeliveryRecord.load(path, notify)
            if record is not None and record.ledger == ledger:
                same = record.fingerprint == fingerprint
                delivered |= (
                    _settle_record(record, dataset(record.dataset), notify, same, everything) and same
                )
        except LedgerError as error:
            notify(f"an earlier result of this ledger waits in {path}: {error}")
        finally:
            lock.close()
    return delivered


def has_deliverable_charge(fingerprint: str, dataset: Callable[[str], DeliverableAccount]) -> bool:
    """Return whether this command was charged and ended early, and would deliver its result if it were given again.

    False while it is still running, where nothing was charged, and where the charge left neither a result nor a
    checkpoint: then the same command would be charged anew.
    """
    folder = _files.state_folder("pending")
    for path in [] if folder is None else _record_paths(folder):
        try:
            lock = _files.FileLock(path)
        except (DplangevinError, OSError):  # its process is still running
            continue
        try:
            record = _DeliveryRecord.load(path, lambda _: None)
            if record is None or record.fingerprint != fingerprint:
                continue
            budget = dataset(record.dataset)
            digests = [digest for token, digest in record.charges.items() if budget.was_charged(token)]
            released = bool(digests) and all(isinstance(digest, str) for digest in digests)
            if (released and (record.existing_drafts or record.finished)) or (
                digests and any(checkpoint.exists() for checkpoint in record.checkpoints)
            ):
                return True
        finally:
            lock.close()
    return False


def _record_paths(folder: Path) -> list[Path]:
    """Return the paths of all records, also where a killed process left only a lock or a draft of one."""
    return sorted({folder / f"{path.name.partition('.')[0]}.json" for path in folder.glob("*.json*")})


@dataclass(frozen=True, kw_only=True)
class _DeliveryRecord:
    """The record that a process wrote about its charges.

    Parameters
    ----------
    charges : token -> hash of the release; None where no release was made.
    drafts : the results that were being written.
    finished : whether all of them were written.
    """

    path: Path
    command: str
    fingerprint: str
    ledger: str
    dataset: str
    created: str
    charges: dict[str, Any]
    checkpoints: list[Path]
    drafts: list[PendingResult]
    finished: bool

    @classmethod
    def load(cls, path: Path, notify: Callable[[str], None]) -> _DeliveryRecord | None:
        """Read a record; return None where another process has settled it meanwhile, or where it is damaged."""
        try:
            text = _files.read_private_text(path, "the record of a charge", max_bytes=_MAX_RECORD_BYTES)
            plain = _plain.read_record("record", _plain.parse_json(text, "it"), _FIELDS)
            checkpoints = [Path(name) for name in plain.pop("checkpoints")]
            drafts = [PendingResult.from_plain(result) for result in plain.pop("results")]
        except FileNotFoundError:
            return None
        except (OSError, DplangevinError) as error:
            notify(f"the record of a charge in {path} cannot be read, so nothing is known of it: {error}")
            return None
        del plain["version"], plain["process"]
        return cls(path=path, checkpoints=checkpoints, drafts=drafts, **plain)

    @property
    def existing_drafts(self) -> list[PendingResult]:
        """The results that were written: a draft exists as a whole or not at all."""
        return [result for result in self.drafts if result.draft is not None and result.draft.exists()]

    def remove_partial_drafts(self) -> None:
        """Remove what a killed process had begun to write; complete drafts stay."""
        for result in self.drafts:
            if result.draft is not None and not result.draft.exists():
                _results.remove_draft(result.draft)

    def __str__(self) -> str:
        return f"`dplangevin {self.command}` of {self.created}"


def _settle_record(
    record: _DeliveryRecord,
    budget: DeliverableAccount,
    notify: Callable[[str], None],
    same: bool,
    everything: bool,
) -> bool:
    """Deliver or report one record; return True where its result has been delivered."""
    charges = {token: digest for token, digest in record.charges.items() if budget.was_charged(token)}
    released = all(isinstance(digest, str) for digest in charges.values())
    if not charges and record.existing_drafts:
        notify(
            f"the result of {record} is not charged in this ledger, which may be an older copy; it stays in "
            f"{record.path}."
        )
    elif not charges:
        record.path.unlink(missing_ok=True)
    elif released and (record.existing_drafts or record.finished):
        if same or everything or all(result.destination is not None for result in record.existing_drafts):
            _deliver_drafts(record, budget, charges, notify, same)
            return True
        notify(f"{record} was charged and its result was not printed; `dplangevin ledger pending` prints it.")
    elif any(checkpoint.exists() for checkpoint in record.checkpoints):
        record.remove_partial_drafts()
        if not same:
            notify(
                f"{record} was interrupted after its charge; the same command resumes it and is not charged "
                "again."
            )
    else:
        record.remove_partial_drafts()
        notify(
            f"{record} was charged to data set {record.dataset!r} and ended before its result existed; the "
            "charge stays, and the ledger's history shows it without a release."
        )
        record.path.unlink(missing_ok=True)
    return False


def _deliver_drafts(
    record: _DeliveryRecord,
    budget: DeliverableAccount,
    charges: dict[str, str],
    notify: Callable[[str], None],
    same: bool,
) -> None:
    """Note the releases, and move the existing drafts to their destinations."""
    record.remove_partial_drafts()
    for token, digest in charges.items():
        budget.commit(token, digest)
    waiting = record.existing_drafts
    for result in waiting:
        destination = (
            result.destination
            if same or result.destination is None
            else _results.free_path(result.destination)
        )
        problem = _results.deliver_result(
            PendingResult(what=result.what, draft=result.draft, destination=destination)
        )
        where = "on standard output" if destination is None else f"in {destination}"
        notify(
            problem
            or f"{record} was charged and interrupted; its result ({result.what}) is {where} now, and nothing more was "
            "charged."
        )
    if same and not waiting:
        notify(
            f"{record} has delivered its result already; nothing more was charged. Give the command again "
            "for a new release."
        )
    for checkpoint in record.checkpoints:
        with suppress(DplangevinError, OSError):  # another run may use it by now
            lock = _files.FileLock(checkpoint)
            checkpoint.unlink(missing_ok=True)
            _files.draft_path(checkpoint).unlink(missing_ok=True)
            lock.close()
    record.path.unlink(missing_ok=True)
