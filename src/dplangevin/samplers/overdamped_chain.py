"""Unadjusted (overdamped) Langevin: x <- x - eta grad V(x) + N(0, 2 eta I). Biased; for research, no guarantee.

Reference: Ganesh (2022, thesis), chapter 3. For a quadratic of curvature h the stationary variance is
1 / (h (1 - eta h / 2)) instead of 1 / h.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed
from dplangevin.samplers.potential import FunctionPotential, Potential
from dplangevin.samplers.sgld import sgld


def overdamped(
    potential: Potential, start: ArrayLike, step_size: float, n_steps: int, rng: np.random.Generator
) -> Floats:
    """The last points of the chains that start in the columns of `start`."""
    return sgld(potential, start, step_size, 1.0, n_steps, rng).last


def normalised(potential: Potential, minimiser: Floats) -> FunctionPotential:
    """g(x) = V(x* + x / sqrt(m)): 1-strongly convex, (M/m)-smooth, minimum at 0.

    A draw x of exp(-g) gives x* + x / sqrt(m) for exp(-V). The thesis writes both the shift and the scale
    inverted.
    """
    curvature = _check.nonnegative("strong_convexity", potential.strong_convexity)
    if curvature == 0:
        raise AssumptionFailed("normalisation needs a strongly convex potential; add a ridge.")
    centre, root = np.asarray(minimiser, float)[:, None], math.sqrt(curvature)
    return FunctionPotential(
        value_function=lambda x: potential.value(centre + x / root),
        gradient_function=lambda x: potential.gradient(centre + x / root) / root,
        smoothness=potential.smoothness / curvature,
        strong_convexity=1.0,
        lipschitz=potential.lipschitz / root,
    )
