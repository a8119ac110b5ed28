"""What a sampler needs to know of V, the potential of the law exp(-V) on a convex body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats


@runtime_checkable
class Potential(Protocol):
    """V = inverse temperature * F, for a block of k points at once (theta has shape [p, k]).

    Three constants must hold on the whole body for the data set at hand: smoothness (largest curvature),
    strong_convexity (smallest curvature, 0 for a convex V that is flat somewhere), and lipschitz, the
    Lipschitz constant of the FULL V, regulariser included. They may be public bounds or computed from the
    data; in the second case they are private and must not be shown.
    """

    @property
    def smoothness(self) -> float: ...

    @property
    def strong_convexity(self) -> float: ...

    @property
    def lipschitz(self) -> float: ...

    def value(self, theta: Floats) -> Floats:
        """V at every column: [p, k] -> [k]."""

    def gradient(self, theta: Floats) -> Floats:
        """Gradient of V at every column: [p, k] -> [p, k]."""


@dataclass(frozen=True, kw_only=True)
class FunctionPotential:
    """A potential made of two functions and its three constants."""

    value_function: Callable[[Floats], Floats]
    gradient_function: Callable[[Floats], Floats]
    smoothness: float
    strong_convexity: float = 0.0
    lipschitz: float = np.inf

    def __post_init__(self) -> None:
        _check.positive("smoothness", self.smoothness, infinite=True)
        _check.nonnegative("strong_convexity", self.strong_convexity)
        _check.positive("lipschitz", self.lipschitz, infinite=True)

    def value(self, theta: Floats) -> Floats:
        return np.asarray(self.value_function(theta), float)

    def gradient(self, theta: Floats) -> Floats:
        return np.asarray(self.gradient_function(theta), float)


@dataclass
class Evaluations:
    """How often a potential was asked, in points: private diagnostics, they depend on the data."""

    values: int = 0
    gradients: int = 0


class Counted:
    """A potential that counts the points it is evaluated at."""

    def __init__(self, inner: Potential) -> None:
        self.inner, self.count = inner, Evaluations()
        self.smoothness, self.strong_convexity = inner.smoothness, inner.strong_convexity
        self.lipschitz = inner.lipschitz

    def value(self, theta: Floats) -> Floats:
        self.count.values += theta.shape[1]
        return self.inner.value(theta)

    def gradient(self, theta: Floats) -> Floats:
        self.count.gradients += theta.shape[1]
        return self.inner.gradient(theta)


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Columns theta[:, j] drawn by a sampler, with the work it took (private: it depends on the data)."""

    theta: Floats
    evaluations: Evaluations
    proposals: int = 0
