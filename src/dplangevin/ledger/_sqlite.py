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
from dplangevin.ledger._store import SCHEMA_VERSION, WAIT_SECONDS, CommitUncertain, Session, Store

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
