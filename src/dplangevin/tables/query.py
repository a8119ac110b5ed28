"""Queries as tables: where the database is, and which rows are the records."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dplangevin import _check
from dplangevin.errors import InvalidParameter

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
