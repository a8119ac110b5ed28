"""Held-out records on which models are scored, in memory, in files or on Dask, and metrics of their noisy histograms.

Everything here is post-processing of released counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, final

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.data import ArrowSource
from dplangevin.data.dask import (
    LOST_WORKERS_MESSAGE,
    RETRIES,
    connect_client,
    dask_failures,
    delayed_partitions,
    is_dask,
)
from dplangevin.data.sources import make_source
from dplangevin.errors import DplangevinError, InvalidParameter
from dplangevin.estimators._base import DPLinearModel
from dplangevin.estimators._posterior import half_width, proportion_interval
from dplangevin.estimators._reading import is_table, split_named_columns, to_dense, zero_nonfinite_rows
from dplangevin.estimators.schema_encoder import as_schema, encoding_schema
from dplangevin.tables import (
    CellColumn,
    Table,
    TableFiles,
    as_column,
    as_matrix,
    as_table,
    is_frame,
    is_streamed,
)
from dplangevin.tables.lazy import open_stored_table


def check_model_matches_table(model: Any, X: Any, y: Any = None) -> None:
    """Raise if the model is not fitted, or was fitted on other columns than X has; no record is read."""
    if isinstance(model, BaseEstimator):
        try:
            check_is_fitted(model)
        except NotFittedError:
            raise InvalidParameter(f"the {type(model).__name__} is not fitted yet; fit it first.") from None
    columns = None
    if not is_streamed(X):
        named = X.keys() if isinstance(X, Mapping) and is_frame(X) else getattr(X, "columns", None)
        columns = None if named is None else [str(name) for name in named]
    schema = getattr(model, "schema_", getattr(model, "schema", None))
    if schema is not None:
        if columns is not None:
            as_schema(schema).validate(columns)
        return
    names = getattr(model, "feature_names_in_", None)
    if names is not None and columns is not None:
        absent = [str(name) for name in names if str(name) not in columns]
        if absent:
            raise InvalidParameter(
                f"the {type(model).__name__} was fitted on {', '.join(map(repr, absent))}, and the table has no such "
                "column."
            )
    n_expected: int | None = getattr(model, "n_features_in_", None)
    shape: tuple[int, ...] = getattr(X, "shape", ())
    has_no_target = not isinstance(y, str)  # otherwise the table holds the target too
    if (
        names is None
        and has_no_target
        and n_expected is not None
        and len(shape) == 2
        and shape[1] != n_expected
    ):
        raise InvalidParameter(
            f"the {type(model).__name__} was fitted on {n_expected} columns, and X has {shape[1]}; pass the same "
            "columns."
        )


class TableColumn(NamedTuple):
    """In place of a model in a FeatureView: the cells of the column of this name."""

    name: str


FeatureView = Callable[
    [Any], Any
]  # from a model to the features in the form it expects, or from a TableColumn
SumTask = Callable[[FeatureView, CellColumn], Sequence[Floats]]
PartSums = tuple[Sequence[Floats], int]


class HeldOutRecords(ABC):
    """Features and labels, possibly in parts; sums of integers do not depend on the partition."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of records; private under add-remove adjacency."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Names of the columns beside the target; none where columns have no names."""

    @abstractmethod
    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        """Yield the task's sums over each part, and the number of records in it."""

    def sum_over_parts(self, task: SumTask) -> list[Floats]:
        """Return the arrays task(view, labels), summed over the parts; view(model) are the features for a model."""
        total: list[Floats] = []
        n_read = 0
        for sums, count in self._sums_by_part(task):
            n_read += count
            if count:
                total = [a + b for a, b in zip(total, sums, strict=True)] if total else list(sums)
        if n_read != len(self):
            raise InvalidParameter(
                "the number of records changed while they were read; make the source read-only. What was charged "
                "stays charged, and nothing was released."
            )
        return total


def open_held_out(X: Any, y: Any, *, count_is_public: bool = False) -> HeldOutRecords:
    """Return the records of X and y: arrays or a table, files and the name of a column, or Dask collections.

    With `count_is_public`, raise if there are no records; otherwise even that would depend on the data.
    """
    records = _open_records(X, y)
    if count_is_public and not len(records):
        raise InvalidParameter("y must have one entry per row of X, and there must be at least one.")
    return records


def _open_records(X: Any, y: Any) -> HeldOutRecords:
    if is_dask(X):
        return _DaskRecords(X, y)
    X = open_stored_table(X)
    if (isinstance(X, TableFiles) and not isinstance(y, str)) or (isinstance(X, Mapping) and is_frame(X)):
        X = as_table(X)
    source = None if isinstance(X, np.ndarray) else make_source(X, y)
    if source is None:
        return _InMemoryRecords(X, y)
    if not isinstance(source, ArrowSource):
        raise InvalidParameter(
            "models are scored on files with named columns; pass an array itself, not as a source."
        )
    return _FileRecords(source)


