"""A ledger as version 1 of the format wrote it, for the tests of the upgrade."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dplangevin.accounting import serialize
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.ledger._rows import content_digest

TABLES = """
CREATE TABLE dplangevin_ledger (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE dplangevin_dataset (name TEXT PRIMARY KEY, epsilon DOUBLE PRECISION NOT NULL,
    delta DOUBLE PRECISION NOT NULL, adjacency TEXT NOT NULL, max_rows_per_person BIGINT NOT NULL,
    created TEXT NOT NULL, entries BIGINT NOT NULL);
CREATE TABLE dplangevin_part (dataset TEXT NOT NULL REFERENCES dplangevin_dataset (name), name TEXT NOT NULL,
    PRIMARY KEY (dataset, name));
CREATE TABLE dplangevin_guarantee (digest TEXT PRIMARY KEY, content TEXT NOT NULL);
CREATE TABLE dplangevin_entry (dataset TEXT NOT NULL REFERENCES dplangevin_dataset (name), sequence BIGINT NOT NULL,
    token TEXT NOT NULL UNIQUE, part TEXT NOT NULL, label TEXT NOT NULL, created TEXT NOT NULL,
    guarantee TEXT NOT NULL REFERENCES dplangevin_guarantee (digest), plan TEXT NOT NULL, library TEXT NOT NULL,
    release_hash TEXT, released TEXT, PRIMARY KEY (dataset, sequence));
INSERT INTO dplangevin_ledger VALUES ('schema', '1');
"""


def statements(charges: list[tuple[str, str, str, Guarantee]]) -> list[tuple[str, tuple[object, ...]]]:
    """What fills the tables: charges are (data set, part, token, guarantee)."""
    found: list[tuple[str, tuple[object, ...]]] = []
    for name in dict.fromkeys(charge[0] for charge in charges):
        own = [charge for charge in charges if charge[0] == name]
        found.append(
            (
                "INSERT INTO dplangevin_dataset VALUES (?, 5.0, 0.0, 'replace-one', 1, '2025-01-01', ?)",
                (name, len(own)),
            )
        )
        for part in dict.fromkeys(charge[1] for charge in own if charge[1]):
            found.append(("INSERT INTO dplangevin_part VALUES (?, ?)", (name, part)))
        for place, (_, part, token, guarantee) in enumerate(own, start=1):
            content = serialize.guarantee_to_json(guarantee)
            values = (content_digest(content), content)
            found.append(("INSERT INTO dplangevin_guarantee VALUES (?, ?) ON CONFLICT DO NOTHING", values))
            entry = (name, place, token, part, "Ada", "2025-01-02", values[0], "{}", "0.1.0")
            found.append(
                ("INSERT INTO dplangevin_entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'ab', '2025-01-03')", entry)
            )
    return found


def written(file: Path, charges: list[tuple[str, str, str, Guarantee]]) -> None:
    """An SQLite file of version 1."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(TABLES)
        for statement, values in statements(charges):
            connection.execute(statement, values)
