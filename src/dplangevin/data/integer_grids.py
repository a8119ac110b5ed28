"""Whole numbers of exact sums: public grids of rows, points and coordinates, and sums and products without overflow."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.problem.constants import MAX_EXACT_COLUMNS, clip_slack

Words = NDArray[np.int64]

EXACT_BITS = 52
"""Binary digits of a sum; doubles hold 53."""
WORD_BITS = 40
_MASK = (1 << WORD_BITS) - 1
_CARRY_EVERY = 1 << 9


class Dyadic(NamedTuple):
    """Exact numbers whole 2^exponents; `whole` are 64-bit or Python integers, exponents broadcast to them."""

    whole: NDArray[Any]
    exponents: NDArray[np.int64]


class WordSum:
    """A running sum of whole numbers in doubles, each below 2^53, in two 64-bit integers an entry: [high, low]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._words = np.zeros((2, *shape), np.int64)
        self._left = _CARRY_EVERY

    def add(self, whole: Floats) -> None:
        self._words[1] += whole.astype(np.int64)
        self._left -= 1
        if not self._left:
            carry(self._words)
            self._left = _CARRY_EVERY

    def words(self) -> Words:
        return carry(self._words)


def carry(words: Words) -> Words:
    """Move what exceeds WORD_BITS from the low to the high word, in place; low words are then in [0, 2^40).

    So up to 2^22 arrays of words may be added before the next carry, and the high word counts up to 2^62.
    """
    words[0] += words[1] >> WORD_BITS
    words[1] &= _MASK
    return words


def to_integers(words: Words) -> NDArray[Any]:
    """high 2^40 + low: 64-bit integers where they hold all entries, else Python integers."""
    high, low = carry(words.copy())
    if np.abs(high).max(initial=0) < 1 << 22:
        return np.asarray((high << WORD_BITS) + low)
    return np.asarray((high.astype(object) << WORD_BITS) + low.astype(object))


def to_limbs(words: Words, bits: int) -> list[Floats]:
    """Doubles d_k of at most `bits` binary digits, with the sign of their entry: words = sum_k d_k 2^(bits k)."""
    high, low = carry(words.copy())
    negative = high < 0
    # -(high 2^40 + low) = (-high - 1) 2^40 + (2^40 - low), or -high 2^40 where low = 0
    borrowed = negative & (low > 0)
    high = np.where(negative, -high, high) - borrowed
    low = np.where(borrowed, (1 << WORD_BITS) - low, low)
    sign, mask, limbs = np.where(negative, -1.0, 1.0), (1 << bits) - 1, []
    while low.any() or high.any():
        limbs.append(sign * (low & mask))
        low = (low >> bits) | ((high & mask) << (WORD_BITS - bits))
        high = high >> bits
    return limbs or [np.zeros(high.shape)]


def integers_to_limbs(whole: NDArray[Any], bits: int) -> list[Floats]:
    """The same limbs of Python integers of any size."""
    sign, rest = np.where(whole < 0, -1.0, 1.0), np.abs(whole)
    mask, limbs = (1 << bits) - 1, []
    while rest.any():
        limbs.append(sign * (rest & mask).astype(np.float64))
        rest = rest >> bits
    return limbs or [np.zeros(whole.shape)]


def split_limbs(limbs: list[Floats], bits: int) -> list[Floats]:
    """The same number in limbs of about `bits` binary digits again: below 2^(bits + 3) for limbs below 2^53."""
    digits: list[Floats] = []
    for place, limb in enumerate(limbs):
        rest, sign, index = np.abs(limb), np.sign(limb), place
        while rest.any():
            above = np.floor(rest * 2.0**-bits)
            digit = sign * (rest - above * 2.0**bits)
            while len(digits) <= index:
                digits.append(np.zeros(limb.shape))
            digits[index] = digits[index] + digit
            rest, index = above, index + 1
    return digits or [np.zeros(limbs[0].shape)]


