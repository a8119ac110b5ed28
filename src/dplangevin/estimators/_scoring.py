"""Metrics on private records: each record's contribution, the noise on the sums, and their post-processing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.guarantee import Condition
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._held_out import (
    CONFUSION_METRICS,
    FeatureView,
    HeldOutRecords,
    ReliabilityBin,
    TableColumn,
    area_under_curve,
    average_precision,
    bin_edges,
    interpret_confusion,
    reliability_table,
)
from dplangevin.estimators._posterior import half_width, proportion_interval
from dplangevin.estimators.call_context import find_foreign_steps, find_learned_steps
from dplangevin.mechanisms.mechanism import AnswersRelease
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumNoise, calibrate_noisy_sums
from dplangevin.problem.constants import ADJACENCIES, Adjacency
from dplangevin.tables import CellColumn, as_column, label_indices


def record_losses(model: Any, X: Any, y: CellColumn, metric: str, cap: float) -> Floats:
    """Return each record's loss in [0, 1]: 1 if its prediction is wrong, or its loss over the cap; 1 if undefined."""
    if metric == "accuracy":
        return _error_indicators(as_column(np.asarray(model.predict(X)).ravel(), "predictions"), y, model)
    if metric in ("squared-error", "absolute-error"):
        with np.errstate(over="ignore", invalid="ignore"):
            errors = np.abs(
                np.asarray(model.predict(X), float).ravel() - np.asarray(as_column(y, "y").numbers(), float)
            ) ** (2 if metric == "squared-error" else 1)
    elif metric == "brier":
        codes = _label_codes(model, y)
        errors = np.where(codes < 0, 1.0, (_predict_probabilities(model, X)[:, 1] - (codes == 1)) ** 2)
    else:
        probabilities, label_index = _predict_probabilities(model, X), _label_codes(model, y)
        label_probability = probabilities[np.arange(len(label_index)), label_index]
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = -np.log(np.where(label_index >= 0, label_probability, 0.0))
    return np.asarray(np.clip(np.nan_to_num(errors / cap, nan=1.0, posinf=1.0), 0.0, 1.0), float)


def _error_indicators(predictions: CellColumn, y: CellColumn, model: Any) -> Floats:
    """Return 1 where prediction and label differ, else 0; a missing label always differs."""
    if hasattr(model, "classes_"):
        label_codes, predicted_codes = _label_codes(model, y), _label_codes(model, predictions)
        return np.broadcast_to(
            np.asarray((label_codes != predicted_codes) | (label_codes < 0), float), (len(y),)
        )
    texts = y.texts()
    is_correct = (predictions.texts() == texts) & (texts != None)  # noqa: E711 (an array of objects)
    return np.broadcast_to(np.asarray(~is_correct.astype(bool), float), (len(y),))


def _label_codes(model: Any, cells: CellColumn) -> NDArray[np.int64]:
    """Return the index of each label among the model's classes, negative where it is none of them."""
    text = bool(model._labels_are_text()) if hasattr(model, "_labels_are_text") else False
    return as_column(cells, "labels").codes(
        label_indices(np.asarray(model.classes_).tolist(), text), text=text
    )


def score_cells(model: Any, X: Any, y: CellColumn, edges: Floats) -> NDArray[np.int64]:
    """Return each record's cell of a histogram [2, bins]: row 1 for the positive label (the last class), 0 else."""
    if hasattr(model, "predict_proba"):
        scores = _predict_probabilities(model, X)[:, 1]
    else:
        scores = expit(np.asarray(model.decision_function(X), float).ravel())
    bin_index = np.clip(np.searchsorted(edges, np.nan_to_num(scores), side="right") - 1, 0, len(edges) - 2)
    return np.asarray((_label_codes(model, y) == 1) * (len(edges) - 1) + bin_index, np.int64)


def confusion_cells(model: Any, X: Any, y: CellColumn) -> NDArray[np.int64]:
    """Return each record's cell of [label, predicted label], 1 for the positive one (the last class), 0 for others."""
    predicted = _label_codes(model, as_column(np.asarray(model.predict(X)).ravel(), "predictions"))
    return np.asarray(2 * (_label_codes(model, y) == 1) + (predicted == 1), np.int64)


