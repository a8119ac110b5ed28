"""Scores that are flat near the minimum: H(V - floor) with a threshold or a ramp, for laws of Rashomon sets.

Everything is in units of V = beta F. With x = beta psi and t = beta tau, H(u) = 0 for u <= x, (u - x)^2 / (2 t) up to
u = x + t, then u - x - t/2; t = 0 is the sharp threshold max(u - x, 0). H is convex, nondecreasing and 1-Lipschitz, so
the score is convex where V is, though neither smooth (t = 0) nor strongly convex.
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.samplers.potential import Potential


class ScorePotential:
    """H(V - floor), floor = V at the computed minimiser. Values and gradients are private.

    Examples
    --------
    >>> from dplangevin.samplers.potential import FunctionPotential
    >>> square = FunctionPotential(value_function=lambda x: x[0] ** 2, gradient_function=lambda x: 2 * x,
    ...                            smoothness=2.0)
    >>> score = ScorePotential(square, floor=0.0, threshold=1.0)
    >>> score.value(np.array([[0.5, 2.0]])).tolist(), score.gradient(np.array([[0.5, 2.0]])).tolist()
    ([0.0, 3.0], [[0.0, 4.0]])
    """

    def __init__(self, inner: Potential, floor: float, threshold: float, ramp: float = 0.0) -> None:
        self.inner, self.floor = inner, float(floor)
        self.threshold = _check.nonnegative("threshold", threshold)
        self.ramp = _check.nonnegative("ramp", ramp)

    @property
    def smoothness(self) -> float:
        return self.inner.smoothness + self.inner.lipschitz**2 / self.ramp if self.ramp > 0 else math.inf

    @property
    def strong_convexity(self) -> float:
        return 0.0

    @property
    def lipschitz(self) -> float:
        return self.inner.lipschitz

    def excess(self, theta: Floats) -> Floats:
        """u - x = V - floor - threshold at every column."""
        return np.asarray(self.inner.value(theta) - self.floor - self.threshold)

    def height(self, excess: Floats) -> Floats:
        """H as a function of u - x."""
        above = np.maximum(excess, 0.0)
        if self.ramp == 0:
            return above
        return np.asarray(np.where(above <= self.ramp, above**2 / (2 * self.ramp), above - self.ramp / 2))

    def slope(self, excess: Floats) -> Floats:
        """H' as a function of u - x, in [0, 1]; a subgradient at the kink."""
        if self.ramp == 0:
            return (excess > 0).astype(float)
        return np.clip(excess / self.ramp, 0.0, 1.0)

    def value(self, theta: Floats) -> Floats:
        """H at every column: [p, k] -> [k]."""
        return self.height(self.excess(theta))

    def gradient(self, theta: Floats) -> Floats:
        """H' grad V at every column; grad V is asked only where H' is not 0."""
        slope = self.slope(self.excess(theta))
        result = np.zeros(theta.shape)
        outside = slope > 0
        if np.any(outside):
            result[:, outside] = slope[outside] * self.inner.gradient(theta[:, outside])
        return result
