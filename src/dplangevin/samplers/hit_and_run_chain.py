"""Hit-and-run: a uniform direction, then an exact draw along the chord. For research and plots, no guarantee.

Reference: Smith (1984); Lovasz and Vempala (2006). Published rates have no usable constants.
"""

from __future__ import annotations

import numpy as np

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import BallBody, Body, BoxBody
from dplangevin.samplers.log_concave import Columns, draw_log_concave
from dplangevin.samplers.potential import Counted, Draws, Potential
from dplangevin.samplers.truncated import unit_directions


def hit_and_run(
    potential: Potential, body: Body, start: Floats, n_steps: int, rng: np.random.Generator
) -> Draws:
    """Last points of the chains in the columns of `start`, for convex V on a ball or box."""
    n_steps = _check.count("n_steps", n_steps)
    x = np.array(start, float)
    if x.ndim != 2 or not np.all(body.contains(x)):
        raise InvalidParameter(
            f"start must be [{body.dimension}, k] points inside the body; project them first."
        )
    counted = Counted(potential)
    for _ in _progress.progress(range(n_steps), "hit-and-run steps"):
        direction = unit_directions(x.shape[0], x.shape[1], rng)
        low, high = chord(body, x, direction)
        x = body.project(x + direction * _along(counted, x, direction, low, high, rng))
    return Draws(theta=x, evaluations=counted.count, proposals=n_steps * x.shape[1])


def _along(
    potential: Counted, x: Floats, direction: Floats, low: Floats, high: Floats, rng: np.random.Generator
) -> Floats:
    def points(t: Floats, columns: Columns) -> tuple[Floats, Floats]:
        every = np.broadcast_to(columns, t.shape).ravel()
        return x[:, every] + direction[:, every] * t.ravel(), direction[:, every]

    def height(t: Floats, columns: Columns) -> Floats:
        return -potential.value(points(t, columns)[0]).reshape(t.shape)

    def slope(t: Floats, columns: Columns) -> Floats:
        where, along = points(t, columns)
        return np.asarray(-np.sum(potential.gradient(where) * along, axis=0).reshape(t.shape))

    return np.asarray(draw_log_concave(height, slope, low, high, 1, rng)[0])


def chord(body: Body, x: Floats, direction: Floats) -> tuple[Floats, Floats]:
    """The t with x + t direction in the body, column by column: an interval [low, high]."""
    if isinstance(body, BallBody):
        middle = -np.sum(x * direction, axis=0)
        half = np.sqrt(np.maximum(middle**2 + body.radius**2 - np.sum(x * x, axis=0), 0.0))
        return middle - half, middle + half
    if isinstance(body, BoxBody):
        with np.errstate(divide="ignore"):
            ends = np.stack([(body.low[:, None] - x) / direction, (body.high[:, None] - x) / direction])
        return np.asarray(ends.min(axis=0).max(axis=0)), np.asarray(ends.max(axis=0).min(axis=0))
    raise InvalidParameter("hit-and-run needs a ball or a box.")
