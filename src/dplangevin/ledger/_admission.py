"""Does one more release fit? Costs are added exactly, then composed; whatever cannot be proved to fit is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

from dplangevin._search import bisected
from dplangevin.errors import LedgerError
from dplangevin.ledger._bill import Bill, rounded_down
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Part, Pure


def fits(total: Bill, epsilon: float, delta: float) -> bool:
    """Is the composed delta(epsilon) of the bill proved to be at most delta?

    Pairs (eps_i, delta_i) are added in exact rationals, so that five releases of 1 fit in 5 and six do not. Then the
    cheap valid bound is tried (Renyi), and the exact composition only when it decides.
    """
    cheap = _cheaply(total, epsilon, delta)
    return _exactly(total, epsilon, delta) if cheap is None else cheap


def admits(spent: Bill, cost: Guarantee, epsilon: float, delta: float) -> bool:
    """Does the release fit on top of the bill, which is composed for good if it must be?"""
    cheap = _cheaply(spent.with_release(cost), epsilon, delta)
    if cheap is not None:
        return cheap
    with composing():
        spent.losses()
    return _exactly(spent.with_release(cost), epsilon, delta)


def _cheaply(total: Bill, epsilon: float, delta: float) -> bool | None:
    """The answer where sums or the Renyi curve give it."""
    left = Fraction(delta) - total.extra_delta
    if left < 0:
        return False
    pairs = total.pairs
    if pairs is not None and pairs[0] <= Fraction(epsilon) and pairs[1] <= left:
        return True
    if left == 0:
        return False
    target = rounded_down(left)
    # no composition costs less than its dearest release
    if max(cv.pure_delta(total.largest_single, epsilon), float(cv.gdp_delta(total.mu, epsilon))) > target:
        return False
    curve = total.curve()
    return True if curve is not None and cv.rdp_delta(cv.ORDERS, curve, epsilon) <= target else None


def _exactly(total: Bill, epsilon: float, delta: float) -> bool:
    with composing():
        return total.delta(epsilon) <= rounded_down(Fraction(delta) - total.extra_delta)


@contextmanager
def composing() -> Iterator[None]:
    """Costs of extreme sizes may not be composed in double precision: an error of the ledger, and no charge."""
    try:
        yield
    except (ArithmeticError, ValueError, MemoryError) as error:
        raise LedgerError(
            f"this cost cannot be composed with what was spent ({error}); nothing was charged."
        ) from error


def largest_pure(total: Bill, epsilon: float, delta: float) -> float:
    """An epsilon that one more pure release may have: the largest, or somewhat below it."""
    left, pairs = Fraction(delta) - total.extra_delta, total.pairs
    known = 0.0
    if pairs is not None and pairs[1] <= left and pairs[0] <= Fraction(epsilon):
        known = rounded_down(Fraction(epsilon) - pairs[0])
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
    spent = min(1.0, total.delta(epsilon) + float(total.extra_delta))
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
    """A size that passes the admission rule: found by bisection, or by a few trials where each takes long."""
    target = rounded_down(Fraction(delta) - total.extra_delta)
    spent = total.curve()

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
    if total.plus(release(high)).only_gaussian:
        return bisected(admitted, 0.0, high)
    found = bisected(admitted_by_renyi, 0.0, high)
    if total.losses() is not None:
        return bisected(admitted, found, high, rounds=14)
    for guess in guesses:
        if guess > found and admitted(guess):
            return guess
    return found
