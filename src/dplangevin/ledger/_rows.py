"""Rows of the ledger's tables and the guarantees in them, checked as they are read, and the upgrade of older ledgers.

An entry's text is part of its hash chain, so it is never rewritten. Version 1 had no typed conditions: it marked
assumptions that were conditions. Only this module reads those marks, as conditions of the kind "stated-in-words".
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dplangevin import _check, _plain
from dplangevin.accounting import serialize
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._store import SCHEMA_VERSION, LedgerVersionMismatch, Session, Store
from dplangevin.ledger.entry import Charge, Entry, comparison_key, first_link, hash_token, next_link
from dplangevin.problem.constants import ADJACENCIES

_FIRST_VERSION = 1
_CONDITIONAL_PREFIX = "CONDITIONAL on "
_EVENT_MARK = "that event is outside the promise"  # as version 1 wrote it


def read_stored_guarantee(text: str) -> Guarantee:
    """Return the guarantee in an entry's text, whatever version wrote it."""
    return convert_stored_guarantee(_plain.parse_json(text, "the guarantee"))


def convert_stored_guarantee(plain: Any) -> Guarantee:
    """Return the guarantee in plain data of any version."""
    if isinstance(plain, dict) and plain.get("version") == _FIRST_VERSION and plain["version"] is not True:
        plain = {**_with_conditions(plain), "version": serialize.VERSION}
    return serialize.guarantee_from_plain(plain)


def _with_conditions(plain: dict[str, Any]) -> dict[str, Any]:
    assumptions = plain.get("assumptions")
    if "conditions" in plain or not isinstance(assumptions, list):
        return plain  # not what version 1 wrote: the reader refuses it
    marked = [
        text
        for text in assumptions
        if isinstance(text, str) and (text.startswith(_CONDITIONAL_PREFIX) or _EVENT_MARK in text)
    ]
    conditions = [
        {"kind": "stated-in-words", "text": text.removeprefix(_CONDITIONAL_PREFIX) or text} for text in marked
    ]
    converted = {
        **plain,
        "conditions": conditions,
        "assumptions": [text for text in assumptions if text not in marked],
    }
    if isinstance(plain.get("composition"), dict):
        converted["composition"] = _with_conditions(plain["composition"])
    return converted


WHOLE_DATASET = ""
"""The name of the part that is the whole data set."""
DEFAULT_DELTA_SHARE = 0.1
"""The fraction of delta that becomes slack at the split, where the owner stated none."""


