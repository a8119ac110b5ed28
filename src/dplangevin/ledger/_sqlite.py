"""The ledger in one SQLite file: the default, for one machine."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._store import WAIT_SECONDS, Session, Store

_ANYTHING = "SELECT name FROM sqlite_master LIMIT 1"


class _SQLiteSession(Session):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def change(self, statement: str, *values: Any) -> int:
        return self._connection.execute(statement, values).rowcount

    def lock_dataset(self, name: str) -> None:
        """BEGIN IMMEDIATE holds the only write lock already."""


class SQLiteStore(Store):
    """A file opened anew for every transaction: safe under fork, threads and kill -9."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"sqlite:///{path}")
        self.path = path

    @classmethod
    def at(cls, rest: str) -> SQLiteStore:
        """The store for what follows sqlite://; a relative path is made absolute, so that copies agree on it."""
        if not rest.startswith("/") or rest in ("/", "/:memory:") or "\0" in rest:
            raise InvalidParameter(
                f"sqlite://{rest} names no file; use sqlite:///file.db (relative) or sqlite:////folder/file.db. "
                "A ledger in memory would forget."
            )
        return cls(Path(rest[1:]).expanduser().absolute())

    @property
    def shown(self) -> str:
        return self.url

    def create(self) -> None:
        if not self.path.parent.is_dir():
            raise LedgerError(f"cannot create the ledger {self.shown}: its folder does not exist.")
        with self._errors(), closing(self._connect("rwc")) as connection:
            session = _SQLiteSession(connection)
            if session.rows(_ANYTHING):  # look before touching: it may be somebody else's
                self._check(session)
                return
            _begin_in_wal_mode(connection)
            if not session.rows(_ANYTHING):
                self.initialise(session)
            self._check(session)
            connection.execute("COMMIT")

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Session]:
        if not self.path.exists():
            raise LedgerError(f"there is no ledger {self.shown}; create it with Ledger.open(url).")
        with self._errors(), closing(self._connect("rw")) as connection:
            session = _SQLiteSession(connection)
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._check(session)
            yield session
            connection.execute("COMMIT")  # on an error, closing rolls back

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.as_uri()}?mode={mode}", uri=True, timeout=WAIT_SECONDS, isolation_level=None
        )
        connection.execute("PRAGMA synchronous = FULL")  # a cost survives a power cut, not only a crash
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _check(self, session: Session) -> None:
        tables = session.rows("SELECT name FROM sqlite_master WHERE name = 'dplangevin_ledger'")
        if not tables:
            raise LedgerError(
                f"{self.shown} is a database, but not a ledger of dplangevin; choose another file. "
                "Nothing was changed."
            )
        self.check_version(session)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:  # a damaged file may even break the text of the error
            raise LedgerError(self._explained(error)) from error

    def _explained(self, error: Exception) -> str:
        code = getattr(error, "sqlite_errorname", "") or ""
        start = f"the ledger {self.shown} cannot be used"
        end = "Nothing was charged or released, and what was written before is kept."
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return f"{start}: another process has held it for {WAIT_SECONDS} s. {end}"
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
            return f"{start}: it cannot be opened for this ({error}); check that file and folder can be written. {end}"
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return f"{start}: the disk failed or is full ({error}). {end}"
        if code.startswith("SQLITE_NOTADB"):
            return f"{start}: the file is not an SQLite database, or is damaged; it was left as it is. {end}"
        return (
            f"{start}: the file is damaged ({error}); it was left as it is, restore it from a backup. {end}"
        )


def _begin_in_wal_mode(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log and take the write lock; others may be doing the same at this moment."""
    patience = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            # switching the journal does not wait for the lock by itself
            busy = (getattr(error, "sqlite_errorname", "") or "").startswith("SQLITE_BUSY")
            if not busy or time.monotonic() > patience:
                raise
            time.sleep(0.01)
