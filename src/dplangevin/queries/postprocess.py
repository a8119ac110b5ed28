"""Post-processing of released counts. It reads no private data, so it costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats


def nonnegative(values: ArrayLike, total: float | None = None) -> Floats:
    """Counts cut at 0; with a total, the nearest counts (in least squares) that are >= 0 and add up to it.

    Examples
    --------
    >>> nonnegative([3.0, -1.0, 2.0], total=4.0)
    array([2.5, 0. , 1.5])
    """
    counts = np.asarray(values, float)
    if total is None:
        return np.asarray(np.maximum(counts, 0.0))
    wanted = _check.nonnegative("total", total)
    ordered = np.sort(counts)[::-1]
    excess = (np.cumsum(ordered) - wanted) / np.arange(1, counts.size + 1)
    above = np.flatnonzero(ordered > excess)
    if wanted == 0 or above.size == 0:
        result = np.zeros_like(counts)
        result[np.argmax(counts)] = wanted
        return result
    return np.asarray(np.maximum(counts - excess[above[-1]], 0.0))


def rounded(values: ArrayLike, total: float | None = None) -> Floats:
    """Whole counts; with a total, the largest fractions are rounded up so that the rounded total is kept."""
    counts = np.asarray(values, float)
    if total is None:
        return np.asarray(np.rint(counts))
    result = np.floor(counts)
    units = round(total - float(result.sum()))
    order = np.argsort(result - counts, kind="stable")
    if units > 0:
        result[order[: min(units, counts.size)]] += 1
    return np.asarray(result)


def consistent_totals(tables: Sequence[ArrayLike], total: float | None = None) -> list[Floats]:
    """Shift each table evenly so that all add up to one total: the least-squares projection of equal-noise counts.

    Without a known total it is sum(T_i / c_i) / sum(1 / c_i), with T_i the sum and c_i the number of cells of table i.
    """
    counts = [np.asarray(table, float) for table in tables]
    if total is None:
        weights = np.array([1 / table.size for table in counts])
        total = float(weights @ np.array([table.sum() for table in counts]) / weights.sum())
    return [table + (total - table.sum()) / table.size for table in counts]
