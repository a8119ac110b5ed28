"""Randomness: one generator, made once, handed down as the last argument."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplangevin.errors import InvalidParameter


def generator(random_state: Any = None) -> tuple[np.random.Generator, bool]:
    """Return a generator and whether a user's seed made it.

    None means operating-system entropy. A release made from a seed that an adversary may know has no
    privacy, so the flag travels with the release.
    """
    if random_state is None:
        return np.random.default_rng(), False
    if isinstance(random_state, np.random.Generator):
        return random_state, True
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=8, dtype=np.uint32)), True
    if (
        isinstance(random_state, (int, np.integer))
        and not isinstance(random_state, bool)
        and random_state >= 0
    ):
        return np.random.default_rng(int(random_state)), True
    raise InvalidParameter(
        "random_state must be None, a non-negative integer, a numpy Generator or a RandomState; "
        f"got {type(random_state).__name__}."
    )
