"""Draw noise and batches with exact arithmetic, from cryptographic random bytes.

Rounded noise: round(s + X), s an exact number and X ideal noise, is what the real-valued mechanism releases when its
output is rounded. Every theorem about X holds for it, because rounding is post-processing. It takes countably many
values, so its law can be drawn exactly: |X| exceeds b with a known probability S(b), and the cell of |X| is found by
comparing the binary digits of one uniform number with S at the edges of the cell. Doubles decide all but about 2^-15
of the draws with a margin far above their error; the rest are decided by drawing more digits of the uniform number
and computing more of S, the latter between bounds in decimal arithmetic. The proof is in docs/theory/secure_noise.md.
References: von Neumann (1951); Karney (2016), Sampling exactly from the normal distribution (lazy digits).

L-infinity noise: P(z) is proportional to exp(-ceil(max(|z|_inf, |z|_1 / m)) / t) over the integer vectors z of k
entries, drawn by rejection from one of two laws; k and m decide which (docs/theory/secure_noise.md, 2). Either
the cube: J with P(J) proportional to (2 J + 1)^k e^{-J / t}, z uniform on {-J, ..., J}^k, accepted when |z|_1 <= m J;
J is a sum of k + 1 geometric numbers, accepted with probability prod_i (2 J + 1) / (2 J + 2 i). Or independent
two-sided geometric entries of scale m t, accepted with probability exp(-(norm - |z|_1 / m) / t).

A floating-point coin has a slightly wrong probability. Here 64 random bits decide all but about 2^-64 of the choices,
and more bits are drawn for the rest, so that the laws are exact for ideal bits. Amplification by sampling also needs
batches that nobody can guess: without a seed the bits come from the operating system. docs/theory/exact_sums.md,
section 8.

Exact sums are integers times powers of two, of any size: nothing is rounded before noise is added to them, so that a
release is the ideal one, rounded (docs/theory/exact_sums.md, section 5).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.special import gammaln

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import POWER_LAWS, noise_observer, observe_labeled_noise
from dplangevin.accounting.plan import public_noise_grid
from dplangevin.errors import InvalidParameter
from dplangevin.sampling.float_noise import log_irwin_hall

Integers = NDArray[np.int64]
ByteSource = Callable[[int], bytes]
ExactOffset = Callable[[int], Fraction]
ProbabilityBounds = Callable[[int], tuple[Fraction, Fraction]]

DECISION_MARGIN = 2.0**-40
"""Exceeds the error of S(b) in double precision, the rounding of b included, by a factor of hundreds."""
MAX_SCALE = 2.0**50
MAX_FLOAT_BITS = 1000
"""Binary digits of a whole number that is surely a finite double, rounded."""
_BLOCK_SIZE = 1 << 16
_N_TABLE_NODES = 1 << 15
_GUARD_DIGITS = 12
"""Decimals that are not relied on: far more than a few thousand roundings can affect."""


def sample_rounded_noise(
    scale: float,
    p: float,
    size: int,
    fractions: Floats | None = None,
    source: ByteSource = os.urandom,
    *,
    margin: float = DECISION_MARGIN,
    exact: ExactOffset | None = None,
) -> Integers:
    """Draw round(f + X), X of density proportional to exp(-|x / scale|^p), for each of `size` fractions f in [0, 1).

    p = 1 is Laplace noise of this scale, p = 2 Gaussian noise of standard deviation scale / sqrt 2.
    Fractions with more binary digits than a double are given by `exact`, a function of their index; `fractions` are
    then the nearest doubles, which decide only where the margin is far above their error.
    """
    count = _check.check_count("size", size, minimum=0)
    offsets = _check_offsets(size, fractions, most=1.0 if exact is None else math.nextafter(1.0, 2.0))
    negative = np.frombuffer(source(count), np.uint8) & 1 == 1
    signed = None if exact is None else lambda i: exact(i) if negative[i] else -exact(i)
    # f - |X| is in cell -i where |X| is in cell i around -f
    cells = sample_exact_cells(
        scale, p, np.where(negative, offsets, -offsets), source, margin=margin, exact=signed
    )
    return np.where(negative, -cells, cells)


def add_rounded_noise(
    integers: Integers, unit: float, scale: float, p: float, source: ByteSource = os.urandom
) -> Floats:
    """Return unit * integers + X, rounded exactly to a public grid, X of density proportional to exp(-|x / scale|^p).

    The unit is a power of two. The grid is the coarser of the unit and the power of two near 2^-20 of the scale, so
    the sums need not be multiples of it.
    """
    grid = max(unit, public_noise_grid(scale))
    steps = int(grid / unit)
    cells, rest = np.divmod(integers.ravel(), steps)
    noise = sample_rounded_noise(scale / grid, p, integers.size, rest / steps, source)
    released = np.asarray((cells + noise).reshape(integers.shape) * grid)
    observer = noise_observer.get()
    if observer is None or p not in POWER_LAWS:
        return released
    law, factor = POWER_LAWS[p]
    return np.asarray(observer.observe_sum(unit * integers, released, law, factor * scale))


def gaussian_density_scale(deviation: float) -> float:
    """Return the scale of exp(-(x / scale)^2) for a standard deviation, rounded up so that noise never shrinks."""
    return math.nextafter(math.sqrt(2) * deviation, math.inf)


def sample_geometric_noise(
    scale: float, size: int, source: ByteSource = os.urandom, *, margin: float = DECISION_MARGIN
) -> Integers:
    """Draw integers k with P(k) proportional to exp(-|k| / scale): differences of two exponentials rounded down."""
    halves = np.full(2 * _check.check_count("size", size, minimum=0), 0.5)
    both = sample_exact_cells(scale, 1.0, halves, source, margin=margin)
    labeled: Integers = observe_labeled_noise(both[:size] - both[size:], "laplace", scale)
    return labeled


def sample_exact_cells(
    scale: float,
    p: float,
    offsets: Floats,
    source: ByteSource = os.urandom,
    *,
    margin: float = DECISION_MARGIN,
    exact: ExactOffset | None = None,
) -> Integers:
    """Draw floor(|X| + 1/2 - offset) for independent X; the offsets are doubles in [-1, 1].

    They are used exactly, or are the nearest doubles to exact(index).
    """
    _check.check_positive("scale", scale)
    if not (scale <= MAX_SCALE and 1 <= p <= 50):
        raise InvalidParameter(
            f"noise of scale {scale!r} and exponent {p!r} has no exact sampler; scale is at most {MAX_SCALE:g} and "
            "the exponent from 1 to 50."
        )
    parts = [
        _sample_block(
            float(scale), float(p), offsets[start : start + _BLOCK_SIZE], source, margin, exact, start
        )
        for start in range(0, len(offsets), _BLOCK_SIZE)
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _sample_block(
    scale: float,
    p: float,
    offsets: Floats,
    source: ByteSource,
    margin: float,
    exact: ExactOffset | None,
    start: int,
) -> Integers:
    uniform_words = sample_words(len(offsets), source)
    if len(uniform_words) > 3 and not uniform_words.any():
        raise broken_source_error()
    # the exact uniform number is in [uniform, uniform + 2^-53)
    uniform = (uniform_words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    cells = np.floor(scale * _inverse_survival(p, uniform + 2.0**-54) + 0.5 - offsets)
    lower, upper = (_survival_function(p, (cells + side + offsets) / scale) for side in (-0.5, 0.5))
    unsure = ~((lower - uniform > margin) & (uniform - upper > margin))
    result = cells.astype(np.int64)
    for i in np.flatnonzero(unsure):
        offset = Fraction(float(offsets[i])) if exact is None else exact(start + int(i))
        result[i] = _decide_cell(int(uniform_words[i]), scale, p, offset, int(result[i]), source)
    return result


def _decide_cell(
    word: int, scale: float, p: float, offset: Fraction | float, guess: int, source: ByteSource
) -> int:
    """Return the cell of a uniform number whose first 64 digits are known; |X| > edge where it is below S(edge)."""
    number, cell = LazyUniform(word, source), guess

    def is_beyond(edge: Fraction) -> bool:
        if edge <= 0:
            return True
        ratio = edge / Fraction(scale)
        return number.is_below(lambda precision: survival_bounds(ratio, p, precision))

    while is_beyond(cell + Fraction(1, 2) + Fraction(offset)):
        cell += 1
    while not is_beyond(cell - Fraction(1, 2) + Fraction(offset)):
        cell -= 1
    return cell


def _survival_function(p: float, edges: Floats) -> Floats:
    """Return P(|X| > edge) = Q(1/p, edge^p) in doubles, for scale 1."""
    edges = np.maximum(edges, 0.0)
    if p == 1:
        return np.asarray(np.exp(-edges))
    if p == 2:
        return np.asarray(special.erfc(edges))
    return _survival_by_table(p, edges) if p > 2 else _survival_by_gamma(p, edges)


def _survival_by_gamma(p: float, edges: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        powers = edges**p
        # where the power underflows, the density is flat up to a relative 1e-20
        flat = 1 - edges / math.gamma(1 + 1 / p)
        return np.where(powers < 1e-20, flat, special.gammaincc(1 / p, powers))


def _survival_by_table(p: float, edges: Floats) -> Floats:
    """Return the same by cubic Hermite interpolation, much faster; its error, below 1e-14, is within the margin."""
    width, values, slopes = _survival_table(p)
    index = np.minimum((edges / width).astype(np.int64), len(values) - 2)
    t = np.minimum(edges / width - index, 1.0)
    s = 1 - t
    ends = s * s * (1 + 2 * t) * values[index] + t * t * (3 - 2 * t) * values[index + 1]
    return np.asarray(ends + t * s * (s * slopes[index] - t * slopes[index + 1]))


@lru_cache(maxsize=8)
def _survival_table(p: float) -> tuple[float, Floats, Floats]:
    """Return the width of a step, S, and S' times the width, up to where S is below e^-45."""
    edges, width = np.linspace(0, 45 ** (1 / p), _N_TABLE_NODES, retstep=True)
    with np.errstate(under="ignore"):
        slopes = -np.exp(-(edges**p)) / math.gamma(1 + 1 / p) * width
    return float(width), _survival_by_gamma(p, edges), np.asarray(slopes)


