"""Differentially private logistic regression, binary and multinomial."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, softmax

from dplangevin._arrays import Floats
from dplangevin.estimators._classifier import DPLinearClassifier
from dplangevin.estimators.uncertainty import WithIntervals
from dplangevin.problem import Loss, Problem


class DPLogisticRegression(WithIntervals, DPLinearClassifier):
    """Differentially private logistic regression, binary and multinomial.

    {parameters}

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011); Abadi et al. (2016); Dong, Roth and Su (2022).

    {example}
    """

    _model: ClassVar[str] = "logistic"

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {} if n_classes in (None, 2) else {"model": "multinomial", "n_classes": n_classes}

    def from_theta(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        loss = problem.loss if loss is None else loss
        self.slope_clip_ = 1.0 if math.isinf(loss.clip_bound) else loss.clip_bound
        return super().from_theta(theta, problem, loss)

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the labels, by the link of the loss that was minimised.

        A slope clipped at C is calibrated for odds r(-z) / r(z), r(z) = min(C, sigmoid(-z)); C = 1 is the sigmoid.
        """
        scores = self._scores(X)
        if scores.shape[1] > 1:
            return np.asarray(softmax(scores, axis=1))
        for_one, for_zero = (np.minimum(self.slope_clip_, expit(sign * scores[:, 0])) for sign in (1, -1))
        shares: Floats = np.column_stack([for_zero, for_one]) / (for_one + for_zero)[:, None]
        return shares

    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of predict_proba."""
        with np.errstate(divide="ignore"):
            logarithms: Floats = np.log(self.predict_proba(X))
        return logarithms
