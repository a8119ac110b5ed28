"""Linear classifiers: labels to indices, and decisions from scores."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._documentation import CLASSES, Example
from dplangevin.estimators._monotone import keep_monotone
from dplangevin.estimators._reading import LabelEncoder, check_label_type, column, numbers_of
from dplangevin.estimators.schema_encoder import as_schema, schema_of
from dplangevin.privacy.conditions import Condition
from dplangevin.problem import Loss, Problem
from dplangevin.schema import CategoricalColumn
from dplangevin.tables import Cells, cells_of, label, labels_of

LABELS_READ = Condition(
    kind="public-labels",
    text="the set of class labels being public: it was read from y; state classes=[...] to avoid it",
)


@dataclass(kw_only=True, eq=False, repr=False)
class DPLinearClassifier(ClassifierMixin, DPLinearModel):  # type: ignore[misc]
    """Base of the classifiers."""

    _own_parameters: ClassVar[str] = CLASSES
    _example: ClassVar[Example] = Example(
        "X[:, 0] + 0.3 * rng.standard_normal(5000) > 0", "classes=[False, True]", 0.8
    )
    classes: Any = None
    class_weight: Any = None

    def from_theta(self, theta: Floats, problem: Problem, loss: Loss | None = None) -> Self:
        matrix, columns = theta.reshape(problem.n_columns, -1), problem.n_features
        if hasattr(self, "uncertainty_") and matrix.shape[1] > 1:
            matrix = matrix - matrix.mean(
                axis=1, keepdims=True
            )  # the same model, in the form of its intervals
        self.coef_ = matrix[:columns].T.copy()
        self.intercept_ = matrix[columns].copy() if problem.fit_intercept else np.zeros(matrix.shape[1])
        return self if self.schema is None else keep_monotone(self)

    def check_stated(self) -> None:
        self._norm()
        if self._stated() is not None:
            self.encoder()
            return
        if self._strict():
            raise InvalidParameter(
                "this data set is strict: state the public set of labels with classes=[...]; reading it from y would "
                "make the promise conditional."
            )
        if self.class_weight is not None:
            class_weights(self.class_weight, None)

    def _outline_targets(self, y: Any, rows: int, away: bool) -> Any:
        if self._stated() is None:
            return self._read_targets(y, rows, away)
        encode = self.encoder()
        self.classes_ = encode.classes
        typed = isinstance(y, Cells) or hasattr(y, "dtype") or type(y).__module__.split(".")[0] == "pyarrow"
        if typed and not away and not self._strict():
            check_label_type(cells_of(y, "y").numeric, encode.labels)
        return None

    def _read_targets(self, y: Any, rows: int, away: bool) -> Any:
        """Labels, unread where the classes are stated."""
        stated = self._stated() is not None
        if away and not stated:
            raise InvalidParameter("data that are not in memory need the public labels, classes=[...].")
        labels = y if away else column(y, rows, "y")
        if not stated:
            cells, labels = labels, column_or_1d(_labels_in_memory(labels, y))
            if labels.dtype.kind == "f":
                numbers_of(cells, "y", False)
            check_classification_targets(labels)
            warnings.warn(
                "the set of labels is read from y: the promise is conditional on that set being public. State it "
                "with classes=[...].",
                UserWarning,
                stacklevel=4,
            )
        encode = self.encoder(labels)
        if (
            stated and not away and not self._strict()
        ):  # the type of a container in memory may be one record's doing
            check_label_type(labels.numeric, encode.labels)
        self.classes_ = encode.classes
        return labels

    def encoder(self, y: Any = None) -> LabelEncoder:
        stated = self._stated()
        given, text = (y, False) if stated is None else stated
        labels = np.unique(given)
        if len(labels) < 2:
            raise InvalidParameter(
                "two class labels or more are needed, and there is only one class; state the public set of labels "
                "with classes=[...]."
            )
        places = labels_of(labels.tolist(), text)
        if len(places) < len(labels):
            raise InvalidParameter(
                "two of the classes are read alike (1, 1.0 and '1' are one label), or one reads as missing; state "
                "each label once."
            )
        weights = None if self.class_weight is None else class_weights(self.class_weight, places, text)
        if weights is not None and self.public_data is not None:
            raise InvalidParameter("class_weight does not go with public_data; leave one of them out.")
        return LabelEncoder(
            classes=labels,
            labels=places,
            text=text,
            n_classes=len(labels),
            class_weights=weights,
            weight_bound=1.0 if self.weight_bound is None else self.weight_bound,
        )

    def _largest_class_weight(self) -> float:
        if self.class_weight is None:
            return 1.0
        if self._stated() is None:
            return max(class_weights(self.class_weight, None))
        return max(self.encoder().class_weights or (1.0,))

    def stated_targets(self) -> tuple[Any, ...] | None:
        return None if self._stated() is None else tuple(self.encoder().classes.tolist())

    def _text(self) -> bool:
        """Whether labels keep their characters, as the schema's target says."""
        stated = self._stated()
        return stated is not None and stated[1]

    def _stated(self) -> tuple[NDArray[Any], bool] | None:
        """The public labels, `classes` or those of the schema's target, and whether they keep their characters."""
        target = None if self.schema is None else as_schema(schema_of(self)).target
        labels, text = self.classes, False
        if labels is None and isinstance(target, CategoricalColumn):
            labels, text = list(target.categories), target.text
        if labels is None:
            return None
        array = np.asarray(labels)
        if array.ndim != 1:
            raise InvalidParameter("classes must be a list of labels.")
        # labels of several types would not sort
        return (array.astype(str) if array.dtype.kind == "O" else array), text

    def _model_options(self, n_classes: int | None) -> dict[str, Any]:
        if n_classes not in (None, 2):
            raise InvalidParameter(
                "Only binary classification is supported. The type of the target is multiclass. "
                f"There are {n_classes} classes; use DPLogisticRegression."
            )
        return {}

    def target_words(self) -> tuple[tuple[Condition, ...], tuple[str, ...]]:
        if self._stated() is not None:
            return (), ("labels outside `classes` count as the first class",)
        return (LABELS_READ,), ()

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
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags


