"""Exact draws of ideal real-valued noise as it looks after rounding to whole numbers, from cryptographic bytes.

round(s + X), s an exact number and X ideal noise, is what the real-valued mechanism releases when its output is
rounded: every theorem about X holds for it, because rounding is post-processing. It takes countably many values, so
that its law can be drawn exactly: |X| exceeds b with a known probability S(b), and the cell of |X| is found by
comparing the binary digits of one uniform number with S at the edges of the cell. Doubles decide all but about 2^-15 of
the draws with a margin far above their error; the rest are decided by revealing more digits of the uniform number and
of S, the latter between bounds computed in decimals. The proof is in docs/theory/secure_noise.md.

References: von Neumann (1951); Karney (2016), Sampling exactly from the normal distribution (lazy digits).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import POWER_LAWS, label_noise, noise_observer
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.theorem import public_grid

Integers = NDArray[np.int64]
Source = Callable[[int], bytes]
Bounds = Callable[[int], tuple[Fraction, Fraction]]

MARGIN = 2.0**-40
"""Above the error of a double precision S(b), the rounding of b included, by a factor of hundreds."""
WIDEST = 2.0**50
_BLOCK = 1 << 16
_NODES = 1 << 15
_GUARD = 12
"""Decimals that are not trusted: far more than the few thousand roundings behind a number can spoil."""


def rounded_noise(
    scale: float,
    p: float,
    size: int,
    fractions: Floats | None = None,
    source: Source = os.urandom,
    *,
    margin: float = MARGIN,
) -> Integers:
    """round(f + X), X with density proportional to exp(-|x / scale|^p), for each of `size` fractions f in [0, 1).

    p = 1 is Laplace noise of this scale, p = 2 Gaussian noise of standard deviation scale / sqrt 2.
    """
    wanted, offsets = _check.count("size", size, least=0), _offsets(size, fractions)
    negative = np.frombuffer(source(wanted), np.uint8) & 1 == 1
    # f - |X| is in cell -i where |X| is in cell i around -f
    cells = exact_cells(scale, p, np.where(negative, offsets, -offsets), source, margin=margin)
    return np.where(negative, -cells, cells)


def rounded_sums(whole: Integers, unit: float, scale: float, p: float, source: Source = os.urandom) -> Floats:
    """unit whole + X, rounded to a public grid, exactly: X has density proportional to exp(-|x / scale|^p).

    The unit is a power of two. The grid is the coarser one of it and the power of two about 2^-20 of the scale; so
    the sums need not be multiples of it.
    """
    grid = max(unit, public_grid(scale))
    steps = int(grid / unit)
    cells, rest = np.divmod(whole.ravel(), steps)
    noise = rounded_noise(scale / grid, p, whole.size, rest / steps, source)
    released = np.asarray((cells + noise).reshape(whole.shape) * grid)
    observer = noise_observer.get()
    if observer is None or p not in POWER_LAWS:
        return released
    law, factor = POWER_LAWS[p]
    return np.asarray(observer.observe_sum(unit * whole, released, law, factor * scale))


def rounded_gaussian(log2_deviation: int, size: int, source: Source = os.urandom) -> Integers:
    """Gaussian noise of deviation 2^log2_deviation, rounded to whole numbers."""
    noise = rounded_noise(gaussian_scale(2.0**log2_deviation), 2.0, size, source=source)
    labelled: Integers = label_noise(noise, "gaussian", 2.0**log2_deviation)
    return labelled


def gaussian_scale(deviation: float) -> float:
    """exp(-(x / scale)^2) has deviation scale / sqrt 2; rounded up, so that the noise is never the smaller one."""
    return math.nextafter(math.sqrt(2) * deviation, math.inf)


def geometric_noise(
    scale: float, size: int, source: Source = os.urandom, *, margin: float = MARGIN
) -> Integers:
    """P(k) proportional to exp(-|k| / scale) over the integers: the difference of two exponentials rounded down."""
    halves = np.full(2 * _check.count("size", size, least=0), 0.5)
    both = exact_cells(scale, 1.0, halves, source, margin=margin)
    labelled: Integers = label_noise(both[:size] - both[size:], "laplace", scale)
    return labelled


def exact_cells(
    scale: float, p: float, offsets: Floats, source: Source = os.urandom, *, margin: float = MARGIN
) -> Integers:
    """floor(|X| + 1/2 - offset) for independent X; the offsets are doubles in [-1, 1] and are taken as they stand."""
    _check.positive("scale", scale)
    if not (scale <= WIDEST and 1 <= p <= 50):
        raise InvalidParameter(f"noise of scale {scale!r} and power {p!r} has no exact sampler here.")
    parts = [
        _block(float(scale), float(p), offsets[start : start + _BLOCK], source, margin)
        for start in range(0, len(offsets), _BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _block(scale: float, p: float, offsets: Floats, source: Source, margin: float) -> Integers:
    drawn = _words(len(offsets), source)
    if len(drawn) > 3 and not drawn.any():
        raise _broken()
    uniform = (drawn >> np.uint64(11)).astype(
        np.float64
    ) * 2.0**-53  # the true uniform number is in [this, this + 2^-53)
    cells = np.floor(scale * _inverse(p, uniform + 2.0**-54) + 0.5 - offsets)
    lower, upper = (_survival(p, (cells + side + offsets) / scale) for side in (-0.5, 0.5))
    unsure = ~((lower - uniform > margin) & (uniform - upper > margin))
    found = cells.astype(np.int64)
    for i in np.flatnonzero(unsure):
        found[i] = _decided(int(drawn[i]), scale, p, float(offsets[i]), int(found[i]), source)
    return found


def _decided(word: int, scale: float, p: float, offset: float, guess: int, source: Source) -> int:
    """The cell of a uniform number whose first 64 digits are known: |X| is beyond an edge when it is below S(edge)."""
    number, cell = Uniform(word, source), guess

    def beyond(edge: Fraction) -> bool:
        if edge <= 0:
            return True
        ratio = edge / Fraction(scale)
        return number.under(lambda precision: survival_bounds(ratio, p, precision))

    while beyond(cell + Fraction(1, 2) + Fraction(offset)):
        cell += 1
    while not beyond(cell - Fraction(1, 2) + Fraction(offset)):
        cell -= 1
    return cell


def _survival(p: float, edges: Floats) -> Floats:
    """P(|X| > edge) in doubles, for scale 1: Q(1/p, edge^p)."""
    edges = np.maximum(edges, 0.0)
    if p == 1:
        return np.asarray(np.exp(-edges))
    if p == 2:
        return np.asarray(special.erfc(edges))
    return _interpolated(p, edges) if p > 2 else _incomplete_gamma(p, edges)


def _incomplete_gamma(p: float, edges: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        grown = edges**p
        # where the power is lost in underflow, the density is flat up to a relative 1e-20
        flat = 1 - edges / math.gamma(1 + 1 / p)
        return np.where(grown < 1e-20, flat, special.gammaincc(1 / p, grown))


def _interpolated(p: float, edges: Floats) -> Floats:
    """The same by cubic (Hermite) interpolation: much faster, and its error, below 1e-14, is within the margin."""
    width, values, slopes = _table(p)
    place = np.minimum((edges / width).astype(np.int64), len(values) - 2)
    t = np.minimum(edges / width - place, 1.0)
    s = 1 - t
    ends = s * s * (1 + 2 * t) * values[place] + t * t * (3 - 2 * t) * values[place + 1]
    return np.asarray(ends + t * s * (s * slopes[place] - t * slopes[place + 1]))


@lru_cache(maxsize=8)
def _table(p: float) -> tuple[float, Floats, Floats]:
    """Width of a step, S and S' times the width, up to where S is below e^-45."""
    edges, width = np.linspace(0, 45 ** (1 / p), _NODES, retstep=True)
    with np.errstate(under="ignore"):
        slopes = -np.exp(-(edges**p)) / math.gamma(1 + 1 / p) * width
    return float(width), _incomplete_gamma(p, edges), np.asarray(slopes)


