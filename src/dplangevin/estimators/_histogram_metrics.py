"""Metrics of noisy histograms: counts of labels by predicted label, or by bin of the predicted probability.

Everything here is post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._posterior import half_width, proportion_interval

Interval = tuple[float, float]
CONFUSION_METRICS = ("recall", "precision", "f1", "balanced_accuracy")
"""Metrics of the counts of labels by predicted label, for two classes."""
N_SIMULATIONS = 400


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


def interpret_confusion(
    metric: str, counts: Floats, noise: float, dimension: int | None, level: float
) -> tuple[float, Interval]:
    """Return a metric of noisy counts [label, predicted label], and its interval.

    Recall and precision are proportions of a noisy number of records; f1 = 2 J / (1 + J) with the proportion J of true
    positives among all records that are positive or predicted so. Where noise hides the denominator, the value is 0
    with the interval (0, 1), for balanced accuracy 1/2.
    """
    (true_negative, false_positive), (false_negative, true_positive) = counts.tolist()
    if metric == "recall":
        return _proportion(true_positive, (false_negative,), noise, dimension, level)
    if metric == "precision":
        return _proportion(true_positive, (false_positive,), noise, dimension, level)
    if metric == "f1":
        value, ends = _proportion(true_positive, (false_negative, false_positive), noise, dimension, level)
        low, high = (2 * end / (1 + end) for end in ends)
        return 2 * value / (1 + value), (low, high)
    hits = np.array([true_negative, true_positive])
    sizes = counts.sum(axis=1)
    if sizes.min() <= 3 * noise * math.sqrt(2):
        return 0.5, (0.0, 1.0)
    rates = np.clip(hits / sizes, 0.0, 1.0)
    smoothed = (np.maximum(hits, 0.0) + 0.5) / (sizes + 1)
    sampling = math.sqrt(float((smoothed * (1 - smoothed) / sizes).sum())) / 2
    noise_std = noise * math.sqrt(float(((rates**2 + (1 - rates) ** 2) / sizes**2).sum())) / 2
    value, width = float(rates.mean()), float(half_width(level, sampling, noise_std, dimension))
    return value, (max(value - width, 0.0), min(value + width, 1.0))


def _proportion(
    hits: float, misses: Sequence[float], noise: float, dimension: int | None, level: float
) -> tuple[float, Interval]:
    """Return hits / (hits + misses) for noisy counts, and its interval."""
    size = hits + math.fsum(misses)
    if size <= 3 * noise * math.sqrt(1 + len(misses)):
        return 0.0, (0.0, 1.0)
    value = min(max(hits / size, 0.0), 1.0)
    noise_std = noise * math.sqrt((1 - value) ** 2 + len(misses) * value**2) / size
    return value, proportion_interval(value, size, noise_std, dimension, level)


def average_precision(
    counts: Floats, noise: float, dimension: int | None, level: float
) -> tuple[float, Interval]:
    """Return the average precision of a noisy histogram, sum (R_k - R_{k-1}) P_k over its edges, and an interval.

    The interval is as wide as the metric spreads when records and noise are drawn anew for the released counts, with
    public random numbers.
    """
    if min(counts.sum(axis=1)) <= 3 * noise * math.sqrt(counts.shape[1]):
        return 0.0, (0.0, 1.0)
    rng, shape = np.random.default_rng(0), (N_SIMULATIONS, *counts.shape)
    center = np.maximum(counts, 0.0)
    center *= (counts.sum(axis=1) / np.maximum(center.sum(axis=1), 1e-300))[:, None]
    draws = rng.standard_normal(shape) if dimension is None else rng.laplace(scale=math.sqrt(0.5), size=shape)
    simulated = _average_precisions(rng.poisson(center, shape) + noise * draws)
    value = float(_average_precisions(counts[None])[0])
    middle = float(_average_precisions(center[None])[0])
    width = float(np.quantile(np.abs(simulated - middle), level))
    return value, (max(value - width, 0.0), min(value + width, 1.0))


def _average_precisions(counts: Floats) -> Floats:
    """Return the average precision of each of several histograms [m, 2, bins]."""
    from_top = counts[..., ::-1].cumsum(axis=-1)
    positives, total = from_top[:, 1], np.maximum(from_top.sum(axis=1), 1.0)
    precision = np.clip(positives / total, 0.0, 1.0)
    gains = np.diff(positives, axis=-1, prepend=0.0) / np.maximum(positives[:, -1:], 1.0)
    return np.asarray(np.clip((gains * precision).sum(axis=-1), 0.0, 1.0))