@dataclass(frozen=True, kw_only=True)
class DatasetRow:
    """The row of one data set: its declared budget and the state of its chain.

    Parameters
    ----------
    entries : number of charges.
    genesis, head : the first and the last link of its chain.
    expects, delta_share, pure_reserve : how the filter splits the budget; expects is "" where none was declared.
    fixed_cost_entries : number of entries that were admitted before there was a filter.
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
    delta_share: float = DEFAULT_DELTA_SHARE
    pure_reserve: float = 0.0
    fixed_cost_entries: int = 0


@dataclass(frozen=True, kw_only=True)
class Link:
    """One entry with its link of the chain."""

    sequence: int
    charge: Charge
    chain: str


def find_dataset(session: Session, name: str) -> DatasetRow | None:
    """Return the row of the data set of this name, or of one that compares as equal; None when there is none."""
    rows = session.query(_SELECT_DATASET + "d.name = ?", name)
    if not rows:  # not by the stored comparison key: its rule may have changed since
        similar_names = [
            known for known in dataset_names(session) if comparison_key(known) == comparison_key(name)
        ]
        if len(similar_names) > 1:
            raise InvalidParameter(
                f"{name!r} may mean one of {', '.join(map(repr, similar_names))}; write the name exactly."
            )
        rows = session.query(_SELECT_DATASET + "d.name = ?", similar_names[0]) if similar_names else []
    return _verify_dataset_row(rows[0]) if rows else None


_SELECT_DATASET = (
    "SELECT d.name, d.epsilon, d.delta, d.adjacency, d.max_rows_per_person, d.strict, d.created, d.entries, "
    "d.genesis, d.head, d.expects, d.delta_share, d.pure_reserve, d.fixed_cost_entries, (SELECT value FROM "
    "dplangevin_ledger WHERE name = 'identity') FROM dplangevin_dataset d WHERE "
)


def _verify_dataset_row(row: tuple[Any, ...]) -> DatasetRow:
    dataset_row = parse_dataset_row(row[:10])
    dataset_row = replace(dataset_row, **_parse_split(dataset_row.name, row[10:14]))
    if dataset_row.genesis != first_link(
        _require_text(dataset_row.name, row[-1]), dataset_row.name, declared_budget(dataset_row)
    ):
        raise damage_error(dataset_row.name, "its budget is not the one that was declared")
    return dataset_row


def parse_dataset_row(row: tuple[Any, ...]) -> DatasetRow:
    """Return the fields of a row, each checked."""
    name, epsilon, delta, adjacency, rows, strict, created, entries, first_chain, head = row
    name = _require_text("?", name)
    try:
        return DatasetRow(
            name=name,
            epsilon=_check.check_positive("epsilon", epsilon),
            delta=check_budget_delta(delta),
            adjacency=_check.check_choice("adjacency", adjacency, ADJACENCIES),
            max_rows_per_person=_check.check_count("max_rows_per_person", rows),
            strict=_check.check_count("strict", strict, minimum=0) == 1,
            created=_require_text(name, created),
            entries=_check.check_count("entries", entries, minimum=0),
            genesis=_require_text(name, first_chain),
            head=_require_text(name, head),
        )
    except InvalidParameter as error:
        raise damage_error(name, str(error)) from error


def _parse_split(name: str, row: tuple[Any, ...]) -> dict[str, Any]:
    """Return how the budget is split; where no split was declared, the columns are ignored."""
    expects, delta_share, reserve, earlier = row
    try:
        count = _check.check_count("fixed_cost_entries", earlier, minimum=0)
        if _require_text(name, expects) == "":
            return {"fixed_cost_entries": count}
        return {
            "expects": expects,
            "delta_share": _check.check_open_unit("delta_share", delta_share),
            "pure_reserve": _check.check_nonnegative("pure_reserve", reserve),
            "fixed_cost_entries": count,
        }
    except InvalidParameter as error:
        raise damage_error(name, str(error)) from error


def declared_budget(dataset_row: DatasetRow) -> tuple[Any, ...]:
    """Return the values that the first link hashes; data sets of older ledgers, without a split, keep their link."""
    budget = (dataset_row.epsilon, dataset_row.delta, dataset_row.adjacency, dataset_row.max_rows_per_person)
    split = (
        (dataset_row.expects, dataset_row.delta_share, dataset_row.pure_reserve)
        if dataset_row.expects
        else ()
    )
    return (*budget, int(dataset_row.strict), dataset_row.created, *split)


def require_dataset(session: Session, name: str) -> DatasetRow:
    """Return the row of a data set; an error where there is none."""
    dataset_row = find_dataset(session, name)
    if dataset_row is None:
        known = ", ".join(repr(str(row[0])) for row in session.query(_SELECT_NAMES)[:20])
        raise LedgerError(
            f"the ledger has no data set {name!r}; it has: {known or 'none'}. The owner declares one with "
            "ledger.declare(name, epsilon=..., delta=...) or `dplangevin ledger declare`; nothing was "
            "charged."
        )
    return dataset_row


_SELECT_NAMES = "SELECT name FROM dplangevin_dataset ORDER BY name"


def dataset_names(session: Session) -> tuple[str, ...]:
    """Return the names of all data sets."""
    return tuple(str(row[0]) for row in session.query(_SELECT_NAMES))


def check_budget_delta(value: Any) -> float:
    """Check the delta of a budget: 0 for a pure budget, else strictly between 0 and 1."""
    return 0.0 if value == 0 and not isinstance(value, bool) else _check.check_open_unit("delta", value)


def part_names(session: Session, name: str) -> tuple[str, ...]:
    """Return the names of the declared disjoint parts of a data set."""
    rows = session.query("SELECT name FROM dplangevin_part WHERE dataset = ? ORDER BY name", name)
    return tuple(str(row[0]) for row in rows)


def require_part(session: Session, dataset: str, name: str) -> str:
    """Return the name of the declared part that equals this name or compares as equal; an error where none does."""
    declared_names = part_names(session, dataset)
    similar_names = (
        [name]
        if name in declared_names
        else [part for part in declared_names if comparison_key(part) == comparison_key(name)]
    )
    if len(similar_names) != 1:
        raise InvalidParameter(
            f"data set {dataset!r} has no part {name!r} (declared: {', '.join(declared_names) or 'none'}); "
            "the owner declares it with ledger.declare(name, parts=[...])."
        )
    return similar_names[0]


def read_links(
    session: Session, dataset_row: DatasetRow, after_sequence: int = 0, previous_chain: str | None = None
) -> list[Link]:
    """Return the entries after a given one, with every link checked from there to the data set's head."""
    link_before = dataset_row.genesis if previous_chain is None else previous_chain
    rows = session.query(
        "SELECT sequence, token, part, label, created, guarantee, plan, library, chain FROM dplangevin_entry "
        "WHERE dataset = ? AND sequence > ? ORDER BY sequence",
        dataset_row.name,
        after_sequence,
    )
    # the length first: an altered, huge number of entries must not be enumerated
    if len(rows) != dataset_row.entries - after_sequence or any(
        row[0] != expected for expected, row in enumerate(rows, after_sequence + 1)
    ):
        raise damage_error(
            dataset_row.name, f"it should hold entries {after_sequence + 1} to {dataset_row.entries}"
        )
    links = []
    for sequence, *fields, chain in rows:
        token, part, label, created, digest, plan, library = (
            _require_text(dataset_row.name, field) for field in fields
        )
        charge = Charge(
            dataset=dataset_row.name,
            token=token,
            part=part,
            label=label,
            created=created,
            guarantee=digest,
            plan=plan,
            library=library,
        )
        link_before = next_link(link_before, int(sequence), charge)
        if chain != link_before:
            raise damage_error(dataset_row.name, f"entry {sequence} was altered")
        links.append(Link(sequence=int(sequence), charge=charge, chain=link_before))
    if link_before != dataset_row.head:
        raise damage_error(dataset_row.name, "its last entry is not the head of its chain")
    return links