def _inverse(p: float, chances: Floats) -> Floats:
    """Roughly the edge that |X| exceeds with this probability: only a first guess."""
    if p == 1:
        return np.asarray(-np.log(chances))
    if p == 2:
        return np.asarray(special.erfcinv(chances))
    if p > 2:
        width, values, slopes = _table(p)
        nodes = width * np.arange(len(values))
        rough = np.interp(-chances, -values, nodes)
        density = np.maximum(np.interp(rough, nodes, -slopes / width), 1e-300)
        step = (_interpolated(p, rough) - chances) / density  # Newton's
        return np.asarray(rough + np.clip(step, -width, width))
    with np.errstate(under="ignore"):
        return np.asarray(special.gammainccinv(1 / p, chances) ** (1 / p))


class Uniform:
    """A uniform number of [0, 1) whose binary digits are drawn when they are needed."""

    def __init__(self, word: int, source: Source) -> None:
        self._numerator, self._bits, self._source = word, 64, source

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
        if self._bits > 2000:
            raise _broken()
        self._numerator = (self._numerator << 64) | int.from_bytes(self._source(8), "big")
        self._bits += 64


def _broken() -> InvalidParameter:
    return InvalidParameter("the source of random bytes is broken: it gives nothing but zeros.")


def survival_bounds(edge: Fraction, p: float, precision: int) -> tuple[Fraction, Fraction]:
    """Numbers around P(|X| > edge), scale 1, about 10^-precision apart.

    1 - y e^-x sum_n x^n / (a (a + 1) ... (a + n)) / Gamma(a), with a = 1/p, y the edge and x = y^p: all terms of the
    series are positive, so that rounding costs relative accuracy of its last decimals only, which are the guard.
    """
    context = _context(precision + _GUARD)
    ratio = context.divide(Decimal(edge.numerator), Decimal(edge.denominator))
    power = Fraction(p)
    grown = ratio if p == 1 else context.exp(context.multiply(_decimal(power, context), context.ln(ratio)))
    doubt = Fraction(10) ** -precision
    if grown > 3 * precision + 20:  # less than e^-x / 0.88 is left, as Gamma(a) > 0.88 and x^(a - 1) <= 1
        return Fraction(0), doubt
    if p == 1:
        value = context.exp(ratio.copy_negate())
    else:
        outside = context.multiply(ratio, context.exp(grown.copy_negate()))
        share = context.multiply(_series(1 / power, grown, context), outside)
        value = context.subtract(Decimal(1), context.divide(share, _gamma(1 / power, precision)))
    return Fraction(value) - doubt, Fraction(value) + doubt


