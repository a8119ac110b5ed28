"""The exponential mechanism on a finite public set, drawn without rounding error.

Index j has probability exp(-score_j) / sum, EXACTLY for the doubles given: a uniform index is accepted with
probability exp(-(score_j - min score)), and that coin is decided by comparing random bits with an interval
around the exponential; more bits of both are taken while they overlap. Reference for exact exponential coins: Canonne,
Kamath and Steinke (2020).
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter


def finite_grid(scores: ArrayLike, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """`size` independent indices with probability proportional to exp(-scores).

    Examples
    --------
    >>> finite_grid([0.0, 800.0], 3, np.random.default_rng(0)).tolist()
    [0, 0, 0]
    """
    values = np.asarray(scores, float)
    if values.ndim != 1 or values.size == 0 or not np.all(np.isfinite(values)):
        raise InvalidParameter("scores must be a non-empty one-dimensional array of finite numbers.")
    size = _check.count("size", size)
    least = float(values.min())
    result, filled = np.empty(size, np.intp), 0
    while filled < size:
        index = rng.integers(0, values.size, size=max(1024, size))
        kept = index[exponential_coins(values[index], least, rng)][: size - filled]
        result[filled : filled + kept.size] = kept
        filled += kept.size
    return result


def exponential_coins(
    scores: Floats, least: float, rng: np.random.Generator, bits: int = 53
) -> NDArray[np.bool_]:
    """Independent coins that are heads with probability exactly exp(-(score - least)), least <= every score."""
    gap = scores - least
    chance = np.exp(-gap)
    margin = chance * (gap + 4) * 2.0**-52 + 1e-300
    digits = rng.integers(0, 2**bits, size=scores.size)
    low = digits * 2.0**-bits
    heads = low + 2.0**-bits <= chance - margin
    unsure = ~heads & (low < chance + margin)
    for i in np.flatnonzero(unsure):
        heads[i] = _decide(int(digits[i]), bits, float(scores[i]), least, rng)
    return heads


def _decide(digits: int, bits: int, score: float, least: float, rng: np.random.Generator) -> bool:
    """Whether a uniform number with these leading bits lies below exp(-(score - least)), by drawing more bits."""
    while True:
        digits = (digits << 32) | int(rng.integers(0, 2**32))
        bits += 32
        with localcontext() as context:
            # 40 digits beyond the bits in play: differences of doubles are exact and exp is correctly rounded
            context.prec = 1200 + bits
            gap = Decimal(score) - Decimal(least)
            context.prec = bits // 3 + 40
            chance = (-gap).exp()
            error = chance * Decimal(10) ** -(bits // 3 + 30) + Decimal(10) ** -(bits // 3 + 400)
            low = Decimal(digits) / Decimal(2) ** bits
            high = Decimal(digits + 1) / Decimal(2) ** bits
            tiny = Decimal(10) ** -(bits // 3 + 35)
            if high + tiny <= chance - error:
                return True
            if low - tiny >= chance + error:
                return False
