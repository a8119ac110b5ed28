"""Differentially private linear support vector classifier (smoothed hinge), binary and of several classes."""

from __future__ import annotations

from typing import Any, ClassVar

from dplangevin.estimators._classifier import DPLinearClassifier
from dplangevin.estimators.uncertainty import WithIntervals


class DPLinearSVC(WithIntervals, DPLinearClassifier):
    """Differentially private linear support vector classifier (smoothed hinge).

    Several classes have one vector of coefficients each and the hinge loss of Crammer and Singer, smoothed: one
    problem and one release, not one for each class.

    {parameters}

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Section 3.4. Crammer and Singer (2001), for several classes.

    {example}
    """

    _model: ClassVar[str] = "svc"

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {} if n_classes in (None, 2) else {"model": "multiclass-svc", "n_classes": n_classes}
