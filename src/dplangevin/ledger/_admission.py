"""Does one more release fit? Costs are added exactly, then composed; whatever cannot be proved to fit is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from dplangevin.errors import LedgerError
from dplangevin.privacy import compose, conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Approximate, BoundedRange, Concentrated, Gaussian, Part, Pure

_WIDEST = (
    200.0  # sums of pure epsilons beyond it would need loss distributions of gigabytes: Renyi curves instead
)
_COARSE = 1e-3  # grid of losses for finding what would fit; what is found passes the exact rule as well
_TIGHT = (Pure, BoundedRange, Gaussian, Approximate)  # classes whose own curve is attained


@dataclass(frozen=True, kw_only=True)
class Bill:
    """What a set of releases costs together: everything spent as it was promised, and the sum of additive deltas."""

    spent: tuple[Part, ...] = ()
    extra_delta: Fraction = Fraction(0)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The same cost in as few parts as there can be; rounded once, upwards."""
        return _merged(self.spent)

    def plus(self, *parts: Part) -> Bill:
        """The bill with more parts on it."""
        return replace(self, spent=compose.merged(self.spent + parts))

    def with_release(self, guarantee: Guarantee) -> Bill:
        """The bill with one more release on it."""
        extra = self.extra_delta + Fraction(guarantee.extra_delta)
        return replace(self.plus(*guarantee.parts), extra_delta=extra)

    def epsilon(self, delta: float) -> float:
        """Composed epsilon at delta, rounded up."""
        left = Fraction(delta) - self.extra_delta
        if left < 0:
            return math.inf
        pairs = _pairs(self.parts)
        best = math.inf
        if pairs is not None and pairs[1] <= left:
            best = _rounded_up(pairs[0])
        return best if left == 0 else min(best, compose.epsilon(self.parts, _rounded_down(left)))


def bill(costs: Iterable[tuple[Guarantee, int]]) -> Bill:
    """The bill of releases, each given with the number of times it was made."""
    parts: list[Part] = []
    extra = Fraction(0)
    for guarantee, count in costs:
        parts += [part.times(count) for part in guarantee.parts]
        extra += count * Fraction(guarantee.extra_delta)
    return Bill(spent=compose.merged(tuple(parts)), extra_delta=extra)


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
        return compose.delta(total.parts, epsilon) <= target
    except (ArithmeticError, ValueError, MemoryError) as error:
        raise LedgerError(
            f"this cost cannot be composed with what was spent ({error}); nothing was charged."
        ) from error


def largest_pure(total: Bill, epsilon: float, delta: float) -> float:
    """An epsilon that one more pure release may have: the largest, or somewhat below it."""
    left, pairs = Fraction(delta) - total.extra_delta, _pairs(total.parts)
    known = 0.0
    if pairs is not None and pairs[1] <= left and pairs[0] <= Fraction(epsilon):
        known = _rounded_down(Fraction(epsilon) - pairs[0])
    if left <= 0:
        return known
    guesses = (0.97 * _gaussian_left(total, epsilon, delta), epsilon - total.epsilon(delta))
    found = _largest(lambda size: Pure(value=size), 2 * epsilon + 1, guesses, total, epsilon, delta)
    return max(known, found)


def largest_gaussian(total: Bill, epsilon: float, delta: float) -> float:
    """A mu that one more GDP release may have: the largest, or somewhat below it; 0 under a pure budget."""
    if Fraction(delta) <= total.extra_delta:
        return 0.0
    left, limit = _gaussian_left(total, epsilon, delta), cv.gdp_mu(epsilon, delta)
    return _largest(lambda size: Gaussian(mu=size), limit, (0.97 * left, 0.9 * left), total, epsilon, delta)


def _gaussian_left(total: Bill, epsilon: float, delta: float) -> float:
    """The mu that would be left if the bill were Gaussian: squares of mu add up to that of the budget."""
    spent = min(1.0, compose.delta(total.parts, epsilon) + float(total.extra_delta))
    used = cv.gdp_mu(epsilon, spent) if 0 < spent < 1 else 0.0
    return math.sqrt(max(0.0, cv.gdp_mu(epsilon, delta) ** 2 - used**2))


def _largest(
    release: Callable[[float], Part],
    high: float,
    guesses: tuple[float, float],
    total: Bill,
    epsilon: float,
    delta: float,
) -> float:
    """A size that passes the admission rule: found by bisection where that is cheap, else by a few trials."""
    total = replace(total, spent=total.parts)  # merged once, not for every trial
    target = _rounded_down(Fraction(delta) - total.extra_delta)
    spent = compose.renyi(total.parts, cv.ORDERS)

    def admitted(size: float) -> bool:
        return fits(total.plus(release(size)), epsilon, delta)

    def admitted_by_renyi(size: float) -> bool:
        more = release(size).rdp(cv.ORDERS)
        return (
            spent is not None
            and more is not None
            and cv.rdp_delta(cv.ORDERS, spent + more, epsilon) <= target
        )

    if admitted(high):
        return high
    if compose.gaussian_mu(total.plus(release(high)).parts) is not None:
        return _bisected(admitted, high)
    found = _bisected(admitted_by_renyi, high)
    for guess in guesses:
        if guess > found and admitted(guess):
            return guess
    return found


def _bisected(allowed: Callable[[float], bool], high: float) -> float:
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if allowed(middle) else (low, middle)
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
