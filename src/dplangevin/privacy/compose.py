"""Composition, written once: parts -> (eps, delta) in the tightest common currency.

All GDP: exact. All pure: the sum with delta = 0. Otherwise the best of Renyi addition, privacy loss
distributions (dp-accounting) where every part has a dominating pair, and basic composition for the rest.
Every candidate is valid by itself, so taking the smallest is.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dplangevin.privacy import conversions as cv
from dplangevin.privacy._pld import GRID
from dplangevin.privacy.parts import Gaussian, Part

Parts = tuple[Part, ...]


def merged(parts: Parts) -> Parts:
    """Equal parts as one with the counts added."""
    kept: dict[Part, int] = {}
    for part in parts:
        single = part if part.count == 1 else _single(part)
        kept[single] = kept.get(single, 0) + part.count
    return tuple(part.times(count) for part, count in kept.items())


def _single(part: Part) -> Part:
    from dataclasses import replace

    return replace(part, count=1)


def gaussian_mu(parts: Parts) -> float | None:
    """mu of the composition when every part is Gaussian."""
    if not all(isinstance(part, Gaussian) for part in parts):
        return None
    return math.sqrt(sum(part.count * part.mu * part.mu for part in parts if isinstance(part, Gaussian)))


def renyi(parts: Parts, orders: cv.Floats) -> cv.Floats | None:
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
    """Composed privacy loss distribution, or None when a part has no dominating pair or losses are too large."""
    grid = _grid(parts)
    if grid is None:
        return None
    total = None
    for part in parts:
        pld = part.pld(grid)
        if pld is None:
            return None
        pld = _repeated(pld, part.count)
        total = pld if total is None else total.compose(pld)
    return total


def _repeated(pld: Any, count: int) -> Any:
    """pld composed `count` times, in two stages: dp-accounting raises sparse sizes to the power of the count."""
    if count <= 256:
        return pld.self_compose(count) if count > 1 else pld
    blocks, rest = divmod(count, 256)
    total = pld.self_compose(256, tail_mass_truncation=1e-16 / blocks).self_compose(blocks)
    return total.compose(pld.self_compose(rest)) if rest else total


def _grid(parts: Parts) -> float | None:
    """The grid, coarser (by powers of two) for large losses so that time and memory stay bounded; any is valid."""
    curve = renyi(parts, cv.ORDERS)
    reach = sum(part.count * part.pure() for part in parts)
    if curve is not None:
        reach = min(reach, cv.rdp_epsilon(cv.ORDERS, curve, 1e-15))
    elif math.isinf(reach):
        reach = sum(part.count * part.epsilon(1e-15 / part.count) for part in parts)
    if not math.isfinite(reach) or reach > 1e4:
        return None
    return GRID * 2.0 ** max(0, math.ceil(math.log2(max(reach, 1e-9) / 60)))


def epsilon(parts: Parts, delta: float) -> float:
    """Smallest proved eps at delta."""
    if not parts:
        return 0.0
    mu = gaussian_mu(parts)
    if mu is not None:
        return cv.gdp_epsilon(mu, delta)
    candidates = [sum(part.count * part.pure() for part in parts)]
    if delta > 0:
        if len(parts) == 1 and parts[0].count == 1:
            candidates.append(parts[0].epsilon(delta))
        curve = renyi(parts, cv.ORDERS)
        if curve is not None:
            candidates.append(cv.rdp_epsilon(cv.ORDERS, curve, delta))
        if len(parts) > 1 or parts[0].count > 1:
            pld = loss_distribution(parts)
            if pld is not None:
                candidates.append(float(pld.get_epsilon_for_delta(delta)))
            candidates.append(_basic(parts, delta))
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
    if len(parts) == 1 and parts[0].count == 1:
        candidates.append(parts[0].delta(epsilon_))
    curve = renyi(parts, cv.ORDERS)
    if curve is not None:
        candidates.append(cv.rdp_delta(cv.ORDERS, curve, epsilon_))
    if len(parts) > 1 or parts[0].count > 1:
        pld = loss_distribution(parts)
        if pld is not None:
            candidates.append(float(pld.get_delta_for_epsilon(epsilon_)))
        elif curve is None:  # with a curve, Renyi addition is never far behind
            candidates.append(_basic_delta(parts, epsilon_))
    return min(1.0, _smallest(candidates))


def _basic(parts: Parts, delta_: float) -> float:
    """Basic composition, delta shared out: every use by itself, or Renyi parts as one and the rest apart."""
    uses = sum(part.count for part in parts)
    best = sum(part.count * part.epsilon(delta_ / uses) for part in parts)
    curved = tuple(part for part in parts if part.rdp(cv.ORDERS) is not None)
    loose = tuple(part for part in parts if part not in curved)
    if not curved or not loose:
        return best
    curve = renyi(curved, cv.ORDERS)
    assert curve is not None
    uses = sum(part.count for part in loose)
    for share in (0.5, 0.1, 0.01, 0.9, 0.99):
        each = (1 - share) * delta_ / uses
        total = sum(part.count * part.epsilon(each) for part in loose)
        best = min(best, total + cv.rdp_epsilon(cv.ORDERS, curve, share * delta_))
    return best


def _smallest(candidates: list[float]) -> float:
    valid = [value for value in candidates if not math.isnan(value)]
    return min(valid) if valid else math.inf


def _basic_delta(parts: Parts, epsilon_: float) -> float:
    """Smallest delta found by bisection (in log) with _basic(parts, delta) <= eps; 1 when none is."""
    low, high = math.log(1e-300), 0.0
    if _basic(parts, 1 - 1e-12) > epsilon_:
        return 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        if _basic(parts, math.exp(middle)) <= epsilon_:
            high = middle
        else:
            low = middle
    return math.exp(high)
