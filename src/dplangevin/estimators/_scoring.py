"""Metrics on private records: each record's contribution, the noise on the sums, and their post-processing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.accounting.conditions import Condition
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._call_context import find_foreign_steps, find_learned_steps
from dplangevin.estimators._held_out import FeatureView, HeldOutRecords
from dplangevin.estimators._posterior import half_width, proportion_interval
from dplangevin.mechanisms.noisy_answers.spec import NoisySumsSpec, SumNoise
from dplangevin.mechanisms.noisy_answers.theorem import calibrate_noisy_sums
from dplangevin.mechanisms.release import AnswersRelease
from dplangevin.problem.constants import ADJACENCIES, Adjacency
from dplangevin.tables import CellColumn, as_column, label_indices


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """Bin of a reliability table.

    Parameters
    ----------
    low, high : the bin holds predicted probabilities in [low, high).
    fraction : of the records in the bin.
    positive_rate : of the records in the bin, with noise.
    interval : confidence interval of the positive rate.
    """

    low: float
    high: float
    fraction: float
    positive_rate: float
    interval: tuple[float, float]


def bin_edges(bins: int | Sequence[float]) -> Floats:
    """Return public edges from 0 to 1: those given, or sin^2 of equal angles (finer where rates vary less)."""
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        number = _check.check_count("bins", bins, minimum=2)
        return np.sin(np.linspace(0.0, math.pi / 2, number + 1)) ** 2
    try:
        edges = np.asarray(bins, float)
    except (TypeError, ValueError):
        edges = np.zeros(0)
    if edges.ndim != 1 or len(edges) < 3 or edges[0] != 0 or edges[-1] != 1 or not (np.diff(edges) > 0).all():
        raise InvalidParameter(
            f"bins must be a number of bins or increasing public edges from 0 to 1, got {bins!r}."
        )
    return edges


def record_losses(model: Any, X: Any, y: CellColumn, metric: str, cap: float) -> Floats:
    """Return each record's loss in [0, 1]: 1 if its prediction is wrong, or its loss over the cap; 1 if undefined."""
    if metric == "accuracy":
        return _error_indicators(as_column(np.asarray(model.predict(X)).ravel(), "predictions"), y, model)
    if metric == "squared-error":
        with np.errstate(over="ignore", invalid="ignore"):
            errors = (
                np.asarray(model.predict(X), float).ravel() - np.asarray(as_column(y, "y").numbers(), float)
            ) ** 2
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


def score_histogram(model: Any, X: Any, y: CellColumn, edges: Floats) -> Floats:
    """Return counts [2, bins] of scores: other labels in row 0, the positive label (the last class) in row 1."""
    if hasattr(model, "predict_proba"):
        scores = _predict_probabilities(model, X)[:, 1]
    else:
        scores = expit(np.asarray(model.decision_function(X), float).ravel())
    bin_index = np.clip(np.searchsorted(edges, np.nan_to_num(scores), side="right") - 1, 0, len(edges) - 2)
    positive = np.asarray(_label_codes(model, y) == 1, int)
    counts = np.bincount(positive * (len(edges) - 1) + bin_index, minlength=2 * (len(edges) - 1))
    return counts.reshape(2, -1).astype(float)


def _predict_probabilities(model: Any, X: Any) -> Floats:
    return np.asarray(model.predict_proba(X), float)


def area_under_curve(
    counts: Floats, noise: float, dimension: int | None, level: float
) -> tuple[float, tuple[float, float]]:
    """Return the AUC of a noisy histogram (ties within a bin count half), and its interval.

    The interval uses DeLong's variance plus that of the noise. AUC = sum_i pos_i (neg_below_i + neg_i / 2) / (P N) is
    linear in each row, so noise does not bias it to first order; negative noisy counts are kept for that reason.
    """
    negatives, positives = counts
    total_negative, total_positive = float(negatives.sum()), float(positives.sum())
    min_class_size = 3 * noise * math.sqrt(len(negatives))
    if min(total_negative, total_positive) <= min_class_size:  # a class does not stand above the noise
        return 0.5, (0.0, 1.0)
    below = (np.cumsum(negatives) - negatives / 2) / total_negative
    above = (positives[::-1].cumsum()[::-1] - positives / 2) / total_positive
    area = float(positives @ below) / total_positive
    by_positive, by_negative = (below - area) / total_positive, (above - area) / total_negative
    sampling = max(float(positives @ by_positive**2 + negatives @ by_negative**2), 0.0)
    noise_variance = noise**2 * float(by_positive @ by_positive + by_negative @ by_negative)
    noise_variance += noise**4 * len(negatives) ** 2 / 3 / (total_positive * total_negative) ** 2
    width = float(half_width(level, math.sqrt(sampling), math.sqrt(noise_variance), dimension))
    value = min(max(area, 0.0), 1.0)
    return value, (max(area - width, 0.0), min(area + width, 1.0))


