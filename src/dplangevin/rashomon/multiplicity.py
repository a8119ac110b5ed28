"""Multiplicity: where released models disagree, on public inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.rashomon.measures import (
    FairnessRange,
    ModelValues,
    ScoreSpread,
    ambiguity,
    coefficient_values,
    conflicted_inputs,
    disagreement,
    discrepancy,
    fairness_range,
    model_reliance,
    public_counts,
    rashomon_capacity,
    score_spread,
)

_N_SHIFTS = 5


@dataclass(frozen=True, kw_only=True)
class Multiplicity:
    """Disagreement of K released models on public inputs; no private record is read (`used_private_data`).

    Parameters
    ----------
    scores : [models, inputs], probability of the last class (decision score or predicted value where there is none).
    decisions : [models, inputs], None for regressors. spread : of the scores, per input.
    capacities : Rashomon capacity per input, None for models without probabilities.
    coefficients : ranges of the coefficients. reliance : model class reliance, where labels were given.
    fairness : gaps between groups, where groups were given.
    sentence : bound on the probability that a model is in the set, in words.
    model_name : class of the models.
    """

    scores: Floats
    decisions: NDArray[Any] | None
    spread: ScoreSpread
    capacities: Floats | None
    coefficients: ModelValues
    reliance: ModelValues | None = None
    fairness: FairnessRange | None = None
    sentence: str = ""
    model_name: str = ""
    used_private_data: bool = field(default=False, init=False)

    @classmethod
    def from_models(
        cls,
        models: Sequence[Any],
        X: Any,
        y: ArrayLike | None = None,
        *,
        level: float = 0.9,
        groups: ArrayLike | None = None,
        n_shifts: int = _N_SHIFTS,
        columns: Mapping[str, Sequence[Any]] | None = None,
        sentence: str = "",
    ) -> Multiplicity:
        """Compare the models on public inputs.

        Parameters
        ----------
        X, y : public inputs and, for reliance and equalised odds, their labels.
        level : fraction of the models inside the interval of scores.
        groups : the group of each input, for fairness gaps (two classes).
        n_shifts : number of cyclic shifts that the reliance averages over.
        columns : groups of columns that the reliance permutes.
        sentence : see the class.
        """
        if len(models) < 1:
            raise InvalidParameter("models must hold at least one model.")
        _check.check_open_unit("level", level)
        labels = None if y is None else _check_labels(X, y)
        probabilities = _predict_probabilities(models, X)
        classes = getattr(models[0], "classes_", None)
        decisions = None if classes is None else np.array([model.predict(X) for model in models])
        scores = probabilities[:, :, -1] if probabilities is not None else _predict_scores(models, X)
        return cls(
            scores=scores,
            decisions=decisions,
            spread=score_spread(scores, level),
            capacities=None if probabilities is None else rashomon_capacity(probabilities),
            coefficients=_coefficient_values(models),
            reliance=None if labels is None else _compute_reliance(models, X, labels, n_shifts, columns),
            fairness=None if groups is None else _compute_fairness(decisions, classes, groups, labels),
            sentence=sentence,
            model_name=type(models[0]).__name__,
        )

    @property
    def n_models(self) -> int:
        """Number of models, K."""
        return len(self.scores)

    @property
    def ambiguity(self) -> float:
        """Fraction of inputs whose decision depends on the model."""
        return ambiguity(self._require_decisions())

    @property
    def discrepancy(self) -> float:
        """Largest fraction of decisions that differ between two models."""
        return discrepancy(self._require_decisions())

    @property
    def disagreement(self) -> Floats:
        """Probability that two models decide differently, per input."""
        return disagreement(self._require_decisions())

    @property
    def conflicted_inputs(self) -> NDArray[np.bool_]:
        """Mask of the inputs that get a different decision from some other model."""
        return conflicted_inputs(self._require_decisions())

    @property
    def capacity(self) -> Floats:
        """Rashomon capacity per input, between 1 and the number of classes."""
        if self.capacities is None:
            raise InvalidParameter(
                f"{self.model_name} has no predict_proba and hence no Rashomon capacity; use DPLogisticRegression, "
                "or the spread of its scores."
            )
        return self.capacities

    def _require_decisions(self) -> NDArray[Any]:
        if self.decisions is None:
            raise InvalidParameter(
                f"{self.model_name} predicts numbers, not decisions; use `spread` for its viable ranges."
            )
        return self.decisions

    def to_dict(self) -> dict[str, Any]:
        """Return summary numbers, ready for JSON."""
        width = self.spread.width
        plain: dict[str, Any] = {
            "models": self.n_models,
            "inputs": int(self.scores.shape[1]),
            "used_private_data": self.used_private_data,
            "hit_bound": self.sentence,
            "mean_deviation": float(self.spread.std.mean()),
            "mean_width": float(width.mean()),
            "max_width": float(width.max()),
        }
        if self.decisions is not None:
            plain |= {"ambiguity": self.ambiguity, "discrepancy": self.discrepancy}
            plain["mean_disagreement"] = float(self.disagreement.mean())
        if self.capacities is not None:
            plain["mean_capacity"] = float(self.capacities.mean())
            plain["max_capacity"] = float(self.capacities.max())
        plain["coefficients"] = _ranges_to_plain(self.coefficients)
        if self.reliance is not None:
            plain["reliance"] = _ranges_to_plain(self.reliance)
        if self.fairness is not None:
            plain["fairness"] = _gaps_to_plain(self.fairness)
        return plain

    def __str__(self) -> str:
        plain = self.to_dict()
        numbers = {name: value for name, value in plain.items() if isinstance(value, int | float)}
        lines = [f"{self.n_models} models on {plain['inputs']} public inputs (no private record was read)"]
        lines += [
            f"  {name.replace('_', ' ')}: {value:.4g}"
            for name, value in numbers.items()
            if name not in _HEADLINE_FIELDS
        ]
        return "\n".join([*lines, f"  {self.sentence}"] if self.sentence else lines)


_HEADLINE_FIELDS = ("models", "inputs", "used_private_data")


def _ranges_to_plain(model_values: ModelValues) -> dict[str, dict[str, float]]:
    return {
        name: {"low": float(low), "median": float(middle), "high": float(high)}
        for name, low, middle, high in zip(
            model_values.names, model_values.minimum, model_values.median, model_values.maximum, strict=True
        )
    }


def _gaps_to_plain(fairness: FairnessRange) -> dict[str, Any]:
    plain: dict[str, Any] = {"groups": list(fairness.groups), "used_private_data": fairness.used_private_data}
    for name in ("demographic_parity", "equalized_odds"):
        gaps = getattr(fairness, name)
        if gaps is not None:
            plain[name] = {"low": float(gaps.min()), "high": float(gaps.max())}
    return plain


def _check_labels(X: Any, y: ArrayLike) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.shape != (len(X),):
        raise InvalidParameter(
            f"y must have one label per row of X ({len(X)}), got shape {list(labels.shape)}."
        )
    return labels


def _predict_probabilities(models: Sequence[Any], X: Any) -> Floats | None:
    if not hasattr(models[0], "predict_proba"):
        return None
    return np.array([model.predict_proba(X) for model in models])


def _predict_scores(models: Sequence[Any], X: Any) -> Floats:
    method_name = "decision_function" if hasattr(models[0], "decision_function") else "predict"
    return np.array([getattr(model, method_name)(X) for model in models], float)


def _coefficient_values(models: Sequence[Any]) -> ModelValues:
    table = np.array([np.ravel(model.coef_) for model in models])
    outputs = np.atleast_2d(models[0].coef_).shape[0]
    names = _coefficient_names(models[0])
    if outputs > 1:
        names = [f"{name}, class {label}" for label in models[0].classes_ for name in names]
    return coefficient_values(table, names)


def _coefficient_names(model: Any) -> list[str]:
    if model.schema is not None:
        from dplangevin.estimators.schema_encoder import SchemaEncoder, encoding_schema

        return [str(name) for name in SchemaEncoder(encoding_schema(model)).get_feature_names_out()]
    names = getattr(model, "feature_names_in_", None)
    width = np.atleast_2d(model.coef_).shape[1]
    return [str(name) for name in names] if names is not None else [f"x{i}" for i in range(width)]


def _compute_reliance(
    models: Sequence[Any],
    X: Any,
    y: NDArray[Any],
    n_shifts: int,
    columns: Mapping[str, Sequence[Any]] | None,
) -> ModelValues:
    """Compute reliance in log-loss where there are probabilities, else in smoothed error rate or squared error."""
    if columns is None:
        is_frame = hasattr(X, "columns")
        used_columns = (
            [name for name in X.columns if models[0].schema is None or name in models[0].schema.names]
            if is_frame
            else []
        )
        columns = (
            {str(c): [c] for c in used_columns}
            if is_frame
            else {name: [i] for i, name in enumerate(_coefficient_names(models[0]))}
        )
    table = X if hasattr(X, "columns") else np.asarray(X, float)
    classes = getattr(models[0], "classes_", None)

    def mean_losses(rows: Any) -> Floats:
        if classes is None:
            return np.array([np.mean((model.predict(rows) - y) ** 2) for model in models])
        if hasattr(models[0], "predict_proba"):
            label_indices = np.searchsorted(classes, y)
            likelihoods = [model.predict_proba(rows)[np.arange(len(y)), label_indices] for model in models]
            return np.array([-np.mean(np.log(np.maximum(values, 1e-12))) for values in likelihoods])
        return np.array([(np.sum(model.predict(rows) != y) + 1) / (len(y) + 1) for model in models])

    return model_reliance(mean_losses, table, columns, n_shifts)


def _compute_fairness(
    decisions: NDArray[Any] | None, classes: Any, groups: ArrayLike, labels: NDArray[Any] | None
) -> FairnessRange:
    if decisions is None or len(classes) != 2:
        raise InvalidParameter("fairness gaps need a classifier of two classes.")
    members = np.asarray(groups)
    group_names = [str(group) for group in np.unique(members)]
    truth = None if labels is None else labels == classes[1]
    counts = public_counts(decisions == classes[1], members.astype(str), group_names, truth)
    return fairness_range(counts, group_names)