def _inverse_survival(p: float, probabilities: Floats) -> Floats:
    """Return approximately the edge that |X| exceeds with this probability: an initial guess only."""
    if p == 1:
        return np.asarray(-np.log(probabilities))
    if p == 2:
        return np.asarray(special.erfcinv(probabilities))
    if p > 2:
        width, values, slopes = _survival_table(p)
        nodes = width * np.arange(len(values))
        rough = np.interp(-probabilities, -values, nodes)
        density = np.maximum(np.interp(rough, nodes, -slopes / width), 1e-300)
        step = (_survival_by_table(p, rough) - probabilities) / density  # one Newton step
        return np.asarray(rough + np.clip(step, -width, width))
    with np.errstate(under="ignore"):
        return np.asarray(special.gammainccinv(1 / p, probabilities) ** (1 / p))


class LazyUniform:
    """A uniform number in [0, 1) whose binary digits are drawn when they are needed."""

    def __init__(self, word: int, source: ByteSource) -> None:
        self._numerator, self._bits, self._source = word, 64, source

    def is_below(self, bounds: ProbabilityBounds) -> bool:
        """Return whether the number is below the one enclosed by bounds(precision), about 10^-precision apart."""
        precision = 30
        while True:
            low, high = bounds(precision)
            if Fraction(self._numerator + 1, 1 << self._bits) <= low:
                return True
            if Fraction(self._numerator, 1 << self._bits) >= high:
                return False
            self._draw_more_bits()
            precision += 25

    def _draw_more_bits(self) -> None:
        if self._bits > 2000:
            raise broken_source_error()
        self._numerator = (self._numerator << 64) | int.from_bytes(self._source(8), "big")
        self._bits += 64


