"""DatasetBudget: who pays for releases about one data set. Copies of it charge the same row."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dplangevin._version import __version__
from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError, NotPrivateError
from dplangevin.ledger import _admission, _books, _rows, _store
from dplangevin.ledger._admission import Standing
from dplangevin.ledger._books import Books
from dplangevin.ledger._chain import Charge, hashed_token, head_text
from dplangevin.ledger._describe import described
from dplangevin.ledger._refusal import count_more, largest_fit, refusal
from dplangevin.ledger._rows import WHOLE, Account
from dplangevin.ledger._store import Session, Uncertain, store_for
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
    programme_number : the entry of the declared programme whose items are used; None outside of one.
    """

    url: str = field(repr=False)
    name: str
    label: str = ""
    part_name: str = WHOLE
    programme_number: int | None = None

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

    def programme(self, releases: Iterable[Guarantee | Priced]) -> DatasetBudget:
        """Reserve a fixed list of releases as one charge, by their exact composition; returns the budget of that list.

        Each release may be made once, whenever and in any order, by whoever holds the returned budget or a copy of it
        (`ledger=programme`): it costs nothing more. What is in the list is fixed here, before its first release.

        Examples
        --------
        >>> import tempfile
        >>> from dplangevin import account
        >>> from dplangevin.ledger import Ledger
        >>> ledger = Ledger.create(f"sqlite:///{tempfile.mkdtemp()}/ledger.db")
        >>> budget = ledger.declare("census", epsilon=1.0, delta=1e-6)
        >>> run = account(n=10_000, lipschitz=1.0, noise_std=0.01, step_size=1.0, steps=10, delta=1e-6)
        >>> grid = budget.programme([run, run])
        >>> tokens = [grid.charge(run), grid.charge(run)]
        >>> budget.remaining().unused_items, budget.remaining().entries
        (0, 3)
        """
        guarantees = [each if isinstance(each, Guarantee) else each.guarantee for each in releases]
        if not guarantees or any(type(each) is not Guarantee for each in guarantees):
            raise InvalidParameter("a programme is a list of one or more guarantees, or plans that have one.")
        owner = self._account()
        for each in guarantees:
            _check_strict(each, owner)
        together, items = _admission.compose_items([_cost(each, owner) for each in guarantees])
        plan = {"mechanism": "programme", "programme": _admission.items_text(items)}
        token = secrets.token_hex(16)
        replace(self, programme_number=None)._charge(together, json.dumps(plan), token)
        with store_for(self.url).transaction() as session:
            number = int(_paid(session, owner, token)[0][3])
        return replace(self, programme_number=number)

    def open_programme(self, number: int) -> DatasetBudget:
        """The budget of a programme that was reserved before, by the number of its entry."""
        _, books = self._read()
        if (
            number not in books.standing.programmes
            or books.standing.programmes[number].part != self.part_name
        ):
            known = ", ".join(map(str, books.standing.programmes)) or "none"
            raise InvalidParameter(
                f"entry {number!r} is no programme of data set {self.name!r} (known: {known})."
            )
        return replace(self, programme_number=number)

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

    def head_under(self, token: str) -> str:
        """The head of the chain right after the charge under this token, whether or not its release is noted."""
        with store_for(self.url).transaction() as session:
            found = _paid(session, _rows.existing(session, self.name), checked("token", token))
        if not found:
            raise LedgerError(f"data set {self.name!r} was never charged under this token.")
        return head_text(int(found[0][3]), str(found[0][4]))

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
            with store_for(self.url).transaction() as session:
                last = _rows.last_cost(session, owner)
            with _admission.composing():
                books.answers[key] = self._remaining(owner, books, last)
        found: Remaining = books.answers[key]
        return found

    def _remaining(self, owner: Account, books: Books, last: Guarantee | None) -> Remaining:
        rule, standing = _admission.rule_of(owner), books.standing
        states = set(standing.on(self.part_name).values())
        mu = min(rule.largest_mu(state) for state in states)
        return Remaining(
            epsilon=owner.epsilon,
            delta=owner.delta,
            adjacency=owner.adjacency,
            max_rows_per_person=owner.max_rows_per_person,
            entries=owner.entries,
            pure_epsilon=min(rule.largest_pure(state) for state in states),
            gaussian_mu=mu,
            gaussian_epsilon=largest_fit(mu, owner.delta),
            more_like_last=None if last is None else min(count_more(rule, state, last) for state in states),
            unused_items=sum(len(each.unused) for each in standing.programmes.values()),
            unfitting=standing.unfitting,
            fixed_cost_entries=owner.fixed_cost_entries,
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
        return owner, _books.save_standing(self.url, owner, books)

    def _charge(self, guarantee: Any, plan: str, token: str, *, whether_or_not: bool = False) -> str:
        """Ask the filter without a lock, then write if the head is still the one that it knew; else once more."""
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
        notes: dict[str, Any] = {}
        if not whether_or_not:
            admitted = self._admitted(owner, books, cost, token, content)
            if admitted is None:
                return True
            notes = admitted
        plan = _admission.with_notes(plan, notes)
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
            place, rule = owner.entries + 1, _admission.rule_of(owner)
            after = _admission.replay(rule, books.standing, place, self.part_name, cost, plan)
            _books.appended(self.url, owner, books, charge, after)
        return written

    def _admitted(
        self, owner: Account, books: Books, cost: Guarantee, token: str, content: str
    ) -> dict[str, Any] | None:
        """How it is charged, for its plan; None when the token has paid already; BudgetExceeded if it does not fit."""
        words = self._admit(owner, books.standing, cost)
        if not isinstance(words, str):
            return words
        with store_for(self.url).transaction() as session:
            if self._has_paid(session, owner, token, content):
                return None
        raise BudgetExceeded(words)

    def _admit(self, owner: Account, standing: Standing, cost: Guarantee) -> dict[str, Any] | str:
        """How it is charged, for its plan; a sentence where it does not fit."""
        if self.programme_number is not None:
            known = standing.programmes.get(self.programme_number)
            if _admission.without_item(known, self.part_name, _admission.item_of(cost)) is not None:
                return {"item_of": self.programme_number}
            left = 0 if known is None else len(known.unused)
            return (
                f"the programme of entry {self.programme_number} of data set {owner.name!r} has no unused release of "
                f"this cost ({left} others are unused): each may be made once, as it was declared. Charge it to the "
                "data set itself, or declare another programme. No record was read and nothing was charged."
            )
        rule = _admission.rule_of(owner)
        found = _admission.admit(rule, standing, self.part_name, cost)
        if isinstance(found, tuple):
            return {"charged": _admission.ways_text(found[1])}
        with _admission.composing():
            return refusal(owner, rule, found, cost, self.part_name)

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
    """Only guarantees without conditions, where the owner asked for that."""
    if owner.strict and not guarantee.is_unconditional:
        raise InvalidParameter(
            f"data set {owner.name!r} is strict, and this guarantee is {guarantee.conditions[0]}. Use what has no "
            "condition (descent, sums and counts have none); nothing was charged."
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