def _variance_sums(scoring: Scoring, model: Any, X: Any, y: CellColumn) -> list[Floats]:
    """Return sums of squared errors, of their squares, of targets and of squared targets, in the unit range."""
    assert scoring.target_range is not None
    low, high = scoring.target_range
    targets, predictions = (
        np.clip(np.nan_to_num((np.asarray(values, float).ravel() - low) / (high - low)), 0.0, 1.0)
        for values in (as_column(y, "y").numbers(), model.predict(X))
    )
    targets, predictions = np.broadcast_arrays(targets, predictions)
    sums = scoring.loss_sums((targets - predictions) ** 2)
    units = [np.array([np.rint(scoring.max_contribution * part).sum()]) for part in (targets, targets**2)]
    return [*sums, *units]


def _predict_probabilities(model: Any, X: Any) -> Floats:
    return np.asarray(model.predict_proba(X), float)


CAPPED_METRICS = ("log-loss", "squared-error", "absolute-error")
MEAN_LOSSES = (*CAPPED_METRICS, "brier")
PER_RECORD_METRICS = ("accuracy", *MEAN_LOSSES)
BINNED_METRICS = ("auc", "average_precision", "calibration")
METRICS = (*PER_RECORD_METRICS, *BINNED_METRICS, *CONFUSION_METRICS, "r2")
SCIKIT_NAMES = {
    "roc_auc": ("auc", 1),
    "neg_log_loss": ("log-loss", -1),
    "neg_brier_score": ("brier", -1),
    "neg_mean_squared_error": ("squared-error", -1),
    "neg_mean_absolute_error": ("absolute-error", -1),
}
"""scikit-learn's names of scores: the metric, and 1 or -1 times its value."""
REFUSED_METRICS = {
    "max_error": "one record can change the largest error by the whole range, at any number of records",
    "neg_median_absolute_error": "one record can change a median by the distance to the next error, which has no bound",
    "top_k_accuracy": "it needs the k most probable classes of each record; score accuracy",
}
"""Scores of scikit-learn that are not released, and why."""
R2_BUDGET_FRACTIONS = (0.4, 0.2, 0.2, 0.2)
"""Fractions of the budget for the sums of squared errors, of their squares, of targets and of squared targets."""
LOG_LOSS_CAP = 5.0
LOSS_GRID_SIZE = 2**16  # losses are multiples of cap / LOSS_GRID_SIZE, so that integer noise can be used
MOMENT_BUDGET_FRACTION = 0.2  # for the second moment of a loss


Interpretation = tuple[float, tuple[float, float], tuple[ReliabilityBin, ...]]
"""A value, its interval, and a reliability table where there is one."""


def resolve_metric(name: str) -> tuple[str, int]:
    """Return the metric of a name, as here or as in scikit-learn, and the sign of its value; refuse others."""
    if name in REFUSED_METRICS:
        raise InvalidParameter(f"metric={name!r} has no bounded sensitivity here: {REFUSED_METRICS[name]}.")
    if isinstance(name, str) and name.endswith(("_macro", "_micro", "_weighted", "_samples", "_ovr", "_ovo")):
        raise InvalidParameter(
            f"metric={name!r} averages over classes, and metrics of counts are released for two classes only: score "
            "accuracy or log-loss, or one class against the rest."
        )
    if isinstance(name, str) and name in SCIKIT_NAMES:
        return SCIKIT_NAMES[name]
    return _check.check_choice("metric", name, (*METRICS, *SCIKIT_NAMES)), 1