def reliability_table(
    counts: Floats, edges: Floats, noise: float, dimension: int | None, level: float
) -> tuple[float, tuple[float, float], tuple[ReliabilityBin, ...]]:
    """Return the calibration error sum_b |gap_b| / n, gap_b = pos_b - m_b n_b, its interval and the reliability table.

    m_b is the middle of bin b. gap_b is observed as gap_b + e_b, an error of known variance from sampling and noise;
    the value uses sqrt((gap_b + e_b)^2 - Var e_b) where that is positive. Since |gap| <= E |gap + e| and
    E |gap + e| <= |gap| + E |e|, the interval extends a normal half-width below sum_b (|gap_b + e_b| - E |e_b|) and
    above sum_b |gap_b + e_b|; it is conservative.
    """
    negatives, positives = counts
    sizes = np.maximum(negatives + positives, 1.0)
    total = float(max(counts.sum(), 1.0))
    middles = (edges[:-1] + edges[1:]) / 2
    rates = np.clip(positives / sizes, 0.0, 1.0)
    nonnegative_counts = np.maximum(counts, 0.0)
    smoothed = (nonnegative_counts[1] + 0.5) / (nonnegative_counts.sum(axis=0) + 1)
    absolute_gaps = np.abs(positives * (1 - middles) - negatives * middles)
    variance = sizes * smoothed * (1 - smoothed) + noise**2 * ((1 - middles) ** 2 + middles**2)
    value = float(np.sqrt(np.maximum(absolute_gaps**2 - variance, 0.0)).sum() / total)
    width = float(half_width(level, math.sqrt(float(variance.sum())), 0.0))
    low = (float(absolute_gaps.sum() - math.sqrt(2 / math.pi) * np.sqrt(variance).sum()) - width) / total
    high = (float(absolute_gaps.sum()) + width) / total
    widths = half_width(
        level,
        np.sqrt(smoothed * (1 - smoothed) / sizes),
        noise * np.hypot(1 - rates, rates) / sizes,
        dimension,
    )
    table = tuple(
        ReliabilityBin(
            low=float(edges[b]),
            high=float(edges[b + 1]),
            fraction=float(min(max((negatives[b] + positives[b]) / total, 0.0), 1.0)),
            positive_rate=float(rates[b]),
            interval=(float(max(rates[b] - widths[b], 0.0)), float(min(rates[b] + widths[b], 1.0))),
        )
        for b in range(len(rates))
    )
    return min(value, 1.0), (min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)), table


