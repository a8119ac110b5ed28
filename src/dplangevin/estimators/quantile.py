"""Differentially private quantile regression (smoothed pinball loss)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dplangevin import _check
from dplangevin.estimators._regressor import DPLinearRegressor
from dplangevin.estimators.uncertainty import WithIntervals


@dataclass(kw_only=True, eq=False, repr=False)
class DPQuantileRegressor(WithIntervals, DPLinearRegressor):
    """Differentially private quantile regression (smoothed pinball loss).

    Parameters
    ----------
    quantile : strictly between 0 and 1.
    {shared}

    References
    ----------
    Koenker and Bassett (1978), smoothed by convolution with a uniform law.

    Examples
    --------
    >>> import numpy as np
    >>> from dplangevin import DPQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(5000), -1, 1)
    >>> model = DPQuantileRegressor(epsilon=1.0, delta=1e-6, data_norm=3**0.5, target_bounds=(-1, 1), random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.6), bool(model.privacy_.epsilon() <= 1.0)
    (True, True)
    """

    _model: ClassVar[str] = "quantile"
    quantile: float = 0.5

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {"quantile": _check.open_unit("quantile", self.quantile)}
