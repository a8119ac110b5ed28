"""Between an estimator and its problem: how rows are read, what is stated, how a drawn theta becomes a model."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._classifier import DPLinearClassifier
from dplangevin.estimators._large import Encode
from dplangevin.estimators._regressor import DPLinearRegressor
from dplangevin.estimators.schema_encoder import SchemaEncoder
from dplangevin.planner.request import Request
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem import Loss, Problem

Floats = NDArray[np.float64]
RIDGE_SHARE = 0.1
"""The default ridge adds at most half of this share of the threshold to the objective of any model in the ball."""


class Template:
    """One estimator of the library, used for everything but its own fitting."""

    def __init__(
        self, estimator: Any, radius: float | None, threshold: float, *, bounded: bool = True
    ) -> None:
        if not isinstance(estimator, DPLinearClassifier | DPLinearRegressor):
            raise InvalidParameter(
                f"estimator must be one of this library, such as DPLogisticRegression; got {type(estimator).__name__}."
            )
        if estimator.max_rows_per_person != 1:
            raise InvalidParameter(
                "max_rows_per_person must be 1 here: no group promise is proved for draws of a Rashomon set."
            )
        self.estimator = estimator
        self.centre, self.half = 0.0, 1.0
        self.n_classes = 2
        if not bounded:
            self.alpha = 0.0 if estimator.alpha is None else _check.nonnegative("alpha", estimator.alpha)
            return
        stated = estimator.radius if radius is None else radius
        if stated is None:
            raise InvalidParameter(
                "a Rashomon set needs a bounded set of models: state radius, the largest norm of the coefficients."
            )
        self.radius: float = _check.positive("radius", stated)
        psi = _check.nonnegative("threshold", threshold)
        alpha = estimator.alpha
        self.alpha = (
            RIDGE_SHARE * psi / self.radius**2 if alpha is None else _check.nonnegative("alpha", alpha)
        )

    def problem(self, n: int, n_features: int, n_classes: int = 2) -> Problem:
        """The stated problem. No record is read."""
        options = self.options(n, n_features, n_classes)
        options.update(
            radius=self.radius, alpha=self.alpha, mechanism="auto", theorem=None, epsilon=1.0, delta=0.0
        )
        request = Request(**options)
        # inside the ball no residual of a squared loss exceeds this, so the clip changes nothing there
        norm = float(np.hypot(request.data_norm, 1.0)) if request.fit_intercept else request.data_norm
        bound = norm * self.radius + 1.0 if request.model == "ridge" else None
        return request.problem(bound, self.alpha)

    def options(self, n: int, n_features: int, n_classes: int = 2) -> dict[str, Any]:
        """What the planner is told. No record is read."""
        estimator = self.estimator
        if isinstance(estimator, DPLinearClassifier):
            return dict(estimator._options(n, n_features, **estimator._model_options(n_classes)))
        low, high = estimator._bounds()
        self.centre, self.half = estimator._scale(low, high)
        return dict(estimator._options(n, n_features, **estimator._model_options(low, high, self.half)))

    def read(self, X: Any, y: Any) -> tuple[Any, Any, Encode]:
        """Encoded rows, targets, and what turns targets into what the problem sees; large data stay away."""
        estimator = self.estimator
        rows, given, _ = estimator._read(X, y)
        if isinstance(estimator, DPLinearClassifier):
            estimator.classes_ = estimator._classes(given)
            self.n_classes = len(estimator.classes_)
        return rows, given, estimator._encoder(given)[0]

    def model(
        self, theta: Floats, problem: Problem, privacy: Guarantee, plan: Any, loss: Loss | None = None
    ) -> DPLinearModel:
        """A fitted estimator with these parameters; `loss` where it is not the problem's."""
        made: Any = copy.copy(self.estimator)
        matrix = theta.reshape(problem.n_columns, problem.loss.score_dimension)
        columns, intercept = problem.n_features, self.estimator._intercept()
        if isinstance(made, DPLinearClassifier):
            made.coef_ = matrix[:columns].T.copy()
            made.intercept_ = matrix[columns].copy() if intercept else np.zeros(matrix.shape[1])
        else:
            made.coef_ = self.half * matrix[:columns, 0]
            made.intercept_ = (
                float(self.half * matrix[columns, 0] + self.centre) if intercept else float(self.centre)
            )
        made._keep(problem.loss if loss is None else loss)
        made.privacy_, made.plan_, made.n_iter_ = privacy, plan, 1
        fitted: DPLinearModel = made
        return fitted

    def promise(self, guarantee: Guarantee, seeded: bool) -> Guarantee:
        """The guarantee with what the estimator's own fitting would say."""
        words = "the promise covers all released models together"
        found: Guarantee = self.estimator._promise(guarantee, seeded, words)
        return found

    def names(self, n_features: int) -> tuple[str, ...]:
        """Names of the encoded columns."""
        if self.estimator.schema is not None:
            return tuple(SchemaEncoder(self.estimator.schema).get_feature_names_out())
        given = getattr(self.estimator, "feature_names_in_", None)
        return tuple(map(str, given)) if given is not None else tuple(f"x{i}" for i in range(n_features))
