"""Differentially private Huber regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from dplangevin import _check
from dplangevin.estimators._regressor import DPLinearRegressor
from dplangevin.estimators.uncertainty import WithIntervals


@dataclass(kw_only=True, eq=False, repr=False)
class DPHuberRegressor(WithIntervals, DPLinearRegressor):
    """Differentially private Huber regression.

    Parameters
    ----------
    transition : residual, in units of y, where the loss turns linear; None takes a tenth of the range.
    {shared}

    References
    ----------
    Huber (1964); the loss is convex and smooth, so every mechanism of the library applies.

    {example}
    """

    _model: ClassVar[str] = "huber"
    transition: float | None = None

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        scale = self.encoder()
        transition = 0.1 * (scale.high - scale.low)
        if self.transition is not None:
            transition = _check.positive("transition", self.transition)
        return {"transition": transition / scale.half}
