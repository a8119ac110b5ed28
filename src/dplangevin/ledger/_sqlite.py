"""The ledger in one SQLite file: the default, for one machine."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._store import SCHEMA_VERSION, WAIT_SECONDS, Session, Store, Uncertain

_NOT_CHARGED = "Nothing was charged or released, and what was written before is kept."


class _SQLiteSession(Session):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def change(self, statement: str, *values: Any) -> int:
        return self._connection.execute(statement, values).rowcount

    def lock_declarations(self) -> None:
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
        """Made under another name and then linked: a ledger is there as a whole or not at all."""
        self.check_vacant()
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.new")
        try:
            with self._errors():
                os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                with closing(_connected(draft, "rw")) as connection:
                    connection.execute("PRAGMA journal_mode = WAL")
                    connection.execute("BEGIN IMMEDIATE")
                    self.initialise(_SQLiteSession(connection))
                    connection.execute("COMMIT")
            self.place(draft)
        finally:
            for suffix in ("", "-wal", "-shm"):
                draft.with_name(draft.name + suffix).unlink(missing_ok=True)

    def check_vacant(self) -> None:
        """Nothing may be where a new ledger goes, not even an empty file or what is left of an old ledger."""
        if not self.path.parent.is_dir():
            raise LedgerError(f"cannot create the ledger {self.shown}: its folder does not exist.")
        for suffix, words in (
            ("", "there is a file"),
            ("-wal", "there is the log of an older ledger (-wal)"),
        ):
            if os.path.lexists(self.path.with_name(self.path.name + suffix)):
                raise LedgerError(
                    f"cannot create the ledger {self.shown}: {words} already. If it is your ledger, open it with "
                    "Ledger.open(url); if it is the rest of a lost one, restore a backup; nothing was changed."
                )

    def place(self, draft: Path) -> None:
        """Give a finished file its name, unless something has taken it meanwhile."""
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        try:
            os.link(draft, self.path)
            draft.unlink()  # a ledger has one name
        except FileExistsError:
            self.check_vacant()
            raise LedgerError(f"cannot create the ledger {self.shown}: another process was first.") from None
        except OSError:  # a disk without links
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
        self._check_there()
        with self._errors(), closing(_connected(self.path, "rw")) as connection:
            session = _SQLiteSession(connection)
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._check(session, version)
            yield session
            try:
                connection.execute("COMMIT")  # on an error before, closing rolls back
            except sqlite3.Error as error:
                if write and not _code(error).startswith("SQLITE_BUSY"):
                    raise Uncertain(self._explained(error)) from error
                raise

    def prepare(self, session: Session) -> None:
        """The tables are all there is."""

    def grant(self, role: str, may: str) -> None:
        raise InvalidParameter(
            "an SQLite file has no roles: who may write the file is its owner. Use PostgreSQL, or file permissions."
        )

    def keep_old(self, version: int) -> str:
        copy = self.path.with_name(f"{self.path.name}.version{version}-{secrets.token_hex(4)}")
        self.copy_to(copy)
        return f"; the old file is kept as {copy}"

    def copy_to(self, target: Path) -> None:
        """A consistent copy, with what is in the log, while others write."""
        self._check_there()
        with suppress(FileExistsError), self._errors():
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with closing(_connected(self.path, "rw")) as source, closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
            return
        raise LedgerError(f"there is a file {target} already; a backup is not written over another.")

    def _check_there(self) -> None:
        how = f"create it once, as its owner, with `dplangevin ledger init --ledger {self.shown}` or Ledger.create(url)"
        if not self.path.exists():
            raise LedgerError(
                f"there is no ledger {self.shown}; check the folder and the spelling, or {how}. Nothing was created."
            )
        if self.path.is_file() and self.path.stat().st_nlink > 1:
            raise LedgerError(
                f"the ledger {self.shown} has a second name (a hard link), and each name would have a log of its own, "
                f"with charges that the other does not see. Remove the other name (find -samefile). {_NOT_CHARGED}"
            )
        if self.path.is_file() and self.path.stat().st_size == 0:
            raise LedgerError(
                f"there is no ledger in {self.shown}: the file is empty. If a ledger was here, restore it from a "
                f"backup; if not, delete the file and {how}."
            )

    def _check(self, session: Session, version: int) -> None:
        tables = session.rows("SELECT name FROM sqlite_master WHERE name = 'dplangevin_ledger'")
        if not tables:
            raise LedgerError(
                f"{self.shown} is a database, but not a ledger of dplangevin (there is no ledger in it); choose "
                "another file. Nothing was changed."
            )
        self.check_version(session, version)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (
            sqlite3.Error,
            UnicodeError,
            MemoryError,
        ) as error:  # a damaged file may break even the error's text
            raise LedgerError(self._explained(error)) from error
        except PermissionError as error:
            raise LedgerError(
                f"the ledger {self.shown} cannot be used ({error.strerror}); check that file and folder can be "
                f"written. {_NOT_CHARGED}"
            ) from error

    def _explained(self, error: Exception) -> str:
        code = _code(error)
        start, end = f"the ledger {self.shown} cannot be used", _NOT_CHARGED
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


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode={mode}", uri=True, timeout=WAIT_SECONDS, isolation_level=None
    )
    connection.execute("PRAGMA synchronous = FULL")  # a cost survives a power cut, not only a crash
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _code(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""
