"""Kernels that sum per-record gradients: NumPy in blocks that fit the cache, or compiled code in one pass.

A quadratic loss whose clip is inactive is summed through its second moments: one pass, then O(p^2) per gradient.
"""

from __future__ import annotations

import math
import os
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._check import check_choice, check_count
from dplangevin.problem import Loss, RecordLoss
from dplangevin.problem.losses.base import SLOPE_KINDS, SlopeFormula
from dplangevin.problem.losses.record import clip_gradients

if TYPE_CHECKING:
    from dplangevin.data.dataset import Dataset


FloatArray = NDArray[np.float64]
ROWS_PER_GROUP = 4096  # records per accumulator; the accounting's bound on rounding errors relies on it
CACHE_BYTES = 1 << 21  # rows and scores of one block
SCORE_BYTES = 1 << 17  # scores of one block for several vectors: they are read and written many times
PIECE_BYTES = 1 << 26  # what one thread sums at a time
MIN_COMPILED_BYTES = 8 << 20  # below this, importing numba costs more than it saves
MAX_COMPILED_VECTORS = 4  # up to this many vectors, one compiled pass each is faster than matrix products
MIN_WIDE_COLUMNS = 500  # from this many columns on, matrix products are faster than a compiled pass
KERNELS = ("auto", "numpy", "numba")
COMPILED_MODULE = "dplangevin.data._numba_kernels"
BYTES_BEFORE_COMPILED = 3 << 30
"""Bytes that NumPy sums before compiled code is loaded, which takes as long as it would have saved on them: whoever
fits once does not wait for it, and whoever fits often pays at most twice what was best."""
_n_bytes_summed = 0


class Block(NamedTuple):
    """Block of consecutive clipped records: joint rows (x, 1), labels, and weights (None when all are 1)."""

    rows: FloatArray
    labels: FloatArray
    weights: FloatArray | None


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """Gradient sums for one loss.

    A NaN score is replaced by 0 and an infinite one by a huge number, so that each record's gradient stays bounded.
    """

    loss: Loss
    slope_formula: SlopeFormula | None

    @abstractmethod
    def describe(self) -> str:
        """Return how gradients are summed, for `verbose`."""

    def _slopes(self, scores: FloatArray, labels: FloatArray) -> FloatArray:
        """Return slopes [rows, k K] (or [rows]) from scores, which are overwritten where possible."""
        if self.slope_formula is not None:
            self.slope_formula.slopes_in_place(scores, labels if scores.ndim == 1 else labels[:, None])
            return scores
        classes, size = self.loss.score_dimension, len(scores)
        if classes > 1:
            scores = scores.reshape(size, -1, classes)
        elif scores.ndim == 1:
            return self.loss.slope(scores, labels)
        return self.loss.slope(scores, labels[:, None]).reshape(size, -1)

    def gradient(self, piece: Block, parameters: FloatArray, finite: bool) -> FloatArray:
        """Return sum weight slope row, [p, k K], over the piece; `finite` states that no score can overflow.

        Two matrix products per block; each group of ROWS_PER_GROUP records has an accumulator of its own.
        """
        vector = parameters.shape[1] == 1
        input_scores = np.ascontiguousarray(parameters[:, 0]) if vector else parameters
        step = block_rows(*parameters.shape)
        total, size = np.zeros(input_scores.shape), len(piece.labels)
        buffer = np.empty((min(step, size), *input_scores.shape[1:]))
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, size, ROWS_PER_GROUP):
                group: Any = 0.0
                last = min(first + ROWS_PER_GROUP, size)
                for start in range(first, last, step):
                    part = slice(start, min(start + step, last))
                    rows = piece.rows[part].astype(np.float64, copy=False)
                    scores = repair_scores(np.matmul(rows, input_scores, out=buffer[: len(rows)]), finite)
                    slopes = self._slopes(scores, piece.labels[part])
                    if piece.weights is not None:
                        weights = piece.weights[part]
                        slopes = slopes * (weights if vector else weights[:, None])
                    group += slopes @ rows if vector else rows.T @ slopes
                total += group
        return total[:, None] if vector else total


@dataclass(frozen=True, kw_only=True)
class NumpyKernel(Kernel):
    """NumPy kernel on blocks that fit the cache: scores, slopes in place, and their product with the same rows."""

    def describe(self) -> str:
        return "NumPy, in blocks that fit the cache"


