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

    Examples
    --------
    >>> import numpy as np
    >>> from dplangevin import DPHuberRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(5000), -1, 1)
    >>> model = DPHuberRegressor(epsilon=1.0, delta=1e-6, data_norm=3**0.5, target_bounds=(-1, 1), random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.7), bool(model.privacy_.epsilon() <= 1.0)
    (True, True)
    """

    _model: ClassVar[str] = "huber"
    transition: float | None = None

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        scale = self.encoder()
        transition = 0.1 * (scale.high - scale.low)
        if self.transition is not None:
            transition = _check.positive("transition", self.transition)
        return {"transition": transition / scale.half}
