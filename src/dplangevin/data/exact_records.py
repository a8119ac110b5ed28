"""What one record gives to a sum, in whole numbers: its length, its limit and its slope.

Each is a function of the record and of public or released values alone.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.integer_grids import GROUP, INWARD, STEP_BITS, IntegerTransform, piece_rows
from dplangevin.problem.losses.base import SlopeFormula

LENGTH_BITS = 26
NEAR_TIE = 2.0**-28
"""Slopes in whole numbers that are so near to a half are decided in decimals: the exponentials of NumPy, of compiled
code and of other machines differ by at most 2^-31 there, so that all of them round alike."""
CLIP_DOUBT = 2.0**-40
"""A slope beyond its clip by more is clipped whatever computes it."""


def bound_lengths(u: Floats) -> Floats:
    """Numbers of at most 27 binary digits that are at least |u|, row by row, and nearly equal to it where it is large.

    Entries are rounded to whole numbers, which moves a length by at most sqrt(p) / 2; squares and their sums are whole
    numbers below 2^53, and the root is verified. Rows longer than 2^26 get a grid of their own: one grid for all rows
    would leave nothing of the bound where B is steep.
    """
    lengths, exact = _verified_lengths(np.rint(u))
    far = np.flatnonzero(~exact)
    if len(far):
        rows = u[far]
        _, tops = np.frexp(np.abs(rows).max(axis=1, initial=0.0))
        tops = tops.astype(np.int64) - (LENGTH_BITS - math.ceil(math.log2(u.shape[1]) / 2))
        own_lengths, exact = _verified_lengths(np.rint(rows * np.ldexp(1.0, -tops)[:, None]))
        lengths[far] = np.where(exact, np.ldexp(own_lengths, tops), np.inf)
    return lengths


def _verified_lengths(whole: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Whole numbers that are at least the lengths of rows that round to these, and where this is verified."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.einsum("ij,ij->i", whole, whole)
        roots = np.ceil(np.sqrt(squares))
        roots += roots * roots < squares
        exact = (squares <= 2.0 ** (2 * LENGTH_BITS)) & (roots * roots >= squares)
    roots += math.ceil(math.sqrt(whole.shape[1]) / 2)
    return roots, exact


def measure_rows(rows: NDArray[Any], transform: IntegerTransform) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Indices of the rows that may be long, their coordinates u in steps, and upper bounds on |u|."""
    index, rows = np.arange(len(rows)), rows.astype(np.float64, copy=False)
    if transform.filter is not None:
        index = transform.filter.find_long_candidates(rows, transform.grid.row_norm)
        if len(index) < len(rows):
            rows = rows[index]
    u = transform.coordinates(rows)
    return index, u, bound_lengths(u)


def limit_rows(
    rows: NDArray[Any], weights: Floats | None, weight_bound: float, transform: IntegerTransform
) -> Floats:
    """m of each row: whole numbers in [0, M] with m |B' x| <= M R, each a function of its record alone.

    m / M is the weight of the record, in units of the weight bound: min(1, R / |B' x|), at most the square of the same
    weight in the earlier coordinates (no guarantee rests on that one), times weight / weight_bound.
    """
    grid = transform.grid
    most = grid.max_limit
    limits = np.full(len(rows), most)
    if transform.filter is None or not transform.filter.all_short:
        for start in range(0, len(rows), step := piece_rows(rows.shape[1])):
            index, u, lengths = measure_rows(rows[start : start + step], transform)
            if len(index):
                limits[start + index] = _limit_lengths(u, lengths, transform)
    return limits if weights is None else lower_limits(limits, weights, weight_bound)


def lower_limits(limits: Floats | float, weights: Floats, weight_bound: float) -> Floats:
    """floor(limit weight / weight_bound) of each record; a weight outside [0, weight_bound] counts as 0."""
    lowered = np.floor(limits * (weights / weight_bound))
    return np.where((lowered >= 0) & (lowered <= limits), lowered, 0.0)


def _limit_lengths(u: Floats, lengths: Floats, transform: IntegerTransform) -> Floats:
    most = transform.grid.max_limit
    top = most * transform.max_steps
    with np.errstate(divide="ignore", invalid="ignore"):
        limits = np.minimum(most, np.floor(top / lengths))
        if transform.earlier is not None:
            u *= np.sqrt(transform.earlier) * (
                2.0 ** (transform.step_exponent + STEP_BITS) / transform.grid.max_norm
            )
            limits = np.minimum(limits, np.floor(most * (2.0**STEP_BITS / bound_lengths(u)) ** 2))
        # at most 21 + 27 binary digits: the product is exact, and so is the comparison
        limits[~(limits * lengths <= top)] = 0.0
    return limits


