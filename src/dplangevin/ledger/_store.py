"""Where the ledger lives: one short transaction per question, so that nothing is remembered that another process
could change. The same tables and statements serve SQLite and PostgreSQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from dplangevin.errors import InvalidParameter, LedgerError

SCHEMA_VERSION = 1
WAIT_SECONDS = 300
"""How long a spender waits for the others; a process that dies gives its lock back at once."""

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
        entries BIGINT NOT NULL)""",
    """CREATE TABLE dplangevin_part (
        dataset TEXT NOT NULL REFERENCES dplangevin_dataset (name),
        name TEXT NOT NULL,
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
        PRIMARY KEY (dataset, sequence))""",
)
"""Entries are numbered per data set without gaps; a part of '' is the whole data set."""


class Session(ABC):
    """One transaction."""

    @abstractmethod
    def rows(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """Run a query; ? stands for a value."""

    @abstractmethod
    def change(self, statement: str, *values: Any) -> int:
        """Run a statement and return how many rows it touched."""

    @abstractmethod
    def lock_dataset(self, name: str) -> None:
        """Make every other spender of this data set wait until the transaction ends."""


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
        """Make the tables if there are none; refuse a database of something else."""

    @abstractmethod
    def transaction(self, *, write: bool = False) -> AbstractContextManager[Session]:
        """Everything inside happens or nothing; database errors become LedgerError."""

    def initialise(self, session: Session) -> None:
        """Create the tables in an empty database."""
        for table in TABLES:
            session.change(table)
        session.change("INSERT INTO dplangevin_ledger VALUES (?, ?)", "schema", str(SCHEMA_VERSION))

    def check_version(self, session: Session) -> None:
        """Refuse a ledger of another version than ours."""
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
