"""Differentially private Poisson regression (log link, clipped slope)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._documentation import Example
from dplangevin.estimators._regressor import DPLinearRegressor
from dplangevin.estimators.uncertainty import WithIntervals


class DPPoissonRegressor(WithIntervals, DPLinearRegressor):
    """Differentially private Poisson regression (log link, clipped slope).

    {parameters}

    References
    ----------
    McCullagh and Nelder (1989); the slope is clipped, which keeps the loss convex.

    {example}
    """

    _model: ClassVar[str] = "poisson"
    _example: ClassVar[Example] = Example("rng.poisson(np.exp(0.5 + X[:, 0]))", "target_bounds=(0, 20)", 0.1)

    def _bounds(self) -> tuple[float, float]:
        low, high = super()._bounds()
        if low < 0:
            raise InvalidParameter(
                f"counts are not negative: target_bounds must start at 0 or above, got {low!r}."
            )
        return low, high

    def _scale(self, low: float, high: float) -> tuple[float, float]:
        return 0.0, 1.0

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {"target_bounds": self._bounds()}

    def predict(self, X: Any) -> Floats:
        """Predicted counts."""
        return np.exp(np.minimum(super().predict(X), 700.0))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """D^2, the share of Poisson deviance explained."""
        from sklearn.metrics import d2_tweedie_score  # a tenth of a second, for one method

        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))
