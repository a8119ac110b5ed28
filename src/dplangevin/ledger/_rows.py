"""What the tables say, checked as it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dplangevin import _check
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._chain import Charge, genesis, link
from dplangevin.ledger._store import Session
from dplangevin.ledger._stored_guarantee import read_stored_guarantee
from dplangevin.ledger._text import comparable
from dplangevin.ledger.entry import Entry
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import ADJACENCIES

WHOLE = ""
"""The part that is the whole data set."""
DELTA_SHARE = 0.1
"""The part of delta that may be lost outright, where the owner stated nothing about it."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """The row of one data set; `head` is the last link of its chain, `genesis` the first.

    expects, delta_share, pure_reserve : how the filter splits the budget; expects is "" where none was declared.
    fixed_cost_entries : the entries that were admitted before there was a filter.
    """

    name: str
    epsilon: float
    delta: float
    adjacency: str
    max_rows_per_person: int
    strict: bool
    created: str
    entries: int
    genesis: str
    head: str
    expects: str = ""
    delta_share: float = DELTA_SHARE
    pure_reserve: float = 0.0
    fixed_cost_entries: int = 0


@dataclass(frozen=True, kw_only=True)
class Link:
    """One entry as the chain knows it."""

    sequence: int
    charge: Charge
    chain: str


def account(session: Session, name: str) -> Account | None:
    """The row of the data set of this name, or of one that compares as equal; None when there is none."""
    found = session.rows(_ACCOUNT + "d.name = ?", name)
    if not found:  # compared anew, not by what was written: the rule may have grown since
        alike = [known for known in names(session) if comparable(known) == comparable(name)]
        if len(alike) > 1:
            raise InvalidParameter(
                f"{name!r} may mean one of {', '.join(map(repr, alike))}; write the name exactly."
            )
        found = session.rows(_ACCOUNT + "d.name = ?", alike[0]) if alike else []
    return _account(found[0]) if found else None


_ACCOUNT = (
    "SELECT d.name, d.epsilon, d.delta, d.adjacency, d.max_rows_per_person, d.strict, d.created, d.entries, d.genesis, "
    "d.head, d.expects, d.delta_share, d.pure_reserve, d.fixed_cost_entries, "
    "(SELECT value FROM dplangevin_ledger WHERE name = 'identity') FROM dplangevin_dataset d WHERE "
)


def _account(row: tuple[Any, ...]) -> Account:
    found = account_of(row[:10])
    found = replace(found, **_split_of(found.name, row[10:14]))
    if found.genesis != genesis(_words(found.name, row[-1]), found.name, declared(found)):
        raise damaged(found.name, "its budget is not the one that was declared")
    return found


def account_of(row: tuple[Any, ...]) -> Account:
    """The fields of a row, each checked."""
    name, epsilon, delta, adjacency, rows, strict, created, entries, first, head = row
    name = _words("?", name)
    try:
        return Account(
            name=name,
            epsilon=_check.positive("epsilon", epsilon),
            delta=budget_delta(delta),
            adjacency=_check.choice("adjacency", adjacency, ADJACENCIES),
            max_rows_per_person=_check.count("max_rows_per_person", rows),
            strict=_check.count("strict", strict, least=0) == 1,
            created=_words(name, created),
            entries=_check.count("entries", entries, least=0),
            genesis=_words(name, first),
            head=_words(name, head),
        )
    except InvalidParameter as error:
        raise damaged(name, str(error)) from error


def _split_of(name: str, row: tuple[Any, ...]) -> dict[str, Any]:
    """How the budget is split; where nothing was declared, nothing that is written there is believed."""
    expects, share, reserve, earlier = row
    try:
        count = _check.count("fixed_cost_entries", earlier, least=0)
        if _words(name, expects) == "":
            return {"fixed_cost_entries": count}
        return {
            "expects": expects,
            "delta_share": _check.open_unit("delta_share", share),
            "pure_reserve": _check.nonnegative("pure_reserve", reserve),
            "fixed_cost_entries": count,
        }
    except InvalidParameter as error:
        raise damaged(name, str(error)) from error


def declared(owner: Account) -> tuple[Any, ...]:
    """What the first link of the chain binds; data sets of older ledgers keep the link that they had."""
    budget = (owner.epsilon, owner.delta, owner.adjacency, owner.max_rows_per_person)
    split = (owner.expects, owner.delta_share, owner.pure_reserve) if owner.expects else ()
    return (*budget, int(owner.strict), owner.created, *split)


def existing(session: Session, name: str) -> Account:
    """The row of a data set that must be there."""
    found = account(session, name)
    if found is None:
        known = ", ".join(repr(str(row[0])) for row in session.rows(_NAMES)[:20])
        raise LedgerError(
            f"the ledger has no data set {name!r}; it has: {known or 'none'}. The owner declares one with "
            "ledger.declare(name, epsilon=..., delta=...) or `dplangevin ledger declare`; nothing was charged."
        )
    return found


_NAMES = "SELECT name FROM dplangevin_dataset ORDER BY name"


def names(session: Session) -> tuple[str, ...]:
    """Every data set."""
    return tuple(str(row[0]) for row in session.rows(_NAMES))


def budget_delta(value: Any) -> float:
    """0 for a pure budget, else a number below 1."""
    return 0.0 if value == 0 and not isinstance(value, bool) else _check.open_unit("delta", value)


def parts_of(session: Session, name: str) -> tuple[str, ...]:
    """The declared disjoint parts of a data set."""
    found = session.rows("SELECT name FROM dplangevin_part WHERE dataset = ? ORDER BY name", name)
    return tuple(str(row[0]) for row in found)


def part_named(session: Session, dataset: str, name: str) -> str:
    """The declared part of this name, or of one that compares as equal."""
    known = parts_of(session, dataset)
    alike = [name] if name in known else [part for part in known if comparable(part) == comparable(name)]
    if len(alike) != 1:
        raise InvalidParameter(
            f"data set {dataset!r} has no part {name!r} (declared: {', '.join(known) or 'none'}); the owner declares "
            "it with ledger.declare(name, parts=[...])."
        )
    return alike[0]


def links(session: Session, owner: Account, after: int = 0, before: str | None = None) -> list[Link]:
    """The entries after a given one, every link checked from the one that is known to the data set's head."""
    link_before = owner.genesis if before is None else before
    found = session.rows(
        "SELECT sequence, token, part, label, created, guarantee, plan, library, chain FROM dplangevin_entry "
        "WHERE dataset = ? AND sequence > ? ORDER BY sequence",
        owner.name,
        after,
    )
    # lengths first: an altered number of entries must not be counted out
    if len(found) != owner.entries - after or any(row[0] != at for at, row in enumerate(found, after + 1)):
        raise damaged(owner.name, f"it should hold entries {after + 1} to {owner.entries}")
    chained = []
    for sequence, *fields, chain in found:
        token, part, label, created, digest, plan, library = (_words(owner.name, field) for field in fields)
        charge = Charge(
            dataset=owner.name, token=token, part=part, label=label, created=created, guarantee=digest, plan=plan,
            library=library,
        )  # fmt: skip
        link_before = link(link_before, int(sequence), charge)
        if chain != link_before:
            raise damaged(owner.name, f"entry {sequence} was altered")
        chained.append(Link(sequence=int(sequence), charge=charge, chain=link_before))
    if link_before != owner.head:
        raise damaged(owner.name, "its last entry is not the head of its chain")
    return chained


