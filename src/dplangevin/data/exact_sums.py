"""Sums over records without rounding error, in whole numbers: what one record gives, and what exact noise is added to.

Each is a function of the record and of public or released values alone.

Three things are rounded, each as a function of one record and of public or released values: the row (once, to whole
multiples of a power of two), the point (released, hence public) and the product of slope and weight of a record. After
that, every product over records adds whole numbers (times powers of two) that stay below 2^53, so that doubles hold
every partial sum exactly. BLAS, compiled loops, threads, blocks, partitions and permutations give the same bits.

Groups of GROUP rows are summed in doubles, groups in 64-bit integers with a carry ("words", see `add_group`). Words of
parts of the data are added like any array, wherever the parts are. docs/theory/exact_sums.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.integer_grids import (
    CACHE_BYTES,
    EXACT_BITS,
    GROUP,
    INWARD,
    Dyadic,
    IntegerTransform,
    RowGrid,
    Words,
    WordSum,
    carry,
    join_limbs,
    piece_rows,
    round_point,
    snap_point,
    to_integers,
    to_limbs,
)
from dplangevin.problem.losses.base import SLOPE_KINDS, SlopeFormula

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

    m / M is the weight of the record, in units of the weight bound: min(1, R / |B' x|) times weight / weight_bound.
    """
    grid = transform.grid
    most = grid.max_limit
    limits = np.full(len(rows), most)
    if transform.filter is None or not transform.filter.all_short:
        for start in range(0, len(rows), step := piece_rows(rows.shape[1])):
            index, _, lengths = measure_rows(rows[start : start + step], transform)
            if len(index):
                limits[start + index] = _limit_lengths(lengths, transform)
    return limits if weights is None else lower_limits(limits, weights, weight_bound)


def lower_limits(limits: Floats | float, weights: Floats, weight_bound: float) -> Floats:
    """floor(limit weight / weight_bound) of each record; a weight outside [0, weight_bound] counts as 0."""
    lowered = np.floor(limits * (weights / weight_bound))
    return np.where((lowered >= 0) & (lowered <= limits), lowered, 0.0)


def _limit_lengths(lengths: Floats, transform: IntegerTransform) -> Floats:
    most = transform.grid.max_limit
    top = most * transform.max_steps
    with np.errstate(divide="ignore", invalid="ignore"):
        limits = np.minimum(most, np.floor(top / lengths))
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
        if not (spare.max() <= limits if isinstance(limits, float) else (spare <= limits).all()):
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


Slopes = Callable[[Floats, Floats], Floats]

WIDE_CACHE_BYTES = 1 << 21
"""Rows of one matrix product whose own cost is above that of reading them, and of a step whose cost is in its calls."""
_MAX_TIES = 4096


class RecordBlock(NamedTuple):
    """Consecutive records: rows on the grid, labels, and limits m (one for all, or one each)."""

    rows: NDArray[Any]
    labels: Floats
    limits: Floats | float


def _pieces(rows: NDArray[Any], n_bytes: int = CACHE_BYTES) -> Iterator[tuple[slice, Floats, bool]]:
    """The rows a few at a time in doubles, and whether a group ends with them."""
    step = piece_rows(rows.shape[1], n_bytes)
    for start in range(0, len(rows), step):
        stop = min(start + step, len(rows))
        part = slice(start, stop)
        yield part, rows[part].astype(np.float64, copy=False), stop % GROUP == 0 or stop == len(rows)


