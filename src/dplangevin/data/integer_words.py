"""Sums of whole numbers without overflow: two 64-bit integers an entry, and their exact products with a matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Words = NDArray[np.int64]

EXACT_BITS = 52
"""Binary digits of a sum; doubles hold 53."""
WORD_BITS = 40
_MASK = (1 << WORD_BITS) - 1
_CARRY_EVERY = 1 << 9


class Dyadic(NamedTuple):
    """Exact numbers whole 2^exponents; `whole` are 64-bit or Python integers, exponents broadcast to them."""

    whole: NDArray[Any]
    exponents: NDArray[np.int64]


class WordSum:
    """A running sum of whole numbers in doubles, each below 2^53, in two 64-bit integers an entry: [high, low]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._words = np.zeros((2, *shape), np.int64)
        self._left = _CARRY_EVERY

    def add(self, whole: Floats) -> None:
        self._words[1] += whole.astype(np.int64)
        self._left -= 1
        if not self._left:
            carry(self._words)
            self._left = _CARRY_EVERY

    def words(self) -> Words:
        return carry(self._words)


def carry(words: Words) -> Words:
    """Move what exceeds WORD_BITS from the low to the high word, in place; low words are then in [0, 2^40).

    So up to 2^22 arrays of words may be added before the next carry, and the high word counts up to 2^62.
    """
    words[0] += words[1] >> WORD_BITS
    words[1] &= _MASK
    return words


def to_integers(words: Words) -> NDArray[Any]:
    """high 2^40 + low: 64-bit integers where they hold all entries, else Python integers."""
    high, low = carry(words.copy())
    if np.abs(high).max(initial=0) < 1 << 22:
        return np.asarray((high << WORD_BITS) + low)
    return np.asarray((high.astype(object) << WORD_BITS) + low.astype(object))


def to_limbs(words: Words, bits: int) -> list[Floats]:
    """Doubles d_k of at most `bits` binary digits, with the sign of their entry: words = sum_k d_k 2^(bits k)."""
    high, low = carry(words.copy())
    negative = high < 0
    # -(high 2^40 + low) = (-high - 1) 2^40 + (2^40 - low), or -high 2^40 where low = 0
    borrowed = negative & (low > 0)
    high = np.where(negative, -high, high) - borrowed
    low = np.where(borrowed, (1 << WORD_BITS) - low, low)
    sign, mask, limbs = np.where(negative, -1.0, 1.0), (1 << bits) - 1, []
    while low.any() or high.any():
        limbs.append(sign * (low & mask))
        low = (low >> bits) | ((high & mask) << (WORD_BITS - bits))
        high = high >> bits
    return limbs or [np.zeros(high.shape)]


def split_limbs(limbs: list[Floats], bits: int) -> list[Floats]:
    """The same number in limbs of about `bits` binary digits again: below 2^(bits + 3) for limbs below 2^53."""
    digits: list[Floats] = []
    for place, limb in enumerate(limbs):
        rest, sign, index = np.abs(limb), np.sign(limb), place
        while rest.any():
            above = np.floor(rest * 2.0**-bits)
            digit = sign * (rest - above * 2.0**bits)
            while len(digits) <= index:
                digits.append(np.zeros(limb.shape))
            digits[index] = digits[index] + digit
            rest, index = above, index + 1
    return digits or [np.zeros(limbs[0].shape)]


def join_limbs(limbs: list[Floats], bits: int) -> NDArray[Any]:
    """sum_k limb_k 2^(bits k) in Python integers."""
    total = np.zeros(limbs[0].shape, object)
    for place, limb in enumerate(limbs):
        total = total + (limb.astype(np.int64).astype(object) << (bits * place))
    return total
