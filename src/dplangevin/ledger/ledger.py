"""Ledger: the privacy budgets of data sets, kept in a database that outlives processes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dplangevin import _check
from dplangevin._version import __version__
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger import _books, _evidence, _rows, _seen_heads, _upgrade
from dplangevin.ledger._chain import genesis, head_text
from dplangevin.ledger._rows import Account
from dplangevin.ledger._sqlite import SQLiteStore
from dplangevin.ledger._store import Session, store_for
from dplangevin.ledger._text import checked, checked_name, comparable
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.problem.constants import ADJACENCIES

EXPORT_VERSION = 3
EXPECTED = {"fits": (0.01, 0.0), "mixed": (_rows.DELTA_SHARE, 0.0), "counts": (0.01, 0.0)}
"""What `expects` stands for: the share of delta that may be lost outright, and the share of epsilon that is reserved
for pure releases. Measured on the quarters in docs/ledger.md."""


@dataclass(frozen=True)
class Ledger:
    """Budgets of data sets in SQLite (`sqlite:///file.db`) or PostgreSQL (`postgresql://user@host/database`).

    A release is admitted when the privacy filter of its data set has room for it, so that the budget holds although
    spenders choose a release after seeing others; the charge is written in a transaction before any record is read, and
    is never given back.

    Examples
    --------
    >>> import tempfile
    >>> from dplangevin import account
    >>> folder = tempfile.mkdtemp()
    >>> ledger = Ledger.create(f"sqlite:///{folder}/ledger.db")  # once, by the owner
    >>> census = ledger.declare("census", epsilon=2.0, delta=1e-5)
    >>> release = account(n=10_000, lipschitz=1.0, noise_std=0.01, step_size=1.0, steps=100, delta=1e-5)
    >>> token = Ledger.open(ledger.url).dataset("census").labelled("first model").charge(release)
    >>> left = census.remaining()
    >>> left.entries, round(left.gaussian_mu, 2), left.more_like_last
    (1, 0.46, 5)
    """

    url: str = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", store_for(self.url).url)  # absolute, whatever folder comes later

    @classmethod
    def create(cls, url: str) -> Ledger:
        """Make a new, empty ledger; an error where there is one, or anything else. Its maker is its owner."""
        store = store_for(url)
        store.create()
        return cls.open(url)

    @classmethod
    def open(cls, url: str, *, expect: str | Iterable[str] | None = None) -> Ledger:
        """The ledger at a URL, which must be there: opening never creates.

        expect : heads that this ledger must hold, from releases, reports or `head()`; an older or another ledger is an
            error.
        """
        store, heads = store_for(url), _evidence.as_heads(expect)
        with store.transaction() as session:
            if heads:
                _evidence.verify(session, heads, store.shown)
        return cls(store.url)

    @classmethod
    def upgrade(cls, url: str) -> str:
        """Bring a ledger of an older version to the present one, by its owner; every charge is kept.

        Returns what was done, in words, with the place of the copy that is kept of an SQLite file.
        """
        store = store_for(url)
        return f"upgraded {store.shown}{_upgrade.upgrade(store)}"

    @classmethod
    def restore(cls, url: str, backup: str | Path, *, expect: str | Iterable[str] | None = None) -> Ledger:
        """Put a backup where no ledger is (move a damaged one away first), as a new file of mode 0600.

        What was charged after the backup is forgotten by it: give the heads you know as `expect`, which refuses a
        backup that lacks one of them, and enter what no backup holds with `DatasetBudget.enter`.
        """
        store, source = _file(url), SQLiteStore(Path(backup).expanduser().absolute())
        store.check_vacant()
        cls.open(source.url, expect=expect)
        draft = store.path.with_name(f".{store.path.name}.{secrets.token_hex(4)}.new")
        try:
            source.copy_to(draft)
            store.place(draft)
        finally:
            draft.unlink(missing_ok=True)
        return cls.open(url, expect=expect)

    def accept_restore(self) -> dict[str, str]:
        """Accept this ledger although it lacks entries that you have seen, as its owner; the ledger keeps a record.

        What was charged in those entries is forgotten, and its releases still exist: enter first what you can with
        `DatasetBudget.enter`. Every other user is told once, and goes on. Returns what is forgotten, by data set.
        """
        forgotten = _seen_heads.accept_restore(self.url)
        _books.forget()
        return forgotten

    def __repr__(self) -> str:
        return f"Ledger({self.shown!r})"

    @property
    def shown(self) -> str:
        """The absolute address, without secrets."""
        return store_for(self.url).shown

    def dataset(self, name: str, *, label: str = "") -> DatasetBudget:
        """The declared budget of a data set; an error when there is none. Names compare without case.

        label : who spends, and for what.
        """
        wanted, words = checked("the name of a data set", name), checked("label", label, empty=True)
        with store_for(self.url).transaction() as session:
            return DatasetBudget(url=self.url, name=_rows.existing(session, wanted).name, label=words)

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
        name : of the data set; one that a reader could take for a declared one (case, look-alike letters) is that one.
        epsilon, delta : the budget, for all releases together; delta = 0 admits pure promises only.
        adjacency : "replace-one" (default) or "add-remove"; releases must promise the same.
        max_rows_per_person : the budget is a promise to a person who owns at most so many rows (default 1).
        strict : refuse promises that hold under a condition on the data, and errors that depend on it (default False).
        parts : names of DISJOINT parts of the data set, each record (and person) in at most one; under replace-one
            the part of a record must be public, so that a record is replaced within its part. More may be declared
            later. A release on `budget.part(name)` adds up with those on that part and on the whole data set only.
        expects : what will be released: "fits", "counts" or "mixed" (default). It fixes, before the first release, how
            the budget is split when the first release comes that is no (epsilon, delta) pair; see docs/ledger.md.
        delta_share, pure_reserve : the split itself, in place of the values that `expects` stands for: the part of
            delta that may be lost outright, and the epsilon that is kept for pure releases.
        """
        wanted = checked_name("the name of a data set", name)
        names = [
            checked_name("the name of a part", part)
            for part in ([parts] if isinstance(parts, str) else parts)
        ]
        stated = _stated(epsilon, delta, adjacency, max_rows_per_person, strict)
        stated |= _stated_split(epsilon, expects, delta_share, pure_reserve)
        with store_for(self.url).transaction(write=True) as session:
            session.lock_declarations()
            if _rows.account(session, wanted) is None:
                _declare(session, wanted, stated)
            owner = _rows.existing(session, wanted)
            _compare(owner, stated)
            for part in names:
                _declare_part(session, owner.name, part)
        return DatasetBudget(url=self.url, name=owner.name)

    def grant(self, role: str, may: str) -> None:
        """Make a role of the PostgreSQL server a "spender" or a "reader" here, or take all back ("nothing")."""
        store_for(self.url).grant(checked("role", role), may)

    def names(self) -> tuple[str, ...]:
        """The data sets that have a budget here."""
        with store_for(self.url).transaction() as session:
            return _rows.names(session)

    def heads(self) -> dict[str, str]:
        """The head of every data set's chain, to be kept elsewhere: `verify` and `open(expect=)` take it."""
        with store_for(self.url).transaction() as session:
            owners = [_rows.existing(session, name) for name in _rows.names(session)]
        return {owner.name: head_text(owner.entries, owner.head) for owner in owners}

    def verify(self, *heads: str) -> dict[str, str]:
        """Check every entry of every data set, and that the ledger holds these heads; returns the present ones."""
        store = store_for(self.url)
        with store.transaction() as session:
            return _evidence.verify(session, heads, store.shown)

    def backup(self, path: str | Path) -> Path:
        """A consistent copy of an SQLite ledger, while others spend; never over another file."""
        target = Path(os.path.abspath(Path(path).expanduser()))
        if not target.parent.is_dir():
            raise LedgerError(f"cannot write the backup {target}: its folder does not exist.")
        _file(self.url).copy_to(target)
        return target

    def export(self) -> dict[str, Any]:
        """Everything, as plain data ready for JSON, read in one transaction."""
        with store_for(self.url).transaction() as session:
            datasets = [_exported(session, _rows.existing(session, name)) for name in _rows.names(session)]
        return {
            "format": "dplangevin-ledger",
            "version": EXPORT_VERSION,
            "library": __version__,
            "datasets": datasets,
        }


