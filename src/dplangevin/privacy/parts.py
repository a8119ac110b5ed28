"""What a guarantee is made of: one published currency of privacy per class, with the number of times it was spent.

A part knows its own curve, and, where the theory allows, its Renyi curve and a dominating pair as a privacy loss
distribution. Adding parts up is written once, in `compose`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.privacy import conversions as cv, sampled_gaussian as sg
from dplangevin.privacy._pld import (
    connect_the_dots,
    gaussian_pld,
    pure_pld,
    sampled_gaussian_pld,
    symmetric_profile,
)


@dataclass(frozen=True, kw_only=True)
class Part(ABC):
    """`count` independent, adaptively chosen uses of one mechanism."""

    kind: ClassVar[str]
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _check.count("count", self.count))

    def times(self, count: int) -> Part:
        """The part used `count` times as often."""
        return replace(self, count=self.count * _check.count("count", count))

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """delta at epsilon of ONE use."""

    def epsilon(self, delta: float) -> float:
        """epsilon at delta of ONE use, rounded up."""
        return cv._invert_decreasing(self.delta, delta)

    def pure(self) -> float:
        """The epsilon of ONE use with delta = 0; infinity when there is none."""
        return math.inf

    def floor(self) -> float:
        """The smallest delta at which ONE use promises a finite epsilon (its limit, when none is smallest)."""
        return 0.0

    def rdp(self, orders: Floats) -> Floats | None:
        """Renyi curve of ONE use, or None when none is proved."""
        return None

    def zcdp(self) -> float:
        """rho with Renyi divergence of ONE use at most rho alpha at every order; infinity when none is proved.

        eps-DP is (eps^2 / 2)-zCDP (Bun and Steinke, 2016, Proposition 3.3), and eps-zCDP because alpha > 1.
        """
        return min(cv.square_over(self.pure(), 2), self.pure())

    def pld(self, grid: float) -> Any | None:
        """dp-accounting's PrivacyLossDistribution of ONE use on a grid, or None without a dominating pair."""
        return None

    def event(self) -> Any | None:
        """dp-accounting's DpEvent of ONE use, or None where none exists."""
        return None

    def group(self, size: int) -> Part:
        """What one use promises to a group of `size` records."""
        raise InvalidParameter(f"no group guarantee is proved for {self.kind} parts of a group of {size}.")


def _response_event(epsilon: float) -> Any:
    """Randomised response, the worst eps-DP mechanism: it answers at random with probability 2 / (1 + e^eps)."""
    from dp_accounting import dp_event

    if epsilon == 0:
        return dp_event.NoOpDpEvent()
    # rounded down, so that the event is never the more private of the two; 0 is an answer without noise
    noise = 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon)) * (1 - 1e-15)
    return dp_event.RandomizedResponseDpEvent(noise_parameter=noise, num_buckets=2)


@dataclass(frozen=True, kw_only=True)
class _BoundedLoss(Part):
    """A loss that never exceeds `value`, which a group multiplies by its size."""

    value: float

    def pure(self) -> float:
        return self.value

    def event(self) -> Any:
        return _response_event(self.value)

    def group(self, size: int) -> Part:
        return replace(self, value=cv.times_up(self.value, size))


@dataclass(frozen=True, kw_only=True)
class Pure(_BoundedLoss):
    """eps-DP."""

    kind: ClassVar[str] = "pure"

    def delta(self, epsilon: float) -> float:
        return cv.pure_delta(self.value, epsilon)

    def epsilon(self, delta: float) -> float:
        return cv.pure_epsilon(self.value, delta)

    def rdp(self, orders: Floats) -> Floats:
        return cv.pure_rdp(self.value, orders)

    def pld(self, grid: float) -> Any:
        return pure_pld(self.value, 0.0, grid)


