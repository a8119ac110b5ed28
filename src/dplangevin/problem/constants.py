"""Stated bounds of a record, and the constants that privacy depends on, derived from them and never from data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter

_BOUNDS_HINT = (
    "State it from public knowledge, e.g. DataBounds(data_norm=1.0, classes=2) "
    "or DataBounds(data_norm=1.0, target=(0, 100))."
)


@dataclass(frozen=True, kw_only=True)
class DataBounds:
    """Stated bounds of one record (x, y, weight); never measured, enforced by `clip`.

    Parameters
    ----------
    data_norm : largest Euclidean norm of a feature row (without the intercept).
    target : (low, high) for a numeric target.
    classes : number of classes, labelled 0 .. classes - 1. Exactly one of target and classes is given.
    weight_bound : largest sample weight.
    bad_rows : a record with an entry that is not a finite number is refused ("refuse"), or is replaced by the zero
        row with the label 0, and a weight that is not finite by 0 ("zero").

    Attributes
    ----------
    label_range : the smallest interval that contains every admissible target or class label.

    Examples
    --------
    >>> bounds = DataBounds(data_norm=1.0, target=(0, 10))
    >>> X, y, weights = bounds.clip([[3.0, 4.0], [0.1, 0.2]], [12.0, 5.0])
    >>> X.round(6).tolist(), y.tolist()
    ([[0.6, 0.8], [0.1, 0.2]], [10.0, 5.0])
    """

    data_norm: float = math.nan
    target: tuple[float, float] | None = None
    classes: int | None = None
    weight_bound: float = 1.0
    bad_rows: str = "refuse"
    label_range: tuple[float, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.data_norm is None or self.data_norm != self.data_norm:
            raise InvalidParameter(
                f"data_norm, the largest norm of a feature row, is missing. {_BOUNDS_HINT}"
            )
        norm = _check.check_positive("data_norm", self.data_norm)
        if not 1e-30 <= norm <= 1e30:  # beyond this, squares and roundings leave the range of doubles
            raise InvalidParameter(f"data_norm must be within 1e-30 and 1e30, got {norm!r}; rescale.")
        _check.set_frozen(self, data_norm=norm)
        if (self.target is None) == (self.classes is None):
            got = "neither" if self.target is None else "both"
            raise InvalidParameter(
                f"exactly one of target and classes must be given, got {got}. {_BOUNDS_HINT}"
            )
        if self.classes is not None:
            classes = _check.check_count("classes", self.classes, minimum=2)
            _check.set_frozen(self, classes=classes, label_range=(0.0, float(classes - 1)))
        else:
            low, high = _check_interval(self.target)
            _check.set_frozen(self, target=(low, high), label_range=(low, high))
        _check.validate_fields(self, weight_bound=_check.check_positive)
        _check.set_frozen(self, bad_rows=_check.check_choice("bad_rows", self.bad_rows, ("refuse", "zero")))

    def clip(
        self,
        X: ArrayLike,
        y: ArrayLike,
        weights: ArrayLike | None = None,
        *,
        out: NDArray[Any] | None = None,
    ) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64] | None]:
        """Return copies of (X, y, weights) that satisfy the bounds, record by record.

        Rows whose norm exceeds data_norm, or comes within rounding of it, are scaled to slightly less, so that no row
        is longer than data_norm in exact arithmetic. Targets are clipped to their range; a label that is not one of 0
        .. classes - 1 becomes 0; weights are clipped to [0, weight_bound]. All of this is silent: whether a record
        was clipped is private. float32 features stay float32. The rows are written to `out` if it is given.
        """
        if self.bad_rows == "zero":
            X, y, weights = _zero_bad_rows(X, y, weights)
        features = _as_numeric_array("X", X, 2)
        clipped_labels, clipped_weights = self.clip_labels(y, weights)
        if len(features) != len(clipped_labels):
            raise InvalidParameter(_LENGTHS_DIFFER)
        rows = np.empty(features.shape, features.dtype) if out is None else out
        _clip_rows(features, self.data_norm, rows)
        return rows, clipped_labels, clipped_weights

    def clip_labels(
        self, y: ArrayLike, weights: ArrayLike | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return the targets and weights of `clip`, for records that are finite or refused."""
        labels, clipped_weights = _as_numeric_array("y", y, 1), None
        if weights is not None:
            clipped_weights = np.clip(_as_numeric_array("weights", weights, 1), 0.0, self.weight_bound)
        elif self.weight_bound < 1:  # an unstated weight is 1
            clipped_weights = np.full(len(labels), self.weight_bound)
        if clipped_weights is not None and len(clipped_weights) != len(labels):
            raise InvalidParameter(_LENGTHS_DIFFER)
        if self.classes is None:
            return np.clip(labels, *self.label_range), clipped_weights
        is_class = (labels >= 0) & (labels < self.classes) & (labels == np.floor(labels))
        return np.where(is_class, labels, 0.0), clipped_weights


