"""A minimiser of V over a body, as an anchor: every sampler is exact or certified for ANY anchor it is given."""

from __future__ import annotations

import numpy as np

from dplangevin import _progress
from dplangevin._arrays import Floats
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.potential import Potential


def approximate_minimiser(
    potential: Potential, body: Body, n_steps: int = 2000, tolerance: float = 1e-10
) -> Floats:
    """Accelerated projected gradient with restarts (O'Donoghue and Candes 2015); the last point, shape [p].

    Stops when a step moves less than `tolerance` times the scale 1/sqrt(smoothness) of the law.
    """
    step = 1 / potential.smoothness
    x = body.project(np.zeros((body.dimension, 1)))
    ahead, momentum = x, 1.0
    for _ in _progress.progress(range(n_steps), "minimising", private=True):
        new = body.project(ahead - step * potential.gradient(ahead))
        move = new - x
        if float(np.sum((ahead - new) * move)) > 0:
            momentum, ahead = 1.0, x
            new = body.project(x - step * potential.gradient(x))
            move = new - x
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * move
        x, momentum = new, following
        if np.linalg.norm(move) <= tolerance * np.sqrt(step):
            break
    return np.asarray(x[:, 0])
