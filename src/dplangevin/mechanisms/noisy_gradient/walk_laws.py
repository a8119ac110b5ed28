"""Exact laws of one-dimensional projected walks, for lower bounds that test every upper bound (L1).

    w <- clip(phi_p(w) + N(0, v^2), [-D/2, D/2]),   phi_p with probability p, independently at each step.

The state is a mass on each of N Gauss-Legendre nodes of the open interval plus an atom at either end; one
step is a matrix product that is exact up to spectrally small quadrature error. Altschuler and Talwar
(2022), Theorem 4.1 uses this walk with a constant shift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from dplangevin._arrays import Floats

StepMaps = Sequence[tuple[float, Callable[[Floats], Floats]]]
_MAX_MASS_ERROR = 1e-9
_N_CUTS = 401
"""Number of half-lines that are tried as tests."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WalkLaw:
    """The law of w_T: masses at the nodes and ends, and the law one step earlier, for exact tails."""

    masses: Floats
    previous_masses: Floats
    positions: Floats
    maps: StepMaps
    noise: float
    diameter: float

    def upper_tail(self, cuts: Floats) -> Floats:
        """Return Pr[w_T >= cut], exact given the law one step earlier."""
        return self._tail(cuts, 1.0)

    def lower_tail(self, cuts: Floats) -> Floats:
        """Return Pr[w_T <= cut]."""
        return self._tail(cuts, -1.0)

    def _tail(self, cuts: Floats, sign: float) -> Floats:
        total = np.zeros(len(cuts))
        for probability, move in self.maps:
            standardized = sign * (move(self.positions)[:, None] - cuts[None, :]) / self.noise
            total += probability * (self.previous_masses @ ndtr(standardized))
        return total


def affine_map(contraction: float, shift: float) -> Callable[[Floats], Floats]:
    """Return w -> a w + g, the step of a linear loss and a ridge."""
    return lambda w: contraction * w + shift


@lru_cache(maxsize=32)
def _legendre_nodes(count: int) -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return np.asarray(nodes, float), np.asarray(weights, float)


def n_nodes_needed(noise: float, diameter: float) -> int:
    """Return the number of nodes that puts them at most about a quarter of the noise apart."""
    return max(80, math.ceil(6 * diameter / noise) + 60)


def compute_walk_law(
    maps: StepMaps,
    noise: float,
    diameter: float,
    n_steps: float,
    *,
    start_scale: float = 0.0,
    start: float = 0.0,
) -> WalkLaw:
    """Return the law after n_steps (infinity: the stationary law) from `start` or clip(N(start, start_scale^2)).

    Raises ArithmeticError when the quadrature does not conserve mass to 1e-9, or a probability underflows.
    """
    return compute_walk_laws(maps, noise, diameter, [n_steps], start_scale=start_scale, start=start)[0]


def compute_walk_laws(
    maps: StepMaps,
    noise: float,
    diameter: float,
    lengths: Sequence[float],
    *,
    start_scale: float = 0.0,
    start: float = 0.0,
) -> list[WalkLaw]:
    """Return the laws of `compute_walk_law` for several numbers of steps."""
    half = diameter / 2
    x, w = _legendre_nodes(n_nodes_needed(noise, diameter))
    nodes, weights = half * x, half * w
    grid = np.concatenate([[-half], nodes, [half]])
    step = _transition_matrix(grid, maps, noise, nodes, weights, half)
    positions, first = _start_law(start, start_scale, half)
    after_one = first @ _transition_matrix(positions, maps, noise, nodes, weights, half)

    def make_law(at: Floats, before: Floats, masses: Floats) -> WalkLaw:
        return WalkLaw(
            masses=masses, previous_masses=before, positions=at, maps=maps, noise=noise, diameter=diameter
        )

    laws: dict[float, WalkLaw] = {}
    n_steps_done, before = 2, after_one  # `before` is the law one step before `n_steps_done`
    for count in sorted(set(lengths)):
        if math.isinf(count):
            masses = _stationary_law(step)
            laws[count] = make_law(grid, masses, masses)
        elif count == 1:
            laws[count] = make_law(positions, first, after_one)
        else:
            before, n_steps_done = _advance_masses(before, step, int(count) - n_steps_done), int(count)
            laws[count] = make_law(grid, before, before @ step)
    return [laws[count] for count in lengths]


