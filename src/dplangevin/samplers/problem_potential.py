"""The potential V = beta F of a problem on its data: what every sampler of exp(-beta F) is given."""

from __future__ import annotations

import math

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.data.dataset import Dataset
from dplangevin.errors import AssumptionFailed
from dplangevin.problem.reach import full_lipschitz


class ProblemPotential:
    """V(theta) = beta ((1/n) sum_i weight_i loss_i(theta) + (ridge/2) |theta|^2), n the public divisor.

    Its three constants are the worst case over ALL admissible data sets, so whatever is computed from them is public:
    smoothness beta M, strong convexity beta ridge (curvature of the data never counts), and lipschitz beta L_F
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
        self.inverse_temperature = _check.positive("inverse_temperature", inverse_temperature)

    @property
    def smoothness(self) -> float:
        if self.problem.more_rows:  # a sum over the records divided by n is no mean
            return math.inf
        return self.inverse_temperature * self.problem.constants.smoothness

    @property
    def strong_convexity(self) -> float:
        return self.inverse_temperature * self.problem.ridge

    @property
    def lipschitz(self) -> float:
        return self.inverse_temperature * full_lipschitz(self.problem)

    def value(self, theta: Floats) -> Floats:
        """V at every column: [p, k] -> [k]."""
        mean = self.data.loss_sum(self.problem.loss, theta) / self.problem.n
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = self.inverse_temperature * (mean + self.problem.ridge / 2 * np.sum(theta**2, axis=0))
        return self._finite(scaled)

    def gradient(self, theta: Floats) -> Floats:
        """Gradient of V at every column: [p, k] -> [p, k]."""
        mean = self.data.gradient_sum(self.problem.loss, theta) / self.problem.n
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = self.inverse_temperature * (mean + self.problem.ridge * theta)
        return self._finite(scaled)

    @staticmethod
    def _finite(values: Floats) -> Floats:
        # a rejection step would take NaN for "never accept" or "always accept": neither is the target law
        if not np.isfinite(values).all():
            raise AssumptionFailed(
                "the potential overflowed, so no draw of it is exact and nothing is released; lower the inverse "
                "temperature, the radius or the stated bounds."
            )
        return values