def _check_interval(target: Any) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in target)
    except (TypeError, ValueError):
        raise InvalidParameter(f"target must be a pair (low, high), got {target!r}. {_BOUNDS_HINT}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidParameter(f"target must be finite with low < high, got {target!r}. {_BOUNDS_HINT}")
    return low, high


def as_array(name: str, values: ArrayLike) -> NDArray[Any]:
    """Return the values as an array, whatever their type."""
    try:
        return np.asarray(values)
    except ValueError:
        raise InvalidParameter(f"{name} must be an array of numbers; its rows differ in length.") from None


def _as_numeric_array(name: str, values: ArrayLike, ndim: int) -> NDArray[Any]:
    """Return the values as a finite float64 array (float32 features stay float32); errors never show a value."""
    array = as_array(name, values)
    if array.dtype.kind not in "biuf":
        raise InvalidParameter(
            f"{name} must be a dense array of real numbers, got {array.dtype.type.__name__}; encode text by "
            "a public list (classes as 0, 1, ...) and densify sparse matrices."
        )
    if array.ndim != ndim:
        raise InvalidParameter(f"{name} must have {ndim} dimension(s), got {array.ndim}.")
    if array.dtype != np.float32 or ndim == 1:
        with np.errstate(over="ignore"):
            array = array.astype(np.float64, copy=False)
    if ndim == 1:
        _check_finite(name, array)
    return array


def _zero_bad_rows(X: ArrayLike, y: ArrayLike, weights: ArrayLike | None) -> tuple[Any, Any, Any]:
    """Replace records that are not finite by zero rows with the label 0, and weights that are not finite by 0."""
    features, labels = as_array("X", X), as_array("y", y)
    repaired_weights = None if weights is None else as_array("weights", weights)
    if features.ndim != 2 or labels.ndim != 1 or any(a.dtype.kind not in "biuf" for a in (features, labels)):
        return X, y, weights  # the wrong shape or type for every record: refused by the caller
    features, labels = _as_double(features), _as_double(labels)
    if repaired_weights is not None and repaired_weights.dtype.kind in "biuf":
        repaired_weights = np.where(np.isfinite(repaired_weights), repaired_weights, 0.0)
    bad = ~np.isfinite(features).all(axis=1)
    if len(bad) == len(labels):
        bad |= ~np.isfinite(labels)
        labels = np.where(bad, 0, labels)
    return np.where(bad[:, None], features.dtype.type(0), features), labels, repaired_weights


def _as_double(array: NDArray[Any]) -> NDArray[Any]:
    """Round numbers wider than a double to doubles; those that are too large become infinite."""
    if array.dtype.kind != "f" or array.dtype.itemsize <= 8:
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float64)


def _check_finite(name: str, array: NDArray[Any]) -> None:
    if not np.isfinite(array).all():
        raise InvalidParameter(f"{name} has missing or infinite entries; replace them by a public constant.")


_LENGTHS_DIFFER = "X, y and weights must have one entry per record; their lengths differ."


def clip_slack(columns: int, dtype: np.dtype[Any]) -> float:
    """More than the relative error of a computed norm plus that of storing a row: longer rows are clipped."""
    return (columns + 8) * 2.0**-52 + (2.0**-22 if dtype == np.float32 else 0.0)