@dataclass(frozen=True, kw_only=True)
class BoundedRange(_BoundedLoss):
    """The log density ratio lies in an interval of length eps: eps-DP and (eps^2/8)-zCDP."""

    kind: ClassVar[str] = "bounded-range"

    def delta(self, epsilon: float) -> float:
        return cv.bounded_range_delta(self.value, epsilon)

    def epsilon(self, delta: float) -> float:
        return cv.bounded_range_epsilon(self.value, delta)

    def rdp(self, orders: Floats) -> Floats:
        return np.minimum(orders * cv.square_over(self.value, 8), cv.pure_rdp(self.value, orders))

    def zcdp(self) -> float:
        return min(cv.square_over(self.value, 8), self.value)

    def pld(self, grid: float) -> Any | None:
        # the worst curve over all bounded-range laws is a supremum of convex ones, so it has a dominating pair
        epsilons = np.linspace(0.0, self.value, 201)
        deltas = np.array([self.delta(float(epsilon)) for epsilon in epsilons])
        return connect_the_dots(epsilons, deltas, grid)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Part):
    """mu-GDP: no easier to attack than telling N(0, 1) from N(mu, 1)."""

    kind: ClassVar[str] = "gdp"
    mu: float

    def delta(self, epsilon: float) -> float:
        return float(cv.gdp_delta(self.mu, epsilon))

    def epsilon(self, delta: float) -> float:
        return cv.gdp_epsilon(self.mu, delta)

    def rdp(self, orders: Floats) -> Floats:
        return orders * cv.square_over(self.mu, 2)

    def zcdp(self) -> float:
        return cv.square_over(self.mu, 2)

    def pld(self, grid: float) -> Any | None:
        return gaussian_pld(self.mu, grid) if 0 < self.mu < math.inf else None

    def event(self) -> Any:
        from dp_accounting import dp_event

        if self.mu == 0:
            return dp_event.NoOpDpEvent()
        return dp_event.GaussianDpEvent(1 / self.mu * (1 - 1e-15) if self.mu < math.inf else 0.0)

    def group(self, size: int) -> Part:
        return replace(self, mu=cv.times_up(self.mu, size))


@dataclass(frozen=True, kw_only=True)
class Concentrated(Part):
    """rho-zCDP: Renyi divergence at most rho alpha at every order. It does not imply GDP."""

    kind: ClassVar[str] = "rdp"
    rho: float

    def delta(self, epsilon: float) -> float:
        return cv.zcdp_delta(self.rho, epsilon)

    def epsilon(self, delta: float) -> float:
        return cv.zcdp_epsilon(self.rho, delta)

    def rdp(self, orders: Floats) -> Floats:
        return orders * self.rho

    def zcdp(self) -> float:
        return self.rho

    def event(self) -> Any:
        from dp_accounting import dp_event

        return dp_event.ZCDpEvent(self.rho)

    def group(self, size: int) -> Part:
        return replace(self, rho=cv.times_up(self.rho, size**2))


@dataclass(frozen=True, kw_only=True)
class Renyi(Part):
    """A Renyi curve known at some orders; other orders take the next known one above (divergences grow with it)."""

    kind: ClassVar[str] = "rdp"
    orders: tuple[float, ...]
    values: tuple[float, ...]

    def delta(self, epsilon: float) -> float:
        return cv.rdp_delta(self.orders, self.values, epsilon)

    def epsilon(self, delta: float) -> float:
        return cv.rdp_epsilon(self.orders, self.values, delta)

    def rdp(self, orders: Floats) -> Floats:
        known = np.asarray(self.orders)
        place = np.searchsorted(known, np.asarray(orders))
        return np.append(np.asarray(self.values), np.inf)[place]


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(Part):
    """One step of the Gaussian mechanism on a random batch; noise_multiplier = noise / sensitivity."""

    kind: ClassVar[str] = "pld"
    rate: float
    noise_multiplier: float
    sampling: str

    def delta(self, epsilon: float) -> float:
        return float(sg.hockey_stick(self.rate, self.noise_multiplier, epsilon))

    def rdp(self, orders: Floats) -> Floats:
        curve = sg.renyi_poisson if self.sampling == "poisson" else sg.renyi_without_replacement
        return curve(orders, self.rate, self.noise_multiplier)

    def zcdp(self) -> float:
        # sampling helps at no large order: the divergence of the mixture tends to that of the Gaussian
        return cv.square_over(1 / self.noise_multiplier, 2)

    def pld(self, grid: float) -> Any:
        if self.rate == 1:
            return gaussian_pld(1 / self.noise_multiplier, grid)
        if self.sampling == "poisson":
            return sampled_gaussian_pld(self.rate, self.noise_multiplier, grid)
        span = sg.largest_loss(self.rate, self.noise_multiplier)
        return symmetric_profile(
            lambda eps: sg.hockey_stick(self.rate, self.noise_multiplier, eps), span, grid
        )

    def event(self) -> Any | None:
        from dp_accounting import dp_event

        if self.sampling != "poisson":
            return None
        return dp_event.PoissonSampledDpEvent(self.rate, dp_event.GaussianDpEvent(self.noise_multiplier))


