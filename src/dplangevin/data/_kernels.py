"""Which code sums gradients over a piece of records: NumPy in blocks that fit the cache, or compiled, one pass."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dplangevin._check import choice, count
from dplangevin.problem import Loss, RecordLoss
from dplangevin.problem.losses.base import KINDS, SlopeLaw
from dplangevin.problem.losses.radial_huber import clipped_gradients

FloatArray = NDArray[np.float64]
GROUP = 4096  # records per accumulator; the bound on rounding errors (privacy.theorems) counts on it
CACHE_BYTES = 1 << 21  # rows and scores of one block
SCORE_BYTES = 1 << 17  # scores of one block of several vectors: they are read and written many times
PIECE_BYTES = 1 << 26  # what one thread sums at a time
COMPILED_BYTES = 8 << 20  # below this, importing numba costs more than it saves
FEW = 4  # up to so many vectors, a pass each is faster than matrix products
WIDE = 500  # from so many columns on, matrix products are faster than a pass of compiled code
KERNELS = ("auto", "numpy", "numba")


class Block(NamedTuple):
    """Consecutive clipped records: joint rows (x, 1), labels, and weights (None when all are 1)."""

    rows: FloatArray
    labels: FloatArray
    weights: FloatArray | None


@dataclass(frozen=True, kw_only=True)
class Kernel(ABC):
    """Gradient sums for one loss. A NaN score counts as 0 and an infinite one as huge, so a record stays bounded."""

    loss: Loss
    law: SlopeLaw | None

    @abstractmethod
    def describe(self) -> str:
        """For `verbose`."""

    def _slopes(self, scores: FloatArray, labels: FloatArray) -> FloatArray:
        """Slopes [rows, k K] (or [rows]) from scores, which are overwritten where possible."""
        if self.law is not None:
            self.law.apply(scores, labels if scores.ndim == 1 else labels[:, None])
            return scores
        classes, size = self.loss.score_dimension, len(scores)
        if classes > 1:
            scores = scores.reshape(size, -1, classes)
        elif scores.ndim == 1:
            return self.loss.slope(scores, labels)
        return self.loss.slope(scores, labels[:, None]).reshape(size, -1)

    def gradient(self, piece: Block, parameters: FloatArray, finite: bool) -> FloatArray:
        """sum weight slope row, [p, k K], over the piece; `finite` says that no score can overflow.

        Two matrix products per block; groups of GROUP records have accumulators of their own.
        """
        vector = parameters.shape[1] == 1
        given = np.ascontiguousarray(parameters[:, 0]) if vector else parameters
        step = block_rows(*parameters.shape)
        total, size = np.zeros(given.shape), len(piece.labels)
        buffer = np.empty((min(step, size), *given.shape[1:]))
        with np.errstate(over="ignore", invalid="ignore"):
            for first in range(0, size, GROUP):
                group: Any = 0.0
                last = min(first + GROUP, size)
                for start in range(first, last, step):
                    part = slice(start, min(start + step, last))
                    rows = piece.rows[part].astype(np.float64, copy=False)
                    scores = repaired(np.matmul(rows, given, out=buffer[: len(rows)]), finite)
                    slopes = self._slopes(scores, piece.labels[part])
                    if piece.weights is not None:
                        weights = piece.weights[part]
                        slopes = slopes * (weights if vector else weights[:, None])
                    group += slopes @ rows if vector else rows.T @ slopes
                total += group
        return total[:, None] if vector else total


@dataclass(frozen=True, kw_only=True)
class NumpyKernel(Kernel):
    """Blocks that fit the cache: scores, slopes in place, and their product with the same rows."""

    def describe(self) -> str:
        return "NumPy, in blocks that fit the cache"


@dataclass(frozen=True, kw_only=True)
class CompiledKernel(Kernel):
    """One pass of compiled code; matrix products with compiled slopes for several vectors, or for wide rows."""

    def describe(self) -> str:
        return "compiled (numba), one pass"

    def gradient(self, piece: Block, parameters: FloatArray, finite: bool) -> FloatArray:
        if parameters.shape[1] > FEW or parameters.shape[0] >= WIDE:
            return super().gradient(piece, parameters, finite)
        from dplangevin.data import _numba_kernels

        compiled = _numba_kernels.fused("float32" if piece.rows.itemsize == 4 else "float64")
        weights = np.empty(0) if piece.weights is None else piece.weights
        total = np.zeros(parameters.shape[::-1])
        for theta, sums in zip(np.ascontiguousarray(parameters.T), total, strict=True):
            compiled(piece.rows, piece.labels, weights, theta, self._law, sums)
        return total.T

    def _slopes(self, scores: FloatArray, labels: FloatArray) -> FloatArray:
        from dplangevin.data import _numba_kernels

        _numba_kernels.slope_matrix()(scores.reshape(len(scores), -1), labels, self._law)
        return scores

    @cached_property
    def _law(self) -> tuple[int, float, float, float, float]:
        law = self.law
        assert law is not None
        return KINDS.index(law.kind), law.scale, law.shift, law.low, law.high


@dataclass(frozen=True, kw_only=True)
class RecordKernel(Kernel):
    """Losses of whole records: every record by itself, or all at once where the library's own loss says how."""

    def describe(self) -> str:
        return "record by record"

    def gradient(self, piece: Block, parameters: FloatArray, finite: bool) -> FloatArray:
        loss = self.loss
        assert isinstance(loss, RecordLoss)
        total = np.zeros(parameters.shape)
        for start in range(0, len(piece.labels), GROUP):
            part = slice(start, start + GROUP)
            rows = piece.rows[part].astype(np.float64)
            for j in range(parameters.shape[1]):
                gradients = clipped_gradients(loss, parameters[:, j].copy(), rows, piece.labels[part])
                if piece.weights is not None:
                    gradients = gradients * piece.weights[part, None]
                total[:, j] += gradients.sum(axis=0)
        return total


