"""Metropolis-adjusted Langevin: unbiased in the limit, no usable rate. For research and plots, no guarantee.

Reference: Roberts and Tweedie (1996).
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.potential import Counted, Draws, Potential


def mala(
    potential: Potential, body: Body, start: Floats, step_size: float, n_steps: int, rng: np.random.Generator
) -> Draws:
    """Last points of the chains in the columns of `start`; a proposal outside the body is rejected."""
    eta, n_steps = _check.positive("step_size", step_size), _check.count("n_steps", n_steps)
    x = np.array(start, float)
    if x.ndim != 2 or not np.all(body.contains(x)):
        raise InvalidParameter(
            f"start must be [{body.dimension}, k] points inside the body; project them first."
        )
    counted = Counted(potential)
    value, gradient = counted.value(x), counted.gradient(x)
    for _ in _progress.progress(range(n_steps), "MALA steps"):
        y = x - eta * gradient + math.sqrt(2 * eta) * rng.standard_normal(x.shape)
        new_value, new_gradient = counted.value(y), counted.gradient(y)
        forth = np.sum((y - x + eta * gradient) ** 2, axis=0)
        back = np.sum((x - y + eta * new_gradient) ** 2, axis=0)
        log_ratio = value - new_value + (forth - back) / (4 * eta)
        kept = body.contains(y) & (-rng.standard_exponential(x.shape[1]) <= log_ratio)
        x, gradient = np.where(kept, y, x), np.where(kept, new_gradient, gradient)
        value = np.where(kept, new_value, value)
    return Draws(theta=x, evaluations=counted.count, proposals=n_steps * x.shape[1])
