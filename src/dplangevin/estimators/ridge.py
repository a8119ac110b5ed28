"""Differentially private linear regression with a ridge."""

from __future__ import annotations

from typing import ClassVar

from dplangevin.estimators._regressor import DPLinearRegressor
from dplangevin.estimators.uncertainty import WithIntervals


class DPRidge(WithIntervals, DPLinearRegressor):
    """Differentially private linear regression with a ridge.

    Parameters
    ----------
    {shared}

    References
    ----------
    Dwork et al. (2014), Analyze Gauss; Chaudhuri, Monteleoni and Sarwate (2011).

    Examples
    --------
    >>> import numpy as np
    >>> from dplangevin import DPRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 3))
    >>> y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(5000), -1, 1)
    >>> model = DPRidge(epsilon=1.0, delta=1e-6, data_norm=3**0.5, target_bounds=(-1, 1), random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.7), bool(model.privacy_.epsilon() <= 1.0)
    (True, True)
    """

    _model: ClassVar[str] = "ridge"
