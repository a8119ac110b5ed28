"""What a process knows of a data set's books: the composition of every entry up to a head of the chain.

Nothing is trusted because it is remembered: it is used only with the very head it was made for. New entries are added
to it link by link, from the first one where nothing is known; a ledger that has lost or changed entries is refused.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from dplangevin.errors import LedgerError
from dplangevin.ledger import _kept, _rows
from dplangevin.ledger._bill import Bill
from dplangevin.ledger._chain import Charge, link
from dplangevin.ledger._lattice import grid_for
from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.ledger._store import Session
from dplangevin.privacy.guarantee import Guarantee

_MOST = 32
_known: OrderedDict[tuple[str, str], Books] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Books:
    """The bills of a data set at a head; each part's holds the releases on the whole data set as well."""

    sequence: int
    head: str
    bills: dict[str, Bill]
    kept: int = 0  # the entries that were on the disk of this user, composed
    answers: dict[Any, Any] = field(default_factory=dict)

    def on(self, part: str) -> list[Bill]:
        """The bills that a release adds to: a record lies in one part, so each part is a case of its own."""
        if part != WHOLE:
            return [self.bills.get(part, self.bills[WHOLE])]
        return list(self.bills.values())


def remembered(url: str) -> dict[str, Books]:
    """What is known now, taken before a transaction begins: the database can then only be as new or newer."""
    with _lock:
        return {first: known for (address, first), known in _known.items() if address == url}


def books(session: Session, url: str, owner: Account, before: dict[str, Books]) -> Books:
    """The books at the head of the data set, every link checked that was not known."""
    known = before.get(owner.genesis) or _kept_books(session, url, owner)
    if known.sequence > owner.entries or (known.sequence == owner.entries and known.head != owner.head):
        raise LedgerError(
            f"the ledger is older than it was, or another one: this process has seen {known.sequence} entries of "
            f"data set {owner.name!r}, and they are not there now. Somebody restored an old copy: see "
            "`dplangevin ledger verify`. Nothing was charged."
        )
    new = _rows.links(session, owner, known.sequence, known.head)
    if new:
        costs = Counter(_rows.costs(session, owner, new))
        known = Books(owner.entries, owner.head, _with(known.bills, costs), known.kept)
    _remember(url, owner, known)
    return known


def appended(url: str, owner: Account, known: Books, charge: Charge, cost: Guarantee) -> None:
    """Remember the entry that this process has just written."""
    sequence = owner.entries + 1
    bills = _with(known.bills, Counter({(charge.part, cost): 1}))
    _remember(url, owner, Books(sequence, link(owner.head, sequence, charge), bills, known.kept))


def composed(url: str, owner: Account, known: Books) -> Books:
    """The same books; where many entries are new they are composed, and kept for the next process."""
    if known.sequence - known.kept < _kept.WORTH:
        return known
    _kept.save(url, owner.genesis, known.sequence, known.head, known.bills)
    known = replace(known, kept=known.sequence)  # also where it could not be written: it is tried once
    _remember(url, owner, known)
    return known


def _kept_books(session: Session, url: str, owner: Account) -> Books:
    """What an earlier process of this user has composed, if its head is on the chain that is there; else nothing."""
    grid = grid_for(owner.epsilon)
    found = _kept.load(url, owner.genesis, grid) if owner.entries >= _kept.WORTH else None
    if found is not None:
        sequence, head, bills = found
        there = session.rows(
            "SELECT chain FROM dplangevin_entry WHERE dataset = ? AND sequence = ?", owner.name, sequence
        )
        if sequence <= owner.entries and [tuple(row) for row in there] == [(head,)]:
            return Books(sequence, head, bills, sequence)
    return Books(0, owner.genesis, {WHOLE: Bill(grid=grid)})


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


def _with(bills: dict[str, Bill], costs: Counter[tuple[str, Guarantee]]) -> dict[str, Bill]:
    whole = [(guarantee, count) for (part, guarantee), count in costs.items() if part == WHOLE]
    found = {}
    for part in sorted({*bills, *(part for part, _ in costs)}):
        own = [(guarantee, count) for (name, guarantee), count in costs.items() if name == part != WHOLE]
        found[part] = bills.get(part, bills[WHOLE]).with_releases(whole + own)
    return found


if hasattr(os, "register_at_fork"):  # another thread may hold the lock at the moment of the fork
    os.register_at_fork(after_in_child=_unlocked)
