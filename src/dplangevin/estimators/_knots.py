"""How many knots a budget can carry: from n, the number of columns, epsilon and delta. No data is involved."""

from __future__ import annotations

import math

from dplangevin.planner.request import Request

LEAST, MOST = 2, 16
MOST_WITH_BANDS = 8
"""The curvature that bands rest on has a row for every coordinate: with more, its noise hides it."""
FACTOR, PURE_FACTOR = 3.5, 3.0
KNOTS_EACH = 8


def hats_for(request: Request, n_curves: int, bands: bool = False) -> int:
    """Knots of each of `n_curves` columns: FACTOR times the third root of the signal, records / columns.

    Columns are those of the linear model and KNOTS_EACH more for each curve.

    One coordinate of the mean gradient is known to within 1 / records, records = n mu / s (pure: n epsilon / (s sqrt
    p)). What a curve of k knots misses falls like 1 / k^2 (a power of k between 1 and 4, as the truth is stepped or
    smooth), what noise adds grows like k / records: hence the third root. Two knots are a straight line.
    """
    pure = request.delta == 0
    signal = request.records(pure) / (request.columns + KNOTS_EACH * n_curves)
    most = MOST_WITH_BANDS if bands else MOST
    if not math.isfinite(signal):
        return most
    if not pure:
        return int(min(most, max(LEAST, round(FACTOR * signal ** (1 / 3)))))
    return max(
        (k for k in range(LEAST, most + 1) if k <= _pure(request.columns, n_curves, k, signal)), default=LEAST
    )


def _pure(columns: int, n_curves: int, hats: int, signal: float) -> float:
    """The same rule where noise grows with the root of all coefficients, the curves' own among them."""
    grown = (columns + hats * n_curves) / columns
    return float(PURE_FACTOR * (signal / math.sqrt(grown)) ** (1 / 3))