def join_limbs(limbs: list[Floats], bits: int) -> NDArray[Any]:
    """sum_k limb_k 2^(bits k) in Python integers."""
    total = np.zeros(limbs[0].shape, object)
    for place, limb in enumerate(limbs):
        total = total + (limb.astype(np.int64).astype(object) << (bits * place))
    return total


GROUP_BITS = 12
GROUP = 1 << GROUP_BITS
"""Rows whose sum stays below 2^53: 20 + 20 + 12 binary digits, or 24 + 16 + 12."""
CACHE_BYTES = 1 << 19
"""Rows of one matrix product: with their coordinates they stay in the cache."""
INWARD = 1 - 2.0**-30
MAX_POINT_SHIFT = 400
"""Largest k of points t 2^-k: no product underflows."""
SURELY = 1 - 2.0**-8
"""Rows whose squared length is below this share of the squared bound are short by the exact rule."""
BOUND_BITS = 32
STEP_BITS = 20
MAX_EXPONENT_RANGE = 300
MAX_PYTHON_PRODUCTS = 400
"""Products of Python integers that take less time than to split a sum into limbs."""
SINGLE_RANGE = (2.0**-100, 2.0**90)
"""Units of grids whose rows are stored in single precision: no entry is subnormal or overflows."""
MAX_FILTER_GAIN = 1e6
"""Largest square by which a filter may enlarge rounding: 1e6 times 1e-13 is far below its margin."""
MAX_EXPECTED_SQUARE = 0.25
"""Largest expected square, in units of the bound, at which a filter tells most rows to be short."""


@dataclass(frozen=True, kw_only=True)
class RowGrid:
    """The public grid of rows: whole multiples of `unit`, a power of two, of norm at most row_norm.

    row_bits : binary digits of the largest entry, 20 or 24; the finer grid is for noise below about 1e-9 of the squared
        row norm, and leaves 16 instead of 20 binary digits to slopes.
    max_norm : row_norm in units, below 2^row_bits. max_square : the largest squared norm, a whole number.
    max_limit : the weight 1 in whole numbers, M.
    """

    row_norm: float
    row_bits: int = 20
    unit: float = field(init=False)
    max_norm: float = field(init=False)
    max_square: int = field(init=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.row_norm) and 1e-60 < self.row_norm < 1e60):
            raise InvalidParameter(f"row_norm must be a positive number, got {self.row_norm!r}.")
        if self.row_bits not in (20, 24):
            raise InvalidParameter(f"row_bits must be 20 or 24, got {self.row_bits!r}.")
        unit = 2.0 ** (math.frexp(self.row_norm)[1] - self.row_bits)
        object.__setattr__(self, "unit", unit)
        object.__setattr__(self, "max_norm", self.row_norm / unit)
        object.__setattr__(self, "max_square", math.floor(Fraction(self.row_norm / unit) ** 2))

    @property
    def slope_bits(self) -> int:
        return EXACT_BITS - GROUP_BITS - self.row_bits

    @property
    def max_limit(self) -> float:
        return float(1 << self.slope_bits)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The shortest type of numbers that holds every row on the grid: 24 binary digits, as single precision has."""
        return np.dtype(np.float32 if SINGLE_RANGE[0] <= self.unit <= SINGLE_RANGE[1] else np.float64)

    def snap(self, rows: NDArray[Any]) -> None:
        """Round the rows [n, p] towards zero to the grid, in place; done twice, it changes nothing.

        A row beyond the norm, which only rounding of the bound itself can leave there, is drawn in by a hair, and
        counts as zero if that is not enough or if an entry is no number. float32 holds the same multiples.
        """
        self.snap_into(rows, rows)

    def snap_into(self, rows: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the rows, rounded to the grid, to `out`, which may be the rows themselves or begin where they do."""
        step = piece_rows(rows.shape[1])
        with np.errstate(invalid="ignore", over="ignore"):
            for start in range(0, len(rows), step):
                part = rows[start : start + step]
                whole = np.divide(part, self.unit, dtype=np.float64)  # a power of two: no rounding
                np.trunc(whole, out=whole)
                long = np.flatnonzero(~(np.einsum("ij,ij->i", whole, whole) <= self.max_square))
                if len(long):
                    whole[long] = self._drawn_in(part[long].astype(np.float64) / self.unit)
                np.multiply(whole, self.unit, out=out[start : start + step], casting="same_kind")

    def snap_inner(
        self, features: NDArray[Any], bound: float, buffer: Floats | None, out: NDArray[Any]
    ) -> NDArray[np.intp]:
        """Write the joint rows (x, 1), rounded, to `out`; return which may be beyond `bound`, for which this is wrong.

        The others satisfy |x| <= (1 - 2 slack) bound by the length of their rounded entries, |x| <= unit (|X| +
        sqrt(p)), so that a clip would leave them as they are.

        buffer : as many rows in doubles as there are, or more; None for compiled code, which writes the same rows.
        """
        columns, one = features.shape[1], float(np.trunc(1.0 / self.unit))
        constant = (out.shape[1] - columns) * one * one
        slack = 4 * clip_slack(columns, features.dtype)
        longest = bound / self.unit * (1 - slack) - math.sqrt(columns) - 1.0
        most = min(float(self.max_square), constant + max(longest, 0.0) ** 2)
        if buffer is None:
            from dplangevin.data import _numba_kernels

            return _numba_kernels.round_rows(features, 1.0 / self.unit, one, self.unit, most, out)
        whole = buffer[: len(features)]
        with np.errstate(invalid="ignore", over="ignore"):
            # a power of two: no rounding
            np.multiply(features, 1.0 / self.unit, out=whole[:, :columns], dtype=np.float64)
            whole[:, columns:] = one
            np.trunc(whole, out=whole)
            left = np.flatnonzero(~(np.einsum("ij,ij->i", whole, whole) <= most))
            # of at most 24 binary digits: single precision holds them
            np.multiply(whole, self.unit, out=out, casting="same_kind")
        return left

    def _drawn_in(self, whole: Floats) -> Floats:
        whole = np.trunc(whole * INWARD)
        whole[~(np.einsum("ij,ij->i", whole, whole) <= self.max_square)] = 0.0
        return whole


