"""The parts of a guarantee: each is a privacy cost in one published definition, with the number of times it is used.

A part knows its own curve and, where the theory allows, its Renyi curve and a dominating pair as a privacy loss
distribution. `accounting.compose` composes parts.

One Poisson-sampled Gaussian step under replace-one: two mixtures with opposite second components.

Units: the noise has standard deviation nm (the noise multiplier) and each record moves the mean by at most 1, with
probability q (the rate). The worst pair (docs/theory/accountant.md, section 5) is

    P = (1 - q) N(0, nm^2) + q N(1, nm^2)    against    Q = (1 - q) N(0, nm^2) + q N(-1, nm^2).

P is the mirror image of Q, so both directions have one curve. With r(x) = 1 - q + q exp((2x - 1) / (2 nm^2)) as in
`sampled_gaussian`, P/Q = r(x) / r(-x), which grows with x: the best tests are half-lines. The curve of C_q(G_{2/nm})
(every pair of means at distance 2) is above, and replaces it where the numerics here are not accurate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

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


_MIXTURE_BANDS = (  # (orders above, orders up to, fraction of the usual step)
    (1.0, 64.0, 0.5),
    (64.0, 256.0, 0.25),
)
_MAX_NOISE_MULTIPLIER = 1e8  # for larger ones, the threshold of the best test is lost in rounding


def mixture_hockey_stick(rate: float, noise_multiplier: float, epsilon: ArrayLike) -> Floats:
    """Return H_g(P || Q) = sup_S P(S) - g Q(S), g = e^eps above or below 1, rounded up; never below 1e-300.

    For g >= 1 the half-line x > t with P/Q(t) = g is best: z = e^{t / nm^2} solves
    c z^2 - (1 - q)(g - 1) z - g c = 0, c = q e^{-1/(2 nm^2)}. Below, 1 - g + g H_{1/g}(P || Q).

    Examples
    --------
    >>> print(f"{mixture_hockey_stick(0.3, 2.0, 0.5)[()]:.6e} {mixture_hockey_stick(1.0, 2.0, 0.0)[()]:.6f}")
    7.457547e-03 0.382925
    """
    upper_bound = sg.sampled_hockey_stick(rate, noise_multiplier / 2, epsilon)
    if rate == 1 or noise_multiplier > _MAX_NOISE_MULTIPLIER:
        return upper_bound
    nm, log_q = noise_multiplier, math.log(rate)
    eps = np.asarray(epsilon, float)
    size = np.abs(eps)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_common = math.log1p(-rate) + size + np.log(-np.expm1(-size))  # (1 - q)(g - 1)
        log_cross = math.log(2) + size / 2 + log_q - 0.5 / nm**2
        log_root = np.logaddexp(2 * log_common, 2 * log_cross) / 2
        threshold = nm * (np.logaddexp(log_common, log_root) - math.log(2) - log_q + 0.5 / nm**2)  # t / nm
        gained = log_q + log_ndtr(1 / nm - threshold)
        lost = np.logaddexp(log_common + log_ndtr(-threshold), size + log_q + log_ndtr(-1 / nm - threshold))
        slack = 1e-15 * (2 + np.abs(gained) + np.abs(lost) + size)  # rounding of the logarithms
        above = np.exp(gained) * -np.expm1(np.minimum(lost - gained, 0.0) - slack) * (1 + 1e-9)
    above = np.where(gained < -680, 1e-300, np.where(np.isnan(above), 1.0, above))
    below = (-np.expm1(-size) + np.exp(-size) * above) * (1 + 1e-15)
    return np.asarray(np.clip(np.minimum(np.where(eps >= 0, above, below), upper_bound), 1e-300, 1.0))


def max_mixture_loss(rate: float, noise_multiplier: float) -> float:
    """Return an eps above which `mixture_hockey_stick` is below 1e-30: it is at most q Phi((1 - t) / nm)."""
    if rate == 1 or noise_multiplier > _MAX_NOISE_MULTIPLIER:
        return sg.max_sampled_loss(rate, noise_multiplier / 2)
    end = 1 + noise_multiplier * math.sqrt(2 * max(math.log(rate) + 30 * math.log(10), 0.0))
    return float(_log_ratio(np.array([end]), rate, noise_multiplier)[0])


def renyi_opposite_mixtures(orders: ArrayLike, rate: float, noise_multiplier: float) -> Floats:
    """Return D_alpha(P || Q) = log(int phi r(x)^alpha r(-x)^{1 - alpha}) / (alpha - 1), by the trapezoid rule.

    In the strip |Im x| <= theta nm^2 the integrand is at most e^{(theta nm)^2 / 2} sec(theta / 2)^{alpha - 1} times
    its value at Re x, so with the steps of _MIXTURE_BANDS the relative error is below e^{-33}; larger orders take the
    curve of C_q(G_{2/nm}), which is above.

    Examples
    --------
    >>> print(f"{renyi_opposite_mixtures([2.0], 0.01, 1.0)[0]:.6e}")
    4.575544e-04
    """
    above = sg.renyi_without_replacement(orders, rate, noise_multiplier / 2)
    if rate == 1 or noise_multiplier > _MAX_NOISE_MULTIPLIER:
        return above
    alpha, nm = np.atleast_1d(np.asarray(orders, float)), noise_multiplier
    for low, high, fraction in _MIXTURE_BANDS:
        band = (alpha > low) & (alpha <= high)
        step, nodes = sg.trapezoid_grid(float(alpha[band].max(initial=1.0)) + 1, fraction, nm)
        if not band.any() or nodes > sg.MAX_NODES:
            continue
        x = -1 - 14 * nm + step * np.arange(math.ceil(nodes) + 1, dtype=np.float64)
        log_weight = sg.log_normal_weights(x, step, nm) + sg.log_density_ratio(-x, rate, nm)
        moments = sg.moments_by_rule(alpha[band], _log_ratio(x, rate, nm), log_weight)
        above[band] = np.fmin(above[band], moments / (alpha[band] - 1) * (1 + 1e-9))
    return np.asarray(np.maximum(above, 1e-300))


def _log_ratio(x: Floats, rate: float, noise_multiplier: float) -> Floats:
    """Return log P/Q at x."""
    return np.asarray(
        sg.log_density_ratio(x, rate, noise_multiplier) - sg.log_density_ratio(-x, rate, noise_multiplier)
    )


@lru_cache(maxsize=64)
def _mixture_pld(rate: float, noise_multiplier: float, grid: float) -> Any:
    span = max_mixture_loss(rate, noise_multiplier)
    return symmetric_pld(lambda eps: mixture_hockey_stick(rate, noise_multiplier, eps), span, grid)


@dataclass(frozen=True, kw_only=True)
class OppositeMixtures(PrivacyPart):
    """One Poisson-sampled step of the Gaussian mechanism under replace-one; noise_multiplier = noise / |gradient|."""

    kind: ClassVar[str] = "pld"
    rate: float
    noise_multiplier: float

    def delta(self, epsilon: float) -> float:
        return float(mixture_hockey_stick(self.rate, self.noise_multiplier, epsilon))

    def rdp(self, orders: Floats) -> Floats:
        return renyi_opposite_mixtures(orders, self.rate, self.noise_multiplier)

    def zcdp(self) -> float:
        # quasi-convexity, N(1) against N(-1); no amplification at large orders
        return cv.square_ratio_up(2 / self.noise_multiplier, 2)

    def pld(self, grid: float) -> Any:
        if self.rate == 1:
            return gaussian_pld(2 / self.noise_multiplier, grid)
        return _mixture_pld(self.rate, self.noise_multiplier, grid)
