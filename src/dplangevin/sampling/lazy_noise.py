"""Pure noise of real vectors and matrices, drawn exactly: its digits are revealed only as far as a release needs them.

Gamma-norm noise X of density proportional to exp(-|x| / s) on R^d is s |Y| Z, with Y in R^(d+1) and Z in R^d standard
normal; Wishart noise V - W, each of density proportional to exp(-tr), is (F F' - H H') / 2 with F and H standard
normal [p, p + 1]. So both are made of normal numbers, and a normal number is made of two exact draws: its cell on a
grid (`sample_rounded_noise`), and its place in the cell, uniform digits accepted with the ratio of densities. What is
released is a sum plus this noise, rounded to a public grid: digits are drawn until only one cell of the grid is
possible. The law is that of the ideal noise, rounded. docs/theory/exact_sums.md, section 10.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin._rng import noise_observer
from dplangevin.accounting.plan import public_noise_grid
from dplangevin.sampling.exact_noise import (
    ByteSource,
    LazyUniform,
    broken_source_error,
    sample_rounded_noise,
    sample_words,
    survival_bounds,
)

Integers = NDArray[Any]
CELL_BITS = 20
CELL_SCALE = math.nextafter(math.sqrt(2.0) * 2.0**CELL_BITS, math.inf)
"""Cells are drawn for the density exp(-(x / CELL_SCALE)^2): a deviation above 2^CELL_BITS by at most 2^-51 of it, so
that noise made of these numbers has a scale that is larger, never smaller, by less than any margin of a guarantee."""
FACTOR_ERROR = 2.0**-52
"""Relative error of a normal number in doubles, and of each product and sum of two doubles, at most."""
_WORD_BITS = 64
_MAX_BITS = 4000


class LazyNormals:
    """Independent standard normal numbers, each known to as many binary digits as are asked for.

    A number is (cell - 1/2 + digits) 2^-CELL_BITS with digits a uniform number in [0, 1), accepted with probability
    density / largest density of the cell.
    """

    def __init__(self, size: int, source: ByteSource = os.urandom) -> None:
        self._source = source
        self._cells = sample_rounded_noise(CELL_SCALE, 2.0, size, source=source)
        self._words = np.zeros(size, np.uint64)
        self._digits: dict[int, tuple[int, int]] = {}
        rest = np.arange(size)
        while len(rest):
            for i in rest:  # an accepted place keeps its digits: they took part in the decision
                self._digits.pop(int(i), None)
            self._words[rest] = sample_words(len(rest), source)
            rest = rest[[not each for each in self._accept(rest)]]

    def _accept(self, index: NDArray[np.intp]) -> list[bool]:
        """Decide on the places of these numbers: coins far from the ratio are compared in doubles."""
        coins = sample_words(len(index), self._source)
        doubt = (2.0 * np.abs(self._cells[index]) + 1.0) * (1.01 / CELL_SCALE**2)
        sure = coins.astype(np.float64) * 2.0**-_WORD_BITS < 1 - doubt - 2.0**-40
        return [
            bool(clear) or self._accept_exactly(int(i), int(coin))
            for i, coin, clear in zip(index, coins, sure, strict=True)
        ]

    def _accept_exactly(self, i: int, coin: int) -> bool:
        """Accept with probability exp(-(x^2 - least^2) / CELL_SCALE^2), least the smallest |x| of the cell."""
        cell = int(self._cells[i])
        least = max(Fraction(abs(cell)) - Fraction(1, 2), Fraction(0))

        def ratio(precision: int) -> tuple[Fraction, Fraction]:
            digits, bits = self._reveal_digits(i, 4 * precision)
            ends = [
                (abs(cell - Fraction(1, 2) + Fraction(digits + side, 1 << bits)) ** 2 - least**2)
                / Fraction(CELL_SCALE) ** 2
                for side in (0, 1)
            ]
            return survival_bounds(max(ends), 1.0, precision)[0], survival_bounds(min(ends), 1.0, precision)[
                1
            ]

        return LazyUniform(coin, self._source).is_below(ratio)

    def _reveal_digits(self, i: int, bits: int) -> tuple[int, int]:
        """Return the digits of a place and their number, at least `bits`."""
        digits, known = self._digits.get(i, (int(self._words[i]), _WORD_BITS))
        if bits > 4 * _MAX_BITS:
            raise broken_source_error()
        while known < bits:
            digits = (digits << _WORD_BITS) | int.from_bytes(self._source(8), "big")
            known += _WORD_BITS
        self._digits[i] = digits, known
        return digits, known

    def doubles(self) -> Floats:
        """The numbers within 2^-52 (|number| + 2^-CELL_BITS)."""
        places = (self._words >> np.uint64(11)).astype(np.float64) * 2.0**-53 - 0.5
        return np.asarray((self._cells + places) * 2.0**-CELL_BITS)

    def integers(self, bits: int, index: NDArray[np.intp] | None = None) -> Integers:
        """The numbers times 2^bits, rounded down, in Python integers; bits > CELL_BITS."""
        chosen = np.arange(len(self._cells)) if index is None else index
        shift = bits - CELL_BITS
        values = np.empty(len(chosen), object)
        for k, i in enumerate(chosen):
            digits, known = self._reveal_digits(int(i), shift)
            values[k] = ((2 * int(self._cells[i]) - 1) << (shift - 1)) + (digits >> (known - shift))
        return values


class LazyNoise:
    """One vector of ideal noise: s |Y| Z ("gamma", density proportional to exp(-|x| / s)) or s Z ("gaussian")."""

    def __init__(
        self, size: int, scale: Fraction, noise: str = "gamma", source: ByteSource = os.urandom
    ) -> None:
        self.size, self.scale, self.noise = size, Fraction(scale), noise
        self._radial = LazyNormals(size + 1, source) if noise == "gamma" else None
        self._normals = LazyNormals(size, source)

    def doubles(self) -> Floats:
        """The noise in doubles, for a first guess."""
        length = 1.0 if self._radial is None else float(np.linalg.norm(self._radial.doubles()))
        return np.asarray(float(self.scale) * length * self._normals.doubles())

    def enclose(self, unit: Fraction) -> tuple[Integers, int]:
        """Integers k and a small integer e with |noise - k unit| <= e unit in every entry."""
        ratio = self.scale / unit
        size = ratio.numerator.bit_length() - ratio.denominator.bit_length() + self.size.bit_length()
        bits = CELL_BITS + 40 + max(size, 0)
        normals = self._normals.integers(bits)
        # floors: entries are off by less than 1, the length of Y by at most sqrt(size + 1) + 1
        length, doubt = 1 << bits, 0
        if self._radial is not None:
            length = math.isqrt(sum(int(y) ** 2 for y in self._radial.integers(bits)))
            doubt = math.isqrt(self.size + 1) + 2
        values = [math.floor(ratio * Fraction(int(z) * length, 1 << 2 * bits)) for z in normals]
        error = (length + doubt) + (max(abs(int(z)) for z in normals) + 1) * doubt
        return np.array(values, object), math.ceil(ratio * Fraction(error, 1 << 2 * bits)) + 1


def decide_cells(enclose: Callable[[int], tuple[Integers, int]]) -> Integers:
    """Return the nearest integers to numbers that enclose(bits) gives as k 2^-bits, each off by at most e 2^-bits."""
    for bits in range(64, _MAX_BITS, 64):
        values, error = enclose(bits)
        low, high = ((values + ((1 << (bits - 1)) + side)) >> bits for side in (-error, error))
        if (low == high).all():
            return np.asarray(low)
    raise broken_source_error()


def add_rounded_gamma_noise(
    whole: Integers, unit: Fraction, scale: Fraction, source: ByteSource = os.urandom
) -> Floats:
    """unit whole + X, X of density proportional to exp(-|x| / scale) on vectors, rounded to a public grid, exactly."""
    grid = Fraction(public_noise_grid(float(scale)))
    noise = LazyNoise(len(whole), scale, "gamma", source)
    step = unit / grid

    def enclose(bits: int) -> tuple[Integers, int]:
        values, error = noise.enclose(grid / (1 << bits))
        exact = np.array([math.floor(int(v) * step * (1 << bits)) for v in whole], object)
        return values + exact, error + 1

    released = decide_cells(enclose).astype(np.float64) * float(grid)
    observer = noise_observer.get()
    if observer is None:
        return np.asarray(released)
    exact = np.array([float(int(v) * unit) for v in whole])
    return np.asarray(observer.observe_sum(exact, released, "norm", float(scale)))


def add_rounded_wishart_noise(whole: Integers, scale: Fraction, source: ByteSource = os.urandom) -> Floats:
    """A symmetric matrix of whole numbers + scale (V - W), rounded to a public grid, exactly.

    V and W are independent Wishart matrices of density proportional to exp(-tr). Doubles decide the entries on and
    above the diagonal with a bound on their error; the few that are too near to an edge are decided in integers.
    """
    size = len(whole)
    grid = Fraction(public_noise_grid(float(scale)))
    factors = [LazyNormals(size * (size + 1), source) for _ in range(2)]
    first, second = (each.doubles().reshape(size, size + 1) for each in factors)
    bounds = [np.abs(each) + 2.0**-CELL_BITS for each in (first, second)]
    # a sum of 2 (p + 1) products: relative errors of 2^-52 for each factor, the products and the sums, in any order
    error = (2 * size + 16) * FACTOR_ERROR * (bounds[0] @ bounds[0].T + bounds[1] @ bounds[1].T)
    noise = first @ first.T - second @ second.T
    triangle = np.triu_indices(size)
    per_grid = float(scale / (2 * grid))  # between 2^19 and 2^20
    sums = whole[triangle]
    cells, fractions = _split_sums(sums, grid)
    centers = noise[triangle] * per_grid + fractions
    reach = 1.01 * error[triangle] * per_grid + 2.0**-50 * (np.abs(centers) + 1)
    low, high = np.floor(centers - reach + 0.5), np.floor(centers + reach + 0.5)
    decided = low.astype(np.int64).astype(object)
    for k in np.flatnonzero(low != high):
        decided[k] = _decide_wishart_entry(
            factors, size, int(triangle[0][k]), int(triangle[1][k]), int(sums[k]), scale, grid
        ) - int(cells[k])
    entries = (cells + decided).astype(np.float64) * float(grid)
    released = np.empty((size, size))
    released[triangle] = entries
    released.T[triangle] = entries
    observer = noise_observer.get()
    if observer is None:
        return released
    exact = whole.astype(np.float64)
    return np.asarray(observer.observe_sum(exact, released, "nuclear", float(scale)))


def _split_sums(whole: Integers, grid: Fraction) -> tuple[Integers, Floats]:
    """Whole numbers over the grid, as integers and fractions in [0, 1], the nearest doubles."""
    shift = int(grid.numerator).bit_length() - int(grid.denominator).bit_length()
    flat = np.array([int(v) for v in whole], object)
    if shift <= 0:
        return flat << -shift, np.zeros(len(flat))
    cells = flat >> shift
    return cells, np.array([int(v) / (1 << shift) for v in flat - (cells << shift)], np.float64)


def _decide_wishart_entry(
    factors: list[LazyNormals], size: int, row: int, column: int, whole: int, scale: Fraction, grid: Fraction
) -> int:
    index = [np.arange(size + 1) + each * (size + 1) for each in (row, column)]

    def enclose(bits: int) -> tuple[Integers, int]:
        more = bits + 64
        total, largest = 0, 1
        for sign, normals in zip((1, -1), factors, strict=True):
            left, right = (normals.integers(more, each) for each in index)
            total += sign * int(left @ right)
            largest = max(largest, max(abs(int(v)) for v in (*left, *right)) + 1)
        # every factor is off by less than 1: each of the 2 (p + 1) products by at most 2 largest
        ratio = scale / (2 * grid) * (1 << bits)
        error = ratio * Fraction(4 * (size + 1) * largest, 1 << 2 * more)
        value = ratio * Fraction(total, 1 << 2 * more) + whole / grid * (1 << bits)
        return np.array([math.floor(value)], object), math.ceil(error) + 1

    return int(decide_cells(enclose)[0])