def broken_source_error() -> InvalidParameter:
    """Return the error for random bytes that decide nothing however many there are."""
    return InvalidParameter("the source of random bytes is broken: it returns only zeros.")


def survival_bounds(edge: Fraction, p: float, precision: int) -> tuple[Fraction, Fraction]:
    """Return bounds (low, high) on P(|X| > edge) for scale 1, about 10^-precision apart.

    P = 1 - y e^-x sum_n x^n / (a (a + 1) ... (a + n)) / Gamma(a), with a = 1/p, y the edge and x = y^p. All terms of
    the series are positive, so rounding affects only its last decimals, which are the guard digits.
    """
    context = _decimal_context(precision + _GUARD_DIGITS)
    ratio = context.divide(Decimal(edge.numerator), Decimal(edge.denominator))
    power = Fraction(p)
    x = ratio if p == 1 else context.exp(context.multiply(_to_decimal(power, context), context.ln(ratio)))
    error_bound = Fraction(10) ** -precision
    if x > 3 * precision + 20:  # P is below e^-x / 0.88, as Gamma(a) > 0.88 and x^(a - 1) <= 1
        return Fraction(0), error_bound
    if p == 1:
        value = context.exp(ratio.copy_negate())
    else:
        factor = context.multiply(ratio, context.exp(x.copy_negate()))
        incomplete_gamma = context.multiply(_incomplete_gamma_series(1 / power, x, context), factor)
        value = context.subtract(
            Decimal(1), context.divide(incomplete_gamma, _gamma_function(1 / power, precision))
        )
    return Fraction(value) - error_bound, Fraction(value) + error_bound


