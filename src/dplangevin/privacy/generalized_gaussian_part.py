"""Generalised Gaussian noise as parts of a guarantee, so that it composes with everything else."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.generalized_gaussian import (
    certified_delta,
    coordinate_loss,
    fisher_information,
    single_renyi,
)
from dplangevin.privacy.loss_sum import LossSum, PrivacyLoss, smallest_epsilon
from dplangevin.privacy.parts import Part


@dataclass(frozen=True, kw_only=True)
class GeneralizedGaussian(Part):
    """`changed` answers move by at most `shift` (sensitivity / sigma) under GGauss(p, sigma) noise on `answers`."""

    kind: ClassVar[str] = "pld"
    p: float
    shift: float
    changed: int
    answers: int

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.pure():
            return 0.0
        if self._laplace:
            return min(1.0, -math.expm1((epsilon - self.shift) / 2) * (1 + 1e-15))
        return _delta(self.p, self.shift, self.changed, epsilon)

    def epsilon(self, delta: float) -> float:
        if delta <= 0:
            return self.pure()
        if self._laplace:  # 1 - e^((eps - s) / 2) = delta, rounded up
            exact = self.shift + 2 * math.log1p(-delta)
            return min(self.shift, max(0.0, exact + 1e-15 * (self.shift + delta)))
        spread = math.sqrt(self.changed * fisher_information(self.p)) * self.shift
        return min(self.pure(), smallest_epsilon(self.delta, delta, _first_guess(spread, delta)))

    @property
    def _laplace(self) -> bool:
        """One Laplace answer, whose curve is known in closed form."""
        return self.p == 1 and self.changed == 1

    def pure(self) -> float:
        return self.changed * self.shift if self.p == 1 else math.inf

    def rdp(self, orders: Floats) -> Floats:
        return self.changed * np.asarray(_renyi(self.p, self.shift, tuple(float(order) for order in orders)))

    def pld(self, grid: float) -> Any:
        spread = math.sqrt(fisher_information(self.p)) * self.shift
        step = max(spread / 64, 20 * math.sqrt(self.changed) * spread / 2**19)
        cap = 50 + 40 * spread * math.sqrt(self.changed)
        return _to_pld(LossSum(coordinate_loss(self.p, self.shift, step, cap, self.changed)), grid)

    def group(self, size: int) -> Part:
        return replace(
            self, shift=cv.times_up(self.shift, size), changed=min(self.answers, self.changed * size)
        )


@dataclass(frozen=True, kw_only=True)
class CorrectedNoise(Part):
    """Generalised Gaussian noise followed by `hits` sparse-vector searches and Laplace answers, in one sum of losses.

    Each search is search_epsilon-DP (dominated by randomised response), each answer answer_epsilon-DP (Laplace).
    """

    kind: ClassVar[str] = "pld"
    noise: GeneralizedGaussian
    hits: int
    search_epsilon: float
    answer_epsilon: float

    def losses(self, step: float, cap: float) -> LossSum:
        """All privacy losses on one grid."""
        noise = self.noise
        return LossSum(
            coordinate_loss(noise.p, noise.shift, step, cap, noise.changed),
            response_loss(self.search_epsilon, step, self.hits),
            coordinate_loss(1.0, self.answer_epsilon, step, cap, self.hits),
        )

    def delta(self, epsilon: float) -> float:
        return self.losses(*self._grid(epsilon)).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        return smallest_epsilon(self.delta, delta, _first_guess(self._spread(), delta))

    def pld(self, grid: float) -> Any:
        return _to_pld(self.losses(*self._grid(0.0)), grid)

    def _spread(self) -> float:
        noise = self.noise
        extra = self.hits * (self.search_epsilon**2 + self.answer_epsilon**2)
        return math.sqrt(noise.changed * fisher_information(noise.p) * noise.shift**2 + extra)

    def _grid(self, epsilon: float) -> tuple[float, float]:
        single = math.sqrt(fisher_information(self.noise.p)) * self.noise.shift
        return max(single / 128, 24 * self._spread() / 2**19), epsilon + 40 + 12 * self._spread()


def _first_guess(spread: float, delta: float) -> float:
    """That of Gaussian noise; not much less than one loss, since the search takes steps of its size."""
    return max(cv.gdp_epsilon(spread, delta), 0.05 * spread) + 1e-9


def response_loss(epsilon: float, step: float, count: int) -> PrivacyLoss:
    """Randomised response, the worst eps-DP mechanism: loss +-eps with odds e^eps : 1, rounded up to the grid."""
    cells = math.ceil(epsilon / step - 1e-9)
    mass = np.zeros(2 * cells + 1)
    level = cells * step
    mass[-1], mass[0] = 1 / (1 + math.exp(-level)), 1 / (1 + math.exp(level))
    return PrivacyLoss(step=step, first=-cells, mass=mass, infinity=0.0, count=count)


@lru_cache(maxsize=4096)
def _delta(p: float, shift: float, changed: int, epsilon: float) -> float:
    return certified_delta(p, shift, changed, epsilon)


@lru_cache(maxsize=64)
def _renyi(p: float, shift: float, orders: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(single_renyi(p, shift, np.asarray(orders)))


def _to_pld(total: LossSum, grid: float) -> Any:
    """dp-accounting's distribution on its grid: each mass is split between two neighbours, by connecting the dots."""
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution as pld

    losses, masses, infinity = total.distribution()
    kept = masses > 0
    losses, masses = losses[kept], masses[kept]
    cell = np.floor(losses / grid)
    right = masses * np.expm1(-(losses - cell * grid)) / math.expm1(-grid)
    right = np.clip(right, 0.0, masses)
    first = int(cell[0]) if cell.size else 0
    place = (cell - first).astype(int)
    size = int(place[-1]) + 2 if place.size else 2
    table = np.bincount(place, masses - right, size) + np.bincount(place + 1, right, size)
    pmf = pld_pmf.DensePLDPmf(grid, first, table, infinity, pessimistic_estimate=True)
    return pld.PrivacyLossDistribution(pmf)
