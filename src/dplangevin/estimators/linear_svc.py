"""Differentially private linear support vector classifier (smoothed hinge)."""

from __future__ import annotations

from typing import ClassVar

from dplangevin.estimators._classifier import DPLinearClassifier
from dplangevin.estimators.uncertainty import WithIntervals


class DPLinearSVC(WithIntervals, DPLinearClassifier):
    """Differentially private linear support vector classifier (smoothed hinge).

    Parameters
    ----------
    {shared}

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Section 3.4.

    {example}
    """

    _model: ClassVar[str] = "svc"
