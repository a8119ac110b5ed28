"""What a fit is expected to have lost to noise and to early stopping, read off its released path: an estimate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin.families.whitened.geometry import Geometry
from dplangevin.families.whitened.response import response
from dplangevin.families.whitened.schedule import WhitenedSchedule
from dplangevin.problem import Loss

Floats = NDArray[np.float64]
NOISE, WEIGHTS, FLATTEST = 1.5, 0.02, 10.0
"""Noise beyond the quadratic model's, what weights of rows cost of p / (2 n), and how much flatter the risk may be
along the coefficients than across them; chosen on generated tables."""
_NODES = np.linspace(-8, 8, 4001)
_NORMAL = np.exp(-(_NODES**2) / 2)
_NORMAL /= _NORMAL.sum()


def bend(score: float, along: bool = False) -> float:
    """Mean curvature of a logistic loss over its largest one, for normal scores of this root mean square: across the
    coefficients, or along them, where scores are largest."""
    chances = expit(min(score, 100.0) * _NODES)
    return float(4 * (_NORMAL * (_NODES**2 if along else 1.0)) @ (chances * (1 - chances)))


def expected_excess(
    schedule: WhitenedSchedule, geometry: Geometry, etas: Floats, tail: Floats, steps: int, loss: Loss, n: int
) -> float | None:
    """Expected excess of the mean loss over its minimum, for a fit whose tail has the mean `tail` [p] in q.

    A quadratic risk with curvature h_j in coordinate j: NOISE sum h_j var_j / 2, one direction of them as flat as it is
    along the coefficients, and sum h_j (1 - phi_j)^2 q_j^2 / 2 for what the steps did not reach. Unresolved coordinates
    count as large as the others on average. None for losses whose curvature is not known from the scores.
    """
    law = loss.law
    if law is None or loss.score_dimension > 1 or law.kind not in ("logistic", "affine"):
        return None
    moments, resolved = geometry.moments, geometry.spectrum.resolved
    score = float(np.sqrt(moments @ tail**2))
    share, flatter = 1.0, 1.0
    if law.kind == "logistic":
        share = bend(score)
        flatter += (min(share / bend(score, along=True), FLATTEST) - 1) / len(tail)
    curvatures = share / schedule.step_size * moments
    seen = response(schedule.path(steps), np.minimum(etas * curvatures, 2.0))
    reached = seen.reached[:, 2]
    variances = (etas * geometry.frame.bound * schedule.noise(steps - 1, steps)) ** 2 * seen.noise[:, 2, 2]
    squares = np.maximum(tail**2 - variances, 0.0) / np.maximum(reached, 0.05) ** 2
    if resolved.any():
        usual = float((moments * squares)[resolved].mean())
        squares = np.where(resolved, squares, np.maximum(squares, usual / moments))
    lost = NOISE * flatter * variances + (1 - reached) ** 2 * squares
    return float(curvatures @ lost / 2 + WEIGHTS * len(tail) / (2 * n))
