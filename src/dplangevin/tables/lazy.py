"""Tables that are computed elsewhere: queries of PostgreSQL and DuckDB, and lazy frames.

Such a table is copied once, in blocks, into a private file without a name, in the types that it declares, and is read
from there like any other file: each cell by itself, after the charge. Whatever goes wrong on the way (a bad query, a
vanished table, a silent server) goes wrong before anything is charged.

What a query or a lazy frame computes may let one record influence the rows of others (a window, a join, an order, a
type that is inferred from the first lines of a file), or fail for one record. That is a condition of a guarantee,
unless the rows are those of a stored table.

Rows of a PostgreSQL query are fetched in blocks through a cursor and written to a Parquet file. Every cell arrives as
the text that the server writes for it, and is converted by the declared type of its column alone: nothing is inferred,
so that no cell can change the type of another. Decimals stay texts, which the rule for cells reads as the nearest
double, as it reads decimals in files.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dplangevin import _check
from dplangevin._connections import CONNECTION_OPTIONS, enforce_deadline
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.tables.files import Dialect, TableFiles, is_path
from dplangevin.tables.frames import Table, as_table, check_unique_names

NOTHING_CHARGED = "Nothing was charged."
_PLAIN_NAME = re.compile(r'(?:\w+|"[^"\0]+")(?:\.(?:\w+|"[^"\0]+"))*')
_DUCKDB_SUFFIXES = (".duckdb", ".ddb", ".db")


@dataclass(frozen=True)
class TableQuery:
    """Query, or a whole table, in PostgreSQL or DuckDB, as the records of a fit.

    Parameters
    ----------
    url : postgresql://user@host/database, duckdb:///file, or the path of a .duckdb file.
    sql : a SELECT statement, or the name of a table: then each row of it is a record, without further condition (of a
        view it is not).
    timeout : seconds to wait for the server's answer to each block.

    Examples
    --------
    >>> query = TableQuery("postgresql://ana:secret@db.example/clinic", "SELECT age, ill FROM patients WHERE age > 17")
    >>> query.display_url, query.names_table, TableQuery("clinic.duckdb", "patients").names_table
    ('postgresql://db.example/clinic', False, True)
    """

    url: str
    sql: str
    timeout: float = 300.0

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not isinstance(self.sql, str) or not self.sql.strip():
            raise InvalidParameter(
                "a query needs the URL of a database and a SELECT statement, or a table's name."
            )
        _check.check_positive("timeout", self.timeout)
        self.split_url()
        if not self.is_postgres and self.duckdb_file is None:
            raise InvalidParameter(
                f"the database must be postgresql://..., duckdb:///file or a .duckdb file, got {self.display_url!r}."
            )

    def __repr__(self) -> str:
        return f"TableQuery({self.display_url!r}, {self.sql!r})"

    def split_url(self) -> Any:
        """Return the parts of the URL."""
        try:
            parts = urlsplit(self.url)
            _ = parts.port
            return parts
        except ValueError:
            raise InvalidParameter("the URL of the database cannot be read; check host and port.") from None

    @property
    def is_postgres(self) -> bool:
        """Whether the database is PostgreSQL."""
        return bool(self.split_url().scheme in ("postgresql", "postgres"))

    @property
    def duckdb_file(self) -> str | None:
        """Path of the DuckDB file, or None."""
        if self.url.startswith("duckdb:///"):
            return self.url.removeprefix("duckdb://")[1:] or None
        return self.url if Path(self.url).suffix in _DUCKDB_SUFFIXES and "://" not in self.url else None

    @property
    def display_url(self) -> str:
        """URL without user and password."""
        parts = self.split_url()
        if not parts.scheme or not parts.netloc:
            return self.url
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    @property
    def names_table(self) -> bool:
        """Whether `sql` is a name: of a table, or of a view, which only the database can tell apart."""
        return _PLAIN_NAME.fullmatch(self.sql.strip()) is not None

    @property
    def statement(self) -> str:
        """SELECT statement."""
        text = self.sql.strip().rstrip(";")
        return f"SELECT * FROM {text}" if self.names_table else text


_LAZY_LIBRARIES = ("polars", "duckdb", "_duckdb", "ibis")
_STORED_PLAN = re.compile(
    r"(DF \[.*\]; PROJECT \*/\d+ COLUMNS|(Parquet|Ipc|IPC) SCAN \[.*\]\nPROJECT \*/\d+ COLUMNS(\nESTIMATED ROWS: \d+)?)"
)
"""How polars prints a plan that reads all rows and nothing else. A further line is a limit, or numbers of rows, which
depend on other records; types of text files are inferred, so that these are not here."""
_UNWRITABLE_TYPES = ("Object", "Int128", "UInt128", "List", "Array", "Struct", "Unknown")
"""Types of polars that a file may not hold, or only if they hold others that it can."""
QUERY_CONDITION = (
    "{} computing each row from one record alone, in an order and with column types that depend on no record, and "
    "failing for none"
)


@dataclass(frozen=True, kw_only=True)
class _Origin:
    """Where a copied table comes from: its name in messages, and whether its rows are those of a stored table."""

    name: str
    is_stored: bool


def is_lazy_table(data: Any) -> bool:
    """Whether the data are a query or a lazy frame, to be copied first."""
    if isinstance(data, TableQuery):
        return True
    kind = type(_unwrap_frame(data))
    return kind.__module__.split(".")[0] in _LAZY_LIBRARIES and (
        kind.__name__ in ("LazyFrame", "DuckDBPyRelation")
        or (kind.__module__.startswith("ibis.") and hasattr(data, "op"))
    )


def _unwrap_frame(data: Any) -> Any:
    """Return the frame inside one of narwhals, or the data themselves."""
    return (
        data.to_native()
        if type(data).__module__.startswith("narwhals") and hasattr(data, "to_native")
        else data
    )


def is_streamed(data: Any) -> bool:
    """Whether records are read in blocks from files: paths, opened files, queries and lazy frames."""
    return isinstance(data, TableFiles) or is_path(data) or is_lazy_table(data)


def open_files(data: Any, dialect: Dialect | None = None) -> TableFiles:
    """Return paths, opened files, or a stored table of a database as files; see `open_stored_table`."""
    stored = open_stored_table(data)
    if isinstance(stored, Table):
        raise InvalidParameter(
            "a column of Python objects, or of 128-bit integers, cannot be read in blocks."
        )
    return stored if isinstance(stored, TableFiles) else TableFiles(stored, dialect)


def open_stored_table(data: Any) -> Any:
    """Return a copy of a stored table that is given as a query or a lazy frame, and any other data unchanged.

    Raise where something is computed: only `fit` states the condition under which a guarantee holds then.
    """
    if not is_lazy_table(data):
        return data
    if query_condition(data) is not None:
        raise InvalidParameter(
            "here a query or a lazy frame must be a stored table as it is: what it computes may let one record change "
            f"the rows of others. Name the table, or compute its rows first and pass those. {NOTHING_CHARGED}"
        )
    return copy_lazy_table(data)


def query_condition(data: Any) -> str | None:
    """Return the condition of a guarantee for the records behind a query or a lazy frame; None for a stored table."""
    origin = _find_origin(_unwrap_frame(data))
    return None if origin.is_stored else QUERY_CONDITION.format(origin.name)


def copy_lazy_table(data: Any) -> TableFiles | Table:
    """Return a copy of a query's or a lazy frame's rows.

    It is a table in memory where a column has a type that not every file can hold, such as polars's objects.
    """
    data = _unwrap_frame(data)
    origin = _find_origin(data)
    if isinstance(data, TableQuery) and data.is_postgres:
        from dplangevin.tables.lazy import copy_query

        return _copy_into_file(lambda path: copy_query(data, path), origin)
    if isinstance(data, TableQuery):
        with _open_duckdb(data) as connection:
            return _copy_into_file(_parquet_writer(connection.sql(data.statement)), origin)
    if type(data).__module__.startswith("polars") and _has_unwritable_column(data, origin):
        return as_table(_run(lambda: data.collect(), origin))
    return _copy_into_file(_parquet_writer(data), origin)


def _find_origin(data: Any) -> _Origin:
    if isinstance(data, TableQuery):
        name = f"the query to {data.display_url}"
        return _Origin(name=name, is_stored=data.names_table and _is_base_table(data))
    return _Origin(name=f"the {type(data).__name__}", is_stored=_reads_stored_rows(data))


def _is_base_table(query: TableQuery) -> bool:
    """Whether the name is that of a stored table and not of a view, which may compute anything; no row is read."""
    if query.is_postgres:
        from dplangevin.tables.lazy import is_base_table

        return is_base_table(query)
    with _open_duckdb(query) as connection:
        return str(connection.table(query.sql.strip()).type) == "TABLE_RELATION"


@contextmanager
def _open_duckdb(query: TableQuery) -> Iterator[Any]:
    """Yield a connection to a DuckDB file; the text of an error is shown where it is about the query."""
    try:
        import duckdb
    except ImportError:
        raise InvalidParameter("a query to DuckDB needs it: pip install 'dplangevin[queries]'.") from None
    about_query = (
        duckdb.ParserException,
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.IOException,
        duckdb.ConnectionException,
    )
    try:
        with duckdb.connect(str(query.duckdb_file), read_only=True) as connection:
            yield connection
    except about_query as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidParameter(
            f"the query to {query.display_url} failed: {first}. {NOTHING_CHARGED}"
        ) from None


def _parquet_writer(data: Any) -> Callable[[str], None]:
    """Return a function that lets the library of a lazy frame write its rows to a file."""
    import narwhals as nw

    frame: Any = nw.from_native(data)

    def write(path: str) -> None:
        # Spans of time are missing for every reader, and no file holds all of them: DuckDB fails for a negative one.
        spans = [name for name, kind in frame.collect_schema().items() if kind == nw.Duration]
        empty = (nw.lit(None, nw.String()).alias(name) for name in spans)
        (frame.with_columns(*empty) if spans else frame).sink_parquet(path)

    return write


def _reads_stored_rows(data: Any) -> bool:
    """Whether a lazy frame only reads the rows of a stored table, without computing anything."""
    library = type(data).__module__.split(".")[0]
    if library == "polars":
        try:
            return _STORED_PLAN.fullmatch(data.explain(optimized=False)) is not None
        except Exception:  # the file is absent, or has no such columns: copying says so
            return False
    if library == "ibis":  # what it calls a table of a database may be a view
        return type(data.op()).__name__ == "InMemoryTable"
    return str(data.type) == "TABLE_RELATION"


def _has_unwritable_column(data: Any, origin: _Origin) -> bool:
    schema = _run(lambda: data.collect_schema(), origin)
    return any(str(kind).startswith(_UNWRITABLE_TYPES) for kind in schema.dtypes())


def _run(compute: Callable[[], Any], origin: _Origin) -> Any:
    """Return what a library computes; of its own error only the kind is shown, since the text may quote a record."""
    try:
        return compute()
    except DplangevinError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of polars
            raise
        raise InvalidParameter(
            f"{origin.name} could not be computed ({type(error).__name__}); the message may quote a record and is not "
            f"shown. {NOTHING_CHARGED}"
        ) from None


def _copy_into_file(write: Callable[[str], None], origin: _Origin) -> TableFiles:
    """Let `write` create a Parquet file in a private folder, and open it; its name is removed at once."""
    try:
        import pyarrow
        import pyarrow.dataset as data
    except ImportError:
        raise InvalidParameter(
            "queries and lazy frames need pyarrow; install it with: pip install 'dplangevin[tables]'."
        ) from None
    folder = os.environ.get("DPLANGEVIN_SCRATCH")
    with tempfile.TemporaryDirectory(prefix="dplangevin-", dir=folder) as private:  # mode 0700
        path = os.path.join(private, "table.parquet")
        _run(lambda: write(path), origin)
        file = pyarrow.OSFile(path, "rb")  # open as long as the table
    options = data.ParquetFragmentScanOptions(use_buffered_stream=True, buffer_size=1 << 20, pre_buffer=False)
    file_format = data.ParquetFileFormat(default_fragment_scan_options=options)
    fragment = file_format.make_fragment(file)
    files = TableFiles(data.FileSystemDataset([fragment], fragment.physical_schema, file_format))
    files.condition = None if origin.is_stored else QUERY_CONDITION.format(origin.name)
    return files


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