@dataclass(frozen=True, kw_only=True)
class CompiledKernel(Kernel):
    """Compiled kernel: one pass per vector; matrix products with compiled slopes for many vectors or wide rows."""

    def describe(self) -> str:
        return "compiled (numba), one pass"

    def gradient(self, piece: Block, parameters: FloatArray, finite: bool) -> FloatArray:
        if parameters.shape[1] > MAX_COMPILED_VECTORS or parameters.shape[0] >= MIN_WIDE_COLUMNS:
            return super().gradient(piece, parameters, finite)
        from dplangevin.data import _numba_kernels

        compiled = _numba_kernels.fused_kernel("float32" if piece.rows.itemsize == 4 else "float64")
        weights = np.empty(0) if piece.weights is None else piece.weights
        total = np.zeros(parameters.shape[::-1])
        for theta, sums in zip(np.ascontiguousarray(parameters.T), total, strict=True):
            compiled(piece.rows, piece.labels, weights, theta, self._compiled_slope_formula, sums)
        return total.T

    def _slopes(self, scores: FloatArray, labels: FloatArray) -> FloatArray:
        from dplangevin.data import _numba_kernels

        _numba_kernels.slope_matrix_kernel()(
            scores.reshape(len(scores), -1), labels, self._compiled_slope_formula
        )
        return scores

    @cached_property
    def _compiled_slope_formula(self) -> tuple[int, float, float, float, float]:
        formula = self.slope_formula
        assert formula is not None
        return SLOPE_KINDS.index(formula.kind), formula.scale, formula.shift, formula.low, formula.high


@dataclass(frozen=True, kw_only=True)
class RecordKernel(Kernel):
    """Kernel for losses of whole records: one record at a time, or all at once for the library's own losses."""

    def describe(self) -> str:
        return "record by record"

    def gradient(self, piece: Block, parameters: FloatArray, finite: bool) -> FloatArray:
        loss = self.loss
        assert isinstance(loss, RecordLoss)
        total = np.zeros(parameters.shape)
        for start in range(0, len(piece.labels), ROWS_PER_GROUP):
            part = slice(start, start + ROWS_PER_GROUP)
            rows = piece.rows[part].astype(np.float64)
            for j in range(parameters.shape[1]):
                gradients = clip_gradients(loss, parameters[:, j].copy(), rows, piece.labels[part])
                if piece.weights is not None:
                    gradients = gradients * piece.weights[part, None]
                total[:, j] += gradients.sum(axis=0)
        return total


def choose_kernel(loss: Loss, n_bytes: int, wanted: str = "auto") -> Kernel:
    """Return the kernel for `n_bytes` of data: compiled if numba is installed and the data are large enough.

    The environment variable DPLANGEVIN_KERNEL ("numpy" or "numba") overrides "auto".
    """
    if isinstance(loss, RecordLoss):
        return RecordKernel(loss=loss, slope_formula=None)
    return _make_kernel(loss, _wants_compiled(n_bytes, wanted))


def _wants_compiled(n_bytes: int, wanted: str = "auto") -> bool:
    if wanted == "auto":
        wanted = check_choice("DPLANGEVIN_KERNEL", os.environ.get("DPLANGEVIN_KERNEL", "auto"), KERNELS)
    return wanted == "numba" or (wanted == "auto" and n_bytes >= MIN_COMPILED_BYTES)


def repays_compiled(n_bytes: int) -> bool:
    """Return whether to use compiled code for an exact pass over so many bytes; NumPy gives the same integers."""
    global _n_bytes_summed
    if not _wants_compiled(n_bytes):
        return False
    if COMPILED_MODULE in sys.modules:
        return True
    _n_bytes_summed += n_bytes
    is_worth_it = _n_bytes_summed > BYTES_BEFORE_COMPILED or os.environ.get("DPLANGEVIN_KERNEL") == "numba"
    return is_worth_it and find_spec("numba") is not None


@lru_cache(maxsize=64)
def _make_kernel(loss: Loss, compiled: bool) -> Kernel:
    formula = loss.slope_formula
    if compiled and formula is not None and find_spec("numba") is not None:
        return CompiledKernel(loss=loss, slope_formula=formula)
    return NumpyKernel(loss=loss, slope_formula=formula)


