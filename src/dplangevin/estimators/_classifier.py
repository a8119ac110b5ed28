"""Linear classifiers: labels to indices, and decisions from scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets

from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import DPLinearModel, Floats
from dplangevin.estimators._large import Encode
from dplangevin.estimators.schema_encoder import as_schema
from dplangevin.schema import CategoricalColumn


class DPLinearClassifier(ClassifierMixin, DPLinearModel):  # type: ignore[misc]
    """Base of the classifiers."""

    classes: Any

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DPLinearClassifier:
        """Fit under the stated guarantee.

        Labels outside `classes` count as the first class, silently; weights are clipped to `weight_bound`.
        """
        X, y = self._read(X, y, sample_weight)
        labels = self._classes(y)
        encode, options = self._encoder(y)
        theta = self._fit(X, y, sample_weight, encode, **options)
        if hasattr(self, "uncertainty_") and theta.shape[1] > 1:
            theta = theta - theta.mean(axis=1, keepdims=True)  # the same model, in the form of its intervals
        self.classes_ = labels
        self.coef_ = theta[: X.shape[1]].T.copy()
        self.intercept_ = theta[X.shape[1]].copy() if self._intercept() else np.zeros(theta.shape[1])
        return self

    def _read(self, X: Any, y: Any, weights: Any = None) -> tuple[Any, Any]:
        """Features and labels, checked; large data stay away."""
        self._norm()
        X, y = self._validated(X, y, weights)
        if isinstance(y, np.ndarray):
            check_classification_targets(y)
        elif self._stated() is None:
            raise InvalidParameter("data that are not in memory need the public labels, classes=[...].")
        return X, y

    def _encoder(self, y: Any) -> tuple[Encode, dict[str, Any]]:
        labels = self._classes(y)

        def encode(values: Any) -> Floats:
            given = np.asarray(values)
            if labels.dtype.kind == "U" and given.dtype.kind == "O":
                given = given.astype(str)  # a missing label is one outside `classes`
            positions = np.searchsorted(labels, given)
            known = labels[np.minimum(positions, len(labels) - 1)] == given
            return np.where(known, positions, 0).astype(float)

        return encode, self._model_options(len(labels))

    def _classes(self, y: Any) -> NDArray[Any]:
        stated = self._stated()
        labels = np.unique(y if stated is None else np.asarray(stated))
        if len(labels) < 2:
            raise InvalidParameter(
                "two class labels or more are needed, and there is only one class; state the public set of labels "
                "with classes=[...]."
            )
        return labels

    def _stated(self) -> Any:
        """The public labels: `classes`, or those of the schema's target."""
        target = None if self.schema is None else as_schema(self.schema).target
        if self.classes is None and isinstance(target, CategoricalColumn):
            return list(target.categories)
        return self.classes

    def _model_options(self, n_classes: int) -> dict[str, Any]:
        if n_classes != 2:
            raise InvalidParameter(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"There are {n_classes} classes; use DPLogisticRegression."
            )
        return {}

    def _public_words(self) -> tuple[str, ...]:
        if self._stated() is None:
            return (
                "the set of class labels was read from y and is treated as public; state classes=[...] to avoid it",
            )
        return ("labels outside `classes` count as the first class",)

    def decision_function(self, X: Any) -> Floats:
        """Scores: one per row for two classes, one per class otherwise."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely label of each row."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # noise at a small n may beat any signal
        tags.classifier_tags.multi_class = type(self)._model_options is not DPLinearClassifier._model_options
        tags.non_deterministic = self.random_state is None
        return tags
