"""The noise that one-shot mechanisms share."""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.samplers.gamma_norm import gamma_norm


def perturbation(noise: str, dimension: int, scale: float, rng: np.random.Generator) -> Floats:
    """Gaussian noise, or noise with density proportional to exp(-|z| / scale)."""
    if noise == "gaussian":
        return scale * rng.standard_normal(dimension)
    return gamma_norm(dimension, scale, 1, rng)[:, 0]