def costs(session: Session, owner: Account, new: list[Link]) -> Iterator[tuple[str, Guarantee]]:
    """Part and guarantee of entries."""
    if not new:
        return
    contents = session.rows(
        "SELECT digest, content FROM dplangevin_guarantee WHERE digest IN "
        "(SELECT guarantee FROM dplangevin_entry WHERE dataset = ? AND sequence >= ?)",
        owner.name,
        new[0].sequence,
    )
    known = {digest: _guarantee(owner.name, digest, content) for digest, content in contents}
    declared_parts = {WHOLE, *parts_of(session, owner.name)}
    for each in new:
        if each.charge.guarantee not in known or each.charge.part not in declared_parts:
            raise damaged(owner.name, "the guarantee or the part of an entry is missing")
        yield each.charge.part, known[each.charge.guarantee]


def last_cost(session: Session, owner: Account) -> Guarantee | None:
    """The guarantee of the last entry, None where there is none."""
    found = session.rows(
        "SELECT g.digest, g.content FROM dplangevin_entry e JOIN dplangevin_guarantee g ON g.digest = e.guarantee "
        "WHERE e.dataset = ? AND e.sequence = ?",
        owner.name,
        owner.entries,
    )
    return _guarantee(owner.name, *found[0]) if found else None


def entries(session: Session, owner: Account) -> tuple[Entry, ...]:
    """Every entry of a data set, in order, with its link checked."""
    chained = links(session, owner)
    guarantees = [guarantee for _, guarantee in costs(session, owner, chained)]
    notes = session.rows(
        "SELECT release_hash, released FROM dplangevin_entry WHERE dataset = ? ORDER BY sequence", owner.name
    )
    return tuple(
        Entry(
            dataset=owner.name,
            sequence=each.sequence,
            part=each.charge.part,
            label=each.charge.label,
            created=each.charge.created,
            guarantee=guarantee,
            plan=plan_in(owner.name, each.charge.plan),
            library=each.charge.library,
            release_hash=None if release_hash is None else _words(owner.name, release_hash),
            released=None if released is None else _words(owner.name, released),
            chain=each.chain,
        )
        for each, guarantee, (release_hash, released) in zip(chained, guarantees, notes, strict=True)
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
    read_stored_guarantee
)  # a text means the same for ever, so this cannot grow stale


def plan_in(name: str, text: str) -> dict[str, Any]:
    """What an entry says of its plan."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise damaged(name, "a plan cannot be read")
    return found
