"""What the tables say, checked as it is read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dplangevin import _check
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._admission import Bill, bill
from dplangevin.ledger._store import Session
from dplangevin.ledger.entry import Entry
from dplangevin.privacy import serialize
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import ADJACENCIES

WHOLE = ""
"""The part that is the whole data set."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The row of one data set."""

    name: str
    epsilon: float
    delta: float
    adjacency: str
    max_rows_per_person: int
    created: str
    entries: int


def account(session: Session, name: str) -> Account | None:
    """The row of a data set, or None."""
    found = session.rows(
        "SELECT name, epsilon, delta, adjacency, max_rows_per_person, created, entries "
        "FROM dplangevin_dataset WHERE name = ?",
        name,
    )
    if not found:
        return None
    _, epsilon, delta, adjacency, rows, created, entries = found[0]
    try:
        return Account(
            name=name,
            epsilon=_check.positive("epsilon", epsilon),
            delta=budget_delta(delta),
            adjacency=_check.choice("adjacency", adjacency, ADJACENCIES),
            max_rows_per_person=_check.count("max_rows_per_person", rows),
            created=str(created),
            entries=_check.count("entries", entries, least=0),
        )
    except InvalidParameter as error:
        raise damaged(name, str(error)) from error


def existing(session: Session, name: str) -> Account:
    """The row of a data set that must be there."""
    found = account(session, name)
    if found is None:
        raise LedgerError(
            f"the ledger has no data set {name!r}; declare it with "
            "ledger.dataset(name, epsilon=..., delta=..., adjacency=...)."
        )
    return found


def budget_delta(value: Any) -> float:
    """0 for a pure budget, else a number below 1."""
    return 0.0 if value == 0 and not isinstance(value, bool) else _check.open_unit("delta", value)


def parts_of(session: Session, name: str) -> tuple[str, ...]:
    """The declared disjoint parts of a data set."""
    found = session.rows("SELECT name FROM dplangevin_part WHERE dataset = ? ORDER BY name", name)
    return tuple(str(row[0]) for row in found)


def bills(session: Session, owner: Account) -> dict[str, Bill]:
    """What each part has cost, releases on the whole data set included; the whole alone under WHOLE."""
    counts = session.rows(
        "SELECT part, guarantee, COUNT(*) FROM dplangevin_entry WHERE dataset = ? GROUP BY part, guarantee",
        owner.name,
    )
    if sum(row[2] for row in counts) != owner.entries:
        raise damaged(owner.name, f"it should hold {owner.entries} entries")
    contents = session.rows(
        "SELECT digest, content FROM dplangevin_guarantee WHERE digest IN "
        "(SELECT guarantee FROM dplangevin_entry WHERE dataset = ?)",
        owner.name,
    )
    known = {digest: _guarantee(owner.name, digest, content) for digest, content in contents}
    declared = {WHOLE, *parts_of(session, owner.name)}
    costs: dict[str, list[tuple[Guarantee, int]]] = {WHOLE: []}
    for part, digest, count in counts:
        if digest not in known or part not in declared:
            raise damaged(owner.name, "the guarantee or the part of an entry is missing")
        costs.setdefault(part, []).append((known[digest], int(count)))
    whole = costs[WHOLE]
    return {part: bill(whole if part == WHOLE else whole + own) for part, own in costs.items()}


def entries(session: Session, owner: Account) -> tuple[Entry, ...]:
    """Every entry of a data set, in order."""
    found = session.rows(
        "SELECT e.sequence, e.part, e.label, e.created, e.guarantee, g.content, e.plan, e.library, "
        "e.release_hash, e.released FROM dplangevin_entry e JOIN dplangevin_guarantee g "
        "ON g.digest = e.guarantee WHERE e.dataset = ? ORDER BY e.sequence",
        owner.name,
    )
    if [row[0] for row in found] != list(range(1, owner.entries + 1)):
        raise damaged(owner.name, f"it should hold entries 1 to {owner.entries}")
    return tuple(
        Entry(
            dataset=owner.name,
            sequence=int(sequence),
            part=_words(owner.name, part),
            label=_words(owner.name, label),
            created=_words(owner.name, created),
            guarantee=_guarantee(owner.name, digest, content),
            plan=_plan(owner.name, plan),
            library=_words(owner.name, library),
            release_hash=None if release_hash is None else _words(owner.name, release_hash),
            released=None if released is None else _words(owner.name, released),
        )
        for sequence, part, label, created, digest, content, plan, library, release_hash, released in found
    )


def digest_of(content: str) -> str:
    """The name under which a guarantee is kept; equal guarantees are kept once."""
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def damaged(name: str, what: str) -> LedgerError:
    """The error for rows that were changed by something else."""
    return LedgerError(
        f"the ledger's rows of data set {name!r} are damaged: {what}. Restore the ledger from a backup; "
        "nothing was charged or released."
    )


def _words(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise damaged(name, "there is something else where text should be")
    return value


def _guarantee(name: str, digest: str, content: str) -> Guarantee:
    if digest_of(_words(name, content)) != digest:
        raise damaged(name, "a guarantee was altered")
    try:
        return _loaded(content)
    except InvalidParameter as error:
        raise damaged(name, str(error)) from error


_loaded = lru_cache(maxsize=4096)(
    serialize.loads
)  # a text means the same for ever, so this cannot grow stale


def _plan(name: str, text: Any) -> dict[str, Any]:
    try:
        found = json.loads(_words(name, text))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise damaged(name, "a plan cannot be read")
    return found
