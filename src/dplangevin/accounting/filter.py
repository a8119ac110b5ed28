"""Privacy filter: an (epsilon, delta) budget for releases that may each be chosen after seeing the earlier ones.

G_mu is N(mu, 1) against N(0, 1), and <= holds up to a slack: with that probability anything may be revealed. The
privacy filter charges sampled runs, selections, Renyi curves and compositions in this form. How much v is less than mu
depends on mu: a release costs least while much is left (docs/theory/privacy_filter.md, Theorem 5).

The state of the filter is a pair of distributions that dominates all further releases. At first it is "(epsilon,
delta)-DP", and (epsilon', delta') releases are subtracted from it. The first release of another kind splits it, once,
into a delta (`slack`), a Gaussian part (`mu_squared`) and a pure reserve, from which each later release is
subtracted. A release is admitted, before it is made, when its composition with the new state is dominated by the old
state: the proofs are in docs/theory/privacy_filter.md.

Amounts are exact rationals, and every charge is rounded up. A charge is a pure function of the state, the cost and
the charge mode, a short text that names which of the valid charges was made; stored amounts never have to be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from dplangevin._arrays import Floats
from dplangevin._search import bisect_safe_side, expand_bracket, find_root
from dplangevin.accounting import compose, conversions as cv
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Approximate, BoundedRange, Gaussian, PrivacyParts, Pure

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


SLACK_FRACTIONS = (1e-5, 1e-3, 0.01, 0.1)
"""Fractions of the declared slack that are tried for a release without a closed form."""
MAX_SINGLE_CHARGES = 1024
"""Number of pure uses in one guarantee that are charged one by one; more are charged pi/2 epsilon^2 each."""
_MARGIN = 1e-12
"""Relative margin for the rounding of log Phi in Theorem 3; tests compare with 50 digits."""
_HALF_PI = Fraction(157079632679489662, 10**17)  # above pi / 2


@dataclass(frozen=True, kw_only=True)
class FilterState:
    """What is left of a budget.

    Parameters
    ----------
    epsilon : pure epsilon left; after the split, the pure reserve left.
    slack : delta left; after the split, the probability left for events without any guarantee.
    mu_squared : square of the GDP parameter left; None before the split.
    unsplit_epsilon : pure epsilon that was left when the budget was split; None before the split.
    """

    epsilon: Fraction
    slack: Fraction
    mu_squared: Fraction | None = None
    unsplit_epsilon: Fraction | None = None

    @property
    def is_split(self) -> bool:
        """Whether the budget is split, because a release came that is no (epsilon, delta) pair."""
        return self.mu_squared is not None

    def exhausted_state(self) -> FilterState:
        """Return the state with nothing left, after more was spent than fits."""
        zero = Fraction(0)
        return replace(self, epsilon=zero, slack=zero, mu_squared=zero)


@dataclass(frozen=True, kw_only=True)
class PrivacyFilter:
    """The admission rule of a budget; it holds no state of its own.

    Parameters
    ----------
    epsilon, delta : the budget.
    delta_fraction : the fraction of delta that becomes slack at the split (for learned lists, sampled runs, ...).
    pure_reserve : epsilon reserved for pure releases after the split.
    split_at_once : split before the first release, which suits many small counts.

    References
    ----------
    docs/theory/privacy_filter.md has the proofs.

    Examples
    --------
    >>> from dplangevin.accounting.parts import Gaussian
    >>> fit = Guarantee(parts=(Gaussian(mu=0.2),), adjacency="replace-one", release="draw", theorem="composition",
    ...                 reference="Dong, Roth and Su (2022)")
    >>> privacy_filter = PrivacyFilter(epsilon=3.0, delta=1e-5)
    >>> state, charge_mode = privacy_filter.charge(privacy_filter.start(), fit)
    >>> charge_mode, round(privacy_filter.largest_mu(state), 4), privacy_filter.charge(state, 20 * fit)
    ('parts', 0.6802, None)
    """

    epsilon: float
    delta: float
    delta_fraction: float = 0.25
    pure_reserve: float = 0.0
    split_at_once: bool = False

    def start(self) -> FilterState:
        """Return the state before the first release."""
        state = FilterState(epsilon=Fraction(self.epsilon), slack=Fraction(self.delta))
        return (self._split_state(state) or state) if self.split_at_once else state

    def charge(
        self, state: FilterState, cost: Guarantee, charge_mode: str | None = None
    ) -> tuple[FilterState, str] | None:
        """Return the state after the release and the charge mode; None when the release does not fit.

        charge_mode : as an earlier call returned it; only that charge is tried, and its amount is computed again.
        """
        if charge_mode is not None:
            after = self._apply_charge(state, cost, charge_mode)
            return None if after is None else (after, charge_mode)
        if not state.is_split:
            after = self._apply_charge(state, cost, "sum")
            if after is not None:
                return after, "sum"
        before = state if state.is_split else self._split_state(state)
        candidates = []
        for option in (
            self._charge_options(cost) if before is not None and before != before.exhausted_state() else ()
        ):
            after = self._apply_charge(state, cost, option)
            if before is not None and after is not None:
                candidates.append((self._fraction_used(before, after), (after, option)))
        if candidates:
            return min(candidates, key=lambda candidate: candidate[0])[1]
        after = self._apply_charge(state, cost, "whole") if _takes_half(state, cost) else None
        return None if after is None else (after, "whole")

    def largest_pure(self, state: FilterState) -> float:
        """Return the largest pure epsilon that one more release may have, rounded down."""
        pure_left = _round_down(state.epsilon)
        if state.mu_squared is None:
            return pure_left
        half = _square_root_down(state.mu_squared) / 2
        max_epsilon = float(log_ndtr(half) - log_ndtr(-half))
        fits = bisect_safe_side(
            lambda size: pure_remainder(size, state.mu_squared or Fraction(0)) is not None, 0.0, max_epsilon
        )
        return max(pure_left, fits)

    def largest_mu(self, state: FilterState) -> float:
        """Return the largest mu that one more GDP release may have, rounded down; 0 under a pure budget."""
        if state.mu_squared is not None:
            return _square_root_down(state.mu_squared)
        epsilon, slack = _round_down(state.epsilon), _round_down(state.slack)
        return cv.gdp_mu(epsilon, slack) if slack > 0 else 0.0

    # --- the charges, each valid by itself ---------------------------------------------------------------------------

    def _apply_charge(self, state: FilterState, cost: Guarantee, charge_mode: str) -> FilterState | None:
        """Return the state after one kind of charge; None when it does not fit or is unknown."""
        if charge_mode in ("sum", "whole"):
            if state.is_split:
                return None
            return _subtract_pair(state, cost) if charge_mode == "sum" else _subtract_curve_point(state, cost)
        split = state if state.is_split else self._split_state(state)
        if split is None or split.mu_squared is None:
            return None
        if charge_mode.startswith("curve:"):
            if not state.is_split and self.pure_reserve == 0:
                return _subtract_curve_at_once(state, split, cost, _read_slack(charge_mode))
            return _subtract_curve(split, cost, _read_slack(charge_mode))
        return (
            _subtract_parts(split, cost, from_reserve=charge_mode == "reserve")
            if charge_mode in ("parts", "reserve")
            else None
        )

    def _charge_options(self, cost: Guarantee) -> Iterator[str]:
        """Yield the kinds of charge that are worth trying after the split."""
        closed = all(isinstance(part, Gaussian | Pure | BoundedRange | Approximate) for part in cost.parts)
        if closed:
            yield "parts"
            if self.pure_reserve > 0 and not all(isinstance(part, Gaussian) for part in cost.parts):
                yield "reserve"
        several = sum(part.count for part in cost.parts if not isinstance(part, Gaussian)) > 1
        if not closed or several or any(isinstance(part, BoundedRange) for part in cost.parts):
            yield from self._curve_charge_options(cost)

    def _curve_charge_options(self, cost: Guarantee) -> Iterator[str]:
        """Yield charges for a release without a closed form, which differ in the slack they take."""
        declared = self._declared_amounts()
        if declared is None:
            return
        min_slack, declared_slack = slack_floor(cost), float(declared.slack)
        for slack in sorted({max(fraction * declared_slack, min_slack) for fraction in SLACK_FRACTIONS}):
            if 0 < slack < 1:
                yield f"curve:{slack!r}"

    def _declared_amounts(self) -> FilterState | None:
        """Return the amounts of this budget when it is split before its first release."""
        return self._split_state(FilterState(epsilon=Fraction(self.epsilon), slack=Fraction(self.delta)))

    def _fraction_used(self, before: FilterState, after: FilterState) -> float:
        """Return the largest fraction of a declared amount that a charge uses; the smallest such charge is best."""
        declared = self._declared_amounts() or before
        fractions = []
        for name in ("epsilon", "slack", "mu_squared"):
            used = getattr(before, name) - getattr(after, name)
            whole = getattr(declared, name)
            fractions.append(0.0 if used == 0 else float(used / whole) if whole else math.inf)
        return max(fractions)

    def _split_state(self, state: FilterState) -> FilterState | None:
        """Return the split state that the unsplit one dominates; None where no delta or no epsilon is left."""
        if state.slack <= 0 or state.epsilon <= 0:
            return None
        return _split_budget(state.epsilon, state.slack, self.delta_fraction, self.pure_reserve)


@lru_cache(maxsize=256)
def _split_budget(
    epsilon: Fraction, slack: Fraction, delta_fraction: float, pure_reserve: float
) -> FilterState | None:
    """Split (epsilon, slack)-DP: slack' + (1 - slack') E delta_mu(epsilon - loss of the reserve) <= slack."""
    new_slack = Fraction(delta_fraction) * slack
    reserve = min(Fraction(pure_reserve), epsilon)
    target = _round_down((slack - new_slack) / (1 - new_slack))
    if target <= 0:
        return None
    total = _round_down(epsilon)
    if reserve == 0:
        mu = cv.gdp_mu(total, target)
    else:
        first = _round_up(reserve)
        up = 1 / (1 + math.exp(-first)) * (1 + 1e-15)
        down = min(1.0, math.exp(-first) / (1 + math.exp(-first)) * (1 + 1e-15))

        def fits_budget(mu: float) -> bool:
            near, far = cv.gdp_delta(mu, np.array([total - first, total + first]))
            return (up * float(near) + down * float(far)) * (1 + 1e-14) <= target

        max_mu = cv.gdp_mu(total, target)
        mu = bisect_safe_side(fits_budget, 0.0, max_mu) if fits_budget(max_mu * 1e-9) else 0.0
    if mu <= 0:
        return None
    return FilterState(
        epsilon=reserve, slack=new_slack, mu_squared=Fraction(mu) ** 2, unsplit_epsilon=epsilon
    )


def _subtract_pair(state: FilterState, cost: Guarantee) -> FilterState | None:
    """Subtract pure, bounded-range and (epsilon, delta) parts from an unsplit state, as exact fractions."""
    epsilon, slack = Fraction(0), Fraction(cost.extra_delta)
    for part in cost.parts:
        value = part.value if isinstance(part, Approximate) else part.pure_epsilon()
        if not math.isfinite(value):
            return None
        epsilon += part.count * Fraction(value)
        slack += part.count * Fraction(part.slack) if isinstance(part, Approximate) else 0
    if epsilon > state.epsilon or slack > state.slack:
        return None
    return replace(state, epsilon=state.epsilon - epsilon, slack=state.slack - slack)


def _subtract_curve_point(state: FilterState, cost: Guarantee) -> FilterState | None:
    """Subtract a release as the pair (all epsilon that is left, its delta there): it is the last one to fit."""
    remaining_slack = state.slack - Fraction(cost.extra_delta)
    if remaining_slack <= 0:
        return None
    delta = Fraction(compose.compose_delta(cost.parts, _round_down(state.epsilon)))
    return (
        replace(state, epsilon=Fraction(0), slack=remaining_slack - delta)
        if delta <= remaining_slack
        else None
    )


def _takes_half(state: FilterState, cost: Guarantee) -> bool:
    """Return whether half of the remaining epsilon is too little: a small release must not use up a budget."""
    if state.is_split:
        return False
    return compose.compose_delta(cost.parts, _round_down(state.epsilon / 2)) + cost.extra_delta > state.slack


def _subtract_curve(state: FilterState, cost: Guarantee, slack: float) -> FilterState | None:
    """Subtract a release by its profile; slacks are added, slightly more than 1 - (1 - h)(1 - d)."""
    if state.mu_squared is None or not 0 < slack < 1 or Fraction(slack) > state.slack:
        return None
    square = remaining_square(cost, slack, state.mu_squared)
    return None if square is None else replace(state, mu_squared=square, slack=state.slack - Fraction(slack))


def _subtract_curve_at_once(
    state: FilterState, split: FilterState, cost: Guarantee, slack: float
) -> FilterState | None:
    """Subtract the release at which an (epsilon, delta) state is split: a condition at one epsilon alone."""
    if not 0 < slack < 1:
        return None
    square = remaining_square_at(
        cost, slack, _round_up(split.slack), _round_down(state.epsilon), _round_down(state.slack)
    )
    return replace(split, mu_squared=square) if square > 0 else None


def _subtract_parts(state: FilterState, cost: Guarantee, *, from_reserve: bool) -> FilterState | None:
    """Return the state after a release whose parts have closed forms; None when it does not fit, or has other parts.

    Gaussian parts reduce mu^2. Pure ones reduce the reserve of epsilon, or (from_reserve=False) mu^2 as well: they go
    first, because a pure part costs less while more of mu^2 is left. The slack covers their deltas.
    """
    # at most 1 minus the total variation distance of the release between neighbours; extra_delta is divided by it
    slack, reserve, overlap = Fraction(0), state.epsilon, 1.0
    square: Fraction | None = state.mu_squared
    for part in sorted(cost.parts, key=lambda part: isinstance(part, Gaussian)):
        if square is None:
            return None
        if isinstance(part, Gaussian):
            if not math.isfinite(part.mu):
                return None
            square -= part.count * Fraction(part.mu) ** 2
            continue
        if not isinstance(part, Pure | BoundedRange | Approximate) or not math.isfinite(part.value):
            return None
        if isinstance(part, Approximate):
            slack += part.count * Fraction(part.slack)
        overlap *= math.exp(-part.count * float(np.logaddexp(0.0, part.value) - math.log(2))) * (1 - 1e-12)
        if from_reserve:
            reserve -= part.count * Fraction(part.value)
        else:
            square = _pure_remainders(part.value, part.count, square)
    if square is None or square < 0 or reserve < 0:
        return None
    if cost.extra_delta > 0:
        overlap *= 2 * math.exp(float(log_ndtr(-(compose.gaussian_mu(_gaussian_parts(cost)) or 0.0) / 2)))
        if not overlap > cost.extra_delta:
            return None
        slack += Fraction(cost.extra_delta / overlap * (1 + _MARGIN))
    if slack > state.slack:
        return None
    return replace(state, mu_squared=square, epsilon=reserve, slack=state.slack - slack)


def _gaussian_parts(cost: Guarantee) -> PrivacyParts:
    return tuple(part for part in cost.parts if isinstance(part, Gaussian))


def _pure_remainders(value: float, count: int, square: Fraction | None) -> Fraction | None:
    """Return what `count` pure uses leave of a Gaussian part; None when they do not fit."""
    if count > MAX_SINGLE_CHARGES:
        remainder = (square or Fraction(0)) - count * _HALF_PI * Fraction(value) ** 2
        return remainder if remainder >= 0 else None
    for _ in range(count):
        square = None if square is None else pure_remainder(value, square)
    return square


def pure_remainder(value: float, square: Fraction) -> Fraction | None:
    """Return the largest v^2 found such that value-DP and v-GDP compose to sqrt(square)-GDP; None when none fits.

    Theorem 3: the condition holds at every epsilon if it does at 0, where it is
    (Phi(e/v - v/2) + e^e Phi(-e/v - v/2)) / (1 + e^e) >= Phi(-sqrt(square)/2). It is checked in logarithms, since a
    difference from 1 would lose all digits, and with a margin above the rounding of log Phi.
    """
    if value == 0:
        return square
    if not math.isfinite(value) or square <= 0:
        return None
    plain = square - _HALF_PI * Fraction(value) ** 2  # e-DP is sqrt(pi / 2) e-GDP
    mu = _square_root_down(square)
    limit = float(log_ndtr(-mu / 2))
    target = limit + _MARGIN * (1 + abs(limit)) + float(np.logaddexp(0.0, value))

    def excess(v: float) -> float:
        if v <= 0:
            return -target
        ratio, half = min(value / v, 1e150), v / 2
        return float(np.logaddexp(log_ndtr(ratio - half), value + log_ndtr(-ratio - half))) - target

    if excess(0.0) < 0:
        return plain if plain >= 0 else None
    v = mu if excess(mu) >= 0 else float(find_root(excess, 0.0, mu, xtol=1e-300, rtol=1e-14))
    step = 1e-15
    while v > 0 and excess(v) < 0:
        v *= 1 - step
        step *= 4
        v = v if step < 0.1 else 0.0
    return max(plain, min(Fraction(v) ** 2, square))


def _read_slack(charge_mode: str) -> float:
    try:
        return float(charge_mode.removeprefix("curve:"))
    except ValueError:
        return math.nan


# --- rounding ----------------------------------------------------------------------------------------------------


def _round_up(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def _round_down(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


def _square_root_down(square: Fraction) -> float:
    """Return the square root, rounded down."""
    if square <= 0:
        return 0.0
    shift = max(0, 140 - square.numerator.bit_length() + square.denominator.bit_length())
    shift += shift % 2
    root = Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << (shift // 2))
    return _round_down(root)