@dataclass(frozen=True, kw_only=True)
class GroupColumn:
    """A column whose stated values divide the records into groups; all other cells are one more group.

    Parameters
    ----------
    name : of the column. values : the public list of its values.
    """

    name: str
    values: tuple[str, ...]

    @classmethod
    def read(cls, groups: Any) -> GroupColumn:
        """Return the column and values of groups=(column, values)."""
        try:
            name, values = groups
            labels = label_indices(values, text=True)
        except (TypeError, ValueError):
            name, labels = None, {}
        if not isinstance(name, str) or len(labels) < 1 or len(labels) != len(list(values)):
            raise InvalidParameter(
                "groups must be (column, values): the name of a column, and the public list of its different values, "
                "since values seen in the table would be a release of their own."
            )
        return cls(name=name, values=tuple(labels))

    @property
    def n_groups(self) -> int:
        """Number of groups, with that of all other cells."""
        return len(self.values) + 1

    def codes(self, view: FeatureView) -> NDArray[np.int64]:
        """Return the group of each record."""
        codes = view(TableColumn(self.name)).codes(label_indices(self.values, text=True), text=True)
        return np.asarray(np.where(codes < 0, self.n_groups - 1, codes), np.int64)


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Metric with its public settings.

    Parameters
    ----------
    metric : one of METRICS.
    adjacency : "replace-one" or "add-remove".
    cap : bound at which a record's loss is clipped, for CAPPED_METRICS.
    bins : number of bins or public edges, for BINNED_METRICS.
    target_range : public range of the target, for "r2": targets and predictions are clipped to it.
    groups : the column by whose values the sums are divided; None for one group.
    """

    metric: str
    adjacency: str
    cap: float | None = None
    bins: int | Sequence[float] | None = None
    target_range: tuple[float, float] | None = None
    groups: GroupColumn | None = None

    def __post_init__(self) -> None:
        _check.check_choice("metric", self.metric, METRICS)
        if self.metric == "r2":
            if self.target_range is None:
                raise InvalidParameter(
                    "metric='r2' needs target_range=(low, high), the public range of the target: it bounds what one "
                    "record adds to the sums, and it is never measured from the data."
                )
            _check.set_frozen(self, target_range=_checked_range(self.target_range))
            if self.groups is not None:
                raise InvalidParameter("metric='r2' is released for all records together; leave groups out.")
        elif self.target_range is not None:
            raise InvalidParameter(f"target_range has no meaning for metric={self.metric!r}; leave it out.")
        _check.check_choice("adjacency", self.adjacency, ADJACENCIES)
        _ = self.max_loss, self.edges  # fail here rather than at the first use

    @property
    def checked_adjacency(self) -> Adjacency:
        """Adjacency, validated."""
        return _check.check_choice("adjacency", self.adjacency, ADJACENCIES)

    @property
    def max_contribution(self) -> int:
        """Largest contribution of one record to a sum, in integer units."""
        return LOSS_GRID_SIZE if self.metric in (*MEAN_LOSSES, "r2") else 1

    @property
    def max_loss(self) -> float:
        """Bound at which the loss of a record is clipped."""
        if self.cap is not None:
            if self.metric not in CAPPED_METRICS:
                raise InvalidParameter(f"cap has no meaning for metric={self.metric!r}; leave it out.")
            return _check.check_positive("cap", self.cap)
        if self.metric in ("squared-error", "absolute-error"):
            example = "((high - low) / 4) ** 2" if self.metric == "squared-error" else "(high - low) / 4"
            raise InvalidParameter(
                f"metric={self.metric!r} needs cap, a stated bound on one record's error, e.g. {example}: larger "
                "errors are clipped, and it is never measured from the data."
            )
        return LOG_LOSS_CAP if self.metric == "log-loss" else 1.0

    @property
    def stated_cap(self) -> float | None:
        """Cap where the metric has one, else None."""
        return self.max_loss if self.metric in CAPPED_METRICS else None

    @property
    def edges(self) -> Floats:
        """Edges of the bins."""
        return bin_edges((10 if self.metric == "calibration" else 32) if self.bins is None else self.bins)

    def check_model(self, model: Any) -> None:
        """Raise if the model cannot be scored by this metric."""
        name = "predict_proba" if self.metric in ("log-loss", "brier", "calibration") else "predict"
        if not hasattr(model, name):
            raise InvalidParameter(
                f"metric={self.metric!r} needs a fitted model with {name}, got {type(model).__name__}."
            )
        if (
            self.metric in (*BINNED_METRICS, *CONFUSION_METRICS, "brier")
            and len(getattr(model, "classes_", ())) != 2
        ):
            raise InvalidParameter(f"metric={self.metric!r} needs a fitted classifier of two classes.")

    def check_groups(self, records: HeldOutRecords) -> None:
        """Raise if the table has no column of the groups' name; no cell is read."""
        if self.groups is not None and self.groups.name not in records.names:
            listed = (
                f"it has {_check.describe_columns(records.names)}"
                if records.names
                else "its columns have no names"
            )
            raise InvalidParameter(
                f"groups names the column {self.groups.name!r}, which the table does not have: {listed}."
            )

    @property
    def sum_groups(self) -> list[tuple[int, float, float]]:
        """(answers, unit, fraction of the budget) of each group of sums."""
        # Under add-remove n is private, so that the sum of 1 - loss is released too; likewise the size of a group.
        n_groups = 1 if self.groups is None else self.groups.n_groups
        n_answers = 1 if self.adjacency == "replace-one" and self.groups is None else 2 * n_groups
        if self.metric == "accuracy":
            return [(n_answers, self.max_contribution, 1.0)]
        if self.metric in MEAN_LOSSES:
            return [
                (n_answers, self.max_contribution, 1 - MOMENT_BUDGET_FRACTION),
                (n_groups, self.max_contribution, MOMENT_BUDGET_FRACTION),
            ]
        if self.metric == "r2":
            answers = (n_answers, 1, 1, 1)
            return [
                (number, self.max_contribution, fraction)
                for number, fraction in zip(answers, R2_BUDGET_FRACTIONS, strict=True)
            ]
        n_bins = 2 if self.metric in CONFUSION_METRICS else len(self.edges) - 1
        return [(2 * n_bins * n_groups, self.max_contribution, 1.0)]

    def plan_release(
        self,
        epsilon: float,
        delta: float,
        rows_per_person: int,
        assumptions: Sequence[str] = (),
        conditions: tuple[Condition, ...] = (),
        *,
        secure: bool = False,
    ) -> CertifiedSpec:
        """Return the spec that meets (epsilon, delta) with the smaller of geometric and Gaussian noise."""
        noises: list[SumNoise] = ["geometric"] if delta == 0 else ["geometric", "gaussian"]
        specs = [
            calibrate_noisy_sums(
                self.sum_groups,
                epsilon=epsilon,
                delta=delta,
                noise=noise,
                adjacency=self.checked_adjacency,
                rows_per_person=rows_per_person,
                secure=secure,
            )
            for noise in noises
        ]
        best = min(specs, key=lambda spec: noise_distribution(spec)[0])
        return CertifiedSpec(spec=best.with_assumptions(*assumptions, conditions=conditions), delta=delta)

    def exact_sums(self, model: Any, records: HeldOutRecords) -> list[Floats]:
        """Return the exact sums, as integers; this reads the records."""
        sums = records.sum_over_parts(partial(_part_sums, self, model))
        if sums:
            return sums
        # Without records the sums are zeros: under add-remove even their absence is private.
        rows = 2 * (1 if self.groups is None else self.groups.n_groups)
        shapes = [
            answers if self.metric in (*PER_RECORD_METRICS, "r2") else (rows, answers // rows)
            for answers, _, _ in self.sum_groups
        ]
        return [np.zeros(shape) for shape in shapes]

    def exact_totals(self, models: Sequence[Any], records: HeldOutRecords) -> list[Floats]:
        """Return the sum of 1 - loss of each model, in integer units, which add exactly; this reads the records.

        1 - loss >= 0: under add-remove, adding a record raises every total, which the proof of noisy max uses.
        """
        return records.sum_over_parts(partial(_part_totals, self, tuple(models))) or [np.zeros(len(models))]

    def group_sums(self, losses: Floats, codes: NDArray[np.int64] | None) -> list[Floats]:
        """Return the sums of losses in [0, 1] of each group, in integer units."""
        if codes is None or self.groups is None:
            return self.loss_sums(losses)
        sums = [self.loss_sums(losses[codes == group]) for group in range(self.groups.n_groups)]
        return [np.concatenate(parts) for parts in zip(*sums, strict=True)]

    def loss_sums(self, losses: Floats) -> list[Floats]:
        """Return the sums of losses in [0, 1] of one group, in integer units."""
        loss_units = np.rint(self.max_contribution * losses)
        sums = [
            np.array([loss_units.sum(), (self.max_contribution - loss_units).sum()][: self.sum_groups[0][0]])
        ]
        if self.metric in (*MEAN_LOSSES, "r2"):
            sums.append(np.array([np.rint(self.max_contribution * losses**2).sum()]))
        return sums

    def interpret_release(self, release: AnswersRelease, n: int, level: float) -> Interpretation:
        """Return value, interval and reliability table of the noisy sums; n is used only where it is public.

        Of groups it is of all records: the sums of the groups' sums, with the noise of all of them.
        """
        noise, values = release.plan.spec, release.values
        assert isinstance(noise, NoisySumsSpec)
        if self.groups is not None:
            number = self.groups.n_groups
            values = tuple(each.reshape(number, -1, *each.shape[1:]).sum(axis=0) for each in values)
            noise = replace(
                noise,
                groups=tuple(replace(each, scale=each.scale * math.sqrt(number)) for each in noise.groups),
            )
        return self._interpret_sums(values, noise, n, level)

    def interpret_groups(self, release: AnswersRelease, level: float) -> dict[str, Interpretation]:
        """Return the same for each group, by its value; "" for all other cells."""
        if self.groups is None:
            return {}
        noise, number = release.plan.spec, self.groups.n_groups
        assert isinstance(noise, NoisySumsSpec)
        parts = [each.reshape(number, -1, *each.shape[1:]) for each in release.values]
        return {
            name: self._interpret_sums(tuple(part[index] for part in parts), noise, 0, level)
            for index, name in enumerate((*self.groups.values, ""))
        }

    def _interpret_sums(
        self, values: tuple[Floats, ...], noise: NoisySumsSpec, n: int, level: float
    ) -> Interpretation:
        if self.metric in PER_RECORD_METRICS:
            return (*self._mean_with_interval(values, noise, n, level), ())
        if self.metric == "r2":
            return (*self._explained_variance(values, noise, n, level), ())
        if self.metric in CONFUSION_METRICS:
            return (*interpret_confusion(self.metric, values[0], *noise_distribution(noise), level), ())
        if self.metric in ("auc", "average_precision"):
            interpret = area_under_curve if self.metric == "auc" else average_precision
            return (*interpret(values[0], *noise_distribution(noise), level), ())
        return reliability_table(values[0], self.edges, *noise_distribution(noise), level)

    def _mean_with_interval(
        self, values: tuple[Floats, ...], spec: NoisySumsSpec, n: int, level: float
    ) -> tuple[float, tuple[float, float]]:
        """Return the noisy mean of the losses and its interval; accuracy is 1 - the error rate."""
        first = values[0] / self.max_contribution
        size = float(n) if len(first) == 1 else max(float(first.sum()), 1.0)
        mean_loss = min(max(float(first[0]) / size, 0.0), 1.0)
        noise_std, dimension = noise_distribution(spec)
        noise = (
            noise_std
            / self.max_contribution
            / size
            * (1.0 if len(first) == 1 else math.hypot(mean_loss, 1 - mean_loss))
        )
        if self.metric == "accuracy":
            low, high = proportion_interval(mean_loss, size, noise, dimension, level)
            return 1 - mean_loss, (1 - high, 1 - low)
        second_moment_noise = noise_distribution(spec, 1)[0] / self.max_contribution / size
        # One standard deviation is added, so that the variance is rather over- than underestimated.
        second = float(values[1][0]) / self.max_contribution / size + second_moment_noise
        variance = min(
            max(second - mean_loss**2, second_moment_noise**2),
            mean_loss * (1 - mean_loss) + second_moment_noise,
        )
        width = float(half_width(level, math.sqrt(variance / size), noise, dimension))
        low, high = max(mean_loss - width, 0.0), min(mean_loss + width, 1.0)
        return self.max_loss * mean_loss, (self.max_loss * low, self.max_loss * high)

    def _explained_variance(
        self, values: tuple[Floats, ...], spec: NoisySumsSpec, n: int, level: float
    ) -> tuple[float, tuple[float, float]]:
        """Return R2 = 1 - (mean squared error) / (variance of the target), in the unit range, and its interval.

        R2 is off by (error of the first - (1 - R2) error of the second) / variance to first order. Both sampling errors
        are added as if they were fully correlated, and that of (y - mean)^2 <= m uses its bound m times the variance.
        """
        units = [value / self.max_contribution for value in values]
        size = float(n) if len(units[0]) == 1 else max(float(units[0].sum()), 1.0)
        noises = [noise_distribution(spec, index)[0] / self.max_contribution / size for index in range(4)]
        error, error_square, mean, square = (float(unit[0]) / size for unit in units)
        mean = min(max(mean, 0.0), 1.0)
        variance = square - mean**2
        variance_noise = math.hypot(noises[3], 2 * mean * noises[2])
        if not variance > 3 * variance_noise:  # noise hides the variance of the target
            return 0.0, (-math.inf, 1.0)
        ratio = max(error, 0.0) / variance
        if len(units[0]) == 2:  # a noisy size
            noises[0] *= math.hypot(error, 1 - error)
        spread = math.sqrt(max(error_square + noises[1] - error**2, noises[1] ** 2) / size)
        spread += ratio * math.sqrt(max(mean, 1 - mean) ** 2 * variance / size)
        noise = math.hypot(noises[0], ratio * variance_noise)
        width = float(half_width(level, spread, noise, noise_distribution(spec)[1])) / variance
        return 1 - ratio, (1 - ratio - width, min(1 - ratio + width, 1.0))

    def assumptions(self, model: Any) -> tuple[str, ...]:
        """Return the assumptions of the guarantee, and what it does not cover."""
        assumptions = [
            "the model is fixed beforehand: the privacy cost of fitting it is not counted here",
            "the model's prediction for a record depends on no other scored record",
        ]
        if self.adjacency == "replace-one":
            assumptions.append("the number of scored records is public")
        if self.metric == "r2":
            assumptions.append("the stated range of the target is public")
        if self.metric in CAPPED_METRICS:
            assumptions.append(f"the loss of one record is clipped at {self.max_loss:g}")
        learned = find_learned_steps(model)
        if learned:
            assumptions.append(
                f"{', '.join(learned)} learned from data outside any guarantee: unless those data are public, "
                "the model itself has no guarantee"
            )
        return tuple(assumptions)


def _checked_range(target_range: Any) -> tuple[float, float]:
    """Return (low, high) as floats, two finite numbers in increasing order."""
    try:
        low, high = map(float, target_range)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (low < high and math.isfinite(high - low)):
        raise InvalidParameter(f"target_range must be (low, high) with low < high, got {target_range!r}.")
    return low, high


def scoring_conditions(model: Any) -> tuple[Condition, ...]:
    """Return the conditions of a score's guarantee that follow from the scored model."""
    conditions = []
    foreign = find_foreign_steps(model)
    if foreign:
        names = ", ".join(foreign)
        conditions.append(
            Condition(kind="upstream-steps", text=f"{names} of the pipeline reading each row by itself")
        )
    if not isinstance(model, DPLinearModel):  # the estimators of this library predict for every record
        conditions.append(
            Condition(
                kind="record-errors",
                text="the model predicting for every record: an error on one record ends the run without a release, "
                "and that event is not covered",
            )
        )
    return tuple(conditions)


def noise_distribution(spec: NoisySumsSpec, group: int = 0) -> tuple[float, int | None]:
    """Return the standard deviation of the noise on one answer, and its `dimension` for `half_width`."""
    scale = spec.groups[group].scale
    if spec.noise == "gaussian":
        return scale, None
    half = 1 / (2 * scale)  # two-sided geometric, sd = 1 / (sqrt 2 sinh half), close to Laplace
    return math.sqrt(2) * math.exp(-half) / -math.expm1(-2 * half), 1


def _part_sums(scoring: Scoring, model: Any, view: FeatureView, labels: CellColumn) -> list[Floats]:
    with _hide_model_messages(model):
        rows, codes = view(model), None if scoring.groups is None else scoring.groups.codes(view)
        if scoring.metric in PER_RECORD_METRICS:
            losses = record_losses(model, rows, labels, scoring.metric, scoring.max_loss)
            return scoring.group_sums(losses, codes)
        if scoring.metric == "r2":
            return _variance_sums(scoring, model, rows, labels)
        if scoring.metric in CONFUSION_METRICS:
            cells, n_columns = confusion_cells(model, rows, labels), 2
        else:
            cells, n_columns = score_cells(model, rows, labels, scoring.edges), len(scoring.edges) - 1
        cells = cells if codes is None else 2 * n_columns * codes + cells
        counts = np.bincount(cells, minlength=scoring.sum_groups[0][0])
        return [counts.reshape(-1, n_columns).astype(float)]


def _part_totals(
    scoring: Scoring, models: Sequence[Any], view: FeatureView, labels: CellColumn
) -> list[Floats]:
    totals = []
    for model in models:
        with _hide_model_messages(model):
            losses = record_losses(model, view(model), labels, scoring.metric, scoring.max_loss)
        totals.append(np.rint(scoring.max_contribution * (1 - losses)).sum())
    return [np.array(totals)]


@contextmanager
def _hide_model_messages(model: Any) -> Iterator[None]:
    """Suppress the text of a model's errors and warnings, which may quote records."""
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except DplangevinError:
        raise
    except Exception as error:
        raise InvalidParameter(
            f"{type(model).__name__} could not score the records ({type(error).__name__}); its message may quote one "
            "and is not shown. What was charged stays charged, and nothing was released."
        ) from None