def _file(url: str) -> SQLiteStore:
    store = store_for(url)
    if not isinstance(store, SQLiteStore):
        raise InvalidParameter(
            "a ledger in PostgreSQL is backed up and restored with pg_dump and pg_restore."
        )
    return store


def _exported(session: Session, owner: Account) -> dict[str, Any]:
    return {
        "name": owner.name,
        "epsilon": owner.epsilon,
        "delta": owner.delta,
        "adjacency": owner.adjacency,
        "max_rows_per_person": owner.max_rows_per_person,
        "strict": owner.strict,
        "expects": owner.expects,
        "delta_share": owner.delta_share,
        "pure_reserve": owner.pure_reserve,
        "fixed_cost_entries": owner.fixed_cost_entries,
        "created": owner.created,
        "parts": list(_rows.parts_of(session, owner.name)),
        "head": head_text(owner.entries, owner.head),
        "entries": [entry.to_dict() for entry in _rows.entries(session, owner)],
    }


def _stated(
    epsilon: float | None, delta: float | None, adjacency: str | None, rows: int | None, strict: bool | None
) -> dict[str, Any]:
    """What the caller said about the budget, checked."""
    stated: dict[str, Any] = {}
    if epsilon is not None:
        stated["epsilon"] = _check.scale("epsilon", epsilon)
    if delta is not None:
        stated["delta"] = _rows.budget_delta(delta)
    if adjacency is not None:
        stated["adjacency"] = _check.choice("adjacency", adjacency, ADJACENCIES)
    if rows is not None:
        stated["max_rows_per_person"] = _check.count("max_rows_per_person", rows)
    if strict is not None:
        if not isinstance(strict, bool):
            raise InvalidParameter(f"strict must be True or False, got {strict!r}.")
        stated["strict"] = strict
    return stated


