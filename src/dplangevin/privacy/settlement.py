"""Settlement: what processes that ended early left of their charges is delivered, left to go on, or reported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dplangevin import _files, _plain, _results
from dplangevin._results import Result
from dplangevin.errors import DplangevinError, LedgerError
from dplangevin.privacy.delivery import DeliverySpender

_LARGEST = _files.MEGABYTE
_FIELDS = {
    "version": _plain.whole(1), "process": _plain.whole(0), "command": _plain.words, "fingerprint": _plain.words,
    "ledger": _plain.words, "dataset": _plain.words, "created": _plain.words, "charges": _plain.mapping,
    "checkpoints": _plain.list_of(_plain.words), "results": _plain.list_of(_plain.mapping), "finished": _plain.boolean,
}  # fmt: skip


def settle(
    ledger: str,
    dataset: Callable[[str], DeliverySpender],
    say: Callable[[str], None],
    *,
    fingerprint: str | None = None,
    everything: bool = False,
) -> bool:
    """Deliver or report what processes that ended early left of this ledger; was it this very command's result?

    everything : also print what was meant for the standard output of another command.
    """
    folder, delivered = _files.state_folder("pending"), False
    for path in [] if folder is None else _record_paths(folder):
        try:
            lock = _files.FileLock(path)
        except (DplangevinError, OSError):  # its process is alive
            continue
        try:
            _files.draft_of(path).unlink(missing_ok=True)
            record = _Record.read(path, say)
            if record is not None and record.ledger == ledger:
                same = record.fingerprint == fingerprint
                delivered |= _settle_one(record, dataset(record.dataset), say, same, everything) and same
        except LedgerError as error:
            say(f"an earlier result of this ledger waits in {path}: {error}")
        finally:
            lock.close()
    return delivered


def _record_paths(folder: Path) -> list[Path]:
    """Of all records, also where a killed process left no more than a lock or a draft of one."""
    return sorted({folder / f"{path.name.partition('.')[0]}.json" for path in folder.glob("*.json*")})


@dataclass(frozen=True, kw_only=True)
class _Record:
    """What a process wrote down about its charges.

    charges : token to the hash of the release, None where none was made. drafts : the results that were being written;
    finished : all of them were.
    """

    path: Path
    command: str
    fingerprint: str
    ledger: str
    dataset: str
    created: str
    charges: dict[str, Any]
    checkpoints: list[Path]
    drafts: list[Result]
    finished: bool

    @classmethod
    def read(cls, path: Path, say: Callable[[str], None]) -> _Record | None:
        """The record in this file; None where another process has settled it meanwhile, or where it is damaged."""
        try:
            text = _files.read_private(path, "the record of a charge", most=_LARGEST)
            plain = _plain.record("record", _plain.parse(text, "it"), _FIELDS)
            checkpoints = [Path(name) for name in plain.pop("checkpoints")]
            drafts = [Result.from_plain(result) for result in plain.pop("results")]
        except FileNotFoundError:
            return None
        except (OSError, DplangevinError) as error:
            say(f"the record of a charge in {path} cannot be read, so nothing is known of it: {error}")
            return None
        del plain["version"], plain["process"]
        return cls(path=path, checkpoints=checkpoints, drafts=drafts, **plain)

    @property
    def results(self) -> list[Result]:
        """What lies there: a draft exists as a whole or not at all."""
        return [result for result in self.drafts if result.draft is not None and result.draft.exists()]

    def remove_partial_drafts(self) -> None:
        """What a killed process had begun to write; what it had written stays."""
        for result in self.drafts:
            if result.draft is not None and not result.draft.exists():
                _results.remove(result.draft)

    def __str__(self) -> str:
        return f"`dplangevin {self.command}` of {self.created}"


def _settle_one(
    record: _Record, budget: DeliverySpender, say: Callable[[str], None], same: bool, everything: bool
) -> bool:
    """Finish one record; True where its result has been delivered."""
    charges = {token: digest for token, digest in record.charges.items() if budget.charged(token)}
    released = all(isinstance(digest, str) for digest in charges.values())
    if not charges and record.results:
        say(
            f"the result of {record} is not charged in this ledger, which may be an older copy; it stays in "
            f"{record.path}."
        )
    elif not charges:
        record.path.unlink(missing_ok=True)
    elif released and (record.results or record.finished):
        if same or everything or all(result.place is not None for result in record.results):
            _deliver_again(record, budget, charges, say, same)
            return True
        say(f"{record} was charged and its result was not printed; `dplangevin ledger pending` prints it.")
    elif any(checkpoint.exists() for checkpoint in record.checkpoints):
        record.remove_partial_drafts()
        if not same:
            say(
                f"{record} was interrupted after its charge; the same command goes on and is not charged again."
            )
    else:
        record.remove_partial_drafts()
        say(
            f"{record} was charged to data set {record.dataset!r} and ended before its result existed; the charge "
            "stays, and the ledger's history shows it without a release."
        )
        record.path.unlink(missing_ok=True)
    return False


def _deliver_again(
    record: _Record,
    budget: DeliverySpender,
    charges: dict[str, str],
    say: Callable[[str], None],
    same: bool,
) -> None:
    """Note the releases, and put what lies there in its place."""
    record.remove_partial_drafts()
    for token, digest in charges.items():
        budget.commit(token, digest)
    waiting = record.results
    for result in waiting:
        place = result.place if same or result.place is None else _results.vacant(result.place)
        problem = _results.place(Result(what=result.what, draft=result.draft, place=place))
        where = "on standard output" if place is None else f"in {place}"
        say(
            problem
            or f"{record} was charged and interrupted; {result.what} of it is {where} now, and nothing was charged."
        )
    if same and not waiting:
        say(
            f"{record} has delivered its result already; nothing was charged. Give the command again for a new "
            "release."
        )
    for checkpoint in record.checkpoints:
        with suppress(DplangevinError, OSError):  # another run may use it by now
            lock = _files.FileLock(checkpoint)
            checkpoint.unlink(missing_ok=True)
            _files.draft_of(checkpoint).unlink(missing_ok=True)
            lock.close()
    record.path.unlink(missing_ok=True)
