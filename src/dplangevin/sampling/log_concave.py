"""Exact draws from one-dimensional log-concave laws, truncated ones and adaptive rejection included.

A concave h lies below each of its tangents and above each of its chords. Tangents at a few points make a
piecewise exponential envelope that is drawn from in closed form and corrected by rejection, so a draw is exact
for any choice of points; the integrals of tangents and chords bound the mass from both sides. Adaptive rejection
(Gilks and Wild, 1992) adds tangents of -V at rejected points and is exact at any inverse temperature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.potential import CountingPotential, Potential, SamplerOutput


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


Columns = NDArray[np.intp]
LineFunction = Callable[[Floats, Columns], Floats]
"""Computes h or h' at t[..., k] for the k laws with the given column numbers."""

_SECTION_FRACTIONS = np.arange(1, 16) / 16
_OFFSET_FRACTIONS = 0.5 ** np.arange(1, 30)
_MAX_VIOLATION = 1e-7


@dataclass(frozen=True)
class TangentEnvelope:
    """Tangents of k concave functions at points[j, k]; tangent j applies on [edges[j], edges[j+1]]."""

    points: Floats
    heights: Floats
    slopes: Floats
    edges: Floats
    log_masses: Floats

    @classmethod
    def from_tangents(
        cls, points: Floats, heights: Floats, slopes: Floats, low: Floats, high: Floats
    ) -> TangentEnvelope:
        gap = points[1:] - points[:-1]
        fall = slopes[:-1] - slopes[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = (heights[1:] - heights[:-1] - slopes[1:] * gap) / fall
        # Any cut is valid (every tangent is an upper bound), so clipping rounding errors does no harm.
        cuts = points[:-1] + np.clip(np.where(fall > 0, shift, gap / 2), 0.0, gap)
        edges = np.concatenate([low[None], cuts, high[None]])
        left_edges, width = edges[:-1], np.diff(edges, axis=0)
        start = np.where(slopes > 0, edges[1:], left_edges)
        # slope * (start - point) is the tangent's larger end; at an infinite end the tangent decreases outwards
        with np.errstate(invalid="ignore"):
            top = heights + np.where(slopes == 0, 0.0, slopes * (start - points))
        return cls(points, heights, slopes, edges, top + log_relative_mass(slopes, width))

    def sample(self, columns: Columns, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw one proposal for every entry of `columns`, and return it with the envelope's height there."""
        masses = self.log_masses[:, columns]
        piece = np.argmax(masses + rng.gumbel(size=masses.shape), axis=0)
        slope, left_edge = self.slopes[piece, columns], self.edges[piece, columns]
        width = self.edges[piece + 1, columns] - left_edge
        uniform = rng.random(columns.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.log1p(uniform * np.expm1(-np.abs(slope) * width)) / np.abs(slope)
        flat = np.abs(slope) * width < 1e-13
        t = np.where(slope > 0, left_edge + width + inside, left_edge - inside)
        t = np.where(flat, left_edge + uniform * np.where(flat, width, 0.0), t)
        height = self.heights[piece, columns] + slope * (t - self.points[piece, columns])
        return t, height


def log_relative_mass(slope: Floats, width: Floats) -> Floats:
    """Return the log of the integral over one piece of exp(tangent - its larger end)."""
    steep = np.abs(slope) * width
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.where(steep < 1e-13, np.log(width), np.log(-np.expm1(-steep)) - np.log(np.abs(slope)))
        )


def sample_log_concave(
    height: LineFunction, slope: LineFunction, low: Floats, high: Floats, count: int, rng: np.random.Generator
) -> Floats:
    """Return `count` exact draws [count, k] of each of k laws with density exp(height) on the interval [low, high].

    Only concavity is used: the envelope is three tangents around the mode.
    """
    envelope = _fit_three_tangents(height, slope, low, high)
    k = low.size
    columns = np.tile(np.arange(k), count)
    result = np.empty(columns.size)
    pending = np.arange(columns.size)
    while pending.size:
        t, top = envelope.sample(columns[pending], rng)
        excess = height(t, columns[pending]) - top
        check_envelope(excess, top)
        mask = -rng.standard_exponential(pending.size) <= excess
        result[pending[mask]] = t[mask]
        pending = pending[~mask]
    return result.reshape(count, k)


def check_envelope(excess: Floats, scale: Floats) -> None:
    """Raise if an envelope lies below its target, which means a bug or a false hypothesis."""
    finite = np.where(np.isfinite(scale), np.abs(scale), 0.0)
    if np.any(excess > _MAX_VIOLATION + 1e-9 * finite) or np.any(np.isnan(excess)):
        raise AssumptionFailed(
            "the rejection envelope lies below the target, so the draw would not be exact: the potential is not "
            "convex on the support, or a stated curvature bound is wrong. Nothing was drawn; correct the bound."
        )


def _fit_three_tangents(
    height: LineFunction, slope: LineFunction, low: Floats, high: Floats
) -> TangentEnvelope:
    columns = np.arange(low.size)
    mode = find_mode(slope, low, high)
    middle = height(mode[None], columns)
    sides = []
    for end in (low, high):
        offsets = mode[None] + (end - mode)[None] * _OFFSET_FRACTIONS[:, None]
        with np.errstate(invalid="ignore"):
            drop = middle - height(offsets, columns)
        score = np.abs(np.log(np.maximum(np.nan_to_num(drop, nan=np.inf, posinf=1e300), 1e-300)))
        index = np.argmin(score, axis=0)
        sides.append(offsets[index, columns])
    points = np.sort(np.stack([sides[0], mode, sides[1]]), axis=0)
    return TangentEnvelope.from_tangents(points, height(points, columns), slope(points, columns), low, high)


def find_mode(slope: LineFunction, low: Floats, high: Floats) -> Floats:
    """Return a point within 0.05 of each maximum of the log density, by sectioning on the sign of the slope."""
    columns = np.arange(low.size)
    left, right = low.copy(), high.copy()
    ends = np.abs(np.nan_to_num(slope(np.stack([left, right]), columns), nan=np.inf))
    for _ in range(40):
        grid = left[None] + (right - left)[None] * _SECTION_FRACTIONS[:, None]
        slopes = slope(grid, columns)
        rising = np.sum(slopes > 0, axis=0)
        padded = np.concatenate([left[None], grid, right[None]])
        steep = np.concatenate([ends[:1], np.abs(slopes), ends[1:]])
        left, right = padded[rising, columns], padded[rising + 1, columns]
        ends = np.stack([steep[rising, columns], steep[rising + 1, columns]])
        with np.errstate(invalid="ignore", over="ignore"):
            if np.all(ends.max(axis=0) * (right - left) < 0.05):
                break
    return 0.5 * (left + right)


def log_mass_bounds(
    height: LineFunction, slope: LineFunction, low: float, high: float, points: int = 400
) -> tuple[float, float]:
    """Return proved lower and upper bounds on log of the integral of exp(height) over [low, high], for one law."""
    column, ends = np.zeros(1, np.intp), (np.array([low]), np.array([high]))
    mode = float(find_mode(slope, *ends)[0])

    def height_at(t: Floats) -> Floats:
        return height(t[:, None], column)[:, 0]

    peak = float(height_at(np.array([mode]))[0])
    extents = []
    for end in (low, high):
        offsets = (end - mode) * np.exp2(-np.arange(50.0))
        with np.errstate(invalid="ignore"):
            far = offsets[(peak - height_at(mode + offsets) > 60.0)]
        extents.append(far[-1] if far.size else end - mode)
    # points are denser near the mode, where the mass is
    inner = np.linspace(0, 1, points // 2 + 2)[1:-1] ** 2
    t = np.concatenate([[low], mode + extents[0] * inner[::-1], [mode], mode + extents[1] * inner, [high]])
    t = np.asarray(np.unique(np.clip(t, low, high)), np.float64)
    heights, slopes = height_at(t), slope(t[:, None], column)[:, 0]
    usable = np.isfinite(heights) & np.isfinite(slopes)
    t, heights, slopes = t[usable], heights[usable], slopes[usable]
    upper = TangentEnvelope.from_tangents(t[:, None], heights[:, None], slopes[:, None], *ends)
    chord = np.diff(heights) / np.diff(t)
    top = np.maximum(heights[:-1], heights[1:])
    lower = logsumexp(top + log_relative_mass(chord, np.diff(t)))
    slack = 1e-9 + 1e-13 * abs(peak)
    return float(lower) - slack, float(logsumexp(upper.log_masses)) + slack


Line = Callable[[Floats], Floats]
_MAX_TANGENTS = 60


def sample_adaptive_rejection(
    potential: Potential, low: float, high: float, size: int, rng: np.random.Generator
) -> SamplerOutput:
    """Return `size` exact independent draws of exp(-V) on [low, high], V convex (a subgradient is enough).

    Convexity cannot be checked everywhere; a tangent found above V raises AssumptionFailed.
    """
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InvalidParameter(f"low and high must be finite with low < high, got {low!r} and {high!r}.")
    size = _check.check_count("size", size)
    counted = CountingPotential(potential)

    def height(t: Floats) -> Floats:
        return -counted.value(t[None])

    def slope(t: Floats) -> Floats:
        return np.asarray(-counted.gradient(t[None])[0])

    envelope = _initial_envelope(height, slope, low, high)
    result, filled, proposals = np.empty(size), 0, 0
    while filled < size:
        batch = min(size - filled, 1000) + 4
        t, top = envelope.sample(np.zeros(batch, np.intp), rng)
        excess = height(t) - top
        check_envelope(excess, top)
        accepted = t[-rng.standard_exponential(batch) <= excess][: size - filled]
        result[filled : filled + accepted.size] = accepted
        filled += accepted.size
        proposals += batch
        if filled < size and envelope.points.shape[0] < _MAX_TANGENTS:
            envelope = _refine_envelope(envelope, t[np.argsort(excess)[:3]], height, slope, low, high)
    return SamplerOutput(theta=result[None], evaluations=counted.count, n_proposals=proposals)


def _initial_envelope(height: Line, slope: Line, low: float, high: float) -> TangentEnvelope:
    ends = (np.array([low]), np.array([high]))

    def sections(t: Floats, columns: Columns) -> Floats:
        return slope(t.ravel()).reshape(t.shape)

    mode = float(find_mode(sections, *ends)[0])
    peak = float(height(np.array([mode]))[0])
    points = [mode]
    for end in (low, high):
        offsets = mode + (end - mode) * np.exp2(-np.arange(1.0, 40.0, 2.0))
        drop = peak - height(offsets)
        points.append(float(offsets[np.argmin(np.abs(np.log(np.maximum(drop, 1e-300))))]))
    t = np.array(sorted(set(points)))
    return TangentEnvelope.from_tangents(t[:, None], height(t)[:, None], slope(t)[:, None], *ends)


def _refine_envelope(
    envelope: TangentEnvelope, added: Floats, height: Line, slope: Line, low: float, high: float
) -> TangentEnvelope:
    points = np.concatenate([envelope.points[:, 0], added])
    order = np.unique(points, return_index=True)[1]
    t = points[order]
    heights = np.concatenate([envelope.heights[:, 0], height(added)])[order]
    slopes = np.concatenate([envelope.slopes[:, 0], slope(added)])[order]
    return TangentEnvelope.from_tangents(
        t[:, None], heights[:, None], slopes[:, None], np.array([low]), np.array([high])
    )
