"""Noise with density proportional to exp(-|z| / scale): a Gamma norm and a uniform direction, exact in any dimension.

Reference: Chaudhuri, Monteleoni and Sarwate (2011), output perturbation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.samplers.truncated import unit_directions


def gamma_norm(dimension: int, scale: float, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Columns z with density proportional to exp(-|z| / scale): |z| ~ Gamma(dimension, scale)."""
    dimension, size = _check.count("dimension", dimension), _check.count("size", size)
    scale = _check.positive("scale", scale)
    return unit_directions(dimension, size, rng) * (scale * rng.standard_gamma(dimension, size))
