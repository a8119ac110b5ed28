"""The database of a ledger: its tables, sessions and stores, for SQLite and PostgreSQL with the same statements.

Every operation is one short transaction, so that nothing is remembered that another process could change.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger.entry import Charge, hash_token, next_link

SCHEMA_VERSION = 3
WAIT_SECONDS = 30
"""How long a charge waits for other processes or for the network; a process that dies frees its lock at once."""

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
"""Entries are numbered per data set without gaps; the part '' is the whole data set."""


class CommitUncertain(LedgerError):
    """The connection was lost while the transaction was being committed: it may or may not have happened."""


class LedgerVersionMismatch(LedgerError):
    """The ledger has another version than the expected one."""

    def __init__(self, message: str, version: int = 0) -> None:
        super().__init__(message)
        self.version = version


class Session(ABC):
    """One transaction."""

    @abstractmethod
    def query(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """Run a query and return its rows; ? stands for a value."""

    @abstractmethod
    def execute(self, statement: str, *values: Any) -> int:
        """Run a statement and return the number of rows it changed."""

    @abstractmethod
    def lock_declarations(self) -> None:
        """Make other declarations wait until the transaction ends."""

    def append_entry(self, charge: Charge, content: str, head: str) -> bool:
        """Append an entry if the data set's head is still this one; return whether it was appended."""
        rows = self.query("SELECT entries, head FROM dplangevin_dataset WHERE name = ?", charge.dataset)
        if not rows or rows[0][1] != head:
            return False
        sequence = int(rows[0][0]) + 1
        chain = next_link(head, sequence, charge)
        self.execute(
            "INSERT INTO dplangevin_guarantee (digest, content) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING",
            charge.guarantee,
            content,
        )
        self.execute(
            "INSERT INTO dplangevin_entry (dataset, sequence, token, part, label, created, guarantee, plan, "
            "library, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(charge.dataset, sequence, charge.token, charge.part, charge.label, charge.created),
            *(charge.guarantee, charge.plan, charge.library, chain),
        )
        self.execute(
            "UPDATE dplangevin_dataset SET entries = ?, head = ? WHERE name = ?",
            sequence,
            chain,
            charge.dataset,
        )
        return True

    def note_release(self, dataset: str, token: str, release_hash: str, released: str) -> None:
        """Write the hash of the release that was charged under a token; a second note is ignored."""
        self.execute(
            "UPDATE dplangevin_entry SET release_hash = ?, released = ? WHERE dataset = ? AND token = ? "
            "AND release_hash IS NULL",
            *(release_hash, released, dataset, hash_token(token)),
        )


class Store(ABC):
    """A database of a ledger, given by its URL."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    @abstractmethod
    def display_url(self) -> str:
        """The URL without secrets, for messages."""

    @abstractmethod
    def create(self) -> None:
        """Create a new ledger; refuse where anything exists already."""

    @abstractmethod
    def transaction(
        self, *, write: bool = False, version: int = SCHEMA_VERSION
    ) -> AbstractContextManager[Session]:
        """Open a transaction: all of it happens or nothing; database errors become LedgerError."""

    @abstractmethod
    def grant(self, role: str, privilege: str) -> None:
        """Give another user of the database the rights of a "spender" or a "reader", or revoke them ("nothing")."""

    @abstractmethod
    def prepare_database(self, session: Session) -> None:
        """Create what a ledger of the present version needs besides its tables."""

    def keep_old_copy(self, version: int) -> str:
        """Keep a copy before an upgrade, where the store can; return a phrase on where it is, or ""."""
        return ""

    def initialize_tables(self, session: Session) -> None:
        """Create the tables in an empty database."""
        for table in TABLES:
            session.execute(table)
        session.execute("INSERT INTO dplangevin_ledger VALUES (?, ?)", "schema", str(SCHEMA_VERSION))
        session.execute("INSERT INTO dplangevin_ledger VALUES (?, ?)", "identity", secrets.token_hex(16))
        self.prepare_database(session)

    def check_version(self, session: Session, expected_version: int = SCHEMA_VERSION) -> None:
        """Refuse a ledger of another version than the expected one."""
        rows = session.query("SELECT value FROM dplangevin_ledger WHERE name = ?", "schema")
        if len(rows) != 1 or not str(rows[0][0]).isdecimal():
            raise LedgerError(
                f"the ledger {self.display_url} does not state its version; restore it from a backup."
            )
        version = int(rows[0][0])
        if version > SCHEMA_VERSION:
            raise LedgerError(
                f"the ledger {self.display_url} has version {version}, and this library knows up to "
                f"{SCHEMA_VERSION}; upgrade dplangevin. Nothing was changed."
            )
        if version < expected_version:
            raise LedgerVersionMismatch(
                f"the ledger {self.display_url} has the older version {version}; its owner upgrades it, with "
                "every charge, by `dplangevin ledger upgrade` or Ledger.upgrade(url). Nothing was changed.",
                version,
            )
        if version > expected_version:
            message = f"the ledger {self.display_url} has version {version} already; nothing was changed."
            raise LedgerVersionMismatch(message, version)


def open_store(url: str) -> Store:
    """Return the store at a URL: sqlite:///file.db or postgresql://user@host/database."""
    if not isinstance(url, str):
        raise InvalidParameter(f"the URL of a ledger must be text, got {type(url).__name__}.")
    scheme, separator, rest = url.partition("://")
    if separator and scheme == "sqlite":
        from dplangevin.ledger._sqlite import SQLiteStore

        return SQLiteStore.from_url_path(rest)
    if separator and scheme in ("postgresql", "postgres"):
        from dplangevin.ledger._postgres import PostgresStore

        return PostgresStore(url)
    start = f"{scheme}://..." if separator else repr(url[:40])
    raise InvalidParameter(
        f"{start} is not the URL of a ledger; use sqlite:///file.db or postgresql://user@host/database."
    )
