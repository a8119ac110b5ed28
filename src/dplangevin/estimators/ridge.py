"""Differentially private linear regression with a ridge."""

from __future__ import annotations

from typing import ClassVar

from dplangevin.estimators._regressor import DPLinearRegressor
from dplangevin.estimators.uncertainty import WithIntervals


class DPRidge(WithIntervals, DPLinearRegressor):
    """Differentially private linear regression with a ridge.

    {parameters}

    References
    ----------
    Dwork et al. (2014), Analyze Gauss; Chaudhuri, Monteleoni and Sarwate (2011).

    {example}
    """

    _model: ClassVar[str] = "ridge"
