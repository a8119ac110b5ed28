"""Differentially private linear classifiers and regressors.

Targets are scaled from their stated range to [-1, 1] for the fit, and coefficients are scaled back.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Condition
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._documentation import CLASSES_DOC, TARGET_BOUNDS_DOC, DocExample
from dplangevin.estimators._reading import (
    LabelEncoder,
    RangeEncoder,
    check_label_type,
    read_column,
    read_numbers,
)
from dplangevin.estimators.schema_encoder import as_schema, encoding_schema, project_monotone
from dplangevin.estimators.uncertainty import IntervalsMixin
from dplangevin.problem import Loss, Problem
from dplangevin.schema import CategoricalColumn, NumericColumn
from dplangevin.tables import CellColumn, as_column, label_indices, read_label

PUBLIC_LABELS = Condition(
    kind="public-labels",
    text="the set of class labels being public: it was read from y; state classes=[...] to avoid it",
)


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearClassifier(ClassifierMixin, DPLinearModel):  # type: ignore[misc]
    """Base class of the classifiers."""

    _own_parameters_doc: ClassVar[str] = CLASSES_DOC
    _example: ClassVar[DocExample] = DocExample(
        "X[:, 0] + 0.3 * rng.standard_normal(5000) > 0", "classes=[False, True]", 0.8
    )
    classes: Any = None
    class_weight: Any = None

    def set_coefficients(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        matrix, columns = theta.reshape(problem.n_columns, -1), problem.n_features
        if hasattr(self, "uncertainty_") and matrix.shape[1] > 1:
            # The same model, with coefficients relative to the mean of the classes, as its intervals are.
            matrix = matrix - matrix.mean(axis=1, keepdims=True)
        self.coef_ = matrix[:columns].T.copy()
        self.intercept_ = matrix[columns].copy() if problem.fit_intercept else np.zeros(matrix.shape[1])
        return self if self.schema is None else project_monotone(self)

    def check_public_inputs(self) -> None:
        self._row_norm_bound()
        if self._public_labels() is not None:
            self.target_encoder()
            return
        if self._has_strict_ledger():
            raise InvalidParameter(
                "this data set is strict: state the public set of labels with classes=[...]; reading it from y would "
                "make the guarantee conditional."
            )
        if self.class_weight is not None:
            resolve_class_weights(self.class_weight, None)

    def _outline_targets(self, y: Any, rows: int, out_of_memory: bool) -> Any:
        if self._public_labels() is None:
            return self._read_targets(y, rows, out_of_memory)
        encode = self.target_encoder()
        self.classes_ = encode.classes
        has_type = (
            isinstance(y, CellColumn) or hasattr(y, "dtype") or type(y).__module__.split(".")[0] == "pyarrow"
        )
        if has_type and not out_of_memory and not self._has_strict_ledger():
            check_label_type(as_column(y, "y").is_numeric, encode.labels)
        return None

    def _read_targets(self, y: Any, n_rows: int, out_of_memory: bool) -> Any:
        """Return the labels, unread where the classes are stated."""
        has_public_labels = self._public_labels() is not None
        if out_of_memory and not has_public_labels:
            raise InvalidParameter("data that are not in memory need the public labels, classes=[...].")
        labels = y if out_of_memory else read_column(y, n_rows, "y")
        if not has_public_labels:
            cells, labels = labels, column_or_1d(_label_array(labels, y))
            if labels.dtype.kind == "f":
                read_numbers(cells, "y", False)
            check_classification_targets(labels)
            warnings.warn(
                "the set of labels is read from y: the guarantee is conditional on that set being public. State it "
                "with classes=[...].",
                UserWarning,
                stacklevel=4,
            )
        encode = self.target_encoder(labels)
        if has_public_labels and not out_of_memory and not self._has_strict_ledger():
            # Not for a strict data set: one record may have decided the type of a container in memory.
            check_label_type(labels.is_numeric, encode.labels)
        self.classes_ = encode.classes
        return labels

    def target_encoder(self, y: Any = None) -> LabelEncoder:
        stated = self._public_labels()
        raw_labels, text = (y, False) if stated is None else stated
        labels = np.unique(raw_labels)
        if len(labels) < 2:
            raise InvalidParameter(
                "at least two class labels are needed, and there is only one class; state the public set of labels "
                "with classes=[...]."
            )
        indices = label_indices(labels.tolist(), text)
        if len(indices) < len(labels):
            raise InvalidParameter(
                "two of the classes have the same label (1, 1.0 and '1' are one label), or one reads as missing; "
                "state each label once."
            )
        weights = (
            None if self.class_weight is None else resolve_class_weights(self.class_weight, indices, text)
        )
        if weights is not None and self.public_data is not None:
            raise InvalidParameter("class_weight does not go with public_data; leave one of them out.")
        return LabelEncoder(
            classes=labels,
            labels=indices,
            text=text,
            n_classes=len(labels),
            class_weights=weights,
            weight_bound=1.0 if self.weight_bound is None else self.weight_bound,
        )

    def _max_class_weight(self) -> float:
        if self.class_weight is None:
            return 1.0
        if self._public_labels() is None:
            return max(resolve_class_weights(self.class_weight, None))
        return max(self.target_encoder().class_weights or (1.0,))

    def public_targets(self) -> tuple[Any, ...] | None:
        return None if self._public_labels() is None else tuple(self.target_encoder().classes.tolist())

    def _labels_are_text(self) -> bool:
        """Whether the schema's target compares labels character by character."""
        stated = self._public_labels()
        return stated is not None and stated[1]

    def _public_labels(self) -> tuple[NDArray[Any], bool] | None:
        """Return the public labels (`classes`, or the schema's target) and whether they are compared as texts."""
        target = None if self.schema is None else as_schema(encoding_schema(self)).target
        labels, text = self.classes, False
        if labels is None and isinstance(target, CategoricalColumn):
            labels, text = list(target.categories), target.text
        if labels is None:
            return None
        array = np.asarray(labels)
        if array.ndim != 1:
            raise InvalidParameter("classes must be a list of labels.")
        # Labels of different types cannot be sorted, so they become texts.
        return (array.astype(str) if array.dtype.kind == "O" else array), text

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        if n_classes not in (None, 2):
            raise InvalidParameter(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"There are {n_classes} classes; use DPLogisticRegression."
            )
        return {}

    def target_conditions(self) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
        if self._public_labels() is not None:
            return (), ("labels outside `classes` count as the first class",)
        return (PUBLIC_LABELS,), ()

    def decision_function(self, X: Any) -> Floats:
        """Return the scores: one per row for two classes, one per class otherwise."""
        scores = self._linear_scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely label of each row."""
        scores = self.decision_function(X)
        best = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # at a small n the noise may exceed any signal
        tags.classifier_tags.multi_class = type(self)._model_options is not DPLinearClassifier._model_options
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def _label_array(cells: CellColumn, y: Any) -> NDArray[Any]:
    """Return the labels as an array, to find their set."""
    if isinstance(y, CellColumn):
        return np.array(cells.texts())
    try:
        return np.asarray(y)
    except Exception:  # raised by an object's own methods; its message may quote a private value
        raise InvalidParameter(
            "the set of labels could not be read from y; state it with classes=[...]."
        ) from None


def resolve_class_weights(
    class_weight: Any, label_indices: Mapping[str, int] | None, text: bool = False
) -> tuple[float, ...]:
    """Return the weight of each class in the order of the indices; a class that is not named weighs 1.

    Without `label_indices`, return the stated weights, and 1 for classes that may not be named.
    """
    if isinstance(class_weight, str):
        raise InvalidParameter(
            f"class_weight = {class_weight!r} would count the classes of the private rows, which are not public; "
            "state the weights, class_weight={label: weight}."
        )
    if not isinstance(class_weight, Mapping) or not class_weight:
        raise InvalidParameter(
            f"class_weight must be a dictionary of labels and weights, got {class_weight!r}."
        )
    weights = [
        _check.check_positive(f"class_weight[{name!r}]", weight) for name, weight in class_weight.items()
    ]
    if label_indices is None:
        return (*weights, 1.0)
    weight_by_index, seen_labels = [1.0] * len(label_indices), set[str]()
    for name, weight in zip(class_weight, weights, strict=True):
        normalized_label = read_label(name, text=text)
        if normalized_label is None or normalized_label not in label_indices:
            raise InvalidParameter(f"class_weight names {name!r}, which is not one of the classes.")
        if normalized_label in seen_labels:
            raise InvalidParameter(f"class_weight names {name!r} twice: 1, 1.0 and '1' are one label.")
        seen_labels.add(normalized_label)
        weight_by_index[label_indices[normalized_label]] = weight
    return tuple(weight_by_index)


class DPLogisticRegression(IntervalsMixin, DPLinearClassifier):
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

    def set_coefficients(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        loss = problem.loss if loss is None else loss
        self.slope_clip_ = 1.0 if math.isinf(loss.clip_bound) else loss.clip_bound
        return super().set_coefficients(theta, problem, loss)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of the labels, by the link of the loss that was minimized.

        A logistic loss with derivative clipped at C is calibrated for odds r(-z) / r(z), r(z) = min(C, sigmoid(-z));
        C = 1 is the sigmoid.
        """
        scores = self._linear_scores(X)
        if scores.shape[1] > 1:
            return np.asarray(softmax(scores, axis=1))
        for_one, for_zero = (np.minimum(self.slope_clip_, expit(sign * scores[:, 0])) for sign in (1, -1))
        probabilities: Floats = np.column_stack([for_zero, for_one]) / (for_one + for_zero)[:, None]
        return probabilities

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithms of predict_proba."""
        with np.errstate(divide="ignore"):
            logarithms: Floats = np.log(self.predict_proba(X))
        return logarithms


class DPLinearSVC(IntervalsMixin, DPLinearClassifier):
    """Differentially private linear support vector classifier (smoothed hinge).

    With several classes, each has its own vector of coefficients, and the loss is the smoothed hinge loss of Crammer
    and Singer: one problem and one release, not one per class.

    {parameters}

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate (2011), Section 3.4. Crammer and Singer (2001), for several classes.

    {example}
    """

    _model: ClassVar[str] = "svc"

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {} if n_classes in (None, 2) else {"model": "multiclass-svc", "n_classes": n_classes}


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearRegressor(RegressorMixin, DPLinearModel):  # type: ignore[misc]
    """Base class of the regressors."""

    _own_parameters_doc: ClassVar[str] = TARGET_BOUNDS_DOC
    _example: ClassVar[DocExample] = DocExample(
        "np.clip(X[:, 0] + 0.1 * rng.standard_normal(5000), -1, 1)", "target_bounds=(-1, 1)", 0.6
    )
    target_bounds: Any = None

    def set_coefficients(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        scale, columns, intercept = self.target_encoder(), problem.n_features, problem.fit_intercept
        if hasattr(self, "uncertainty_"):
            self.uncertainty_ = self.uncertainty_.rescale(
                scale.half_range, scale.center if intercept else 0.0
            )
        self.coef_ = scale.half_range * theta[:columns]
        self.intercept_ = (
            float(scale.half_range * theta[columns] + scale.center) if intercept else float(scale.center)
        )
        return self if self.schema is None else project_monotone(self)

    def public_targets(self) -> tuple[float, float]:
        return self._target_range()

    def _read_targets(self, y: Any, n_rows: int, out_of_memory: bool) -> Any:
        return y if out_of_memory else read_numbers(read_column(y, n_rows, "y"), "y", self._accepts_any_row())

    def target_encoder(self, y: Any = None) -> RangeEncoder:
        low, high = self._target_range()
        center, half_range = self._target_scale(low, high)
        return RangeEncoder(
            low=low, high=high, center=center, half_range=half_range, accepts_missing=self._accepts_any_row()
        )

    def _target_range(self) -> tuple[float, float]:
        if self.target_bounds is None and self.schema is not None:
            target = as_schema(encoding_schema(self)).target
            if isinstance(target, NumericColumn):
                return target.low, target.high
        if self.target_bounds is None:
            raise InvalidParameter(
                f"{type(self).__name__} needs target_bounds=(low, high), the stated range of y: targets beyond it "
                "are clipped, and it is never measured from the data (that would leak)."
            )
        try:
            low, high = (float(value) for value in self.target_bounds)
        except (TypeError, ValueError):
            raise InvalidParameter(
                f"target_bounds must be (low, high), got {self.target_bounds!r}."
            ) from None
        _check.check_positive("target_bounds[1] - target_bounds[0]", high - low)
        return low, high

    def _target_scale(self, low: float, high: float) -> tuple[float, float]:
        """Return center and half-range of the targets; without an intercept the center is 0."""
        if self.fit_intercept or self.schema is not None:
            return (low + high) / 2, (high - low) / 2
        return 0.0, max(abs(low), abs(high))

    def predict(self, X: Any) -> Floats:
        """Return predicted targets."""
        scores: Floats = self._linear_scores(X)[:, 0]
        return scores

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # at a small n the noise may exceed any signal
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


class DPRidge(IntervalsMixin, DPLinearRegressor):
    """Differentially private ridge regression.

    {parameters}

    References
    ----------
    Dwork et al. (2014), Analyze Gauss; Chaudhuri, Monteleoni and Sarwate (2011).

    {example}
    """

    _model: ClassVar[str] = "ridge"


@dataclass(kw_only=True, eq=False, repr=False)
class DPHuberRegressor(IntervalsMixin, DPLinearRegressor):
    """Differentially private Huber regression.

    Parameters
    ----------
    transition : residual, in units of y, beyond which the loss is linear; None takes a tenth of the range. Default
        fits take at most 2.5 times the released distance from the center within which three quarters of targets lie.
    {shared}

    References
    ----------
    Huber (1964); the loss is convex and smooth, so every mechanism of the library applies.

    {example}
    """

    _model: ClassVar[str] = "huber"
    transition: float | None = None

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        scale = self.target_encoder()
        transition = 0.1 * (scale.high - scale.low)
        if self.transition is not None:
            transition = _check.check_positive("transition", self.transition)
        return {"transition": transition / scale.half_range}


@dataclass(kw_only=True, eq=False, repr=False)
class DPQuantileRegressor(IntervalsMixin, DPLinearRegressor):
    """Differentially private quantile regression (smoothed pinball loss).

    Parameters
    ----------
    quantile : strictly between 0 and 1.
    {shared}

    References
    ----------
    Koenker and Bassett (1978), smoothed by convolution with a uniform density.

    {example}
    """

    _model: ClassVar[str] = "quantile"
    quantile: float = 0.5

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {"quantile": _check.check_open_unit("quantile", self.quantile)}


class DPPoissonRegressor(IntervalsMixin, DPLinearRegressor):
    """Differentially private Poisson regression (log link, clipped derivative).

    {parameters}

    References
    ----------
    McCullagh and Nelder (1989); the derivative of the loss is clipped, which keeps it convex.

    {example}
    """

    _model: ClassVar[str] = "poisson"
    _example: ClassVar[DocExample] = DocExample(
        "rng.poisson(np.exp(0.5 + X[:, 0]))", "target_bounds=(0, 20)", 0.1
    )

    def _target_range(self) -> tuple[float, float]:
        low, high = super()._target_range()
        if low < 0:
            raise InvalidParameter(
                f"counts are nonnegative: target_bounds must start at 0 or above, got {low!r}."
            )
        return low, high

    def _target_scale(self, low: float, high: float) -> tuple[float, float]:
        return 0.0, 1.0

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        return {"target_bounds": self._target_range()}

    def predict(self, X: Any) -> Floats:
        """Return predicted means, within the stated range of the counts: the exponential of a score has no other."""
        return np.clip(np.exp(np.minimum(super().predict(X), 700.0)), *self.public_targets())

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return D^2, the fraction of Poisson deviance explained."""
        from sklearn.metrics import d2_tweedie_score  # imported here: it takes a tenth of a second

        return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))
