"""Privacy filter: what is left of an (epsilon, delta) budget when every release may be chosen after seeing the last.

The filter keeps a pair of laws that bounds everything still to come. Before the first release it is "(epsilon,
delta)-DP". Releases that are (epsilon', delta') pairs are subtracted from it. The first release of another kind splits
it, once, into what may be lost outright (`slack`), a Gaussian part (`mu_squared`) and a pure reserve; afterwards each
release is subtracted from these. A release is admitted when release x (new state) is dominated by the old state, which
is decided before it is made: docs/theory/privacy_filter.md has the proofs.

Amounts are exact rationals, and every charge is rounded up. A charge is a pure function of state, cost and `how`, a
short text that says which of the valid charges was taken; nobody has to be believed about an amount.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from dplangevin._search import bisected
from dplangevin.privacy import compose, conversions as cv
from dplangevin.privacy.gdp_envelope import closest_mu, slack_floor
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Approximate, BoundedRange, Gaussian, Parts, Pure

SLACK_FRACTIONS = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3)
"""Fractions of the declared slack that a release without a closed form may take."""
MAX_SINGLE_CHARGES = 1024
"""Pure uses in one guarantee that are charged one after the other; more are charged pi/2 epsilon^2 each."""
_MARGIN = 1e-12
"""What the rounding of log Phi may hide in Theorem 3, relative; tests compare with 50 digits."""
_HALF_PI = Fraction(157079632679489662, 10**17)  # above pi / 2


@dataclass(frozen=True, kw_only=True)
class FilterState:
    """What is left.

    Parameters
    ----------
    epsilon : pure epsilon left; after the split, what is left of the pure reserve.
    slack : delta left; after the split, what may still be lost outright.
    mu_squared : square of the GDP parameter left; None before the split.
    epsilon_before_split : pure epsilon that was left when the budget was split; None before the split.
    """

    epsilon: Fraction
    slack: Fraction
    mu_squared: Fraction | None = None
    epsilon_before_split: Fraction | None = None

    @property
    def is_split(self) -> bool:
        """Has a release come that was no pair?"""
        return self.mu_squared is not None

    def exhaust(self) -> FilterState:
        """The state after more was spent than fits: nothing is left."""
        zero = Fraction(0)
        return replace(self, epsilon=zero, slack=zero, mu_squared=zero)


@dataclass(frozen=True, kw_only=True)
class PrivacyFilter:
    """The admission rule of a budget; it holds no state of its own.

    Parameters
    ----------
    epsilon, delta : the budget.
    delta_share : the part of delta that may be lost outright after the split (learned lists, sampled runs, ...).
    pure_reserve : epsilon kept for pure releases after the split.
    split_at_once : split before the first release, as an owner of many small counts wants.

    Examples
    --------
    >>> from dplangevin.privacy.parts import Gaussian
    >>> fit = Guarantee(parts=(Gaussian(mu=0.2),), adjacency="replace-one", release="draw", theorem="composition",
    ...                 reference="Dong, Roth and Su (2022)")
    >>> rule = PrivacyFilter(epsilon=3.0, delta=1e-5)
    >>> state, how = rule.charge(rule.start(), fit)
    >>> how, round(rule.largest_mu(state), 4), rule.charge(state, 20 * fit)
    ('parts', 0.6802, None)
    """

    epsilon: float
    delta: float
    delta_share: float = 0.25
    pure_reserve: float = 0.0
    split_at_once: bool = False

    def start(self) -> FilterState:
        """The state before the first release."""
        state = FilterState(epsilon=Fraction(self.epsilon), slack=Fraction(self.delta))
        return (self._split(state) or state) if self.split_at_once else state

    def charge(
        self, state: FilterState, cost: Guarantee, how: str | None = None
    ) -> tuple[FilterState, str] | None:
        """The state after the release and how it was charged; None when it does not fit.

        how : as an earlier call said; only that charge is tried. Whatever it says, the amount is computed anew.
        """
        if how is not None:
            after = self._apply(state, cost, how)
            return None if after is None else (after, how)
        if not state.is_split:
            after = self._apply(state, cost, "sum")
            if after is not None:
                return after, "sum"
        before = state if state.is_split else self._split(state)
        found = []
        for ways in self._ways(cost) if before is not None and before != before.exhaust() else ():
            # of ways that differ in the slack they take, the first that fits
            charged = next(((after, way) for way in ways if (after := self._apply(state, cost, way))), None)
            if before is not None and charged is not None:
                found.append((self._share_used(before, charged[0]), charged))
        if found:
            return min(found, key=lambda each: each[0])[1]
        after = self._apply(state, cost, "whole") if _takes_half(state, cost) else None
        return None if after is None else (after, "whole")

    def largest_pure(self, state: FilterState) -> float:
        """A pure epsilon that one more release may have: the largest, or a hair below it."""
        left = _round_down(state.epsilon)
        if state.mu_squared is None:
            return left
        half = _root_down(state.mu_squared) / 2
        most = float(log_ndtr(half) - log_ndtr(-half))
        fits = bisected(
            lambda size: pure_remainder(size, state.mu_squared or Fraction(0)) is not None, 0.0, most
        )
        return max(left, fits)

    def largest_mu(self, state: FilterState) -> float:
        """A mu that one more GDP release may have, rounded down; 0 under a pure budget."""
        if state.mu_squared is not None:
            return _root_down(state.mu_squared)
        epsilon, slack = _round_down(state.epsilon), _round_down(state.slack)
        return cv.gdp_mu(epsilon, slack) if slack > 0 else 0.0

    # --- the charges, each valid by itself ---------------------------------------------------------------------------

    def _apply(self, state: FilterState, cost: Guarantee, how: str) -> FilterState | None:
        """The state after one way of charging; None when it does not fit or is none."""
        if how in ("sum", "whole"):
            if state.is_split:
                return None
            return _subtract_pair(state, cost) if how == "sum" else _subtract_curve_point(state, cost)
        split = state if state.is_split else self._split(state)
        if split is None or split.mu_squared is None:
            return None
        if how.startswith("curve:"):
            return _subtract_gdp(split, *_mu_and_slack(cost, how))
        return (
            _subtract_parts(split, cost, from_reserve=how == "reserve")
            if how in ("parts", "reserve")
            else None
        )

    def _ways(self, cost: Guarantee) -> Iterator[Iterable[str]]:
        """What is worth trying after the split."""
        closed = all(isinstance(part, Gaussian | Pure | BoundedRange | Approximate) for part in cost.parts)
        if closed:
            yield ["parts"]
            if self.pure_reserve > 0 and not all(isinstance(part, Gaussian) for part in cost.parts):
                yield ["reserve"]
        several = sum(part.count for part in cost.parts if not isinstance(part, Gaussian)) > 1
        if not closed or several or any(isinstance(part, BoundedRange) for part in cost.parts):
            yield self._curve_ways(cost)

    def _curve_ways(self, cost: Guarantee) -> Iterator[str]:
        """Slacks for a release without a closed form; first the one with which both amounts last equally long.

        That is measured on the declared amounts: mu falls with the slack, so the shares of the two cross once.
        """
        declared = self._declared()
        if declared is None or declared.mu_squared is None:
            return
        lowest, kept, whole = slack_floor(cost), float(declared.slack), float(declared.mu_squared)
        slacks = sorted({max(fraction * kept, lowest) for fraction in SLACK_FRACTIONS})
        slacks = [slack for slack in slacks if 0 < slack < 1]

        def shares(slack: float) -> tuple[float, float]:
            return closest_mu(cost.parts, cost.extra_delta, slack) ** 2 / whole, slack / kept

        low, high = 0, len(slacks)
        while low < high:
            middle = (low + high) // 2
            square, slack = shares(slacks[middle])
            low, high = (low, middle) if square <= slack else (middle + 1, high)
        near = sorted(slacks[max(0, low - 1) : low + 1], key=lambda slack: max(shares(slack)))
        for slack in (*near, *(each for each in slacks[::-1] if each not in near)):
            yield f"curve:{slack!r}"

    def _declared(self) -> FilterState | None:
        """The amounts of a budget that is split before its first release."""
        return self._split(FilterState(epsilon=Fraction(self.epsilon), slack=Fraction(self.delta)))

    def _share_used(self, before: FilterState, after: FilterState) -> float:
        """The largest share of a declared amount that a charge takes: the amounts should last equally long."""
        declared = (
            self._split(FilterState(epsilon=Fraction(self.epsilon), slack=Fraction(self.delta))) or before
        )
        shares = []
        for name in ("epsilon", "slack", "mu_squared"):
            used = getattr(before, name) - getattr(after, name)
            whole = getattr(declared, name)
            shares.append(0.0 if used == 0 else float(used / whole) if whole else math.inf)
        return max(shares)

    def _split(self, state: FilterState) -> FilterState | None:
        """The split state that the unsplit one dominates; None where no delta or no epsilon is left."""
        if state.slack <= 0 or state.epsilon <= 0:
            return None
        return _split(state.epsilon, state.slack, self.delta_share, self.pure_reserve)


@lru_cache(maxsize=256)
def _split(epsilon: Fraction, slack: Fraction, delta_share: float, pure_reserve: float) -> FilterState | None:
    """(epsilon, slack)-DP is asked at one epsilon: slack' + (1 - slack') E delta_mu(epsilon - loss of the reserve)."""
    kept = Fraction(delta_share) * slack
    reserve = min(Fraction(pure_reserve), epsilon)
    target = _round_down((slack - kept) / (1 - kept))
    if target <= 0:
        return None
    total = _round_down(epsilon)
    if reserve == 0:
        mu = cv.gdp_mu(total, target)
    else:
        first = _round_up(reserve)
        up = 1 / (1 + math.exp(-first)) * (1 + 1e-15)
        down = min(1.0, math.exp(-first) / (1 + math.exp(-first)) * (1 + 1e-15))

        def holds(mu: float) -> bool:
            near, far = cv.gdp_delta(mu, np.array([total - first, total + first]))
            return (up * float(near) + down * float(far)) * (1 + 1e-14) <= target

        most = cv.gdp_mu(total, target)
        mu = bisected(holds, 0.0, most) if holds(most * 1e-9) else 0.0
    if mu <= 0:
        return None
    return FilterState(
        epsilon=reserve, slack=kept, mu_squared=Fraction(mu) ** 2, epsilon_before_split=epsilon
    )


def _subtract_pair(state: FilterState, cost: Guarantee) -> FilterState | None:
    """Pure, bounded-range and (epsilon, delta) parts: both members of the pair are sums of exact fractions."""
    epsilon, slack = Fraction(0), Fraction(cost.extra_delta)
    for part in cost.parts:
        value = part.value if isinstance(part, Approximate) else part.pure()
        if not math.isfinite(value):
            return None
        epsilon += part.count * Fraction(value)
        slack += part.count * Fraction(part.slack) if isinstance(part, Approximate) else 0
    if epsilon > state.epsilon or slack > state.slack:
        return None
    return replace(state, epsilon=state.epsilon - epsilon, slack=state.slack - slack)


def _subtract_curve_point(state: FilterState, cost: Guarantee) -> FilterState | None:
    """Anything as the pair (all epsilon that is left, its delta there): for a release that is the last one."""
    left = state.slack - Fraction(cost.extra_delta)
    if left <= 0:
        return None
    delta = Fraction(compose.delta(cost.parts, _round_down(state.epsilon)))
    return replace(state, epsilon=Fraction(0), slack=left - delta) if delta <= left else None


def _takes_half(state: FilterState, cost: Guarantee) -> bool:
    """Would half of the epsilon that is left be too little? A small release must not use up a budget."""
    if state.is_split:
        return False
    return compose.delta(cost.parts, _round_down(state.epsilon / 2)) + cost.extra_delta > state.slack


def _subtract_gdp(state: FilterState, mu: float, slack: Fraction) -> FilterState | None:
    """A release that is slack-close to mu-GDP; slacks are added, which is a little more than 1 - (1 - h)(1 - d)."""
    if not math.isfinite(mu) or state.mu_squared is None or slack > state.slack:
        return None
    square = state.mu_squared - Fraction(mu) ** 2
    return replace(state, mu_squared=square, slack=state.slack - slack) if square >= 0 else None


def _subtract_parts(state: FilterState, cost: Guarantee, *, from_reserve: bool) -> FilterState | None:
    """Parts with closed forms, pure ones first, because they cost least while much is left."""
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
        overlap *= 2 * math.exp(float(log_ndtr(-(compose.gaussian_mu(_gaussians(cost)) or 0.0) / 2)))
        if not overlap > cost.extra_delta:
            return None
        slack += Fraction(cost.extra_delta / overlap * (1 + _MARGIN))
    if slack > state.slack:
        return None
    return replace(state, mu_squared=square, epsilon=reserve, slack=state.slack - slack)


def _gaussians(cost: Guarantee) -> Parts:
    return tuple(part for part in cost.parts if isinstance(part, Gaussian))


def _pure_remainders(value: float, count: int, square: Fraction | None) -> Fraction | None:
    """What `count` pure uses leave of a Gaussian part; None when they do not fit."""
    if count > MAX_SINGLE_CHARGES:
        left = (square or Fraction(0)) - count * _HALF_PI * Fraction(value) ** 2
        return left if left >= 0 else None
    for _ in range(count):
        square = None if square is None else pure_remainder(value, square)
    return square


def pure_remainder(value: float, square: Fraction) -> Fraction | None:
    """The largest v^2 found so that a value-DP release and v-GDP together are sqrt(square)-GDP; None: it does not fit.

    Theorem 3: the condition holds at every epsilon if it does at 0, where it says
    (Phi(e/v - v/2) + e^e Phi(-e/v - v/2)) / (1 + e^e) >= Phi(-sqrt(square)/2). In logarithms, since a difference from 1
    would lose all digits, and with a margin above the rounding of log Phi.
    """
    if value == 0:
        return square
    if not math.isfinite(value) or square <= 0:
        return None
    plain = square - _HALF_PI * Fraction(value) ** 2  # e-DP is sqrt(pi / 2) e-GDP
    mu = _root_down(square)
    limit = float(log_ndtr(-mu / 2))
    target = limit + _MARGIN * (1 + abs(limit)) + float(np.logaddexp(0.0, value))

    def excess(v: float) -> float:
        if v <= 0:
            return -target
        ratio, half = min(value / v, 1e150), v / 2
        return float(np.logaddexp(log_ndtr(ratio - half), value + log_ndtr(-ratio - half))) - target

    if excess(0.0) < 0:
        return plain if plain >= 0 else None
    v = mu if excess(mu) >= 0 else float(brentq(excess, 0.0, mu, xtol=1e-300, rtol=1e-14))
    step = 1e-15
    while v > 0 and excess(v) < 0:
        v *= 1 - step
        step *= 4
        v = v if step < 0.1 else 0.0
    return max(plain, min(Fraction(v) ** 2, square))


def _mu_and_slack(cost: Guarantee, how: str) -> tuple[float, Fraction]:
    try:
        slack = float(how.removeprefix("curve:"))
    except ValueError:
        return math.inf, Fraction(0)
    if not 0 < slack < 1:
        return math.inf, Fraction(0)
    return closest_mu(cost.parts, cost.extra_delta, slack), Fraction(slack)


# --- rounding ----------------------------------------------------------------------------------------------------


def _round_up(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def _round_down(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)


def _root_down(square: Fraction) -> float:
    """The largest double found whose square is not above the given one."""
    if square <= 0:
        return 0.0
    shift = max(0, 140 - square.numerator.bit_length() + square.denominator.bit_length())
    shift += shift % 2
    root = Fraction(math.isqrt((square.numerator << shift) // square.denominator), 1 << (shift // 2))
    return _round_down(root)
