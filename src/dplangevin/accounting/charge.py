"""Charge the budget, then release: `charge_then_release` is the only code that charges, and every release uses it.

For a Python caller the return value is the delivery: the release is noted in the ledger, then returned. Within a
`Delivery` (every command) the note waits until the result is on the disk.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from dplangevin._rng import make_generator
from dplangevin.accounting.delivery import BudgetAccount, Chargeable, attach_ledger_head, current_delivery
from dplangevin.errors import InvalidParameter


class Releasable(Protocol):
    """A release that a ledger can note, because it has a digest."""

    def digest(self) -> str:
        """Return a hash of the released numbers."""
        ...


class RunCheckpoint(Protocol):
    """A run that can be resumed where it stopped, with the same noise and without a second charge."""

    def start(self, random_state: object) -> tuple[np.random.Generator, bool]:
        """Return the generator in its state before the first draw, and whether a user's seed made it."""
        ...

    def charge_once(self, plan: Chargeable, ledger: BudgetAccount | None) -> str | None:
        """Charge the plan unless this run has been charged already; return the token of the charge."""
        ...

    def finish(self) -> None:
        """Remove the checkpoint: the release has been returned."""
        ...

    def close(self) -> None:
        """Stop writing, after success or failure."""
        ...


R = TypeVar("R", bound=Releasable)


def charge_then_release(
    plan: Chargeable,
    release: Callable[[np.random.Generator, bool], R],
    random_state: object = None,
    *,
    ledger: BudgetAccount | None = None,
    checkpoint: RunCheckpoint | None = None,
    rows_per_person: int | None = None,
) -> R:
    """Charge the plan, then return release(generator, seeded); no record is read before the charge.

    Parameters
    ----------
    plan : its guarantee is charged. It is for one record, or states how many rows of a person it covers; the ledger
        charges the group guarantee for the number of rows per person that its data set declares.
    release : makes the release from a generator and a flag: whether a user's seed made the generator.
    random_state : None, a seed or a generator.
    ledger : the budget of one data set; None charges nothing.
    checkpoint : saves the run, so that it can be resumed without a second charge.
    rows_per_person : the number of rows per person that the request states; it must equal the ledger's.

    Privacy
    -------
    An error after the charge leaves the budget charged; a note on the error says so.
    """
    if ledger is not None and not (hasattr(ledger, "reserve") and hasattr(ledger, "commit")):
        raise InvalidParameter(
            "ledger must be the budget of one data set, e.g. Ledger.open(url).dataset('people'), got "
            f"{type(ledger).__name__}."
        )
    check_rows_per_person(ledger, rows_per_person)
    check_strict_dataset(ledger, plan)
    delivery, token, taken_over = current_delivery(), None, False
    account = ledger if delivery is None else delivery.deferring_account(ledger)
    try:
        if checkpoint is None:
            rng, seeded = make_generator(random_state)
            if ledger is not None and seeded:
                _warn_of_shared_noise(rng, ledger)
            token = account.reserve(plan) if account is not None else None
        else:
            rng, seeded = checkpoint.start(random_state)
            if delivery is not None and account is not ledger:
                taken_over = True
                delivery.adopt_checkpoint(checkpoint)
            token = checkpoint.charge_once(plan, account)
        result = release(rng, seeded)
        if account is not None and token is not None:
            attach_ledger_head(result, account.commit(token, result.digest()))
        if checkpoint is not None and not taken_over:
            checkpoint.finish()
    except BaseException as error:
        if token is not None and account is ledger:
            error.add_note(_interrupted_note(token, checkpoint is not None))
        raise
    finally:
        if checkpoint is not None and not taken_over:
            checkpoint.close()
    return result


def _interrupted_note(token: str, has_checkpoint: bool) -> str:
    """Return the note for an interrupted caller: the charge was made, and whether the run can be resumed."""
    cure = (
        "The same call with the same `checkpoint` resumes the run and is not charged again."
        if has_checkpoint
        else "The ledger's history shows the charge without a release; with `checkpoint` given, the same call could "
        "resume the run."
    )
    return f"The budget was charged (token {token}) before this happened, and nothing was released. {cure}"


_noise_states_used: set[bytes] = set()


def _warn_of_shared_noise(rng: np.random.Generator, ledger: BudgetAccount) -> None:
    """Warn when a seed is used twice: a ledger composes releases as if their noise were independent."""
    dataset_key = getattr(ledger, "url", id(ledger)), getattr(ledger, "name", "")
    start = hashlib.sha256(repr((dataset_key, rng.bit_generator.state)).encode()).digest()
    if start in _noise_states_used:
        warnings.warn(
            "this random_state made a release of these data before: both releases have the same noise, so "
            "together they may undo it (unless records and plan are the same), and the ledger's composition "
            "does not hold. Leave random_state out.",
            UserWarning,
            stacklevel=3,
        )
    _noise_states_used.add(start)


def check_rows_per_person(ledger: BudgetAccount | None, rows_per_person: int | None) -> None:
    """Check that the request and the budget state the same number of rows per person."""
    stated = getattr(ledger, "max_rows_per_person", None)
    if stated is not None and rows_per_person is not None and stated != rows_per_person:
        raise InvalidParameter(
            f"max_rows_per_person = {rows_per_person!r} differs from the ledger's {stated!r}: the request "
            "and the budget would protect different numbers of rows per person. State the same number in "
            "both."
        )


def check_strict_dataset(ledger: BudgetAccount | None, plan: Chargeable) -> None:
    """Check that a plan on a strict data set raises no error that depends on records.

    The conditions of the guarantee are checked by the ledger itself.
    """
    problem = getattr(plan, "problem", None)
    refuses = problem is not None and problem.bounds.bad_rows == "refuse"
    if refuses and getattr(ledger, "strict", False):
        raise InvalidParameter(
            "this data set is strict, and the plan raises an error on records that are not finite, which "
            "reveals them; state bad_rows='zero' in its DataBounds. Nothing was charged."
        )
