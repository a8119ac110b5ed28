"""Compiled exact gradient sums: scores, whole slopes and their sum in one pass over the rows.

Scores and sums are exact, so that their loops may be reassociated and fused at will. What is rounded (slopes) uses
operations of the standard only, none of them fused, so that a record's place in a loop plays no part.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, types

from dplangevin.data._numba_kernels import (
    _FORMULA_TYPE,
    _OPTIONS,
    NARROW_COLUMNS,
    TILE,
    _add_tile,
    _exp_in_place,
    _prefetch_line,
    _scores_of_four,
    _vector_type,
)
from dplangevin.data.exact_records import CLIP_DOUBT, NEAR_TIE
from dplangevin.data.integer_grids import GROUP, WORD_BITS

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


@njit(**_OPTIONS)
def _sum_narrow_rows(
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
    tile = 2 * TILE
    u, values, bits, one = np.empty(tile), np.empty(tile), np.empty(tile, np.int64), np.full(tile, limits[0])
    powers, group = bits.view(np.float64), np.empty(theta.size)
    line, (n, columns), count, each = 64 // rows.itemsize, rows.shape, 0, limits.size > 1
    for first in range(0, n, GROUP):
        last = min(first + GROUP, n)
        group[:] = 0.0
        for start in range(first, last, tile):
            size = min(tile, last - start)
            _scores_of_four(rows, start, size, theta, u)
            limit = limits[start:] if each else one
            if _whole_tile(u, labels[start:], limit, size, law, slope_bound, bits, powers, values):
                count = _note_ties(values, start, size, ties, count)
            whole = size - size % 4
            for i in range(0, whole, 4):
                k = start + i
                if k + tile + 4 <= n:
                    for ahead in range(k + tile, k + tile + 4):
                        for j in range(0, columns, line):
                            _prefetch_line(rows, ahead, j)
                a, b, c, d = u[i], u[i + 1], u[i + 2], u[i + 3]
                for j in range(columns):
                    group[j] += (a * rows[k, j] + b * rows[k + 1, j]) + (
                        c * rows[k + 2, j] + d * rows[k + 3, j]
                    )
            _add_tile(u, rows, start, whole, size, group)
        _add_group(group, per_unit, words)
    return count


@njit(**_OPTIONS)
def _sum_wide_rows(
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
    """Scores of one tile and the sum over the tile before it alternate, as in the floating-point kernel."""
    u, values, bits, one = np.empty(TILE), np.empty(TILE), np.empty(TILE, np.int64), np.full(TILE, limits[0])
    powers, group = bits.view(np.float64), np.empty(theta.size)
    line, (n, columns), count, each = 64 // rows.itemsize, rows.shape, 0, limits.size > 1
    tile = TILE if columns <= 128 else TILE // 4
    for first in range(0, n, GROUP):
        last = min(first + GROUP, n)
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
                _add_tile(u, rows, before, size, tile, group)
            limit = limits[start:] if each else one
            if _whole_tile(u, labels[start:], limit, size, law, slope_bound, bits, powers, values):
                count = _note_ties(values, start, size, ties, count)
            start += tile
        _add_tile(u, rows, start - tile, 0, last - start + tile, group)
        _add_group(group, per_unit, words)
    return count


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
    if rows.shape[1] < NARROW_COLUMNS:
        count: int = _sum_narrow_rows(rows, labels, limits, theta, law, slope_bound, per_unit, words, ties)
    else:
        count = _sum_wide_rows(rows, labels, limits, theta, law, slope_bound, per_unit, words, ties)
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
