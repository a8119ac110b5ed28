"""Moments of the random distance at which two runs on random batches begin to be shifted together (S3).

exp(lambda Z^2) = E_g exp(sqrt(2 lambda) g Z) for g ~ N(0, 1), and E exp(theta Z) is a product over the steps. The
trapezoid rule in g is exact to e^{-70} (the integrand is entire and largest on the real line). Tables are read by
chords of functions convex in theta or lambda, so from above.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplangevin._arrays import Floats

_LARGEST = 300.0  # sqrt(2 lambda) Z is followed up to here; beyond, Z is replaced by its largest value
_STEP = 0.5


def log_mixture(x: Floats, rate: float) -> Floats:
    """log(1 - q + q e^x)."""
    if rate == 1:
        return x
    near = np.log1p(rate * np.expm1(np.minimum(x, 30.0)))
    return np.where(x < 30, near, np.logaddexp(math.log1p(-rate), math.log(rate) + x))


class DistanceMoment:
    """lambda -> log E exp(lambda Z^2), from above, for a random distance 0 <= Z <= farthest <= reach.

    log_moment : theta -> log E exp(theta Z') of some Z' between Z and reach, or slightly above.
    """

    def __init__(self, reach: float, farthest: float, log_moment: Callable[[Floats], Floats]) -> None:
        self._farthest = min(reach, farthest)
        right = np.geomspace(1e-6, _LARGEST * (_LARGEST + 12), 520) / reach
        theta = np.concatenate([-right[right * reach <= 12 * _LARGEST][::-1], [0.0], right])
        logs = log_moment(theta)
        self._scales = np.append(0.0, np.geomspace(1e-8, _LARGEST**2 / 2, 380) / reach / reach)
        self._values = np.array([_gaussian_average(scale, reach, theta, logs) for scale in self._scales])

    def __call__(self, scale: Floats) -> Floats:
        certain = scale * self._farthest**2
        inside = scale <= self._scales[-1]
        return np.asarray(
            np.where(inside, np.minimum(np.interp(scale, self._scales, self._values), certain), certain)
        )


def _gaussian_average(scale: float, reach: float, theta: Floats, logs: Floats) -> float:
    """log E_g exp(L(sqrt(2 lambda) g)), L the piecewise linear function through (theta, logs), L <= theta * reach."""
    root = math.sqrt(2 * scale)
    g = _STEP * np.arange(-20, math.ceil((root * reach + 10) / _STEP) + 1)
    exponent = np.interp(root * g, theta, logs)
    log_weight = math.log(_STEP / math.sqrt(2 * math.pi)) - g * g / 2
    largest = float(np.max(log_weight + exponent))
    if largest > 1:
        return largest + math.log(float(np.exp(log_weight + exponent - largest).sum()))
    weight = np.exp(log_weight)
    small = exponent < 1
    terms = np.where(
        small, weight * np.expm1(np.minimum(exponent, 1.0)), np.exp(log_weight + exponent) - weight
    )
    return math.log1p(max(float(terms.sum()), 0.0))
