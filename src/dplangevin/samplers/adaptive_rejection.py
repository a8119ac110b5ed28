"""Adaptive rejection sampling of a convex potential on an interval: exact at any inverse temperature.

Reference: Gilks and Wild (1992). The envelope is made of tangents of -V and grows at rejected points.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.log_concave import Columns, Envelope, bracket_mode, refuse_violation
from dplangevin.samplers.potential import Counted, Draws, Potential

Line = Callable[[Floats], Floats]
_MOST_TANGENTS = 60


def adaptive_rejection(
    potential: Potential, low: float, high: float, size: int, rng: np.random.Generator
) -> Draws:
    """`size` exact independent draws of exp(-V) on [low, high], V convex (a subgradient is enough).

    Convexity cannot be checked everywhere; a tangent seen above V raises AssumptionFailed.
    """
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InvalidParameter(f"low and high must be finite with low < high, got {low!r} and {high!r}.")
    size = _check.count("size", size)
    counted = Counted(potential)

    def height(t: Floats) -> Floats:
        return -counted.value(t[None])

    def slope(t: Floats) -> Floats:
        return np.asarray(-counted.gradient(t[None])[0])

    envelope = _start(height, slope, low, high)
    result, filled, proposals = np.empty(size), 0, 0
    while filled < size:
        batch = min(size - filled, 1000) + 4
        t, top = envelope.draw(np.zeros(batch, np.intp), rng)
        excess = height(t) - top
        refuse_violation(excess, top)
        kept = t[-rng.standard_exponential(batch) <= excess][: size - filled]
        result[filled : filled + kept.size] = kept
        filled += kept.size
        proposals += batch
        if filled < size and envelope.points.shape[0] < _MOST_TANGENTS:
            envelope = _refined(envelope, t[np.argsort(excess)[:3]], height, slope, low, high)
    return Draws(theta=result[None], evaluations=counted.count, proposals=proposals)


def _start(height: Line, slope: Line, low: float, high: float) -> Envelope:
    ends = (np.array([low]), np.array([high]))

    def sections(t: Floats, columns: Columns) -> Floats:
        return slope(t.ravel()).reshape(t.shape)

    mode = float(bracket_mode(sections, *ends)[0])
    peak = float(height(np.array([mode]))[0])
    points = [mode]
    for end in (low, high):
        offsets = mode + (end - mode) * np.exp2(-np.arange(1.0, 40.0, 2.0))
        drop = peak - height(offsets)
        points.append(float(offsets[np.argmin(np.abs(np.log(np.maximum(drop, 1e-300))))]))
    t = np.array(sorted(set(points)))
    return Envelope.build(t[:, None], height(t)[:, None], slope(t)[:, None], *ends)


def _refined(
    envelope: Envelope, added: Floats, height: Line, slope: Line, low: float, high: float
) -> Envelope:
    every = np.concatenate([envelope.points[:, 0], added])
    order = np.unique(every, return_index=True)[1]
    t = every[order]
    heights = np.concatenate([envelope.heights[:, 0], height(added)])[order]
    slopes = np.concatenate([envelope.slopes[:, 0], slope(added)])[order]
    return Envelope.build(t[:, None], heights[:, None], slopes[:, None], np.array([low]), np.array([high]))
