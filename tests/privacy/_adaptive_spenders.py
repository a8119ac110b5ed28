"""The best adaptive spender against an admission rule, by dynamic programming over (what the rule keeps, loss so far).

A cost becomes the pair of laws that is worst under its curve delta(eps), on a lattice of losses: between lattice points
the curve is replaced by its chord in e^eps, so the lattice law dominates and every value errs upwards. The spender sees
the loss so far, and stops or asks for any admitted release; its value is E (1 - exp(eps - loss))_+, the true delta.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.signal import fftconvolve

from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.filter import FilterState, PrivacyFilter, slack_floor
from dplangevin.accounting.generalized_gaussian import CorrectedNoise, GeneralizedGaussian
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    OppositeMixtures,
    Profile,
    Pure,
    RenyiCurve,
    SampledGaussian,
)
from unit._ledger import make_guarantee

sys.setrecursionlimit(20_000)


@dataclass(frozen=True, eq=False)
class LatticeLaw:
    """P-masses at step (low, low + 1, ...) and at infinity."""

    low: int
    mass: Floats
    infinity: float


def lattice_law(cost: Guarantee, step: float, most: int = 3000) -> LatticeLaw:
    """The worst symmetric pair under the cost's curve: its hockey sticks are the chords of that curve."""
    deltas = []
    for place in range(most):
        deltas.append(cost.delta(place * step))
        if deltas[-1] <= max(1e-14, slack_floor(cost)):
            break
    curve = np.minimum.accumulate(deltas)
    points = step * np.arange(len(curve))
    # hockey sticks at e^-eps follow from those at e^eps in the other direction
    epsilons = np.concatenate([-points[:0:-1], points])
    sticks = np.concatenate([1 - np.exp(-points[:0:-1]) * (1 - curve[:0:-1]), curve])
    ratio, sticks = np.concatenate([[0.0], np.exp(epsilons)]), np.concatenate([[1.0], sticks])
    hull = _lower_hull(ratio, sticks)
    sticks = np.interp(ratio, ratio[hull], sticks[hull])
    slopes = np.append(-np.diff(sticks) / np.diff(ratio), 0.0)
    mass = np.maximum(slopes[:-1] - slopes[1:], 0.0) * ratio[1:]
    return LatticeLaw(-(len(curve) - 1), mass, max(0.0, 1 - float(mass.sum())))


