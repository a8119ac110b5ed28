"""DatasetBudget: the budget of one data set, to which releases are charged. Copies of it charge the same row."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from dplangevin._templates import render_pairs
from dplangevin._version import __version__
from dplangevin.accounting import serialize
from dplangevin.accounting.certificate import certificate_to_plain
from dplangevin.accounting.delivery import Chargeable
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.errors import BudgetExceeded, DplangevinError, InvalidParameter, LedgerError, NotPrivateError
from dplangevin.ledger import _admission, _rows, _store
from dplangevin.ledger._admission import (
    CompositionCache,
    FilterStanding,
    count_more_releases,
    max_gdp_epsilon,
    refusal_message,
)
from dplangevin.ledger._rows import WHOLE_DATASET, DatasetRow
from dplangevin.ledger._store import CommitUncertain, Session, open_store
from dplangevin.ledger.entry import (
    Charge,
    Entry,
    Remaining,
    check_text,
    describe_plan,
    format_head,
    hash_token,
)


@dataclass(frozen=True, kw_only=True)
class DatasetBudget:
    """The budget of one data set, for the parameter `ledger=` of mechanisms and estimators. Made by `Ledger.dataset`.

    It stores where the data set's row is and nothing of its content: a clone, a pickle or a worker process charges
    the same budget, and every property is read from the ledger.

    Parameters
    ----------
    url : of the ledger, absolute. Copies hold it, so keep passwords out of it (use a password file).
    name : of the data set.
    label : who is charging and for what; stored with each entry.
    part_name : the disjoint part that is used; "" is the whole data set.
    program_number : the entry of the declared programme whose items are used; None outside of one.

    Privacy
    -------
    A charge is written before any record is read and is never given back; a release that does not fit raises
    BudgetExceeded and charges nothing.
    """

    url: str = field(repr=False)
    name: str
    label: str = ""
    part_name: str = WHOLE_DATASET
    program_number: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", open_store(self.url).url)  # absolute: the working folder may change

    def with_label(self, label: str) -> DatasetBudget:
        """Return the same budget with a label: who is charging and for what."""
        return replace(self, label=check_text("label", label, allow_empty=True))

    def for_part(self, name: str) -> DatasetBudget:
        """Return the budget of one declared part: releases on different parts do not compose.

        The caller states that the run reads records of this part only.
        """
        part_name = check_text("the name of a part", name)
        with open_store(self.url).transaction() as session:
            dataset_row = _rows.require_dataset(session, self.name)
            return replace(self, part_name=_rows.require_part(session, dataset_row.name, part_name))

    def reserve_program(self, releases: Iterable[Guarantee | Chargeable]) -> DatasetBudget:
        """Charge a fixed list of releases at once, by their composition; return the budget of that programme.

        Each release may be made once, at any time and in any order, by whoever holds the returned budget or a copy of
        it (`ledger=programme`), without a further charge. The list is fixed here, before its first release.

        Examples
        --------
        >>> import tempfile
        >>> from dplangevin import account
        >>> from dplangevin.ledger import Ledger
        >>> ledger = Ledger.create(f"sqlite:///{tempfile.mkdtemp()}/ledger.db")
        >>> budget = ledger.declare("census", epsilon=1.0, delta=1e-6)
        >>> run = account(n=10_000, lipschitz=1.0, noise_std=0.01, step_size=1.0, n_steps=10, delta=1e-6)
        >>> grid = budget.reserve_program([run, run])
        >>> tokens = [grid.charge(run), grid.charge(run)]
        >>> budget.remaining().n_unused_items, budget.remaining().entries
        (0, 3)
        """
        guarantees = [
            release if isinstance(release, Guarantee) else release.guarantee for release in releases
        ]
        if not guarantees or any(type(guarantee) is not Guarantee for guarantee in guarantees):
            raise InvalidParameter("a programme is a list of one or more guarantees, or plans that have one.")
        dataset_row = self._read_row()
        for guarantee in guarantees:
            _check_strict(guarantee, dataset_row)
        composed, items = _admission.compose_costs(
            [_cost_per_person(guarantee, dataset_row) for guarantee in guarantees]
        )
        plan = {"mechanism": "programme", "programme": _admission.items_to_plain(items)}
        token = secrets.token_hex(16)
        replace(self, program_number=None)._charge(composed, json.dumps(plan), token)
        with open_store(self.url).transaction() as session:
            number = int(_entries_of_token(session, dataset_row, token)[0][3])
        return replace(self, program_number=number)

    def open_program(self, number: int) -> DatasetBudget:
        """Return the budget of a programme that was reserved before, by the number of its entry."""
        _, cache = self._read_row_and_cache()
        if number not in cache.standing.programs or cache.standing.programs[number].part != self.part_name:
            known = ", ".join(map(str, cache.standing.programs)) or "none"
            raise InvalidParameter(
                f"entry {number!r} is no programme of data set {self.name!r} (known: {known})."
            )
        return replace(self, program_number=number)

    @property
    def max_rows_per_person(self) -> int:
        """The number of rows per person that the budget protects together, read from the ledger."""
        return self._read_row().max_rows_per_person

    @property
    def strict(self) -> bool:
        """Whether the ledger refuses conditional guarantees and errors that depend on the data for this data set."""
        return self._read_row().strict

    def head(self) -> str:
        """Return the head of the data set's chain: kept elsewhere, it lets `Ledger.verify` detect an older ledger."""
        dataset_row = self._read_row()
        return format_head(dataset_row.entries, dataset_row.head)

    def reserve(self, plan: Chargeable) -> str:
        """Charge the plan's guarantee before any record is read, or raise BudgetExceeded; return a token."""
        return self._charge(plan.guarantee, describe_plan(plan), secrets.token_hex(16))

    def reserve_with_token(self, token: str, plan: Chargeable) -> None:
        """Charge under a token of the caller's own; repeated calls with the same token charge once."""
        self._charge(plan.guarantee, describe_plan(plan), check_text("token", token))

    def charge(self, guarantee: Guarantee) -> str:
        """Charge a release that is made by other means; return a token for `commit`."""
        return self._charge(guarantee, describe_plan(guarantee), secrets.token_hex(16))

    def enter_release(self, guarantee: Guarantee, release_hash: str, *, lost_head: str | None = None) -> str:
        """Enter a release that exists but is not in the ledger, as after a restore, whether or not it fits.

        lost_head : the ledger head after the release's charge; `Ledger.verify` then accepts it as accounted for.
        """
        plan = {**json.loads(describe_plan(guarantee)), "entered": "afterwards"}
        if lost_head is not None:
            plan["lost_head"] = check_text("lost_head", lost_head)
        digest = check_text("release_hash", release_hash)
        token = self._charge(guarantee, json.dumps(plan), secrets.token_hex(16), even_over_budget=True)
        self.commit(token, digest)
        return token

    def was_charged(self, token: str) -> bool:
        """Return whether the data set was charged under this token, as after a lost connection."""
        with open_store(self.url).transaction() as session:
            return bool(
                _entries_of_token(
                    session, _rows.require_dataset(session, self.name), check_text("token", token)
                )
            )

    def head_for_token(self, token: str) -> str:
        """Return the head of the chain right after the charge under this token, with or without a noted release."""
        with open_store(self.url).transaction() as session:
            rows = _entries_of_token(
                session, _rows.require_dataset(session, self.name), check_text("token", token)
            )
        if not rows:
            raise LedgerError(f"data set {self.name!r} was never charged under this token.")
        return format_head(int(rows[0][3]), str(rows[0][4]))

    def commit(self, token: str, release_hash: str) -> str:
        """Note the hash of the release that was charged under a token; return the head of the chain after the charge.

        The cost itself was charged by `reserve`. An error here means: charged, not released.
        """
        digest, problem, head = check_text("release_hash", release_hash), "", ""
        try:
            with open_store(self.url).transaction(write=True) as session:
                dataset_row = _rows.require_dataset(session, self.name)
                rows = _entries_of_token(session, dataset_row, check_text("token", token))
                if not rows:
                    problem = f"data set {dataset_row.name!r} was never charged under this token."
                elif rows[0][2] not in (None, digest):
                    problem = "this token was charged for another release already; reserve again."
                else:
                    head = format_head(int(rows[0][3]), str(rows[0][4]))
                    if rows[0][2] is None:
                        session.note_release(dataset_row.name, token, digest, _timestamp())
        except LedgerError as error:
            message = (
                f"{_message_start(error)} The release is charged under token {token}, and could not be "
                "noted: charged, not released. Resume the run, or commit again under this token."
            )
            raise _error_with_token(message, token) from error
        if problem:
            raise LedgerError(problem)
        return head

    def history(self) -> tuple[Entry, ...]:
        """Return every charge, in order."""
        with open_store(self.url).transaction() as session:
            return _rows.read_entries(session, _rows.require_dataset(session, self.name))

    def _repr_html_(self) -> str:
        try:
            left = self.remaining()
        except DplangevinError as error:  # the ledger is not there: a notebook shows why, not a traceback
            return render_pairs(f"Budget of {self.name}", [("cannot be read", error)])
        pairs = [
            ("budget", f"epsilon = {left.epsilon:g}, delta = {left.delta:g}, {left.adjacency}"),
            ("rows per person", left.max_rows_per_person),
            ("charges", left.entries),
            ("still fits", left.fitting_text()),
        ]
        return render_pairs(f"Budget of {self.name}", pairs)

    def remaining(self) -> Remaining:
        """Return what would still fit, on the whole data set or on this part."""
        dataset_row, cache = self._read_row_and_cache()
        key = ("remaining", self.part_name)
        if key not in cache.memo:  # valid for the head that the cache is for
            with open_store(self.url).transaction() as session:
                last = _rows.read_last_cost(session, dataset_row)
            with _admission.translate_composition_errors():
                cache.memo[key] = self._compute_remaining(dataset_row, cache.standing, last)
        remaining: Remaining = cache.memo[key]
        return remaining

    def remaining_after(self, release: Guarantee | Chargeable) -> Remaining:
        """Return what would still fit after one more release; raise BudgetExceeded if it does not fit.

        Nothing is charged.
        """
        guarantee = release if isinstance(release, Guarantee) else release.guarantee
        dataset_row, cache = self._read_row_and_cache()
        cost = _cost_per_person(guarantee, dataset_row)
        _check_strict(guarantee, dataset_row)
        notes = self._admit(dataset_row, cache.standing, cost)
        if isinstance(notes, str):
            raise BudgetExceeded(notes)
        standing = _admission.replay_entry(
            _admission.declared_filter(dataset_row),
            cache.standing,
            dataset_row.entries + 1,
            self.part_name,
            cost,
            json.dumps(notes),
        )
        after = replace(dataset_row, entries=dataset_row.entries + 1)
        with _admission.translate_composition_errors():
            return self._compute_remaining(after, standing, cost)

    def _compute_remaining(
        self, dataset_row: DatasetRow, standing: FilterStanding, last: Guarantee | None
    ) -> Remaining:
        privacy_filter = _admission.declared_filter(dataset_row)
        states = set(standing.states_for(self.part_name).values())
        mu = min(privacy_filter.largest_mu(state) for state in states)
        return Remaining(
            epsilon=dataset_row.epsilon,
            delta=dataset_row.delta,
            adjacency=dataset_row.adjacency,
            max_rows_per_person=dataset_row.max_rows_per_person,
            entries=dataset_row.entries,
            pure_epsilon=min(privacy_filter.largest_pure(state) for state in states),
            gaussian_mu=mu,
            gaussian_epsilon=max_gdp_epsilon(mu, dataset_row.delta),
            n_more_like_last=None
            if last is None
            else min(count_more_releases(privacy_filter, state, last) for state in states),
            n_unused_items=sum(len(program.unused) for program in standing.programs.values()),
            n_over_budget=standing.n_over_budget,
            n_fixed_cost_entries=dataset_row.fixed_cost_entries,
        )

    def _read_row(self) -> DatasetRow:
        with open_store(self.url).transaction() as session:
            return _rows.require_dataset(session, self.name)

    def _read_row_and_cache(self) -> tuple[DatasetRow, CompositionCache]:
        """Return the row and the composition at its head, from one transaction that holds no lock."""
        caches = _admission.caches_in_memory(self.url)
        with open_store(self.url).transaction() as session:
            dataset_row = _rows.require_dataset(session, self.name)
            if self.part_name != WHOLE_DATASET:
                _rows.require_part(session, dataset_row.name, self.part_name)
            cache = _admission.read_composition(session, self.url, dataset_row, caches)
        return dataset_row, _admission.save_cache(self.url, dataset_row, cache)

    def _charge(self, guarantee: Any, plan: str, token: str, *, even_over_budget: bool = False) -> str:
        """Ask the filter without a lock, then write if the head has not changed meanwhile; else try again."""
        if type(guarantee) is not Guarantee:  # a subclass could state any cost
            raise NotPrivateError(f"a ledger cannot charge {guarantee!r}: it is no guarantee.")
        check_text("label", self.label, allow_empty=True)
        deadline, is_uncertain = time.monotonic() + 4 * _store.WAIT_SECONDS, False
        while True:
            try:
                if self._try_charge(guarantee, plan, token, even_over_budget):
                    return token
            except CommitUncertain as error:
                if is_uncertain:
                    raise self._unsettled_error(error, token) from error
                is_uncertain = True  # try once more under the same token, which is charged only once
            except LedgerError as error:
                if is_uncertain:
                    raise self._unsettled_error(error, token) from error
                raise
            if time.monotonic() > deadline:
                raise LedgerError(
                    f"other processes charge data set {self.name!r} without a pause; try again later. "
                    "Nothing was charged."
                )

    def _try_charge(self, guarantee: Guarantee, plan: str, token: str, even_over_budget: bool) -> bool:
        dataset_row, cache = self._read_row_and_cache()
        cost = _cost_per_person(guarantee, dataset_row)
        if not even_over_budget:
            _check_strict(guarantee, dataset_row)
        content = serialize.guarantee_to_json(cost)
        notes: dict[str, Any] = {}
        if not even_over_budget:
            admitted = self._admission_notes(dataset_row, cache, cost, token, content)
            if admitted is None:
                return True
            notes = admitted
        certificate = certificate_to_plain(cost)
        plan = _admission.add_notes(
            plan, notes if certificate is None else {**notes, "certificate": certificate}
        )
        charge = Charge(
            dataset=dataset_row.name,
            token=hash_token(token),
            part=self.part_name,
            label=check_text("label", self.label, allow_empty=True),
            created=_timestamp(),
            guarantee=_rows.content_digest(content),
            plan=plan,
            library=__version__,
        )
        with open_store(self.url).transaction(write=True) as session:
            if self._is_charged_already(session, dataset_row, token, content):
                return True
            written = session.append_entry(charge, content, dataset_row.head)
        if written:
            sequence, privacy_filter = dataset_row.entries + 1, _admission.declared_filter(dataset_row)
            after = _admission.replay_entry(
                privacy_filter, cache.standing, sequence, self.part_name, cost, plan
            )
            _admission.remember_appended(self.url, dataset_row, cache, charge, after)
        return written

    def _admission_notes(
        self, dataset_row: DatasetRow, cache: CompositionCache, cost: Guarantee, token: str, content: str
    ) -> dict[str, Any] | None:
        """Return the note on how it is charged; None if the token is charged already; raise if it does not fit."""
        outcome = self._admit(dataset_row, cache.standing, cost)
        if not isinstance(outcome, str):
            return outcome
        with open_store(self.url).transaction() as session:
            if self._is_charged_already(session, dataset_row, token, content):
                return None
        raise BudgetExceeded(outcome)

    def _admit(
        self, dataset_row: DatasetRow, standing: FilterStanding, cost: Guarantee
    ) -> dict[str, Any] | str:
        """Return the note on how it is charged, for its plan; a message where it does not fit."""
        if self.program_number is not None:
            program = standing.programs.get(self.program_number)
            if _admission.use_item(program, self.part_name, _admission.cost_item(cost)) is not None:
                return {"item_of": self.program_number}
            n_unused = 0 if program is None else len(program.unused)
            return (
                f"the programme of entry {self.program_number} of data set {dataset_row.name!r} has no "
                f"unused release of this cost ({n_unused} others are unused): each may be made once, as it "
                "was declared. Charge it to the data set itself, or declare another programme. No record was "
                "read and nothing was charged."
            )
        privacy_filter = _admission.declared_filter(dataset_row)
        admission = _admission.admit(privacy_filter, standing, self.part_name, cost)
        if isinstance(admission, tuple):
            return {"charged": _admission.charge_modes_to_plain(admission[1])}
        with _admission.translate_composition_errors():
            return refusal_message(dataset_row, privacy_filter, admission, cost, self.part_name)

    def _is_charged_already(
        self, session: Session, dataset_row: DatasetRow, token: str, content: str
    ) -> bool:
        rows = _entries_of_token(session, dataset_row, token)
        if rows and tuple(rows[0][:2]) != (_rows.content_digest(content), self.part_name):
            raise LedgerError("this token was charged for another release already; reserve again.")
        return bool(rows)

    def _unsettled_error(self, error: LedgerError, token: str) -> LedgerError:
        return _error_with_token(
            f"{_message_start(error)} The connection was lost while the charge was written, so data set "
            f"{self.name!r} is perhaps charged: token {token}. Ask budget.was_charged(token) once the ledger "
            "answers again; nothing was released.",
            token,
        )


