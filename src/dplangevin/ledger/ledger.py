"""Ledger: the privacy budgets of data sets, kept in a database; and its inspection for `dplangevin doctor`."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dplangevin import _check
from dplangevin._version import __version__
from dplangevin.errors import DplangevinError, InvalidParameter, LedgerError
from dplangevin.ledger import _admission, _heads, _rows
from dplangevin.ledger._heads import verify_chains
from dplangevin.ledger._postgres import N_PRIVILEGE_PARAMETERS, SELECT_IS_OWNER, SELECT_PRIVILEGES
from dplangevin.ledger._rows import DatasetRow
from dplangevin.ledger._store import Session, SQLiteStore, open_store
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.ledger.entry import check_name, check_text, comparison_key, first_link, format_head
from dplangevin.problem.constants import ADJACENCIES

EXPORT_VERSION = 3
SPLIT_BY_EXPECTED_RELEASES = {
    "fits": (0.01, 0.0),
    "mixed": (_rows.DEFAULT_DELTA_SHARE, 0.0),
    "counts": (0.01, 0.0),
}
"""Value of `expects` -> (fraction of delta that becomes slack at the split, fraction of epsilon reserved for pure
releases). Chosen by the measurements in docs/ledger.md."""


@dataclass(frozen=True)
class Ledger:
    """Budgets of data sets in SQLite (`sqlite:///file.db`) or PostgreSQL (`postgresql://user@host/database`).

    Parameters
    ----------
    url : where the ledger is. Use `Ledger.create` once, as its owner, and `Ledger.open` afterwards.

    Privacy
    -------
    A release is admitted when it fits the privacy filter of its data set, so the budget holds although users choose
    releases after seeing earlier ones. The charge is written in a transaction before any record is read, and is never
    given back.

    Examples
    --------
    >>> import tempfile
    >>> from dplangevin import account
    >>> folder = tempfile.mkdtemp()
    >>> ledger = Ledger.create(f"sqlite:///{folder}/ledger.db")  # once, by the owner
    >>> census = ledger.declare("census", epsilon=2.0, delta=1e-5)
    >>> release = account(n=10_000, lipschitz=1.0, noise_std=0.01, step_size=1.0, n_steps=100, delta=1e-5)
    >>> token = Ledger.open(ledger.url).dataset("census").with_label("first model").charge(release)
    >>> left = census.remaining()
    >>> left.entries, round(left.gaussian_mu, 2), left.n_more_like_last
    (1, 0.46, 5)
    """

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", open_store(self.url).url)  # absolute: the working folder may change

    @classmethod
    def create(cls, url: str) -> Ledger:
        """Create a new, empty ledger; an error where a ledger or anything else exists. Its creator is its owner."""
        store = open_store(url)
        store.create()
        return cls.open(url)

    @classmethod
    def open(cls, url: str, *, expect: str | Iterable[str] | None = None) -> Ledger:
        """Open the ledger at a URL, which must exist: opening never creates one.

        expect : heads that this ledger must hold, from releases, reports or `heads()`; an older ledger or another one
            is an error.
        """
        store, heads = open_store(url), _heads.list_heads(expect)
        with store.transaction() as session:
            if heads:
                _heads.verify_chains(session, heads, store.display_url)
        return cls(store.url)

    @classmethod
    def upgrade(cls, url: str) -> str:
        """Upgrade a ledger of an older version, as its owner; every charge is kept.

        Returns a sentence on what was done, with the path of the copy that is kept of an SQLite file.
        """
        store = open_store(url)
        return f"upgraded {store.display_url}{_rows.upgrade_store(store)}"

    @classmethod
    def restore(cls, url: str, backup: str | Path, *, expect: str | Iterable[str] | None = None) -> Ledger:
        """Restore a backup where no ledger exists (move a damaged one away first), as a new file of mode 0600.

        A backup lacks what was charged after it: give the heads you know as `expect`, which refuses a backup without
        one of them, and enter releases that no backup holds with `DatasetBudget.enter_release`.
        """
        store, source = _sqlite_store(url), SQLiteStore(Path(backup).expanduser().absolute())
        store.check_vacant()
        cls.open(source.url, expect=expect)
        draft = store.path.with_name(f".{store.path.name}.{secrets.token_hex(4)}.new")
        try:
            source.copy_to(draft)
            store.move_into_place(draft)
        finally:
            draft.unlink(missing_ok=True)
        return cls.open(url, expect=expect)

    def accept_restore(self) -> dict[str, str]:
        """Accept, as its owner, a ledger that lacks entries which you have seen; the ledger records it.

        The charges of those entries are forgotten, but their releases exist: first enter what you can with
        `DatasetBudget.enter_release`. Every other user gets one warning. Returns what is forgotten, by data set.
        """
        forgotten = _heads.accept_restore(self.url)
        _admission.clear_caches()
        return forgotten

    def __repr__(self) -> str:
        return f"Ledger({self.display_url!r})"

    @property
    def display_url(self) -> str:
        """The absolute address, without secrets."""
        return open_store(self.url).display_url

    def dataset(self, name: str, *, label: str = "") -> DatasetBudget:
        """Return the declared budget of a data set; an error when there is none. Names compare without case.

        label : who is charging, and for what; stored with each entry.
        """
        checked_name, checked_label = (
            check_text("the name of a data set", name),
            check_text("label", label, allow_empty=True),
        )
        with open_store(self.url).transaction() as session:
            return DatasetBudget(
                url=self.url, name=_rows.require_dataset(session, checked_name).name, label=checked_label
            )

    def declare(
        self,
        name: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: str | None = None,
        max_rows_per_person: int | None = None,
        strict: bool | None = None,
        parts: Iterable[str] = (),
        expects: str | None = None,
        delta_share: float | None = None,
        pure_reserve: float | None = None,
    ) -> DatasetBudget:
        """Declare the budget of a data set, or more parts of it, as the ledger's owner.

        A budget never changes: what is given about a data set that is there must agree with it.

        Parameters
        ----------
        name : of the data set; names that look the same (case, look-alike letters) are the same data set.
        epsilon, delta : the budget, for all releases together; delta = 0 admits pure guarantees only.
        adjacency : "replace-one" (default) or "add-remove"; the guarantees of releases must have the same.
        max_rows_per_person : the budget protects a person who owns at most this many rows (default 1).
        strict : refuse guarantees with conditions, and errors that depend on the data (default False).
        parts : names of DISJOINT parts of the data set, each record (and person) in at most one; under replace-one
            the part of a record must be public, so that a record is replaced within its part. More may be declared
            later. A release on `budget.for_part(name)` composes with those on that part and on the whole data set
            only.
        expects : what will be released: "fits", "counts" or "mixed" (default). It fixes, before the first release,
            how the budget is split at the first release that is no (epsilon, delta) pair; see docs/ledger.md.
        delta_share, pure_reserve : the split itself, in place of the values that `expects` stands for: the fraction
            of delta that becomes slack, and the epsilon that is reserved for pure releases.
        """
        checked_name = check_name("the name of a data set", name)
        checked_parts = [
            check_name("the name of a part", part) for part in ([parts] if isinstance(parts, str) else parts)
        ]
        stated = _check_stated_budget(epsilon, delta, adjacency, max_rows_per_person, strict)
        stated |= _check_stated_split(epsilon, expects, delta_share, pure_reserve)
        with open_store(self.url).transaction(write=True) as session:
            session.lock_declarations()
            if _rows.find_dataset(session, checked_name) is None:
                _insert_dataset(session, checked_name, stated)
            dataset_row = _rows.require_dataset(session, checked_name)
            _check_agreement(dataset_row, stated)
            for part in checked_parts:
                _declare_part(session, dataset_row.name, part)
        return DatasetBudget(url=self.url, name=dataset_row.name)

    def grant(self, role: str, privilege: str) -> None:
        """Make a role of the PostgreSQL server a "spender" or a "reader", or revoke all its rights ("nothing")."""
        open_store(self.url).grant(check_text("role", role), privilege)

    def dataset_names(self) -> tuple[str, ...]:
        """Return the names of the data sets that have a budget here."""
        with open_store(self.url).transaction() as session:
            return _rows.dataset_names(session)

    def heads(self) -> dict[str, str]:
        """Return the head of every data set's chain, to be kept elsewhere: `verify` and `open(expect=)` take it."""
        with open_store(self.url).transaction() as session:
            dataset_rows = [_rows.require_dataset(session, name) for name in _rows.dataset_names(session)]
        return {row.name: format_head(row.entries, row.head) for row in dataset_rows}

    def verify(self, *heads: str) -> dict[str, str]:
        """Check every entry of every data set, and that the ledger holds these heads; return the present ones."""
        store = open_store(self.url)
        with store.transaction() as session:
            return _heads.verify_chains(session, heads, store.display_url)

    def backup(self, path: str | Path) -> Path:
        """Copy an SQLite ledger consistently, while others charge; an existing file is not overwritten."""
        target = Path(os.path.abspath(Path(path).expanduser()))
        if not target.parent.is_dir():
            raise LedgerError(f"cannot write the backup {target}: its folder does not exist.")
        _sqlite_store(self.url).copy_to(target)
        return target

    def export(self) -> dict[str, Any]:
        """Return the whole ledger as plain data, ready for JSON, read in one transaction."""
        with open_store(self.url).transaction() as session:
            datasets = [
                _dataset_to_plain(session, _rows.require_dataset(session, name))
                for name in _rows.dataset_names(session)
            ]
        return {
            "format": "dplangevin-ledger",
            "version": EXPORT_VERSION,
            "library": __version__,
            "datasets": datasets,
        }


