"""Inspection of a ledger for `dplangevin doctor`: whether it can be used from here, by whom, and how safely."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dplangevin.errors import DplangevinError
from dplangevin.ledger import _rows
from dplangevin.ledger._heads import verify_chains
from dplangevin.ledger._postgres import N_PRIVILEGE_PARAMETERS, SELECT_IS_OWNER, SELECT_PRIVILEGES
from dplangevin.ledger._sqlite import SQLiteStore
from dplangevin.ledger._store import Session, open_store


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One result of an inspection; the status is "ok", "warning" or "failure"."""

    subject: str
    status: str
    message: str


def inspect_ledger(url: str) -> list[Diagnosis]:
    """Check that a ledger is reachable and intact, and check rights and clock; nothing is changed."""
    start = time.perf_counter()
    try:
        store = open_store(url)
        with store.transaction() as session:
            heads = verify_chains(session, (), store.display_url)
            newest = session.query("SELECT MAX(created) FROM dplangevin_entry")[0][0]
            entries = sum(_rows.require_dataset(session, name).entries for name in heads)
            diagnoses = (
                [] if isinstance(store, SQLiteStore) else [_check_role(session), _check_server_clock(session)]
            )
    except DplangevinError as error:
        return [Diagnosis(subject="ledger", status="failure", message=str(error))]
    summary = f"{store.display_url}: {len(heads)} data sets, {entries} entries, every link in its place"
    diagnoses.insert(
        0,
        Diagnosis(subject="ledger", status="ok", message=f"{summary} ({time.perf_counter() - start:.2f} s)"),
    )
    if isinstance(store, SQLiteStore):
        diagnoses.append(_check_permissions(store.path))
    return [*diagnoses, _check_clock(newest)]


def _check_permissions(path: Path) -> Diagnosis:
    mode, folder = path.stat().st_mode, path.parent.stat().st_mode
    modes = f"{stat.filemode(mode)} in a folder {stat.filemode(folder)}"
    if os.name == "posix" and mode & 0o077:
        message = f"{modes}: other users may read or write the file; chmod 600 {path}"
        return Diagnosis(subject="ledger permissions", status="warning", message=message)
    if os.name == "posix" and folder & 0o022 and not folder & stat.S_ISVTX:
        message = f"{modes}: other users may replace the file; chmod go-w {path.parent}"
        return Diagnosis(subject="ledger permissions", status="warning", message=message)
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        message = f"{modes}: it can be read but not charged"
        return Diagnosis(subject="ledger permissions", status="warning", message=message)
    return Diagnosis(subject="ledger permissions", status="ok", message=modes)


def _check_role(session: Session) -> Diagnosis:
    role = str(session.query("SELECT current_user")[0][0])
    reads, appends, writes = session.query(SELECT_PRIVILEGES, *[role] * N_PRIVILEGE_PARAMETERS)[0]
    owns = writes or session.query(SELECT_IS_OWNER, role)[0][0]
    privilege = "owner" if owns else "spender" if appends else "reader" if reads else "nothing"
    status = "warning" if owns else "ok"
    advice = "; charge under a role that is only a spender" if owns else ""
    return Diagnosis(
        subject="ledger permissions", status=status, message=f"role {role} is {privilege}{advice}"
    )


def _check_server_clock(session: Session) -> Diagnosis:
    seconds_apart = abs(
        float(session.query("SELECT EXTRACT(EPOCH FROM clock_timestamp())")[0][0]) - time.time()
    )
    status = "ok" if seconds_apart < 60 else "warning"
    return Diagnosis(
        subject="server clock", status=status, message=f"{seconds_apart:.1f} s apart from this machine's"
    )


def _check_clock(newest: object) -> Diagnosis:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    if isinstance(newest, str) and newest > now:
        message = (
            f"this machine's clock shows {now}, and the newest entry is from {newest}; entries are ordered "
            "by number, not by time"
        )
        return Diagnosis(subject="clock", status="warning", message=message)
    return Diagnosis(subject="clock", status="ok", message=now)