def _start_law(center: float, scale: float, half: float) -> tuple[Floats, Floats]:
    if scale == 0:
        return np.array([min(max(center, -half), half)]), np.ones(1)
    low, high = max(-half, center - 12 * scale), min(half, center + 12 * scale)
    x, w = _legendre_nodes(160)
    inner = (low + high) / 2 + (high - low) / 2 * x
    masses = w * _normal_density((inner - center) / scale)
    below, above = ndtr((-half - center) / scale), ndtr((center - half) / scale)
    positions = np.concatenate([[-half], inner, [half]])
    return positions, np.concatenate([[below], masses * (1 - below - above) / masses.sum(), [above]])


def _normal_density(z: Floats) -> Floats:
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi))


def _transition_matrix(
    positions: Floats, maps: StepMaps, noise: float, nodes: Floats, weights: Floats, half: float
) -> Floats:
    """Return the matrix whose row i is the law one step after positions[i]."""
    rows = np.zeros((len(positions), len(nodes) + 2))
    for probability, move in maps:
        center = move(positions)
        rows[:, 1:-1] += (
            probability * _normal_density((nodes[None, :] - center[:, None]) / noise) / noise * weights
        )
        rows[:, 0] += probability * ndtr((-half - center) / noise)
        rows[:, -1] += probability * ndtr((center - half) / noise)
    mass = rows.sum(axis=1, keepdims=True)
    if not np.all(np.abs(mass - 1) < _MAX_MASS_ERROR):
        raise ArithmeticError(f"a step of the walk loses mass {float(np.max(np.abs(mass - 1))):.1e}")
    return np.asarray(rows / mass)


def _advance_masses(masses: Floats, step: Floats, count: int) -> Floats:
    """Return the masses after `count` steps, by repeated squaring when that is cheaper."""
    if count <= len(masses):
        for _ in range(count):
            masses = masses @ step
        return masses
    while count:
        if count & 1:
            masses = masses @ step
        count >>= 1
        if count:
            step = step @ step
            step /= step.sum(axis=1, keepdims=True)
    return masses


def _stationary_law(step: Floats) -> Floats:
    """Return the stationary law, by the subtraction-free elimination of Grassmann, Taksar and Heyman (1985)."""
    a = step.copy()
    for k in range(len(a) - 1, 0, -1):
        scale = a[k, :k].sum()
        if not scale > 0:
            raise ArithmeticError("the drift is so strong that the probability of stepping back underflows")
        a[:k, k] /= scale
        a[:k, :k] += np.outer(a[:k, k], a[k, :k])
    law = np.zeros(len(a))
    law[0] = 1.0
    for k in range(1, len(a)):
        law[k] = law[:k] @ a[:k, k]
        if law[k] > 1e100:  # a strong drift concentrates the law at one end: avoid overflow
            law[: k + 1] /= law[k]
    return np.asarray(law / law.sum())


def renyi_divergence(first: WalkLaw, second: WalkLaw, order: float) -> float:
    """Return the Renyi divergence of two walks on one interval; nodes whose mass underflows are left out."""
    mask = (first.masses > 0) & (second.masses > 0)
    logs = order * np.log(first.masses[mask]) + (1 - order) * np.log(second.masses[mask])
    top = float(np.max(logs))
    return max(0.0, (top + math.log(float(np.sum(np.exp(logs - top))))) / (order - 1))


def half_line_tests(first: WalkLaw, second: WalkLaw) -> tuple[Floats, Floats]:
    """Return (Pr under one walk, Pr under the other) of every half line, in both directions."""
    cuts = np.linspace(-first.diameter / 2, first.diameter / 2, _N_CUTS)
    high, high2 = first.upper_tail(cuts), second.upper_tail(cuts)
    low, low2 = first.lower_tail(cuts), second.lower_tail(cuts)
    return np.concatenate([high, low, high2, low2]), np.concatenate([high2, low2, high, low])


def epsilon_between(first: WalkLaw, second: WalkLaw, delta: float) -> float:
    """Return the largest log((P(S) - delta) / Q(S)) over half lines S and both directions, rounded down."""
    p, q = half_line_tests(first, second)
    gain = p * (1 - 1e-10) - delta - 1e-13
    ratio = np.where(gain > 0, gain, 0.0) / (q * (1 + 1e-9) + 1e-15)
    return max(0.0, math.log(max(float(np.max(ratio)), 1e-300)))


def delta_between(first: WalkLaw, second: WalkLaw, epsilons: Floats) -> Floats:
    """Return the largest P(S) - e^eps Q(S) over half lines S and both directions, rounded down."""
    p, q = half_line_tests(first, second)
    gap = (p * (1 - 1e-10) - 1e-13)[None, :] - np.exp(epsilons)[:, None] * (q * (1 + 1e-9) + 1e-15)[None, :]
    return np.asarray(np.maximum(gap.max(axis=1), 0.0))
