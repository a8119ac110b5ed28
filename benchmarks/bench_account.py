"""Epsilon of a run."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
from _measure import Row, timed
from _runs import BATCHES, BOUNDED, RIDGE

from dplangevin import account
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import hull_energy

_fresh = count(1)


def _noise(base: float) -> float:
    """Return a noise_std that was not used before, so that no cache applies."""
    return base * (1 + 1e-6 * next(_fresh))


def _hull(steps: int) -> float:
    rng = np.random.default_rng(0)
    shifts, noises = rng.uniform(0.5, 1.5, steps), rng.uniform(0.5, 1.5, steps)
    return hull_energy(shifts, noises, rng.uniform(0.9, 1.0, steps))


def rows() -> list[Row]:
    """Measure closed forms, the hull and the recursions."""
    steps = tuple(np.linspace(0.5, 1.0, 100_000).tolist())
    results = []
    for title, options, noise in (("strongly convex", RIDGE, 0.012), ("convex, bounded", BOUNDED, 0.04)):
        for label, number in (("1e6", 1_000_000), ("infinity", math.inf)):
            results.append(
                timed(
                    f"{title}, T = {label}, closed form",
                    0.05,
                    lambda o=options, n=noise, t=number: account(
                        **o, noise_std=_noise(n), n_steps=t, delta=1e-6, theorem="optimal-shift"
                    ).epsilon(),
                )
            )
    results.append(timed("hull of 1e5 steps", 1.0, lambda: _hull(100_000)))
    results.append(
        timed(
            "account of 1e5 different steps, every theorem",
            None,
            lambda: account(
                **{**RIDGE, "step_size": steps}, noise_std=_noise(0.1), n_steps=100_000, delta=1e-6
            ),
            repeats=3,
        )
    )
    results.append(
        timed(
            "convex, bounded, T = infinity, every theorem",
            None,
            lambda: account(**BOUNDED, noise_std=_noise(0.04), n_steps=math.inf, delta=1e-6),
            note="block recursion included",
        )
    )
    results.append(
        timed(
            "without replacement, bounded, T = 1e5, every theorem",
            None,
            lambda: account(
                **BATCHES,
                diameter=1.0,
                sampling="without-replacement",
                noise_std=_noise(0.4),
                n_steps=100_000,
                delta=1e-5,
            ),
            repeats=1,
        )
    )
    return results
