"""What one record contributes to a metric, and what is read off noisy sums afterwards (post-processing)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.estimators._intervals import half_width
from dplangevin.tables import Cells, cells_of, labels_of


@dataclass(frozen=True, kw_only=True)
class ReliabilityBin:
    """One bin of a reliability table: predicted probabilities in [low, high), and what was seen there."""

    low: float
    high: float
    share: float
    positive_rate: float
    interval: tuple[float, float]


def bin_edges(bins: int | Sequence[float]) -> Floats:
    """Public edges from 0 to 1: those given, or sin^2 of equal angles (finer where rates vary less)."""
    if isinstance(bins, int | np.integer) and not isinstance(bins, bool):
        number = _check.count("bins", bins, least=2)
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


def losses(model: Any, X: Any, y: Cells, metric: str, cap: float) -> Floats:
    """The share in [0, 1] that each record adds: 1 if wrong, or its loss over the cap. Undefined counts as 1."""
    if metric == "accuracy":
        return _wrong(cells_of(np.asarray(model.predict(X)).ravel(), "predictions"), y, model)
    if metric == "squared-error":
        with np.errstate(over="ignore", invalid="ignore"):
            errors = (
                np.asarray(model.predict(X), float).ravel() - np.asarray(cells_of(y, "y").numbers(), float)
            ) ** 2
    else:
        probabilities, place = _probabilities(model, X), _codes(model, y)
        likely = probabilities[np.arange(len(place)), place]
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = -np.log(np.where(place >= 0, likely, 0.0))
    return np.asarray(np.clip(np.nan_to_num(errors / cap, nan=1.0, posinf=1.0), 0.0, 1.0), float)


def _wrong(predictions: Cells, y: Cells, model: Any) -> Floats:
    """1 where prediction and label are not one label; a missing label is never right."""
    if hasattr(model, "classes_"):
        given, found = _codes(model, y), _codes(model, predictions)
        return np.broadcast_to(np.asarray((given != found) | (given < 0), float), (len(y),))
    texts = y.texts()
    right = (predictions.texts() == texts) & (texts != None)  # noqa: E711 (an array of objects)
    return np.broadcast_to(np.asarray(~right.astype(bool), float), (len(y),))


def _codes(model: Any, cells: Cells) -> NDArray[np.int64]:
    """The place of each label among the model's classes, negative where it is none of them."""
    text = bool(model._text()) if hasattr(model, "_text") else False
    return cells_of(cells, "labels").codes(labels_of(np.asarray(model.classes_).tolist(), text), text=text)


def histogram(model: Any, X: Any, y: Cells, edges: Floats) -> Floats:
    """Counts [2, bins] of scores: other labels in row 0, the positive label (the last class) in row 1."""
    if hasattr(model, "predict_proba"):
        scores = _probabilities(model, X)[:, 1]
    else:
        scores = expit(np.asarray(model.decision_function(X), float).ravel())
    place = np.clip(np.searchsorted(edges, np.nan_to_num(scores), side="right") - 1, 0, len(edges) - 2)
    positive = np.asarray(_codes(model, y) == 1, int)
    counts = np.bincount(positive * (len(edges) - 1) + place, minlength=2 * (len(edges) - 1))
    return counts.reshape(2, -1).astype(float)


def _probabilities(model: Any, X: Any) -> Floats:
    return np.asarray(model.predict_proba(X), float)


def area_under_curve(
    counts: Floats, noise: float, dimension: int | None, level: float
) -> tuple[float, tuple[float, float]]:
    """AUC of a noisy histogram (ties within a bin count half) with DeLong's variance plus that of the noise.

    AUC = sum_i pos_i (neg_below_i + neg_i / 2) / (P N) is linear in each row, so noise does not bias it to first
    order; negative noisy counts are kept for that reason.
    """
    negatives, positives = counts
    total_negative, total_positive = float(negatives.sum()), float(positives.sum())
    doubt = 3 * noise * math.sqrt(len(negatives))
    if min(total_negative, total_positive) <= doubt:  # a class is lost in the noise: nothing is known
        return 0.5, (0.0, 1.0)
    below = (np.cumsum(negatives) - negatives / 2) / total_negative
    above = (positives[::-1].cumsum()[::-1] - positives / 2) / total_positive
    area = float(positives @ below) / total_positive
    by_positive, by_negative = (below - area) / total_positive, (above - area) / total_negative
    sampling = max(float(positives @ by_positive**2 + negatives @ by_negative**2), 0.0)
    added = noise**2 * float(by_positive @ by_positive + by_negative @ by_negative)
    added += noise**4 * len(negatives) ** 2 / 3 / (total_positive * total_negative) ** 2
    width = float(half_width(level, math.sqrt(sampling), math.sqrt(added), dimension))
    value = min(max(area, 0.0), 1.0)
    return value, (max(area - width, 0.0), min(area + width, 1.0))


def reliability(
    counts: Floats, edges: Floats, noise: float, dimension: int | None, level: float
) -> tuple[float, tuple[float, float], tuple[ReliabilityBin, ...]]:
    """Calibration error sum_b |gap_b| / n, gap_b = pos_b - m_b n_b, m_b the middle of bin b, and its table.

    gap_b is seen with an error e_b of known variance, from the counts and from the noise; the value uses
    sqrt(gap_b^2 - Var e_b) where that is positive. Since |gap| <= E |gap + e| <= |gap| + E |e|, the interval reaches
    from sum_b (|seen_b| - E |e_b|) down and from sum_b |seen_b| up by a normal half-width; it is conservative.
    """
    negatives, positives = counts
    sizes = np.maximum(negatives + positives, 1.0)
    total = float(max(counts.sum(), 1.0))
    middles = (edges[:-1] + edges[1:]) / 2
    rates = np.clip(positives / sizes, 0.0, 1.0)
    kept = np.maximum(counts, 0.0)
    smoothed = (kept[1] + 0.5) / (kept.sum(axis=0) + 1)
    seen = np.abs(positives * (1 - middles) - negatives * middles)
    variance = sizes * smoothed * (1 - smoothed) + noise**2 * ((1 - middles) ** 2 + middles**2)
    value = float(np.sqrt(np.maximum(seen**2 - variance, 0.0)).sum() / total)
    width = float(half_width(level, math.sqrt(float(variance.sum())), 0.0))
    low = (float(seen.sum() - math.sqrt(2 / math.pi) * np.sqrt(variance).sum()) - width) / total
    high = (float(seen.sum()) + width) / total
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
            share=float(min(max((negatives[b] + positives[b]) / total, 0.0), 1.0)),
            positive_rate=float(rates[b]),
            interval=(float(max(rates[b] - widths[b], 0.0)), float(min(rates[b] + widths[b], 1.0))),
        )
        for b in range(len(rates))
    )
    return min(value, 1.0), (min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)), table
