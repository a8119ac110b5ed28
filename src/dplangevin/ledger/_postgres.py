"""The ledger in PostgreSQL, for teams and several machines. Needs `pip install dplangevin[postgres]`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._store import WAIT_SECONDS, Session, Store

_CREATION_LOCK = 0x64704C616E67  # any fixed number: creators of the tables wait for one another on it


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs the driver: pip install 'dplangevin[postgres]'."
        ) from None
    return psycopg


class _PostgresSession(Session):
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        found: Sequence[tuple[Any, ...]] = self._run(statement, values).fetchall()
        return found

    def change(self, statement: str, *values: Any) -> int:
        return int(self._run(statement, values).rowcount)

    def lock_dataset(self, name: str) -> None:
        self._run("SELECT name FROM dplangevin_dataset WHERE name = ? FOR UPDATE", (name,))

    def _run(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(statement.replace("?", "%s"), values)


class PostgresStore(Store):
    """A connection per transaction; a spender locks the row of its data set, and only that."""

    def __init__(self, url: str) -> None:
        try:
            self._parts = urlsplit(url)
        except ValueError:
            raise InvalidParameter("this postgresql:// URL cannot be read; check host and port.") from None
        super().__init__(url)

    @property
    def shown(self) -> str:
        host = self._parts.netloc.rpartition("@")[2]
        return f"postgresql://{host}{self._parts.path}"

    def create(self) -> None:
        with self._connected() as session:
            session.rows("SELECT pg_advisory_xact_lock(?)", _CREATION_LOCK)
            if not self._exists(session):
                self.initialise(session)
            self.check_version(session)

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Session]:
        with self._connected() as session:
            if not self._exists(session):
                raise LedgerError(f"there is no ledger in {self.shown}; create it with Ledger.open(url).")
            self.check_version(session)
            yield session

    @staticmethod
    def _exists(session: Session) -> bool:
        return session.rows("SELECT to_regclass('dplangevin_ledger') IS NOT NULL")[0][0] is True

    @contextmanager
    def _connected(self) -> Iterator[Session]:
        psycopg = _driver()
        try:
            with psycopg.connect(
                self.url, connect_timeout=10
            ) as connection:  # commits, or rolls back on an error
                # a locked row is read again once the lock is ours, whatever the server's default is
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                session = _PostgresSession(connection)
                session.change(f"SET LOCAL lock_timeout = '{WAIT_SECONDS}s'")
                session.change("SET LOCAL synchronous_commit = on")
                yield session
        except psycopg.Error as error:
            raise LedgerError(self._explained(psycopg, error)) from None

    def _explained(self, psycopg: Any, error: Exception) -> str:
        start = f"the ledger {self.shown} cannot be used"
        end = "Nothing was released, and what was written before is kept."
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return f"{start}: another process has held it for {WAIT_SECONDS} s. {end}"
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        secret = self._parts.password
        return f"{start}: {first.replace(secret, '...') if secret else first}. {end}"
