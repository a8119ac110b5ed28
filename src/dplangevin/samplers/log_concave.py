"""One-dimensional log-concave laws: exact draws and proved bounds on their mass.

A concave h lies below each of its tangents and above each of its chords. Tangents at a few points make a
piecewise exponential envelope that is drawn from in closed form and corrected by rejection, so a draw is exact
for any choice of points; the integrals of tangents and chords bound the mass from both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed

Columns = NDArray[np.intp]
Curve = Callable[[Floats, Columns], Floats]
"""h or h' at t[..., k] of the k laws with the given column numbers."""

_SECTIONS = np.arange(1, 16) / 16
_OFFSETS = 0.5 ** np.arange(1, 30)
_TOLERANCE = 1e-7


@dataclass(frozen=True)
class Envelope:
    """Tangents of k concave functions at points[j, k], cut where neighbours meet; edges[j] <= piece j <= edges[j+1]."""

    points: Floats
    heights: Floats
    slopes: Floats
    edges: Floats
    log_masses: Floats

    @classmethod
    def build(cls, points: Floats, heights: Floats, slopes: Floats, low: Floats, high: Floats) -> Envelope:
        gap = points[1:] - points[:-1]
        fall = slopes[:-1] - slopes[1:]
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = (heights[1:] - heights[:-1] - slopes[1:] * gap) / fall
        # Any cut is valid (every tangent is an upper bound), so rounding may be clipped away.
        cuts = points[:-1] + np.clip(np.where(fall > 0, shift, gap / 2), 0.0, gap)
        edges = np.concatenate([low[None], cuts, high[None]])
        left, width = edges[:-1], np.diff(edges, axis=0)
        start = np.where(slopes > 0, edges[1:], left)
        # slope * (start - point) is the tangent's larger end; an infinite end always has slope towards the inside
        with np.errstate(invalid="ignore"):
            top = heights + np.where(slopes == 0, 0.0, slopes * (start - points))
        return cls(points, heights, slopes, edges, top + log_relative_mass(slopes, width))

    def draw(self, columns: Columns, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """One proposal and the envelope's height there for every entry of `columns`."""
        masses = self.log_masses[:, columns]
        piece = np.argmax(masses + rng.gumbel(size=masses.shape), axis=0)
        slope, left = self.slopes[piece, columns], self.edges[piece, columns]
        width = self.edges[piece + 1, columns] - left
        uniform = rng.random(columns.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.log1p(uniform * np.expm1(-np.abs(slope) * width)) / np.abs(slope)
        flat = np.abs(slope) * width < 1e-13
        t = np.where(slope > 0, left + width + inside, left - inside)
        t = np.where(flat, left + uniform * np.where(flat, width, 0.0), t)
        height = self.heights[piece, columns] + slope * (t - self.points[piece, columns])
        return t, height


def log_relative_mass(slope: Floats, width: Floats) -> Floats:
    """log of the integral over one piece of exp(tangent - its larger end)."""
    steep = np.abs(slope) * width
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            np.where(steep < 1e-13, np.log(width), np.log(-np.expm1(-steep)) - np.log(np.abs(slope)))
        )


def draw_log_concave(
    height: Curve, slope: Curve, low: Floats, high: Floats, count: int, rng: np.random.Generator
) -> Floats:
    """`count` exact draws of each of k laws with density exp(height) on the finite interval [low, high]: [count, k].

    Only concavity is used: the envelope is three tangents around the mode.
    """
    envelope = _three_tangents(height, slope, low, high)
    k = low.size
    columns = np.tile(np.arange(k), count)
    result = np.empty(columns.size)
    pending = np.arange(columns.size)
    while pending.size:
        t, top = envelope.draw(columns[pending], rng)
        excess = height(t, columns[pending]) - top
        refuse_violation(excess, top)
        kept = -rng.standard_exponential(pending.size) <= excess
        result[pending[kept]] = t[kept]
        pending = pending[~kept]
    return result.reshape(count, k)


def refuse_violation(excess: Floats, scale: Floats) -> None:
    """An envelope that lies below its target is a bug or a false hypothesis: never a reason to clip."""
    finite = np.where(np.isfinite(scale), np.abs(scale), 0.0)
    if np.any(excess > _TOLERANCE + 1e-9 * finite) or np.any(np.isnan(excess)):
        raise AssumptionFailed(
            "the rejection envelope lies below the target, so the draw would not be exact: the potential is not "
            "convex on the body, or a stated curvature bound is wrong. Nothing was drawn; correct the bound."
        )


def _three_tangents(height: Curve, slope: Curve, low: Floats, high: Floats) -> Envelope:
    columns = np.arange(low.size)
    mode = bracket_mode(slope, low, high)
    middle = height(mode[None], columns)
    sides = []
    for end in (low, high):
        offsets = mode[None] + (end - mode)[None] * _OFFSETS[:, None]
        with np.errstate(invalid="ignore"):
            drop = middle - height(offsets, columns)
        score = np.abs(np.log(np.maximum(np.nan_to_num(drop, nan=np.inf, posinf=1e300), 1e-300)))
        chosen = np.argmin(score, axis=0)
        sides.append(offsets[chosen, columns])
    points = np.sort(np.stack([sides[0], mode, sides[1]]), axis=0)
    return Envelope.build(points, height(points, columns), slope(points, columns), low, high)


def bracket_mode(slope: Curve, low: Floats, high: Floats) -> Floats:
    """A point within a twentieth of a log unit of each maximum, by sectioning on the sign of the slope."""
    columns = np.arange(low.size)
    left, right = low.copy(), high.copy()
    ends = np.abs(np.nan_to_num(slope(np.stack([left, right]), columns), nan=np.inf))
    for _ in range(40):
        grid = left[None] + (right - left)[None] * _SECTIONS[:, None]
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


def mass_bounds(
    height: Curve, slope: Curve, low: float, high: float, points: int = 400
) -> tuple[float, float]:
    """Proved lower and upper bounds on log of the integral of exp(height) over [low, high], for one law."""
    column, ends = np.zeros(1, np.intp), (np.array([low]), np.array([high]))
    mode = float(bracket_mode(slope, *ends)[0])

    def at(t: Floats) -> Floats:
        return height(t[:, None], column)[:, 0]

    peak = float(at(np.array([mode]))[0])
    reach = []
    for end in (low, high):
        offsets = (end - mode) * np.exp2(-np.arange(50.0))
        with np.errstate(invalid="ignore"):
            far = offsets[(peak - at(mode + offsets) > 60.0)]
        reach.append(far[-1] if far.size else end - mode)
    # denser where the mass is
    inner = np.linspace(0, 1, points // 2 + 2)[1:-1] ** 2
    t = np.concatenate([[low], mode + reach[0] * inner[::-1], [mode], mode + reach[1] * inner, [high]])
    t = np.asarray(np.unique(np.clip(t, low, high)), np.float64)
    heights, slopes = at(t), slope(t[:, None], column)[:, 0]
    usable = np.isfinite(heights) & np.isfinite(slopes)
    t, heights, slopes = t[usable], heights[usable], slopes[usable]
    upper = Envelope.build(t[:, None], heights[:, None], slopes[:, None], *ends)
    chord = np.diff(heights) / np.diff(t)
    top = np.maximum(heights[:-1], heights[1:])
    lower = logsumexp(top + log_relative_mass(chord, np.diff(t)))
    slack = 1e-9 + 1e-13 * abs(peak)
    return float(lower) - slack, float(logsumexp(upper.log_masses)) + slack
