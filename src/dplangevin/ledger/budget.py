"""DatasetBudget: who pays for releases about one data set. Copies of it charge the same row."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dplangevin._version import __version__
from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError, NotPrivateError
from dplangevin.ledger import _admission, _books, _rows, _store
from dplangevin.ledger._books import Books
from dplangevin.ledger._chain import Charge, hashed_token, head_text
from dplangevin.ledger._describe import described
from dplangevin.ledger._refusal import refusal
from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.ledger._store import Session, Uncertain, store_for
from dplangevin.ledger._text import checked
from dplangevin.ledger.entry import Entry, Remaining
from dplangevin.privacy import serialize
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.spender import Priced
from dplangevin.privacy.theorem import holes


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", store_for(self.url).url)  # absolute, whatever folder comes later

    def labelled(self, label: str) -> DatasetBudget:
        """The same budget, with words on who spends and for what."""
        return replace(self, label=checked("label", label, empty=True))

    def part(self, name: str) -> DatasetBudget:
        """The budget as seen by one declared part: releases on different parts do not add up.

        The caller states that the run reads this part's records only.
        """
        wanted = checked("the name of a part", name)
        with store_for(self.url).transaction() as session:
            owner = _rows.existing(session, self.name)
            return replace(self, part_name=_rows.part_named(session, owner.name, wanted))

    @property
    def max_rows_per_person(self) -> int:
        """The rows of a person that the budget's promise covers together, read anew."""
        return self._account().max_rows_per_person

    @property
    def strict(self) -> bool:
        """Does the budget refuse conditional promises and errors that depend on the data? Read anew."""
        return self._account().strict

    def head(self) -> str:
        """The head of the data set's chain: keep it outside the ledger, and `Ledger.verify` notices an older ledger."""
        owner = self._account()
        return head_text(owner.entries, owner.head)

    def reserve(self, plan: Priced) -> str:
        """Charge the plan's guarantee before any record is read, or raise BudgetExceeded; returns a token."""
        return self._charge(plan.guarantee, described(plan), secrets.token_hex(16))

    def reserve_under(self, token: str, plan: Priced) -> None:
        """As reserve, under a token of the caller's own; charged once however often it is asked."""
        self._charge(plan.guarantee, described(plan), checked("token", token))

    def charge(self, guarantee: Guarantee) -> str:
        """Charge a release that was made by other means; returns a token for `commit`."""
        return self._charge(guarantee, described(guarantee), secrets.token_hex(16))

    def enter(self, guarantee: Guarantee, release_hash: str, *, lost_head: str | None = None) -> str:
        """Enter a release that exists but is not in the books, as after a restore: whether or not it fits.

        lost_head : the head the release was made under; `Ledger.verify` then knows that it is accounted for again.
        """
        plan = {**json.loads(described(guarantee)), "entered": "afterwards"}
        if lost_head is not None:
            plan["lost_head"] = checked("lost_head", lost_head)
        digest = checked("release_hash", release_hash)
        token = self._charge(guarantee, json.dumps(plan), secrets.token_hex(16), whether_or_not=True)
        self.commit(token, digest)
        return token

    def charged(self, token: str) -> bool:
        """Was the data set charged under this token? Settles a charge whose answer was lost."""
        with store_for(self.url).transaction() as session:
            return bool(_paid(session, _rows.existing(session, self.name), checked("token", token)))

    def commit(self, token: str, release_hash: str) -> str:
        """Note which release a token paid for; returns the head of the chain after the charge.

        The cost itself was charged by `reserve`. An error here means: charged, not released.
        """
        digest, problem, head = checked("release_hash", release_hash), "", ""
        try:
            with store_for(self.url).transaction(write=True) as session:
                owner = _rows.existing(session, self.name)
                found = _paid(session, owner, checked("token", token))
                if not found:
                    problem = f"data set {owner.name!r} was never charged under this token."
                elif found[0][2] not in (None, digest):
                    problem = "this token has paid for another release already; reserve again."
                else:
                    head = head_text(int(found[0][3]), str(found[0][4]))
                    if found[0][2] is None:
                        session.note(owner.name, token, digest, _now())
        except LedgerError as error:
            words = f"{_start(error)} The release is charged under token {token}, and could not be noted: charged, not "
            raise _with_token(
                words + "released. Resume the run, or commit again under this token.", token
            ) from error
        if problem:
            raise LedgerError(problem)
        return head

    def history(self) -> tuple[Entry, ...]:
        """Every charge, in order."""
        with store_for(self.url).transaction() as session:
            return _rows.entries(session, _rows.existing(session, self.name))

    def remaining(self) -> Remaining:
        """What was spent and what would still fit; on the whole data set, or on this part."""
        owner, books = self._read()
        key = ("remaining", self.part_name)
        if key not in books.answers:  # bound to the head, as all of the books are
            with _admission.composing():
                books.answers[key] = self._remaining(owner, books)
        found: Remaining = books.answers[key]
        return found

    def _remaining(self, owner: Account, books: Books) -> Remaining:
        spent, limit = books.on(self.part_name), (owner.epsilon, owner.delta)
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

    def _account(self) -> Account:
        with store_for(self.url).transaction() as session:
            return _rows.existing(session, self.name)

    def _read(self) -> tuple[Account, Books]:
        """The row and the books at its head, in one transaction that holds no lock."""
        before = _books.remembered(self.url)
        with store_for(self.url).transaction() as session:
            owner = _rows.existing(session, self.name)
            if self.part_name != WHOLE:
                _rows.part_named(session, owner.name, self.part_name)
            books = _books.books(session, self.url, owner, before)
        return owner, _books.composed(self.url, owner, books)

    def _charge(self, guarantee: Any, plan: str, token: str, *, whether_or_not: bool = False) -> str:
        """Compose without a lock, then write if the head is still the one that was composed; else once more."""
        if type(guarantee) is not Guarantee:  # a subclass could say anything of itself
            raise NotPrivateError(f"a ledger cannot charge {guarantee!r}: it is no guarantee.")
        checked("label", self.label, empty=True)
        patience, lost = time.monotonic() + 4 * _store.WAIT_SECONDS, False
        while True:
            try:
                if self._attempt(guarantee, plan, token, whether_or_not):
                    return token
            except Uncertain as error:
                if lost:
                    raise self._unsettled(error, token) from error
                lost = True  # ask once more under the same token, which is charged once
            except LedgerError as error:
                if lost:
                    raise self._unsettled(error, token) from error
                raise
            if time.monotonic() > patience:
                raise LedgerError(
                    f"the other spenders of data set {self.name!r} leave no gap; try again later. Nothing was charged."
                )

    def _attempt(self, guarantee: Guarantee, plan: str, token: str, whether_or_not: bool) -> bool:
        owner, books = self._read()
        cost = _cost(guarantee, owner)
        if not whether_or_not:
            _check_strict(guarantee, owner)
        content = serialize.dumps(cost)
        if not whether_or_not and not self._admitted(owner, books, cost, token, content):
            return True
        charge = Charge(
            dataset=owner.name,
            token=hashed_token(token),
            part=self.part_name,
            label=checked("label", self.label, empty=True),
            created=_now(),
            guarantee=_rows.digest_of(content),
            plan=plan,
            library=__version__,
        )
        with store_for(self.url).transaction(write=True) as session:
            if self._has_paid(session, owner, token, content):
                return True
            written = session.append(charge, content, owner.head)
        if written:
            _books.appended(self.url, owner, books, charge, cost)
        return written

    def _admitted(self, owner: Account, books: Books, cost: Guarantee, token: str, content: str) -> bool:
        """Does it fit? False when the token has paid already; BudgetExceeded when it does not fit."""
        for spent in books.on(self.part_name):
            if not _admission.admits(spent, cost, owner.epsilon, owner.delta):
                with store_for(self.url).transaction() as session:
                    if self._has_paid(session, owner, token, content):
                        return False
                raise BudgetExceeded(refusal(owner, spent, cost, self.part_name))
        return True

    def _has_paid(self, session: Session, owner: Account, token: str, content: str) -> bool:
        found = _paid(session, owner, token)
        if found and tuple(found[0][:2]) != (_rows.digest_of(content), self.part_name):
            raise LedgerError("this token has paid for another release already; reserve again.")
        return bool(found)

    def _unsettled(self, error: LedgerError, token: str) -> LedgerError:
        return _with_token(
            f"{_start(error)} The connection was lost while the charge was written, so data set {self.name!r} is "
            f"perhaps charged: token {token}. Ask budget.charged(token) once the ledger answers again; nothing "
            "was released.",
            token,
        )