def read_costs(
    session: Session, dataset_row: DatasetRow, chain_links: list[Link]
) -> Iterator[tuple[str, Guarantee]]:
    """Yield the part and the guarantee of each entry, checked."""
    if not chain_links:
        return
    contents = session.query(
        "SELECT digest, content FROM dplangevin_guarantee WHERE digest IN "
        "(SELECT guarantee FROM dplangevin_entry WHERE dataset = ? AND sequence >= ?)",
        dataset_row.name,
        chain_links[0].sequence,
    )
    guarantees = {digest: _parse_guarantee(dataset_row.name, digest, content) for digest, content in contents}
    declared_parts = {WHOLE_DATASET, *part_names(session, dataset_row.name)}
    for link in chain_links:
        if link.charge.guarantee not in guarantees or link.charge.part not in declared_parts:
            raise damage_error(dataset_row.name, "the guarantee or the part of an entry is missing")
        yield link.charge.part, guarantees[link.charge.guarantee]


def read_last_cost(session: Session, dataset_row: DatasetRow) -> Guarantee | None:
    """Return the guarantee of the last entry; None where there is none."""
    rows = session.query(
        "SELECT g.digest, g.content FROM dplangevin_entry e JOIN dplangevin_guarantee g ON g.digest = "
        "e.guarantee WHERE e.dataset = ? AND e.sequence = ?",
        dataset_row.name,
        dataset_row.entries,
    )
    return _parse_guarantee(dataset_row.name, *rows[0]) if rows else None


def read_entries(session: Session, dataset_row: DatasetRow) -> tuple[Entry, ...]:
    """Return every entry of a data set, in order, with its link checked."""
    links = read_links(session, dataset_row)
    guarantees = [guarantee for _, guarantee in read_costs(session, dataset_row, links)]
    notes = session.query(
        "SELECT release_hash, released FROM dplangevin_entry WHERE dataset = ? ORDER BY sequence",
        dataset_row.name,
    )
    return tuple(
        Entry(
            dataset=dataset_row.name,
            sequence=link.sequence,
            part=link.charge.part,
            label=link.charge.label,
            created=link.charge.created,
            guarantee=guarantee,
            plan=parse_plan(dataset_row.name, link.charge.plan),
            library=link.charge.library,
            release_hash=None if release_hash is None else _require_text(dataset_row.name, release_hash),
            released=None if released is None else _require_text(dataset_row.name, released),
            chain=link.chain,
        )
        for link, guarantee, (release_hash, released) in zip(links, guarantees, notes, strict=True)
    )


def content_digest(content: str) -> str:
    """Return the hash under which a guarantee is stored; equal guarantees are stored once."""
    return hashlib.sha256(content.encode("utf-8")).hexdigest()


def damage_error(name: str, reason: str) -> LedgerError:
    """Return the error for rows that are damaged or were changed by another program."""
    return LedgerError(
        f"the ledger's rows of data set {name!r} are damaged: {reason}. Restore the ledger from a backup; "
        "nothing was charged or released."
    )


def _require_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise damage_error(name, f"there is a value of type {type(value).__name__} where text should be")
    return value


def _parse_guarantee(name: str, digest: str, content: str) -> Guarantee:
    if content_digest(_require_text(name, content)) != digest:
        raise damage_error(name, "a guarantee was altered")
    try:
        return _load_guarantee(content)
    except InvalidParameter as error:
        raise damage_error(name, str(error)) from error


# a text always means the same guarantee, so the cache cannot become stale
_load_guarantee = lru_cache(maxsize=4096)(read_stored_guarantee)


