"""Sums over records without rounding error: what exact noise can be added to.

Three things are rounded, each as a function of one record and of public or released values: the row (once, to whole
multiples of a power of two), the point (released, hence public) and the product of slope and weight of a record. After
that, every product over records adds whole numbers (times powers of two) that stay below 2^53, so that doubles hold
every partial sum exactly. BLAS, compiled loops, threads, blocks, partitions and permutations give the same bits.

Groups of GROUP rows are summed in doubles, groups in 64-bit integers with a carry ("words", see `add_group`). Words of
parts of the data are added like any array, wherever the parts are. docs/theory/exact_sums.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.exact_records import (
    LawSlopes,
    bound_lengths,
    decide_tie,
    measure_rows,
    shorten_rows,
    whole_slopes,
)
from dplangevin.data.integer_grids import (
    CACHE_BYTES,
    GROUP,
    Dyadic,
    IntegerTransform,
    RowGrid,
    Words,
    WordSum,
    carry,
    piece_rows,
    snap_point,
    to_integers,
)
from dplangevin.problem.losses.base import SLOPE_KINDS, SlopeFormula

Slopes = Callable[[Floats, Floats], Floats]

WIDE_CACHE_BYTES = 1 << 21
"""Rows of one matrix product whose own cost is above that of reading them."""
GRADIENT_CACHE_BYTES = 1 << 20
COMPILED_MODULE = "dplangevin.data._exact_kernels"
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
            for part, rows, ends in _pieces(block.rows, GRADIENT_CACHE_BYTES):
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
    from dplangevin.data import _exact_kernels

    point = np.ascontiguousarray(snap_point(theta, grid)[:, 0])
    numbers = (SLOPE_KINDS.index(law.kind), law.scale, law.shift, law.low, law.high)
    total = np.zeros((2, len(point)), np.int64)
    ties = np.empty(_MAX_TIES, np.int64)
    for block in blocks:
        rows = np.require(block.rows, requirements=["C", "A"])
        limits = np.atleast_1d(np.asarray(block.limits, np.float64))
        block_sums = np.zeros_like(total)
        kernel = _exact_kernels.exact_gradient("float32" if rows.itemsize == 4 else "float64")
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
