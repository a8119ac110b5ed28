"""Importance over a set of models: ranges of coefficients and model class reliance on public records.

The reliance of model f on a group of columns is its mean loss when those columns come from another record, over its
mean loss as it is; the range over equally good models is the model class reliance.

Reference: Fisher, Rudin and Dominici (2019), section 3. Over sampled models the range is an inner estimate: models that
were not drawn may lie outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """One value per model of each named quantity: values[names, models]."""

    names: tuple[str, ...]
    values: Floats

    @property
    def low(self) -> Floats:
        """Smallest value over the models."""
        return np.asarray(self.values.min(axis=1))

    @property
    def high(self) -> Floats:
        """Largest value over the models."""
        return np.asarray(self.values.max(axis=1))

    @property
    def middle(self) -> Floats:
        """Median over the models."""
        return np.asarray(np.median(self.values, axis=1))

    def sign_changes(self) -> tuple[str, ...]:
        """The names whose value is positive under one model and negative under another."""
        return tuple(name for name, a, b in zip(self.names, self.low, self.high, strict=True) if a < 0 < b)


def coefficient_cloud(coefficients: ArrayLike, names: Sequence[str]) -> Cloud:
    """Ranges of coefficients[models, columns].

    Examples
    --------
    >>> cloud = coefficient_cloud([[1.0, -0.5], [2.0, 0.5]], ["age", "hours"])
    >>> cloud.low.tolist(), cloud.high.tolist(), cloud.sign_changes()
    ([1.0, -0.5], [2.0, 0.5], ('hours',))
    """
    table = np.asarray(coefficients, float)
    if table.ndim != 2 or table.shape[1] != len(names) or 0 in table.shape:
        raise InvalidParameter(
            f"coefficients must have shape [models, {len(names)}], one column per name, got {list(table.shape)}."
        )
    return Cloud(names=tuple(names), values=table.T.copy())


def model_reliance(
    mean_losses: Callable[[Any], Floats],
    X: Any,
    columns: Mapping[str, Sequence[Any]],
    n_shifts: int | None = None,
) -> Cloud:
    """Reliance of each model on each group of columns, on public records.

    Parameters
    ----------
    mean_losses : maps a table like X to the mean loss of every model, the labels staying with their rows.
    X : array or DataFrame. columns : the groups, each a list of column numbers (array) or names (DataFrame).
    n_shifts : cyclic shifts averaged over; None takes all n - 1, the exact e_switch of the reference.
    """
    rows = len(X)
    if rows < 2:
        raise InvalidParameter(
            f"model reliance exchanges columns between records: X needs two rows, got {rows}."
        )
    count = rows - 1 if n_shifts is None else min(_check.count("n_shifts", n_shifts), rows - 1)
    shifts = np.unique(np.linspace(1, rows - 1, count).round().astype(int))
    plain = np.asarray(mean_losses(X), float)
    if not np.all(plain > 0):
        raise InvalidParameter(
            "model reliance divides by the mean loss, which is 0 for some model; use another loss."
        )
    values = []
    for group in columns.values():
        switched = np.zeros_like(plain)
        for shift in shifts:
            switched += np.asarray(mean_losses(_exchanged(X, group, int(shift))), float)
        values.append(switched / len(shifts) / plain)
    return Cloud(names=tuple(columns), values=np.array(values))


def _exchanged(X: Any, group: Sequence[Any], shift: int) -> Any:
    """X with the group's columns taken from the record `shift` rows further on."""
    other = X.copy()
    for column in group:
        if hasattr(X, "columns"):
            other[column] = np.roll(X[column].to_numpy(), -shift)
        else:
            other[:, column] = np.roll(X[:, column], -shift)
    return other
