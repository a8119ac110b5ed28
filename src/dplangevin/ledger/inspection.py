"""Can this ledger be used from here, by whom, and is anything about it unsafe? For `dplangevin doctor`."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from dplangevin.errors import DplangevinError
from dplangevin.ledger import _rows
from dplangevin.ledger._evidence import verify
from dplangevin.ledger._postgres_roles import ABOVE, HAS, ROLES_IN_HAS
from dplangevin.ledger._sqlite import SQLiteStore
from dplangevin.ledger._store import Session, store_for


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One line of an examination: state is "ok", "warning" or "failure"."""

    what: str
    state: str
    words: str


def inspect(url: str) -> list[Diagnosis]:
    """Reachability, content, rights and clock of a ledger; nothing is changed."""
    start = time.perf_counter()
    try:
        store = store_for(url)
        with store.transaction() as session:
            now = verify(session, (), store.shown)
            newest = session.rows("SELECT MAX(created) FROM dplangevin_entry")[0][0]
            entries = sum(_rows.existing(session, name).entries for name in now)
            found = [] if isinstance(store, SQLiteStore) else [_rights(session), _server_clock(session)]
    except DplangevinError as error:
        return [Diagnosis(what="ledger", state="failure", words=str(error))]
    words = f"{store.shown}: {len(now)} data sets, {entries} entries, every link in its place"
    found.insert(
        0, Diagnosis(what="ledger", state="ok", words=f"{words} ({time.perf_counter() - start:.2f} s)")
    )
    if isinstance(store, SQLiteStore):
        found.append(_permissions(store.path))
    return [*found, _clock(newest)]


def _permissions(path: Path) -> Diagnosis:
    mode, folder = path.stat().st_mode, path.parent.stat().st_mode
    shown = f"{stat.filemode(mode)} in a folder {stat.filemode(folder)}"
    if os.name == "posix" and mode & 0o077:
        words = f"{shown}: other users may read or write the file; chmod 600 {path}"
        return Diagnosis(what="ledger permissions", state="warning", words=words)
    if os.name == "posix" and folder & 0o022 and not folder & stat.S_ISVTX:
        words = f"{shown}: other users may replace the file; chmod go-w {path.parent}"
        return Diagnosis(what="ledger permissions", state="warning", words=words)
    if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        return Diagnosis(
            what="ledger permissions", state="warning", words=f"{shown}: it can be read but not charged"
        )
    return Diagnosis(what="ledger permissions", state="ok", words=shown)


def _rights(session: Session) -> Diagnosis:
    role = str(session.rows("SELECT current_user")[0][0])
    reads, appends, writes = session.rows(HAS, *[role] * ROLES_IN_HAS)[0]
    owns = writes or session.rows(ABOVE, role)[0][0]
    part = "owner" if owns else "spender" if appends else "reader" if reads else "nothing"
    state = "warning" if owns else "ok"
    more = "; spend under a role that is only a spender" if owns else ""
    return Diagnosis(what="ledger permissions", state=state, words=f"role {role} is {part}{more}")


def _server_clock(session: Session) -> Diagnosis:
    apart = abs(float(session.rows("SELECT EXTRACT(EPOCH FROM clock_timestamp())")[0][0]) - time.time())
    state = "ok" if apart < 60 else "warning"
    return Diagnosis(what="server clock", state=state, words=f"{apart:.1f} s apart from this machine's")


def _clock(newest: object) -> Diagnosis:
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    if isinstance(newest, str) and newest > now:
        words = (
            f"this machine says {now}, the newest entry {newest}; entries are ordered by number, not by time"
        )
        return Diagnosis(what="clock", state="warning", words=words)
    return Diagnosis(what="clock", state="ok", words=now)
