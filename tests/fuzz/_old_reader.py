"""The reader of lists before it checked types: a broken variant that tests and audits must catch."""

from __future__ import annotations

from typing import Any

import numpy as np

from dplangevin.tables.columns import ArrayColumn
from fuzz import _matrix as matrix


def old_column(container: str, given: Any) -> Any:
    """The reader as it was: whatever NumPy manages to read as numbers is read by it."""
    if not isinstance(given, list | tuple):
        return matrix.column_of(container, given)
    try:
        array = np.asarray(given)
    except Exception:
        array = None
    if array is not None and array.ndim == 1 and array.dtype.kind in "biuf" and array.size:
        return ArrayColumn(array)
    found = np.empty(len(given), dtype=object)
    for place, item in enumerate(given):  # and by its exact rule an array was missing
        found[place] = None if hasattr(item, "shape") and not isinstance(item, np.generic) else item
    return ArrayColumn(found)
