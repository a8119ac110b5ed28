"""RecordLoss: any loss of theta and one record, with its gradient clipped record by record."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, NoReturn

import numpy as np

from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses.base import FloatArray, Loss


class RecordLoss(Loss):
    """loss(theta; record) that is no function of a linear score; subclass it and state `gradient_bound`.

    theta has one entry for each column of the row. The gradient of every record is evaluated by itself, on copies, and
    clipped to Euclidean norm `gradient_bound`; one that raises, is not finite or has another shape counts as zero. So
    the bound holds whatever the function does, and a run is accounted by composition, which needs no convexity.

    The bounds of the last iterate alone are not offered: clipping a vector gradient can destroy monotonicity
    (docs/errata.md). They are offered for losses of this library whose clipped gradient is proved to be that of a
    smooth convex function: losses of one score, and `RadialHuber`.

    What the library cannot check is that `record_gradient` depends on its arguments alone. One that remembers earlier
    records breaks the promise.

    Examples
    --------
    >>> class Quartic(RecordLoss):
    ...     name = "quartic"
    ...     gradient_bound = 2.0
    ...     def record_gradient(self, theta, row, label):
    ...         return (theta - row) ** 3
    >>> [gradient_alone(Quartic(), np.zeros(2), np.array([x, 0.0]), 0.0).round(6).tolist() for x in (1.0, 9.0, np.nan)]
    [[-1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]
    """

    name: ClassVar[str] = "record"
    bounded_values: ClassVar[bool] = False
    """Whether `record_values` change by at most gradient_bound times the diameter; believed of this library's own."""
    curvature_bound = math.inf
    convex = False

    @property
    @abstractmethod
    def gradient_bound(self) -> float:
        """The Euclidean norm to which one record's gradient is clipped."""

    @abstractmethod
    def record_gradient(self, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
        """The gradient in theta of the loss of one record, a vector as long as theta."""

    def record_values(self, theta: FloatArray, rows: FloatArray) -> FloatArray:
        """The losses [n, k] at every column of theta[p, k]."""
        raise self._no_score()

    @property
    def slope_bound(self) -> float:  # type: ignore[override]
        return self.gradient_bound

    @property
    def assumptions(self) -> tuple[str, ...]:  # type: ignore[override]
        return (
            f"every record's gradient is computed by itself and clipped to Euclidean norm {self.gradient_bound:g}; one "
            "that fails counts as zero",
            f"the gradient of the {self.name} loss depends on theta and one record alone",
        )

    def value(self, score: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score()

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score()

    def slope(self, score: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score()

    def curvature(self, score: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score()

    def _no_score(self) -> InvalidParameter:
        return InvalidParameter(
            f"the {self.name} loss is a function of a whole record, not of a score; fit it by noisy gradient descent."
        )


def gradient_alone(loss: RecordLoss, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
    """The clipped gradient of one record, on copies; zero when it fails."""
    try:
        with np.errstate(all="ignore"):
            gradient = np.array(loss.record_gradient(theta.copy(), row.copy(), label), float)
    except KeyboardInterrupt:  # a user's, not a record's
        raise
    except BaseException:  # what a record does to a user's function must not be seen in the run
        return np.zeros(theta.shape)
    if gradient.shape != theta.shape or not np.isfinite(gradient).all():
        return np.zeros(theta.shape)
    return np.asarray(clipped_rows(gradient[None, :], loss.gradient_bound)[0])


def clipped_rows(vectors: FloatArray, bound: float) -> FloatArray:
    """Each row shortened to Euclidean norm `bound`, a little less than more. No size of a record overflows or warns."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        scaled = vectors / np.where(largest > 0, largest, 1.0)
        norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
        long = norms * largest > bound * (1 - 1e-12)
        short = scaled * (bound * (1 - 1e-12) / np.where(norms > 0, norms, 1.0))
    return np.where(long, short, vectors)
