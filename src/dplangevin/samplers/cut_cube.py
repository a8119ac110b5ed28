"""Uniform points of a cut cube {|u|_inf <= 1, |u|_1 <= m}, exactly, and the logarithm of its volume.

The volume is 2^k P(S <= m), S a sum of k uniform numbers (Irwin-Hall). Points are drawn by rejection from whichever
of three laws accepts most often, which is a matter of k and m alone:
- the cube: accept when |u|_1 <= m;
- the cross-polytope |u|_1 <= m (m times a Dirichlet vector): accept when no coordinate exceeds 1;
- independent coordinates of density proportional to e^{-lambda u} on [0, 1]: the density of the target over that of
  the proposal is proportional to e^{lambda S} on S <= m, so accept with probability e^{lambda (S - m)}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from dplangevin._arrays import Floats
from dplangevin._search import each_bisected

_DIRECT = 30  # up to here the alternating sum loses fewer than four digits
_NODES = np.arange(0.0, 40.0, 1 / 8)


def log_irwin_hall(k: int, t: ArrayLike) -> Floats:
    """log P(S <= t) for the sum S of k independent uniform numbers in [0, 1].

    Up to t = 1 it is t^k / k!. Below the mean, for many numbers, the inverse Laplace transform
    (1 / 2 pi i) int e^{z t} phi(z)^k dz / z, phi(z) = (1 - e^{-z}) / z, by the trapezoidal rule on the line through the
    saddle point, where it converges geometrically. Above the mean by symmetry.

    Examples
    --------
    >>> log_irwin_hall(2, [1.0, 2.0]).round(6).tolist()
    [-0.693147, 0.0]
    """
    points = np.atleast_1d(np.asarray(t, float))
    result = np.full(points.shape, -np.inf)
    result[points >= k] = 0.0
    small = (points > 0) & (points <= min(1.0, k))
    result[small] = k * np.log(points[small]) - gammaln(k + 1)
    high = (points > max(1.0, k / 2)) & (points < k)
    if high.any():
        result[high] = np.log1p(-np.exp(log_irwin_hall(k, k - points[high])))
    low = (points > 1) & (points <= k / 2)
    if low.any():
        result[low] = _alternating(k, points[low]) if k <= _DIRECT else _inverted(k, points[low])
    return result


def _alternating(k: int, t: Floats) -> Floats:
    total = np.zeros_like(t)
    for j in range(k + 1):
        total += (-1) ** j * math.comb(k, j) * np.maximum(t - j, 0.0) ** k
    return np.log(total) - gammaln(k + 1)


def _inverted(k: int, t: Floats) -> Floats:

    def rising(
        log: Floats,
    ) -> NDArray[np.bool_]:  # the derivative t - k mean(lambda) - 1 / lambda rises with lambda
        return np.asarray(t - k * _mean(np.exp(log)) - 1 / np.exp(log) > 0)

    place = np.exp(each_bisected(rising, np.log(2 * (k + 1) / t), np.full(t.shape, -40.0), rounds=70))
    width = 1 / np.sqrt(k * _variance(place) + place**-2)
    z = place[:, None] + 1j * width[:, None] * _NODES
    exponent = z * t[:, None] + k * (np.log(-np.expm1(-z)) - np.log(z)) - np.log(z)
    peak = exponent[:, 0].real
    values = np.exp(exponent - peak[:, None]).real
    area = width * (_NODES[1] - _NODES[0]) * (values.sum(axis=1) - values[:, 0] / 2) / np.pi
    return np.asarray(peak + np.log(area))


def _mean(tilt: Floats) -> Floats:
    """Of density e^{-tilt u} on [0, 1]."""
    with np.errstate(over="ignore"):
        return np.where(tilt < 1e-4, 0.5 - tilt / 12, 1 / tilt - 1 / np.expm1(np.maximum(tilt, 1e-4)))


def _variance(tilt: Floats) -> Floats:
    held = np.clip(tilt, 1e-2, 700.0)
    return np.where(tilt < 1e-2, 1 / 12, held**-2 - 0.25 / np.sinh(held / 2) ** 2)


@dataclass(frozen=True)
class CubeSampler:
    """How the points are drawn: "cube", "simplex" or "tilted" by `tilt`, accepted with the probability `acceptance`."""

    k: int
    reach: float
    method: str
    tilt: float
    acceptance: float

    def draw(self, rng: np.random.Generator) -> Floats:
        """One uniform point of {|u|_inf <= 1, |u|_1 <= reach}."""
        kept = False
        while not kept:
            if self.method == "cube":
                sizes = rng.random(self.k)
                kept = self.reach >= self.k or bool(sizes.sum() <= self.reach)
            elif self.method == "simplex":
                spacings = rng.standard_exponential(self.k)
                sizes = spacings * (self.reach / (spacings.sum() + rng.standard_exponential()))
                kept = bool(sizes.max() <= 1)
            else:
                sizes = -np.log1p(rng.random(self.k) * math.expm1(-self.tilt)) / self.tilt
                short = self.reach - float(sizes.sum())
                kept = short >= 0 and rng.standard_exponential() >= self.tilt * short
        return np.where(rng.random(self.k) < 0.5, -sizes, sizes)


@lru_cache(maxsize=64)
def cube_sampler(k: int, reach: float) -> CubeSampler:
    """The sampler with the best acceptance for {|u|_inf <= 1, |u|_1 <= reach} in k dimensions."""
    volume = float(log_irwin_hall(k, reach)[0])
    offers = [CubeSampler(k, reach, "cube", 0.0, math.exp(volume))]
    simplex = volume - (k * math.log(reach) - float(gammaln(k + 1)))
    offers.append(CubeSampler(k, reach, "simplex", 0.0, math.exp(min(0.0, simplex))))
    if reach < k / 2:
        low, high = 1e-9, 2 * k / reach
        for _ in range(100):
            tilt = (low + high) / 2
            low, high = (tilt, high) if float(_mean(np.array(tilt))) > reach / k else (low, tilt)
        tilted = volume - tilt * reach - k * math.log(-math.expm1(-tilt) / tilt)
        offers.append(CubeSampler(k, reach, "tilted", tilt, math.exp(min(0.0, tilted))))
    return max(offers, key=lambda offer: offer.acceptance)