def _sqlite_store(url: str) -> SQLiteStore:
    store = open_store(url)
    if not isinstance(store, SQLiteStore):
        raise InvalidParameter(
            "a ledger in PostgreSQL is backed up and restored with pg_dump and pg_restore."
        )
    return store


def _dataset_to_plain(session: Session, dataset_row: DatasetRow) -> dict[str, Any]:
    return {
        "name": dataset_row.name,
        "epsilon": dataset_row.epsilon,
        "delta": dataset_row.delta,
        "adjacency": dataset_row.adjacency,
        "max_rows_per_person": dataset_row.max_rows_per_person,
        "strict": dataset_row.strict,
        "expects": dataset_row.expects,
        "delta_share": dataset_row.delta_share,
        "pure_reserve": dataset_row.pure_reserve,
        "fixed_cost_entries": dataset_row.fixed_cost_entries,
        "created": dataset_row.created,
        "parts": list(_rows.part_names(session, dataset_row.name)),
        "head": format_head(dataset_row.entries, dataset_row.head),
        "entries": [entry.to_dict() for entry in _rows.read_entries(session, dataset_row)],
    }


def _check_stated_budget(
    epsilon: float | None, delta: float | None, adjacency: str | None, rows: int | None, strict: bool | None
) -> dict[str, Any]:
    """Return the stated parameters of the budget, checked."""
    stated: dict[str, Any] = {}
    if epsilon is not None:
        stated["epsilon"] = _check.check_scale("epsilon", epsilon)
    if delta is not None:
        stated["delta"] = _rows.check_budget_delta(delta)
    if adjacency is not None:
        stated["adjacency"] = _check.check_choice("adjacency", adjacency, ADJACENCIES)
    if rows is not None:
        stated["max_rows_per_person"] = _check.check_count("max_rows_per_person", rows)
    if strict is not None:
        if not isinstance(strict, bool):
            raise InvalidParameter(f"strict must be True or False, got {strict!r}.")
        stated["strict"] = strict
    return stated


