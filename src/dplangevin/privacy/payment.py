"""The one till: noise, charge, records, commit. Everything that spends goes through `pay`, and nothing else charges.

For a Python caller the return value is the delivery: the release is noted in the ledger, then returned. Within a
`Delivery` (every command) the note waits until the result is on the disk.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from dplangevin._rng import generator
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.delivery import current_delivery
from dplangevin.privacy.spender import Priced, Spender, under_head


class Released(Protocol):
    """Anything a ledger can note."""

    def digest(self) -> str:
        """A hash of the released numbers."""
        ...


class SavedRun(Protocol):
    """A run that can go on where it stopped, with its own noise and its own charge."""

    def begin(self, random_state: object) -> tuple[np.random.Generator, bool]:
        """The generator at its first draw, and whether a user seeded it."""
        ...

    def paid(self, plan: Priced, ledger: Spender | None) -> str | None:
        """The token of the run's charge, which is made once."""
        ...

    def end(self) -> None:
        """The release is out."""
        ...

    def close(self) -> None:
        """Nothing more is written, whatever happened."""
        ...


R = TypeVar("R", bound=Released)


def pay(
    plan: Priced,
    release: Callable[[np.random.Generator, bool], R],
    random_state: object = None,
    *,
    ledger: Spender | None = None,
    saved: SavedRun | None = None,
    rows_per_person: int | None = None,
) -> R:
    """release(generator, whether it was seeded), after the plan is paid for; no record is read before.

    Parameters
    ----------
    plan : what is charged. Its guarantee is for one record, or says for how many rows of a person it is; the ledger
        charges the promise to its own people, grouped once.
    rows_per_person : what was promised to whom, where the request states it: it must be what the ledger states.
    """
    if ledger is not None and not (hasattr(ledger, "reserve") and hasattr(ledger, "commit")):
        raise InvalidParameter(
            "ledger must be the budget of one data set, e.g. Ledger.open(url).dataset('people'), got "
            f"{type(ledger).__name__}."
        )
    check_rows(ledger, rows_per_person)
    check_strict(ledger, plan)
    delivery, token, taken_over = current_delivery(), None, False
    payer = ledger if delivery is None else delivery.payer(ledger)
    try:
        if saved is None:
            rng, seeded = generator(random_state)
            if ledger is not None and seeded:
                _warn_of_shared_noise(rng, ledger)
            token = payer.reserve(plan) if payer is not None else None
        else:
            rng, seeded = saved.begin(random_state)
            if delivery is not None and payer is not ledger:
                taken_over = True
                delivery.keep(saved)
            token = saved.paid(plan, payer)
        made = release(rng, seeded)
        if payer is not None and token is not None:
            under_head(made, payer.commit(token, made.digest()))
        if saved is not None and not taken_over:
            saved.end()
    except BaseException as error:
        if token is not None and payer is ledger:
            error.add_note(_charged_note(token, saved is not None))
        raise
    finally:
        if saved is not None and not taken_over:
            saved.close()
    return made


def _charged_note(token: str, saved: bool) -> str:
    """What an interrupted caller should know: the charge was made, and whether it can still buy something."""
    cure = (
        "The same call with the same `state` goes on, and is not charged again."
        if saved
        else "The ledger's history shows the charge without a release; with `state` given, the same call would go on."
    )
    return f"The budget was charged (token {token}) before this happened, and nothing was released. {cure}"


_begun: set[bytes] = set()


def _warn_of_shared_noise(rng: np.random.Generator, ledger: Spender) -> None:
    """A ledger adds up releases as if their noises were independent: with one seed for two they are the same."""
    place = getattr(ledger, "url", id(ledger)), getattr(ledger, "name", "")
    start = hashlib.sha256(repr((place, rng.bit_generator.state)).encode()).digest()
    if start in _begun:
        warnings.warn(
            "this random_state made a release of these data before: both have the same noise, so that the two together "
            "may undo it (unless records and plan are the same), and the ledger's sum does not hold. Leave it out.",
            UserWarning,
            stacklevel=3,
        )
    _begun.add(start)


def check_rows(ledger: Spender | None, rows_per_person: int | None) -> None:
    """The budget and the request promise to the same person."""
    stated = getattr(ledger, "max_rows_per_person", None)
    if stated is not None and rows_per_person is not None and stated != rows_per_person:
        raise InvalidParameter(
            f"max_rows_per_person = {rows_per_person!r} differs from the ledger's {stated!r}: the request and the "
            "budget would promise to different people. State the same number in both."
        )


def check_strict(ledger: Spender | None, plan: Priced) -> None:
    """A strict data set has no errors that depend on records; the ledger itself looks at what the promise assumes."""
    problem = getattr(plan, "problem", None)
    refuses = problem is not None and problem.bounds.bad_rows == "refuse"
    if refuses and getattr(ledger, "strict", False):
        raise InvalidParameter(
            "this data set is strict, and the plan refuses records that are no finite numbers, which tells of them; "
            "state bad_rows='zero' in its DataBounds. Nothing was charged."
        )
