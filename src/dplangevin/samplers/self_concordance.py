"""Curvature of the logistic loss: a quadratic lower bound at a point, and bounds on a whole ball.

With H the Hessian of the data term at a point t and rows of norm at most B (the intercept's column included),
F(t + d) >= F(t) + <gradient, d> + d'(kappa(B |d|) H + m I) d / 2, kappa(r) = 2 (e^-r + r - 1) / r^2.
Reference: Bach (2010), Proposition 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dplangevin import _check


class Anchor(NamedTuple):
    """A point [p], and what is known of V there.

    data_hessian, ridge : of V at this very point: beta times the data term's Hessian, beta times the ridge.
    row_norm : largest norm of a row, the intercept's column included.
    """

    point: NDArray[np.float64]
    data_hessian: ArrayLike
    ridge: float
    row_norm: float


def kappa(distance: ArrayLike) -> NDArray[np.float64]:
    """2 (e^-r + r - 1) / r^2, which decreases from 1 at r = 0.

    Examples
    --------
    >>> kappa([0.0, 0.5, 1.0, 2.0, 4.0]).round(4).tolist()
    [1.0, 0.8522, 0.7358, 0.5677, 0.3773]
    """
    r = np.asarray(distance, float)
    safe = np.where(r < 1e-3, 1.0, r)
    exact = 2 * (np.expm1(-safe) + safe) / safe**2
    return np.asarray(np.where(r < 1e-3, 1 - r / 3 + r**2 / 12 - r**3 / 60, exact))


def logistic_curvature(gram: ArrayLike, row_norm: float, radius: float) -> tuple[float, float, float]:
    """(smallest, mean, largest) curvature of the mean logistic loss on |theta| <= radius, from gram = X'X / n.

    Scores stay within row_norm * radius, so the second derivative is between s(1 - s) at that score and 1/4. The mean
    is a planning figure. These numbers depend on the data: each data set has its own valid certificate from them, but
    they are private and so is everything computed from them.
    """
    values = np.linalg.eigvalsh(np.atleast_2d(np.asarray(gram, float)))
    score = _check.positive("row_norm", row_norm) * _check.positive("radius", radius)
    least = np.exp(-score) / (1 + np.exp(-score)) ** 2
    rounding = 1e-12 * float(values[-1])
    low = max(float(values[0]) - rounding, 0.0)
    return float(least) * low, float(values.mean()) / 4, (float(values[-1]) + rounding) / 4
