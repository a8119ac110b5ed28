"""Moments of records in whole numbers, and the noise that ideal Gaussian noise on them is after rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.data.dataset import Block, Dataset
from dplangevin.errors import InvalidParameter
from dplangevin.families.moments.schedule import SufficientStatisticsSchedule
from dplangevin.samplers.rounded import gaussian_scale, rounded_sums

Integers = NDArray[np.int64]
BITS = 17
"""A record has entries up to 2^17: products of 2^34, whose sums over 2^19 records are exact in doubles, and over 2^29
records in 64-bit integers."""
_INWARD = 1 - 2.0**-30  # more than the rounding of a record that was scaled back to its bound
_ROWS = 1 << 18
MOST_ROWS = 1 << 28


def secure_moments(schedule: SufficientStatisticsSchedule, data: Dataset) -> tuple[Floats, Floats]:
    """(G + noise, c + noise), rounded to public grids: noise of gram_noise_std on the diagonal, / sqrt 2 off it."""
    if data.n_samples > MOST_ROWS:
        raise InvalidParameter(
            f"secure moments are exact for up to {MOST_ROWS} records; use noisy gradient descent."
        )
    row_unit, label_unit = units(data)
    both = data.summed(_integer_moments)
    places = np.triu_indices(len(both))
    entries, on_diagonal = both[places], places[0] == places[1]
    noisy = np.empty(len(entries))
    for chosen, deviation in (
        (on_diagonal, schedule.gram_noise_std),
        (~on_diagonal, schedule.gram_noise_std * math.sqrt(0.5)),
    ):
        noisy[chosen] = rounded_sums(entries[chosen], row_unit**2, gaussian_scale(deviation), 2.0)
    gram = np.zeros((len(both), len(both)))
    gram[places] = noisy
    gram.T[places] = noisy
    scale = gaussian_scale(schedule.cross_noise_std)
    return gram, rounded_sums(both[:, -1], row_unit * label_unit, scale, 2.0)


def units(data: Dataset) -> tuple[float, float]:
    """The powers of two that rows and labels are rounded to; a record of largest weight and norm has 2^17 of them."""
    constants = data.problem.constants
    lengths = (constants.row_norm or 0.0, constants.label_bound or 0.0)
    largest = (max(math.sqrt(constants.weight_bound) * length, 2.0**-400) for length in lengths)
    row, label = (2.0 ** (math.frexp(value)[1] - BITS) for value in largest)
    return row, label


def limits(data: Dataset) -> tuple[int, int]:
    """The largest |u|^2 and |t| of a record's whole numbers: weight_bound times B^2 and Y^2, in units, rounded down."""
    constants, (row, label) = data.problem.constants, units(data)
    weight = Fraction(constants.weight_bound)
    square = weight * Fraction(constants.row_norm or 0.0) ** 2 / Fraction(row) ** 2
    height = weight * Fraction(constants.label_bound or 0.0) ** 2 / Fraction(label) ** 2
    return math.floor(square), math.isqrt(math.floor(height))


def _integer_moments(data: Dataset) -> Integers:
    """[sum u u^T, sum t u], in whole numbers: exact, in whatever order a matrix product adds them."""
    columns = data.problem.n_columns
    total = np.zeros((columns, columns + 1), np.int64)
    seen = 0
    for block in data.blocks():
        whole, labels = whole_records(data, block)
        for start in range(0, len(whole), _ROWS):
            part = whole[start : start + _ROWS]
            total[:, :-1] += (part.T @ part).astype(np.int64)
            total[:, -1] += (part.T @ labels[start : start + _ROWS]).astype(np.int64)
        seen += len(whole)
    data.check_rows(seen)
    return total


def whole_records(data: Dataset, block: Block) -> tuple[Floats, Floats]:
    """(u, t): sqrt(w) x and sqrt(w) y in units, rounded towards zero; a record beyond its limits counts as zero.

    No record within the stated bounds is. Everything is elementwise, so that a record's place does not matter.
    """
    (row, label), (square, height) = units(data), limits(data)
    weights = np.ones(len(block.labels)) if block.weights is None else np.sqrt(block.weights)
    with np.errstate(over="ignore", invalid="ignore"):
        whole = np.trunc(block.rows * (weights * (_INWARD / row))[:, None])
        labels = np.trunc(block.labels * (weights * (_INWARD / label)))
        good = (np.einsum("ij,ij->i", whole, whole) <= square) & (np.abs(labels) <= height)
    return np.where(good[:, None], whole, 0.0), np.where(good, labels, 0.0)
