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

    {example}
    """

    _model: ClassVar[str] = "quantile"
    quantile: float = 0.5

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {"quantile": _check.open_unit("quantile", self.quantile)}
