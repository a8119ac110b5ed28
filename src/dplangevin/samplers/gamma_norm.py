"""Pure noise in floating point: whole numbers with geometric tails, and vectors with density exp(-|z| / scale).

Noise with density proportional to exp(-|z| / scale): a Gamma norm and a uniform direction, exact in any dimension.

Reference: Chaudhuri, Monteleoni and Sarwate (2011), output perturbation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._rng import label_noise
from dplangevin.samplers.truncated import unit_directions


def discrete_laplace(
    scale: float, size: int | tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Whole numbers k with P(k) proportional to exp(-|k| / scale): the difference of two geometric ones."""
    success = -math.expm1(-1 / _check.integer_scale("scale", scale))
    difference: NDArray[np.float64] = (rng.geometric(success, size) - rng.geometric(success, size)).astype(
        float
    )
    return difference


def gamma_norm(dimension: int, scale: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Columns z with density proportional to exp(-|z| / scale): |z| ~ Gamma(dimension, scale)."""
    dimension, size = _check.count("dimension", dimension), _check.count("size", size)
    scale = _check.positive("scale", scale)
    columns = unit_directions(dimension, size, rng) * (scale * rng.standard_gamma(dimension, size))
    labelled: NDArray[np.float64] = label_noise(columns, "norm", scale) if size == 1 else columns
    return labelled
