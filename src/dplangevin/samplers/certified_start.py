"""A start whose density is at most e^w times the target's, with a w that is the same for every data set."""

from __future__ import annotations

import math

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed
from dplangevin.privacy.proximal_certificate import START_GAP
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.minimise import approximate_minimiser
from dplangevin.samplers.potential import Potential

_TRIES = (200, 2_000, 20_000, 200_000)


def certified_start(potential: Potential, body: Body, size: int, rng: np.random.Generator) -> Floats:
    """`size` exact draws of exp(-<g, x - c> - M |x - c|^2 / 2) on the body, c a minimiser of V up to START_GAP.

    The law's density is at most exp(warm_start_ratio(..., gap=START_GAP)) times that of exp(-V). A run whose minimiser
    misses that gap stops and releases nothing.
    """
    for n_steps in _TRIES:
        centre = approximate_minimiser(potential, body, n_steps)
        gradient = potential.gradient(centre[:, None])[:, 0]
        if _gap(potential, body, centre, gradient) <= START_GAP:
            linear = potential.smoothness * centre - gradient
            return body.gaussian(np.tile(linear[:, None], size), potential.smoothness, rng)
    raise AssumptionFailed(
        "the minimiser needed for a certified start was not found, so nothing is released. Raise the ridge or lower "
        "the inverse temperature; both are public choices."
    )


def _gap(potential: Potential, body: Body, centre: Floats, gradient: Floats) -> float:
    """What stands for <g, c - x> in the start's ratio; on an unbounded set the exact ratio of two Gaussians."""
    if math.isfinite(body.diameter):
        return body.drop(centre, gradient)
    low, high = potential.strong_convexity, potential.smoothness
    square = float(gradient @ gradient)
    # w = (p/2) log(M/m) + |g|^2 (1/m - 1/M) / 2, to be met by (p/2) log(M/m) + (1 - sqrt(m/M)) gap
    return square * (1 / low - 1 / high) / 2 / max(1 - math.sqrt(low / high), 1e-12)
