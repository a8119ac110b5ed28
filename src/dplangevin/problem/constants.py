"""The constants that privacy depends on, derived from stated bounds and never from data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from dplangevin import _check
from dplangevin.errors import InvalidParameter

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
