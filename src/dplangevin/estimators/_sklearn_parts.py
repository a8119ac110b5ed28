"""Steps of a scikit-learn pipeline that predicts as a fitted model does: plain types, no private data, no noise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.validation import check_is_fitted

from dplangevin._arrays import Floats


class ClippedLogistic(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A logistic model whose slope was clipped at `bound`: odds min(bound, s) / min(bound, 1 - s), s = sigmoid(score).

    scikit-learn has no such link, so this small class stands for it; its decisions are those of LogisticRegression.
    """

    def __init__(self, bound: float = 1.0) -> None:
        self.bound = bound

    def fit(self, X: Any, y: Any) -> ClippedLogistic:
        """Refused: the coefficients come from a private fit."""
        raise TypeError(
            "ClippedLogistic carries the coefficients of a private fit and cannot be fitted itself."
        )

    def decision_function(self, X: Any) -> Floats:
        """Scores of the second class."""
        check_is_fitted(self, "coef_")
        return np.asarray(np.asarray(X, np.float64) @ self.coef_[0] + self.intercept_[0])

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the two labels."""
        scores = self.decision_function(X)
        one, zero = (np.minimum(self.bound, expit(sign * scores)) for sign in (1, -1))
        return np.asarray(np.column_stack([zero, one]) / (one + zero)[:, None])

    def predict(self, X: Any) -> NDArray[Any]:
        """The more likely label."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])


def classifier(model: Any, coefficients: Floats, intercept: Floats) -> Any:
    """A fitted classifier with these coefficients."""
    clip = float(getattr(model, "slope_clip_", 1.0))
    last: Any = LogisticRegression() if clip >= 1 or len(coefficients) > 1 else ClippedLogistic(bound=clip)
    last.classes_, last.coef_, last.intercept_ = model.classes_.copy(), coefficients, intercept
    last.n_features_in_ = coefficients.shape[1]
    if isinstance(last, LogisticRegression):
        last.n_iter_ = np.array([1], np.int32)
    return last


def regressor(coefficients: Floats, intercept: float) -> Any:
    """A fitted linear regressor with these coefficients."""
    last = LinearRegression()
    last.coef_, last.intercept_, last.n_features_in_ = coefficients, intercept, len(coefficients)
    return last
