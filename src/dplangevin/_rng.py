"""Random generators: made once per call and passed down as the last argument.

Exact noise without a seed does not come from here: it is made from the operating system's random bytes. Other noise
comes from ChaCha20, a stream cipher under a random key, where the package `randomgen` (the extra `crypto`) is
installed, else from PCG64, seeded by the operating system. ChaCha20 takes twice as long per normal draw, far below 1%
of the fit time; PCG64 is a good generator but not a cipher: its past output could help to predict its future output.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import numpy as np

from dplangevin.errors import InvalidParameter


class NoiseObserver(Protocol):
    """An observer of the noise of a run: an audit that replays it (`dplangevin.audit.replay`)."""

    def observe_noise(self, values: Any, law: str, scale: float) -> Any:
        """Observe noise of a distribution and scale before it is added to an exact value; return its replacement."""
        ...

    def observe_sum(self, exact: Any, released: Any, law: str, scale: Any) -> Any:
        """Observe exact values and the same values with noise, of one scale or one each; return what is released."""
        ...

    def observe_minimizer(
        self, tilt: Any, minimize: Callable[[Any], Any], gradient: Callable[[Any], Any]
    ) -> Any:
        """Observe minimize(tilt), the point where the gradient over the records is minus the tilt, which is noise."""
        ...

    def observe_choice(self, totals: Any, index: int, scale: float) -> Any:
        """Observe the index of the largest total plus exponential noise of this scale; return what is released."""
        ...


noise_observer: ContextVar[NoiseObserver | None] = ContextVar("noise_observer", default=None)
"""None, except inside an audit. An audit replaces the generator by one that records its draws; samplers that draw
their own bytes, and distributions that are no linear function of standard draws, report their draws here."""

POWER_LAWS = {1.0: ("laplace", 1.0), 2.0: ("gaussian", math.sqrt(0.5))}
"""Exponent p -> the name that an observer uses for the density exp(-|x|^p), and the scale that goes with the name."""


def observe_labeled_noise(values: Any, law: str, scale: float) -> Any:
    """Report noise to the observer, if there is one, and return it (or the observer's replacement).

    law : "gaussian" (the scale is the standard deviation), "laplace", "norm" or "nuclear".
    """
    observer = noise_observer.get()
    return values if observer is None else observer.observe_noise(values, law, scale)


class SharedGenerator(NamedTuple):
    """The generator of a release that is made of several ones, handed on as the `random_state` of each.

    is_repeatable : whether exact noise is made from this generator, because a user's seed made it or because a
        checkpoint repeats its draws. Otherwise it is made from random bytes of the operating system.
    """

    rng: np.random.Generator
    is_repeatable: bool


def make_generator(random_state: Any = None) -> tuple[np.random.Generator, bool]:
    """Return a generator and whether a user's seed made it (or a SharedGenerator is repeatable).

    None gives a generator keyed by the operating system. A release made from a seed that an adversary may know has no
    privacy, so the release carries the flag.
    """
    if random_state is None:
        return _unseeded_generator(), False
    if isinstance(random_state, SharedGenerator):
        return random_state
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


def noise_source_name() -> str:
    """Return the name of the generator that makes the noise of unseeded runs on this machine (not in secure mode)."""
    return type(_unseeded_generator().bit_generator).__name__


def _unseeded_generator() -> np.random.Generator:
    try:
        from randomgen import ChaCha
    except ImportError:
        return np.random.default_rng(secrets.randbits(256))
    return np.random.Generator(ChaCha(key=secrets.randbits(256), rounds=20))
