"""The order of every release: noise, charge, records, commit; from a file and to a file where one is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from dplangevin._rng import generator
from dplangevin.data.dataset import Dataset
from dplangevin.mechanisms.run_state import RunState
from dplangevin.privacy.spender import Priced, Spender, under_head


class Released(Protocol):
    """Anything a ledger can note."""

    def digest(self) -> str:
        """A hash of the released numbers."""
        ...


R = TypeVar("R", bound=Released)


def charged(
    plan: Priced,
    data: Dataset,
    make: Callable[[np.random.Generator, bool], R],
    random_state: object,
    ledger: Spender | None,
    keeper: RunState | None,
) -> R:
    """make(generator, whether it was seeded), after the plan is paid for; no record is read before.

    With a keeper the run goes on where it stopped, with its own noise and charge.
    """
    if keeper is None:
        rng, seeded = generator(random_state)
        token = ledger.reserve(plan) if ledger is not None else None
    else:
        rng, seeded = keeper.begin(random_state)
        token = keeper.paid(plan, ledger)
        keeper.check_data(data)
    release = make(rng, seeded)
    if ledger is not None and token is not None:
        under_head(release, ledger.commit(token, release.digest()))
    if keeper is not None:
        keeper.end()
    return release