@lru_cache(maxsize=64)
def _gamma_function(a: Fraction, precision: int) -> Decimal:
    """Return Gamma(a), 0 < a <= 1: the incomplete Gamma function up to N, which lacks less than e^-N."""
    context = _decimal_context(precision + _GUARD_DIGITS)
    end = Decimal(math.ceil(2.31 * (precision + _GUARD_DIGITS)) + 5)
    power = context.exp(context.multiply(_to_decimal(a, context), context.ln(end)))
    factor = context.multiply(power, context.exp(end.copy_negate()))
    return context.multiply(_incomplete_gamma_series(a, end, context), factor)


def _incomplete_gamma_series(a: Fraction, x: Decimal, context: Context) -> Decimal:
    """Return sum_n x^n / (a (a + 1) ... (a + n)), up to a remainder below the last decimal."""
    base = _to_decimal(a, context)
    term = total = context.divide(Decimal(1), base)
    n = 0
    while n < 2 * x or term > total.scaleb(-context.prec, context):
        n += 1
        term = context.divide(context.multiply(term, x), context.add(base, Decimal(n)))
        total = context.add(total, term)
    return total


def _to_decimal(value: Fraction, context: Context) -> Decimal:
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def _decimal_context(precision: int) -> Context:
    return Context(prec=precision, Emin=-(10**15), Emax=10**15)


def _check_offsets(size: int, fractions: Floats | None, most: float = 1.0) -> Floats:
    """Check that the fractions are doubles in [0, most)."""
    offsets = np.zeros(size) if fractions is None else np.asarray(fractions, float)
    if offsets.shape != (size,) or not ((offsets >= 0) & (offsets < most)).all():
        raise InvalidParameter(f"fractions must be {size} numbers in [0, 1).")
    return offsets


