"""Calibration of noise and steps."""

from __future__ import annotations

import math
from itertools import count

from _measure import Row, timed
from _runs import BOUNDED, RIDGE

from dplangevin import calibrate

_fresh = count(1)


def _epsilon() -> float:
    """Return a target that was not used before, so that no cache applies."""
    return 1 + 1e-6 * next(_fresh)


def rows() -> list[Row]:
    """Measure noise for (epsilon, delta, T), and T for (epsilon, delta, noise)."""
    forever = {"n_steps": math.inf, "delta": 1e-6}
    return [
        timed(
            "strongly convex, T = infinity, closed forms",
            1.0,
            lambda: calibrate(**RIDGE, **forever, epsilon=_epsilon()),
        ),
        timed(
            "strongly convex, T = 1000",
            1.0,
            lambda: calibrate(**RIDGE, n_steps=1000, delta=1e-6, epsilon=_epsilon()),
        ),
        timed(
            "convex, bounded, T = infinity, closed form",
            1.0,
            lambda: calibrate(**BOUNDED, **forever, epsilon=_epsilon(), theorem="optimal-shift"),
        ),
        timed(
            "convex, bounded, T = infinity, block recursion",
            10.0,
            lambda: calibrate(**BOUNDED, **forever, epsilon=_epsilon()),
            repeats=3,
        ),
        timed(
            "largest T for a noise, strongly convex",
            1.0,
            lambda: calibrate(**RIDGE, noise_std=0.01, delta=1e-6, epsilon=min(_epsilon(), 1.005)),
        ),
    ]
