"""Symmetric noise for a pure promise about sums of x x': the difference of two Wishart matrices, drawn exactly.

A Wishart matrix with p + 1 degrees of freedom has the density exp(-tr W) on the positive semidefinite ones, as an
exponential number has on the positive ones; the difference of two is to matrices what Laplace noise is to numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin._rng import label_noise


def wishart_difference(size: int, scale: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """scale (V - W), V and W independent [size, size] matrices of density exp(-tr) on the positive semidefinite ones.

    Its log density is Lipschitz in the nuclear norm with the constant 1 / scale.
    """
    size, scale = _check.count("size", size), _check.positive("scale", scale)
    first, second = rng.standard_normal((2, size, size + 1))
    noise: NDArray[np.float64] = (first @ first.T - second @ second.T) * (scale / 2)
    labelled: NDArray[np.float64] = label_noise(np.asarray(noise), "nuclear", scale)
    return labelled
