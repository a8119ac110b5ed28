"""A synthetic income table with a public schema, for examples and demonstrations. It holds no real person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

OCCUPATIONS = ("clerical", "craft", "managerial", "professional", "sales", "service", "transport")
_OCCUPATION_EFFECTS = np.array([-0.2, 0.0, 1.0, 0.8, 0.2, -0.9, -0.1])

INCOME_SCHEMA = {
    "version": 1,
    "columns": {
        "age": {"range": [17, 90]},
        "education_years": {"range": [4, 20]},
        "hours_per_week": {"range": [1, 99]},
        "capital_gain": {"range": [0, 100_000], "transform": "log1p"},
        "occupation": {"categories": list(OCCUPATIONS)},
        "married": {"categories": ["no", "yes"]},
    },
    "target": {"name": "income", "classes": ["<=50K", ">50K"]},
    "missing": "middle",
    "row_norm": 1.0,
}


def load_income(n: int = 30_000, random_state: int = 0) -> tuple[pd.DataFrame, Schema]:
    """Return a synthetic table of n adults, whose label says who earns more than 50K, and its public schema.

    Age is a clipped Gamma, education and hours are normal, occupation depends on education, capital gains are rare
    and heavy-tailed, and the label is logistic in all of them; about three labels in ten are ">50K". Needs pandas.

    Parameters
    ----------
    n : number of rows.
    random_state : seed of the generator; equal seeds give equal tables.

    Examples
    --------
    >>> table, schema = load_income(n=1000)
    >>> table.shape, schema.target.name
    ((1000, 7), 'income')
    """
    try:
        import pandas as pd
    except ImportError:
        raise InvalidParameter(
            'load_income needs pandas: pip install "dplangevin[tables]", or use load_income_arrays.'
        ) from None
    return pd.DataFrame(_generate_columns(n, random_state)), Schema.from_dict(INCOME_SCHEMA)


def load_income_arrays(n: int = 30_000, random_state: int = 0) -> tuple[NDArray[Any], NDArray[Any], Schema]:
    """Return the table of `load_income` without pandas: cells [rows, columns of the schema], labels, and the schema.

    Examples
    --------
    >>> X, y, schema = load_income_arrays(n=1000)
    >>> X.shape, y[0] in (">50K", "<=50K")
    ((1000, 6), True)
    """
    columns = _generate_columns(n, random_state)
    labels = columns.pop("income")
    return (
        np.column_stack([column.astype(object) for column in columns.values()]),
        labels,
        Schema.from_dict(INCOME_SCHEMA),
    )


def _generate_columns(n: int, random_state: int) -> dict[str, NDArray[Any]]:
    rows, rng = _check.check_count("n", n), np.random.default_rng(random_state)
    age = np.clip(17 + rng.gamma(2.6, 9.0, rows), 17, 90).round()
    education = np.clip(rng.normal(10.2 + 0.02 * (age - 40), 2.6, rows), 4, 20).round()
    preference = 0.35 * (education[:, None] - 10) * np.array([-0.1, -0.3, 0.4, 0.9, 0.1, -0.5, -0.4])
    occupation = np.argmax(preference + rng.gumbel(size=(rows, len(OCCUPATIONS))), axis=1)
    hours = np.clip(rng.normal(40 + 2 * (occupation == 2), 11, rows), 1, 99).round()
    gain = np.where(rng.random(rows) < 0.08, rng.lognormal(8.4, 1.0, rows), 0.0).clip(0, 100_000).round()
    married = rng.random(rows) < 1 / (1 + np.exp(-(age - 33) / 8))
    score = (
        -4.3 + 0.9 * (1 - ((age - 50) / 25) ** 2).clip(-1.5, 1) + 0.33 * (education - 10) + 0.035 * (hours - 40)
        + 1.9 * married + _OCCUPATION_EFFECTS[occupation] + 0.22 * np.log1p(gain)
    )  # fmt: skip
    label = rng.random(rows) < 1 / (1 + np.exp(-(score + 1.0)))
    return {
        "age": age,
        "education_years": education,
        "hours_per_week": hours,
        "capital_gain": gain,
        "occupation": np.array(OCCUPATIONS)[occupation],
        "married": np.where(married, "yes", "no"),
        "income": np.where(label, ">50K", "<=50K"),
    }
