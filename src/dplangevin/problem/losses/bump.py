"""A bump around the record: the loss behind lower bounds for losses that are not convex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray
from dplangevin.problem.losses.record import RecordLoss


@final
@dataclass(frozen=True, kw_only=True)
class Bump(RecordLoss):
    """min(0, |theta - x| - width): 1-Lipschitz and not convex; labels do not enter.

    Records on a packing of centres 2 width apart vote for them: the minimum of the mean is -width times the largest
    share of votes, and finding it is private selection among exponentially many centres.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2022), Theorem G.1, with the packing's distance and the scale corrected; each record
    votes for one centre here.
    """

    name: ClassVar[str] = "bump"
    gradient_bound = 1.0
    bounded_values = True
    width: float

    def __post_init__(self) -> None:
        _check.each(self, width=_check.positive)

    def record_gradient(self, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
        away = theta - row
        distance = float(np.linalg.norm(away))
        return away / distance if 0 < distance < self.width else np.zeros(theta.shape)

    def record_values(self, theta: FloatArray, rows: FloatArray) -> FloatArray:
        squares = np.zeros((len(rows), theta.shape[1]))
        for axis in range(len(theta)):  # no cancellation near the record
            squares += (rows[:, axis, None] - theta[axis]) ** 2
        return np.minimum(0.0, np.sqrt(squares) - self.width)