def _lower_hull(x: Floats, y: Floats) -> list[int]:
    kept = [0]
    for j in range(1, len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (y[b] - y[a]) * (x[j] - x[a]) < (y[j] - y[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(j)
    return kept


class Game:
    """A menu of costs under a budget."""

    def __init__(self, epsilon: float, delta: float, menu: list[Guarantee], step: float) -> None:
        self.epsilon, self.delta, self.menu, self.step = epsilon, delta, menu, step
        self.laws = [lattice_law(cost, step) for cost in menu]
        self.start = round(2 * epsilon / step)
        losses = (np.arange(self.start + round((epsilon + max(1.0, epsilon)) / step)) - self.start) * step
        self.stop: Floats = np.maximum(0.0, -np.expm1(epsilon - losses))

    def after(self, value: Floats, law: LatticeLaw) -> Floats:
        """E value(loss + X); above the lattice the value is 1, below it that of its lowest point."""
        pad = len(law.mass) + abs(law.low) + 2
        full = np.concatenate([np.full(pad, value[0]), value, np.ones(pad)])
        kernel = law.mass[::-1]
        found = np.convolve(full, kernel) if len(kernel) < 64 else fftconvolve(full, kernel)
        first = pad + law.low + len(kernel) - 1
        return np.clip(found[first : first + len(value)] + law.infinity, 0.0, 1.0)

    def value(self, begin: Any, step: Callable[[Any, int], Any]) -> float:
        """True delta over the budget's, of the best spender; step(state, item) is the next state or None."""

        @lru_cache(None)
        def best(state: Any) -> Floats:
            found = self.stop
            for item, law in enumerate(self.laws):
                nxt = step(state, item)
                if nxt is not None:
                    found = np.maximum(found, self.after(best(nxt), law))
            return found

        return float(best(begin)[self.start]) / self.delta

    def refined(self, factor: int) -> Game:
        """The same menu on a finer lattice, whose laws dominate by less."""
        return Game(self.epsilon, self.delta, self.menu, self.step / factor)

    def against_filter(self, rule: PrivacyFilter) -> float:
        def step(state: FilterState, item: int) -> FilterState | None:
            charged = rule.charge(state, self.menu[item])
            return None if charged is None or charged[0] == state else charged[0]

        return self.value(rule.start(), step)

    def against_fixed_costs(self, most: int = 8) -> float:
        """The old rule: the composition of the costs on this path, as if they had been fixed beforehand."""

        @lru_cache(None)
        def composed(counts: tuple[int, ...]) -> float:
            value = self.stop
            for count, law in zip(counts, self.laws, strict=True):
                for _ in range(count):
                    value = self.after(value, law)
            return float(value[self.start])

        def step(counts: tuple[int, ...], item: int) -> tuple[int, ...] | None:
            nxt = (*counts[:item], counts[item] + 1, *counts[item + 1 :])
            return nxt if nxt[item] <= most and composed(nxt) <= self.delta else None

        return self.value((0,) * len(self.menu), step)


def jump(size: float, chance: float) -> Profile:
    """A rare jump: loss `size` with a chance, else nothing; the shape of sampled runs."""
    grid = np.linspace(0.0, size, 40)
    deltas = chance * np.maximum(0.0, -np.expm1(grid - size))
    return Profile(epsilons=tuple(map(float, grid)), deltas=tuple(map(float, deltas)))


KINDS: dict[str, Callable[[float, float, Any], Guarantee]] = {
    "gaussian": lambda mu, delta, rng: make_guarantee(Gaussian(mu=mu)),
    "pure": lambda mu, delta, rng: make_guarantee(Pure(value=mu)),
    "token": lambda mu, delta, rng: make_guarantee(extra_delta=delta * rng.uniform(0.03, 0.5)),
    "gaussian and token": lambda mu, delta, rng: make_guarantee(
        Gaussian(mu=mu), extra_delta=delta * rng.uniform(0.01, 0.2)
    ),
    "pair": lambda mu, delta, rng: make_guarantee(
        Approximate(value=mu, slack=delta * rng.uniform(0.01, 0.3))
    ),
    "bounded range": lambda mu, delta, rng: make_guarantee(BoundedRange(value=2 * mu)),
    "zCDP": lambda mu, delta, rng: make_guarantee(Concentrated(rho=mu**2 / 2)),
    "RenyiCurve": lambda mu, delta, rng: make_guarantee(
        RenyiCurve(orders=(2.0, 4.0, 8.0, 32.0), values=tuple(mu**2 / 2 * a for a in (2.0, 4.0, 8.0, 40.0)))
    ),
    "poisson": lambda mu, delta, rng: make_guarantee(
        SampledGaussian(rate=0.2, noise_multiplier=0.6 / mu, sampling="poisson", count=2)
    ),
    "without replacement": lambda mu, delta, rng: make_guarantee(
        SampledGaussian(rate=0.2, noise_multiplier=0.5 / mu, sampling="without-replacement")
    ),
    "opposite mixtures": lambda mu, delta, rng: make_guarantee(
        OppositeMixtures(rate=0.25, noise_multiplier=0.6 / mu)
    ),
    "rare jump": lambda mu, delta, rng: make_guarantee(
        jump(mu * rng.uniform(0.7, 4), 10 ** rng.uniform(-5, -0.6))
    ),
    "generalized Gaussian": lambda mu, delta, rng: make_guarantee(
        GeneralizedGaussian(p=float(rng.choice([1.0, 3.0])), shift=mu, changed=1, answers=5)
    ),
    "corrected noise": lambda mu, delta, rng: make_guarantee(
        CorrectedNoise(
            noise=GeneralizedGaussian(p=4.0, shift=mu, changed=1, answers=8),
            n_corrections=1,
            search_epsilon=mu / 3,
            answer_epsilon=mu / 3,
        )
    ),
    "several": lambda mu, delta, rng: make_guarantee(
        Gaussian(mu=0.6 * mu), Pure(value=0.3 * mu, count=2), BoundedRange(value=0.4 * mu)
    ),
}
"""Every kind of cost that the library issues, by about the size mu of a GDP release."""


SLOW_KINDS = {
    "poisson",
    "without replacement",
    "opposite mixtures",
    "generalized Gaussian",
    "corrected noise",
}
"""Kinds whose curves take long; one of them is on a menu at most."""


def random_game(rng: np.random.Generator, *, quick: bool = False) -> tuple[Game, PrivacyFilter, list[str]]:
    """A budget, a split and two or three costs of which a handful fit."""
    while True:
        epsilon, delta = float(rng.choice([0.5, 1.0, 3.0])), float(10 ** rng.uniform(-7, -2))
        rule = PrivacyFilter(
            epsilon=epsilon,
            delta=delta,
            delta_fraction=float(rng.choice([0.01, 0.1, 0.25, 0.5])),
            pure_reserve=float(rng.choice([0.0, 0.0, 0.3])) * epsilon,
            split_at_once=bool(rng.random() < 0.4),
        )
        mu, step = cv.gdp_mu(epsilon, delta), epsilon / 120
        names, menu = [], []
        drawn = [str(name) for name in rng.choice(list(KINDS), 3, replace=False)]
        slow = [name for name in drawn if name in SLOW_KINDS]
        for name in drawn:
            if name in slow[0 if quick else 1 :] or (name == "corrected noise" and rng.random() < 0.8):
                continue
            # on the lattice, since sums of pure costs reach epsilon exactly and the lattice law must not go beyond
            size = max(2, round(mu * rng.uniform(0.35, 0.8) / step)) * step
            cost = KINDS[name](float(size), delta, rng)
            if math.isfinite(cost.delta(0.0)) and _takes_a_share(rule, cost):
                names.append(str(name))
                menu.append(cost)
        if len(menu) > 1:
            return Game(epsilon, delta, menu, step), rule, names


def _takes_a_share(rule: PrivacyFilter, cost: Guarantee) -> bool:
    """Does at least one fit, and no more than about eight? More make too many states."""
    state, count = rule.start(), 0
    while count < 7:
        charged = rule.charge(state, cost)
        if charged is None:
            return count > 0
        state, count = charged[0], count + 1
    return False
