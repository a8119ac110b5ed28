"""Exact draws of truncated normal and Gamma variables, by rejection (no numerical inverse of a distribution)."""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats


def sample_truncated_normal(
    mean: Floats, scale: float | Floats, low: float | Floats, high: float | Floats, rng: np.random.Generator
) -> Floats:
    """Draw N(mean, scale^2) conditioned on [low, high], entry by entry.

    For an interval near the mean, proposals are normal or uniform; for one in a tail, the exponential of the tangent
    at its inner end, accepted with exp(-(x - a)^2 / 2) (Robert 1995).
    """
    mean, scale, low, high = np.broadcast_arrays(mean, scale, low, high)
    a, b = (low - mean) / scale, (high - mean) / scale
    flip = a + b < 0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    x = _sample_standard_normal(a.ravel(), b.ravel(), rng).reshape(a.shape)
    return np.asarray(np.clip(mean + scale * np.where(flip, -x, x), low, high))


def _sample_standard_normal(a: Floats, b: Floats, rng: np.random.Generator) -> Floats:
    """Draw N(0, 1) conditioned on [a, b], with a + b >= 0."""
    result = np.empty(a.size)
    pending = np.arange(a.size)
    while pending.size:
        low, high = a[pending], b[pending]
        width = high - low
        tail = low > 0.5
        narrow = ~tail & (width <= 2)
        first, second = rng.random(pending.size), rng.standard_exponential(pending.size)
        rate = np.where(tail, low, 1.0)
        with np.errstate(invalid="ignore", over="ignore"):
            x = np.where(tail, low - np.log1p(first * np.expm1(-rate * width)) / rate, low + first * width)
        wide = ~tail & ~narrow
        x[wide] = rng.standard_normal(int(wide.sum()))
        nearest = np.maximum(low, 0.0)
        excess = np.where(tail, (x - low) ** 2 / 2, (x**2 - nearest**2) / 2)
        inside = (x >= low) & (x <= high)
        mask = inside & (wide | (second >= excess))
        result[pending[mask]] = x[mask]
        pending = pending[~mask]
    return result


def sample_gamma_below(shape: float, top: Floats, rng: np.random.Generator) -> Floats:
    """Draw Gamma(shape, 1) conditioned on [0, top], entry by entry.

    With u = log g the log density shape u - e^u is concave: below the mode the tangent at log(top) is the
    envelope; otherwise plain rejection.
    """
    result = np.empty(top.size)
    pending = np.arange(top.size)
    threshold = max(shape - np.sqrt(shape), shape / 2)
    while pending.size:
        limit = top[pending]
        low = limit < threshold
        g = rng.standard_gamma(shape, pending.size)
        back = rng.standard_exponential(pending.size) / np.where(low, shape - limit, 1.0)
        g = np.where(low, limit * np.exp(-back), g)
        excess = np.where(low, limit * (np.expm1(-back) + back), 0.0)
        mask = (g <= limit) & (rng.standard_exponential(pending.size) >= excess)
        result[pending[mask]] = g[mask]
        pending = pending[~mask]
    return result


def sample_gamma_above(shape: float, bottom: float, size: int, rng: np.random.Generator) -> Floats:
    """Draw Gamma(shape, 1) conditioned on [bottom, infinity), for shape >= 1."""
    result = np.empty(size)
    pending = np.arange(size)
    while pending.size:
        if bottom <= shape:
            g = rng.standard_gamma(shape, pending.size)
            mask = g >= bottom
        else:
            g = bottom + rng.standard_exponential(pending.size) / (1 - (shape - 1) / bottom)
            excess = (shape - 1) * ((g - bottom) / bottom - np.log(g / bottom))
            mask = rng.standard_exponential(pending.size) >= excess
        result[pending[mask]] = g[mask]
        pending = pending[~mask]
    return result


def sample_unit_directions(dimension: int, size: int, rng: np.random.Generator) -> Floats:
    """Draw uniform points of the unit sphere, one per column."""
    normal = rng.standard_normal((dimension, size))
    return np.asarray(normal / np.linalg.norm(normal, axis=0))
