"""Heads of hash chains: detecting a ledger that is older than what a user has seen or a release was made under.

The latest head of each data set is remembered across processes, in a file (mode 0600) of the user's state folder:
whoever can change it acts as the user, who could as well skip every check. It is named after the first link of the
chain and not after the ledger's URL, so that a copy at another address counts as the same ledger. A remembered head
only moves forward, unless the ledger's owner has accepted a restore since, which the ledger itself records.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dplangevin import _files, _plain
from dplangevin._version import __version__
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import DplangevinError, InvalidParameter, LedgerError
from dplangevin.ledger import _rows
from dplangevin.ledger._rows import DatasetRow, convert_stored_guarantee
from dplangevin.ledger._store import Session, open_store
from dplangevin.ledger.entry import format_head, parse_head

_RESTORE_KEY_PREFIX = "accepted-restore-"
_FIELDS = {"genesis": _plain.read_text, "head": _plain.read_text, "restores": _plain.whole_number_reader(0)}
_warned_paths: set[str] = set()
_known_restores: dict[str, int] = {}  # number of restores that this process knows of, by first link


@dataclass(frozen=True, kw_only=True)
class SeenHead:
    """A remembered head of a data set, and how many restores its ledger's owner had accepted by then."""

    genesis: str
    head: str
    restores: int

    @property
    def sequence(self) -> int:
        """The number of entries up to this head."""
        return parse_head(self.head)[0]


def check_head(session: Session, url: str, dataset_row: DatasetRow) -> tuple[int, bool]:
    """Refuse a ledger that lacks entries of the data set which this user has seen.

    Returns how many restores its owner has accepted, and whether one is new to this process, whose caches are then
    void.
    """
    seen_head, accepted = load_seen_head(dataset_row.genesis), read_accepted_restores(session)
    # another process of this user may have accepted it, so the file alone is not enough
    was_restored = len(accepted) > _known_restores.get(dataset_row.genesis, len(accepted))
    _known_restores[dataset_row.genesis] = len(accepted)
    if seen_head is None:
        return len(accepted), was_restored
    if len(accepted) > seen_head.restores:
        _warn_about_restore(dataset_row, seen_head, str(accepted[-1].get("accepted", "?")))
        return len(accepted), True
    if not _contains_head(session, dataset_row, seen_head, len(accepted)):
        # another process may have charged, and remembered it, after this transaction began: read the newest rows
        with open_store(url).transaction() as newest:
            now = _rows.require_dataset(newest, dataset_row.name)
            if not _contains_head(newest, now, seen_head, len(read_accepted_restores(newest))):
                raise LedgerError(_older_ledger_message(dataset_row, seen_head))
    return len(accepted), was_restored


def _contains_head(session: Session, dataset_row: DatasetRow, seen_head: SeenHead, restores: int) -> bool:
    if dataset_row.genesis != seen_head.genesis or restores < seen_head.restores:
        return False
    if seen_head.sequence in (0, dataset_row.entries):
        return (
            format_head(seen_head.sequence, dataset_row.head if seen_head.sequence else dataset_row.genesis)
            == seen_head.head
        )
    rows = session.query(
        "SELECT chain FROM dplangevin_entry WHERE dataset = ? AND sequence = ?",
        dataset_row.name,
        seen_head.sequence,
    )
    return [format_head(seen_head.sequence, str(row[0])) for row in rows] == [seen_head.head]


def _older_ledger_message(dataset_row: DatasetRow, seen_head: SeenHead) -> str:
    return (
        f"the ledger is older than it was, or a copy that diverged: you have seen {seen_head.sequence} "
        f"entries of data set {dataset_row.name!r}, and they are not there now ({dataset_row.entries} are). "
        "Find the newest copy; if there is none, its owner accepts the loss with `dplangevin ledger "
        "accept-restore` and enters the releases that were lost (`dplangevin ledger enter`). Nothing was "
        "charged."
    )


def _warn_about_restore(dataset_row: DatasetRow, seen_head: SeenHead, accepted: str) -> None:
    warnings.warn(
        f"the owner of the ledger accepted a restore ({accepted}): you had seen {seen_head.sequence} entries "
        f"of data set {dataset_row.name!r}, and {dataset_row.entries} are there now. Releases that no entry "
        "covers still count.",
        UserWarning,
        stacklevel=2,
    )


def read_accepted_restores(session: Session) -> list[dict[str, Any]]:
    """Return the records of the restores that the ledger's owner has accepted, in order."""
    rows = session.query(
        "SELECT name, value FROM dplangevin_ledger WHERE name LIKE ?", _RESTORE_KEY_PREFIX + "%"
    )
    try:
        ordered = sorted((str(name), str(value)) for name, value in rows)
        return [_plain.read_mapping(name, _plain.parse_json(value, name)) for name, value in ordered]
    except InvalidParameter as error:
        raise LedgerError(
            f"the ledger's record of an accepted restore is damaged: {error} Restore the ledger from a "
            "backup; nothing was charged."
        ) from None