_NOTHING = "Nothing was charged or released, and what was written before is kept."


def _start(error: LedgerError) -> str:
    return str(error).removesuffix(_NOTHING).strip()


def _with_token(words: str, token: str) -> LedgerError:
    error = LedgerError(words)
    error.token = token
    return error


def _paid(session: Session, owner: Account, token: str) -> list[tuple[Any, ...]]:
    return list(
        session.rows(
            "SELECT guarantee, part, release_hash, sequence, chain FROM dplangevin_entry "
            "WHERE dataset = ? AND token = ?",
            owner.name,
            hashed_token(token),
        )
    )


def _cost(guarantee: Guarantee, owner: Account) -> Guarantee:
    """What is written: the promise to a person, without what only stands beside it."""
    if guarantee.adjacency != owner.adjacency:
        raise InvalidParameter(
            f"the plan promises {guarantee.adjacency} privacy, and the budget of data set {owner.name!r} is for "
            f"{owner.adjacency}; plan with adjacency={owner.adjacency!r}."
        )
    return replace(guarantee, composition=None).group(owner.max_rows_per_person)


def _check_strict(guarantee: Guarantee, owner: Account) -> None:
    """Only promises for every data set, errors included, where the owner asked for that."""
    found = holes(guarantee) if owner.strict else ()
    if found:
        raise InvalidParameter(
            f"data set {owner.name!r} is strict, and this promise is not for every data set: {found[0]}. Use what has "
            "no such line (descent, sums and counts have none); nothing was charged."
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