def sum_outer_products(rows: NDArray[Any], grid: RowGrid) -> Words:
    """sum x x' over rows, in squared units: words [2, p, p]."""
    size = rows.shape[1]
    total = WordSum((size, size))
    if grid.row_bits == 20:
        group = np.zeros((size, size))
        for _, part, ends in _pieces(rows, WIDE_CACHE_BYTES):
            group += part.T @ part
            if ends:
                group /= grid.unit**2
                total.add(group)
                group[...] = 0.0
        return total.words()
    half = 2.0 ** (grid.row_bits // 2)
    high_total, mixed_total, low_total = (WordSum((size, size)) for _ in range(3))
    for _, part, _ in _pieces(rows):
        low = part / grid.unit
        high = np.trunc(low / half)
        low -= high * half
        mixed = high.T @ low
        high_total.add(high.T @ high)
        mixed_total.add(mixed + mixed.T)
        low_total.add(low.T @ low)
    exact = carry(carry(high_total.words() << 12) + mixed_total.words())
    return carry(carry(exact << 12) + low_total.words())


def sum_long_rows(rows: NDArray[Any], transform: IntegerTransform) -> Words:
    """[sum x x', sum z z'] over the long rows, those with |u| > R by the exact rule, as words [2, 2, p, p]."""
    size = rows.shape[1]
    outer, scaled = np.zeros((2, size, size), np.int64), WordSum((size, size))
    for _, part, _ in _pieces(rows):
        index, u, lengths = measure_rows(part, transform)
        long = np.flatnonzero(~(lengths <= transform.max_steps))
        if len(long):
            outer += sum_outer_products(part[index[long]], transform.grid)
            z = shorten_rows(u[long], lengths[long], transform)
            scaled.add(z.T @ z)
    return np.stack([carry(outer), scaled.words()], axis=1)


def sum_shortened_rows(rows: NDArray[Any], transform: IntegerTransform) -> Words:
    """sum z z' over all rows, as words [2, p, p]."""
    total = WordSum((rows.shape[1],) * 2)
    for _, part, _ in _pieces(rows):
        u = transform.coordinates(part)
        z = shorten_rows(u, bound_lengths(u), transform)
        total.add(z.T @ z)
    return total.words()


def sum_gradients(
    blocks: Iterable[RecordBlock],
    slopes: Slopes | SlopeFormula,
    slope_bound: float,
    theta: Floats,
    grid: RowGrid,
) -> Words:
    """S = sum a x' over records, in units: words [2, p, K], a = whole_slopes(slopes(scores, labels), ...).

    theta [p, K] is snapped here; slopes(scores, labels), of scores [n] for K = 1 and else [n, K], returns an array that
    may be overwritten. With a SlopeFormula (K = 1) the integers are the same wherever the sum is made.
    """
    point = snap_point(theta, grid)
    vector = point.shape[1] == 1
    given = np.ascontiguousarray(point[:, 0]) if vector else point
    rule = LawSlopes(slopes, slope_bound, given) if isinstance(slopes, SlopeFormula) else None
    total, group, per_unit = WordSum(given.shape), np.zeros(given.shape), 1 / grid.unit
    buffer = np.empty((*given.shape[1:], GROUP))
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            limits = block.limits if isinstance(block.limits, np.ndarray) else None
            for part, rows, ends in _pieces(block.rows, WIDE_CACHE_BYTES):
                labels, limit = block.labels[part], block.limits if limits is None else limits[part]
                # several scores are stored class by class: operations across classes are then as fast as others
                scores = np.matmul(given.T, rows.T, out=buffer[..., : len(rows)]).T
                if rule is not None:
                    a = rule.round_slopes(scores, rows, labels, limit)
                else:
                    a = whole_slopes(slopes(scores, labels), slope_bound, limit)  # type: ignore[operator]
                group += a @ rows if vector else rows.T @ a
                if ends:
                    group *= per_unit
                    total.add(group)
                    group[...] = 0.0
    sums = total.words()
    return sums[:, :, None] if vector else sums


def sum_gradients_compiled(
    blocks: Iterable[RecordBlock], law: SlopeFormula, slope_bound: float, theta: Floats, grid: RowGrid
) -> Words:
    """sum_gradients of a law with one score, in one compiled pass: the same integers."""
    from dplangevin.data import _numba_kernels

    point = np.ascontiguousarray(snap_point(theta, grid)[:, 0])
    numbers = (SLOPE_KINDS.index(law.kind), law.scale, law.shift, law.low, law.high)
    total = np.zeros((2, len(point)), np.int64)
    ties = np.empty(_MAX_TIES, np.int64)
    for block in blocks:
        rows = np.require(block.rows, requirements=["C", "A"])
        limits = np.atleast_1d(np.asarray(block.limits, np.float64))
        block_sums = np.zeros_like(total)
        kernel = _numba_kernels.exact_gradient("float32" if rows.itemsize == 4 else "float64")
        count = kernel(
            rows, block.labels, limits, point, numbers, slope_bound, 1 / grid.unit, block_sums, ties
        )
        if count > len(ties):
            block_sums = sum_gradients([block], law, slope_bound, theta, grid)[:, :, 0]
        for i in ties[:count] if count <= len(ties) else ():
            row = rows[i].astype(np.float64)
            limit = float(limits[i if len(limits) > 1 else 0])
            a = decide_tie(law, slope_bound, float(row @ point), float(block.labels[i]), limit)
            block_sums[1] += (a * (row / grid.unit)).astype(np.int64)
        total = carry(total + block_sums)
    return total[:, :, None]


# the same sums over a data set, wherever its parts are; matrices travel without what is below their diagonal


def _pack_symmetric(words: Words) -> Words:
    """Entries on and above the diagonal of symmetric matrices [..., p, p], as [..., p (p + 1) / 2]."""
    return words[(..., *np.triu_indices(words.shape[-1]))]


def _unpack_symmetric(packed: Words, size: int) -> Words:
    above = np.triu_indices(size)
    matrices = np.empty((*packed.shape[:-1], size, size), np.int64)
    matrices[(..., *above)] = packed
    matrices[(..., *above[::-1])] = packed
    return matrices


def _second_moment(data: Any, grid: RowGrid) -> Words:
    size, seen = data.problem.n_columns, 0
    total = np.zeros((2, size, size), np.int64)
    for block in data.pieces():
        total = carry(total + sum_outer_products(block.rows, grid))
        seen += len(block.rows)
    data.check_row_count(seen)
    return _pack_symmetric(total)


def _long_rows(data: Any, transform: IntegerTransform) -> Words:
    size, seen = data.problem.n_columns, 0
    total = np.zeros((2, 2, size, size), np.int64)
    for block in data.pieces():
        total = carry(total + sum_long_rows(block.rows, transform))
        seen += len(block.rows)
    data.check_row_count(seen)
    return _pack_symmetric(total)


def _shortened_rows(data: Any, transform: IntegerTransform) -> Words:
    size, seen = data.problem.n_columns, 0
    total = np.zeros((2, size, size), np.int64)
    for block in data.pieces():
        total = carry(total + sum_shortened_rows(block.rows, transform))
        seen += len(block.rows)
    data.check_row_count(seen)
    return _pack_symmetric(total)


def _gradient(
    data: Any,
    batch: NDArray[np.integer[Any]] | None,
    slopes: Slopes | SlopeFormula,
    slope_bound: float,
    theta: Floats,
    grid: RowGrid,
    compiled: bool,
) -> Words:
    seen = 0

    def blocks() -> Iterator[RecordBlock]:
        nonlocal seen
        for block in data.pieces(batch):
            seen += len(block.labels)
            limits = grid.max_limit if block.weights is None else block.weights
            yield RecordBlock(block.rows, block.labels, limits)

    if compiled and isinstance(slopes, SlopeFormula):
        total = sum_gradients_compiled(blocks(), slopes, slope_bound, theta, grid)
    else:
        total = sum_gradients(blocks(), slopes, slope_bound, theta, grid)
    data.check_rows_seen(seen, batch)
    return total


class ExactSums:
    """The sums that a fit asks of a data set whose rows are on the grid of its problem.

    Noise is added to them by `add_rounded_gaussian_noise`; what follows is post-processing in doubles.

    data : pieces() yields records with rows, labels and weights, and sum_over_blocks(task, ...) adds task(part, ...)
        over the parts of the data, as `Dataset` does.
    """

    def __init__(self, data: Any, grid: RowGrid) -> None:
        self.data, self.grid = data, grid

    def _sum_matrices(self, task: Callable[..., Words], argument: Any) -> Words:
        packed = self.data.sum_over_blocks(task, argument, whole=True)
        return _unpack_symmetric(packed, self.data.problem.n_columns)

    def second_moment(self) -> Words:
        """G = sum x x' in squared units, words [2, p, p]; each record of Frobenius norm at most max_square."""
        return carry(self._sum_matrices(_second_moment, self.grid))

    def whitened_second_moment(self, transform: IntegerTransform, moment: Words) -> Dyadic:
        """The second moment of rows that are scaled back to |u| <= R; each record of Frobenius norm at most bound^2.

        With a filter (a public choice) it is sum u u' over short and sum z z' over long rows, and the former is B' G B
        less what the long rows have in it: only those are looked at. Without one it is sum z z' over all rows.
        """
        if transform.filter is None:
            return self.shortened_second_moment(transform)
        if transform.filter.all_short:
            return transform.congruence(moment)
        long = carry(self._sum_matrices(_long_rows, transform))
        turned = transform.congruence(carry(moment - long[:, 0]))
        steps = 2 * transform.step_exponent
        exponents = np.minimum(turned.exponents, steps)
        whole = turned.whole << (turned.exponents - exponents).astype(object)
        scaled = to_integers(long[:, 1]).astype(object) << (steps - exponents).astype(object)
        return Dyadic(whole + scaled, exponents)

    def shortened_second_moment(self, transform: IntegerTransform) -> Dyadic:
        """sum z z' over all rows, scaled back to |z| <= R; each record of Frobenius norm at most bound^2."""
        total = carry(self._sum_matrices(_shortened_rows, transform))
        return Dyadic(to_integers(total), np.asarray(2 * transform.step_exponent))

    def gradient(
        self,
        slopes: Slopes | SlopeFormula,
        slope_bound: float,
        theta: Floats,
        transform: IntegerTransform | None = None,
        batch: NDArray[np.integer[Any]] | None = None,
        *,
        compiled: bool = False,
    ) -> Dyadic:
        """B' sum a x' at theta [p, K], each record of norm at most max_limit bound; without a transform B = 1.

        Weights of the blocks are limits: whole numbers m of `limit_rows`, or None where all are max_limit.
        batch : increasing row numbers of the records to sum over; None for all.
        """
        task = (_gradient, slopes, slope_bound, theta, self.grid, compiled)
        sums = carry(self.data.sum_over_batch(batch, *task, whole=True))
        if transform is None:
            return Dyadic(to_integers(sums), np.asarray(0))
        return transform.apply_transpose(sums)

    def moment_scale(self, n: int, transform: IntegerTransform | None = None) -> float:
        """A second moment over this is a mean in units of the squared bound; noise is multiplied by it."""
        return n * (self.grid.max_norm if transform is None else transform.bound) ** 2

    def gradient_scale(
        self, n: int, slope_bound: float, weight_bound: float, transform: IntegerTransform | None = None
    ) -> float:
        """A gradient over this is a mean gradient in units of the bound R; noise in these units is multiplied by it."""
        bound = self.grid.max_norm if transform is None else transform.bound
        return n * self.grid.max_limit * bound / (slope_bound * weight_bound)


# gradients of a squared loss from its moments: exact slopes, and a correction for the records that are clipped

SCORE_BITS = 24
"""Binary digits of a score below the last digit of a label; more are of no use."""
CLIP_BITS = 32
POINT_LIMB_BITS = 16
MOMENT_LIMB_BITS = 20
MIN_CLIP_SHARE = 0.25
"""Clip over the largest label below which many records are expected to be clipped."""
MAX_CANDIDATES = 0.25
"""Share of the records that may be clipped from which on all residuals are computed anew."""
UNSURE = 1 + 2.0**-20
"""A distance in doubles times this is above the true one."""


@dataclass(frozen=True, kw_only=True)
class QuadraticRule:
    """The public rule for the slope x't - y of a squared loss, clipped at C: slopes are rounded nowhere.

    Labels are rounded to whole multiples of 2^label_exponent. A record whose residual in doubles is at most `inside`,
    slightly below C, is not clipped, and others have the slope +- clip 2^clip_exponent, which is at most C.
    """

    grid: RowGrid
    label_exponent: int
    clip: int
    clip_exponent: int
    inside: float

    @classmethod
    def of(cls, data: Any, grid: RowGrid) -> QuadraticRule | None:
        """The rule of a data set; None if its loss is not a square with a wide clip, or records may have weights."""
        problem = data.problem
        law, largest = problem.loss.slope_formula, max(map(abs, problem.bounds.label_range))
        if data.has_weights or problem.bounds.weight_bound != 1 or law is None or law.kind != "affine":
            return None
        bound = float(law.high)
        if law.scale != 1 or law.shift or law.low != -bound or problem.loss.slope_bound != bound:
            return None
        if not (2.0**-60 <= MIN_CLIP_SHARE * largest <= bound <= 2.0**60):
            return None
        exponent = math.frexp(bound)[1] - CLIP_BITS
        return cls(
            grid=grid,
            label_exponent=math.frexp(largest)[1] - grid.slope_bits,
            clip=math.floor(math.ldexp(bound, -exponent)),
            clip_exponent=exponent,
            inside=bound * INWARD,
        )

    def round_point(self, theta: Floats) -> tuple[Floats, int]:
        """A point [p, 1] as (t, k), t 2^-k: scores have at most SCORE_BITS binary digits below those of labels."""
        finest = math.frexp(self.grid.unit)[1] - 1 - self.label_exponent + SCORE_BITS
        whole, shift = round_point(theta, self.grid, finest)
        return whole[:, 0], int(shift[0])

    def score_exponent(self, shift: int) -> int:
        """Scores at a point t 2^-shift are whole multiples of 2 to this power."""
        return math.frexp(self.grid.unit)[1] - 1 - shift

    def round_labels(self, labels: Floats) -> Floats:
        """Labels on their grid; one that is no number counts as 0."""
        whole = np.rint(np.ldexp(labels, -self.label_exponent))
        return np.ldexp(np.where(np.abs(whole) <= self.grid.max_limit, whole, 0.0), self.label_exponent)

    def split_clipped(
        self, scores: Floats, labels: Floats, score_exponent: int
    ) -> tuple[NDArray[np.intp], Floats]:
        """The k clipped records, and their scores, labels and signs in limbs of at most 2^slope_bits [k, limbs]."""
        residuals = scores - labels
        clipped = np.flatnonzero(~(np.abs(residuals) <= self.inside))
        rest, limbs = np.ldexp(scores[clipped], -score_exponent).astype(np.int64), []
        bits = self.grid.slope_bits
        for _ in range(self.n_score_limbs - 1):
            limbs.append((rest & ((1 << bits) - 1)).astype(np.float64))
            rest >>= bits
        limbs += [rest.astype(np.float64), np.ldexp(labels[clipped], -self.label_exponent)]
        return clipped, np.stack([*limbs, np.sign(residuals[clipped])], axis=1)

    @property
    def n_score_limbs(self) -> int:
        return -(-(EXACT_BITS + 2) // self.grid.slope_bits)

    @property
    def n_limbs(self) -> int:
        return self.n_score_limbs + 2

    def join_clipped(self, sums: NDArray[Any], score_exponent: int) -> Dyadic:
        """sum (clipped slope - residual) x over clipped records, from sums of limbs times rows [p, limbs]."""
        bits = self.grid.slope_bits
        scores = sum(sums[:, j] << (bits * j) for j in range(self.n_score_limbs))
        return _add_dyadic(
            (-scores, score_exponent),
            (sums[:, -2], self.label_exponent),
            (sums[:, -1] * self.clip, self.clip_exponent),
        )


class Residuals(NamedTuple):
    """Sizes of all residuals at a point."""

    rule: QuadraticRule
    point: Floats
    sizes: Floats


def _add_dyadic(*terms: tuple[Any, int]) -> Dyadic:
    least = min(exponent for _, exponent in terms)
    return Dyadic(sum(whole << (exponent - least) for whole, exponent in terms), np.asarray(least))


def _label_products(data: Any, rule: QuadraticRule) -> Words:
    """sum y x in whole numbers, words [2, p]."""
    total, seen = WordSum((data.problem.n_columns,)), 0
    per_unit = math.ldexp(1 / rule.grid.unit, -rule.label_exponent)
    for block in data.pieces():
        labels = rule.round_labels(block.labels)
        for part, rows, _ in _pieces(block.rows, WIDE_CACHE_BYTES):
            total.add((labels[part] @ rows) * per_unit)
        seen += len(block.rows)
    data.check_row_count(seen)
    return total.words()


def _clipped_records(data: Any, rule: QuadraticRule, whole_point: Floats, shift: int) -> Words:
    """sum of limbs of clipped records times their rows, words [2, p, n_limbs].

    Residuals at an earlier point s tell which records cannot be clipped at t, |x't - x's| <= |x| |t - s|: they are not
    looked at. Where that leaves many, all residuals are computed anew. Either way the sum is the same.
    """
    point, columns, score_exponent = (
        np.ldexp(whole_point, -shift),
        len(whole_point),
        rule.score_exponent(shift),
    )
    total, seen = WordSum((columns, rule.n_limbs)), 0
    known = data.residuals if data.residuals is not None and data.residuals.rule == rule else None
    if known is not None:
        reach = float(np.linalg.norm(point - known.point)) * rule.grid.row_norm * UNSURE
        may_be_clipped = ~(known.sizes * UNSURE <= rule.inside - reach)
        if np.count_nonzero(may_be_clipped) > MAX_CANDIDATES * len(may_be_clipped):
            known = None
    sizes = data.allocate_numbers(data.n_samples) if known is None else known.sizes
    for block in data.pieces():
        here = slice(seen, seen + len(block.labels))
        if known is None:
            labels = rule.round_labels(block.labels)
            for part, rows, _ in _pieces(block.rows, WIDE_CACHE_BYTES):
                np.abs(rows @ point - labels[part], out=sizes[here][part])
            candidates = np.flatnonzero(~(sizes[here] <= rule.inside))
        else:
            candidates = np.flatnonzero(may_be_clipped[here])
        for start in range(0, len(candidates), step := piece_rows(columns)):
            index = candidates[start : start + step]
            rows = block.rows[index].astype(np.float64, copy=False)
            labels = rule.round_labels(block.labels[index])
            clipped, limbs = rule.split_clipped(rows @ point, labels, score_exponent)
            total.add((rows[clipped].T @ limbs) / rule.grid.unit)
        seen += len(block.labels)
    data.check_row_count(seen)
    if known is None:
        data.residuals = Residuals(rule, point, sizes)
    return total.words()


class QuadraticSums:
    """Gradient sums of a clipped squared loss from one pass for [X y]'X: X'X t - X'y and a correction.

    The correction is for records whose slope is clipped. Every record adds clip(x't - y) x without rounding, and
    |clip(x't - y)| <= C whichever way it is computed. For records of limit M, all of them.
    """

    def __init__(self, data: Any, rule: QuadraticRule) -> None:
        self._data, self.rule = data, rule

    @classmethod
    def of(cls, data: Any, grid: RowGrid) -> QuadraticSums | None:
        """The sums of data whose rows are on the grid; None where the public rule does not apply."""
        rule = QuadraticRule.of(data, grid)
        return None if rule is None else cls(data, rule)

    @cached_property
    def second_moment(self) -> Words:
        return ExactSums(self._data, self.rule.grid).second_moment()

    @cached_property
    def _moment_limbs(self) -> list[Floats]:
        return to_limbs(self.second_moment, MOMENT_LIMB_BITS)

    @cached_property
    def _label_products(self) -> NDArray[Any]:
        products = self._data.sum_over_blocks(_label_products, self.rule, whole=True)
        return to_integers(products).astype(object)

    def gradient(self, theta: Floats, transform: IntegerTransform) -> Dyadic:
        """B' sum clip(x't - y) x at theta [p, 1], each record of norm at most C bound where all rows are short."""
        whole_point, shift = self.rule.round_point(theta)
        exponent = self.rule.score_exponent(shift)
        clipped = self._data.sum_over_blocks(_clipped_records, self.rule, whole_point, shift, whole=True)
        correction = self.rule.join_clipped(to_integers(clipped).astype(object), exponent)
        total = _add_dyadic(
            (self._multiply_moment(whole_point), exponent),
            (-self._label_products, self.rule.label_exponent),
            (correction.whole, int(correction.exponents)),
        )
        turned = transform.apply_transpose_to_integers(total.whole[:, None])
        return Dyadic(turned.whole, turned.exponents + total.exponents)

    def _multiply_moment(self, whole_point: Floats) -> Any:
        """X'X t in Python integers: limbs of 20 and 16 binary digits, so that sums of p <= 2^14 products are exact."""
        high = np.trunc(whole_point * 2.0**-POINT_LIMB_BITS)
        halves = np.stack([whole_point - high * 2.0**POINT_LIMB_BITS, high], axis=1)
        products = [join_limbs(list((limb @ halves).T), POINT_LIMB_BITS) for limb in self._moment_limbs]
        return sum(product << (MOMENT_LIMB_BITS * j) for j, product in enumerate(products))
