"""A ledger of an older version becomes one of the present version: every charge is kept, and gets its link."""

from __future__ import annotations

import secrets
from dataclasses import replace

from dplangevin.ledger import _rows
from dplangevin.ledger._chain import Charge, genesis, hashed_token, link
from dplangevin.ledger._rows import Account
from dplangevin.ledger._store import SCHEMA_VERSION, OtherVersion, Session, Store
from dplangevin.ledger._text import comparable

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


def upgrade(store: Store) -> str:
    """From an older version, in one transaction; returns where a copy of the old ledger is kept, in words.

    Version 2 gave every entry its link. Version 3 splits budgets for the privacy filter: what was admitted before
    stays, and is marked as admitted under the rule of fixed costs.
    """
    version = _version(store)
    kept = store.keep_old(version)
    with store.transaction(write=True, version=version) as session:
        session.lock_declarations()
        if version == 1:
            _add_chain(session)
        for statement in _SPLIT_COLUMNS:
            session.change(statement)
        session.change("UPDATE dplangevin_ledger SET value = ? WHERE name = ?", str(SCHEMA_VERSION), "schema")
        store.prepare(session)
    return kept


def _version(store: Store) -> int:
    """The version that is there, if it can be upgraded."""
    try:
        with store.transaction(version=1):
            return 1
    except OtherVersion as error:
        if error.version != 2:
            raise
    return 2


def _add_chain(session: Session) -> None:
    for statement in _CHAIN_COLUMNS:
        session.change(statement)
    identity = secrets.token_hex(16)
    session.change("INSERT INTO dplangevin_ledger VALUES (?, ?)", "identity", identity)
    for name in _rows.names(session):
        _dataset(session, name, identity)


def _dataset(session: Session, name: str, identity: str) -> None:
    row = session.rows(
        "SELECT name, epsilon, delta, adjacency, max_rows_per_person, 0, created, entries, '', '' "
        "FROM dplangevin_dataset WHERE name = ?",
        name,
    )[0]
    owner = _rows.account_of(row)
    first = genesis(identity, name, _rows.declared(owner))
    head = _chained(session, replace(owner, genesis=first, head=first))
    session.change(
        "UPDATE dplangevin_dataset SET compared = ?, genesis = ?, head = ? WHERE name = ?",
        *(comparable(name), first, head, name),
    )
    for part in _rows.parts_of(session, name):
        session.change(
            "UPDATE dplangevin_part SET compared = ? WHERE dataset = ? AND name = ?",
            comparable(part),
            name,
            part,
        )


def _chained(session: Session, owner: Account) -> str:
    """Write the link of every entry; returns the last one."""
    found = session.rows(
        "SELECT sequence, token, part, label, created, guarantee, plan, library FROM dplangevin_entry "
        "WHERE dataset = ? ORDER BY sequence",
        owner.name,
    )
    if [row[0] for row in found] != list(range(1, owner.entries + 1)):
        raise _rows.damaged(owner.name, f"it should hold entries 1 to {owner.entries}")
    chain = owner.genesis
    for sequence, token, part, label, created, guarantee, plan, library in found:
        charge = Charge(
            dataset=owner.name, token=hashed_token(token), part=part, label=label, created=created, guarantee=guarantee,
            plan=plan, library=library,
        )  # fmt: skip
        chain = link(chain, int(sequence), charge)
        session.change(
            "UPDATE dplangevin_entry SET token = ?, chain = ? WHERE dataset = ? AND sequence = ?",
            *(charge.token, chain, owner.name, sequence),
        )
    for _ in _rows.costs(session, owner, _rows.links(session, replace(owner, head=chain))):
        pass  # damage is found before the new version is written
    return chain