_NOT_CHARGED_MESSAGE = "Nothing was charged or released, and what was written before is kept."


def _message_start(error: LedgerError) -> str:
    return str(error).removesuffix(_NOT_CHARGED_MESSAGE).strip()


def _error_with_token(message: str, token: str) -> LedgerError:
    error = LedgerError(message)
    error.token = token
    return error


def _entries_of_token(session: Session, dataset_row: DatasetRow, token: str) -> list[tuple[Any, ...]]:
    return list(
        session.query(
            "SELECT guarantee, part, release_hash, sequence, chain FROM dplangevin_entry "
            "WHERE dataset = ? AND token = ?",
            dataset_row.name,
            hash_token(token),
        )
    )


def _cost_per_person(guarantee: Guarantee, dataset_row: DatasetRow) -> Guarantee:
    """Return what is charged: the guarantee for a person with the declared number of rows, without comparisons."""
    if guarantee.adjacency != dataset_row.adjacency:
        raise InvalidParameter(
            f"the guarantee is for {guarantee.adjacency}, and the budget of data set {dataset_row.name!r} is "
            f"for {dataset_row.adjacency}; plan with adjacency={dataset_row.adjacency!r}."
        )
    return replace(guarantee, composition=None).group(dataset_row.max_rows_per_person)


def _check_strict(guarantee: Guarantee, dataset_row: DatasetRow) -> None:
    """Refuse a guarantee with conditions where the data set is strict."""
    if dataset_row.strict and not guarantee.is_unconditional:
        raise InvalidParameter(
            f"data set {dataset_row.name!r} is strict, and this guarantee is {guarantee.conditions[0]}. Use "
            "a mechanism without conditions (descent, sums and counts have none); nothing was charged."
        )


def _timestamp() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
