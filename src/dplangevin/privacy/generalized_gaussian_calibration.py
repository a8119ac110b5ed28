"""The smallest sigma of generalised Gaussian noise whose certificate meets (eps, delta)."""

from __future__ import annotations

import math
from functools import lru_cache, partial

from dplangevin.errors import CalibrationFailed
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.generalized_gaussian import RESOLUTION, certified_delta, fisher_information
from dplangevin.privacy.loss_sum import decreasing_root

ROUGH = 24
MARGIN = 3e-7
"""Relative room left in eps, so that asking the guarantee for its eps gives the requested one or less."""


def rounded_up(value: float, digits: int = 6) -> float:
    """value with `digits` significant digits, never below it."""
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    result = float(f"{math.ceil(value / unit) * unit:.{digits}g}")
    return result if result >= value else float(f"{(math.ceil(value / unit) + 1) * unit:.{digits}g}")


def noise_delta(p: float, sigma: float, count: int, epsilon: float, *, resolution: int = RESOLUTION) -> float:
    """Certified delta(eps) of GGauss(p, sigma) when `count` answers change by 1: closed forms where they exist."""
    if p == 1 and epsilon >= count / sigma:
        return 0.0
    if p == 2:
        return float(cv.gdp_delta(math.sqrt(2 * count) / sigma, epsilon))
    return certified_delta(p, 1 / sigma, count, epsilon, resolution=resolution)


@lru_cache(maxsize=512)
def smallest_sigma(p: float, count: int, epsilon: float, delta: float, *, rough: bool = False) -> float:
    """sigma with certified delta(eps) <= delta for `count` answers that change by 1, rounded up to six digits.

    With `rough` the certificate is taken on a coarse grid: a valid sigma too, a little larger (about 0.1%).
    """
    if delta == 0:
        sigma = rounded_up(count / epsilon)
        return sigma if count / sigma <= epsilon else rounded_up(sigma * (1 + 1e-7))
    if p == 2:
        return rounded_up(math.sqrt(2 * count) / cv.gdp_mu(epsilon, delta) * (1 + 1e-12))
    epsilon *= 1 - MARGIN
    place, slope = math.log(math.sqrt(count * fisher_information(p)) / cv.gdp_mu(epsilon, delta)), -20.0
    if p == 1:
        place = min(place, math.log(count / epsilon))
    for resolution, tolerance in ((ROUGH, 1e-4),) if rough else ((ROUGH, 1e-4), (RESOLUTION, 2e-6)):
        excess = partial(_excess, p, count, epsilon, math.log(delta), resolution)
        place, slope = decreasing_root(excess, place, slope, tolerance)
    sigma = math.exp(place)
    sigma = rounded_up(sigma)
    if not noise_delta(p, sigma, count, epsilon, resolution=ROUGH if rough else RESOLUTION) <= delta:
        raise CalibrationFailed(
            f"no sigma was certified for p = {p}, epsilon = {epsilon}, delta = {delta} and {count} counts; "
            "choose another p or a larger delta."
        )
    return sigma


def _excess(p: float, count: int, epsilon: float, target: float, resolution: int, log_sigma: float) -> float:
    value = noise_delta(p, math.exp(log_sigma), count, epsilon, resolution=resolution)
    return max(
        math.log(max(value, 1e-300)) - target, -4.0
    )  # flat where delta is far too small: keeps secants sane