def shorten_rows(u: Floats, lengths: Floats, transform: IntegerTransform) -> Floats:
    """z = min(1, R / |u|) u in steps, rounded towards zero, with |z|^2 <= R^2 in whole numbers; overwrites u.

    Rows that fail the check, which none does that is a number, count as zero.
    """
    u *= np.minimum(1.0, (transform.max_steps * INWARD) / lengths)[:, None]
    np.trunc(u, out=u)
    inside = np.einsum("ij,ij->i", u, u) <= transform.max_steps_square
    if not inside.all():
        u[~inside] = 0.0
    return u


def whole_slopes(slopes: Floats, slope_bound: float, limits: Floats | float) -> Floats:
    """a = slope / slope_bound times the limit, rounded to whole numbers, with |a| <= limit; overwrites the slopes.

    [n] for one score. For K scores, [n, K], room for the rounding of K entries is left first, and |a|^2 <= limit^2 in
    whole numbers. A record that fails the check, or whose slope is no number, counts as zero.
    """
    if slope_bound != 1:
        slopes /= slope_bound
    if slopes.ndim == 1:
        slopes *= limits
        np.rint(slopes, out=slopes)
        inside = np.abs(slopes) <= limits
        if not inside.all():
            slopes[~inside] = 0.0
        return slopes
    by_class = slopes.T  # several scores are stored class by class
    by_class *= np.maximum(limits - math.ceil(math.sqrt(slopes.shape[1]) / 2), 0.0)
    np.rint(by_class, out=by_class)
    inside = np.add.reduce(by_class * by_class, axis=0) <= limits * limits
    if not inside.all():
        slopes[~inside] = 0.0
    return slopes


def decide_tie(law: SlopeFormula, slope_bound: float, score: float, label: float, limit: float) -> float:
    """The whole slope of one record in decimals, for a slope with an exponential; a clipped slope is in doubles."""
    with localcontext(Context(prec=60, Emax=10**6, Emin=-(10**6))):
        power = Decimal(min(max(score, -700.0), 700.0)).exp()
        slope = (power / (1 + power) if law.kind == "logistic" else power) - Decimal(label)
        for end, beyond in ((law.low, slope <= law.low), (law.high, slope >= law.high)):
            if beyond:
                return float(np.rint(end / slope_bound * limit))
        whole = (slope / Decimal(slope_bound) * Decimal(limit)).to_integral_value(ROUND_HALF_EVEN)
    return float(whole) if abs(whole) <= limit else 0.0


class LawSlopes:
    """Whole slopes of a law at a point. Those near a tie are decided in decimals, unless the score is 0, where
    exponentials are exact, or the slope is clipped beyond doubt, where doubles are."""

    def __init__(self, law: SlopeFormula, slope_bound: float, point: Floats) -> None:
        self.law, self.slope_bound, self.point = law, slope_bound, point
        self._decides = law.kind in ("logistic", "exponential") and bool(point.any())
        self._whole, self._spare = np.empty(GROUP), np.empty(GROUP)

    def round_slopes(self, scores: Floats, rows: Floats, labels: Floats, limits: Floats | float) -> Floats:
        """Overwrites the scores."""
        self.law.slopes_in_place(scores, labels)
        if self.slope_bound != 1:
            scores /= self.slope_bound
        scores *= limits
        whole, spare = self._whole[: len(scores)], self._spare[: len(scores)]
        np.rint(scores, out=whole)
        np.abs(whole, out=spare)
        if not (spare <= limits).all():
            whole[~(spare <= limits)] = 0.0
        if self._decides:
            np.subtract(scores, whole, out=spare)
            np.abs(spare, out=spare)
            if spare.max() > 0.5 - NEAR_TIE:
                self._decide(whole, np.flatnonzero(spare > 0.5 - NEAR_TIE), rows, labels, limits)
        return whole

    def _decide(
        self, whole: Floats, near: NDArray[np.intp], rows: Floats, labels: Floats, limits: Floats | float
    ) -> None:
        law, scores, each = self.law, rows[near] @ self.point, np.broadcast_to(limits, whole.shape)[near]
        power = np.exp(np.clip(scores, -700.0, 700.0))
        slopes = (power / (1 + power) if law.kind == "logistic" else power) - labels[near]
        doubtful = (scores != 0) & (slopes >= law.low - CLIP_DOUBT) & (slopes <= law.high + CLIP_DOUBT)
        for k in np.flatnonzero(doubtful):
            label, limit = float(labels[near[k]]), float(each[k])
            whole[near[k]] = decide_tie(law, self.slope_bound, float(scores[k]), label, limit)