def _stated_split(
    epsilon: float | None, expects: str | None, delta_share: float | None, pure_reserve: float | None
) -> dict[str, Any]:
    """What the caller said about the split, checked."""
    stated: dict[str, Any] = {}
    if expects is not None:
        stated["expects"] = _check.choice("expects", expects, tuple(EXPECTED))
    if delta_share is not None:
        stated["delta_share"] = _check.open_unit("delta_share", delta_share)
    if pure_reserve is not None:
        stated["pure_reserve"] = _check.nonnegative("pure_reserve", pure_reserve)
        if epsilon is not None and stated["pure_reserve"] >= epsilon:
            raise InvalidParameter(
                f"pure_reserve = {pure_reserve!r} leaves nothing of epsilon = {epsilon!r} for others; state less."
            )
    return stated


def _declare(session: Session, name: str, stated: dict[str, Any]) -> None:
    missing = [word for word in ("epsilon", "delta") if word not in stated]
    if missing:
        raise InvalidParameter(
            f"data set {name!r} is not in the ledger yet; to declare it, state its budget: {' and '.join(missing)} "
            "missing (delta=0 for a pure budget)."
        )
    owner = Account(
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
        delta_share=stated.get("delta_share", EXPECTED[stated.get("expects", "mixed")][0]),
        pure_reserve=stated.get(
            "pure_reserve", EXPECTED[stated.get("expects", "mixed")][1] * stated["epsilon"]
        ),
    )
    identity = str(session.rows("SELECT value FROM dplangevin_ledger WHERE name = 'identity'")[0][0])
    first = genesis(identity, name, _rows.declared(owner))
    session.change(
        "INSERT INTO dplangevin_dataset (name, epsilon, delta, adjacency, max_rows_per_person, strict, created, "
        "entries, compared, genesis, head, expects, delta_share, pure_reserve, fixed_cost_entries) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, ?, 0)",
        *(name, owner.epsilon, owner.delta, owner.adjacency, owner.max_rows_per_person, int(owner.strict)),
        *(
            owner.created,
            comparable(name),
            first,
            first,
            owner.expects,
            owner.delta_share,
            owner.pure_reserve,
        ),
    )


def _declare_part(session: Session, dataset: str, name: str) -> None:
    """One more part, unless a part that compares as equal is there."""
    if any(comparable(known) == comparable(name) for known in _rows.parts_of(session, dataset)):
        return
    session.change(
        "INSERT INTO dplangevin_part (dataset, name, compared) VALUES (?, ?, ?)",
        dataset,
        name,
        comparable(name),
    )


def _compare(owner: Account, stated: dict[str, Any]) -> None:
    for word, value in stated.items():
        found = getattr(owner, word)
        if found != value:
            raise InvalidParameter(
                f"data set {owner.name!r} is in the ledger with {word} = {found!r}, not {value!r}; a budget "
                f"does not change once it is declared, so leave {word} out or use another name."
            )
