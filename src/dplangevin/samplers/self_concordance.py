"""The quadratic lower bound of logistic-type losses.

With H the Hessian of the data term at a point t and rows of norm at most B (the intercept's column included),
F(t + d) >= F(t) + <gradient, d> + d'(kappa(B |d|) H + m I) d / 2, kappa(r) = 2 (e^-r + r - 1) / r^2.
Reference: Bach (2010), Proposition 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