def parse_plan(name: str, text: str) -> dict[str, Any]:
    """Return the plan of an entry from its JSON text."""
    try:
        plan = json.loads(text)
    except (ValueError, RecursionError):
        plan = None
    if not isinstance(plan, dict):
        raise damage_error(name, "a plan cannot be read")
    return plan


_SPLIT_COLUMNS = (
    "ALTER TABLE dplangevin_dataset ADD COLUMN expects TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE dplangevin_dataset ADD COLUMN delta_share DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE dplangevin_dataset ADD COLUMN pure_reserve DOUBLE PRECISION NOT NULL DEFAULT 0",
    "ALTER TABLE dplangevin_dataset ADD COLUMN fixed_cost_entries BIGINT NOT NULL DEFAULT 0",
    "UPDATE dplangevin_dataset SET fixed_cost_entries = entries",
)
_CHAIN_COLUMNS = (
    "ALTER TABLE dplangevin_dataset ADD COLUMN compared TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE dplangevin_dataset ADD COLUMN strict BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE dplangevin_dataset ADD COLUMN genesis TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE dplangevin_dataset ADD COLUMN head TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE dplangevin_part ADD COLUMN compared TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE dplangevin_entry ADD COLUMN chain TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX dplangevin_entry_chain ON dplangevin_entry (chain)",
)


def upgrade_store(store: Store) -> str:
    """Upgrade a ledger of an older version in one transaction; return a phrase on where the old copy is kept.

    Version 2 added the chain: a link for every entry. Version 3 splits budgets for the privacy filter: earlier
    entries stay, and are marked as admitted under the rule of fixed costs.
    """
    version = _upgradable_version(store)
    copy_text = store.keep_old_copy(version)
    with store.transaction(write=True, version=version) as session:
        session.lock_declarations()
        if version == 1:
            _add_chain(session)
        for statement in _SPLIT_COLUMNS:
            session.execute(statement)
        session.execute(
            "UPDATE dplangevin_ledger SET value = ? WHERE name = ?", str(SCHEMA_VERSION), "schema"
        )
        store.prepare_database(session)
    return copy_text


def _upgradable_version(store: Store) -> int:
    """Return the version of the ledger; an error where it cannot be upgraded."""
    try:
        with store.transaction(version=1):
            return 1
    except LedgerVersionMismatch as error:
        if error.version != 2:
            raise
    return 2


def _add_chain(session: Session) -> None:
    for statement in _CHAIN_COLUMNS:
        session.execute(statement)
    identity = secrets.token_hex(16)
    session.execute("INSERT INTO dplangevin_ledger VALUES (?, ?)", "identity", identity)
    for name in dataset_names(session):
        _add_chain_to_dataset(session, name, identity)


def _add_chain_to_dataset(session: Session, name: str, identity: str) -> None:
    row = session.query(
        "SELECT name, epsilon, delta, adjacency, max_rows_per_person, 0, created, entries, '', '' "
        "FROM dplangevin_dataset WHERE name = ?",
        name,
    )[0]
    dataset_row = parse_dataset_row(row)
    first = first_link(identity, name, declared_budget(dataset_row))
    head = _write_links(session, replace(dataset_row, genesis=first, head=first))
    session.execute(
        "UPDATE dplangevin_dataset SET compared = ?, genesis = ?, head = ? WHERE name = ?",
        *(comparison_key(name), first, head, name),
    )
    for part in part_names(session, name):
        session.execute(
            "UPDATE dplangevin_part SET compared = ? WHERE dataset = ? AND name = ?",
            comparison_key(part),
            name,
            part,
        )


def _write_links(session: Session, dataset_row: DatasetRow) -> str:
    """Write the link of every entry; return the last one."""
    rows = session.query(
        "SELECT sequence, token, part, label, created, guarantee, plan, library FROM dplangevin_entry "
        "WHERE dataset = ? ORDER BY sequence",
        dataset_row.name,
    )
    if [row[0] for row in rows] != list(range(1, dataset_row.entries + 1)):
        raise damage_error(dataset_row.name, f"it should hold entries 1 to {dataset_row.entries}")
    chain = dataset_row.genesis
    for sequence, token, part, label, created, guarantee, plan, library in rows:
        charge = Charge(
            dataset=dataset_row.name,
            token=hash_token(token),
            part=part,
            label=label,
            created=created,
            guarantee=guarantee,
            plan=plan,
            library=library,
        )
        chain = next_link(chain, int(sequence), charge)
        session.execute(
            "UPDATE dplangevin_entry SET token = ?, chain = ? WHERE dataset = ? AND sequence = ?",
            *(charge.token, chain, dataset_row.name, sequence),
        )
    for _ in read_costs(session, dataset_row, read_links(session, replace(dataset_row, head=chain))):
        pass  # damage is found before the new version is written
    return chain
