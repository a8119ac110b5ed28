"""How many knots a budget can carry: from n, the number of columns, epsilon and delta. No data is involved."""

from __future__ import annotations

import math

from dplangevin.planner.request import Request

MOST, LEAST = 16, 4
RECORDS = 20.0


def hats_for(request: Request, n_curves: int) -> int:
    """Knots for each of `n_curves` numeric columns: as many as leave `RECORDS` records' worth of signal to each.

    One coordinate of the mean gradient is known to within 1 / records, records = n mu / s (pure: n epsilon / (s sqrt
    p)). A curve of k knots has k - 1 coordinates, and its accuracy in steps falls like 1 / k while noise grows with
    k, so k grows like the third root of the records for each column.
    """
    records = request.records(request.delta == 0) / max(request.columns, 1)
    found = round(2 * (records * max(n_curves, 1) / RECORDS) ** (1 / 3)) if records > 0 else LEAST
    return int(min(MOST, max(LEAST, found))) if math.isfinite(records) else MOST
