"""Randomness: one generator, made once, handed down as the last argument.

Secure noise does not come from here: it is made of bytes of the operating system. The noise of plain runs comes from
ChaCha20, a stream cipher under a random key, where the package `randomgen` (the extra `crypto`) is installed, and from
PCG64, seeded by the operating system, where it is not. ChaCha20 takes twice as long for a normal number, which is far
below a hundredth of a fit; PCG64 is a good generator but no cipher: what it drew could help to tell what it draws.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from dplangevin.errors import InvalidParameter


class NoiseObserver(Protocol):
    """Who watches noise: an audit that replays a run (`dplangevin.audit.replay`)."""

    def observe_noise(self, values: Any, law: str, scale: float) -> Any:
        """Noise of a law and scale, which will be added to something exact; returns what takes its place."""
        ...

    def observe_sum(self, exact: Any, released: Any, law: str, scale: float) -> Any:
        """Exact values and the same with noise; returns what is released."""
        ...

    def observe_minimiser(
        self, tilt: Any, minimise: Callable[[Any], Any], gradient: Callable[[Any], Any]
    ) -> Any:
        """minimise(tilt): the point at which the gradient over the records is minus the tilt, which is noise."""
        ...


noise_observer: ContextVar[NoiseObserver | None] = ContextVar("noise_observer", default=None)
"""Nobody, except inside an audit. A generator can be replaced by one that watches; samplers that draw their own bytes,
and laws that are no linear function of standard draws, say here what they drew."""

POWER_LAWS = {1.0: ("laplace", 1.0), 2.0: ("gaussian", math.sqrt(0.5))}
"""p -> how an observer calls the density exp(-|x|^p), and the scale that goes with the name."""


def label_noise(values: Any, law: str, scale: float) -> Any:
    """The values; an observer learns their law: "gaussian" (scale: deviation), "laplace", "norm" or "nuclear"."""
    observer = noise_observer.get()
    return values if observer is None else observer.observe_noise(values, law, scale)


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
