"""DatasetBudget: who pays for releases about one data set. Copies of it charge the same row."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dplangevin._version import __version__
from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError, NotPrivateError
from dplangevin.ledger import _admission, _rows
from dplangevin.ledger._admission import Bill
from dplangevin.ledger._describe import described
from dplangevin.ledger._refusal import refusal
from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.ledger._store import Session, store_for
from dplangevin.ledger._text import checked
from dplangevin.ledger.entry import Entry, Remaining
from dplangevin.privacy import serialize
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.spender import Priced


@dataclass(frozen=True, kw_only=True)
class DatasetBudget:
    """The budget of one data set, as a Spender for `ledger=` of mechanisms and estimators.

    It holds where the row is and nothing of what the row says: a clone, a pickle or a worker process charges the
    same budget, and every answer is read anew. Made by `Ledger.dataset`.

    Parameters
    ----------
    url : of the ledger, absolute. It travels with copies, so keep passwords out of it (use a password file).
    name : of the data set.
    label : words on who spends and for what, stored with each entry.
    part_name : the disjoint part that is used; "" is the whole data set.
    """

    url: str = field(repr=False)
    name: str
    label: str = ""
    part_name: str = WHOLE

    def labelled(self, label: str) -> DatasetBudget:
        """The same budget, with words on who spends and for what."""
        return replace(self, label=checked("label", label, empty=True))

    def part(self, name: str) -> DatasetBudget:
        """The budget as seen by one declared part: releases on different parts do not add up.

        The caller states that the run reads this part's records only.
        """
        wanted = checked("the name of a part", name)
        with store_for(self.url).transaction() as session:
            self._check_part(session, wanted)
        return replace(self, part_name=wanted)

    @property
    def max_rows_per_person(self) -> int:
        """The rows of a person that the budget's promise covers together, read anew."""
        with store_for(self.url).transaction() as session:
            return _rows.existing(session, self.name).max_rows_per_person

    def reserve(self, plan: Priced) -> str:
        """Charge the plan's guarantee before any record is read, or raise BudgetExceeded; returns a token."""
        return self._charge(plan.guarantee, described(plan))

    def reserve_under(self, token: str, plan: Priced) -> None:
        """As reserve, under a token of the caller's own; charged once however often it is asked."""
        self._charge(plan.guarantee, described(plan), checked("token", token))

    def charge(self, guarantee: Guarantee) -> str:
        """Charge a release that was made by other means; returns a token for `commit`."""
        return self._charge(guarantee, described(guarantee))

    def commit(self, token: str, release_hash: str) -> None:
        """Note which release a token paid for. The cost itself was charged by `reserve`."""
        digest = checked("release_hash", release_hash)
        with store_for(self.url).transaction(write=True) as session:
            found = session.rows(
                "SELECT release_hash FROM dplangevin_entry WHERE dataset = ? AND token = ?", self.name, token
            )
            if not found:
                raise LedgerError(f"data set {self.name!r} was never charged under this token.")
            if found[0][0] not in (None, digest):
                raise LedgerError("this token has paid for another release already; reserve again.")
            session.change(
                "UPDATE dplangevin_entry SET release_hash = ?, released = ? WHERE token = ? "
                "AND release_hash IS NULL",
                digest,
                _now(),
                token,
            )

    def history(self) -> tuple[Entry, ...]:
        """Every charge, in order."""
        with store_for(self.url).transaction() as session:
            return _rows.entries(session, _rows.existing(session, self.name))

    def remaining(self) -> Remaining:
        """What was spent and what would still fit; on the whole data set, or on this part."""
        with store_for(self.url).transaction() as session:
            owner = _rows.existing(session, self.name)
            spent = self._bills(session, owner)
        limit = (owner.epsilon, owner.delta)
        return Remaining(
            epsilon=owner.epsilon,
            delta=owner.delta,
            adjacency=owner.adjacency,
            max_rows_per_person=owner.max_rows_per_person,
            entries=owner.entries,
            spent_epsilon=max(bill.epsilon(owner.delta) for bill in spent),
            pure_epsilon=min(_admission.largest_pure(bill, *limit) for bill in spent),
            gaussian_mu=min(_admission.largest_gaussian(bill, *limit) for bill in spent),
        )

    def _charge(self, guarantee: Any, plan: str, token: str | None = None) -> str:
        if not isinstance(guarantee, Guarantee):
            raise NotPrivateError(f"a ledger cannot charge {guarantee!r}: it is no guarantee.")
        label = checked("label", self.label, empty=True)
        with store_for(self.url).transaction(write=True) as session:
            session.lock_dataset(self.name)
            owner = _rows.existing(session, self.name)
            if self.part_name != WHOLE:
                self._check_part(session, self.part_name)
            cost = _cost(guarantee, owner)
            if token is not None and self._has_paid(session, token, cost):
                return token
            refused = None
            for spent in self._bills(session, owner):
                if not _admission.fits(spent.with_release(cost), owner.epsilon, owner.delta):
                    refused = spent
                    break
            else:
                token = self._write(session, owner, cost, label, plan, token or secrets.token_hex(16))
        if refused is not None:  # the lock is free again: what follows may take its time
            raise BudgetExceeded(refusal(owner, refused, cost, self.part_name))
        assert token is not None
        return token

    def _has_paid(self, session: Session, token: str, cost: Guarantee) -> bool:
        found = session.rows(
            "SELECT guarantee, part FROM dplangevin_entry WHERE dataset = ? AND token = ?", self.name, token
        )
        if found and tuple(found[0]) != (_rows.digest_of(serialize.dumps(cost)), self.part_name):
            raise LedgerError("this token has paid for another release already; reserve again.")
        return bool(found)

    def _bills(self, session: Session, owner: Account) -> list[Bill]:
        """The bills that a release here adds to: a record lies in one part, so each part is a case of its own."""
        found = _rows.bills(session, owner)
        if self.part_name != WHOLE:
            return [found.get(self.part_name, found[WHOLE])]
        return list(dict.fromkeys(found.values()))

    def _write(
        self, session: Session, owner: Account, cost: Guarantee, label: str, plan: str, token: str
    ) -> str:
        content = serialize.dumps(cost)
        digest = _rows.digest_of(content)
        session.change(
            "INSERT INTO dplangevin_guarantee (digest, content) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING",
            digest,
            content,
        )
        session.change(
            "INSERT INTO dplangevin_entry (dataset, sequence, token, part, label, created, guarantee, plan, "
            "library) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *(owner.name, owner.entries + 1, token, self.part_name, label, _now(), digest, plan, __version__),
        )
        session.change("UPDATE dplangevin_dataset SET entries = entries + 1 WHERE name = ?", owner.name)
        return token

    def _check_part(self, session: Session, name: str) -> None:
        known = _rows.parts_of(session, self.name)
        if name not in known:
            raise InvalidParameter(
                f"data set {self.name!r} has no part {name!r} (declared: {', '.join(known) or 'none'}); declare it "
                "with ledger.dataset(name, parts=[...])."
            )


def _cost(guarantee: Guarantee, owner: Account) -> Guarantee:
    """What is written: the promise to a person, without what only stands beside it."""
    if guarantee.adjacency != owner.adjacency:
        raise InvalidParameter(
            f"the plan promises {guarantee.adjacency} privacy, and the budget of data set {owner.name!r} is for "
            f"{owner.adjacency}; plan with adjacency={owner.adjacency!r}."
        )
    return replace(guarantee, composition=None).group(owner.max_rows_per_person)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