def sample_words(count: int, source: ByteSource) -> NDArray[np.uint64]:
    """Draw uniform 64-bit integers."""
    return np.frombuffer(source(8 * count), dtype="<u8").astype(np.uint64)


_SCALE_BITS = 21  # binary digits of the scale, so that m times the scale is a double too


@lru_cache(maxsize=64)
def choose_lattice_proposal(k: int, changed: int) -> tuple[str, float]:
    """Return the proposal law, "cube" or "entries", and its acceptance probability (on fine grids)."""
    volume = float(log_irwin_hall(k, float(changed))[0])
    entries = math.exp(min(0.0, volume - k * math.log(changed) + float(gammaln(k + 1))))
    return ("cube", math.exp(volume)) if math.exp(volume) >= entries else ("entries", entries)


def round_up_scale(scale: float) -> float:
    """Round the scale up to a few binary digits, so that its multiples are exact."""
    size, power = math.frexp(scale)
    return math.ldexp(math.ceil(math.ldexp(size, _SCALE_BITS)), power - _SCALE_BITS)


def sample_norm_noise(k: int, changed: int, scale: float, source: ByteSource = os.urandom) -> Integers:
    """Draw one vector z of L-infinity noise of scale `round_up_scale(scale)`.

    k^2 times the scale must be below 2^57, so that sums fit into 64 bits.
    """
    t = round_up_scale(scale)
    if choose_lattice_proposal(k, changed)[0] == "cube":
        return _sample_in_cube(k, changed, t, source)
    while True:
        entries = sample_geometric_noise(changed * t, k, source)
        sizes = np.abs(entries)
        length = int(sizes.sum())
        norm = max(int(sizes.max()), -(-length // changed))
        score_gap = Fraction(norm * changed - length, changed) / Fraction(t)
        if score_gap == 0 or _new_uniform(source).is_below(partial(survival_bounds, score_gap, 1.0)):
            return entries


def _sample_in_cube(k: int, changed: int, t: float, source: ByteSource) -> Integers:
    while True:
        radius = int(sample_exact_cells(t, 1.0, np.full(k + 1, 0.5), source).sum())
        if not _accepts_radius(radius, k, source):
            continue
        entries = sample_uniform_below(2 * radius + 1, k, source) - radius
        if changed >= k or int(np.abs(entries).sum()) <= changed * radius:
            return entries


def _accepts_radius(radius: int, k: int, source: ByteSource) -> bool:
    """Return True with probability prod_i (2 J + 1) / (2 J + 2 i), i = 1, ..., k: k coins all show heads."""
    indices = np.arange(1, k + 1)
    probabilities = (2.0 * radius + 1) / (2.0 * radius + 2 * indices)
    uniform_words = np.frombuffer(source(8 * k), dtype="<u8")
    margins = probabilities - uniform_words * 2.0**-64
    if (margins < -DECISION_MARGIN).any():
        return False
    return all(
        LazyUniform(int(uniform_words[i]), source).is_below(
            partial(constant_bounds, Fraction(2 * radius + 1, 2 * (radius + int(indices[i]))))
        )
        for i in np.flatnonzero(margins <= DECISION_MARGIN)
    )


def constant_bounds(probability: Fraction, _precision: int) -> tuple[Fraction, Fraction]:
    """Return a rational probability as bounds on itself."""
    return probability, probability


def sample_uniform_below(limit: int, size: int, source: ByteSource) -> Integers:
    """Draw uniformly from {0, ..., limit - 1}, by rejection from uniform bits."""
    shift = np.uint64(64 - limit.bit_length())
    values = np.frombuffer(source(8 * size), dtype="<u8") >> shift
    while (rejected := values >= limit).any():
        values[rejected] = np.frombuffer(source(8 * int(rejected.sum())), dtype="<u8") >> shift
    return np.asarray(values.astype(np.int64))


def _new_uniform(source: ByteSource) -> LazyUniform:
    return LazyUniform(int.from_bytes(source(8), "big"), source)


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
