"""Secure noise on whole numbers: what ideal noise on them looks like after rounding, drawn exactly."""

from __future__ import annotations

import os
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.rounded import Source, Uniform, survival_bounds

Integers = NDArray[np.int64]
LARGEST = 2.0**52


def whole_numbers(values: Floats, grid: float = 1.0) -> Integers:
    """values / grid as integers, grid a power of two; refused, without a word about them, when they are not whole."""
    scaled = values / grid
    whole = np.rint(scaled)
    if not ((whole == scaled) & (np.abs(whole) <= LARGEST)).all():
        raise InvalidParameter(
            "secure noise is for exact answers that are whole numbers (or multiples of the public grid) below 2^52 "
            "steps of the grid; nothing was released. Count in whole numbers, or leave secure out."
        )
    return np.asarray(whole.astype(np.int64))


def permute_and_flip(totals: Integers, scale: float, source: Source = os.urandom) -> int:
    """Candidates in random order; the first whose coin of probability exp(-(best - total) / scale) shows heads.

    The law of the largest total + Exponential(scale), with exact coins. The best candidate's coin is always heads.
    """
    best = int(totals.max())
    for candidate in _shuffled(len(totals), source):
        behind = Fraction(best - int(totals[candidate])) / Fraction(scale)
        number = Uniform(int.from_bytes(source(8), "big"), source)
        if behind == 0 or number.under(partial(survival_bounds, behind, 1.0)):
            return candidate
    raise AssertionError("the best candidate is always taken")


def _shuffled(size: int, source: Source) -> list[int]:
    """A uniform permutation: each place is a uniform whole number, drawn by rejection."""
    order = list(range(size))
    for last in range(size - 1, 0, -1):
        place = _below(last + 1, source)
        order[last], order[place] = order[place], order[last]
    return order


def _below(limit: int, source: Source) -> int:
    """Uniform on {0, ..., limit - 1}."""
    while True:
        drawn = int.from_bytes(source(8), "big") & ((1 << (limit - 1).bit_length()) - 1)
        if drawn < limit:
            return drawn
