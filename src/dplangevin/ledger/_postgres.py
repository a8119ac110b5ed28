"""The ledger in PostgreSQL, for teams and several machines. Needs `pip install dplangevin[postgres]`."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._chain import Charge
from dplangevin.ledger._postgres_roles import (
    ABOVE,
    CREATORS,
    FUNCTIONS,
    GRANTED,
    HAS,
    RIGHTS,
    ROLES_IN_HAS,
    grants,
)
from dplangevin.ledger._store import SCHEMA_VERSION, WAIT_SECONDS, Session, Store, Uncertain

_CREATION_LOCK = 0x64704C616E67  # any fixed number: creators and owners wait for one another on it
_LIVELINESS = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_GRACE = 5  # seconds that the server has to end what is late, before the client does
_NOT_CHARGED = "Nothing was charged or released, and what was written before is kept."


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

    def lock_declarations(self) -> None:
        self.rows("SELECT pg_advisory_xact_lock(?)", _CREATION_LOCK)

    def append(self, charge: Charge, content: str, head: str) -> bool:
        found = self.rows(
            "SELECT dplangevin_append(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(charge.dataset, head, charge.token, charge.part, charge.label, charge.created),
            *(charge.guarantee, content, charge.plan, charge.library),
        )
        return found[0][0] is True

    def note(self, dataset: str, token: str, release_hash: str, when: str) -> None:
        self.rows("SELECT dplangevin_note(?, ?, ?, ?)", dataset, token, release_hash, when)

    def _run(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(statement.replace("?", "%s") if values else statement, values or None)


class PostgresStore(Store):
    """A connection per transaction, with a deadline; a spender locks the row of its data set, and only that."""

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
            self._check_schemas(session)
            session.lock_declarations()
            there = session.rows(_EVERYWHERE)
            if there:
                raise LedgerError(
                    f"{self.shown} holds a ledger already (in schema {there[0][0]}); open it with Ledger.open(url), "
                    "with that schema in the search path. A database holds one ledger; nothing was changed."
                )
            self.initialise(session)

    def _check_schemas(self, session: Session) -> None:
        """The first question of a session, in full names: could another user's function run in it?"""
        found = session.rows(CREATORS)
        if found:
            schema, role = found[0]
            raise LedgerError(
                f"the ledger {self.shown} is not safe: {role} may create in schema {schema}, and a function put there "
                f"would run with the rights of others. An administrator mends it: REVOKE CREATE ON SCHEMA {schema} "
                f"FROM {role}. {_NOT_CHARGED}"
            )

    def prepare(self, session: Session) -> None:
        for table, role in session.rows(GRANTED):  # older versions let spenders write to the tables
            session.change(f"REVOKE ALL ON {table} FROM {role}")
        self._prepare_functions(session)

    def _prepare_functions(self, session: Session) -> None:
        for function in FUNCTIONS:
            session.change(function)
        schema = _schema(session)
        for name, signature in session.rows(
            "SELECT p.proname, pg_get_function_identity_arguments(p.oid) FROM pg_proc p JOIN pg_namespace n "
            "ON n.oid = p.pronamespace WHERE n.nspname = current_schema() AND p.proname LIKE 'dplangevin\\_%'"
        ):
            session.change(f"ALTER FUNCTION {name}({signature}) SET search_path = {schema}, pg_temp")
            session.change(f"REVOKE ALL ON FUNCTION {name}({signature}) FROM PUBLIC")

    def grant(self, role: str, may: str) -> None:
        with self.transaction(write=True) as session:
            named = session.rows("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = ?", role)
            if not named:
                raise InvalidParameter(f"the database has no role {role!r}; create it there first.")
            if may != "nothing" and session.rows(ABOVE, role)[0][0]:
                raise InvalidParameter(
                    f"role {role!r} owns the ledger or can become its owner (SET ROLE, or an administrator), so it can "
                    f"do everything and is no {may}; choose another role. Nothing was changed."
                )
            self._prepare_functions(session)  # ledgers of older versions get the present ones
            for statement in grants(named[0][0], _schema(session), may):
                session.change(statement)
            # a GRANT by somebody who may not grant is only a warning to the server
            if tuple(session.rows(HAS, *[role] * ROLES_IN_HAS)[0]) != RIGHTS[may]:
                raise LedgerError(
                    f"role {role!r} was not made {may!r}: only the owner of the ledger and of its schema may do that, "
                    "and the role must have no other rights on the tables. Nothing was changed."
                )

    @contextmanager
    def transaction(self, *, write: bool = False, version: int = SCHEMA_VERSION) -> Iterator[Session]:
        with self._connected(write=write) as session:
            self._check_schemas(session)
            if session.rows("SELECT to_regclass('dplangevin_ledger') IS NOT NULL")[0][0] is not True:
                raise LedgerError(self._missing(session))
            self.check_version(session, version)
            yield session

    def _missing(self, session: Session) -> str:
        schemas = ", ".join(str(row[0]) for row in session.rows(_EVERYWHERE))
        if schemas:
            return (
                f"there is no ledger in the search path of {self.shown}, but one in schema {schemas}: set "
                "search_path to it, or ask its owner for a grant. Nothing was created."
            )
        return (
            f"there is no ledger in {self.shown}; check the database, or create it once, as its owner, with "
            "`dplangevin ledger init` or Ledger.create(url). Nothing was created."
        )

    @contextmanager
    def _connected(self, *, write: bool = True) -> Iterator[Session]:
        psycopg = _driver()
        try:
            connection = psycopg.connect(self.url, **self._options())
        except psycopg.Error as error:
            raise LedgerError(self._explained(psycopg, error)) from None
        late = threading.Event()
        with _deadline(connection.fileno(), late), connection_closed(connection):
            try:
                # readers see one moment; a writer sees a locked row as it is once the lock is its own
                levels = psycopg.IsolationLevel
                connection.isolation_level = levels.READ_COMMITTED if write else levels.REPEATABLE_READ
                session = _PostgresSession(connection)
                session.change(_LIMITS.format(wait=WAIT_SECONDS, more=WAIT_SECONDS + 2))
                yield session
            except psycopg.Error as error:
                raise LedgerError(self._explained(psycopg, error, late)) from None
            try:
                connection.commit()
            except psycopg.Error as error:
                words = self._explained(psycopg, error, late)
                raise (Uncertain if write and connection.broken else LedgerError)(words) from None

    def _options(self) -> dict[str, Any]:
        """What keeps a dead connection from hanging for ever; what the URL says itself is left to it."""
        return {name: value for name, value in _LIVELINESS.items() if f"{name}=" not in self._parts.query}

    def _explained(self, psycopg: Any, error: Exception, late: threading.Event | None = None) -> str:
        start = f"the ledger {self.shown} cannot be used"
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return f"{start}: another process has held it for {WAIT_SECONDS} s. {_NOT_CHARGED}"
        if late is not None and late.is_set():
            return f"{start}: the server has not answered for {WAIT_SECONDS} s. {_NOT_CHARGED}"
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return (
                f"{start}: this role may not do that ({first}). The owner declares, upgrades and grants "
                f"(`dplangevin ledger grant`); spenders only spend, readers only look. {_NOT_CHARGED}"
            )
        secret = self._parts.password
        return f"{start}: {first.replace(secret, '...') if secret else first}. {_NOT_CHARGED}"


_EVERYWHERE = (
    "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = 'dplangevin_ledger' AND c.relkind = 'r' ORDER BY 1"
)
# the server ends what stalls, so that a dead spender blocks nobody
_LIMITS = (
    "SELECT pg_catalog.set_config('lock_timeout', '{wait}s', true), "
    "pg_catalog.set_config('statement_timeout', '{more}s', true), "
    "pg_catalog.set_config('idle_in_transaction_session_timeout', '{wait}s', true), "
    "pg_catalog.set_config('synchronous_commit', 'on', true)"
)


def _schema(session: Session) -> str:
    return str(session.rows("SELECT quote_ident(current_schema())")[0][0])


@contextmanager
def connection_closed(connection: Any) -> Iterator[None]:
    """Close at the end, which rolls back what was not committed."""
    try:
        yield
    finally:
        with suppress(Exception):
            connection.close()


@contextmanager
def _deadline(descriptor: int, late: threading.Event) -> Iterator[None]:
    """Shut the connection down when the time is up: a server that is silent would be waited for without end."""
    line = socket.socket(fileno=os.dup(descriptor))

    def cut() -> None:
        late.set()
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(WAIT_SECONDS + _GRACE, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        line.close()
