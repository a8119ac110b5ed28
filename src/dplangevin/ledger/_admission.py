"""Does one more release fit? Costs are added exactly, then composed; whatever cannot be proved to fit is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from dplangevin.errors import LedgerError
from dplangevin.privacy import compose
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Approximate, BoundedRange, Concentrated, Gaussian, Part, Pure

_WIDEST = (
    200.0  # sums of pure epsilons beyond it would need loss distributions of gigabytes: Renyi curves instead
)
_TIGHT = (Pure, BoundedRange, Gaussian, Approximate)  # classes whose own curve is attained


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a set of releases costs together: parts, and the exact sum of their additive deltas."""

    parts: tuple[Part, ...] = ()
    extra_delta: Fraction = Fraction(0)

    def plus(self, *parts: Part) -> Bill:
        """The bill with more parts on it."""
        return Bill(parts=_merged(self.parts + parts), extra_delta=self.extra_delta)

    def with_release(self, guarantee: Guarantee) -> Bill:
        """The bill with one more release on it."""
        extra = self.extra_delta + Fraction(guarantee.extra_delta)
        return Bill(parts=_merged(self.parts + guarantee.parts), extra_delta=extra)

    def epsilon(self, delta: float) -> float:
        """Composed epsilon at delta, rounded up."""
        left = Fraction(delta) - self.extra_delta
        if left < 0:
            return math.inf
        pairs = _pairs(self.parts)
        best = math.inf
        if pairs is not None and pairs[1] <= left:
            best = _rounded_up(pairs[0])
        if left == 0 or not self.parts:
            return best
        curve = compose.renyi(self.parts, cv.ORDERS)
        if curve is not None:
            best = min(best, cv.rdp_epsilon(cv.ORDERS, curve, _rounded_down(left)))
        return best if _too_wide(self.parts) else min(best, compose.epsilon(self.parts, _rounded_down(left)))


def bill(costs: Iterable[tuple[Guarantee, int]]) -> Bill:
    """The bill of releases, each given with the number of times it was made."""
    parts: list[Part] = []
    extra = Fraction(0)
    for guarantee, count in costs:
        parts += [part.times(count) for part in guarantee.parts]
        extra += count * Fraction(guarantee.extra_delta)
    return Bill(parts=_merged(tuple(parts)), extra_delta=extra)


def fits(total: Bill, epsilon: float, delta: float) -> bool:
    """Is the composed delta(epsilon) of the bill proved to be at most delta?

    Pairs (eps_i, delta_i) are added in exact rationals, so that five releases of 1 fit in 5 and six do not. Then the
    cheap valid bound is tried (Renyi), and the exact composition only when it decides.
    """
    left = Fraction(delta) - total.extra_delta
    if left < 0:
        return False
    pairs = _pairs(total.parts)
    if pairs is not None and pairs[0] <= Fraction(epsilon) and pairs[1] <= left:
        return True
    if left == 0:
        return False
    target = _rounded_down(left)
    if any(part.delta(epsilon) > target for part in total.parts if isinstance(part, _TIGHT)):
        return False
    try:
        curve = compose.renyi(total.parts, cv.ORDERS)
        if curve is not None and cv.rdp_delta(cv.ORDERS, curve, epsilon) <= target:
            return True
        return not _too_wide(total.parts) and compose.delta(total.parts, epsilon) <= target
    except (ArithmeticError, ValueError, MemoryError) as error:
        raise LedgerError(
            f"this cost cannot be composed with what was spent ({error}); nothing was charged."
        ) from error


def largest_pure(total: Bill, epsilon: float, delta: float) -> float:
    """The largest epsilon of one more pure release that fits, rounded down."""
    left, pairs = Fraction(delta) - total.extra_delta, _pairs(total.parts)
    known = 0.0
    if pairs is not None and pairs[1] <= left and pairs[0] <= Fraction(epsilon):
        known = _rounded_down(Fraction(epsilon) - pairs[0])
    if delta == 0:
        return known
    return _largest(lambda value: fits(total.plus(Pure(value=value)), epsilon, delta), known, 2 * epsilon + 1)


def largest_gaussian(total: Bill, epsilon: float, delta: float) -> float:
    """The largest mu of one more GDP release that fits, rounded down; 0 under a pure budget."""
    if delta == 0:
        return 0.0
    limit = cv.gdp_mu(epsilon, delta)
    steps = 60 if compose.gaussian_mu(total.parts) is not None else 14
    return _largest(lambda mu: fits(total.plus(Gaussian(mu=mu)), epsilon, delta), 0.0, limit, steps)


def _largest(allowed: Callable[[float], bool], low: float, high: float, steps: int = 14) -> float:
    """Bisection that ends on the allowed side."""
    if allowed(high):
        return high
    for _ in range(steps):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if allowed(middle):
            low = middle
        else:
            high = middle
    return low


def _merged(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Gaussian parts as one, zCDP parts as one (both exact), equal parts counted."""
    squares, rho = Fraction(0), Fraction(0)
    rest: list[Part] = []
    for part in parts:
        if isinstance(part, Gaussian) and math.isfinite(part.mu):
            squares += part.count * Fraction(part.mu) ** 2
        elif isinstance(part, Concentrated) and math.isfinite(part.rho):
            rho += part.count * Fraction(part.rho)
        else:
            rest.append(part)
    if squares > 0:
        rest.insert(0, Gaussian(mu=_root_rounded_up(squares)))
    if rho > 0:
        rest.insert(0, Concentrated(rho=_rounded_up(rho)))
    return compose.merged(tuple(rest))


def _pairs(parts: tuple[Part, ...]) -> tuple[Fraction, Fraction] | None:
    """Exact sums of (epsilon, delta) when every part is such a pair."""
    epsilon, delta = Fraction(0), Fraction(0)
    for part in parts:
        value = part.value if isinstance(part, Approximate) else part.pure()
        if not math.isfinite(value):
            return None
        epsilon += part.count * Fraction(value)
        delta += part.count * Fraction(part.slack) if isinstance(part, Approximate) else 0
    return epsilon, delta


def _too_wide(parts: tuple[Part, ...]) -> bool:
    values = [(p.count, p.value if isinstance(p, Approximate) else p.pure()) for p in parts]
    return sum(count * value for count, value in values if math.isfinite(value)) > _WIDEST


def _rounded_up(exact: Fraction) -> float:
    try:
        near = float(exact)
    except OverflowError:
        return math.inf
    return near if Fraction(near) >= exact else math.nextafter(near, math.inf)


def _rounded_down(exact: Fraction) -> float:
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, 0.0)


def _root_rounded_up(square: Fraction) -> float:
    """The smallest double found whose square is at least the given one."""
    near = math.sqrt(_rounded_up(square))
    if math.isinf(near):
        return near
    below = math.nextafter(near, 0.0)
    if Fraction(below) ** 2 >= square:
        return below
    while Fraction(near) ** 2 < square:
        near = math.nextafter(near, math.inf)
    return near
