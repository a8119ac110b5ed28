"""The latest head of each data set that this user has seen, kept across processes: an older ledger is refused.

A file per data set, named after the first link of its chain and not after where the ledger lies, so that a copy at
another address is the same ledger. It lies in the user's state folder (mode 0600): whoever can change it acts as the
user, who could as well skip every check. It only ever moves forward, unless the ledger's owner has accepted a restore
since, which the ledger itself says: `restores` counts that.
"""

from __future__ import annotations

import getpass
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dplangevin import _files, _plain
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError, InvalidParameter, LedgerError
from dplangevin.ledger import _rows
from dplangevin.ledger._chain import head_text, parsed_head
from dplangevin.ledger._rows import Account
from dplangevin.ledger._store import Session, store_for

_ROW = "accepted-restore-"
_FIELDS = {"genesis": _plain.words, "head": _plain.words, "restores": _plain.whole(0)}
_warned: set[str] = set()
_in_process: dict[str, int] = {}  # restores that this process knows of, by data set


@dataclass(frozen=True, kw_only=True)
class SeenHead:
    """The head of a data set, and how many restores its ledger's owner had accepted."""

    genesis: str
    head: str
    restores: int

    @property
    def sequence(self) -> int:
        """The number of entries."""
        return parsed_head(self.head)[0]


def check(session: Session, url: str, owner: Account) -> tuple[int, bool]:
    """Refuse a ledger that lacks what this user has seen of the data set.

    Returns how many restores its owner has accepted, and whether one came since, so that what a process knows is void.
    """
    seen, accepted = load(owner.genesis), accepted_restores(session)
    # another process of this user may have accepted it, so the file alone does not tell
    replaced = len(accepted) > _in_process.get(owner.genesis, len(accepted))
    _in_process[owner.genesis] = len(accepted)
    if seen is None:
        return len(accepted), replaced
    if len(accepted) > seen.restores:
        _warn_of_restore(owner, seen, str(accepted[-1].get("accepted", "?")))
        return len(accepted), True
    if not _holds(session, owner, seen, len(accepted)):
        # another process may have charged, and remembered it, after this transaction began: ask the newest rows
        with store_for(url).transaction() as newest:
            now = _rows.existing(newest, owner.name)
            if not _holds(newest, now, seen, len(accepted_restores(newest))):
                raise LedgerError(_refusal(owner, seen))
    return len(accepted), replaced


def _holds(session: Session, owner: Account, seen: SeenHead, restores: int) -> bool:
    if owner.genesis != seen.genesis or restores < seen.restores:
        return False
    if seen.sequence in (0, owner.entries):
        return head_text(seen.sequence, owner.head if seen.sequence else owner.genesis) == seen.head
    found = session.rows(
        "SELECT chain FROM dplangevin_entry WHERE dataset = ? AND sequence = ?", owner.name, seen.sequence
    )
    return [head_text(seen.sequence, str(row[0])) for row in found] == [seen.head]


def _refusal(owner: Account, seen: SeenHead) -> str:
    return (
        f"the ledger is older than it was, or a copy that went its own way: you have seen {seen.sequence} entries of "
        f"data set {owner.name!r}, and they are not there now ({owner.entries} are). Find the newest copy; if there is "
        "none, its owner accepts the loss with `dplangevin ledger accept-restore` and enters the releases that were "
        "lost (`dplangevin ledger enter`). Nothing was charged."
    )


def _warn_of_restore(owner: Account, seen: SeenHead, when: str) -> None:
    warnings.warn(
        f"the owner of the ledger accepted a restore ({when}): you had seen {seen.sequence} entries of data set "
        f"{owner.name!r}, and {owner.entries} are there now. Releases that no entry covers still count.",
        UserWarning,
        stacklevel=2,
    )


def accepted_restores(session: Session) -> list[dict[str, Any]]:
    """What the ledger's owner has accepted, in order."""
    rows = session.rows("SELECT name, value FROM dplangevin_ledger WHERE name LIKE ?", _ROW + "%")
    try:
        ordered = sorted((str(name), str(value)) for name, value in rows)
        return [_plain.mapping(name, _plain.parse(value, name)) for name, value in ordered]
    except InvalidParameter as error:
        raise LedgerError(
            f"the ledger's record of an accepted restore is damaged ({error}) Restore the ledger from a backup; "
            "nothing was charged."
        ) from None


def accept_restore(url: str) -> dict[str, str]:
    """Write into the ledger that its owner accepts it as it is; returns what is forgotten, by data set."""
    forgotten: dict[str, str] = {}
    with store_for(url).transaction(write=True) as session:
        session.lock_declarations()
        before, owners = len(accepted_restores(session)), []
        for name in _rows.names(session):
            owner = _rows.existing(session, name)
            seen = load(owner.genesis)
            owners.append(owner)
            if seen is not None and not _holds(session, owner, seen, before):
                forgotten[name] = f"seen {seen.head}, there is {head_text(owner.entries, owner.head)}"
        if not forgotten:
            raise InvalidParameter(
                "there is nothing to accept: this ledger holds every entry that you have seen. Nothing was changed."
            )
        row = {
            "accepted": datetime.now(UTC).isoformat(timespec="seconds"),
            "by": _user(),
            "library": __version__,
            "forgotten": forgotten,
        }
        session.change(
            "INSERT INTO dplangevin_ledger VALUES (?, ?)", f"{_ROW}{before + 1:06d}", json.dumps(row)
        )
    for owner in owners:
        remember(owner.genesis, owner.entries, owner.head, before + 1)
    return forgotten


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user in the system's list
        return str(os.getuid()) if hasattr(os, "getuid") else "?"


def load(genesis: str) -> SeenHead | None:
    """What is remembered of a data set; None where nothing is."""
    path = _path(genesis)
    return None if path is None else _load(path, genesis)


def _load(path: Path, genesis: str) -> SeenHead | None:
    try:
        text = _files.read_private(path, "a remembered head", most=_files.MEGABYTE)
        found = SeenHead(**_plain.record("head", _plain.parse(text, "it"), _FIELDS))
        if found.genesis == genesis and found.sequence >= 0:
            return found
    except FileNotFoundError:
        return None
    except (OSError, DplangevinError):
        pass
    if str(path) not in _warned:
        _warned.add(str(path))
        warnings.warn(
            f"the remembered head of a ledger in {path} cannot be read, so an older copy is not noticed this time; "
            "it is written anew.",
            UserWarning,
            stacklevel=2,
        )
    return None


def remember(genesis: str, sequence: int, head: str, restores: int | None = None) -> None:
    """Remember a head, unless a later one is remembered already; None: as many restores as before."""
    path = _path(genesis) if sequence or restores else None
    if path is None:
        return
    with suppress(OSError), _locked(path):
        old = _load(path, genesis)
        known = 0 if old is None else old.restores
        count = known if restores is None else restores
        if old is not None and (count, sequence) <= (known, old.sequence):
            return
        new = SeenHead(genesis=genesis, head=head_text(sequence, head), restores=count)
        draft = path.with_name(f"{path.name}.new")  # one writer at a time
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(asdict(new)))
        os.replace(
            draft, path
        )  # not forced to the disk: after a power cut an older head is remembered, or none


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time may move a head; the system frees the lock of one that dies."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path.with_name("lock"), flags, 0o600)
    try:
        with suppress(OSError):  # a folder without locks
            _files.wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _path(genesis: str) -> Path | None:
    folder = _files.state_folder("heads")
    return None if folder is None else folder / f"{genesis[:40]}.json"
