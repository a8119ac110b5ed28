"""Privacy loss distributions through dp-accounting, imported on first use (the import alone takes a second)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats

GRID = 1e-4


@lru_cache(maxsize=64)
def gaussian_pld(mu: float, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=grid)


@lru_cache(maxsize=64)
def sampled_gaussian_pld(rate: float, noise_multiplier: float, grid: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=rate, value_discretization_interval=grid
    )


@lru_cache(maxsize=64)
def pure_pld(epsilon: float, delta: float, grid: float) -> Any:
    from dp_accounting.pld import common, privacy_loss_distribution as pld

    return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, delta), grid)


def symmetric_profile(hockey_stick: Callable[[Floats], Floats], span: float, grid: float) -> Any:
    """The pessimistic distribution of a profile H(e^eps), eps of either sign, that holds in both directions."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution as pld

    top = int(np.ceil(span / grid))
    index = np.arange(-top, top + 1)
    deltas = np.clip(hockey_stick(index.astype(np.float64) * grid), 0.0, 1.0)
    deltas = np.minimum.accumulate(deltas)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(grid, index, deltas))


def connect_the_dots(epsilons: Floats, deltas: Floats, grid: float) -> Any | None:
    """A dominating distribution of any delta(eps) curve that is valid in both directions.

    The true curve is convex in e^eps, so the greatest convex minorant of valid points is valid too; below
    eps = 0 it is 1 - g + g h(1/g), g = e^eps (the other direction). None where nearly all losses are huge.
    """
    first = np.concatenate([[0.0], epsilons]) if epsilons[0] > 0 else epsilons
    level = np.concatenate([[1.0], deltas]) if epsilons[0] > 0 else deltas
    kept = first <= 690.0
    if not kept.all():  # beyond that e^eps overflows: the last chord is replaced by a level line
        first, level = first[kept], level[kept]
    if level[-1] > 0.9:
        return None
    ratio = np.exp(first)
    # the mirror image of a chord is a chord, so the corners are enough
    ratios = np.concatenate([1 / ratio[:0:-1], ratio])
    values = np.concatenate([(1 - 1 / ratio + level / ratio)[:0:-1], level])
    hull = lower_hull(ratios, values)
    corners: Floats = ratios[hull]
    heights: Floats = values[hull]
    span = max(float(first[-1]), grid)

    def minorant(eps: Floats) -> Floats:
        inside = np.interp(np.exp(np.clip(eps, -690.0, 690.0)), corners, heights)
        return np.where(
            eps < -first[-1], np.maximum(-np.expm1(eps) + np.exp(eps) * level[-1], heights[0]), inside
        )

    return symmetric_profile(minorant, span, grid)


def lower_hull(x: Floats, y: Floats) -> NDArray[np.intp]:
    """The corners of the greatest convex minorant of the points, as indices."""
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return np.array(kept, dtype=np.intp)