def _labels_in_memory(cells: Cells, y: Any) -> NDArray[Any]:
    """Labels as they were given, for finding the set of them."""
    if isinstance(y, Cells):
        return np.array(cells.texts())
    try:
        return np.asarray(y)
    except Exception:  # of an object's own methods, whose words may quote a value
        raise InvalidParameter(
            "the set of labels could not be read from y; state it with classes=[...]."
        ) from None


def class_weights(stated: Any, places: Mapping[str, int] | None, text: bool = False) -> tuple[float, ...]:
    """The weight of each class in the order of their places; a class that is not named weighs 1.

    places : of the labels; None gives the weights that are stated, with 1 for those that may not be.
    """
    if isinstance(stated, str):
        raise InvalidParameter(
            f"class_weight = {stated!r} would count the classes of the private rows, which is no public statement; "
            "state the weights, class_weight={label: weight}."
        )
    if not isinstance(stated, Mapping) or not stated:
        raise InvalidParameter(f"class_weight must be a dictionary of labels and weights, got {stated!r}.")
    weights = [_check.positive(f"class_weight[{name!r}]", weight) for name, weight in stated.items()]
    if places is None:
        return (*weights, 1.0)
    found, named = [1.0] * len(places), set[str]()
    for name, weight in zip(stated, weights, strict=True):
        word = label(name, text=text)
        if word is None or word not in places:
            raise InvalidParameter(f"class_weight names {name!r}, which is none of the classes.")
        if word in named:
            raise InvalidParameter(f"class_weight names {name!r} twice: 1, 1.0 and '1' are one label.")
        named.add(word)
        found[places[word]] = weight
    return tuple(found)
