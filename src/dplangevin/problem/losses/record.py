"""Losses of theta and a whole record, with per-record gradients clipped: any user's, and two of this library."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NoReturn, final

import numpy as np

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.problem.losses.base import FloatArray, Loss


class RecordLoss(Loss):
    """A loss(theta; record) that is not a function of a linear score; subclass it and state a bound.

    For descents and Langevin diffusion state `gradient_bound` and define `record_gradient`; for draws on a public grid
    (exponential mechanism, Rashomon sets) state `value_range` and define `values_of_record`. Either is enough.

    theta has one entry for each column of the row. The gradient of every record is evaluated on its own, on copies,
    and clipped to Euclidean norm `gradient_bound`; one that raises, is not finite or has another shape is replaced by
    zero. So the bound holds whatever the function does, and a run is accounted by composition, which needs no
    convexity.

    Guarantees for the last iterate alone do not apply: clipping a vector gradient can destroy monotonicity
    (docs/errata.md). They apply to losses of this library whose clipped gradient is proved to be that of a smooth
    convex function: losses of one score, and `RadialHuber`.

    The values of each record are evaluated on their own too, on copies, clipped to `value_range`, and rounded down to
    multiples of a public unit, so that their sums are exact; one that fails is replaced by the lower end.

    The library cannot check that these functions depend on their arguments only. One that remembers earlier records
    invalidates the guarantee.

    Examples
    --------
    >>> class Quartic(RecordLoss):
    ...     name = "quartic"
    ...     gradient_bound = 2.0
    ...     def record_gradient(self, theta, row, label):
    ...         return (theta - row) ** 3
    >>> rows = np.array([[1.0, 0.0], [9.0, 0.0], [np.nan, 0.0]])
    >>> clip_gradients(Quartic(), np.zeros(2), rows, np.zeros(3)).round(6).tolist()
    [[-1.0, 0.0], [-2.0, 0.0], [0.0, 0.0]]
    """

    name: ClassVar[str] = "record"
    clips_own_gradients: ClassVar[bool] = True
    bounded_values: ClassVar[bool] = False
    """Whether `record_values` vary by at most gradient_bound times the diameter; trusted for built-in losses only."""
    value_range: tuple[float, float] | None = None
    """The interval to which the values of a record are clipped; None where no values are known."""
    curvature_bound = math.inf
    convex = False

    @property
    def gradient_bound(self) -> float:
        """The Euclidean norm at which per-record gradients are clipped; 1 where there are values only."""
        if self.has_gradients:
            raise InvalidParameter(f"the {self.name} loss must state gradient_bound.")
        return 1.0

    @property
    def has_gradients(self) -> bool:
        """Whether `record_gradient` is defined."""
        return type(self).record_gradient is not RecordLoss.record_gradient

    @property
    def has_clipped_values(self) -> bool:
        """Whether `values_of_record` and its range are stated."""
        return self.value_range is not None

    def record_gradient(self, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
        """Return the gradient in theta of the loss of one record, an array of theta's shape."""
        raise self._no_score_error()

    def values_of_record(self, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
        """Return the losses [k] of one record at every column of theta[p, k]."""
        raise self._no_score_error()

    def record_values(self, theta: FloatArray, rows: FloatArray) -> FloatArray:
        """Return the losses [n, k] at every column of theta[p, k], for losses of this library."""
        raise self._no_score_error()

    @property
    def slope_bound(self) -> float:  # type: ignore[override]
        return self.gradient_bound

    @property
    def assumptions(self) -> tuple[str, ...]:  # type: ignore[override]
        if self.value_range is not None:
            low, high = self.value_range
            return (
                f"values of a record's loss are computed separately and clipped to [{low:g}, {high:g}]; one that fails "
                "is replaced by the lower end",
                f"the values of the {self.name} loss depend on theta and one record only",
            )
        return (
            f"per-record gradients are computed separately and clipped at Euclidean norm {self.gradient_bound:g}; one "
            "that fails is replaced by zero",
            f"the gradient of the {self.name} loss depends on theta and one record only",
        )

    def value(self, score: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score_error()

    def inverse_slope(self, slope: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score_error()

    def slope(self, score: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score_error()

    def curvature(self, score: FloatArray, y: FloatArray) -> NoReturn:
        raise self._no_score_error()

    def _no_score_error(self) -> InvalidParameter:
        return InvalidParameter(
            f"the {self.name} loss is a function of a whole record, not of a score; fit it by noisy gradient descent."
        )


def clipped_record_gradient(loss: RecordLoss, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
    """Return the clipped gradient of one record, computed on copies; zero when it fails."""
    try:
        with np.errstate(all="ignore"):
            gradient = np.array(loss.record_gradient(theta.copy(), row.copy(), label), float)
    except KeyboardInterrupt:  # caused by the user, not by a record
        raise
    except BaseException:  # whether a record makes the user's function fail must not be observable
        return np.zeros(theta.shape)
    if gradient.shape != theta.shape or not np.isfinite(gradient).all():
        return np.zeros(theta.shape)
    return np.asarray(clip_row_norms(gradient[None, :], loss.gradient_bound)[0])


def clipped_value_sum(
    loss: RecordLoss,
    theta: FloatArray,
    rows: FloatArray,
    labels: FloatArray,
    weights: FloatArray | None,
    unit: float,
) -> FloatArray:
    """Return sum_i w_i (clip(value_i) - low) at every column of theta[p, k], each term rounded down to the unit.

    The terms are multiples of the unit, a power of 2, so the sum is exact while it is below 2^53 units.
    """
    assert loss.value_range is not None
    low, high = loss.value_range
    total = np.zeros(theta.shape[1])
    for i in range(len(rows)):
        values = _values_or_none(loss, theta, rows[i], float(labels[i]))
        if values is not None:
            weight = 1.0 if weights is None else float(weights[i])
            total += np.floor(weight * (np.clip(values, low, high) - low) / unit) * unit
    return total


def _values_or_none(loss: RecordLoss, theta: FloatArray, row: FloatArray, label: float) -> FloatArray | None:
    """Return the values of one record, computed on copies, with `low` for what is not a number; None when it fails."""
    assert loss.value_range is not None
    try:
        with np.errstate(all="ignore"):
            values = np.array(loss.values_of_record(theta.copy(), row.copy(), label), float)
    except KeyboardInterrupt:  # caused by the user, not by a record
        raise
    except BaseException:  # whether a record makes the user's function fail must not be observable
        return None
    return np.nan_to_num(values, nan=loss.value_range[0]) if values.shape == theta.shape[1:] else None


def clip_row_norms(vectors: FloatArray, bound: float) -> FloatArray:
    """Scale each row to Euclidean norm at most `bound`, rounding included; no row overflows or warns."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        scaled = vectors / np.where(largest > 0, largest, 1.0)
        norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
        long = norms * largest > bound * (1 - 1e-12)
        short = scaled * (bound * (1 - 1e-12) / np.where(norms > 0, norms, 1.0))
    return np.where(long, short, vectors)


@final
@dataclass(frozen=True, kw_only=True)
class RadialHuber(RecordLoss):
    """The Huber loss h(|theta - x|) of a distance, for robust means and geometric medians; labels do not enter.

    h(r) = r^2 / 2 up to r = width and width (r - width / 2) beyond: width times the Moreau envelope of |theta - x|.
    The gradient is theta - x clipped to norm `width`, a projection onto a ball, so it is the gradient of a convex
    function with Lipschitz constant `width` and smoothness 1. A large width estimates the mean, a small one the
    geometric median: F / width is below the mean distance by at most width / 2 (`moreau_excess`).

    Examples
    --------
    >>> rows = np.array([[0.3, 0.4], [3.0, 4.0]])
    >>> clip_gradients(RadialHuber(width=1.0), np.zeros(2), rows, np.zeros(2)).round(6).tolist()
    [[-0.3, -0.4], [-0.6, -0.8]]
    """

    name: ClassVar[str] = "radial-huber"
    curvature_bound = 1.0
    convex = True
    width: float

    def __post_init__(self) -> None:
        _check.validate_fields(self, width=_check.check_positive)

    @property
    def gradient_bound(self) -> float:
        return self.width

    def record_gradient(self, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
        return theta - row


def clip_gradients(loss: RecordLoss, theta: FloatArray, rows: FloatArray, labels: FloatArray) -> FloatArray:
    """Return the clipped per-record gradients, one row per record; the rows of the data are finite.

    They are computed record by record, except for RadialHuber, whose formula is known.
    """
    if type(loss) is RadialHuber:
        return clip_row_norms(theta[None, :] - rows, loss.gradient_bound)
    gradients = np.zeros(rows.shape)
    for i in range(len(rows)):
        gradients[i] = clipped_record_gradient(loss, theta, rows[i], float(labels[i]))
    return gradients


@final
@dataclass(frozen=True, kw_only=True)
class Bump(RecordLoss):
    """The bump min(0, |theta - x| - width) around a record: 1-Lipschitz and not convex; labels do not enter.

    Records on a packing of centres 2 width apart vote for them: the minimum of the mean is -width times the largest
    fraction of votes, and finding it is private selection among exponentially many centres.

    References
    ----------
    Ganesh, Thakurta and Upadhyay (2022), Theorem G.1, with the packing's distance and the scale corrected; each
        record
    votes for one centre here.
    """

    name: ClassVar[str] = "bump"
    gradient_bound = 1.0
    bounded_values = True
    width: float

    def __post_init__(self) -> None:
        _check.validate_fields(self, width=_check.check_positive)

    def record_gradient(self, theta: FloatArray, row: FloatArray, label: float) -> FloatArray:
        away = theta - row
        distance = float(np.linalg.norm(away))
        return away / distance if 0 < distance < self.width else np.zeros(theta.shape)

    def record_values(self, theta: FloatArray, rows: FloatArray) -> FloatArray:
        squares = np.zeros((len(rows), theta.shape[1]))
        for axis in range(len(theta)):  # differences first, to avoid cancellation near the record
            squares += (rows[:, axis, None] - theta[axis]) ** 2
        return np.minimum(0.0, np.sqrt(squares) - self.width)
