"""Exact draws of noise of the largest norm on whole numbers, from cryptographic bytes.

P(z) is proportional to exp(-ceil(max(|z|_inf, |z|_1 / m)) / t) over the integer vectors z of k entries. Two ways, by
rejection from laws that are drawn exactly; which one is a matter of k and m alone (docs/theory/secure_noise.md, 2):
- the cube: J with P(J) proportional to (2 J + 1)^k e^{-J / t}, z uniform on {-J, ..., J}^k, accepted when |z|_1 <= m J.
  J is a sum of k + 1 geometric numbers, accepted with probability prod_i (2 J + 1) / (2 J + 2 i);
- independent two-sided geometric entries of scale m t, accepted with probability exp(-(norm - |z|_1 / m) / t).
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dplangevin.samplers.cut_cube import log_irwin_hall
from dplangevin.samplers.rounded import MARGIN, Source, Uniform, exact_cells, geometric_noise, survival_bounds

Integers = NDArray[np.int64]
_DIGITS = 21  # binary digits of the scale: m times it is then a double as well


@lru_cache(maxsize=64)
def lattice_acceptance(k: int, changed: int) -> tuple[str, float]:
    """Which law is proposed, "cube" or "entries", and how often a proposal is accepted (on fine grids)."""
    volume = float(log_irwin_hall(k, float(changed))[0])
    entries = math.exp(min(0.0, volume - k * math.log(changed) + float(gammaln(k + 1))))
    return ("cube", math.exp(volume)) if math.exp(volume) >= entries else ("entries", entries)


def lattice_scale(scale: float) -> float:
    """The scale that is used: rounded up to a few binary digits, so that its multiples are exact."""
    size, power = math.frexp(scale)
    return math.ldexp(math.ceil(math.ldexp(size, _DIGITS)), power - _DIGITS)


def norm_noise(k: int, changed: int, scale: float, source: Source = os.urandom) -> Integers:
    """One vector z; the scale is `lattice_scale(scale)`, and k^2 times it below 2^57, so that sums fit 64 bits."""
    t = lattice_scale(scale)
    if lattice_acceptance(k, changed)[0] == "cube":
        return _in_cube(k, changed, t, source)
    while True:
        entries = geometric_noise(changed * t, k, source)
        sizes = np.abs(entries)
        length = int(sizes.sum())
        norm = max(int(sizes.max()), -(-length // changed))
        behind = Fraction(norm * changed - length, changed) / Fraction(t)
        if behind == 0 or _uniform(source).under(partial(survival_bounds, behind, 1.0)):
            return entries


def _in_cube(k: int, changed: int, t: float, source: Source) -> Integers:
    while True:
        radius = int(exact_cells(t, 1.0, np.full(k + 1, 0.5), source).sum())
        if not _kept(radius, k, source):
            continue
        entries = _below(2 * radius + 1, k, source) - radius
        if changed >= k or int(np.abs(entries).sum()) <= changed * radius:
            return entries


def _kept(radius: int, k: int, source: Source) -> bool:
    """A coin of probability prod_i (2 J + 1) / (2 J + 2 i), i = 1, ..., k: all of k coins show heads."""
    places = np.arange(1, k + 1)
    chances = (2.0 * radius + 1) / (2.0 * radius + 2 * places)
    words = np.frombuffer(source(8 * k), dtype="<u8")
    room = chances - words * 2.0**-64
    if (room < -MARGIN).any():
        return False
    return all(
        Uniform(int(words[i]), source).under(
            _exactly(Fraction(2 * radius + 1, 2 * (radius + int(places[i]))))
        )
        for i in np.flatnonzero(room <= MARGIN)
    )


def _exactly(chance: Fraction) -> partial[tuple[Fraction, Fraction]]:
    return partial(_both, chance)


def _both(chance: Fraction, _precision: int) -> tuple[Fraction, Fraction]:
    return chance, chance


def _below(limit: int, size: int, source: Source) -> Integers:
    """Uniform on {0, ..., limit - 1}, each by rejection from whole bits."""
    shift = np.uint64(64 - limit.bit_length())
    found = np.frombuffer(source(8 * size), dtype="<u8") >> shift
    while (again := found >= limit).any():
        found[again] = np.frombuffer(source(8 * int(again.sum())), dtype="<u8") >> shift
    return np.asarray(found.astype(np.int64))


def _uniform(source: Source) -> Uniform:
    return Uniform(int.from_bytes(source(8), "big"), source)
