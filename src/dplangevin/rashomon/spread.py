"""How far equally good models differ on public inputs. Post-processing: no private record is read here.

Rows of every array are models, columns are inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Per input: mean, standard deviation, viable range [low, high] and central interval of the models' scores."""

    mean: Floats
    deviation: Floats
    low: Floats
    high: Floats
    interval: tuple[Floats, Floats]
    level: float

    @property
    def width(self) -> Floats:
        """high - low: how much the choice of model can move the score."""
        return np.asarray(self.high - self.low)


def score_spread(scores: ArrayLike, level: float = 0.9) -> Spread:
    """Spread of scores[models, inputs]; the interval leaves (1 - level)/2 of the models out on each side.

    [low, high] is the viable prediction range of Watson-Daniels, Parkes and Ustun (2023) over the given models.

    Examples
    --------
    >>> spread = score_spread([[0.2, 0.5], [0.4, 0.5]])
    >>> spread.mean.round(3).tolist(), spread.width.round(3).tolist()
    ([0.3, 0.5], [0.2, 0.0])
    """
    values = _models_by_inputs("scores", scores).astype(float)
    if not np.all(np.isfinite(values)):
        raise InvalidParameter("scores must be finite numbers.")
    side = (1 - _check.open_unit("level", level)) / 2
    return Spread(
        mean=values.mean(axis=0),
        deviation=values.std(axis=0),
        low=values.min(axis=0),
        high=values.max(axis=0),
        interval=(np.quantile(values, side, axis=0), np.quantile(values, 1 - side, axis=0)),
        level=level,
    )


def conflicted(decisions: ArrayLike, baseline: ArrayLike | None = None) -> NDArray[np.bool_]:
    """Which inputs get another decision from some model: than the baseline's, or (without one) than another model's."""
    table = _models_by_inputs("decisions", decisions)
    reference = table[0] if baseline is None else _reference(baseline, table)
    return np.asarray(np.any(table != reference, axis=0))


def ambiguity(decisions: ArrayLike, baseline: ArrayLike | None = None) -> float:
    """Share of inputs whose decision depends on which of the models is deployed.

    Reference: Marx, Calmon and Ustun (2020), definition 2.

    Examples
    --------
    >>> ambiguity([[0, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0]])
    0.5
    """
    return float(conflicted(decisions, baseline).mean())


def discrepancy(decisions: ArrayLike, baseline: ArrayLike | None = None) -> float:
    """Largest share of decisions that changes when one model replaces the baseline (or, without one, another).

    Reference: Marx, Calmon and Ustun (2020), definition 3.

    Examples
    --------
    >>> discrepancy([[0, 1, 1, 0], [0, 1, 0, 0], [1, 1, 1, 0]])
    0.5
    """
    table = _models_by_inputs("decisions", decisions)
    if baseline is not None:
        return float(np.mean(table != _reference(baseline, table), axis=1).max())
    return float(max(np.mean(table != row, axis=1).max() for row in table))


def disagreement(decisions: ArrayLike) -> Floats:
    """Per input: probability that two models drawn without replacement decide differently (0 for one model).

    Examples
    --------
    >>> disagreement([[0, 1], [1, 1], [1, 1]]).round(4).tolist()
    [0.6667, 0.0]
    """
    table = _models_by_inputs("decisions", decisions)
    models = len(table)
    if models == 1:
        return np.zeros(table.shape[1])
    counts = np.stack([np.sum(table == value, axis=0) for value in np.unique(table)]).astype(float)
    return np.asarray(1 - np.sum(counts * (counts - 1), axis=0) / (models * (models - 1)))


def _models_by_inputs(name: str, values: ArrayLike) -> NDArray[Any]:
    table = np.asarray(values)
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidParameter(
            f"{name} must have shape [models, inputs] with at least one of each, got {list(table.shape)}."
        )
    return table


def _reference(baseline: ArrayLike, table: NDArray[Any]) -> NDArray[Any]:
    reference = np.asarray(baseline)
    if reference.shape != table.shape[1:]:
        raise InvalidParameter(
            f"baseline must hold one decision per input ({table.shape[1]}), got shape {list(reference.shape)}."
        )
    return reference
