"""The one till: noise, charge, records, commit. Everything that spends goes through `pay`, and nothing else charges."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from dplangevin._rng import generator
from dplangevin.errors import InvalidParameter
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
    try:
        if saved is None:
            rng, seeded = generator(random_state)
            if ledger is not None and seeded:
                _warn_of_shared_noise(rng, ledger)
            token = ledger.reserve(plan) if ledger is not None else None
        else:
            rng, seeded = saved.begin(random_state)
            token = saved.paid(plan, ledger)
        made = release(rng, seeded)
        if ledger is not None and token is not None:
            under_head(made, ledger.commit(token, made.digest()))
        if saved is not None:
            saved.end()
    finally:
        if saved is not None:
            saved.close()
    return made


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
