"""Multiplicity: what a set of released models disagrees on, for public inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.rashomon.capacity import rashomon_capacity
from dplangevin.rashomon.fairness import FairnessRange, fairness_range, public_counts
from dplangevin.rashomon.reliance import Cloud, coefficient_cloud, model_reliance
from dplangevin.rashomon.spread import Spread, ambiguity, conflicted, disagreement, discrepancy, score_spread

_SHIFTS = 5


@dataclass(frozen=True, kw_only=True)
class Multiplicity:
    """Disagreement of K released models on public inputs. Reads no private record (`used_private_data`).

    Parameters
    ----------
    scores : [models, inputs], probability of the last class (decision score or predicted value where there is none).
    decisions : [models, inputs], None for regressors. spread : of the scores, per input.
    capacities : Rashomon capacity per input, None for models without probabilities.
    coefficients : ranges of the coefficients. reliance : model class reliance, where labels were given.
    fairness : gaps between groups, where groups were given. sentence : the bound on hitting the set.
    """

    scores: Floats
    decisions: NDArray[Any] | None
    spread: Spread
    capacities: Floats | None
    coefficients: Cloud
    reliance: Cloud | None = None
    fairness: FairnessRange | None = None
    sentence: str = ""
    model_name: str = ""
    used_private_data: bool = field(default=False, init=False)

    @classmethod
    def of(
        cls,
        models: Sequence[Any],
        X: Any,
        y: ArrayLike | None = None,
        *,
        level: float = 0.9,
        groups: ArrayLike | None = None,
        n_shifts: int = _SHIFTS,
        columns: Mapping[str, Sequence[Any]] | None = None,
        sentence: str = "",
    ) -> Multiplicity:
        """Compare the models on public inputs.

        Parameters
        ----------
        X, y : public inputs and, for reliance and equalised odds, their labels.
        level : of the interval of scores. groups : the group of each input, for fairness gaps (two classes).
        n_shifts : how many rearrangements the reliance averages over. columns : groups of columns it exchanges.
        """
        if len(models) < 1:
            raise InvalidParameter("models must hold at least one model.")
        _check.open_unit("level", level)
        labels = None if y is None else _labels(X, y)
        probabilities = _probabilities(models, X)
        classes = getattr(models[0], "classes_", None)
        decisions = None if classes is None else np.array([model.predict(X) for model in models])
        scores = probabilities[:, :, -1] if probabilities is not None else _scores(models, X)
        return cls(
            scores=scores,
            decisions=decisions,
            spread=score_spread(scores, level),
            capacities=None if probabilities is None else rashomon_capacity(probabilities),
            coefficients=_coefficients(models),
            reliance=None if labels is None else _reliance(models, X, labels, n_shifts, columns),
            fairness=None if groups is None else _fairness(decisions, classes, groups, labels),
            sentence=sentence,
            model_name=type(models[0]).__name__,
        )

    @property
    def n_models(self) -> int:
        """K."""
        return len(self.scores)

    @property
    def ambiguity(self) -> float:
        """Share of inputs whose decision depends on the model."""
        return ambiguity(self._decided())

    @property
    def discrepancy(self) -> float:
        """Largest share of decisions that differ between two models."""
        return discrepancy(self._decided())

    @property
    def disagreement(self) -> Floats:
        """Per input: chance that two models decide differently."""
        return disagreement(self._decided())

    @property
    def conflicted(self) -> NDArray[np.bool_]:
        """Which inputs would get a different decision from some other model."""
        return conflicted(self._decided())

    @property
    def capacity(self) -> Floats:
        """Rashomon capacity per input, between 1 and the number of classes."""
        if self.capacities is None:
            raise InvalidParameter(
                f"{self.model_name} gives no probabilities, so it has no Rashomon capacity; use DPLogisticRegression, "
                "or the spread of its scores."
            )
        return self.capacities

    def _decided(self) -> NDArray[Any]:
        if self.decisions is None:
            raise InvalidParameter(
                f"{self.model_name} predicts numbers, not decisions; use `spread` for its viable ranges."
            )
        return self.decisions

    def to_dict(self) -> dict[str, Any]:
        """Summary numbers, ready for JSON."""
        width = self.spread.width
        plain: dict[str, Any] = {
            "models": self.n_models,
            "inputs": int(self.scores.shape[1]),
            "used_private_data": self.used_private_data,
            "hit_bound": self.sentence,
            "mean_deviation": float(self.spread.deviation.mean()),
            "mean_width": float(width.mean()),
            "largest_width": float(width.max()),
        }
        if self.decisions is not None:
            plain |= {"ambiguity": self.ambiguity, "discrepancy": self.discrepancy}
            plain["mean_disagreement"] = float(self.disagreement.mean())
        if self.capacities is not None:
            plain["mean_capacity"] = float(self.capacities.mean())
            plain["largest_capacity"] = float(self.capacities.max())
        plain["coefficients"] = _ranges(self.coefficients)
        if self.reliance is not None:
            plain["reliance"] = _ranges(self.reliance)
        if self.fairness is not None:
            plain["fairness"] = _gaps(self.fairness)
        return plain

    def __str__(self) -> str:
        plain = self.to_dict()
        kept = {name: value for name, value in plain.items() if isinstance(value, int | float)}
        lines = [f"{self.n_models} models on {plain['inputs']} public inputs (no private record was read)"]
        lines += [
            f"  {name.replace('_', ' ')}: {value:.4g}" for name, value in kept.items() if name not in _SHOWN
        ]
        return "\n".join([*lines, f"  {self.sentence}"] if self.sentence else lines)


_SHOWN = ("models", "inputs", "used_private_data")


def _ranges(cloud: Cloud) -> dict[str, dict[str, float]]:
    return {
        name: {"low": float(low), "middle": float(middle), "high": float(high)}
        for name, low, middle, high in zip(cloud.names, cloud.low, cloud.middle, cloud.high, strict=True)
    }


def _gaps(fairness: FairnessRange) -> dict[str, Any]:
    plain: dict[str, Any] = {"groups": list(fairness.groups), "used_private_data": fairness.used_private_data}
    for name in ("demographic_parity", "equalised_odds"):
        gaps = getattr(fairness, name)
        if gaps is not None:
            plain[name] = {"low": float(gaps.min()), "high": float(gaps.max())}
    return plain


def _labels(X: Any, y: ArrayLike) -> NDArray[Any]:
    labels = np.asarray(y)
    if labels.shape != (len(X),):
        raise InvalidParameter(
            f"y must have one label per row of X ({len(X)}), got shape {list(labels.shape)}."
        )
    return labels


def _probabilities(models: Sequence[Any], X: Any) -> Floats | None:
    if not hasattr(models[0], "predict_proba"):
        return None
    return np.array([model.predict_proba(X) for model in models])


def _scores(models: Sequence[Any], X: Any) -> Floats:
    ask = "decision_function" if hasattr(models[0], "decision_function") else "predict"
    return np.array([getattr(model, ask)(X) for model in models], float)


def _coefficients(models: Sequence[Any]) -> Cloud:
    table = np.array([np.ravel(model.coef_) for model in models])
    outputs = np.atleast_2d(models[0].coef_).shape[0]
    names = _names(models[0])
    if outputs > 1:
        names = [f"{name}, class {label}" for label in models[0].classes_ for name in names]
    return coefficient_cloud(table, names)


def _names(model: Any) -> list[str]:
    if model.schema is not None:
        from dplangevin.estimators.schema_encoder import SchemaEncoder, schema_of

        return [str(name) for name in SchemaEncoder(schema_of(model)).get_feature_names_out()]
    given = getattr(model, "feature_names_in_", None)
    width = np.atleast_2d(model.coef_).shape[1]
    return [str(name) for name in given] if given is not None else [f"x{i}" for i in range(width)]


def _reliance(
    models: Sequence[Any],
    X: Any,
    y: NDArray[Any],
    n_shifts: int,
    columns: Mapping[str, Sequence[Any]] | None,
) -> Cloud:
    """Reliance in log-loss where there are probabilities, else in smoothed error rate, or in squared error."""
    if columns is None:
        frame = hasattr(X, "columns")
        used = (
            [name for name in X.columns if models[0].schema is None or name in models[0].schema.names]
            if frame
            else []
        )
        columns = (
            {str(c): [c] for c in used} if frame else {name: [i] for i, name in enumerate(_names(models[0]))}
        )
    table = X if hasattr(X, "columns") else np.asarray(X, float)
    classes = getattr(models[0], "classes_", None)

    def mean_losses(rows: Any) -> Floats:
        if classes is None:
            return np.array([np.mean((model.predict(rows) - y) ** 2) for model in models])
        if hasattr(models[0], "predict_proba"):
            place = np.searchsorted(classes, y)
            chosen = [model.predict_proba(rows)[np.arange(len(y)), place] for model in models]
            return np.array([-np.mean(np.log(np.maximum(likely, 1e-12))) for likely in chosen])
        return np.array([(np.sum(model.predict(rows) != y) + 1) / (len(y) + 1) for model in models])

    return model_reliance(mean_losses, table, columns, n_shifts)


def _fairness(
    decisions: NDArray[Any] | None, classes: Any, groups: ArrayLike, labels: NDArray[Any] | None
) -> FairnessRange:
    if decisions is None or len(classes) != 2:
        raise InvalidParameter("fairness gaps need a classifier of two classes.")
    members = np.asarray(groups)
    known = [str(group) for group in np.unique(members)]
    truth = None if labels is None else labels == classes[1]
    counts = public_counts(decisions == classes[1], members.astype(str), known, truth)
    return fairness_range(counts, known)