@dataclass(frozen=True, kw_only=True)
class Profile(Part):
    """delta(eps) in both directions, known on a grid of eps.

    The true curve is convex in e^eps, so the chord in e^eps between two valid points is valid.
    """

    kind: ClassVar[str] = "approximate"
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def delta(self, epsilon: float) -> float:
        place = int(np.searchsorted(self.epsilons, epsilon, side="right")) - 1
        if place < 0:
            return 1.0
        left = self.deltas[place]
        if place + 1 == len(self.epsilons):
            return left
        width = self.epsilons[place + 1] - self.epsilons[place]
        share = math.expm1(epsilon - self.epsilons[place]) / math.expm1(width) if width < 700 else 0.0
        return left + share * (self.deltas[place + 1] - left)

    def epsilon(self, delta: float) -> float:
        good = np.flatnonzero(np.asarray(self.deltas) <= delta)
        if good.size == 0:
            return math.inf
        place = int(good[0])
        high = self.epsilons[place]
        if place == 0 or self.deltas[place] == self.deltas[place - 1]:
            return high
        low, width = self.epsilons[place - 1], high - self.epsilons[place - 1]
        if width >= 700:
            return high
        share = (self.deltas[place - 1] - delta) / (self.deltas[place - 1] - self.deltas[place])
        return min(high, (low + math.log1p(share * math.expm1(width))) * (1 + 1e-14))

    def floor(self) -> float:
        return self.deltas[-1]

    def pld(self, grid: float) -> Any | None:
        return connect_the_dots(np.asarray(self.epsilons), np.asarray(self.deltas), grid)

    def group(self, size: int) -> Part:
        eps, delta = np.asarray(self.epsilons), np.asarray(self.deltas)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = np.where(eps > 0, np.expm1(size * eps) / np.expm1(eps), size)
        grown = np.nan_to_num(np.minimum(1.0, delta * factor * (1 + 1e-14)), nan=1.0)
        epsilons = tuple(cv.times_up(float(epsilon), size) for epsilon in eps)
        return replace(self, epsilons=epsilons, deltas=tuple(map(float, np.minimum.accumulate(grown))))


@dataclass(frozen=True, kw_only=True)
class Approximate(Part):
    """One pair (eps, delta)."""

    kind: ClassVar[str] = "approximate"
    value: float
    slack: float

    def delta(self, epsilon: float) -> float:
        return min(1.0, self.slack + (1 - self.slack) * cv.pure_delta(self.value, epsilon) * (1 + 1e-15))

    def epsilon(self, delta: float) -> float:
        if delta < self.slack:
            return math.inf
        return cv._invert_decreasing(self.delta, delta, start=max(self.value, 1e-300))

    def floor(self) -> float:
        return self.slack

    def pld(self, grid: float) -> Any | None:
        # dp-accounting cannot compose a distribution without a finite loss
        return pure_pld(self.value, self.slack, grid) if self.slack < 1 else None


Parts = tuple[Part, ...]


def merged(parts: Parts) -> Parts:
    """Equal parts as one with the counts added."""
    kept: dict[Part, int] = {}
    for part in parts:
        single = part if part.count == 1 else replace(part, count=1)
        kept[single] = kept.get(single, 0) + part.count
    return tuple(replace(part, count=count) for part, count in kept.items())
