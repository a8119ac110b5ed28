"""Privacy loss distributions through dp-accounting, imported on first use (the import alone takes a second)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
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
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_privacy_parameters(common.DifferentialPrivacyParameters(epsilon, delta), grid)


def symmetric_profile(hockey_stick: Callable[[Floats], Floats], span: float, grid: float) -> Any:
    """The pessimistic distribution of a profile H(e^eps), eps of either sign, that holds in both directions."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    top = int(np.ceil(span / grid))
    index = np.arange(-top, top + 1)
    deltas = np.clip(hockey_stick(index.astype(np.float64) * grid), 0.0, 1.0)
    deltas = np.minimum.accumulate(deltas)
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(grid, index, deltas))


def connect_the_dots(epsilons: Floats, deltas: Floats, grid: float) -> Any:
    """A dominating distribution of any delta(eps) curve that is valid in both directions.

    The true curve is convex in e^eps, so the greatest convex minorant of valid points is valid too; below
    eps = 0 it is 1 - g + g h(1/g), g = e^eps (the other direction).
    """
    top = int(np.ceil(epsilons[-1] / grid))
    positive = np.arange(0, top + 1) * grid
    ratio = np.exp(np.minimum(positive, 700.0))
    step = np.interp(ratio, np.exp(np.minimum(epsilons, 700.0)), deltas, left=1.0)
    ratios = np.concatenate([1 / ratio[:0:-1], ratio])
    values = np.concatenate([(1 - 1 / ratio + step / ratio)[:0:-1], step])
    minorant = np.interp(ratios, *_lower_hull(ratios, values))
    lookup = np.concatenate([-positive[:0:-1], positive])
    return symmetric_profile(lambda eps: np.interp(eps, lookup, minorant), float(positive[-1]), grid)


def _lower_hull(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[i] - x[a]) < (y[i] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return x[kept], y[kept]