def kernel_for(loss: Loss, n_bytes: int, wanted: str = "auto") -> Kernel:
    """The kernel for a data set of so many bytes: compiled when numba is there and the data repay its import.

    DPLANGEVIN_KERNEL=numpy or numba in the environment decides instead of "auto".
    """
    if isinstance(loss, RecordLoss):
        return RecordKernel(loss=loss, law=None)
    if wanted == "auto":
        wanted = choice("DPLANGEVIN_KERNEL", os.environ.get("DPLANGEVIN_KERNEL", "auto"), KERNELS)
    if wanted == "auto" and n_bytes < COMPILED_BYTES:
        wanted = "numpy"
    return _kernel(loss, wanted != "numpy")


@lru_cache(maxsize=64)
def _kernel(loss: Loss, compiled: bool) -> Kernel:
    law = loss.law
    if compiled and law is not None and find_spec("numba") is not None:
        return CompiledKernel(loss=loss, law=law)
    return NumpyKernel(loss=loss, law=law)


def threads() -> int:
    """How many threads a pass over the data may use: DPLANGEVIN_THREADS in the environment, else one."""
    stated = os.environ.get("DPLANGEVIN_THREADS", "1")
    return count("DPLANGEVIN_THREADS", int(stated) if stated.isdecimal() else stated)


def block_rows(columns: int, vectors: int) -> int:
    """The largest power of two, from 64 to GROUP, for which a block fits the cache."""
    most = CACHE_BYTES // (8 * (columns + vectors))
    if vectors > 1:
        most = min(most, SCORE_BYTES // (8 * vectors))
    return min(GROUP, max(64, 1 << (most.bit_length() - 1) if most else 0))


def piece_rows(columns: int) -> int:
    """Records handed to a kernel at once: whole groups, about PIECE_BYTES."""
    return GROUP * max(1, PIECE_BYTES // (8 * columns * GROUP))


def repaired(scores: FloatArray, finite: bool) -> FloatArray:
    """The scores, without NaN and infinities; the test is cheap, the repair is not."""
    if finite or np.isfinite(scores.sum()):
        return scores
    return np.nan_to_num(scores, copy=False, nan=0.0, posinf=1e300, neginf=-1e300)