def accept_restore(url: str) -> dict[str, str]:
    """Record in the ledger that its owner accepts it as it is; return what is forgotten, by data set."""
    forgotten: dict[str, str] = {}
    with open_store(url).transaction(write=True) as session:
        session.lock_declarations()
        n_before, dataset_rows = len(read_accepted_restores(session)), []
        for name in _rows.dataset_names(session):
            dataset_row = _rows.require_dataset(session, name)
            seen_head = load_seen_head(dataset_row.genesis)
            dataset_rows.append(dataset_row)
            if seen_head is not None and not _contains_head(session, dataset_row, seen_head, n_before):
                forgotten[name] = (
                    f"seen {seen_head.head}, there is {format_head(dataset_row.entries, dataset_row.head)}"
                )
        if not forgotten:
            raise InvalidParameter(
                "there is nothing to accept: this ledger holds every entry that you have seen. Nothing was "
                "changed."
            )
        row = {
            "accepted": datetime.now(UTC).isoformat(timespec="seconds"),
            "by": _user_name(),
            "library": __version__,
            "forgotten": forgotten,
        }
        session.execute(
            "INSERT INTO dplangevin_ledger VALUES (?, ?)",
            f"{_RESTORE_KEY_PREFIX}{n_before + 1:06d}",
            json.dumps(row),
        )
    for dataset_row in dataset_rows:
        remember_head(dataset_row.genesis, dataset_row.entries, dataset_row.head, n_before + 1)
    return forgotten


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the system does not list this user
        return str(os.getuid()) if hasattr(os, "getuid") else "?"


def load_seen_head(genesis: str) -> SeenHead | None:
    """Return the remembered head of a data set; None where there is none."""
    path = _head_path(genesis)
    return None if path is None else _load_from_path(path, genesis)


def _load_from_path(path: Path, genesis: str) -> SeenHead | None:
    try:
        text = _files.read_private_text(path, "a remembered head", max_bytes=_files.MEGABYTE)
        seen_head = SeenHead(**_plain.read_record("head", _plain.parse_json(text, "it"), _FIELDS))
        if seen_head.genesis == genesis and seen_head.sequence >= 0:
            return seen_head
    except FileNotFoundError:
        return None
    except (OSError, DplangevinError):
        pass
    if str(path) not in _warned_paths:
        _warned_paths.add(str(path))
        warnings.warn(
            f"the remembered head of a ledger in {path} cannot be read, so an older copy is not noticed this "
            "time; the file is written again.",
            UserWarning,
            stacklevel=2,
        )
    return None


def remember_head(genesis: str, sequence: int, head: str, restores: int | None = None) -> None:
    """Remember a head, unless a later one is remembered already; restores None keeps the remembered number."""
    path = _head_path(genesis) if sequence or restores else None
    if path is None:
        return
    with suppress(OSError), _lock_folder(path):
        remembered = _load_from_path(path, genesis)
        known_restores = 0 if remembered is None else remembered.restores
        count = known_restores if restores is None else restores
        if remembered is not None and (count, sequence) <= (known_restores, remembered.sequence):
            return
        seen_head = SeenHead(genesis=genesis, head=format_head(sequence, head), restores=count)
        draft = path.with_name(f"{path.name}.new")  # one writer at a time
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(json.dumps(asdict(seen_head)))
        # not flushed to the disk: after a power cut an older head is remembered, or none
        os.replace(draft, path)


@contextmanager
def _lock_folder(path: Path) -> Iterator[None]:
    """Hold the lock under which one process at a time moves a head; the system frees it if the process dies."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path.with_name("lock"), flags, 0o600)
    try:
        with suppress(OSError):  # a file system without locks
            _files.wait_for_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _head_path(genesis: str) -> Path | None:
    folder = _files.state_folder("heads")
    return None if folder is None else folder / f"{genesis[:40]}.json"


def verify_chains(session: Session, heads: Iterable[str], display_url: str) -> dict[str, str]:
    """Check every link of every data set, and that each given head is on a chain; return the present heads."""
    present_heads, known_heads, entered_heads = {}, set(), set()
    for name in _rows.dataset_names(session):
        dataset_row = _rows.require_dataset(session, name)
        present_heads[name] = format_head(dataset_row.entries, dataset_row.head)
        known_heads.add(format_head(0, dataset_row.genesis))
        links = _rows.read_links(session, dataset_row)
        for link in links:
            known_heads.add(format_head(link.sequence, link.chain))
            if '"lost_head"' in link.charge.plan:
                entered_heads.add(str(_rows.parse_plan(name, link.charge.plan).get("lost_head")))
        for _ in _rows.read_costs(session, dataset_row, links):
            pass  # reading checks them
    for head in heads:
        parse_head(head)
        if head not in known_heads and head not in entered_heads:
            raise LedgerError(
                f"the ledger {display_url} does not hold {head[:20]}...: it is older than a release made "
                "under this head, or another ledger. Find the newest copy; what no copy holds is entered "
                "again with `dplangevin ledger enter`. Until then make no releases."
            )
    return present_heads


def list_heads(expect: str | Iterable[str] | None) -> list[str]:
    """Return one head or several as a list."""
    if expect is None:
        return []
    return [expect] if isinstance(expect, str) else list(expect)


def read_head(path: Path) -> str:
    """Return the ledger head in a model file or a JSON report."""
    head = _read_file(path).get("ledger_head")
    if not isinstance(head, str):
        raise InvalidParameter(
            f"{path} carries no head of a ledger: it was made without one, or by an older version."
        )
    return head


def read_release_file(path: Path) -> tuple[Guarantee, str, str | None]:
    """Return the guarantee in a model file, a hash of the released numbers, and the ledger head after its charge."""
    fields = _read_file(path)
    guarantee = convert_stored_guarantee(fields.get("guarantee"))
    if not isinstance(guarantee, Guarantee):
        raise InvalidParameter(f"{path} carries no guarantee that could be entered.")
    numbers = json.dumps([fields.get("coefficients"), fields.get("intercept")])
    head = fields.get("ledger_head")
    return guarantee, hashlib.sha256(numbers.encode()).hexdigest(), head if isinstance(head, str) else None


def _read_file(path: Path) -> dict[str, Any]:
    fields = _files.read_json(path, "the file")
    if not isinstance(fields, dict):
        raise InvalidParameter(f"{path} is not a model file or a JSON report.")
    _plain.check_digest(fields, f"the file {str(path)!r}")
    return fields
