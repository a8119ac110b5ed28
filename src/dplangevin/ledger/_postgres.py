"""The ledger in PostgreSQL, for teams and several machines. Needs `pip install dplangevin[postgres]`.

Spenders append entries through two SQL functions and have no write access to tables. The functions run with the
owner's rights, compute the number and the link of an entry themselves, and never change an entry. They do not compose
costs: a spender whose program skips the check can overspend, and its entry shows it; it cannot raise a budget,
declare a data set, change or delete an entry, or append without a trace.

Whoever may create objects in a schema of the search path can put a function there that overloads a system function,
and it would run with its caller's rights. So the functions use qualified names, and a session refuses a schema in
which others than its owner may create.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from dplangevin._connections import CONNECTION_OPTIONS, enforce_deadline
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger._store import SCHEMA_VERSION, WAIT_SECONDS, CommitUncertain, Session, Store
from dplangevin.ledger.entry import Charge

TABLE_NAMES = (
    "dplangevin_ledger",
    "dplangevin_dataset",
    "dplangevin_part",
    "dplangevin_guarantee",
    "dplangevin_entry",
)
_APPEND_SIGNATURE = "dplangevin_append(text, text, text, text, text, text, text, text, text, text)"
_NOTE_SIGNATURE = "dplangevin_note(text, text, text, text)"

SQL_FUNCTIONS = (
    """CREATE OR REPLACE FUNCTION dplangevin_append(
        wanted text, expected text, token_ text, part_ text, label_ text, created_ text, digest_ text, content_ text,
        plan_ text, library_ text) RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER AS $body$
    DECLARE
        known dplangevin_dataset%ROWTYPE;
        place bigint;
        next_link text;
    BEGIN
        SELECT * INTO known FROM dplangevin_dataset WHERE name = wanted FOR UPDATE;
        IF NOT FOUND OR expected IS DISTINCT FROM known.head THEN
            RETURN false;
        END IF;
        IF digest_ <> pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(content_, 'UTF8')), 'hex') THEN
            RAISE EXCEPTION 'the guarantee does not have this digest';
        END IF;
        IF token_ !~ '^[0-9a-f]{64}$' THEN
            RAISE EXCEPTION 'the token is not a hash';
        END IF;
        IF part_ <> '' AND NOT EXISTS (SELECT 1 FROM dplangevin_part WHERE dataset = wanted AND name = part_) THEN
            RAISE EXCEPTION 'the data set has no such part';
        END IF;
        IF position(E'\\n' in part_ || label_ || created_ || plan_ || library_) > 0 THEN
            RAISE EXCEPTION 'an entry must not hold line breaks';
        END IF;
        place := known.entries + 1;
        next_link := pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(pg_catalog.concat_ws(E'\\n', known.head,
            place::text, token_, part_, label_, created_, digest_, plan_, library_), 'UTF8')), 'hex');
        INSERT INTO dplangevin_guarantee (digest, content) VALUES (digest_, content_) ON CONFLICT (digest) DO NOTHING;
        INSERT INTO dplangevin_entry (dataset, sequence, token, part, label, created, guarantee, plan, library, chain)
            VALUES (wanted, place, token_, part_, label_, created_, digest_, plan_, library_, next_link);
        UPDATE dplangevin_dataset SET entries = place, head = next_link WHERE name = wanted;
        RETURN true;
    END $body$""",
    """CREATE OR REPLACE FUNCTION dplangevin_note(wanted text, token_ text, digest_ text, moment text)
        RETURNS void LANGUAGE sql SECURITY DEFINER AS $body$
        UPDATE dplangevin_entry SET release_hash = digest_, released = moment
            WHERE dataset = wanted AND release_hash IS NULL
            AND token = pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(
                pg_catalog.concat('token', E'\\n', token_), 'UTF8')), 'hex')
    $body$""",
)

SELECT_TABLE_GRANTS = (
    "SELECT c.relname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END "
    "FROM pg_class c, aclexplode(c.relacl) a WHERE c.relname IN ("
    + ", ".join(f"'{table}'" for table in TABLE_NAMES)
    + ") "
    "AND c.relnamespace = current_schema()::regnamespace AND a.grantee <> c.relowner GROUP BY 1, 2"
)
"""Roles other than the owner that have rights on the tables."""

SELECT_SCHEMA_CREATORS = (
    "SELECT n.nspname, CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END "
    "FROM pg_catalog.pg_namespace n, LATERAL pg_catalog.aclexplode(n.nspacl) a "
    "WHERE n.nspname = ANY (pg_catalog.current_schemas(false)) AND a.privilege_type = 'CREATE' "
    "AND a.grantee <> n.nspowner AND a.grantee <> COALESCE((SELECT c.relowner FROM pg_catalog.pg_class c "
    "WHERE c.oid = pg_catalog.to_regclass('dplangevin_ledger')), current_user::regrole::oid)"
)
"""Roles other than the owner that may create objects in a schema of the search path."""

SELECT_IS_OWNER = (
    "SELECT pg_catalog.pg_has_role(?, c.relowner, 'MEMBER') FROM pg_catalog.pg_class c "
    "WHERE c.oid = pg_catalog.to_regclass('dplangevin_dataset')"
)
"""Whether a role is the owner, or can become the owner (as administrators can)."""

SELECT_PRIVILEGES = (
    "SELECT has_schema_privilege(?, current_schema(), 'USAGE') "
    "AND has_table_privilege(?, 'dplangevin_entry', 'SELECT'), "
    f"has_function_privilege(?, '{_APPEND_SIGNATURE}', 'EXECUTE'), "
    + " OR ".join(
        f"has_table_privilege(?, '{table}', 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')"
        for table in TABLE_NAMES
    )
)
N_PRIVILEGE_PARAMETERS = 3 + len(TABLE_NAMES)
PRIVILEGES_BY_ROLE = {
    "spender": (True, True, False),
    "reader": (True, False, False),
    "nothing": (False, False, False),
}
"""Rights of a role after its grant: whether it may read, append, and write to tables directly."""


def grant_statements(role: str, schema: str, privilege: str) -> list[str]:
    """Return the statements that make a (quoted) role a spender or a reader; "nothing" revokes all its rights."""
    if privilege not in PRIVILEGES_BY_ROLE:
        raise InvalidParameter(
            f"the rights of a role must be one of {', '.join(PRIVILEGES_BY_ROLE)}; got {privilege!r}."
        )
    statements = [
        *(f"REVOKE ALL ON {table} FROM {role}" for table in TABLE_NAMES),
        *(
            f"REVOKE ALL ON FUNCTION {function} FROM {role}"
            for function in (_APPEND_SIGNATURE, _NOTE_SIGNATURE)
        ),
    ]
    if privilege == "nothing":
        return statements
    statements.append(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    statements += [f"GRANT SELECT ON {table} TO {role}" for table in TABLE_NAMES]
    if privilege == "spender":
        statements += [
            f"GRANT EXECUTE ON FUNCTION {function} TO {role}"
            for function in (_APPEND_SIGNATURE, _NOTE_SIGNATURE)
        ]
    return statements


_CREATION_LOCK = 0x64704C616E67  # key of the advisory lock for creating and declaring: any fixed number
_GRACE_SECONDS = 5  # time for the server to end a late transaction, before the client closes the connection
_NOT_CHARGED_MESSAGE = "Nothing was charged or released, and what was written before is kept."


def _import_psycopg() -> Any:
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

    def query(self, statement: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        result_rows: Sequence[tuple[Any, ...]] = self._execute_statement(statement, values).fetchall()
        return result_rows

    def execute(self, statement: str, *values: Any) -> int:
        return int(self._execute_statement(statement, values).rowcount)

    def lock_declarations(self) -> None:
        self.query("SELECT pg_advisory_xact_lock(?)", _CREATION_LOCK)

    def append_entry(self, charge: Charge, content: str, head: str) -> bool:
        result_rows = self.query(
            "SELECT dplangevin_append(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(charge.dataset, head, charge.token, charge.part, charge.label, charge.created),
            *(charge.guarantee, content, charge.plan, charge.library),
        )
        return result_rows[0][0] is True

    def note_release(self, dataset: str, token: str, release_hash: str, released: str) -> None:
        self.query("SELECT dplangevin_note(?, ?, ?, ?)", dataset, token, release_hash, released)

    def _execute_statement(self, statement: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(statement.replace("?", "%s") if values else statement, values or None)


class PostgresStore(Store):
    """A ledger in PostgreSQL: one connection per transaction, with a deadline; a charge locks its data set's row."""

    def __init__(self, url: str) -> None:
        try:
            self._parts = urlsplit(url)
        except ValueError:
            raise InvalidParameter("this postgresql:// URL cannot be read; check host and port.") from None
        super().__init__(url)

    @property
    def display_url(self) -> str:
        host = self._parts.netloc.rpartition("@")[2]
        return f"postgresql://{host}{self._parts.path}"

    def create(self) -> None:
        with self._connect() as session:
            self._check_schemas(session)
            session.lock_declarations()
            schemas = session.query(_SELECT_LEDGER_SCHEMAS)
            if schemas:
                raise LedgerError(
                    f"{self.display_url} holds a ledger already (in schema {schemas[0][0]}); open it with "
                    "Ledger.open(url), with that schema in the search path. A database holds one ledger; "
                    "nothing was changed."
                )
            self.initialize_tables(session)

    def _check_schemas(self, session: Session) -> None:
        """Refuse a search path in which another user's function could run; asked first, with qualified names."""
        creators = session.query(SELECT_SCHEMA_CREATORS)
        if creators:
            schema, role = creators[0]
            raise LedgerError(
                f"the ledger {self.display_url} is not safe: {role} may create in schema {schema}, and a "
                "function put there would run with the rights of others. An administrator fixes it: REVOKE "
                f"CREATE ON SCHEMA {schema} FROM {role}. {_NOT_CHARGED_MESSAGE}"
            )

    def prepare_database(self, session: Session) -> None:
        # older versions let spenders write to the tables
        for table, role in session.query(SELECT_TABLE_GRANTS):
            session.execute(f"REVOKE ALL ON {table} FROM {role}")
        self._prepare_functions(session)

    def _prepare_functions(self, session: Session) -> None:
        for function in SQL_FUNCTIONS:
            session.execute(function)
        schema = _current_schema(session)
        for name, signature in session.query(
            "SELECT p.proname, pg_get_function_identity_arguments(p.oid) FROM pg_proc p JOIN pg_namespace n "
            "ON n.oid = p.pronamespace WHERE n.nspname = current_schema() AND p.proname LIKE 'dplangevin\\_%'"
        ):
            session.execute(f"ALTER FUNCTION {name}({signature}) SET search_path = {schema}, pg_temp")
            session.execute(f"REVOKE ALL ON FUNCTION {name}({signature}) FROM PUBLIC")

    def grant(self, role: str, privilege: str) -> None:
        with self.transaction(write=True) as session:
            quoted_roles = session.query("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = ?", role)
            if not quoted_roles:
                raise InvalidParameter(f"the database has no role {role!r}; create it there first.")
            if privilege != "nothing" and session.query(SELECT_IS_OWNER, role)[0][0]:
                raise InvalidParameter(
                    f"role {role!r} owns the ledger or can become its owner (SET ROLE, or an administrator), "
                    f"so it can do everything and is no {privilege}; choose another role. Nothing was "
                    "changed."
                )
            self._prepare_functions(session)  # ledgers of older versions get the present ones
            for statement in grant_statements(quoted_roles[0][0], _current_schema(session), privilege):
                session.execute(statement)
            # PostgreSQL only warns about a GRANT by a role that may not grant
            if (
                tuple(session.query(SELECT_PRIVILEGES, *[role] * N_PRIVILEGE_PARAMETERS)[0])
                != PRIVILEGES_BY_ROLE[privilege]
            ):
                raise LedgerError(
                    f"role {role!r} was not made {privilege!r}: only the owner of the ledger and of its "
                    "schema may do that, and the role must have no other rights on the tables. Nothing was "
                    "changed."
                )

    @contextmanager
    def transaction(self, *, write: bool = False, version: int = SCHEMA_VERSION) -> Iterator[Session]:
        with self._connect(write=write) as session:
            self._check_schemas(session)
            if session.query("SELECT to_regclass('dplangevin_ledger') IS NOT NULL")[0][0] is not True:
                raise LedgerError(self._missing_ledger_message(session))
            self.check_version(session, version)
            yield session

    def _missing_ledger_message(self, session: Session) -> str:
        schemas = ", ".join(str(row[0]) for row in session.query(_SELECT_LEDGER_SCHEMAS))
        if schemas:
            return (
                f"there is no ledger in the search path of {self.display_url}, but one in schema {schemas}: "
                "set search_path to it, or ask its owner for a grant. Nothing was created."
            )
        return (
            f"there is no ledger in {self.display_url}; check the database, or create it once, as its owner, "
            "with `dplangevin ledger init` or Ledger.create(url). Nothing was created."
        )

    @contextmanager
    def _connect(self, *, write: bool = True) -> Iterator[Session]:
        psycopg = _import_psycopg()
        try:
            connection = psycopg.connect(self.url, **self._connection_options())
        except psycopg.Error as error:
            raise LedgerError(self._explain_error(psycopg, error)) from None
        late = threading.Event()
        with (
            enforce_deadline(connection.fileno(), late, WAIT_SECONDS + _GRACE_SECONDS),
            close_connection(connection),
        ):
            try:
                # readers see one snapshot; a writer sees the newest version of a row once it holds the lock
                levels = psycopg.IsolationLevel
                connection.isolation_level = levels.READ_COMMITTED if write else levels.REPEATABLE_READ
                session = _PostgresSession(connection)
                session.execute(_SET_TIMEOUTS.format(wait=WAIT_SECONDS, more=WAIT_SECONDS + 2))
                yield session
            except psycopg.Error as error:
                raise LedgerError(self._explain_error(psycopg, error, late)) from None
            try:
                connection.commit()
            except psycopg.Error as error:
                message = self._explain_error(psycopg, error, late)
                raise (CommitUncertain if write and connection.broken else LedgerError)(message) from None

    def _connection_options(self) -> dict[str, Any]:
        """Return options that end a dead connection; options stated in the URL are not overridden."""
        return {
            name: value for name, value in CONNECTION_OPTIONS.items() if f"{name}=" not in self._parts.query
        }

    def _explain_error(self, psycopg: Any, error: Exception, late: threading.Event | None = None) -> str:
        start = f"the ledger {self.display_url} cannot be used"
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, psycopg.errors.LockNotAvailable):
            return f"{start}: another process has held it for {WAIT_SECONDS} s. {_NOT_CHARGED_MESSAGE}"
        if late is not None and late.is_set():
            return f"{start}: the server has not answered for {WAIT_SECONDS} s. {_NOT_CHARGED_MESSAGE}"
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return (
                f"{start}: this role may not do that ({first}). The owner declares, upgrades and grants "
                "(`dplangevin ledger grant`); spenders only charge, readers only read. "
                f"{_NOT_CHARGED_MESSAGE}"
            )
        secret = self._parts.password
        return f"{start}: {first.replace(secret, '...') if secret else first}. {_NOT_CHARGED_MESSAGE}"


_SELECT_LEDGER_SCHEMAS = (
    "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = 'dplangevin_ledger' AND c.relkind = 'r' ORDER BY 1"
)
# the server ends stalled transactions, so that a dead process blocks nobody
_SET_TIMEOUTS = (
    "SELECT pg_catalog.set_config('lock_timeout', '{wait}s', true), "
    "pg_catalog.set_config('statement_timeout', '{more}s', true), "
    "pg_catalog.set_config('idle_in_transaction_session_timeout', '{wait}s', true), "
    "pg_catalog.set_config('synchronous_commit', 'on', true)"
)


def _current_schema(session: Session) -> str:
    return str(session.query("SELECT quote_ident(current_schema())")[0][0])


@contextmanager
def close_connection(connection: Any) -> Iterator[None]:
    """Close the connection at the end, which rolls back what was not committed."""
    try:
        yield
    finally:
        with suppress(Exception):
            connection.close()
