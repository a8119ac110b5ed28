"""Exact sums plus Gaussian noise, rounded to public grids, drawn exactly.

The sums are integers times powers of two, of any size: nothing is rounded before the noise is added, so that a release
is the ideal one, rounded (docs/theory/exact_sums.md, section 5).
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin._rng import POWER_LAWS, noise_observer
from dplangevin.accounting.theorem import public_noise_grid
from dplangevin.sampling.exact_noise import ByteSource, gaussian_density_scale, sample_rounded_noise

MAX_FLOAT_BITS = 1000
"""Binary digits of a whole number that is surely a finite double, rounded."""


def add_rounded_gaussian_noise(
    whole: NDArray[Any],
    exponents: NDArray[np.integer[Any]],
    deviation: float,
    source: ByteSource = os.urandom,
) -> Floats:
    """whole 2^exponents + N(0, deviation^2), rounded to a public grid, exactly; exponents broadcast to `whole`.

    `whole` are 64-bit or Python integers of any size. The grid, the power of two about 2^-20 of the scale, is the same
    for all entries, so that the fractions of a grid step may have any number of binary digits.
    """
    return _observe_gaussian(whole, exponents, *_round_noisy_sums(whole, exponents, deviation, source))


def add_symmetric_gaussian_noise(
    whole: NDArray[Any],
    exponents: NDArray[np.integer[Any]],
    deviation: float,
    source: ByteSource = os.urandom,
) -> Floats:
    """A symmetric matrix whole 2^exponents + noise that is N(0, deviation^2 I) in isometric coordinates, rounded.

    These are the diagonal and sqrt 2 times the entries above it: entries off the diagonal have deviation / sqrt 2. Each
    is drawn once, exactly, on a public grid of its own size.
    """
    size = len(whole)
    exponents = np.broadcast_to(exponents, whole.shape)
    diagonal, above = np.diag_indices(size), np.triu_indices(size, 1)
    parts = ((diagonal, deviation), (above, deviation / math.sqrt(2)))
    drawn = [_round_noisy_sums(whole[at], exponents[at], each, source) for at, each in parts]
    where = tuple(np.concatenate([first, second]) for first, second in zip(diagonal, above, strict=True))
    values = np.concatenate([values for values, _ in drawn])
    deviations = np.concatenate([np.full(len(values), used) for values, used in drawn])
    released = np.empty(whole.shape)
    released[where] = _observe_gaussian(whole[where], exponents[where], values, deviations)
    released.T[above] = released[above]
    return released


def _observe_gaussian(
    whole: NDArray[Any], exponents: NDArray[np.integer[Any]], released: Floats, deviation: float | Floats
) -> Floats:
    """What an audit makes of a release, if there is one."""
    observer = noise_observer.get()
    if observer is None:
        return released
    values = np.ldexp(whole.astype(float), np.broadcast_to(exponents, whole.shape))
    return np.asarray(observer.observe_sum(values, released, POWER_LAWS[2.0][0], deviation))


def _round_noisy_sums(
    whole: NDArray[Any], exponents: NDArray[np.integer[Any]], deviation: float, source: ByteSource
) -> tuple[Floats, float]:
    """The sums with their noise, and the deviation it was drawn with."""
    scale = gaussian_density_scale(deviation)
    grid = public_noise_grid(scale)
    shifts = np.broadcast_to(math.frexp(grid)[1] - 1 - np.asarray(exponents), whole.shape).ravel()
    flat, least = np.ravel(whole), int(shifts.min(initial=0))
    if flat.dtype != object:
        largest = max(int(flat.max(initial=0)), -int(flat.min(initial=0))).bit_length()
        if largest - least > 62 or shifts.max(initial=0) > 62:
            flat = flat.astype(object)
    if least < 0:
        flat, shifts = flat << np.maximum(-shifts, 0).astype(flat.dtype), np.maximum(shifts, 0)
    places = shifts.astype(flat.dtype)
    cells = flat >> places
    rest = flat - (cells << places)
    # rounded once, whatever their size
    if shifts.max(initial=0) <= MAX_FLOAT_BITS:
        fractions = np.ldexp(rest.astype(float), -shifts)
    else:
        fractions = np.asarray(rest / (np.ones_like(flat) << places), float)
    noise = sample_rounded_noise(
        scale / grid,
        2.0,
        flat.size,
        fractions,
        source,
        exact=lambda i: Fraction(int(rest[i]), 1 << int(shifts[i])),
    )
    released = np.asarray((cells + noise).astype(float) * grid).reshape(whole.shape)
    return released, POWER_LAWS[2.0][1] * scale
