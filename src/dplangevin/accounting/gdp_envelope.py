"""What a release without a closed form leaves of a Gaussian budget: the largest v with release x G_v <= G_mu.

G_mu is N(mu, 1) against N(0, 1), and <= holds up to a slack: with that probability anything may be revealed. The
privacy filter charges sampled runs, selections, Renyi curves and compositions in this form. How much v is less than mu
depends on mu: a release costs least while much is left (docs/theory/privacy_filter.md, Theorem 5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side, expand_bracket
from dplangevin.accounting import compose, conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import PrivacyParts

_N_POINTS, _N_CHECKED = 49, 160
MAX_LOSS = 600.0
"""Losses above this one are not compared: their exponential is near the largest double."""
COMPARED_MU = (3.0, 10.0)
"""More budget than this is left out of a comparison and added again, since A x G_v <= G_m gives A x G_v x G_w <= G_m x
G_w: the grid of the comparison is too coarse for more."""
_UP, _DOWN = 1 + 1e-9, 1 - 1e-9
"""Margins above the rounding of a sum of privacy profiles, whose relative error is below 1e-11."""


def slack_floor(cost: Guarantee) -> float:
    """Return the least slack with which a guarantee can be close to GDP: the infimum of its curve, rounded up."""
    floor = cost.extra_delta + math.fsum(part.count * part.min_delta() for part in cost.parts)
    return floor * (1 + 1e-6)


@dataclass(frozen=True, eq=False)
class LossAtoms:
    """A pair of distributions that dominates a release in both directions.

    Parameters
    ----------
    losses, masses : finite privacy losses, and their probabilities. infinite : the probability of an infinite one.
    """

    losses: Floats
    masses: Floats
    infinite: float

    def composed_delta(self, mu: float, epsilons: Floats) -> Floats:
        """Return delta of this pair together with mu-GDP, rounded up."""
        deltas = cv.gdp_delta(mu, epsilons[:, None] - self.losses, fast=True)
        return np.asarray((self.infinite + deltas @ self.masses) * _UP)


def remaining_square(cost: Guarantee, slack: float, square: Fraction) -> Fraction | None:
    """Return the largest v^2 found such that cost x G_v is slack-close to G_sqrt(square); None if none is."""
    pair = dominating_pair(cost.parts, cost.extra_delta, slack)
    if pair is None or square <= 0:
        return None
    remainders = []
    for compared in sorted({min(square, Fraction(mu) ** 2) for mu in COMPARED_MU}):
        remainder = _largest_remainder(pair, slack, compared)
        if remainder is not None:
            remainders.append(remainder + square - compared)
    return max(remainders, default=None)


def remaining_square_at(cost: Guarantee, slack: float, kept: float, epsilon: float, delta: float) -> Fraction:
    """Return the largest v^2 found such that the cost and kept (+) G_v are (epsilon, delta)-DP; 0 if none is."""
    pair = dominating_pair(cost.parts, cost.extra_delta, slack)
    if pair is None:
        return Fraction(0)
    goal = (delta * _DOWN - kept) / (1 - kept)

    def fits(mu: float) -> bool:
        return float(pair.composed_delta(mu, np.array([epsilon]))[0]) <= goal

    if not (goal > 0 and fits(0.0)):
        return Fraction(0)
    return Fraction(bisect_safe_side(fits, 0.0, cv.gdp_mu(epsilon, delta), rounds=40, relative=1e-9)) ** 2


@lru_cache(maxsize=4096)
def _largest_remainder(pair: LossAtoms, slack: float, square: Fraction) -> Fraction | None:
    """Compare the profiles at every eps >= 0, not only at points.

    Both sides are convex in g = e^eps. Between two points the left one lies below its chord, the right one above its
    tangents at both ends. Chord minus tangent is linear: A for the first one, B for the second. The chord is below the
    larger tangent throughout if some mean of A and B is at most 0 at both ends.
    """
    mu = math.sqrt(square) * (1 - 1e-15)
    epsilons = np.linspace(0.0, cv.gdp_epsilon(mu, slack) + float(pair.losses.max()), _N_CHECKED)
    limit = (slack + (1 - slack) * cv.gdp_delta(mu, epsilons)) * _DOWN
    falls = (1 - slack) * np.exp(log_ndtr(-mu / 2 - epsilons / mu) + epsilons)  # the slope times g
    steps = np.diff(epsilons)
    right_of_first = limit[:-1] - falls[:-1] * np.expm1(steps) * _UP
    left_of_second = limit[1:] + falls[1:] * -np.expm1(-steps) * _DOWN * _DOWN

    def fits(v: float) -> bool:
        deltas = pair.composed_delta(v, epsilons)
        if deltas[-1] > slack or np.any(deltas > limit):
            return False
        a, b = deltas[:-1] - limit[:-1], deltas[1:] - limit[1:]
        far_a, far_b = deltas[1:] - right_of_first, deltas[:-1] - left_of_second
        return bool(np.all((far_a <= 0) | (far_b <= 0) | (far_a * far_b <= a * b * _DOWN)))

    if not fits(0.0):
        return None
    return Fraction(bisect_safe_side(fits, 0.0, mu, rounds=24, relative=1e-6)) ** 2


@lru_cache(maxsize=256)
def dominating_pair(parts: PrivacyParts, extra_delta: float, slack: float) -> LossAtoms | None:
    """Return the pair whose profile is the hull of a guarantee's; None where an infinite loss is likelier than slack.

    A profile that is linear in g = e^eps between points is that of finite losses: where its slope rises by q, the
    second distribution has the mass q, and the first one g q.
    """
    tail_slack = (slack - extra_delta) * (1 - 1e-6)
    if not tail_slack > 0:
        return None
    rare = math.fsum(part.count * part.min_delta() for part in parts)  # no epsilon is large enough for less
    target = max(10.0 ** math.floor(math.log10(tail_slack) - 0.3), rare * (1 + 1e-7))
    if target > tail_slack:
        return None
    epsilons, deltas = _upper_curve(parts, target)
    if not epsilons.size:
        return None
    deltas = np.minimum(deltas + extra_delta, 1.0)
    if epsilons[-1] < 1e-9:  # nothing but a rare event
        return LossAtoms(losses=np.zeros(1), masses=np.ones(1), infinite=float(deltas[0]))
    g = np.concatenate([[0.0], np.exp(-epsilons[:0:-1]), np.exp(epsilons)])
    sticks = np.concatenate([[1.0], 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1]), deltas])
    slopes = np.append(np.diff(sticks) / np.diff(g), 0.0)
    masses = np.maximum(np.diff(slopes), 0.0) * g[1:]
    used = masses > 0
    return LossAtoms(
        losses=np.concatenate([-epsilons[:0:-1], epsilons])[used],
        masses=masses[used],
        infinite=float(deltas[-1]),
    )


@lru_cache(maxsize=256)
def _upper_curve(parts: PrivacyParts, target: float) -> tuple[Floats, Floats]:
    """Return epsilons and upper bounds on delta there, up to where it is below target (empty if it never is)."""

    def is_below_target(epsilon: float) -> bool:
        return compose.compose_delta(parts, epsilon) <= target

    high = 0.0 if is_below_target(0.0) else expand_bracket(is_below_target, 1e-3, MAX_LOSS)
    if high is None:
        return np.empty(0), np.empty(0)
    top = bisect_safe_side(is_below_target, high, 0.0, rounds=6, relative=0.03) if high > 0 else 1e-12
    coarse = np.unique(np.concatenate([np.linspace(0.0, top, _N_POINTS), np.geomspace(top / 1e4, top, 13)]))
    return coarse, _lower_convex_hull(
        coarse, np.minimum.accumulate([compose.compose_delta(parts, float(epsilon)) for epsilon in coarse])
    )


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
