"""What a process knows of a data set's books: the state of its filter at a head of the chain.

Nothing is trusted because it is remembered: it is used only with the very head it was made for. New entries are
replayed link by link, from the first one where nothing is known; a ledger that has lost or changed entries is refused.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from dplangevin.errors import LedgerError
from dplangevin.ledger import _admission, _kept, _rows, _seen_heads
from dplangevin.ledger._admission import Standing
from dplangevin.ledger._chain import Charge, link
from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.ledger._store import Session

_MOST = 32
_known: OrderedDict[tuple[str, str], Books] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Books:
    """Where a data set stands at a head."""

    sequence: int
    head: str
    standing: Standing
    kept: int = 0  # the entries whose replay is on the disk of this user
    answers: dict[Any, Any] = field(default_factory=dict)


def remembered(url: str) -> dict[str, Books]:
    """What is known now, taken before a transaction begins: the database can then only be as new or newer."""
    with _lock:
        return {first: known for (address, first), known in _known.items() if address == url}


def books(session: Session, url: str, owner: Account, before: dict[str, Books]) -> Books:
    """The books at the head of the data set, every link checked that was not known."""
    restores, replaced = _seen_heads.check(session, url, owner)
    if replaced:
        before = {}
        forget()
    known = before.get(owner.genesis) or _kept_books(session, url, owner)
    if known.sequence > owner.entries or (known.sequence == owner.entries and known.head != owner.head):
        raise LedgerError(
            f"the ledger is older than it was, or another one: this process has seen {known.sequence} entries of "
            f"data set {owner.name!r}, and they are not there now. Somebody restored an old copy: see "
            "`dplangevin ledger verify`. Nothing was charged."
        )
    new = _rows.links(session, owner, known.sequence, known.head)
    if new:
        standing, rule = known.standing, _admission.rule_of(owner)
        for each, (part, cost) in zip(new, _rows.costs(session, owner, new), strict=True):
            standing = _admission.replay(rule, standing, each.sequence, part, cost, each.charge.plan)
        known = Books(owner.entries, owner.head, standing, known.kept)
    _remember(url, owner, known)
    _seen_heads.remember(owner.genesis, owner.entries, owner.head, restores)
    return known


def appended(url: str, owner: Account, known: Books, charge: Charge, after: Standing) -> None:
    """Remember the entry that this process has just written."""
    sequence = owner.entries + 1
    head = link(owner.head, sequence, charge)
    _remember(url, owner, Books(sequence, head, after, known.kept))
    _seen_heads.remember(owner.genesis, sequence, head)


def save_standing(url: str, owner: Account, known: Books) -> Books:
    """The same books; where many entries are new their replay is kept for the next process."""
    if known.sequence - known.kept < _kept.WORTH:
        return known
    _kept.save(url, owner.genesis, known.sequence, known.head, known.standing)
    known = replace(known, kept=known.sequence)  # also where it could not be written: it is tried once
    _remember(url, owner, known)
    return known


def _kept_books(session: Session, url: str, owner: Account) -> Books:
    """What an earlier process of this user has replayed, if its head is on the chain that is there; else nothing."""
    found = _kept.load(url, owner.genesis) if owner.entries >= _kept.WORTH else None
    if found is not None:
        sequence, head, standing = found
        there = session.rows(
            "SELECT chain FROM dplangevin_entry WHERE dataset = ? AND sequence = ?", owner.name, sequence
        )
        if sequence <= owner.entries and [tuple(row) for row in there] == [(head,)]:
            return Books(sequence, head, standing, sequence)
    return Books(0, owner.genesis, Standing(states={WHOLE: _admission.rule_of(owner).start()}))


def _remember(url: str, owner: Account, known: Books) -> None:
    key = (url, owner.genesis)
    with _lock:
        newest = _known.get(key)
        if newest is None or newest.sequence <= known.sequence:
            _known[key] = known
        _known.move_to_end(key)
        while len(_known) > _MOST:
            _known.popitem(last=False)


def forget() -> None:
    """Start again from the database, as another process would."""
    with _lock:
        _known.clear()


def _unlocked() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # another thread may hold the lock at the moment of the fork
    os.register_at_fork(after_in_child=_unlocked)
