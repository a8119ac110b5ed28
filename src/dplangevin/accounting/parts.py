"""The parts of a guarantee: each is a privacy cost in one published definition, with the number of times it is used.

A part knows its own curve and, where the theory allows, its Renyi curve and a dominating pair as a privacy loss
distribution. `accounting.compose` composes parts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv, sampled_gaussian as sg
from dplangevin.accounting.pld import (
    connect_the_dots,
    gaussian_pld,
    pure_pld,
    sampled_gaussian_pld,
    symmetric_pld,
)
from dplangevin.errors import InvalidParameter


@dataclass(frozen=True, kw_only=True)
class PrivacyPart(ABC):
    """The privacy cost of `count` uses of one mechanism with independent noise, adaptively chosen."""

    kind: ClassVar[str]
    count: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", _check.check_count("count", self.count))

    def repeat(self, count: int) -> PrivacyPart:
        """Return the part used `count` times as often."""
        return replace(self, count=self.count * _check.check_count("count", count))

    @abstractmethod
    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon of ONE use."""

    def epsilon(self, delta: float) -> float:
        """Return epsilon at delta of ONE use, rounded up."""
        return cv._invert_decreasing(self.delta, delta)

    def pure_epsilon(self) -> float:
        """Return the epsilon of ONE use with delta = 0; infinity when there is none."""
        return math.inf

    def min_delta(self) -> float:
        """Return the smallest delta at which ONE use has a finite epsilon (the infimum, if it is not attained)."""
        return 0.0

    def rdp(self, orders: Floats) -> Floats | None:
        """Return the Renyi curve of ONE use, or None when none is proved."""
        return None

    def zcdp(self) -> float:
        """Return rho with Renyi divergence of ONE use at most rho alpha at every order; infinity when none is proved.

        eps-DP is (eps^2 / 2)-zCDP (Bun and Steinke, 2016, Proposition 3.3), and eps-zCDP because alpha > 1.
        """
        return min(cv.square_ratio_up(self.pure_epsilon(), 2), self.pure_epsilon())

    def pld(self, grid: float) -> Any | None:
        """Return dp-accounting's PrivacyLossDistribution of ONE use on a grid, or None without a dominating pair."""
        return None

    def to_dp_event(self) -> Any | None:
        """Return dp-accounting's DpEvent of ONE use, or None where none exists."""
        return None

    def group(self, size: int) -> PrivacyPart:
        """Return the part for a group of `size` records, for ONE use."""
        raise InvalidParameter(
            f"no group guarantee is proved for {self.kind} parts and groups of {size} records."
        )


def _response_event(epsilon: float) -> Any:
    """Return randomised response, the worst eps-DP mechanism: a random answer with probability 2 / (1 + e^eps)."""
    from dp_accounting import dp_event

    if epsilon == 0:
        return dp_event.NoOpDpEvent()
    # rounded down, so that the event is never more private than the part; 0 is an answer without noise
    noise = 2 * math.exp(-epsilon) / (1 + math.exp(-epsilon)) * (1 - 1e-15)
    return dp_event.RandomizedResponseDpEvent(noise_parameter=noise, num_buckets=2)


@dataclass(frozen=True, kw_only=True)
class _BoundedLoss(PrivacyPart):
    """A privacy loss that never exceeds `value`, which a group multiplies by its size."""

    value: float

    def pure_epsilon(self) -> float:
        return self.value

    def to_dp_event(self) -> Any:
        return _response_event(self.value)

    def group(self, size: int) -> PrivacyPart:
        return replace(self, value=cv.multiply_up(self.value, size))