def _check_stated_split(
    epsilon: float | None, expects: str | None, delta_share: float | None, pure_reserve: float | None
) -> dict[str, Any]:
    """Return the stated parameters of the split, checked."""
    stated: dict[str, Any] = {}
    if expects is not None:
        stated["expects"] = _check.check_choice("expects", expects, tuple(SPLIT_BY_EXPECTED_RELEASES))
    if delta_share is not None:
        stated["delta_share"] = _check.check_open_unit("delta_share", delta_share)
    if pure_reserve is not None:
        stated["pure_reserve"] = _check.check_nonnegative("pure_reserve", pure_reserve)
        if epsilon is not None and stated["pure_reserve"] >= epsilon:
            raise InvalidParameter(
                f"pure_reserve = {pure_reserve!r} leaves nothing of epsilon = {epsilon!r} for other "
                "releases; state less."
            )
    return stated


def _insert_dataset(session: Session, name: str, stated: dict[str, Any]) -> None:
    missing = [parameter for parameter in ("epsilon", "delta") if parameter not in stated]
    if missing:
        raise InvalidParameter(
            f"data set {name!r} is not in the ledger yet; to declare it, state its budget: "
            f"{' and '.join(missing)} missing (delta=0 for a pure budget)."
        )
    dataset_row = DatasetRow(
        name=name,
        epsilon=stated["epsilon"],
        delta=stated["delta"],
        adjacency=stated.get("adjacency", "replace-one"),
        max_rows_per_person=stated.get("max_rows_per_person", 1),
        strict=stated.get("strict", False),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        entries=0,
        genesis="",
        head="",
        expects=stated.get("expects", "mixed"),
        delta_share=stated.get("delta_share", SPLIT_BY_EXPECTED_RELEASES[stated.get("expects", "mixed")][0]),
        pure_reserve=stated.get(
            "pure_reserve", SPLIT_BY_EXPECTED_RELEASES[stated.get("expects", "mixed")][1] * stated["epsilon"]
        ),
    )
    identity = str(session.query("SELECT value FROM dplangevin_ledger WHERE name = 'identity'")[0][0])
    first = first_link(identity, name, _rows.declared_budget(dataset_row))
    session.execute(
        "INSERT INTO dplangevin_dataset (name, epsilon, delta, adjacency, max_rows_per_person, strict, "
        "created, entries, compared, genesis, head, expects, delta_share, pure_reserve, fixed_cost_entries) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 0)",
        *(
            name,
            dataset_row.epsilon,
            dataset_row.delta,
            dataset_row.adjacency,
            dataset_row.max_rows_per_person,
            int(dataset_row.strict),
        ),
        *(
            dataset_row.created,
            comparison_key(name),
            first,
            first,
            dataset_row.expects,
            dataset_row.delta_share,
            dataset_row.pure_reserve,
        ),
    )


def _declare_part(session: Session, dataset: str, name: str) -> None:
    """Declare a part, unless a part whose name compares as equal exists."""
    if any(comparison_key(known) == comparison_key(name) for known in _rows.part_names(session, dataset)):
        return
    session.execute(
        "INSERT INTO dplangevin_part (dataset, name, compared) VALUES (?, ?, ?)",
        dataset,
        name,
        comparison_key(name),
    )


def _check_agreement(dataset_row: DatasetRow, stated: dict[str, Any]) -> None:
    for name, value in stated.items():
        declared_value = getattr(dataset_row, name)
        if declared_value != value:
            raise InvalidParameter(
                f"data set {dataset_row.name!r} is in the ledger with {name} = {declared_value!r}, not "
                f"{value!r}; a budget does not change once it is declared, so leave {name} out or use "
                "another name."
            )


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
