"""A ledger as plain data, and the ledger file that changed data make: what a disk, an editor or a stranger might do."""

from __future__ import annotations

import copy
import json
import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dplangevin.accounting.parts import Approximate, SampledGaussian
from dplangevin.ledger import Ledger
from dplangevin.ledger._rows import content_digest
from dplangevin.ledger._store import TABLES
from dplangevin.ledger.entry import Charge, first_link, next_link
from fuzz._states import changed
from unit._ledger import gaussian, make_guarantee, pure

Tables = dict[str, Any]
_FIELDS = ("token", "part", "label", "created", "guarantee", "plan", "library")
COLUMNS = {
    found[1]: re.findall(r"^\s+([a-z_]+) (?:TEXT|BIGINT|DOUBLE)", table, flags=re.MULTILINE)
    for table in TABLES
    if (found := re.match(r"CREATE TABLE (\w+)", table))
}


def healthy(folder: Path) -> Tables:
    """The rows of a ledger: "full" has nothing left, "mixed" has parts, several kinds of cost and a noted release."""
    ledger = Ledger.create(f"sqlite:///{folder / 'healthy.db'}")
    full = ledger.declare("full", epsilon=1, delta=0)
    for _ in range(4):
        full.commit(full.charge(pure(0.25)), "ab" * 32)
    mixed = ledger.declare("mixed", epsilon=3, delta=1e-5, parts=["north", "south"])
    sampled = SampledGaussian(rate=0.01, noise_multiplier=8.0, sampling="poisson")
    for cost in (gaussian(0.1), make_guarantee(Approximate(value=0.1, slack=1e-9)), make_guarantee(sampled)):
        mixed.with_label("Ann, a model").charge(cost)
    mixed.for_part("north").charge(pure(0.3))
    with closing(sqlite3.connect(folder / "healthy.db")) as database:
        found = {}
        for table, columns in COLUMNS.items():
            rows = database.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall()
            found[table] = [dict(zip(columns, row, strict=True)) for row in rows]
    return found


def rewritten(tables: Tables, rng: np.random.Generator) -> Tables:
    """What a stranger might do who knows the format: one cost, plan or word changed, and every hash made anew."""
    found = copy.deepcopy(tables)
    entries = found["dplangevin_entry"]
    entry = entries[rng.integers(len(entries))]
    what = ("cost", "plan", "field", "budget")[rng.integers(4)]
    if what == "cost":
        kept = {row["digest"]: row["content"] for row in found["dplangevin_guarantee"]}
        content = json.dumps(changed(json.loads(kept[entry["guarantee"]]), rng))
        entry["guarantee"] = content_digest(content)
        found["dplangevin_guarantee"].append({"digest": entry["guarantee"], "content": content})
    elif what == "plan":
        plan = changed({"plan": json.loads(entry["plan"]) or {"a": 1}}, rng)
        entry["plan"] = json.dumps(plan.get("plan", '"lost_head"'))
        if rng.integers(2):
            entry["plan"] = json.dumps([{"lost_head": plan}, {"lost_head": []}, "lost_head"][rng.integers(3)])
    elif what == "field":
        one = changed({field: entry[field] for field in _FIELDS}, rng)
        entry |= {name: value for name, value in one.items() if name in _FIELDS}
    else:
        rows = found["dplangevin_dataset"]
        place = int(rng.integers(len(rows)))
        rows[place] = changed(rows[place], rng)
    return _chained(found)


def _chained(tables: Tables) -> Tables:
    """Every link made anew, where the fields still are words."""
    identity = next(row["value"] for row in tables["dplangevin_ledger"] if row["name"] == "identity")
    for row in tables["dplangevin_dataset"]:
        words = ("epsilon", "delta", "adjacency", "max_rows_per_person", "strict", "created")
        name, entries = row.get("name"), tables["dplangevin_entry"]
        said = str(name).encode(errors="replace").decode()
        head = first_link(identity, said, tuple(row.get(word) for word in words))
        row["genesis"] = head
        for sequence, entry in enumerate((each for each in entries if each["dataset"] == name), 1):
            if all(isinstance(entry[field], str) for field in _FIELDS):
                fields = {field: entry[field].encode(errors="replace").decode() for field in _FIELDS}
                entry["chain"] = head = next_link(head, sequence, Charge(dataset=said, **fields))
        row["head"] = head
    return tables


def write(tables: Tables, path: Path) -> None:
    """A database of these rows, without any of the rules that the ledger's own tables have."""
    with closing(sqlite3.connect(":memory:")) as database:
        for table, columns in COLUMNS.items():
            if table not in tables:
                continue
            database.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
            rows = tables[table] if isinstance(tables[table], list) else []
            for row in rows:
                if isinstance(row, dict):
                    marks = ", ".join("CAST(? AS TEXT)" if _odd(row.get(c)) else "?" for c in columns)
                    database.execute(
                        f"INSERT INTO {table} VALUES ({marks})", [_cell(row.get(c)) for c in columns]
                    )
        with suppress(sqlite3.Error):  # charges need it, and a changed ledger may not allow it
            database.execute("CREATE UNIQUE INDEX one ON dplangevin_guarantee (digest)")
        database.commit()
        for suffix in ("-wal", "-shm", "-journal"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        path.write_bytes(database.serialize())


def _odd(value: Any) -> bool:
    """Is it text that is no proper Unicode?"""
    return isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value)


def _cell(value: Any) -> Any:
    if _odd(value):
        return value.encode("utf-8", errors="surrogatepass")
    if isinstance(value, list | dict) or (isinstance(value, int) and abs(value) >= 2**63):
        return json.dumps(value)
    return value
