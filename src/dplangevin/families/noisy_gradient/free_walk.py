"""What a walk without a felt projection leaks when the record takes part at random (L2): rounded one-sidedly.

Losses are linear, so the last iterate is X = Z + N(0, V), V = sum_t (C_t v_t)^2, where Z = sum_t C_t s_t R_t adds
up what the record moved in the steps it took part in (C_t: contraction after step t). The other data set has
X' = N(0, V) (add-remove, or the others already push as the second record does) or X' = -Z + N(0, V) with half the
jumps. Both ratios of densities are monotone, so half lines are the best tests.

Tails of X come from its characteristic function phi by an exact identity (the Fourier series of a square wave): for
h > 0 and L = 2 pi / h,

    1/2 - sum_{k >= 0} Im[phi((k + 1/2) h) e^{-i (k + 1/2) h x}] / (pi (k + 1/2)) = Pr[X < x] + error,
    |error| <= Pr[X < x - L] + Pr[X > x + L],

and |phi(t)| <= e^{-V t^2 / 2} bounds what is left out after finitely many k. Every error is charged to the test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dplangevin._arrays import Floats

Complexes = NDArray[np.complex128]

_SERIES = 14  # powers of a small jump that are summed in closed form; the rest is below 4e-15 of the first
_SMALL = 0.1  # |t w| below it goes through the series
_REACH = 9.0  # standard deviations followed: Phi(-9) = 1.1e-19
_MOST_TERMS = 20_000
_ROUNDING = 40 * 2.0**-53  # of a pairwise sum of logarithms, per unit of their moduli


@dataclass(frozen=True, kw_only=True)
class BernoulliJumps:
    """Z = sum_j w_j R_j with independent R_j ~ Bernoulli(rate), `counts[j]` times each, plus a geometric tail.

    The tail has jumps tail_first * ratio^j for j < tail_count (infinity allowed), all so small that a series does.
    """

    rate: float
    weights: Floats
    counts: Floats
    tail_first: float = 0.0
    tail_ratio: float = 0.0
    tail_count: float = 0.0

    def power_sum(self, power: int) -> float:
        """sum_j w_j^power, tail included."""
        total = float(self.counts @ self.weights**power)
        if self.tail_count:
            ratio = self.tail_ratio**power
            spread = self.tail_count if ratio == 1 else (1 - ratio**self.tail_count) / (1 - ratio)
            total += self.tail_first**power * spread
        return total

    def scaled(self, factor: float) -> BernoulliJumps:
        """factor * Z."""
        return BernoulliJumps(
            rate=self.rate,
            weights=factor * self.weights,
            counts=self.counts,
            tail_first=factor * self.tail_first,
            tail_ratio=self.tail_ratio,
            tail_count=self.tail_count,
        )

    def largest(self) -> float:
        """A value that Z exceeds with probability below e^-40 (Bernstein's inequality)."""
        first, second = self.power_sum(1), self.power_sum(2)
        top = max(float(np.max(self.weights, initial=0.0)), self.tail_first)
        return bernstein(self.rate * first, self.rate * second, top, first)

    def phi(self, t: Floats) -> tuple[Complexes, Floats]:
        """E exp(i t (Z - E Z)) and a bound of the error in it."""
        direct = self.weights * float(np.max(t)) > _SMALL
        angles = np.multiply.outer(t, self.weights[direct])
        counts = self.counts[direct]
        terms = _log_factor(angles, self.rate)
        total = (terms * counts).sum(axis=1)
        error = _ROUNDING * ((np.abs(terms) + self.rate * angles) * counts).sum(axis=1)
        small = BernoulliJumps(
            rate=self.rate,
            weights=self.weights[~direct],
            counts=self.counts[~direct],
            tail_first=self.tail_first,
            tail_ratio=self.tail_ratio,
            tail_count=self.tail_count,
        )
        cumulants = _cumulants(self.rate)
        for power in range(2, _SERIES + 1):
            term = cumulants[power - 1] / math.factorial(power) * small.power_sum(power) * t**power
            total = total + term * 1j**power
            error = error + _ROUNDING * small.power_sum(power) * t**power
        # Cauchy on |z| = 1: every coefficient is at most 2, so the remainder is at most 2.3 |t w|^15 for |t w| <= 0.1
        error = error + 2.3 * small.power_sum(_SERIES + 1) * t ** (_SERIES + 1)
        values = np.exp(total)
        return values, np.where(error < 0.1, np.abs(values) * 1.1 * error, 2.0)


def _log_factor(angles: Floats, rate: float) -> Complexes:
    """log(1 - q + q e^{iu}) - i q u to full relative precision (the library's complex log1p has only absolute)."""
    half = np.sin(angles / 2) ** 2
    real = np.log1p(-4 * rate * (1 - rate) * half) / 2
    return np.asarray(real + 1j * (np.arctan2(rate * np.sin(angles), 1 - 2 * rate * half) - rate * angles))


def bernstein(mean: float, square: float, top: float, most: float) -> float:
    """What a sum of nonnegative jumps of at most `top` exceeds with probability below e^-40; never above `most`."""
    return min(most, mean + 40 * top / 3 + math.sqrt((40 * top / 3) ** 2 + 80 * square))


def _cumulants(rate: float) -> list[float]:
    """Cumulants of a Bernoulli variable: k_{m+1} = q (1 - q) dk_m/dq, as polynomials in q."""
    found, polynomial = [], np.polynomial.Polynomial([0.0, 1.0])
    slope = np.polynomial.Polynomial([0.0, 1.0, -1.0])
    for _ in range(_SERIES):
        found.append(float(polynomial(rate)))
        polynomial = slope * polynomial.deriv()
    return found


@dataclass(frozen=True, kw_only=True)
class EpochJumps:
    """Z = sum over epochs of one entry of a row, column j with probability odds[j]: a fresh permutation each epoch."""

    rows: Floats
    odds: Floats

    def scaled(self, factor: float) -> EpochJumps:
        """factor * Z."""
        return EpochJumps(rows=factor * self.rows, odds=self.odds)

    def power_sum(self, power: int) -> float:
        """Only power 1 has a meaning here: E Z, for rate = 1."""
        return float(np.sum(self.rows @ self.odds)) if power == 1 else math.nan

    def largest(self) -> float:
        """The largest Z."""
        return float(np.sum(np.max(self.rows, axis=1)))

    @property
    def rate(self) -> float:
        """E Z = rate * power_sum(1)."""
        return 1.0

    def phi(self, t: Floats) -> tuple[Complexes, Floats]:
        """E exp(i t (Z - E Z)) and a bound of the error in it: factors of modulus at most 1, so errors add up."""
        centred = self.rows - (self.rows @ self.odds)[:, None]
        values = np.array([np.prod(np.exp(1j * value * centred) @ self.odds) for value in t])
        widest = float(np.max(np.abs(centred)))
        return values, len(centred) * _ROUNDING * (2 + t * widest)


Jumps = BernoulliJumps | EpochJumps


@dataclass(frozen=True, kw_only=True)
class Tails:
    """Pr[X > x] and Pr[X < x] at `cuts`, each within `error` of the truth."""

    cuts: Floats
    above: Floats
    below: Floats
    error: float


def gaussian_tails(cuts: Floats, variance: float) -> Tails:
    """N(0, V); `ndtr` is good to a few units in the last place, which the read-out charges."""
    scaled = cuts / math.sqrt(variance)
    return Tails(cuts=cuts, above=ndtr(-scaled), below=ndtr(scaled), error=0.0)


def walk_tails(jumps: Jumps, variance: float, cuts: Floats) -> Tails | None:
    """Z + N(0, V) for nonnegative jumps; None when the jumps are too large for their noise to be followed."""
    deviation, largest = math.sqrt(variance), jumps.largest()
    mean = jumps.rate * jumps.power_sum(1)
    low, high = (
        -_REACH * deviation,
        largest + _REACH * deviation,
    )  # X leaves it with probability below e^-40 + 1e-18
    period = (high - low) + max(high - float(np.min(cuts)), float(np.max(cuts)) - low)
    spacing = 2 * math.pi / period
    terms = math.ceil(8.8 / (deviation * spacing))
    if not terms <= _MOST_TERMS:
        return None
    k = np.arange(terms, dtype=np.float64) + 0.5
    t: Floats = k * np.float64(spacing)
    phi, slack = jumps.phi(t)
    damping = np.exp(-variance * t * t / 2)
    waves = np.exp(np.multiply.outer(cuts - mean, -1j * t))
    below = 0.5 - (waves * (phi * damping / (math.pi * k))).imag.sum(axis=1)
    span = float(np.max(np.abs(cuts - mean)))
    error = float(np.sum(damping / (math.pi * k) * (slack + 1e-15 * np.abs(phi) * (2 + t * span))))
    error += math.exp(-variance * t[-1] ** 2 / 2) * (1 + 1 / (variance * t[-1] * spacing)) + 1e-17 + 1e-15
    return Tails(cuts=cuts, above=1 - below, below=below, error=error)


def mixture_tails(shifts: Floats, odds: Floats, variance: float, cuts: Floats) -> Tails:
    """A mixture of N(shifts[j], V) with probabilities odds[j]."""
    scaled = (shifts[None, :] - cuts[:, None]) / math.sqrt(variance)
    return Tails(cuts=cuts, above=ndtr(scaled) @ odds, below=ndtr(-scaled) @ odds, error=1e-14)


def epsilons_of(first: Tails, second: Tails, delta: float, felt: float = 0.0) -> Floats:
    """log((P(S) - delta) / Q(S)), at least 0, of the better half line S at every cut: X above X', or X' below X.

    `felt` bounds, for either walk, the probability that the projection ever moved it: P loses it, Q gains it.
    """
    found = np.ones(len(first.cuts))
    pairs: Sequence[tuple[Floats, float, Floats, float]] = (
        (first.above, first.error, second.above, second.error),
        (second.below, second.error, first.below, first.error),
    )
    for p, p_error, q, q_error in pairs:
        gain = np.clip(p, 0.0, 1.0) * (1 - 1e-13) - p_error - felt - delta * (1 + 1e-15)
        size = np.maximum(q, 0.0) * (1 + 1e-13) + q_error + felt + 1e-300
        found = np.maximum(found, np.where(gain > 0, gain, 0.0) / size)
    return np.asarray(np.log(found))