def _clip_rows(rows: NDArray[Any], bound: float, out: NDArray[Any]) -> None:
    """Write the rows, scaled to norm at most `bound`, to `out`.

    Dividing by the largest entry first avoids overflow and underflow. Rows between (1 - slack) bound and bound are
    treated as outside and mapped to (1 - 2 slack) bound: exact and idempotent.
    """
    rounding_slack = clip_slack(rows.shape[1], rows.dtype)
    out[...] = rows
    with np.errstate(over="ignore"):
        wide = np.ascontiguousarray(rows, np.float64)  # the same rounding whatever the memory layout
        squares = np.einsum("ij,ij->i", wide, wide)
    if not np.isfinite(squares).all():  # or a square overflowed
        _check_finite("X", rows)
    # rows surely inside, whose squares neither overflowed nor underflowed
    inside = (squares >= 1e-200) & (squares <= min((bound * (1 - rounding_slack)) ** 2, 1e200))
    doubtful = np.flatnonzero(~inside)
    wide = wide[doubtful]
    largest = np.abs(wide).max(axis=1, initial=0.0)
    largest[largest == 0] = 1.0
    scaled = wide / largest[:, None]
    length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    with np.errstate(over="ignore"):  # bound / tiny = infinity: the row is inside
        outside = length > bound / largest * (1 - rounding_slack)
    shorter = bound * (1 - 2 * rounding_slack) / length[outside]
    out[doubtful[outside]] = scaled[outside] * shorter[:, None]