@final
class _InMemoryRecords(HeldOutRecords):
    """Records in arrays, lists or tables in memory."""

    def __init__(self, X: Any, y: Any) -> None:
        if is_table(X):
            X, y, _ = split_named_columns(X, y, None)
        # The cells of a list are not read before the charge; other containers become columns of unread cells.
        self._X, self._y = X, y if isinstance(y, list) else as_column(y, "y")
        rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if len(self._y) != rows:
            raise InvalidParameter("y must have one entry per row of X.")

    def __len__(self) -> int:
        return len(self._y)

    @property
    def names(self) -> Sequence[str]:
        return as_table(self._X).names if is_table(self._X) else ()

    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        yield _apply_task(self._X, self._y, task, in_memory=True)


@final
class _FileRecords(HeldOutRecords):
    """Records in files, read by batches."""

    def __init__(self, source: ArrowSource) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    @property
    def names(self) -> Sequence[str]:
        return self._source.features

    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        for table, labels, _ in self._source.batches():
            yield _apply_task(table, labels, task)


@final
class _DaskRecords(HeldOutRecords):
    """Records of Dask collections, summed on the workers."""

    def __init__(self, X: Any, y: Any) -> None:
        self._client, self._size = connect_client(None), len(X)
        self._collections = delayed_partitions(X, y, None)
        target = y if isinstance(y, str) else None
        self._names = tuple(str(name) for name in getattr(X, "columns", ()) if name != target)

    def __len__(self) -> int:
        return self._size

    @property
    def names(self) -> Sequence[str]:
        return self._names

    def _sums_by_part(self, task: SumTask) -> Iterable[PartSums]:
        import dask

        delayed_task = dask.delayed(_apply_task, pure=False)
        try:
            futures = self._client.compute(
                [delayed_task(X, y, task) for X, y, _ in self._collections], retries=RETRIES
            )
            parts: list[PartSums] = self._client.gather(futures)
        except dask_failures() as error:
            raise DplangevinError(LOST_WORKERS_MESSAGE.format(type(error).__name__)) from error
        return parts


def _apply_task(X: Any, y: Any, task: SumTask, in_memory: bool = False) -> PartSums:
    labels = as_column(y, "y")
    view = partial(_features_in_memory if in_memory else _features_of_part, X)
    sums = task(view, labels) if len(labels) else ()  # models raise for a part without records
    return sums, len(labels)


def _features_in_memory(rows: Any, model: Any) -> Any:
    """Return a table in memory: read record by record for a model of this library, unchanged for any other.

    A model of another library that was fitted on fewer columns of a DataFrame than it has gets those alone.
    """
    if isinstance(model, TableColumn):
        return as_table(rows).column(model.name)
    if isinstance(model, DPLinearModel):
        return _features_for_dp_model(rows, model)
    names = getattr(model, "feature_names_in_", None)
    return rows[list(names)] if names is not None and hasattr(rows, "loc") else rows


def _features_of_part(rows: Any, model: Any) -> Any:
    """Return the rows of a part in the form in which the model was fitted: named columns, or a matrix of numbers."""
    if isinstance(model, TableColumn):
        return as_table(rows).column(model.name)
    if isinstance(model, DPLinearModel):
        return _features_for_dp_model(rows, model)
    if isinstance(rows, Table):
        rows = _to_pandas(rows)
    names = getattr(model, "feature_names_in_", None)
    if not hasattr(rows, "columns"):
        return rows
    if names is not None:
        return rows[list(names)]
    return rows.to_numpy() if hasattr(model, "n_features_in_") else rows


def _features_for_dp_model(rows: Any, model: DPLinearModel) -> Any:
    """Return rows for which nothing raises: the table if there is a schema, else numbers with bad rows set to zero."""
    if encoding_schema(model) is not None:
        return rows
    names = getattr(model, "feature_names_in_", None)
    if names is not None and is_table(rows):
        table = as_table(rows)
        rows = Table({str(name): table.column(str(name)) for name in names}, len(table))
    rows = to_dense(rows) if issparse(rows) else rows
    return zero_nonfinite_rows(as_matrix(rows, model.n_features_in_))


def _to_pandas(table: Table) -> Any:
    """Return a DataFrame for a model of another library: numeric columns as doubles, other cells read one by one."""
    import pandas as pd

    columns = {name: table.column(name) for name in table.names}
    return pd.DataFrame(
        {
            name: cells.numbers() if cells.is_numeric else pd.Series(cells.plain_values(), dtype=object)
            for name, cells in columns.items()
        }
    )


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
