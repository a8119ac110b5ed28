"""Exact draws from discrete Gaussian and Laplace laws whose scale is a power of two, from cryptographic bytes.

Every coin of probability exp(-gamma), gamma rational, is decided by comparing the binary expansion of a uniform number
with exp(-gamma). Doubles decide all but about 2^-38 of them with a margin far above their error; the rest are decided
by revealing more digits of both in integers and correctly rounded decimals, however many it takes. So the laws are
exact, not approximate. The proof is in docs/theory/secure_noise.md.

References: Canonne, Kamath and Steinke (2020), Algorithms 1 to 3; von Neumann (1951).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Source = Callable[[int], bytes]
Bounds = Callable[[int], tuple[Fraction, Fraction]]

MARGIN = 2.0**-40
"""Above the error of a double precision exp(-gamma), the rounding of gamma included, by a factor of a thousand."""
LARGEST_SCALE = 40
_LEVELS = 26  # exp(-26) is still well above the margin
_BLOCK = 1 << 16


def discrete_gaussian(
    log2_scale: int, size: int, source: Source = os.urandom, *, margin: float = MARGIN
) -> Integers:
    """P(x) proportional to exp(-x^2 / (2 sigma^2)) over the integers, sigma = 2^log2_scale; `size` independent draws.

    A Laplace draw y of scale sigma is kept with probability exp(-(|y| - sigma)^2 / (2 sigma^2)).
    """
    scale, wanted = _scale(log2_scale), _check.count("size", size, least=0)
    accepted: list[Integers] = [np.zeros(0, np.int64)]
    while (missing := wanted - sum(map(len, accepted))) > 0:
        draws = _laplace_block(log2_scale, min(_BLOCK, 64 + int(1.6 * missing)), source, margin)
        away = np.abs(draws) - scale
        with np.errstate(under="ignore"):
            chances = np.exp(-((away / scale) ** 2) / 2)

        def exactly(i: int, away: Integers = away) -> Fraction:
            return Fraction(int(away[i]) ** 2, 2 * scale * scale)

        accepted.append(draws[_coins(chances, exactly, source, margin)][:missing])
    return np.concatenate(accepted)


def discrete_laplace(
    log2_scale: int, size: int, source: Source = os.urandom, *, margin: float = MARGIN
) -> Integers:
    """P(x) proportional to exp(-|x| / t) over the integers, t = 2^log2_scale; `size` independent draws."""
    _scale(log2_scale)
    wanted = _check.count("size", size, least=0)
    accepted: list[Integers] = [np.zeros(0, np.int64)]
    while (missing := wanted - sum(map(len, accepted))) > 0:
        accepted.append(
            _laplace_block(log2_scale, min(_BLOCK, 64 + int(2.0 * missing)), source, margin)[:missing]
        )
    return np.concatenate(accepted)


def _laplace_block(log2_scale: int, count: int, source: Source, margin: float) -> Integers:
    """Those of `count` candidates that are accepted: u + t v with a random sign, without a second zero.

    u is uniform below t and kept with probability exp(-u / t); v is geometric, P(v >= j) = exp(-j).
    """
    scale = 1 << log2_scale
    bits = words(2 * count, source)
    low = (bits[:count] & np.uint64(scale - 1)).astype(np.int64)
    negative = (bits[count:] & np.uint64(1)).astype(bool)
    kept = _coins(np.exp(-low / scale), lambda i: Fraction(int(low[i]), scale), source, margin)
    size = low + scale * _geometric(count, source, margin)
    kept &= ~(negative & (size == 0))
    return np.where(negative, -size, size)[kept]


def _coins(
    chances: Floats, exactly: Callable[[int], Fraction], source: Source, margin: float
) -> NDArray[np.bool_]:
    """Independent coins of probability exp(-gamma): `chances` in doubles, `exactly(i)` gives gamma of the i-th."""
    drawn = words(len(chances), source)
    uniform = (drawn >> np.uint64(11)) * 2.0**-53  # the true uniform number is in [this, this + 2^-53)
    heads = uniform < chances
    for i in np.flatnonzero(np.abs(uniform - chances) <= margin):
        heads[i] = Uniform(int(drawn[i]), source).below(exactly(int(i)))
    return heads


def _geometric(count: int, source: Source, margin: float) -> Integers:
    """v with P(v >= j) = exp(-j): the number of j with a uniform number below exp(-j)."""
    drawn = words(count, source)
    uniform = (drawn >> np.uint64(11)) * 2.0**-53
    levels = np.exp(-np.arange(1.0, _LEVELS + 1))[::-1]
    counts = _LEVELS - np.searchsorted(levels, uniform, side="right")
    nearest = np.minimum(np.searchsorted(levels, uniform), _LEVELS - 1)
    near = np.abs(uniform - levels[nearest]) <= margin
    near |= np.abs(uniform - levels[np.maximum(nearest - 1, 0)]) <= margin
    for i in np.flatnonzero(near | (uniform <= levels[0])):
        number, level = Uniform(int(drawn[i]), source), 0
        # Level 500 has probability exp(-500), whatever the data are: refusing it costs nothing.
        while number.below(Fraction(level + 1)):
            level += 1
            if level > 500:
                raise InvalidParameter("the source of random bytes is broken: it gives nothing but zeros.")
        counts[i] = level
    return counts.astype(np.int64)


class Uniform:
    """A uniform number of [0, 1) whose binary digits are drawn when they are needed."""

    def __init__(self, word: int, source: Source) -> None:
        self._numerator, self._bits, self._source = word, 64, source

    def below(self, gamma: Fraction) -> bool:
        """Is the number below exp(-gamma)? Exact: digits of both are added until their intervals part."""
        if gamma == 0:
            return True
        while gamma > self._bits:  # a number that is not below 2^-bits is above exp(-gamma)
            if self._numerator:
                return False
            self._reveal()
        return self.under(lambda precision: _exponential(gamma, precision))

    def under(self, bounds: Bounds) -> bool:
        """Is the number below the irrational one that lies within bounds(precision), about 10^-precision apart?"""
        precision = 30
        while True:
            low, high = bounds(precision)
            if Fraction(self._numerator + 1, 1 << self._bits) <= low:
                return True
            if Fraction(self._numerator, 1 << self._bits) >= high:
                return False
            self._reveal()
            precision += 25

    def _reveal(self) -> None:
        self._numerator = (self._numerator << 64) | int.from_bytes(self._source(8), "big")
        self._bits += 64


def _exponential(gamma: Fraction, precision: int) -> tuple[Fraction, Fraction]:
    """An interval around exp(-gamma); gamma is a dyadic rational, hence a finite decimal.

    Decimal's exp is correctly rounded, so it is within one unit in the last place.
    """
    exact = Context(prec=1000).divide(Decimal(gamma.numerator), Decimal(gamma.denominator))
    if Fraction(exact) != gamma:
        raise InvalidParameter(f"gamma = {gamma} has no finite decimal expansion of 1000 digits.")
    value = Context(prec=precision, Emin=-(10**15), Emax=10**15).exp(exact.copy_negate())
    unit = Fraction(Decimal(1).scaleb(value.adjusted() - precision + 1, Context(Emin=-(10**15), Emax=10**15)))
    return Fraction(value) - unit, Fraction(value) + unit


def words(count: int, source: Source) -> Words:
    """Uniform 64-bit numbers."""
    return np.frombuffer(source(8 * count), dtype="<u8").astype(np.uint64)


def _scale(log2_scale: int) -> int:
    power = _check.count("log2_scale", log2_scale, least=0)
    if power > LARGEST_SCALE:
        raise InvalidParameter(f"log2_scale must be at most {LARGEST_SCALE}, got {log2_scale!r}.")
    return 1 << power
