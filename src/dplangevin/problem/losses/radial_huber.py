"""The Huber loss of a distance: robust means and geometric medians."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dplangevin import _check
from dplangevin.problem.losses.base import FloatArray
from dplangevin.problem.losses.record import RecordLoss, clipped_rows, gradient_alone


@final
@dataclass(frozen=True, kw_only=True)
class RadialHuber(RecordLoss):
    """h(|theta - x|), h(r) = r^2 / 2 up to r = width and width (r - width / 2) beyond; labels do not enter.

    It is width times the Moreau envelope of |theta - x|: the gradient is theta - x clipped to norm `width`, the
    projection on a ball, so it is the gradient of a convex function with Lipschitz constant `width` and smoothness 1. A
    wide one estimates the mean, a narrow one the geometric median: F / width lies below the mean distance by at most
    width / 2 (`moreau_excess`).

    Examples
    --------
    >>> rows = np.array([[0.3, 0.4], [3.0, 4.0]])
    >>> clipped_gradients(RadialHuber(width=1.0), np.zeros(2), rows, np.zeros(2)).round(6).tolist()
    [[-0.3, -0.4], [-0.6, -0.8]]
    """

    name: ClassVar[str] = "radial-huber"
    curvature_bound = 1.0
    convex = True
    width: float

    def __post_init__(self) -> None:
        _check.each(self, width=_check.positive)

    @property
    def gradient_bound(self) -> float:
        return self.width

    def record_gradient(self, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
        return theta - row


def clipped_gradients(
    loss: RecordLoss, theta: FloatArray, rows: FloatArray, labels: FloatArray
) -> FloatArray:
    """The gradients that are summed, one row a record: each by itself; RadialHuber, which is known, all at once.

    Rows of a data set are finite.
    """
    if type(loss) is RadialHuber:
        return clipped_rows(theta[None, :] - rows, loss.gradient_bound)
    found = np.zeros(rows.shape)
    for i in range(len(rows)):
        found[i] = gradient_alone(loss, theta, rows[i], float(labels[i]))
    return found