def piece_rows(columns: int, n_bytes: int = CACHE_BYTES) -> int:
    """Rows of one matrix product: a power of two up to GROUP."""
    most = max(n_bytes // (8 * max(columns, 1)), 64)
    return min(GROUP, 1 << (most.bit_length() - 1))


def snap_point(theta: Floats, grid: RowGrid) -> Floats:
    """theta [p, K] with so few binary digits that scores of rows on the grid are exact: |x| |t| < 2^53 for t whole.

    Each column has its own exponent. What is not finite, which only a run that lost itself has, counts as zero.
    """
    whole, shift = round_point(theta, grid)
    return np.asarray(np.ldexp(whole, -shift))


def round_point(
    theta: Floats, grid: RowGrid, finest: int = MAX_POINT_SHIFT
) -> tuple[Floats, NDArray[np.integer[Any]]]:
    """The same point as whole numbers t [p, K] and exponents k [K], each at most `finest`: t 2^-k."""
    given = np.where(np.isfinite(theta) & (np.abs(theta) < 1e100), theta, 0.0)
    largest = np.abs(given).max(axis=0)
    _, top = np.frexp(np.where(largest == 0, 1.0, largest))
    _, more = np.frexp(np.sqrt((np.ldexp(given, -top) ** 2).sum(axis=0)))
    shift = np.minimum(EXACT_BITS - grid.row_bits - (top + more), finest)
    return np.rint(np.ldexp(given, shift)), shift


class IntegerTransform:
    """A public matrix B in whole numbers, u = B' x, and the bound R on |u|: coordinates of rows without rounding.

    Column j of B is `basis[:, j]` 2^exponents[j], rounded from the given matrix to 52 - row_bits binary digits of the
    column's own length, so that |x| |column| < 2^53 for every row x on the grid. Columns differ by large powers of two
    where noise is small: one exponent for all would lose the short ones. From here on B IS that matrix, so that its
    rounding costs nothing. Rows x are in units of the grid, and |u| <= R means |B' x| row_norm / max_norm <= bound.

    Parameters
    ----------
    basis, bound : B (in columns) and R for rows of norm at most 1.
    has_filter : whether to look for a filter of short rows, which saves time where most rows are short.
    """

    def __init__(
        self,
        basis: Floats,
        bound: float,
        grid: RowGrid,
        *,
        has_filter: bool = True,
    ) -> None:
        given = np.asarray(basis, np.float64)
        size = len(given)
        if given.shape != (size, size) or not 0 < size <= MAX_EXACT_COLUMNS or not np.isfinite(given).all():
            raise InvalidParameter("the basis must be a finite square matrix.")
        digits = EXACT_BITS - grid.row_bits
        largest = np.abs(given).max(axis=0)
        largest[largest == 0] = 1.0
        _, tops = np.frexp(largest)
        lengths = np.linalg.norm(np.ldexp(given, -tops), axis=0)
        self.exponents = np.asarray(tops + np.frexp(lengths)[1] - digits, np.int64)
        if np.ptp(self.exponents) > MAX_EXPONENT_RANGE or np.abs(self.exponents).max() > MAX_EXPONENT_RANGE:
            raise InvalidParameter("the columns of the basis differ by too many orders of magnitude.")
        self.basis = np.rint(np.ldexp(given, -self.exponents))
        self.grid = grid
        self.real = np.ldexp(self.basis, self.exponents)
        """B in doubles: the matrix that is used, exactly."""
        top = math.frexp(bound * grid.max_norm)[1]
        if not (bound > 0 and math.isfinite(bound) and abs(top) <= MAX_EXPONENT_RANGE):
            raise InvalidParameter(f"the bound on rows must be a positive number, got {bound!r}.")
        digits = math.floor(math.ldexp(bound * grid.max_norm, BOUND_BITS - top))
        self.bound = digits * 2.0 ** (top - BOUND_BITS)
        """R for rows in units, of 32 binary digits, so that M R is exact."""
        self.step_exponent = top - STEP_BITS
        self.max_steps = digits * 2.0 ** (STEP_BITS - BOUND_BITS)
        """R in steps of 2^step_exponent, between 2^19 and 2^20."""
        self.max_steps_square = math.floor(Fraction(self.max_steps) ** 2)
        self._scales = np.ldexp(1.0 / grid.unit, self.exponents - self.step_exponent)
        self.unit_bound = self.bound / grid.max_norm
        """R for rows of norm 1: what the noise is in units of."""
        whole = np.abs(self.basis).astype(np.int64)
        assert max(_column_squares(whole)) * grid.max_square < 1 << 106
        self.limb_bits = min(24, EXACT_BITS - int(whole.sum(axis=0).max()).bit_length())
        self.filter = CertifiedRowFilter.build(self) if has_filter else None

    def coordinates(self, rows: Floats) -> Floats:
        """u = B' x of rows on the grid in steps of 2^step_exponent, exactly; R is `max_steps` of them."""
        u = rows @ self.basis
        u *= self._scales
        return u

    def apply_transpose(self, words: Words) -> Dyadic:
        """B' S of a sum S [p, K] of whole numbers, exactly."""
        if self.basis.size * words.shape[2] <= MAX_PYTHON_PRODUCTS:
            high, low = words.astype(object)
            return Dyadic(self._integers.T @ ((high << WORD_BITS) + low), self.exponents[:, None])
        return self._join_products(to_limbs(words, self.limb_bits))

    def apply_transpose_to_integers(self, whole: NDArray[Any]) -> Dyadic:
        """B' S of Python integers S [p, K] of any size, exactly."""
        return self._join_products(integers_to_limbs(whole, self.limb_bits))

    def _join_products(self, limbs: list[Floats]) -> Dyadic:
        products = [self.basis.T @ limb for limb in limbs]
        return Dyadic(join_limbs(products, self.limb_bits), self.exponents[:, None])

    @cached_property
    def _integers(self) -> NDArray[Any]:
        return self.basis.astype(np.int64).astype(object)

    def congruence(self, words: Words) -> Dyadic:
        """B' G B of a symmetric sum G [p, p] of whole numbers, exactly."""
        bits = self.limb_bits - 4
        inner = split_limbs([self.basis.T @ limb for limb in to_limbs(words, bits)], bits)
        outer = join_limbs([limb @ self.basis for limb in inner], bits)
        return Dyadic(outer, self.exponents[:, None] + self.exponents)


def _column_squares(whole: Words) -> list[int]:
    """Squared lengths of columns of whole numbers below 2^40, exactly: sums of products of 20 digits are below 2^54."""
    high, low = whole >> 20, whole & ((1 << 20) - 1)
    parts = ((high * high).sum(axis=0), (high * low).sum(axis=0), (low * low).sum(axis=0))
    return [(int(a) << 40) + (int(b) << 21) + int(c) for a, b, c in zip(*parts, strict=True)]


@dataclass(frozen=True, kw_only=True, eq=False)
class CertifiedRowFilter:
    """Tells in doubles which rows are surely short, so that the exact rule need not be asked: it saves work only.

    For rows of norm at most 1, |B' x|^2 / R^2 is at most top |x|^2 - sum_j less_j (v_j' x)^2 + 2^-9: a matrix
    inequality between public matrices, which a Cholesky factorisation certifies. Rows for which the right side is
    below 1 - 2^-8 are short by the exact rule as well.
    all_short : whether every row of norm 1 is.
    """

    top: float
    vectors: Floats
    less: Floats
    all_short: bool

    @classmethod
    def build(cls, transform: IntegerTransform) -> CertifiedRowFilter | None:
        """The filter with the fewest directions; None where too many would be needed."""
        max_norm = transform.grid.max_norm
        inside = transform.real * (max_norm / transform.bound)
        size = len(inside)
        if not np.isfinite(inside).all() or np.abs(inside).max() > 1e3:
            return None
        vectors, roots, _ = np.linalg.svd(inside)
        squares = roots**2
        if not 0 < squares[0] <= MAX_FILTER_GAIN:
            return None
        all_short = _is_positive(SURELY * np.eye(size) - inside @ inside.T, squares[0])
        # rows are white in these coordinates: direction j holds about 1 / s_j^2 of them
        with np.errstate(divide="ignore"):
            shares = squares[0] / squares
        expected = np.cumsum(shares) + np.arange(size)[::-1]
        kept = np.flatnonzero(expected * (max_norm / transform.bound) ** 2 <= MAX_EXPECTED_SQUARE)
        n_directions = size if not kept.size else size - 1 - int(kept[-1])
        if n_directions > size // 3 and not all_short:
            return None
        last = slice(size - n_directions, None)
        top, less, directions = float(squares[0]), squares[0] - squares[last], vectors[:, last]
        upper = (top + 2.0**-9) * np.eye(size) - (directions * less) @ directions.T
        if not _is_positive(upper - inside @ inside.T, top):
            return None
        return cls(top=top, vectors=directions, less=less, all_short=all_short)

    def find_long_candidates(self, rows: Floats, row_norm: float) -> NDArray[np.intp]:
        """The rows that may be long."""
        if self.all_short:
            return np.empty(0, np.intp)
        squares = self.top * np.einsum("ij,ij->i", rows, rows)
        if self.less.size:
            inside = rows @ self.vectors
            inside *= inside
            squares -= inside @ self.less
        return np.flatnonzero(~(squares <= (SURELY - 2.0**-9) * row_norm**2))


def _is_positive(matrix: Floats, scale: float) -> bool:
    """Whether a symmetric matrix has a Cholesky factorisation less a margin.

    The margin is above the rounding of the factorisation and of the products of norm `scale` that the matrix is the
    difference of: a factorisation then certifies that no eigenvalue is negative, whatever found the matrices.
    """
    size = len(matrix)
    margin = 8.0 * size * (size + 8) * 2.0**-53 * (float(scale) + 1.0)
    try:
        np.linalg.cholesky(matrix - margin * np.eye(size))
    except np.linalg.LinAlgError:
        return False
    return True
