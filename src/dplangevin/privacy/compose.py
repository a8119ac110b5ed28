"""Composition, written once: parts -> (eps, delta) in the tightest common currency.

All GDP: exact. All pure: the sum with delta = 0. Otherwise the best of Renyi addition, privacy loss
distributions (dp-accounting) where every part has a dominating pair, and basic composition for the rest.
Every candidate is valid by itself, so taking the smallest is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dplangevin._arrays import Floats
from dplangevin._search import bisected
from dplangevin.privacy import conversions as cv
from dplangevin.privacy._pld import GRID, connect_the_dots
from dplangevin.privacy.parts import Gaussian, Part, Parts, Pure
from dplangevin.privacy.responses import response_delta, response_epsilon

_LOWEST = np.array([1.01])
_MOST_CELLS = 600_000
_MOST_FINE = 60_000


def gaussian_mu(parts: Parts) -> float | None:
    """mu of the composition when every part is Gaussian."""
    if not all(isinstance(part, Gaussian) for part in parts):
        return None
    spent = [(part.count, part.mu) for part in parts if isinstance(part, Gaussian)]
    largest = max((mu for _, mu in spent), default=0.0)
    if largest in (0.0, math.inf) or spent == [(1, largest)]:
        return largest
    # in units of the largest, so that no square underflows; rounded up
    squares = math.fsum(count * (mu / largest) ** 2 for count, mu in spent)
    return math.nextafter(largest * math.sqrt(squares) * (1 + 4e-16), math.inf)


def renyi(parts: Parts, orders: Floats) -> Floats | None:
    """Sum of the Renyi curves, or None when a part has none."""
    total = np.zeros_like(orders)
    for part in parts:
        curve = part.rdp(orders)
        if curve is None:
            return None
        total = total + part.count * curve
    return total


@lru_cache(maxsize=32)
def loss_distribution(parts: Parts) -> Any | None:
    """Composed privacy loss distribution, or None when it would be too large or Renyi addition serves as well.

    A part without a dominating pair of its own takes that of its curve delta(eps); only where a part without a Renyi
    curve makes Renyi addition impossible.
    """
    grid = _grid(parts)
    if grid is None:
        return None
    total = None
    mixed = any(part.rdp(_LOWEST) is None for part in parts)
    for part in parts:
        pld = part.pld(grid)
        if pld is None and mixed:
            pld = _curve_pld(part, grid)
        if pld is None:
            return None
        pld = _repeated(pld, part.count)
        total = pld if total is None else total.compose(pld)
    return total


def _curve_pld(part: Part, grid: float) -> Any | None:
    """A dominating distribution from delta(eps) of a part (which holds in both directions)."""
    top = part.epsilon(1e-15)
    if not math.isfinite(top):
        return None
    epsilons = np.concatenate([[0.0], np.geomspace(max(top, 1e-9) * 1e-4, max(top, 1e-9), 400)])
    deltas = np.minimum.accumulate([part.delta(float(value)) for value in epsilons])
    return connect_the_dots(epsilons, deltas, grid)


def _repeated(pld: Any, count: int) -> Any:
    """pld composed `count` times, in two stages: dp-accounting raises sparse sizes to the power of the count."""
    if count <= 256:
        return pld.self_compose(count) if count > 1 else pld
    blocks, rest = divmod(count, 256)
    total = pld.self_compose(256, tail_mass_truncation=1e-16 / blocks).self_compose(blocks)
    return total.compose(pld.self_compose(rest)) if rest else total


def _grid(parts: Parts) -> float | None:
    """The grid: any is valid, a finer one is tighter. None where time and memory would not stay bounded.

    It grows (by powers of two) with the losses, and shrinks to a quarter of a small loss that is met many times.
    """
    curve = renyi(parts, cv.ORDERS)
    reach = sum(part.count * part.pure() for part in parts)
    if curve is not None:
        reach = min(reach, cv.rdp_epsilon(cv.ORDERS, curve, 1e-15))
    elif math.isinf(reach):
        reach = sum(_reach(part) for part in parts)
    if not math.isfinite(reach) or reach > 1e4:
        return None
    coarse = GRID * 2.0 ** max(0, math.ceil(math.log2(max(reach, 1e-9) / 60)))
    grid = coarse
    for part in parts:
        scale = _typical_loss(part, reach)
        if part.count > 1 and 0 < scale < 4 * grid:
            grid = max(2.0 ** math.floor(math.log2(scale / 4)), coarse / 4096, reach / _MOST_FINE)
    grid = min(grid, coarse)
    # rounding a loss of size s to a grid g > s gives it the variance s g
    spread = sum(
        part.count * _typical_loss(part, reach) * max(_typical_loss(part, reach), grid) for part in parts
    )
    if 20 * math.sqrt(spread) < 4 * _MOST_CELLS * grid:
        return grid
    most = sum(part.count * (part.epsilon(max(1e-15, part.floor())) + grid) for part in parts)
    return grid if most < 4 * _MOST_CELLS * grid else None


def _reach(part: Part) -> float:
    """A loss that `count` uses of a part hardly exceed."""
    each = part.epsilon(max(1e-15 / part.count, part.floor()))
    return min(part.count, 10 * math.sqrt(part.count) + part.count * math.tanh(each / 2)) * each


def _typical_loss(part: Part, reach: float) -> float:
    """The standard deviation of one use's loss, roughly."""
    curve = part.rdp(_LOWEST)
    if curve is None or not np.isfinite(curve[0]):
        return min(part.epsilon(max(1e-15, part.floor())), reach)
    return min(math.sqrt(2 * float(curve[0])), reach)


