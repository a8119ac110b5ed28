"""The database of a ledger: its tables, sessions and stores, and the store in one SQLite file, the default.

SQLite and PostgreSQL use the same statements. Every operation is one short transaction, so that nothing is remembered
that another process could change.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
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
        from dplangevin.ledger._store import SQLiteStore

        return SQLiteStore.from_url_path(rest)
    if separator and scheme in ("postgresql", "postgres"):
        from dplangevin.ledger._postgres import PostgresStore

        return PostgresStore(url)
    start = f"{scheme}://..." if separator else repr(url[:40])
    raise InvalidParameter(
        f"{start} is not the URL of a ledger; use sqlite:///file.db or postgresql://user@host/database."
    )


_NOT_CHARGED_MESSAGE = "Nothing was charged or released, and what was written before is kept."


class _SQLiteSession(Session):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def query(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def execute(self, statement: str, *values: Any) -> int:
        return self._connection.execute(statement, values).rowcount

    def lock_declarations(self) -> None:
        """Do nothing: BEGIN IMMEDIATE holds the only write lock already."""


class SQLiteStore(Store):
    """A ledger in an SQLite file, opened for every transaction: safe under fork, threads and kill -9."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path}")
        self.path = path

    @classmethod
    def from_url_path(cls, rest: str) -> SQLiteStore:
        """Return the store for what follows sqlite:// in a URL; a relative path is made absolute."""
        if not rest.startswith("/") or rest in ("/", "/:memory:") or "\0" in rest:
            raise InvalidParameter(
                f"sqlite://{rest} names no file; use sqlite:///file.db (relative) or "
                "sqlite:////folder/file.db. A ledger in memory would not outlive the process."
            )
        return cls(Path(rest[1:]).expanduser().absolute())

    @property
    def display_url(self) -> str:
        return self.url

    def create(self) -> None:
        """Create the ledger under a temporary name and then link it: it exists as a whole or not at all."""
        self.check_vacant()
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.new")
        try:
            with self._translate_errors():
                os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                with closing(_connect(draft, "rw")) as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    self.initialize_tables(_SQLiteSession(connection))
                    connection.execute("COMMIT")
            self.move_into_place(draft)
        finally:
            for suffix in ("", "-wal", "-shm"):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)

    def check_vacant(self) -> None:
        """Refuse a path where anything exists, even an empty file or the log of an old ledger."""
        if not self.path.parent.is_dir():
            raise LedgerError(f"cannot create the ledger {self.display_url}: its folder does not exist.")
        for suffix, obstacle in (
            ("", "there is a file"),
            ("-wal", "there is the log of an older ledger (-wal)"),
        ):
            if os.path.lexists(self.path.with_name(self.path.name + suffix)):
                raise LedgerError(
                    f"cannot create the ledger {self.display_url}: {obstacle} already. If it is your ledger, "
                    "open it with Ledger.open(url); if it is the rest of a lost one, restore a backup; "
                    "nothing was changed."
                )

    def move_into_place(self, draft: Path) -> None:
        """Give a finished file its name, unless the name has been taken meanwhile."""
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        try:
            os.link(draft, self.path)
            draft.unlink()  # a ledger must have one name only
        except FileExistsError:
            self.check_vacant()
            raise LedgerError(
                f"cannot create the ledger {self.display_url}: another process was first."
            ) from None
        except OSError:  # a file system without hard links
            self.check_vacant()
            os.rename(draft, self.path)
        if os.name == "posix":
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextmanager
    def transaction(self, *, write: bool = False, version: int = SCHEMA_VERSION) -> Iterator[Session]:
        self._check_exists()
        with self._translate_errors(), closing(_connect(self.path, "rw")) as connection:
            session = _SQLiteSession(connection)
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._check_is_ledger(session, version)
            yield session
            try:
                connection.execute("COMMIT")  # on an error before, closing rolls back
            except sqlite3.Error as error:
                if write and not _error_code(error).startswith("SQLITE_BUSY"):
                    raise CommitUncertain(self._explain_error(error)) from error
                raise

    def prepare_database(self, session: Session) -> None:
        """Do nothing: an SQLite ledger needs only its tables."""

    def grant(self, role: str, privilege: str) -> None:
        raise InvalidParameter(
            "an SQLite file has no roles: whoever may write the file is its owner. Use PostgreSQL, or file "
            "permissions."
        )

    def keep_old_copy(self, version: int) -> str:
        copy = self.path.with_name(f"{self.path.name}.version{version}-{secrets.token_hex(4)}")
        self.copy_to(copy)
        return f"; the old file is kept as {copy}"

    def copy_to(self, target: Path) -> None:
        """Copy the ledger consistently, including its log, while others write."""
        self._check_exists()
        with suppress(FileExistsError), self._translate_errors():
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(_connect(self.path, "rw")) as source, closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            return
        raise LedgerError(f"the file {target} exists already and is not overwritten; choose another name.")

    def _check_exists(self) -> None:
        advice = (
            f"create it once, as its owner, with `dplangevin ledger init --ledger {self.display_url}` or "
            "Ledger.create(url)"
        )
        if not self.path.exists():
            raise LedgerError(
                f"there is no ledger {self.display_url}; check the folder and the spelling, or {advice}. "
                "Nothing was created."
            )
        if self.path.is_file() and self.path.stat().st_nlink > 1:
            raise LedgerError(
                f"the ledger {self.display_url} has a second name (a hard link), and each name would have a "
                "log of its own, with charges that the other does not see. Remove the other name (find "
                f"-samefile). {_NOT_CHARGED_MESSAGE}"
            )
        if self.path.is_file() and self.path.stat().st_size == 0:
            raise LedgerError(
                f"there is no ledger in {self.display_url}: the file is empty. If a ledger was here, restore "
                f"it from a backup; if not, delete the file and {advice}."
            )

    def _check_is_ledger(self, session: Session, version: int) -> None:
        tables = session.query("SELECT name FROM sqlite_master WHERE name = 'dplangevin_ledger'")
        if not tables:
            raise LedgerError(
                f"{self.display_url} is a database, but not a ledger of dplangevin (there is no ledger in "
                "it); choose another file. Nothing was changed."
            )
        self.check_version(session, version)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        # UnicodeError, MemoryError: a damaged file may break even the text of the error
        except (sqlite3.Error, UnicodeError, MemoryError) as error:
            raise LedgerError(self._explain_error(error)) from error
        except PermissionError as error:
            raise LedgerError(
                f"the ledger {self.display_url} cannot be used ({error.strerror}); check that file and "
                f"folder can be written. {_NOT_CHARGED_MESSAGE}"
            ) from error

    def _explain_error(self, error: Exception) -> str:
        code = _error_code(error)
        start, end = f"the ledger {self.display_url} cannot be used", _NOT_CHARGED_MESSAGE
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return f"{start}: another process has held it for {WAIT_SECONDS} s. {end}"
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
            return f"{start}: it cannot be opened ({error}); check that file and folder can be written. {end}"
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return f"{start}: the disk failed or is full ({error}). {end}"
        if code.startswith("SQLITE_NOTADB"):
            return f"{start}: the file is not an SQLite database, or is damaged; it was left as it is. {end}"
        return (
            f"{start}: the file is damaged ({error}); it was left as it is, restore it from a backup. {end}"
        )


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=WAIT_SECONDS, isolation_level=None
    )
    connection.execute("PRAGMA synchronous = FULL")  # a charge must survive a power cut, not only a crash
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _error_code(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""