@dataclass(frozen=True, kw_only=True)
class Pure(_BoundedLoss):
    """eps-DP, with eps = `value`."""

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
        return np.minimum(orders * cv.square_ratio_up(self.value, 8), cv.pure_rdp(self.value, orders))

    def zcdp(self) -> float:
        return min(cv.square_ratio_up(self.value, 8), self.value)

    def pld(self, grid: float) -> Any | None:
        # the worst curve over all bounded-range mechanisms is a supremum of convex ones, so it has a dominating pair
        epsilons = np.linspace(0.0, self.value, 201)
        deltas = np.array([self.delta(float(epsilon)) for epsilon in epsilons])
        return connect_the_dots(epsilons, deltas, grid)


@dataclass(frozen=True, kw_only=True)
class Gaussian(PrivacyPart):
    """mu-GDP: no easier to attack than distinguishing N(0, 1) from N(mu, 1)."""

    kind: ClassVar[str] = "gdp"
    mu: float

    def delta(self, epsilon: float) -> float:
        return float(cv.gdp_delta(self.mu, epsilon))

    def epsilon(self, delta: float) -> float:
        return cv.gdp_epsilon(self.mu, delta)

    def rdp(self, orders: Floats) -> Floats:
        return orders * cv.square_ratio_up(self.mu, 2)

    def zcdp(self) -> float:
        return cv.square_ratio_up(self.mu, 2)

    def pld(self, grid: float) -> Any | None:
        return gaussian_pld(self.mu, grid) if 0 < self.mu < math.inf else None

    def to_dp_event(self) -> Any:
        from dp_accounting import dp_event

        if self.mu == 0:
            return dp_event.NoOpDpEvent()
        return dp_event.GaussianDpEvent(1 / self.mu * (1 - 1e-15) if self.mu < math.inf else 0.0)

    def group(self, size: int) -> PrivacyPart:
        return replace(self, mu=cv.multiply_up(self.mu, size))


@dataclass(frozen=True, kw_only=True)
class Concentrated(PrivacyPart):
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

    def to_dp_event(self) -> Any:
        from dp_accounting import dp_event

        return dp_event.ZCDpEvent(self.rho)

    def group(self, size: int) -> PrivacyPart:
        return replace(self, rho=cv.multiply_up(self.rho, size**2))


@dataclass(frozen=True, kw_only=True)
class RenyiCurve(PrivacyPart):
    """A Renyi curve known at some orders; other orders take the next larger known one (divergences grow with it)."""

    kind: ClassVar[str] = "rdp"
    orders: tuple[float, ...]
    values: tuple[float, ...]

    def delta(self, epsilon: float) -> float:
        return cv.rdp_delta(self.orders, self.values, epsilon)

    def epsilon(self, delta: float) -> float:
        return cv.rdp_epsilon(self.orders, self.values, delta)

    def rdp(self, orders: Floats) -> Floats:
        index = np.searchsorted(np.asarray(self.orders), np.asarray(orders))
        return np.append(np.asarray(self.values), np.inf)[index]


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(PrivacyPart):
    """One step of the Gaussian mechanism on a random batch; noise_multiplier = noise_std / sensitivity."""

    kind: ClassVar[str] = "pld"
    rate: float
    noise_multiplier: float
    sampling: str

    def delta(self, epsilon: float) -> float:
        return float(sg.sampled_hockey_stick(self.rate, self.noise_multiplier, epsilon))

    def rdp(self, orders: Floats) -> Floats:
        curve = sg.renyi_poisson if self.sampling == "poisson" else sg.renyi_without_replacement
        return curve(orders, self.rate, self.noise_multiplier)

    def zcdp(self) -> float:
        # no amplification at large orders: the divergence of the mixture tends to that of the Gaussian
        return cv.square_ratio_up(1 / self.noise_multiplier, 2)

    def pld(self, grid: float) -> Any:
        if self.rate == 1:
            return gaussian_pld(1 / self.noise_multiplier, grid)
        if self.sampling == "poisson":
            return sampled_gaussian_pld(self.rate, self.noise_multiplier, grid)
        span = sg.max_sampled_loss(self.rate, self.noise_multiplier)
        return symmetric_pld(
            lambda eps: sg.sampled_hockey_stick(self.rate, self.noise_multiplier, eps), span, grid
        )

    def to_dp_event(self) -> Any | None:
        from dp_accounting import dp_event

        if self.sampling != "poisson":
            return None
        return dp_event.PoissonSampledDpEvent(self.rate, dp_event.GaussianDpEvent(self.noise_multiplier))


