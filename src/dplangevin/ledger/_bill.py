"""Bill: what a set of releases costs together, kept so that one more release is added without starting again."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.ledger._lattice import Lattice, Law
from dplangevin.privacy import compose, conversions as cv, serialize
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Approximate, BoundedRange, Concentrated, Gaussian, Part, Pure, merged

GRID = 2.0**-13


class Bill:
    """Everything spent as it was promised: exact sums, a Renyi curve, and composed losses once they are asked for.

    Gaussian parts are one part, zCDP parts are one part (both in exact rationals, rounded up once), equal parts are
    counted. A bill never changes; `plus` makes another one that shares what was composed.
    """

    def __init__(self, *, extra_delta: Fraction = Fraction(0), grid: float = GRID) -> None:
        self.extra_delta, self.grid = extra_delta, grid
        self._squares = self._rho = Fraction(0)
        self._counts: dict[Part, int] = {}
        self._earlier = (
            ""  # what was counted before, as text: it is read only where a part's own curve is asked for
        )
        self._pairs: tuple[Fraction, Fraction] | None = (Fraction(0), Fraction(0))
        self._curve: Floats | None = np.zeros_like(cv.ORDERS)
        self._largest = 0.0
        # the composed losses and the parts that are not in them yet: one value, so that threads see both or neither
        self._state: tuple[Lattice | None, tuple[Part, ...]] = (Lattice.nothing(grid), ())

    def plus(self, *parts: Part) -> Bill:
        """The bill with more parts on it."""
        more = Bill(extra_delta=self.extra_delta, grid=self.grid)
        more._squares, more._rho, more._largest = self._squares, self._rho, self._largest
        more._counts, more._earlier, more._pairs = dict(self._counts), self._earlier, self._pairs
        more._curve = None if self._curve is None else self._curve.copy()
        composed, waiting = self._state
        new = [part for part in parts if not more._merge(part)]
        more._state = (composed, merged((*waiting, *new)) if new else waiting)
        return more

    def with_release(self, guarantee: Guarantee) -> Bill:
        """The bill with one more release on it."""
        return self.with_releases([(guarantee, 1)])

    def with_releases(self, costs: Iterable[tuple[Guarantee, int]]) -> Bill:
        """The bill with more releases on it, each given with the number of times it was made."""
        parts: list[Part] = []
        extra = self.extra_delta
        for guarantee, count in costs:
            parts += guarantee.parts if count == 1 else [part.times(count) for part in guarantee.parts]
            extra += count * Fraction(guarantee.extra_delta)
        more = self.plus(*parts)
        more.extra_delta = extra
        return more

    def _merge(self, part: Part) -> bool:
        """Add to the exact sums; True when the part is wholly in them."""
        if isinstance(part, Gaussian) and math.isfinite(part.mu):
            self._squares += part.count * Fraction(part.mu) ** 2
            self._pairs = None if part.mu > 0 else self._pairs
            return True
        if isinstance(part, Concentrated) and math.isfinite(part.rho):
            self._rho += part.count * Fraction(part.rho)
            self._pairs = None if part.rho > 0 else self._pairs
            return True
        single = part if part.count == 1 else replace(part, count=1)
        self._counts[single] = self._counts.get(single, 0) + part.count
        value = part.value if isinstance(part, Approximate) else part.pure()
        if self._pairs is not None:
            self._pairs = _added(self._pairs, part, value)
        if isinstance(part, Pure):
            self._largest = max(self._largest, value)
        curve = _curve(single)
        if curve is None or self._curve is None:
            self._curve = None
        else:  # every sum rounds by less than the factor
            self._curve = (self._curve + part.count * curve) * (1 + 2.0**-51)
        return False

    @property
    def parts(self) -> tuple[Part, ...]:
        """The same cost in as few parts as there can be; rounded once, upwards."""
        counts = Counter({replace(part, count=1): part.count for part in self._kept_parts})
        counts.update(self._counts)
        found: list[Part] = [part.times(count) for part, count in counts.items()]
        if self._squares > 0:
            found.insert(0, Gaussian(mu=self.mu))
        if self._rho > 0:
            found.insert(0, Concentrated(rho=rounded_up(self._rho)))
        return tuple(found)

    @cached_property
    def _kept_parts(self) -> tuple[Part, ...]:
        return serialize.loads_parts(self._earlier) if self._earlier else ()

    @cached_property
    def mu(self) -> float:
        """mu of the Gaussian parts together, rounded up."""
        return root_rounded_up(self._squares) if self._squares > 0 else 0.0

    @property
    def pairs(self) -> tuple[Fraction, Fraction] | None:
        """Exact sums of (epsilon, delta) when every part is such a pair."""
        return self._pairs

    @property
    def only_gaussian(self) -> bool:
        """Is everything GDP?"""
        return not self._counts and not self._earlier and self._rho == 0

    @property
    def largest_single(self) -> float:
        """The largest pure epsilon of one release."""
        return self._largest

    def curve(self) -> Floats | None:
        """The Renyi curve of everything, or None when a part has none."""
        if self._curve is None:
            return None
        linear = cv.square_over(self.mu, 2) + rounded_up(self._rho)
        found: Floats = (self._curve + cv.ORDERS * linear) * (1 + 2.0**-50)
        return found

    def losses(self) -> Lattice | None:
        """The composed losses of everything but the Gaussian parts; None when they are not known."""
        composed, waiting = self._state
        if self._rho > 0:
            return None
        for part in sorted(waiting, key=lambda part: not isinstance(part, Pure | BoundedRange | Approximate)):
            # pairs first: they are symmetric, and one law is enough for them
            composed = None if composed is None else composed.plus(part)
        self._state = (composed, ())
        return composed

    def delta(self, epsilon: float) -> float:
        """Composed delta at epsilon, rounded up, without the additive one."""
        if self.only_gaussian:
            return float(cv.gdp_delta(self.mu, epsilon))
        found = 1.0
        curve = self.curve()
        if curve is not None:
            found = float(cv.rdp_delta(cv.ORDERS, curve, epsilon))
        losses = self._losses_in_reach(curve)
        if losses is not None:
            return min(found, losses.delta(epsilon, self.mu))
        parts = self.parts
        if curve is None or (len(parts) == 1 and parts[0].count == 1):
            return min(found, compose.delta(parts, epsilon))
        return found

    def epsilon(self, delta: float) -> float:
        """Composed epsilon at delta, rounded up."""
        left = Fraction(delta) - self.extra_delta
        if left < 0:
            return math.inf
        best = math.inf
        if self._pairs is not None and self._pairs[1] <= left:
            best = rounded_up(self._pairs[0])
        if left == 0:
            return best
        target = rounded_down(left)
        if self.only_gaussian:
            return min(best, cv.gdp_epsilon(self.mu, target))
        curve = self.curve()
        if curve is not None:
            best = min(best, float(cv.rdp_epsilon(cv.ORDERS, curve, target)))
        if self._losses_in_reach(curve) is None:
            return min(best, compose.epsilon(self.parts, target))
        return self._epsilon_between(best, target)

    def _losses_in_reach(self, curve: Floats | None) -> Lattice | None:
        """The composed losses, unless they are so large that a budget of this grid is far away."""
        if curve is not None and cv.rdp_epsilon(cv.ORDERS, curve, 1e-15) > 1e6 * self.grid:
            return None
        return self.losses()

    def _epsilon_between(self, high: float, target: float) -> float:
        """The smallest epsilon found below one that is known, by false position in log delta; always a proved one."""
        low = 0.0
        losses, mu = self.losses(), self.mu
        assert losses is not None
        if losses.delta(low, mu) <= target:
            return low
        if not math.isfinite(high):
            high = 1e5 * self.grid
            if losses.delta(high, mu) > target:
                return math.inf
        goal = math.log(target)
        at = {end: math.log(max(losses.delta(end, mu), 1e-300)) - goal for end in (low, high)}
        if at[high] > 0:  # Renyi knows better here
            return high
        for turn in range(16):
            share = at[low] / (at[low] - at[high])
            share = 0.5 if turn % 3 == 2 else min(0.95, max(0.05, share))
            middle = low + share * (high - low)
            at[middle] = math.log(max(losses.delta(middle, mu), 1e-300)) - goal
            low, high = (low, middle) if at[middle] <= 0 else (middle, high)
            if high - low <= 1e-6 * high:
                break
        return high

    def to_plain(self) -> dict[str, Any]:
        """Everything, composed, as words and numbers; floats are written so that they read back the same."""
        losses = self.losses()
        exact = (self._squares, self._rho, self.extra_delta, *(self._pairs or ()))
        counted = [part for part in self.parts if not isinstance(part, Gaussian | Concentrated)]
        return {
            "grid": self.grid,
            "exact": [str(value) for value in exact],
            "curve": None if self._curve is None else self._curve.tolist(),
            "largest": self._largest,
            "parts": serialize.dumps_parts(counted) if counted else "",
            "laws": None if losses is None else [law.to_plain() for law in losses.laws],
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Bill:
        """The bill in what `to_plain` made; a ValueError, TypeError or KeyError where it cannot be one."""
        squares, rho, extra, *pairs = (Fraction(value) for value in plain["exact"])
        found = cls(extra_delta=extra, grid=float(plain["grid"]))
        found._squares, found._rho, found._largest = squares, rho, float(plain["largest"])
        found._pairs = (pairs[0], pairs[1]) if pairs else None
        found._curve = None if plain["curve"] is None else np.array(plain["curve"], float)
        found._earlier = plain["parts"]
        laws = plain["laws"]
        found._state = (None if laws is None else Lattice(found.grid, tuple(map(Law.from_plain, laws))), ())
        if found._curve is not None and (
            found._curve.shape != cv.ORDERS.shape or not (found._curve >= 0).all()
        ):
            raise ValueError("the curve has another length")
        return found


def bill(costs: Iterable[tuple[Guarantee, int]], grid: float = GRID) -> Bill:
    """The bill of releases, each given with the number of times it was made."""
    return Bill(grid=grid).with_releases(costs)


@lru_cache(maxsize=1024)
def _curve(single: Part) -> Floats | None:
    return single.rdp(cv.ORDERS)


def _added(pairs: tuple[Fraction, Fraction], part: Part, value: float) -> tuple[Fraction, Fraction] | None:
    if not math.isfinite(value):
        return None
    slack = part.count * Fraction(part.slack) if isinstance(part, Approximate) else 0
    return pairs[0] + part.count * Fraction(value), pairs[1] + slack


def rounded_up(exact: Fraction) -> float:
    """The next double that is not below."""
    try:
        near = float(exact)
    except OverflowError:
        return math.inf
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def rounded_down(exact: Fraction) -> float:
    """The next double that is not above."""
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, 0.0)


def root_rounded_up(square: Fraction) -> float:
    """The smallest double found whose square is at least the given one."""
    near = math.sqrt(rounded_up(square))
    if math.isinf(near):
        return near
    below = math.nextafter(near, 0.0)
    if Fraction(below) ** 2 >= square:
        return below
    while Fraction(near) ** 2 < square:
        near = math.nextafter(near, math.inf)
    return near
