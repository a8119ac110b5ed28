"""Public inputs made from a schema alone: rows drawn uniformly from its ranges and categories. No record is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.schema import CategoricalColumn, Schema

if TYPE_CHECKING:
    import pandas as pd


def schema_inputs(schema: Schema, size: int = 1000, seed: int = 0) -> pd.DataFrame:
    """`size` rows over the whole range of the schema. They are possible people, not likely ones.

    Examples
    --------
    >>> from dplangevin.datasets import income
    >>> schema_inputs(income(n=1)[1], size=3).shape
    (3, 6)
    """
    try:
        import pandas as pd
    except ImportError:
        raise InvalidParameter('this needs pandas: pip install "dplangevin[tables]".') from None
    rows, rng = _check.count("size", size), np.random.default_rng(seed)
    table: dict[str, Any] = {}
    for column in schema.columns:
        if isinstance(column, CategoricalColumn):
            table[column.name] = np.array(column.categories, dtype=object)[
                rng.integers(0, len(column.categories), rows)
            ]
        elif column.transform == "log1p":
            low, high = np.log1p(column.low), np.log1p(column.high)
            table[column.name] = np.expm1(rng.uniform(low, high, rows))
        else:
            table[column.name] = rng.uniform(column.low, column.high, rows)
    return pd.DataFrame(table)
