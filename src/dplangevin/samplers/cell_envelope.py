"""Exact draws of exp(-V) for any V with known constants, in few dimensions: an envelope made of cells.

The smallest box around the body is cut into cells. In the cell around c, with half diagonal r,
    V(x) >= V(c) - L r                                  (V is L-Lipschitz),
    V(x) >= V(c) + <grad V(c), x - c> - M r^2 / 2       (grad V is M-Lipschitz),
and the lower of the two envelopes exp(-bound) is taken. Both have masses in closed form and are drawn exactly: a cell
by its mass, then a uniform point, or coordinates of exponential laws cut to the cell. No convexity is needed; the
bounds are proved, never fitted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.potential import Draws, Evaluations, Potential
from dplangevin.samplers.rejection import rejection

_BLOCK = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class EnvelopeCells:
    """The cells [p, C] with their envelopes; every array is about one potential."""

    centres: Floats
    half: Floats
    values: Floats
    slopes: Floats
    lipschitz: float
    smoothness: float

    @property
    def radius(self) -> float:
        """Half the diagonal of a cell."""
        return float(np.linalg.norm(self.half))

    @cached_property
    def tilted(self) -> NDArray[np.bool_]:
        """Where the envelope that follows the gradient has the smaller mass."""
        return self._log_tilted < self._log_flat

    @cached_property
    def _log_flat(self) -> Floats:
        return self.lipschitz * self.radius - self.values + float(np.log(2 * self.half).sum())

    @cached_property
    def _log_tilted(self) -> Floats:
        if math.isinf(self.smoothness):
            return np.full(self.values.shape, np.inf)
        size = np.abs(self.slopes) * self.half[:, None]
        # log of the integral of e^{-g t} over [-h, h] = |g| h + log(h (1 - e^{-2 |g| h}) / (|g| h))
        with np.errstate(divide="ignore", invalid="ignore"):
            wide = np.where(size > 1e-8, -np.expm1(-2 * size) / np.where(size > 0, size, 1.0), 2.0)
        mass = size + np.log(wide * self.half[:, None])
        return np.asarray(self.smoothness * self.radius**2 / 2 - self.values + mass.sum(axis=0))

    @cached_property
    def cumulative(self) -> Floats:
        """Probabilities of the cells, added up."""
        logs = np.minimum(self._log_flat, self._log_tilted)
        total = np.cumsum(np.exp(logs - logs.max()))
        return np.asarray(total / total[-1])

    def propose(self, batch: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Points of the envelope [p, batch] and its logarithm at each."""
        chosen = np.minimum(
            np.searchsorted(self.cumulative, rng.random(batch), side="right"), len(self.values) - 1
        )
        tilted, slopes = self.tilted[chosen], self.slopes[:, chosen]
        rates = np.where(tilted, np.abs(slopes), 0.0)
        uniform = rng.random(slopes.shape)
        width = 2 * self.half[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            steep = -np.log1p(uniform * np.expm1(-rates * width)) / rates
        away = np.where(rates * width > 1e-8, steep, uniform * width)
        moves = np.where(slopes > 0, away, width - away) - self.half[:, None]
        follow = np.where(
            tilted, (slopes * moves).sum(axis=0) - self.smoothness_term, -self.lipschitz * self.radius
        )
        return self.centres[:, chosen] + moves, -(self.values[chosen] + follow)

    @property
    def smoothness_term(self) -> float:
        """M r^2 / 2, or 0 when no cell is tilted."""
        return 0.0 if math.isinf(self.smoothness) else self.smoothness * self.radius**2 / 2


def cell_envelope(
    potential: Potential,
    body: Body,
    low: Floats,
    high: Floats,
    per_axis: int,
    lipschitz: float,
    smoothness: float,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> Draws:
    """`size` independent draws of exp(-V) on a body inside the box [low, high], by per_axis^p cells.

    lipschitz and smoothness are those of V on the whole box; either may be infinite, not both.
    """
    half = (high - low) / (2 * per_axis)
    axes = [a + h * (2 * np.arange(per_axis) + 1) for a, h in zip(low, half, strict=True)]
    centres = np.stack([mesh.ravel() for mesh in np.meshgrid(*axes, indexing="ij")])
    near = body.project(
        centres
    )  # a cell whose centre is further from the body than its half diagonal misses it
    centres = centres[:, np.linalg.norm(centres - near, axis=0) <= np.linalg.norm(half) * (1 + 1e-9)]
    parts = np.array_split(centres, max(1, centres.shape[1] // _BLOCK), axis=1)
    values = np.concatenate([potential.value(part) for part in parts])
    slopes = np.zeros_like(centres)
    if math.isfinite(smoothness):
        slopes = np.concatenate([potential.gradient(part) for part in parts], axis=1)
    cells = EnvelopeCells(
        centres=centres, half=half, values=values, slopes=slopes, lipschitz=lipschitz, smoothness=smoothness
    )

    def propose(batch: int) -> tuple[Floats, Floats]:
        points, envelope = cells.propose(batch, rng)
        inside = body.contains(points)
        points = points[:, inside]
        return points, -potential.value(points) - envelope[inside] if inside.any() else np.empty(0)

    scale = float(np.abs(values).max()) + 1
    theta, proposals = rejection(propose, len(low), size, max_proposals, scale, rng)
    passes = Evaluations(values=centres.shape[1] + proposals, gradients=centres.shape[1])
    return Draws(theta=theta, proposals=proposals, evaluations=passes)