@lru_cache(maxsize=64)
def _gamma(a: Fraction, precision: int) -> Decimal:
    """Gamma(a), 0 < a <= 1: the incomplete one up to N, beyond which less than e^-N is left."""
    context = _context(precision + _GUARD)
    end = Decimal(math.ceil(2.31 * (precision + _GUARD)) + 5)
    power = context.exp(context.multiply(_decimal(a, context), context.ln(end)))
    outside = context.multiply(power, context.exp(end.copy_negate()))
    return context.multiply(_series(a, end, context), outside)


def _series(a: Fraction, x: Decimal, context: Context) -> Decimal:
    """sum_n x^n / (a (a + 1) ... (a + n)), until the rest, at most the last term, is lost in the last decimal."""
    base = _decimal(a, context)
    term = total = context.divide(Decimal(1), base)
    n = 0
    while n < 2 * x or term > total.scaleb(-context.prec, context):
        n += 1
        term = context.divide(context.multiply(term, x), context.add(base, Decimal(n)))
        total = context.add(total, term)
    return total


def _decimal(value: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _context(precision: int) -> Context:
    return Context(prec=precision, Emin=-(10**15), Emax=10**15)


def _offsets(size: int, fractions: Floats | None) -> Floats:
    offsets = np.zeros(size) if fractions is None else np.asarray(fractions, float)
    if offsets.shape != (size,) or not ((offsets >= 0) & (offsets < 1)).all():
        raise InvalidParameter(f"fractions must be {size} numbers of [0, 1).")
    return offsets


def _words(count: int, source: Source) -> NDArray[np.uint64]:
    """Uniform 64-bit numbers."""
    return np.frombuffer(source(8 * count), dtype="<u8").astype(np.uint64)
