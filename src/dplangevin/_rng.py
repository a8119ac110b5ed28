"""Randomness: one generator, made once, handed down as the last argument.

Secure noise does not come from here: it is made of bytes of the operating system. The noise of plain runs comes from
ChaCha20, a stream cipher under a random key, where the package `randomgen` (the extra `crypto`) is installed, and from
PCG64, seeded by the operating system, where it is not. ChaCha20 takes twice as long for a normal number, which is far
below a hundredth of a fit; PCG64 is a good generator but no cipher: what it drew could help to tell what it draws.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from dplangevin.errors import InvalidParameter


def generator(random_state: Any = None) -> tuple[np.random.Generator, bool]:
    """Return a generator and whether a user's seed made it.

    None means a generator keyed by the operating system. A release made from a seed that an adversary may know has no
    privacy, so the flag travels with the release.
    """
    if random_state is None:
        return _unseeded(), False
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


def generator_name() -> str:
    """What the noise of plain, unseeded runs comes from here."""
    return type(_unseeded().bit_generator).__name__


def _unseeded() -> np.random.Generator:
    try:
        from randomgen import ChaCha
    except ImportError:
        return np.random.default_rng(secrets.randbits(256))
    return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))
