"""Rows of a PostgreSQL query, fetched in blocks through a cursor and written to a Parquet file.

Every cell arrives as the text that the server writes for it, and is converted by the declared type of its column alone:
nothing is inferred, so that no cell can change the type of another. Decimals stay texts, which the rule for cells reads
as the nearest double, as it reads decimals in files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from dplangevin._connections import CONNECTION_OPTIONS, enforce_deadline
from dplangevin.errors import InvalidParameter
from dplangevin.tables.frames import check_unique_names
from dplangevin.tables.lazy import NOTHING_CHARGED, TableQuery

ROWS_PER_FETCH = 1 << 14
_SETTINGS = (
    "SET LOCAL datestyle = 'ISO'; SET LOCAL timezone = 'UTC'; SET LOCAL bytea_output = 'hex'; "
    "SET LOCAL extra_float_digits = 1; SET LOCAL synchronize_seqscans = off; "
    "SET LOCAL max_parallel_workers_per_gather = 0"  # so that the same table is read in the same order
)


def _read_timestamp(cell: bytes) -> bytes:
    """Return a time with its zone as ISO writes it: the server writes +00 for +00:00."""
    return cell + b":00" if cell.endswith(b"+00") else cell


def _read_bytes(cell: bytes) -> bytes:
    return bytes.fromhex(cell[2:].decode())


_READERS: dict[int, tuple[str, Callable[[bytes], Any]]] = {
    16: ("bool_", lambda cell: cell == b"t"),
    21: ("int16", int),
    23: ("int32", int),
    20: ("int64", int),
    26: ("int64", int),
    700: ("float32", float),
    701: ("float64", float),
    17: ("binary", _read_bytes),
    1184: ("string", _read_timestamp),
}
"""Arrow type and conversion of each type of PostgreSQL, by its object identifier; all others are texts."""


def copy_query(query: TableQuery, path: str) -> None:
    """Write the rows of a query to a Parquet file, in the order in which the server sends them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _open_cursor(query) as (cursor, wait, encoding):
        names = [part.name for part in cursor.description]
        check_unique_names(names)
        readers = [_READERS.get(part.type_code, ("string", bytes)) for part in cursor.description]
        text = "string" if encoding == "UTF8" else "binary"  # other encodings may send bytes that are no text
        kinds = [getattr(pa, text if kind == "string" else kind)() for kind, _ in readers]
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        with pq.ParquetWriter(path, schema, compression="none") as writer:
            while True:
                with wait():
                    rows = cursor.fetchmany(ROWS_PER_FETCH)
                if not rows:
                    return
                columns = zip(*rows, strict=True)
                arrays = [
                    pa.array([None if cell is None else read(cell) for cell in cells], kind)
                    for cells, kind, (_, read) in zip(columns, kinds, readers, strict=True)
                ]
                writer.write_table(pa.table(arrays, schema=schema))


def is_base_table(query: TableQuery) -> bool:
    """Whether the name, and every partition of it, is a stored table without policies on its rows; no row is read.

    A name that does not exist counts as one: the query says so itself.
    """
    lookup = (
        "WITH RECURSIVE parts(oid) AS (SELECT to_regclass(%s)::oid UNION "
        "SELECT inhrelid FROM pg_inherits JOIN parts ON inhparent = parts.oid) "
        "SELECT bool_and(relkind IN ('r', 'p') AND NOT relrowsecurity) FROM pg_class JOIN parts USING (oid)"
    )
    with _connect(query) as (connection, wait), wait():
        (is_stored,) = connection.execute(lookup, [query.sql.strip()]).fetchone()
    return is_stored is not False


@contextmanager
def _open_cursor(query: TableQuery) -> Iterator[tuple[Any, Any, str]]:
    """Yield a cursor of the query in one snapshot, a context that waits for an answer, and the server's encoding."""
    import psycopg

    with _connect(query) as (connection, wait):
        connection.read_only, connection.isolation_level = True, psycopg.IsolationLevel.REPEATABLE_READ
        cursor = connection.cursor(name="dplangevin")
        _read_cells_as_bytes(cursor, psycopg)
        try:
            with wait():
                connection.execute(_SETTINGS)
                cursor.execute(query.statement)
            yield cursor, wait, connection.info.parameter_status("server_encoding") or ""
        finally:
            with suppress(psycopg.Error), wait():
                cursor.close()


@contextmanager
def _connect(query: TableQuery) -> Iterator[tuple[Any, Any]]:
    """Yield a connection and a context that waits for an answer; errors become one sentence."""
    try:
        import psycopg
    except ImportError:
        raise InvalidParameter(
            "a query to PostgreSQL needs the driver: pip install 'dplangevin[postgres]'."
        ) from None
    late = threading.Event()
    try:
        with psycopg.connect(query.url, client_encoding="UTF8", **_connection_options(query)) as connection:

            def wait() -> Any:
                return enforce_deadline(connection.fileno(), late, query.timeout)

            yield connection, wait
    except psycopg.Error as error:
        raise InvalidParameter(_explain_error(query, error, late)) from None


def _connection_options(query: TableQuery) -> dict[str, Any]:
    """Return options that end a dead connection; options stated in the URL are not overridden."""
    stated = query.split_url().query
    return {name: value for name, value in CONNECTION_OPTIONS.items() if f"{name}=" not in stated}


def _read_cells_as_bytes(cursor: Any, psycopg: Any) -> None:
    """Let the driver hand over every cell as the server sent it: its own readers raise for some dates."""

    class BytesLoader(psycopg.adapt.Loader):  # type: ignore[misc]
        def load(self, data: Any) -> bytes:
            return bytes(data)

    for kind in psycopg.adapters.types:
        for identifier in (kind.oid, kind.array_oid):
            if identifier:
                cursor.adapters.register_loader(identifier, BytesLoader)
    cursor.adapters.register_loader(0, BytesLoader)  # types that are not known, such as enums


def _explain_error(query: TableQuery, error: Exception, late: threading.Event) -> str:
    """Return one sentence; the server's own text only where it is about the query, since others quote cells."""
    start = f"the query to {query.display_url} failed"
    if late.is_set():
        return f"{start}: the server has not answered for {query.timeout:g} s. {NOTHING_CHARGED}"
    state = getattr(error, "sqlstate", None) or ""
    first = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if state.startswith(("42", "28", "3D", "0A")):
        return f"{start}: {first}. {NOTHING_CHARGED}"
    if not state:
        password = query.split_url().password
        shown = first.replace(password, "...") if password else first
        return f"{start}: {shown}. {NOTHING_CHARGED}"
    hidden = "the server's message may quote a record and is not shown"
    return f"{start} ({type(error).__name__}); {hidden}. {NOTHING_CHARGED}"
