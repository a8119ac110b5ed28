"""A privacy curve under a Gaussian one: the least mu with delta(eps) <= slack + (1 - slack) delta_mu(eps) at every eps.

A release with this property is "slack-close to mu-GDP": with probability 1 - slack it is mu-GDP, else it may show
anything. It is how sampled runs, selections, Renyi curves and compositions are charged by the privacy filter.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._search import bisected, grown_until
from dplangevin.privacy import compose, conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Parts

_POINTS, _REFINEMENT = 49, 16
_LARGEST_EPSILON = 1e4


def slack_floor(cost: Guarantee) -> float:
    """The least slack under which a guarantee can be close to GDP: what its curve never falls below, and a hair."""
    floor = cost.extra_delta + math.fsum(part.count * part.floor() for part in cost.parts)
    return floor * (1 + 1e-6)


@lru_cache(maxsize=4096)
def closest_mu(parts: Parts, extra_delta: float, slack: float) -> float:
    """The least mu found with delta(eps) <= slack + (1 - slack) delta_mu(eps) for all eps >= 0, in both directions."""
    left = (slack - extra_delta) * (1 - 1e-9)
    if not left > 0:
        return math.inf
    epsilons, deltas = _upper_curve(parts, 10.0 ** math.floor(math.log10(left)))
    needed = (deltas + extra_delta - slack) / (1 - slack) * (1 + 1e-12)
    if not epsilons.size or needed[-1] > 0:
        return math.inf
    # both sides fall, so the curve at one point against the Gaussian at the next covers what lies between
    needed, points = needed[:-1], epsilons[1:]
    binding = needed > 0
    if not binding.any():
        return 0.0
    return _covering_mu(points[binding], needed[binding]) if needed.max() < 1 else math.inf


def _covering_mu(points: Floats, needed: Floats) -> float:
    """The least mu, and a hair, with delta_mu(points) >= needed: solved at one violated point after the other."""
    place, mu, step = 0, 0.0, 1e-9
    for quick in (True, False):
        while True:
            reached = cv.gdp_delta(mu, points, quick=quick) * (1 - 1e-11)
            ratio = needed / np.maximum(reached, 1e-300)
            if mu > 0 and ratio.max() <= 1:
                break
            place = int(np.argmax(ratio)) if mu > 0 else points.size // 2
            wanted = cv.gdp_mu(float(points[place]), float(needed[place])) * (1 + 1e-9)
            if wanted > mu * (1 + step):
                mu = wanted
            else:  # next to delta = 1 the curve is so flat that the rounding asks for much more than a hair
                mu, step = mu * (1 + step), 2 * step
            if not mu < 1e3:
                return math.inf
    return mu * (1 + 1e-9)


@lru_cache(maxsize=256)
def _upper_curve(parts: Parts, target: float) -> tuple[Floats, Floats]:
    """Upper bounds on delta at a fine grid of epsilons, up to where it is below target (nothing where it never is).

    The true curve is convex in e^eps, so the chord between two valid points is valid.
    """

    def low_enough(epsilon: float) -> bool:
        return compose.delta(parts, epsilon) <= target

    high = 0.0 if low_enough(0.0) else grown_until(low_enough, 1e-3, _LARGEST_EPSILON)
    if high is None:
        return np.empty(0), np.empty(0)
    top = bisected(low_enough, high, 0.0, rounds=6, relative=0.03) if high > 0 else 1e-12
    coarse = np.unique(np.concatenate([np.linspace(0.0, top, _POINTS), np.geomspace(top / 1e4, top, 13)]))
    values = _convex(
        coarse, np.minimum.accumulate([compose.delta(parts, float(epsilon)) for epsilon in coarse])
    )
    steps = np.arange(_REFINEMENT) / _REFINEMENT
    width = np.diff(coarse)[:, None]
    share = np.expm1(width * steps) / np.expm1(width)
    between = values[:-1, None] + share * np.diff(values)[:, None]
    epsilons = np.append((coarse[:-1, None] + width * steps).ravel(), coarse[-1])
    return epsilons, np.append(between.ravel() * (1 + 1e-13), values[-1])


def _convex(epsilons: Floats, deltas: Floats) -> Floats:
    """The lower convex hull of the bounds, over hockey sticks of both directions; Renyi conversions gain much by it.

    H_g is convex in g >= 0 with H_0 = 1, and H_{1/g} = 1 - 1/g + H_g / g in the other direction, which has the same
    bounds. Values are rounded up.
    """
    if epsilons[-1] > 300:
        return deltas
    inverse = 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1])
    g = np.concatenate([[0.0], np.exp(-epsilons[:0:-1]), np.exp(epsilons)])
    sticks = np.concatenate([[1.0], inverse, deltas])
    kept = [0]
    for j in range(1, len(g)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (sticks[b] - sticks[a]) * (g[j] - g[a]) < (sticks[j] - sticks[a]) * (g[b] - g[a]):
                break
            kept.pop()
        kept.append(j)
    hull = np.interp(np.exp(epsilons), g[kept], sticks[kept]) * (1 + 1e-12) + 1e-15
    return np.asarray(np.minimum(deltas, hull))
