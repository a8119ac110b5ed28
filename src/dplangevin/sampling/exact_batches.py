"""Random batches without rounding: coins of a rational probability, and uniform subsets.

A floating-point coin has a slightly wrong probability. Here 64 random bits decide all but about 2^-64 of the choices,
and more bits are drawn for the rest, so that the laws are exact for ideal bits. Amplification by sampling also needs
batches that nobody can guess: without a seed the bits come from the operating system. docs/theory/exact_sums.md,
section 8.
"""

from __future__ import annotations

import os
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dplangevin.sampling.exact_noise import (
    ByteSource,
    LazyUniform,
    constant_bounds,
    sample_uniform_below,
    sample_words,
)

RowNumbers = NDArray[np.intp]
_CHUNK_ROWS = 1 << 20


def sample_poisson_batch(n_rows: int, rate: Fraction, source: ByteSource = os.urandom) -> RowNumbers:
    """Choose each row independently with probability `rate`; return the increasing row numbers."""
    if rate >= 1:
        return np.arange(n_rows)
    threshold = (rate.numerator << 64) // rate.denominator
    parts = [np.empty(0, np.intp)]
    for first in range(0, n_rows, _CHUNK_ROWS):
        uniform_words = sample_words(min(_CHUNK_ROWS, n_rows - first), source)
        chosen = uniform_words < np.uint64(threshold)
        for i in np.flatnonzero(uniform_words == np.uint64(threshold)):  # the first 64 digits do not decide
            chosen[i] = LazyUniform(int(uniform_words[i]), source).is_below(partial(constant_bounds, rate))
        parts.append(first + np.flatnonzero(chosen))
    return np.concatenate(parts)


def sample_subset(n_rows: int, size: int, source: ByteSource = os.urandom) -> RowNumbers:
    """Choose a uniform subset of `size` rows; return the increasing row numbers.

    The first distinct values of a sequence of uniform draws are a uniform subset, by symmetry. A subset of more than
    half of the rows is the complement of such a one.
    """
    if 2 * size > n_rows:
        kept = np.ones(n_rows, bool)
        kept[sample_subset(n_rows, n_rows - size, source)] = False
        return np.flatnonzero(kept)
    drawn = np.empty(0, np.int64)
    while True:
        distinct, first_places = np.unique(drawn, return_index=True)
        if len(distinct) >= size:
            in_order = distinct[np.argsort(first_places)]
            return np.sort(in_order[:size]).astype(np.intp)
        more = sample_uniform_below(n_rows, 2 * (size - len(distinct)) + 8, source)
        drawn = np.concatenate([drawn, more])
