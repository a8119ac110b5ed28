"""Compiled kernels of the `fast` extra: scores, clipped slopes and their sum in one pass over rows, rounded or exact.

Imported only when numba is installed and the data are large enough to repay the import. Machine code is cached on
disk. Sums are reassociated for speed; NaN and infinite scores are replaced as in the NumPy kernel.

Scores and sums are exact, so that their loops may be reassociated and fused at will. What is rounded (slopes) uses
operations of the standard only, none of them fused, so that a record's place in a loop plays no part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from dplangevin.data.exact_sums import CLIP_DOUBT, NEAR_TIE
from dplangevin.data.integer_grids import GROUP, WORD_BITS

TILE = 32
EXACT_TILE = 256  # long enough for vectorized exponentials, short enough for the cache
NARROW_COLUMNS = 32  # with fewer columns, a row is too short to keep the processor busy by itself
ROWS_PER_GROUP = 4096  # records per accumulator, see kernels.ROWS_PER_GROUP
_OPTIONS: dict[str, Any] = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz"},  # NaN and infinity keep their meaning
}
_TO_INTEGER = 1.5 * 2.0**52  # adding it rounds to a whole number
_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10


@intrinsic
def _prefetch_line(context: Any, rows: Any, row: Any, column: Any) -> Any:
    """Prefetch the cache line of rows[row, column]; the row must exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        array = context.make_array(kind)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, kind, array, list(arguments[1:]))
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        call = builder.module.declare_intrinsic("llvm.prefetch", [byte], shape)
        builder.call(call, [builder.bitcast(pointer, byte), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(rows, types.int64, types.int64), generate


@njit(**{**_OPTIONS, "fastmath": {"contract", "nsz"}})  # reassociation would undo the rounding to k below
def _exp_in_place(u: Any, size: int, bits: Any, powers: Any, values: Any) -> None:
    """Set values = e^u for u clipped to [-700, 700], to two units in the last place: e^u = 2^k e^r, |r| <= ln(2) / 2.

    `powers` is a view of `bits` as doubles. The C library is not called, so that the loops are vectorized.
    """
    for i in range(size):
        x = min(max(u[i] if u[i] == u[i] else 0.0, -700.0), 700.0)
        shifted = x * _LOG2E + _TO_INTEGER
        powers[i] = shifted
        k = shifted - _TO_INTEGER
        r = (x - k * _LN2_HIGH) - k * _LN2_LOW
        q = r / 479001600.0 + 1 / 39916800.0  # Taylor series with a relative remainder below 2e-16
        q = q * r + 1 / 3628800.0
        q = q * r + 1 / 362880.0
        q = q * r + 1 / 40320.0
        q = q * r + 1 / 5040.0
        q = q * r + 1 / 720.0
        q = q * r + 1 / 120.0
        q = q * r + 1 / 24.0
        q = q * r + 1 / 6.0
        q = q * r + 0.5
        q = q * r + 1.0
        values[i] = q * r + 1.0
    for i in range(size):
        bits[i] = (bits[i] + 1023) << 52  # k is in the last bits of the mantissa
    for i in range(size):
        values[i] *= powers[i]


@njit(**_OPTIONS)
def _slopes_in_place(u: Any, y: Any, size: int, formula: Any, bits: Any, powers: Any, values: Any) -> None:
    """Turn scores u into slopes in place; formula = (kind, scale, shift, low, high) as in SlopeFormula."""
    kind, scale, shift, low, high = formula
    if kind == 1:
        _exp_in_place(u, size, bits, powers, values)
        for i in range(size):
            e = values[i]
            u[i] = min(max(e / (1.0 + e) - y[i], low), high)
    elif kind == 2:
        _exp_in_place(u, size, bits, powers, values)
        for i in range(size):
            u[i] = min(max(values[i] - y[i], low), high)
    else:
        for i in range(size):
            u[i] = min(max(u[i] if u[i] == u[i] else 0.0, -1e300), 1e300)
        if kind == 0:
            for i in range(size):
                u[i] = min(max((u[i] - y[i]) * scale + shift, low), high)
        else:
            for i in range(size):
                sign = 1.0 if y[i] > 0.5 else -1.0
                inside = min(max((u[i] - sign) * scale, -(1.0 + sign) / 2), (1.0 - sign) / 2)
                u[i] = min(max(inside, low), high)


@njit(**_OPTIONS)
def _add_tile(u: Any, rows: Any, start: int, first: int, last: int, total: Any) -> None:
    """Add the sum of u[i] rows[start + i] for i in [first, last) to total."""
    for i in range(first, last):
        slope = u[i]
        for j in range(total.size):
            total[j] += slope * rows[start + i, j]


@njit(**_OPTIONS)
def _add_four(u: Any, rows: Any, start: int, size: int, ahead: int, total: Any) -> None:
    """Add the sum of u[i] rows[start + i] for i < size to total, four rows at a time.

    The rows that are `ahead` of them are prefetched meanwhile, so that the memory bus is always busy.
    """
    whole, line, n = size - size % 4, 64 // rows.itemsize, len(rows)
    for i in range(0, whole, 4):
        k = start + i
        if k + ahead + 4 <= n:
            for row in range(k + ahead, k + ahead + 4):
                for j in range(0, total.size, line):
                    _prefetch_line(rows, row, j)
        a, b, c, d = u[i], u[i + 1], u[i + 2], u[i + 3]
        for j in range(total.size):
            total[j] += (a * rows[k, j] + b * rows[k + 1, j]) + (c * rows[k + 2, j] + d * rows[k + 3, j])
    _add_tile(u, rows, start, whole, size, total)


@njit(**_OPTIONS)
def _affine_gradient(rows: Any, labels: Any, weights: Any, theta: Any, formula: Any, total: Any) -> None:
    """Do the work of _fused_gradient for affine slopes, which are so cheap that each row is finished at once."""
    _, scale, shift, low, high = formula
    group, line, (n, columns) = np.empty(total.size), 64 // rows.itemsize, rows.shape
    for first in range(0, n, ROWS_PER_GROUP):
        group[:] = 0.0
        for i in range(first, min(first + ROWS_PER_GROUP, n)):
            if i + 16 < n:
                for j in range(0, columns, line):
                    _prefetch_line(rows, i + 16, j)
            score = 0.0
            for j in range(columns):
                score += rows[i, j] * theta[j]
            score = min(max(score if score == score else 0.0, -1e300), 1e300)
            slope = min(max((score - labels[i]) * scale + shift, low), high)
            if weights.size:
                slope *= weights[i]
            for j in range(columns):
                group[j] += slope * rows[i, j]
        for j in range(columns):
            total[j] += group[j]


@njit(**_OPTIONS)
def _scores_of_four(rows: Any, start: int, size: int, theta: Any, u: Any) -> None:
    """Set u[i] to the score of rows[start + i], four rows at a time."""
    whole = size - size % 4
    for i in range(0, whole, 4):
        k = start + i
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for j in range(theta.size):
            weight = theta[j]
            a += rows[k, j] * weight
            b += rows[k + 1, j] * weight
            c += rows[k + 2, j] * weight
            d += rows[k + 3, j] * weight
        u[i], u[i + 1], u[i + 2], u[i + 3] = a, b, c, d
    for i in range(whole, size):
        score = 0.0
        for j in range(theta.size):
            score += rows[start + i, j] * theta[j]
        u[i] = score


@njit(**_OPTIONS)
def _narrow_gradient(rows: Any, labels: Any, weights: Any, theta: Any, formula: Any, total: Any) -> None:
    """Do the work of _fused_gradient for short rows: four at a time, prefetching the next tile meanwhile."""
    tile = 2 * TILE
    u, values, bits = np.empty(tile), np.empty(tile), np.empty(tile, np.int64)
    powers, group, (n, columns) = bits.view(np.float64), np.empty(total.size), rows.shape
    for first in range(0, n, ROWS_PER_GROUP):
        last = min(first + ROWS_PER_GROUP, n)
        group[:] = 0.0
        for start in range(first, last, tile):
            size = min(tile, last - start)
            _scores_of_four(rows, start, size, theta, u)
            _slopes_in_place(u, labels[start:], size, formula, bits, powers, values)
            if weights.size:
                for i in range(size):
                    u[i] *= weights[start + i]
            _add_four(u, rows, start, size, tile, group)
        for j in range(columns):
            total[j] += group[j]


def _fused_gradient(rows: Any, labels: Any, weights: Any, theta: Any, formula: Any, total: Any) -> None:
    """Add the sum of weight slope row to total; `weights` is empty when every weight is 1.

    The scores of one tile and the sum over the tile before it alternate row by row, so that the memory bus is always
    busy; slopes are evaluated one tile at a time.
    """
    if formula[0] == 0:
        _affine_gradient(rows, labels, weights, theta, formula, total)
        return
    if rows.shape[1] < NARROW_COLUMNS:
        _narrow_gradient(rows, labels, weights, theta, formula, total)
        return
    u, values, bits = np.empty(TILE), np.empty(TILE), np.empty(TILE, np.int64)
    powers, group = bits.view(np.float64), np.empty(total.size)
    line, (n, columns) = 64 // rows.itemsize, rows.shape
    tile = TILE if columns <= 128 else TILE // 4  # two tiles stay in cache
    for first in range(0, n, ROWS_PER_GROUP):
        last = min(first + ROWS_PER_GROUP, n)
        group[:] = 0.0
        u[:] = 0.0
        start = first
        while start < last:
            size, before = min(tile, last - start), max(start - tile, first)
            for i in range(size):
                if start + i + tile < n:
                    for j in range(0, columns, line):
                        _prefetch_line(rows, start + i + tile, j)
                score, slope = 0.0, u[i]
                for j in range(columns):
                    score += rows[start + i, j] * theta[j]
                u[i] = score
                for j in range(columns):
                    group[j] += slope * rows[before + i, j]
            if size < tile and start > first:
                # A short last tile has left rows of the one before it unsummed.
                _add_tile(u, rows, before, size, tile, group)
            _slopes_in_place(u, labels[start:], size, formula, bits, powers, values)
            if weights.size:
                for i in range(size):
                    u[i] *= weights[start + i]
            start += tile
        _add_tile(u, rows, start - tile, 0, last - start + tile, group)
        for j in range(columns):
            total[j] += group[j]


def _slope_matrix(scores: Any, labels: Any, formula: Any) -> None:
    """Turn scores [rows, k] into slopes in place, a few rows at a time."""
    (n, k), flat = scores.shape, scores.reshape(-1)
    rows = max(1, 256 // k)
    values, bits, y = np.empty(rows * k), np.empty(rows * k, np.int64), np.empty(rows * k)
    powers = bits.view(np.float64)
    for start in range(0, n, rows):
        size = min(rows, n - start)
        for i in range(size):
            y[i * k : (i + 1) * k] = labels[start + i]
        _slopes_in_place(flat[start * k :], y, size * k, formula, bits, powers, values)


def _vector_type(readonly: bool = True) -> Any:
    return types.Array(types.float64, 1, "C", readonly=readonly)


_FORMULA_TYPE = types.Tuple((types.int64, types.float64, types.float64, types.float64, types.float64))


@cache
def fused_kernel(dtype: str) -> Callable[..., None]:
    """Return the compiled _fused_gradient for rows of "float64" or "float32"."""
    rows = types.Array(getattr(types, dtype), 2, "C", readonly=True)
    compiled: Callable[..., None] = njit(
        types.void(
            rows, _vector_type(), _vector_type(), _vector_type(), _FORMULA_TYPE, _vector_type(readonly=False)
        ),
        **_OPTIONS,
    )(_fused_gradient)
    return compiled


@cache
def slope_matrix_kernel() -> Callable[..., None]:
    """Return the compiled _slope_matrix, for blocks of parameter vectors."""
    scores = types.Array(types.float64, 2, "C", readonly=False)
    compiled: Callable[..., None] = njit(types.void(scores, _vector_type(), _FORMULA_TYPE), **_OPTIONS)(
        _slope_matrix
    )
    return compiled


_STRICT: dict[str, Any] = {**_OPTIONS, "fastmath": False}
_LIMIT = 0.5 - NEAR_TIE
_strict_exponentials = njit(**_STRICT)(_exp_in_place.py_func)


@njit(**_STRICT)
def _whole_tile(
    u: Any, y: Any, limits: Any, size: int, law: Any, slope_bound: float, bits: Any, powers: Any, values: Any
) -> int:
    """Scores u to whole slopes, in place; how many are near a tie. These have NaN in `values`, the others a number."""
    kind, scale, shift, low, high = law
    near = 0
    if kind == 1 or kind == 2:
        _strict_exponentials(u, size, bits, powers, values)
        for i in range(size):
            e = values[i]
            r = (e / (1.0 + e) if kind == 1 else e) - y[i]
            v = min(max(r, low), high) / slope_bound * limits[i]
            whole = np.rint(v)
            clipped = r < low - CLIP_DOUBT or r > high + CLIP_DOUBT
            tie = abs(v - whole) > _LIMIT and u[i] != 0.0 and not clipped
            near += tie
            values[i] = np.nan if tie else 0.0
            u[i] = whole if abs(whole) <= limits[i] and not tie else 0.0
        return near
    for i in range(size):
        if kind == 0:
            r = (u[i] - y[i]) * scale + shift
        else:
            sign = 1.0 if y[i] > 0.5 else -1.0
            r = min(max((u[i] - sign) * scale, -(1.0 + sign) / 2), (1.0 - sign) / 2)
        whole = np.rint(min(max(r, low), high) / slope_bound * limits[i])
        u[i] = whole if abs(whole) <= limits[i] else 0.0
    return 0


@njit(**_STRICT)
def _note_ties(values: Any, start: int, size: int, ties: Any, count: int) -> int:
    for i in range(size):
        if values[i] != values[i]:
            if count < ties.size:
                ties[count] = start + i
            count += 1
    return count


@njit(**_STRICT)
def _add_group(group: Any, per_unit: float, words: Any) -> None:
    for j in range(group.size):
        low = words[1, j] + np.int64(group[j] * per_unit)
        words[0, j] += low >> WORD_BITS
        words[1, j] = low & ((1 << WORD_BITS) - 1)


def _exact_gradient(
    rows: Any,
    labels: Any,
    limits: Any,
    theta: Any,
    law: Any,
    slope_bound: float,
    per_unit: float,
    words: Any,
    ties: Any,
) -> int:
    """words += sum a x in units, without the records near a tie, whose indices go to `ties`; their number."""
    (n, columns), count, each = rows.shape, 0, limits.size > 1
    u, values, bits = np.empty(EXACT_TILE), np.empty(EXACT_TILE), np.empty(EXACT_TILE, np.int64)
    powers, one, group = bits.view(np.float64), np.full(EXACT_TILE, limits[0]), np.empty(columns)
    for first in range(0, n, GROUP):
        last = min(first + GROUP, n)
        group[:] = 0.0
        for start in range(first, last, EXACT_TILE):
            size = min(EXACT_TILE, last - start)
            _scores_of_four(rows, start, size, theta, u)
            limit = limits[start:] if each else one
            if _whole_tile(u, labels[start:], limit, size, law, slope_bound, bits, powers, values):
                count = _note_ties(values, start, size, ties, count)
            _add_four(u, rows, start, size, EXACT_TILE, group)
        _add_group(group, per_unit, words)
    return count


@cache
def exact_gradient(dtype: str) -> Callable[..., int]:
    """The kernel for rows of "float64" or "float32"."""
    rows = types.Array(getattr(types, dtype), 2, "C", readonly=True)
    word_type, tie_type = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")
    compiled: Callable[..., int] = njit(
        types.int64(
            rows,
            _vector_type(),
            _vector_type(),
            _vector_type(),
            _FORMULA_TYPE,
            types.float64,
            types.float64,
            word_type,
            tie_type,
        ),
        **_OPTIONS,
    )(_exact_gradient)
    return compiled


def _round_rows(
    features: Any, per_unit: float, one: float, unit: float, most: float, out: Any, long: Any
) -> int:
    """out = (x, 1) rounded towards zero; `long` has the rows whose squared length in units is above `most`."""
    (n, columns), count = features.shape, 0
    constant = one * one * (out.shape[1] - columns)
    for i in range(n):
        square = constant
        for j in range(columns):
            whole = np.trunc(features[i, j] * per_unit)
            square += whole * whole
            out[i, j] = whole * unit
        for j in range(columns, out.shape[1]):
            out[i, j] = one * unit
        if not square <= most:
            long[count] = i
            count += 1
    return count


@cache
def _rounding_kernel(read: str, written: str) -> Callable[..., int]:
    features = types.Array(getattr(types, read), 2, "C", readonly=True)
    out, number = types.Array(getattr(types, written), 2, "C"), types.float64
    compiled: Callable[..., int] = njit(
        types.int64(features, number, number, number, number, out, types.Array(types.intp, 1, "C")),
        **_OPTIONS,
    )(_round_rows)
    return compiled


def round_rows(
    features: NDArray[Any], per_unit: float, one: float, unit: float, most: float, out: NDArray[Any]
) -> NDArray[np.intp]:
    """Write the joint rows (x, 1), rounded, to `out`, and return the rows of squared length above `most` units."""
    long = np.empty(len(features), np.intp)
    kernel = _rounding_kernel(features.dtype.name, out.dtype.name)
    return long[: kernel(features, per_unit, one, unit, most, out, long)]
