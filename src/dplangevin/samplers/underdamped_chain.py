"""Underdamped Langevin with the exact Gaussian step for a frozen gradient. Biased; for research, no guarantee.

    dx = v dt,   dv = -gamma v dt - mu grad V dt + sqrt(2 gamma mu) dW,   stationary: x ~ exp(-V), v ~ N(0, mu I).

Reference: Ganesh (2022, thesis), section 3.4. Position and velocity noise are correlated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.potential import Potential

MIN_VARIANCE = 1e-250
"""Of the noise of a step: below it products of variances are no longer doubles with all their digits."""


@dataclass(frozen=True, kw_only=True)
class UnderdampedStep:
    """mean v' = decay v - push g, mean x' = x + reach v - pull g, and one coordinate's covariance of (x', v')."""

    decay: float
    reach: float
    pull: float
    push: float
    variance_v: float
    covariance: float
    variance_x: float

    @classmethod
    def exact(cls, friction: float, inverse_mass: float, step_size: float) -> UnderdampedStep:
        """Friction gamma, mu = inverse_mass, step_size eta; series where u = gamma eta is small."""
        gamma = _check.positive("friction", friction)
        mu = _check.positive("inverse_mass", inverse_mass)
        eta = _check.positive("step_size", step_size)
        u = gamma * eta
        lost = -math.expm1(-u)
        reach = lost / gamma
        if u < 0.5:
            shortfall = eta * _series(u, lambda n: (-1.0) ** (n + 1) / math.factorial(n + 1), 1)
            variance_x = (
                mu / gamma**2 * _series(u, lambda n: (-1.0) ** n * (4 - 2.0**n) / math.factorial(n), 3)
            )
        else:
            shortfall = eta - reach
            variance_x = mu / gamma**2 * (2 * u - 3 + 4 * math.exp(-u) - math.exp(-2 * u))
        made = cls(
            decay=math.exp(-u),
            reach=reach,
            pull=mu / gamma * shortfall,
            push=mu * reach,
            variance_v=-mu * math.expm1(-2 * u),
            covariance=mu / gamma * lost**2,
            variance_x=variance_x,
        )
        if not (
            made.variance_v > MIN_VARIANCE
            and made.own_noise > 0
            and MIN_VARIANCE < variance_x < 1 / MIN_VARIANCE
        ):
            raise InvalidParameter(
                f"friction = {friction!r}, inverse_mass = {inverse_mass!r} and step_size = {step_size!r} give a step "
                "whose noise underflows or overflows in double precision; change the units of time."
            )
        return made

    @property
    def shared_noise(self) -> float:
        """The part of the position's noise that is a multiple of the velocity's, in units of one standard draw."""
        return self.covariance / math.sqrt(self.variance_v)

    @property
    def own_noise(self) -> float:
        """The standard deviation of the rest of the position's noise."""
        return math.sqrt(max(self.variance_x - self.shared_noise**2, 0.0))

    def move(self, x: Floats, v: Floats, gradient: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """One joint draw of (x', v')."""
        first, second = rng.standard_normal(x.shape), rng.standard_normal(x.shape)
        shared, own = self.shared_noise, self.own_noise
        new_v = self.decay * v - self.push * gradient + math.sqrt(self.variance_v) * first
        return x + self.reach * v - self.pull * gradient + shared * first + own * second, new_v


def _series(u: float, coefficient: Callable[[int], float], first: int) -> float:
    return math.fsum(coefficient(n) * u**n for n in range(first, 30))


def underdamped(
    potential: Potential,
    start: ArrayLike,
    friction: float,
    inverse_mass: float,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Last positions and velocities of the chains in the columns of `start`; velocities start at N(0, mu I)."""
    n_steps = _check.count("n_steps", n_steps)
    step = UnderdampedStep.exact(friction, inverse_mass, step_size)
    x = np.array(start, float)
    if x.ndim != 2:
        raise InvalidParameter(f"start must have shape [p, k], got {x.shape}.")
    v = math.sqrt(inverse_mass) * rng.standard_normal(x.shape)
    for _ in _progress.progress(range(n_steps), "Langevin steps"):
        x, v = step.move(x, v, potential.gradient(x), rng)
    return x, v
