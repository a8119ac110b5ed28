"""Privacy losses on a grid, composed one release at a time, every rounding on the private side.

A law is the distribution of the privacy loss of a dominating pair: masses on a grid, and a mass at infinity. An atom
between two points of the grid is split so that its mass under both members of the pair stays what it is; merging the
two gives the atom back, so the split pair dominates. Few atoms are added by shifts, whose relative error is counted
upwards; longer laws by Fourier transforms, whose error is bounded in total variation and added to every delta.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from dplangevin.privacy import conversions as cv
from dplangevin.privacy.parts import Approximate, BoundedRange, Part, Pure

Floats = NDArray[np.float64]
_FEW = 8  # atoms that are added by shifts
_REPEATED = 64  # uses that are added one by one
_LONGEST = 4_000_000
_TAIL = 1e-20
_UNIT = 2.0**-52


@dataclass(frozen=True, eq=False)
class Law:
    """Masses at grid * (low + 0, 1, 2, ...); lost : the mass at infinity; noise : what roundings may have hidden;
    length : of the masses when their tails were last cut."""

    low: int
    mass: Floats
    lost: float
    noise: float = 0.0
    length: int = 0

    def to_plain(self) -> dict[str, Any]:
        """As words and numbers."""
        mass = base64.b64encode(self.mass.astype("<f8").tobytes()).decode("ascii")
        return {"low": self.low, "mass": mass, "lost": self.lost, "noise": self.noise, "length": self.length}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Law:
        """The law in what `to_plain` made; a ValueError, TypeError or KeyError where it cannot be one."""
        mass = np.frombuffer(base64.b64decode(plain["mass"], validate=True), "<f8").astype(float)
        lost, noise = float(plain["lost"]), float(plain["noise"])
        if not (len(mass) and np.isfinite(mass).all() and (mass >= 0).all() and lost >= 0 and noise >= 0):
            raise ValueError("the masses are no law")
        if not 1 - 1e-9 <= mass.sum() + lost + noise <= 2:
            raise ValueError("the masses do not add up to one")
        return cls(int(plain["low"]), mass, lost, noise, int(plain["length"]))


@dataclass(frozen=True, eq=False)
class Lattice:
    """Composed privacy losses: one law when the pair is symmetric, else one per direction."""

    grid: float
    laws: tuple[Law, ...]

    @classmethod
    def nothing(cls, grid: float) -> Lattice:
        """The loss of no release."""
        return cls(grid, (Law(0, np.ones(1), 0.0),))

    def plus(self, part: Part) -> Lattice | None:
        """With one more part on it; None when the part has no dominating pair, or the losses are too many."""
        one = _of(part if part.count == 1 else replace(part, count=1), self.grid)
        if one is None:
            return None
        if one.few and part.count <= _REPEATED:
            total: Lattice | None = self
            for _ in range(part.count):
                total = None if total is None else total._convolved(one)
            return total
        many = one._power(part.count)
        return None if many is None else self._convolved(many)

    @property
    def few(self) -> bool:
        """Are there so few atoms that they are added by shifts?"""
        return all(np.count_nonzero(law.mass) <= _FEW for law in self.laws)

    def delta(self, epsilon: float, mu: float = 0.0) -> float:
        """delta at epsilon, composed with a mu-GDP release: E delta_mu(epsilon - loss), which is exact in mu."""
        return max(self._delta(law, epsilon, mu) for law in self.laws)

    def _delta(self, law: Law, epsilon: float, mu: float) -> float:
        left = epsilon - self.grid * np.arange(law.low, law.low + len(law.mass), dtype=float)
        if mu > 0:
            found = float(law.mass @ _gaussian_deltas(mu, left))
        else:
            found = float(law.mass @ -np.expm1(np.minimum(left, 0.0)))
        return min(1.0, found * (1 + 1e-9) + law.lost + law.noise)

    def _convolved(self, other: Lattice) -> Lattice | None:
        count = max(len(self.laws), len(other.laws))
        pairs = [(self.laws[i % len(self.laws)], other.laws[i % len(other.laws)]) for i in range(count)]
        if any(len(first.mass) + len(second.mass) > _LONGEST for first, second in pairs):
            return None
        return Lattice(self.grid, tuple(_convolved(first, second) for first, second in pairs))

    def _power(self, count: int) -> Lattice | None:
        total: Lattice | None = None
        square: Lattice | None = self
        while count and square is not None:
            if count & 1:
                total = square if total is None else total._convolved(square)
                if total is None:
                    return None
            count >>= 1
            square = square._convolved(square) if count else square
        return total if square is not None else None


def _gaussian_deltas(mu: float, left: Floats) -> Floats:
    """delta of mu-GDP at falling epsilons, rounded up; far out by bounds, as delta(eps) <= Phi(mu/2 - eps/mu).

    For eps < 0 delta(eps) = 1 - e^eps (1 - delta(-eps)).
    """
    edge = mu * (14 + mu / 2)  # Phi(-14) < 1e-44
    first, last = np.searchsorted(-left, (-edge, edge))
    found = np.full(len(left), 1e-40)
    found[first:last] = cv.gdp_delta(mu, left[first:last], quick=True)
    found[last:] -= np.expm1(left[last:])
    return found


def grid_for(epsilon: float) -> float:
    """A power of two, some ten thousand times finer than the budget: sums of losses are exact."""
    return 2.0 ** math.floor(math.log2(epsilon / 8192))


def _convolved(first: Law, second: Law) -> Law:
    long, short = (first, second) if len(first.mass) >= len(second.mass) else (second, first)
    if np.count_nonzero(short.mass) > _FEW and np.count_nonzero(long.mass) <= _FEW:
        long, short = short, long
    size = len(long.mass) + len(short.mass) - 1
    atoms = np.flatnonzero(short.mass)
    noise = 0.0
    if len(atoms) <= _FEW:
        mass = np.zeros(size)
        for atom in atoms:
            mass[atom : atom + len(long.mass)] += short.mass[atom] * long.mass
        mass *= 1 + (len(atoms) + 3) * _UNIT
    else:
        mass = np.maximum(fftconvolve(long.mass, short.mass), 0.0)
        noise = _transform_error(long.mass, short.mass, size)
    found = Law(
        first.low + second.low,
        mass,
        (first.lost + second.lost * (1 - min(1.0, first.lost))) * (1 + 4 * _UNIT),
        first.noise + second.noise + noise,
        max(first.length, second.length),
    )
    return found if size < 1.1 * found.length else _trimmed(found, noise)


def _transform_error(first: Floats, second: Floats, size: int) -> float:
    """Bound on the total variation of rounding: each transform of length N errs by 8 u log2 N of the norm."""
    length = 2.0 * size
    norms = float(
        np.linalg.norm(first) * max(1.0, second.sum()) + np.linalg.norm(second) * max(1.0, first.sum())
    )
    return 8 * _UNIT * math.log2(length) * math.sqrt(length) * 2 * norms


def _trimmed(law: Law, noise: float) -> Law:
    """Cut the tails: high losses become infinite, low ones as high as the lowest that is kept."""
    tail = max(_TAIL, noise)
    above = np.cumsum(law.mass[::-1])
    dropped = int(np.searchsorted(above, tail, side="right"))
    top = len(law.mass) - dropped
    bottom = min(int(np.searchsorted(np.cumsum(law.mass), tail, side="right")), max(top - 1, 0))
    kept = law.mass[bottom:top].copy() if top > 0 else np.zeros(1)
    cut = float(above[dropped - 1]) if dropped else 0.0
    kept[0] += float(law.mass[:bottom].sum()) * (1 + 1e-10)
    return Law(law.low + bottom, kept, (law.lost + cut) * (1 + 1e-10), law.noise, len(kept))


@lru_cache(maxsize=512)
def _of(part: Part, grid: float) -> Lattice | None:
    """The losses of ONE use."""
    if isinstance(part, (Pure, Approximate)):
        return _pair(part.value, part.slack if isinstance(part, Approximate) else 0.0, grid)
    if not _in_reach(part.value if isinstance(part, BoundedRange) else 0.0, grid):
        return None
    try:
        pld = part.pld(grid)
    except (ArithmeticError, ValueError):  # too extreme for double precision, so its losses are not known
        return None
    if pld is None:
        return None
    laws = [_dense(pld._pmf_remove, grid)]
    if not pld._symmetric:
        laws.append(_dense(pld._pmf_add, grid))
    found = [law for law in laws if law is not None]
    return Lattice(grid, tuple(found)) if len(found) == len(laws) else None


def _in_reach(value: float, grid: float) -> bool:
    return value / grid < _LONGEST / 4


def _dense(pmf: Any, grid: float) -> Law | None:
    dense = pmf.to_dense_pmf()
    mass = np.asarray(dense._probs, float)
    if len(mass) > _LONGEST or not math.isclose(dense._discretization, grid, rel_tol=1e-12):
        return None
    return Law(int(dense._lower_loss), mass * (1 + 1e-10), float(dense._infinity_mass))


def _pair(value: float, slack: float, grid: float) -> Lattice | None:
    """The pair that dominates every (value, slack) release: losses +value, -value, infinity."""
    if not _in_reach(value, grid) or slack >= 1:
        return None
    keep = (1 - slack) * (1 + _UNIT)
    up = keep / (1 + math.exp(-value)) * (1 + 4 * _UNIT)
    down = keep * math.exp(-value) / (1 + math.exp(-value)) * (1 + 8 * _UNIT)
    low, high = math.floor(-value / grid), math.ceil(value / grid)
    mass = np.zeros(high - low + 1)
    for loss, weight in ((value, up), (-value, down)):
        place = math.floor(loss / grid)
        beyond = loss - place * grid  # exact enough: grid is a power of two
        # the share t of the upper point keeps the mass under the other member: (1-t) + t e^-grid = e^-beyond
        share = min(1.0, math.expm1(-beyond) / math.expm1(-grid) * (1 + 8 * _UNIT)) if beyond > 0 else 0.0
        mass[place - low] += weight * (1 - share)
        if share > 0:
            mass[place - low + 1] += weight * share * (1 + _UNIT)
    return Lattice(grid, (Law(low, mass, slack),))