METRICS = ("accuracy", "log-loss", "squared-error", "auc", "calibration")
PER_RECORD_METRICS = ("accuracy", "log-loss", "squared-error")
CAPPED_METRICS = ("log-loss", "squared-error")
LOG_LOSS_CAP = 5.0
LOSS_GRID_SIZE = 2**16  # losses are multiples of cap / LOSS_GRID_SIZE, so that integer noise can be used
MOMENT_BUDGET_FRACTION = 0.2  # for the second moment of a loss


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """Metric with its public settings.

    Parameters
    ----------
    metric : one of METRICS.
    adjacency : "replace-one" or "add-remove".
    cap : bound at which a record's loss is clipped, for CAPPED_METRICS.
    bins : number of bins or public edges, for "auc" and "calibration".
    """

    metric: str
    adjacency: str
    cap: float | None = None
    bins: int | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _check.check_choice("metric", self.metric, METRICS)
        _check.check_choice("adjacency", self.adjacency, ADJACENCIES)
        _ = self.max_loss, self.edges  # fail here rather than at the first use

    @property
    def checked_adjacency(self) -> Adjacency:
        """Adjacency, validated."""
        return _check.check_choice("adjacency", self.adjacency, ADJACENCIES)

    @property
    def max_contribution(self) -> int:
        """Largest contribution of one record to a sum, in integer units."""
        return LOSS_GRID_SIZE if self.metric in CAPPED_METRICS else 1

    @property
    def max_loss(self) -> float:
        """Bound at which the loss of a record is clipped."""
        if self.cap is not None:
            if self.metric not in CAPPED_METRICS:
                raise InvalidParameter(f"cap has no meaning for metric={self.metric!r}; leave it out.")
            return _check.check_positive("cap", self.cap)
        if self.metric == "squared-error":
            raise InvalidParameter(
                "metric='squared-error' needs cap, a stated bound on one record's squared error, e.g. "
                "((high - low) / 4) ** 2: larger errors are clipped, and it is never measured from the data."
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
        name = "predict_proba" if self.metric in ("log-loss", "calibration") else "predict"
        if not hasattr(model, name):
            raise InvalidParameter(
                f"metric={self.metric!r} needs a fitted model with {name}, got {type(model).__name__}."
            )
        if self.metric in ("auc", "calibration") and len(getattr(model, "classes_", ())) != 2:
            raise InvalidParameter(f"metric={self.metric!r} needs a fitted classifier of two classes.")

    @property
    def sum_groups(self) -> list[tuple[int, float, float]]:
        """(answers, unit, fraction of the budget) of each group of sums."""
        # Under add-remove n is private, so that the sum of 1 - loss is released too.
        n_answers = 1 if self.adjacency == "replace-one" else 2
        if self.metric == "accuracy":
            return [(n_answers, self.max_contribution, 1.0)]
        if self.metric in CAPPED_METRICS:
            return [
                (n_answers, self.max_contribution, 1 - MOMENT_BUDGET_FRACTION),
                (1, self.max_contribution, MOMENT_BUDGET_FRACTION),
            ]
        return [(2 * (len(self.edges) - 1), self.max_contribution, 1.0)]

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
        shapes = [
            answers if self.metric in PER_RECORD_METRICS else (2, answers // 2)
            for answers, _, _ in self.sum_groups
        ]
        return [np.zeros(shape) for shape in shapes]

    def exact_totals(self, models: Sequence[Any], records: HeldOutRecords) -> list[Floats]:
        """Return the sum of 1 - loss of each model, in integer units, which add exactly; this reads the records.

        1 - loss >= 0: under add-remove, adding a record raises every total, which the proof of noisy max uses.
        """
        return records.sum_over_parts(partial(_part_totals, self, tuple(models))) or [np.zeros(len(models))]

    def loss_sums(self, losses: Floats) -> list[Floats]:
        """Return the sums of losses in [0, 1], in integer units."""
        loss_units = np.rint(self.max_contribution * losses)
        sums = [
            np.array([loss_units.sum(), (self.max_contribution - loss_units).sum()][: self.sum_groups[0][0]])
        ]
        if self.metric in CAPPED_METRICS:
            sums.append(np.array([np.rint(self.max_contribution * losses**2).sum()]))
        return sums

    def interpret_release(
        self, release: AnswersRelease, n: int, level: float
    ) -> tuple[float, tuple[float, float], tuple[ReliabilityBin, ...]]:
        """Return value, interval and reliability table of the noisy sums; n is used only where it is public."""
        noise = release.plan.spec
        assert isinstance(noise, NoisySumsSpec)
        if self.metric in PER_RECORD_METRICS:
            return (*self._mean_with_interval(release.values, noise, n, level), ())
        if self.metric == "auc":
            return (*area_under_curve(release.values[0], *noise_distribution(noise), level), ())
        return reliability_table(release.values[0], self.edges, *noise_distribution(noise), level)

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

    def assumptions(self, model: Any) -> tuple[str, ...]:
        """Return the assumptions of the guarantee, and what it does not cover."""
        assumptions = [
            "the model is fixed beforehand: the privacy cost of fitting it is not counted here",
            "the model's prediction for a record depends on no other scored record",
        ]
        if self.adjacency == "replace-one":
            assumptions.append("the number of scored records is public")
        if self.metric in CAPPED_METRICS:
            assumptions.append(f"the loss of one record is clipped at {self.max_loss:g}")
        learned = find_learned_steps(model)
        if learned:
            assumptions.append(
                f"{', '.join(learned)} learned from data outside any guarantee: unless those data are public, "
                "the model itself has no guarantee"
            )
        return tuple(assumptions)


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
        rows = view(model)
        if scoring.metric in PER_RECORD_METRICS:
            return scoring.loss_sums(record_losses(model, rows, labels, scoring.metric, scoring.max_loss))
        return [score_histogram(model, rows, labels, scoring.edges)]


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