Adjacency = Literal["replace-one", "add-remove"]
MAX_RECORDS = 10**18
MAX_EXACT_COLUMNS = 1 << 14
"""Most columns of rows whose sums are exact: a length is then rounded up by less than 2^-10 of its bound."""
ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "add-remove")


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Worst-case constants of F(theta) = (1/n) sum_i loss_i(theta) + (m/2) |theta|^2 on a convex set.

    Parameters
    ----------
    n : public number of records and divisor of the mean.
    allow_more_rows : the data may hold more than n records (add-remove only): sums over records divided by n are then
        not means, and only theorems that state it hold.
    lipschitz : L, the largest norm of one record's gradient (data term only, weights included).
    smoothness : M, smoothness of every loss_i + (m/2) |theta|^2 on the set; infinity when unknown.
    strong_convexity : m, of the data-independent ridge only. Curvature of the data is never used.
    diameter : Euclidean diameter of the set onto which every iterate is projected; infinity when there is none.
    gradient_sensitivity : sup |grad loss(theta; x) - grad loss(theta; x')| over ALL admissible pairs of
        records (replace-one, default 2L) or sup |grad loss(theta; x)| (add-remove, default L).
    convex : every loss_i is convex and its gradient is used as it is (or clipped along the score).
    projection_error : largest distance between the computed and the exact Euclidean projection.
    dimension : number of parameters.
    hessian_rank : r, such that one record's Hessian has rank at most r and its gradients, at every theta, lie in one
        simplex with r + 1 corners of norm at most lipschitz (1 for scalar GLMs, K - 1 for softmax).
    row_norm, label_bound, weight_bound : largest joint row, |label| and weight; for released moments.
    logistic_slope_bound : C, where every record's loss is a weight times the logistic loss of a score that is linear in
        theta, its slope clipped at C: a record whose slope is a >= 1/2 has a gradient of norm at most a lipschitz / C
        and at most 4 a (1 - a) of the largest curvature. None for other losses.
    log_sobolev : c, a log-Sobolev constant of the law of a Langevin run at every time and for every data set, stated by
        whoever has proved it; no problem implies one.
    value_oscillation : for losses known by clipped values: the largest max - min over theta of a record's contribution
        to the sum minus its neighbour's; None where it follows from gradient_sensitivity and the diameter.
    """

    n: int
    lipschitz: float
    smoothness: float = math.inf
    strong_convexity: float = 0.0
    diameter: float = math.inf
    adjacency: Adjacency = "replace-one"
    gradient_sensitivity: float = field(default=math.nan)
    convex: bool = True
    projection_error: float = 0.0
    dimension: int | None = None
    hessian_rank: int | None = None
    row_norm: float | None = None
    label_bound: float | None = None
    weight_bound: float = 1.0
    assumptions: tuple[str, ...] = ()
    allow_more_rows: bool = False
    value_oscillation: float | None = None
    log_sobolev: float | None = None
    logistic_slope_bound: float | None = None

    def __post_init__(self) -> None:
        _check.validate_fields(self, n=_check.check_count)
        if self.n > MAX_RECORDS:
            raise InvalidParameter(f"n = {self.n} is more than {MAX_RECORDS:g} records; state a smaller n.")
        _check.validate_fields(self, lipschitz=_check.check_scale)
        _check.set_frozen(self, smoothness=_check.check_scale("smoothness", self.smoothness, infinite=True))
        _check.validate_fields(self, strong_convexity=_check.check_nonnegative)
        if self.strong_convexity:
            _check.validate_fields(self, strong_convexity=_check.check_scale)
        _check.set_frozen(self, diameter=_check.check_scale("diameter", self.diameter, infinite=True))
        _check.set_frozen(self, adjacency=_check.check_choice("adjacency", self.adjacency, ADJACENCIES))
        if self.allow_more_rows and self.adjacency != "add-remove":
            raise InvalidParameter(
                "allow_more_rows=True needs adjacency='add-remove': replace-one has exactly n records."
            )
        _check.validate_fields(self, projection_error=_check.check_nonnegative)
        if self.dimension is not None:
            _check.validate_fields(self, dimension=_check.check_count)
        if self.hessian_rank is not None:
            _check.validate_fields(self, hessian_rank=_check.check_count)
        if self.row_norm is not None:
            _check.validate_fields(self, row_norm=_check.check_scale)
        if self.label_bound is not None:
            _check.validate_fields(self, label_bound=_check.check_scale)
        _check.validate_fields(self, weight_bound=_check.check_scale)
        if self.log_sobolev is not None:
            _check.validate_fields(self, log_sobolev=_check.check_scale)
        if self.value_oscillation is not None:
            _check.validate_fields(self, value_oscillation=_check.check_scale)
        if self.logistic_slope_bound is not None:
            _check.validate_fields(self, logistic_slope_bound=_check.check_positive)
            if self.logistic_slope_bound > 1:
                raise InvalidParameter("the slope of the logistic loss is at most 1.")
        largest = 2 * self.lipschitz if self.adjacency == "replace-one" else self.lipschitz
        if math.isnan(self.gradient_sensitivity):
            _check.set_frozen(self, gradient_sensitivity=largest)
        sensitivity = _check.check_scale("gradient_sensitivity", self.gradient_sensitivity)
        if sensitivity > largest * (1 + 1e-12):
            raise InvalidParameter(
                f"gradient_sensitivity is {sensitivity!r}, more than lipschitz = {self.lipschitz!r} allows under "
                f"{self.adjacency} ({largest!r}); raise lipschitz or leave gradient_sensitivity out."
            )
        if self.strong_convexity > self.smoothness * (1 + 1e-12):
            raise InvalidParameter(
                f"strong_convexity = {self.strong_convexity!r} exceeds smoothness = {self.smoothness!r}; "
                "smoothness includes the ridge, so it is at least strong_convexity."
            )

    @property
    def data_smoothness(self) -> float:
        """Smoothness of one record's loss without the ridge."""
        return max(self.smoothness - self.strong_convexity, 0.0)

    def contraction(self, step_size: float) -> float:
        """Return the Lipschitz constant of theta -> theta - step_size * gradient, for every admissible data set.

        max(|1 - eta m|, |1 - eta M|) for convex losses (the mean Hessian along a segment is symmetric with
        spectrum in [m, M]); 1 + eta M for smooth losses that are not convex.
        """
        if math.isinf(self.smoothness) or self.allow_more_rows:
            return math.inf
        if not self.convex:
            return 1 + step_size * self.smoothness
        return max(abs(1 - step_size * self.strong_convexity), abs(1 - step_size * self.smoothness))
