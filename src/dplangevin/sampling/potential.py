"""Potentials V of laws exp(-V): the interface that samplers use, and V = beta F of a problem on its data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed
from dplangevin.problem.problem import full_lipschitz


@runtime_checkable
class Potential(Protocol):
    """V = inverse temperature * F, for a block of k points at once (theta has shape [p, k]).

    Three constants must hold on the whole support for the given data set: smoothness (largest curvature),
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
        """Return V at every column: [p, k] -> [k]."""

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient of V at every column: [p, k] -> [p, k]."""


@dataclass(frozen=True, kw_only=True)
class FunctionPotential:
    """A potential given by two functions and its three constants."""

    value_function: Callable[[Floats], Floats]
    gradient_function: Callable[[Floats], Floats]
    smoothness: float
    strong_convexity: float = 0.0
    lipschitz: float = np.inf

    def __post_init__(self) -> None:
        _check.check_positive("smoothness", self.smoothness, infinite=True)
        _check.check_nonnegative("strong_convexity", self.strong_convexity)
        _check.check_positive("lipschitz", self.lipschitz, infinite=True)

    def value(self, theta: Floats) -> Floats:
        return np.asarray(self.value_function(theta), float)

    def gradient(self, theta: Floats) -> Floats:
        return np.asarray(self.gradient_function(theta), float)


@dataclass
class Evaluations:
    """Numbers of points at which a potential was evaluated: private, because they depend on the data."""

    n_values: int = 0
    n_gradients: int = 0


class CountingPotential:
    """A potential that counts the points it is evaluated at."""

    def __init__(self, inner: Potential) -> None:
        self.inner, self.count = inner, Evaluations()
        self.smoothness, self.strong_convexity = inner.smoothness, inner.strong_convexity
        self.lipschitz = inner.lipschitz

    def value(self, theta: Floats) -> Floats:
        self.count.n_values += theta.shape[1]
        return self.inner.value(theta)

    def gradient(self, theta: Floats) -> Floats:
        self.count.n_gradients += theta.shape[1]
        return self.inner.gradient(theta)


@dataclass(frozen=True, kw_only=True)
class SamplerOutput:
    """Draws theta[:, j] of a sampler, with its numbers of evaluations and proposals, which are private."""

    theta: Floats
    evaluations: Evaluations
    n_proposals: int = 0


class ProblemPotential:
    """The potential V(theta) = beta ((1/n) sum_i weight_i loss_i(theta) + (ridge/2) |theta|^2), n the public divisor.

    Its three constants are the worst case over ALL admissible data sets, so everything computed from them is public:
    smoothness beta M, strong convexity beta ridge (curvature of the data is never used), and lipschitz beta L_F
    of the full F, regulariser included. Values and gradients are private.

    Examples
    --------
    >>> from dplangevin.data import ArrayDataset
    >>> from dplangevin.problem import Ball, DataBounds, Logistic, Problem
    >>> problem = Problem(loss=Logistic(), bounds=DataBounds(data_norm=1.0, classes=2), n=2, n_features=1,
    ...                   constraint=Ball(1.0), ridge=0.5, fit_intercept=False)
    >>> potential = ProblemPotential(ArrayDataset([[1.0], [-0.5]], [1.0, 0.0], problem), 10.0)
    >>> potential.smoothness, potential.strong_convexity, potential.lipschitz
    (7.5, 5.0, 15.0)
    >>> potential.value(np.zeros((1, 1))).round(6).tolist()
    [6.931472]
    """

    def __init__(self, data: Dataset, inverse_temperature: float) -> None:
        self.data, self.problem = data, data.problem
        self.inverse_temperature = _check.check_positive("inverse_temperature", inverse_temperature)

    @property
    def smoothness(self) -> float:
        if self.problem.allow_more_rows:  # a sum over the records divided by n is then not a mean
            return math.inf
        return self.inverse_temperature * self.problem.constants.smoothness

    @property
    def strong_convexity(self) -> float:
        return self.inverse_temperature * self.problem.ridge

    @property
    def lipschitz(self) -> float:
        return self.inverse_temperature * full_lipschitz(self.problem)

    def value(self, theta: Floats) -> Floats:
        """Return V at every column: [p, k] -> [k]."""
        mean = self.data.loss_sum(self.problem.loss, theta) / self.problem.n
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = self.inverse_temperature * (mean + self.problem.ridge / 2 * np.sum(theta**2, axis=0))
        return self._check_finite(scaled)

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient of V at every column: [p, k] -> [p, k]."""
        mean = self.data.gradient_sum(self.problem.loss, theta) / self.problem.n
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = self.inverse_temperature * (mean + self.problem.ridge * theta)
        return self._check_finite(scaled)

    @staticmethod
    def _check_finite(values: Floats) -> Floats:
        # a rejection step would treat NaN as "never accept" or "always accept": neither is the target law
        if not np.isfinite(values).all():
            raise AssumptionFailed(
                "the potential overflowed, so no draw of it is exact and nothing is released; lower the inverse "
                "temperature, the radius or the stated bounds."
            )
        return values