@dataclass(frozen=True, kw_only=True)
class Profile(PrivacyPart):
    """delta(eps) in both directions, known on a grid of eps.

    The true curve is convex in e^eps, so the chord in e^eps between two valid points is valid.
    """

    kind: ClassVar[str] = "approximate"
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    def delta(self, epsilon: float) -> float:
        index = int(np.searchsorted(self.epsilons, epsilon, side="right")) - 1
        if index < 0:
            return 1.0
        left = self.deltas[index]
        if index + 1 == len(self.epsilons):
            return left
        width = self.epsilons[index + 1] - self.epsilons[index]
        weight = math.expm1(epsilon - self.epsilons[index]) / math.expm1(width) if width < 700 else 0.0
        return left + weight * (self.deltas[index + 1] - left)

    def epsilon(self, delta: float) -> float:
        small_enough = np.flatnonzero(np.asarray(self.deltas) <= delta)
        if small_enough.size == 0:
            return math.inf
        index = int(small_enough[0])
        high = self.epsilons[index]
        if index == 0 or self.deltas[index] == self.deltas[index - 1]:
            return high
        low, width = self.epsilons[index - 1], high - self.epsilons[index - 1]
        if width >= 700:
            return high
        weight = (self.deltas[index - 1] - delta) / (self.deltas[index - 1] - self.deltas[index])
        return min(high, (low + math.log1p(weight * math.expm1(width))) * (1 + 1e-14))

    def min_delta(self) -> float:
        return self.deltas[-1]

    def pld(self, grid: float) -> Any | None:
        return connect_the_dots(np.asarray(self.epsilons), np.asarray(self.deltas), grid)

    def group(self, size: int) -> PrivacyPart:
        eps, delta = np.asarray(self.epsilons), np.asarray(self.deltas)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = np.where(eps > 0, np.expm1(size * eps) / np.expm1(eps), size)
        group_deltas = np.nan_to_num(np.minimum(1.0, delta * factor * (1 + 1e-14)), nan=1.0)
        epsilons = tuple(cv.multiply_up(float(epsilon), size) for epsilon in eps)
        return replace(self, epsilons=epsilons, deltas=tuple(map(float, np.minimum.accumulate(group_deltas))))


@dataclass(frozen=True, kw_only=True)
class Approximate(PrivacyPart):
    """(eps, delta)-DP at one pair, with eps = `value` and delta = `slack`."""

    kind: ClassVar[str] = "approximate"
    value: float
    slack: float

    def delta(self, epsilon: float) -> float:
        return min(1.0, self.slack + (1 - self.slack) * cv.pure_delta(self.value, epsilon) * (1 + 1e-15))

    def epsilon(self, delta: float) -> float:
        if delta < self.slack:
            return math.inf
        return cv._invert_decreasing(self.delta, delta, start=max(self.value, 1e-300))

    def min_delta(self) -> float:
        return self.slack

    def pld(self, grid: float) -> Any | None:
        # dp-accounting cannot compose a distribution without a finite loss
        return pure_pld(self.value, self.slack, grid) if self.slack < 1 else None


PrivacyParts = tuple[PrivacyPart, ...]


def merge_equal_parts(parts: PrivacyParts) -> PrivacyParts:
    """Return the parts with equal ones merged into one, whose count is the sum."""
    counts: dict[PrivacyPart, int] = {}
    for part in parts:
        single = part if part.count == 1 else replace(part, count=1)
        counts[single] = counts.get(single, 0) + part.count
    return tuple(replace(part, count=count) for part, count in counts.items())
