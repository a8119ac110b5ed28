"""The Gaussian envelope of a privacy curve: the least mu with delta(eps) <= slack + (1 - slack) delta_mu(eps).

A release with this property at every eps is "slack-close to mu-GDP": with probability 1 - slack it is mu-GDP, else it
may reveal anything. The privacy filter charges sampled runs, selections, Renyi curves and compositions in this form.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side, expand_bracket
from dplangevin.accounting import compose, conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import PrivacyParts

_N_POINTS, _REFINEMENT = 49, 16
_MAX_EPSILON = 1e4


def slack_floor(cost: Guarantee) -> float:
    """Return the least slack with which a guarantee can be close to GDP: the infimum of its curve, rounded up."""
    floor = cost.extra_delta + math.fsum(part.count * part.min_delta() for part in cost.parts)
    return floor * (1 + 1e-6)


@lru_cache(maxsize=4096)
def closest_mu(parts: PrivacyParts, extra_delta: float, slack: float) -> float:
    """Return the least mu found with delta(eps) <= slack + (1 - slack) delta_mu(eps) at all eps, both directions."""
    tail_slack = (slack - extra_delta) * (1 - 1e-9)
    if not tail_slack > 0:
        return math.inf
    epsilons, deltas = _upper_curve(parts, 10.0 ** math.floor(math.log10(tail_slack)))
    needed = (deltas + extra_delta - slack) / (1 - slack) * (1 + 1e-12)
    if not epsilons.size or needed[-1] > 0:
        return math.inf
    # both sides fall, so comparing the curve at one point with the Gaussian at the next covers the interval
    needed, points = needed[:-1], epsilons[1:]
    binding = needed > 0
    if not binding.any():
        return 0.0
    return _covering_mu(points[binding], needed[binding]) if needed.max() < 1 else math.inf


def _covering_mu(points: Floats, needed: Floats) -> float:
    """Return the least mu, rounded up, with delta_mu(points) >= needed, solved at one violated point at a time."""
    mu, step = 0.0, 1e-9
    for fast in (True, False):
        while True:
            deltas = cv.gdp_delta(mu, points, fast=fast) * (1 - 1e-11)
            ratio = needed / np.maximum(deltas, 1e-300)
            if mu > 0 and ratio.max() <= 1:
                break
            index = int(np.argmax(ratio)) if mu > 0 else points.size // 2
            needed_mu = cv.gdp_mu(float(points[index]), float(needed[index])) * (1 + 1e-9)
            if needed_mu > mu * (1 + step):
                mu = needed_mu
            else:  # near delta = 1 the curve is so flat that rounding needs a much larger step
                mu, step = mu * (1 + step), 2 * step
            if not mu < 1e3:
                return math.inf
    return mu * (1 + 1e-9)


@lru_cache(maxsize=256)
def _upper_curve(parts: PrivacyParts, target: float) -> tuple[Floats, Floats]:
    """Return upper bounds on delta on a fine grid of epsilons, up to where it is below target (empty if it never is).

    The true curve is convex in e^eps, so the chord between two valid points is valid.
    """

    def is_below_target(epsilon: float) -> bool:
        return compose.compose_delta(parts, epsilon) <= target

    high = 0.0 if is_below_target(0.0) else expand_bracket(is_below_target, 1e-3, _MAX_EPSILON)
    if high is None:
        return np.empty(0), np.empty(0)
    top = bisect_safe_side(is_below_target, high, 0.0, rounds=6, relative=0.03) if high > 0 else 1e-12
    coarse = np.unique(np.concatenate([np.linspace(0.0, top, _N_POINTS), np.geomspace(top / 1e4, top, 13)]))
    values = _lower_convex_hull(
        coarse, np.minimum.accumulate([compose.compose_delta(parts, float(epsilon)) for epsilon in coarse])
    )
    steps = np.arange(_REFINEMENT) / _REFINEMENT
    width = np.diff(coarse)[:, None]
    fraction = np.expm1(width * steps) / np.expm1(width)
    between = values[:-1, None] + fraction * np.diff(values)[:, None]
    epsilons = np.append((coarse[:-1, None] + width * steps).ravel(), coarse[-1])
    return epsilons, np.append(between.ravel() * (1 + 1e-13), values[-1])


def _lower_convex_hull(epsilons: Floats, deltas: Floats) -> Floats:
    """Return the lower convex hull of the bounds, which makes Renyi conversions much tighter; rounded up.

    The hockey stick H_g is convex in g >= 0 with H_0 = 1, and H_{1/g} = 1 - 1/g + H_g / g in the other direction,
    which has the same bounds.
    """
    if epsilons[-1] > 300:
        return deltas
    inverse = 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1])
    g = np.concatenate([[0.0], np.exp(-epsilons[:0:-1]), np.exp(epsilons)])
    sticks = np.concatenate([[1.0], inverse, deltas])
    corners = [0]
    for j in range(1, len(g)):
        while len(corners) > 1:
            a, b = corners[-2], corners[-1]
            if (sticks[b] - sticks[a]) * (g[j] - g[a]) < (sticks[j] - sticks[a]) * (g[b] - g[a]):
                break
            corners.pop()
        corners.append(j)
    hull = np.interp(np.exp(epsilons), g[corners], sticks[corners]) * (1 + 1e-12) + 1e-15
    return np.asarray(np.minimum(deltas, hull))