def thread_count() -> int:
    """Return the number of threads a pass over the data may use: DPLANGEVIN_THREADS in the environment, else one."""
    stated = os.environ.get("DPLANGEVIN_THREADS", "1")
    return check_count("DPLANGEVIN_THREADS", int(stated) if stated.isdecimal() else stated)


def block_rows(columns: int, vectors: int) -> int:
    """Return the largest power of two, from 64 to ROWS_PER_GROUP, for which a block fits the cache."""
    max_rows = CACHE_BYTES // (8 * (columns + vectors))
    if vectors > 1:
        max_rows = min(max_rows, SCORE_BYTES // (8 * vectors))
    return min(ROWS_PER_GROUP, max(64, 1 << (max_rows.bit_length() - 1) if max_rows else 0))


def piece_rows(columns: int) -> int:
    """Return the number of records passed to a kernel at once: whole groups, about PIECE_BYTES."""
    return ROWS_PER_GROUP * max(1, PIECE_BYTES // (8 * columns * ROWS_PER_GROUP))


def repair_scores(scores: FloatArray, finite: bool) -> FloatArray:
    """Replace NaN and infinite scores in place, and return the scores."""
    if finite or np.isfinite(scores.sum()):  # this test is cheap, the replacement is not
        return scores
    return np.nan_to_num(scores, copy=False, nan=0.0, posinf=1e300, neginf=-1e300)


MIN_GRADIENTS_FOR_MOMENTS = 8  # full gradients before the moments, which cost a few of them, are computed
MAX_MOMENT_COLUMNS = 500  # beyond, computing the moments costs more than most runs


def second_moments(data: Dataset) -> tuple[FloatArray, FloatArray]:
    """Return sum w x x^T and sum w y x over the joint rows."""
    both = data.sum_over_blocks(_sum_moments)
    gram = both[:, :-1]
    return (gram + gram.T) / 2, both[:, -1]


def _sum_moments(data: Dataset) -> FloatArray:
    """Return [sum w x x^T, sum w y x] of one part of the data."""
    columns = data.problem.n_columns
    both = np.zeros((columns, columns + 1))
    n_seen = 0
    for block in data.blocks():
        weighted = block.rows if block.weights is None else block.rows * block.weights[:, None]
        both[:, :-1] += weighted.T @ block.rows
        both[:, -1] += weighted.T @ block.labels
        n_seen += len(block.rows)
    data.check_row_count(n_seen)
    return both


class QuadraticGradients:
    """Gradient sums G theta - c of a squared loss clipped at C, for theta at which the clip is inactive.

    A clipped squared loss is not quadratic. But |<theta, x> - y| <= |theta| row_norm + max |y| for every record
    within the stated bounds, so where that bound is at most C no clip is active, whatever the data, and the moments
    give the same gradient up to rounding. The rule depends on public quantities only, and it is checked at every
    call.
    """

    def __init__(self) -> None:
        self._n_calls = 0
        self._moments: tuple[FloatArray, FloatArray] | None = None

    def gradient_or_none(
        self, data: Dataset, formula: SlopeFormula, parameters: FloatArray
    ) -> FloatArray | None:
        """Return the gradient, or None when it has to be summed over the records."""
        if not is_quadratic_on(data, formula, parameters):
            return None
        self._n_calls += 1
        if self._moments is None and self._n_calls > MIN_GRADIENTS_FOR_MOMENTS:
            self._moments = second_moments(data)
        if self._moments is None:
            return None
        gram, cross = self._moments
        return np.asarray(gram @ parameters - cross[:, None])


def is_quadratic_on(data: Dataset, formula: SlopeFormula, parameters: FloatArray) -> bool:
    """Whether the loss is squared, up to a clip that is inactive at these parameters for every admissible record."""
    if formula.kind != "affine" or formula.scale != 1 or formula.shift != 0:
        return False
    problem = data.problem
    if problem.n_columns > MAX_MOMENT_COLUMNS:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        size = float(np.sqrt((parameters * parameters).sum(axis=0)).max(initial=0.0))
    slope_bound = (size * problem.row_norm + max(map(abs, problem.bounds.label_range))) * (1 + 1e-9)
    return math.isfinite(slope_bound) and slope_bound <= min(-formula.low, formula.high)
