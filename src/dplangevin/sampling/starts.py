"""Starts of certified chains, whose density is provably at most e^w times the target's, and approximate minimisers.

Smoothness bounds exp(-V) from BELOW: V(x) <= V(c) + <g, x - c> + M |x - c|^2 / 2. The law proportional to that lower
function has density at most Z_target / Z_low times the target's, and Z_target is at most the mass of the upper
function given by (strong) convexity at the same c. An envelope of the target is NOT such a law: it bounds the density
ratio in the wrong direction. Samplers are exact or certified for ANY anchor, so a minimiser may be approximate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.accounting.proximal_certificate import MAX_START_GAP
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.potential import Potential
from dplangevin.sampling.supports import ConvexSupport


def approximate_minimizer(
    potential: Potential, support: ConvexSupport, n_steps: int = 2000, tolerance: float = 1e-10
) -> Floats:
    """Minimize V by accelerated projected gradient with restarts (O'Donoghue and Candes 2015); return a point [p].

    Stops when a step is shorter than `tolerance` times the scale 1/sqrt(smoothness) of the law.
    """
    step = 1 / potential.smoothness
    x = support.project(np.zeros((support.dimension, 1)))
    ahead, momentum = x, 1.0
    for _ in _progress.iterate_with_progress(range(n_steps), "minimising", private=True):
        new = support.project(ahead - step * potential.gradient(ahead))
        move = new - x
        if float(np.sum((ahead - new) * move)) > 0:
            momentum, ahead = 1.0, x
            new = support.project(x - step * potential.gradient(x))
            move = new - x
        next_momentum = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / next_momentum * move
        x, momentum = new, next_momentum
        if np.linalg.norm(move) <= tolerance * np.sqrt(step):
            break
    return np.asarray(x[:, 0])


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """The law exp(<linear, x> - precision |x|^2 / 2) on the support, at most e^log_density_ratio times the target.

    log_density_ratio depends on the data: it certifies this data set, but the number is private, and so is the number
    of steps computed from it (a running-time side channel).
    """

    support: ConvexSupport
    linear: Floats
    precision: float
    log_density_ratio: float

    def sample(self, size: int, rng: np.random.Generator) -> Floats:
        """Return exact draws of the start law, one per column."""
        return self.support.sample_gaussian(np.tile(self.linear[:, None], size), self.precision, rng)


def make_warm_start(potential: Potential, support: ConvexSupport, center: Floats) -> WarmStart:
    """Return the start at `center`: any point of the support is valid, near the minimiser w is smallest."""
    c = np.asarray(center, float)
    if c.shape != (support.dimension,) or not bool(support.contains(c[:, None])[0]):
        raise InvalidParameter(
            f"the start's centre must be {support.dimension} numbers inside the support; project it first."
        )
    low, high = potential.strong_convexity, _check.check_positive("smoothness", potential.smoothness)
    gradient = potential.gradient(c[:, None])[:, 0]
    square = float(c @ c) / 2
    shift = float(gradient @ c)
    upper = support.log_mass_bounds(low * c - gradient, low)[1] - low * square + shift
    lower = support.log_mass_bounds(high * c - gradient, high)[0] - high * square + shift
    slack = 1e-9 + 1e-12 * (abs(shift) + high * square)
    return WarmStart(
        support=support,
        linear=high * c - gradient,
        precision=high,
        log_density_ratio=max(upper - lower, 0.0) + slack,
    )


_STEP_LIMITS = (200, 2_000, 20_000, 200_000)


def sample_certified_start(
    potential: Potential, support: ConvexSupport, size: int, rng: np.random.Generator
) -> Floats:
    """Return `size` exact draws of exp(-<g, x - c> - M |x - c|^2 / 2), c a minimiser of V up to MAX_START_GAP.

    Their density is at most exp(warm_start_ratio(..., gap=MAX_START_GAP)) times that of exp(-V), with the same ratio
    for every data set. A run whose minimiser does not reach that gap stops and releases nothing.
    """
    for n_steps in _STEP_LIMITS:
        center = approximate_minimizer(potential, support, n_steps)
        gradient = potential.gradient(center[:, None])[:, 0]
        if _start_gap(potential, support, center, gradient) <= MAX_START_GAP:
            linear = potential.smoothness * center - gradient
            return support.sample_gaussian(np.tile(linear[:, None], size), potential.smoothness, rng)
    raise AssumptionFailed(
        "the minimiser needed for a certified start was not found, so nothing is released. Raise the ridge or lower "
        "the inverse temperature; both are public choices."
    )


def _start_gap(potential: Potential, support: ConvexSupport, center: Floats, gradient: Floats) -> float:
    """Bound <g, c - x> in the start's ratio; on an unbounded set, from the exact ratio of two Gaussians."""
    if math.isfinite(support.diameter):
        return support.frank_wolfe_gap(center, gradient)
    low, high = potential.strong_convexity, potential.smoothness
    square = float(gradient @ gradient)
    # w = (p/2) log(M/m) + |g|^2 (1/m - 1/M) / 2, to be met by (p/2) log(M/m) + (1 - sqrt(m/M)) gap
    return square * (1 / low - 1 / high) / 2 / max(1 - math.sqrt(low / high), 1e-12)
