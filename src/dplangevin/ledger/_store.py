"""Where the ledger lives: one short transaction per question, so that nothing is remembered that another process
could change. The same tables and statements serve SQLite and PostgreSQL."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._chain import Charge, hashed_token, link

SCHEMA_VERSION = 3
WAIT_SECONDS = 30
"""How long a spender waits for the others or for the network; a process that dies gives its lock back at once."""

TABLES = (
    """CREATE TABLE dplangevin_ledger (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL)""",
    """CREATE TABLE dplangevin_dataset (
        name TEXT PRIMARY KEY,
        epsilon DOUBLE PRECISION NOT NULL,
        delta DOUBLE PRECISION NOT NULL,
        adjacency TEXT NOT NULL,
        max_rows_per_person BIGINT NOT NULL,
        created TEXT NOT NULL,
        entries BIGINT NOT NULL,
        compared TEXT NOT NULL,
        strict BIGINT NOT NULL,
        genesis TEXT NOT NULL,
        head TEXT NOT NULL,
        expects TEXT NOT NULL DEFAULT '',
        delta_share DOUBLE PRECISION NOT NULL DEFAULT 0,
        pure_reserve DOUBLE PRECISION NOT NULL DEFAULT 0,
        fixed_cost_entries BIGINT NOT NULL DEFAULT 0)""",
    """CREATE TABLE dplangevin_part (
        dataset TEXT NOT NULL REFERENCES dplangevin_dataset (name),
        name TEXT NOT NULL,
        compared TEXT NOT NULL,
        PRIMARY KEY (dataset, name))""",
    """CREATE TABLE dplangevin_guarantee (
        digest TEXT PRIMARY KEY,
        content TEXT NOT NULL)""",
    """CREATE TABLE dplangevin_entry (
        dataset TEXT NOT NULL REFERENCES dplangevin_dataset (name),
        sequence BIGINT NOT NULL,
        token TEXT NOT NULL UNIQUE,
        part TEXT NOT NULL,
        label TEXT NOT NULL,
        created TEXT NOT NULL,
        guarantee TEXT NOT NULL REFERENCES dplangevin_guarantee (digest),
        plan TEXT NOT NULL,
        library TEXT NOT NULL,
        release_hash TEXT,
        released TEXT,
        chain TEXT NOT NULL,
        PRIMARY KEY (dataset, sequence))""",
    "CREATE INDEX dplangevin_entry_chain ON dplangevin_entry (chain)",
)
"""Entries are numbered per data set without gaps; a part of '' is the whole data set."""


class Uncertain(LedgerError):
    """The connection was lost while the transaction was being committed: it may or may not have happened."""


class OtherVersion(LedgerError):
    """The ledger has another version than the one that is wanted."""

    def __init__(self, words: str, version: int = 0) -> None:
        super().__init__(words)
        self.version = version


class Session(ABC):
    """One transaction."""

    @abstractmethod
    def rows(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """Run a query; ? stands for a value."""

    @abstractmethod
    def change(self, statement: str, *values: Any) -> int:
        """Run a statement and return how many rows it touched."""

    @abstractmethod
    def lock_declarations(self) -> None:
        """Make every other owner wait until the transaction ends."""

    def append(self, charge: Charge, content: str, head: str) -> bool:
        """Write an entry if the data set's head is still this one."""
        found = self.rows("SELECT entries, head FROM dplangevin_dataset WHERE name = ?", charge.dataset)
        if not found or found[0][1] != head:
            return False
        sequence = int(found[0][0]) + 1
        chain = link(head, sequence, charge)
        self.change(
            "INSERT INTO dplangevin_guarantee (digest, content) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING",
            charge.guarantee,
            content,
        )
        self.change(
            "INSERT INTO dplangevin_entry (dataset, sequence, token, part, label, created, guarantee, plan, "
            "library, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(charge.dataset, sequence, charge.token, charge.part, charge.label, charge.created),
            *(charge.guarantee, charge.plan, charge.library, chain),
        )
        self.change(
            "UPDATE dplangevin_dataset SET entries = ?, head = ? WHERE name = ?",
            sequence,
            chain,
            charge.dataset,
        )
        return True

    def note(self, dataset: str, token: str, release_hash: str, when: str) -> None:
        """Write which release an entry paid for, once."""
        self.change(
            "UPDATE dplangevin_entry SET release_hash = ?, released = ? WHERE dataset = ? AND token = ? "
            "AND release_hash IS NULL",
            *(release_hash, when, dataset, hashed_token(token)),
        )


class Store(ABC):
    """A database that can be opened again by whoever knows its URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    @abstractmethod
    def shown(self) -> str:
        """The URL without secrets, for messages."""

    @abstractmethod
    def create(self) -> None:
        """Make a new ledger; refuse where anything is already."""

    @abstractmethod
    def transaction(
        self, *, write: bool = False, version: int = SCHEMA_VERSION
    ) -> AbstractContextManager[Session]:
        """Everything inside happens or nothing; database errors become LedgerError."""

    @abstractmethod
    def grant(self, role: str, may: str) -> None:
        """Let another user of the database read, or spend."""

    @abstractmethod
    def prepare(self, session: Session) -> None:
        """Make what a ledger of the present version has beside its tables."""

    def keep_old(self, version: int) -> str:
        """Keep a copy before an upgrade, where the store can; returns where, in words."""
        return ""

    def initialise(self, session: Session) -> None:
        """Create the tables in an empty database."""
        for table in TABLES:
            session.change(table)
        session.change("INSERT INTO dplangevin_ledger VALUES (?, ?)", "schema", str(SCHEMA_VERSION))
        session.change("INSERT INTO dplangevin_ledger VALUES (?, ?)", "identity", secrets.token_hex(16))
        self.prepare(session)

    def check_version(self, session: Session, wanted: int = SCHEMA_VERSION) -> None:
        """Refuse a ledger of another version than the one that is wanted."""
        found = session.rows("SELECT value FROM dplangevin_ledger WHERE name = ?", "schema")
        if len(found) != 1 or not str(found[0][0]).isdecimal():
            raise LedgerError(
                f"the ledger {self.shown} does not state its version; restore it from a backup."
            )
        version = int(found[0][0])
        if version > SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger {self.shown} has version {version}, and this library knows up to "
                f"{SCHEMA_VERSION}; upgrade dplangevin. Nothing was changed."
            )
        if version < wanted:
            raise OtherVersion(
                f"the ledger {self.shown} has the older version {version}; its owner upgrades it, with every charge, "
                "by `dplangevin ledger upgrade` or Ledger.upgrade(url). Nothing was changed.",
                version,
            )
        if version > wanted:
            words = f"the ledger {self.shown} has version {version} already; nothing was changed."
            raise OtherVersion(words, version)


def store_for(url: str) -> Store:
    """The store a URL names: sqlite:///file.db or postgresql://user@host/database."""
    if not isinstance(url, str):
        raise InvalidParameter(f"the URL of a ledger must be text, got {type(url).__name__}.")
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        from dplangevin.ledger._sqlite import SQLiteStore

        return SQLiteStore.at(rest)
    if separator and scheme in ("postgresql", "postgres"):
        from dplangevin.ledger._postgres import PostgresStore

        return PostgresStore(url)
    start = f"{scheme}://..." if separator else repr(url[:40])
    raise InvalidParameter(
        f"{start} is not the URL of a ledger; use sqlite:///file.db or postgresql://user@host/database."
    )