def _equal_responses(parts: Parts) -> tuple[float, int] | None:
    """(eps0, count) of more than one use, all eps0-DP with one eps0: then `responses` has the exact composition."""
    if not all(isinstance(part, Pure) for part in parts) or (len(parts) == 1 and parts[0].count == 1):
        return None
    values = {part.pure() for part in parts}
    return (values.pop(), sum(part.count for part in parts)) if len(values) == 1 else None


class _Asked(NamedTuple):
    """One of the two questions, with its answer from each currency."""

    part: Callable[[Part, float], float]
    curve: Callable[[Floats, Floats, float], float]
    responses: Callable[[float, int, float], float]
    losses: Callable[[Any, float], float]


_EPSILON = _Asked(
    lambda part, delta: part.epsilon(delta),
    cv.rdp_epsilon,
    response_epsilon,
    lambda losses, delta: float(losses.get_epsilon_for_delta(delta)),
)
_DELTA = _Asked(
    lambda part, epsilon: part.delta(epsilon),
    cv.rdp_delta,
    response_delta,
    lambda losses, epsilon: float(losses.get_delta_for_epsilon(epsilon)),
)


def _answers(
    parts: Parts, asked: _Asked, given: float, basic: Callable[[], float], *, always: bool
) -> Iterator[float]:
    """Valid answers; basic composition of several uses `always`, or only where nothing else has one."""
    single = len(parts) == 1 and parts[0].count == 1
    if single:
        yield asked.part(parts[0], given)
    curve = renyi(parts, cv.ORDERS)
    if curve is not None:
        yield asked.curve(cv.ORDERS, curve, given)
    equal = _equal_responses(parts)
    if equal is not None:
        yield asked.responses(*equal, given)
    elif not single:
        losses = loss_distribution(parts)
        if losses is not None:
            yield asked.losses(losses, given)
        if always or (losses is None and curve is None):  # with a curve, Renyi addition is never far behind
            yield basic()


def epsilon(parts: Parts, delta: float) -> float:
    """Smallest proved eps at delta."""
    if not parts:
        return 0.0
    mu = gaussian_mu(parts)
    if mu is not None:
        return cv.gdp_epsilon(mu, delta)
    candidates = [sum(part.count * part.pure() for part in parts)]
    if delta > 0:
        _extend(candidates, _answers(parts, _EPSILON, delta, lambda: _basic(parts, delta), always=True))
    return _smallest(candidates)


def delta(parts: Parts, epsilon_: float) -> float:
    """Smallest proved delta at eps."""
    if not parts:
        return 0.0
    mu = gaussian_mu(parts)
    if mu is not None:
        return float(cv.gdp_delta(mu, epsilon_))
    if epsilon_ >= sum(part.count * part.pure() for part in parts):
        return 0.0
    candidates = [1.0]
    _extend(
        candidates, _answers(parts, _DELTA, epsilon_, lambda: _basic_delta(parts, epsilon_), always=False)
    )
    return min(1.0, _smallest(candidates))


def _extend(candidates: list[float], more: Iterator[float]) -> None:
    """Add answers until a formula overflows: those before it are proved, and without any the answer is infinite."""
    with suppress(ArithmeticError):
        for candidate in more:
            candidates.append(candidate)


def _basic(parts: Parts, delta_: float) -> float:
    """Basic composition, delta shared out: every use by itself, or Renyi parts as one and the rest apart."""
    best = _shared_out(parts, delta_)
    curved = tuple(part for part in parts if part.rdp(_LOWEST) is not None)
    loose = tuple(part for part in parts if part not in curved)
    if not curved or not loose:
        return best
    curve = renyi(curved, cv.ORDERS)
    assert curve is not None
    spare = delta_ - sum(part.count * part.floor() for part in loose)
    for share in (0.5, 0.1, 0.01, 0.9, 0.99) if spare > 0 else ():
        total = _shared_out(loose, delta_ - share * spare)
        best = min(best, total + cv.rdp_epsilon(cv.ORDERS, curve, share * spare))
    return best


def _shared_out(parts: Parts, delta_: float) -> float:
    """The sum of epsilons when every use gets its floor and an equal share of what is left of delta."""
    spare = delta_ - sum(part.count * part.floor() for part in parts)
    if spare < 0:
        return math.inf
    each = spare / sum(part.count for part in parts) * (1 - 1e-12)
    return sum(part.count * part.epsilon(part.floor() + each) for part in parts)


def _smallest(candidates: list[float]) -> float:
    valid = [value for value in candidates if not math.isnan(value)]
    return min(valid) if valid else math.inf


def _basic_delta(parts: Parts, epsilon_: float) -> float:
    """Smallest delta found by bisection (in log) with _basic(parts, delta) <= eps; 1 when none is."""
    if _basic(parts, 1 - 1e-12) > epsilon_:
        return 1.0
    enough = bisected(lambda log: _basic(parts, math.exp(log)) <= epsilon_, 0.0, math.log(1e-300), rounds=100)
    return math.exp(enough)
