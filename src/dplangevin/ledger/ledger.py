"""Ledger: the privacy budgets of data sets, kept in a database that outlives processes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dplangevin import _check
from dplangevin._version import __version__
from dplangevin.errors import InvalidParameter
from dplangevin.ledger import _rows
from dplangevin.ledger._rows import Account
from dplangevin.ledger._store import Session, store_for
from dplangevin.ledger._text import checked
from dplangevin.ledger.budget import DatasetBudget
from dplangevin.problem.constants import ADJACENCIES

EXPORT_VERSION = 1


@dataclass(frozen=True)
class Ledger:
    """Budgets of data sets in SQLite (`sqlite:///file.db`) or PostgreSQL (`postgresql://user@host/database`).

    A release is admitted when the composed delta(epsilon) of everything charged so far and the release is at most
    the budget's delta; the charge is written in a transaction before any record is read, and is never given back.

    Examples
    --------
    >>> import tempfile
    >>> from dplangevin import account
    >>> folder = tempfile.mkdtemp()
    >>> census = Ledger.open(f"sqlite:///{folder}/ledger.db").dataset("census", epsilon=2.0, delta=1e-5)
    >>> release = account(n=10_000, lipschitz=1.0, noise_scale=0.01, step_size=1.0, steps=100, delta=1e-5)
    >>> token = census.labelled("first model").charge(release)
    >>> left = census.remaining()
    >>> round(left.spent_epsilon, 3), round(left.gaussian_mu, 3)
    (0.726, 0.46)
    """

    url: str = field(repr=False)

    @classmethod
    def open(cls, url: str, *, create: bool = True) -> Ledger:
        """The ledger at a URL; made when there is none, unless create is False."""
        store = store_for(url)
        if create:
            store.create()
        with store.transaction():
            pass
        return cls(store.url)

    def __repr__(self) -> str:
        return f"Ledger({store_for(self.url).shown!r})"

    def dataset(
        self,
        name: str,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        adjacency: str | None = None,
        max_rows_per_person: int | None = None,
        parts: Iterable[str] = (),
        label: str = "",
    ) -> DatasetBudget:
        """The budget of a data set, declared on first use; afterwards what is given must agree with it.

        Parameters
        ----------
        name : of the data set.
        epsilon, delta : the budget, for all releases together; delta = 0 admits pure promises only.
        adjacency : "replace-one" (default) or "add-remove"; releases must promise the same.
        max_rows_per_person : the budget is a promise to a person who owns at most so many rows (default 1).
        parts : names of DISJOINT parts of the data set, each record (and person) in at most one; under replace-one
            the part of a record must be public, so that a record is replaced within its part. More may be declared
            later. A release on `budget.part(name)` adds up with those on that part and on the whole data set only.
        label : who spends, and for what.
        """
        wanted = checked("the name of a data set", name)
        names = [
            checked("the name of a part", part) for part in ([parts] if isinstance(parts, str) else parts)
        ]
        stated = _stated(epsilon, delta, adjacency, max_rows_per_person)
        budget = DatasetBudget(url=self.url, name=wanted, label=checked("label", label, empty=True))
        if self._agrees(wanted, stated, names):
            return budget
        with store_for(self.url).transaction(write=True) as session:
            if _rows.account(session, wanted) is None:
                _declare(session, wanted, stated)
            _compare(_rows.existing(session, wanted), stated)  # another process may have declared it first
            for part in names:
                session.change(
                    "INSERT INTO dplangevin_part (dataset, name) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    wanted,
                    part,
                )
        return budget

    def _agrees(self, name: str, stated: dict[str, Any], parts: list[str]) -> bool:
        """Is all of this declared already? Then nothing needs writing."""
        with store_for(self.url).transaction() as session:
            owner = _rows.account(session, name)
            if owner is None:
                return False
            _compare(owner, stated)
            return set(parts) <= set(_rows.parts_of(session, name))

    def names(self) -> tuple[str, ...]:
        """The data sets that have a budget here."""
        with store_for(self.url).transaction() as session:
            return _names(session)

    def export(self) -> dict[str, Any]:
        """Everything, as plain data ready for JSON, read in one transaction."""
        with store_for(self.url).transaction() as session:
            datasets = [_exported(session, _rows.existing(session, name)) for name in _names(session)]
        return {
            "format": "dplangevin-ledger",
            "version": EXPORT_VERSION,
            "library": __version__,
            "datasets": datasets,
        }


def _names(session: Session) -> tuple[str, ...]:
    return tuple(str(row[0]) for row in session.rows("SELECT name FROM dplangevin_dataset ORDER BY name"))


def _exported(session: Session, owner: Account) -> dict[str, Any]:
    return {
        "name": owner.name,
        "epsilon": owner.epsilon,
        "delta": owner.delta,
        "adjacency": owner.adjacency,
        "max_rows_per_person": owner.max_rows_per_person,
        "created": owner.created,
        "parts": list(_rows.parts_of(session, owner.name)),
        "entries": [entry.to_dict() for entry in _rows.entries(session, owner)],
    }


def _stated(
    epsilon: float | None, delta: float | None, adjacency: str | None, rows: int | None
) -> dict[str, Any]:
    """What the caller said about the budget, checked."""
    stated: dict[str, Any] = {}
    if epsilon is not None:
        stated["epsilon"] = _check.positive("epsilon", epsilon)
    if delta is not None:
        stated["delta"] = _rows.budget_delta(delta)
    if adjacency is not None:
        stated["adjacency"] = _check.choice("adjacency", adjacency, ADJACENCIES)
    if rows is not None:
        stated["max_rows_per_person"] = _check.count("max_rows_per_person", rows)
    return stated


def _declare(session: Session, name: str, stated: dict[str, Any]) -> None:
    missing = [word for word in ("epsilon", "delta") if word not in stated]
    if missing:
        raise InvalidParameter(
            f"data set {name!r} is not in the ledger yet; to declare it, state its budget: {' and '.join(missing)} "
            "missing (delta=0 for a pure budget)."
        )
    session.change(
        "INSERT INTO dplangevin_dataset (name, epsilon, delta, adjacency, max_rows_per_person, created, entries) "
        "VALUES (?, ?, ?, ?, ?, ?, 0) ON CONFLICT (name) DO NOTHING",
        name,
        stated["epsilon"],
        stated["delta"],
        stated.get("adjacency", "replace-one"),
        stated.get("max_rows_per_person", 1),
        datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _compare(owner: Account, stated: dict[str, Any]) -> None:
    for word, value in stated.items():
        found = getattr(owner, word)
        if found != value:
            raise InvalidParameter(
                f"data set {owner.name!r} is in the ledger with {word} = {found!r}, not {value!r}; a budget "
                f"does not change once it is declared, so leave {word} out or use another name."
            )
