"""The proximal sampler with an exact oracle: no discretisation bias, and a rate with explicit constants.

    forward:   y ~ N(x, step_size I)
    backward:  x' ~ density proportional to exp(-V(x') - |x' - y|^2 / (2 step_size)) on the body

Both are conditionals of one joint law, so exp(-V) is stationary whatever the step size. The backward draw
is exact: for any anchor a in the body, V(x) >= V(a) + <g, x - a> + m |x - a|^2 / 2, which makes an
isotropic Gaussian on the body an envelope. What the chain's output may claim is in `proximal_certificate`;
nothing is claimed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dplangevin import _check
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.log_concave import refuse_violation
from dplangevin.samplers.potential import Counted, Draws, Potential

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]
_LARGEST_BLOCK = 64


def proximal(
    potential: Potential,
    body: Body,
    start: Floats,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Draws:
    """Run one independent chain per column of start for n_steps and return the last points.

    The potential must be convex on the body with its stated strong_convexity. Proposals are made until one is
    accepted: their number depends on the data, the number of steps does not.
    """
    step_size, n_steps = _check.positive("step_size", step_size), _check.count("n_steps", n_steps)
    x = np.array(start, float)
    if x.ndim != 2 or x.shape[0] != body.dimension or not np.all(body.contains(x)):
        raise InvalidParameter(
            f"start must be [{body.dimension}, k] points inside the body; project them first."
        )
    counted = Counted(potential)
    oracle = _Oracle(counted, body, step_size, x)
    for step in range(n_steps):
        y = x + math.sqrt(step_size) * rng.standard_normal(x.shape)
        x = oracle.draw(y, rng)
        if progress is not None:
            progress(step + 1, n_steps)
    return Draws(theta=x, evaluations=counted.count, proposals=oracle.proposals)


class _Oracle:
    """Exact backward draws. Anchors and block sizes come from the past only, so they never bias a draw."""

    def __init__(self, potential: Counted, body: Body, step_size: float, start: Floats) -> None:
        self.potential, self.body, self.step_size = potential, body, step_size
        self.curvature = potential.strong_convexity
        self.precision = 1 / step_size + self.curvature
        self.anchor = start
        self.gradient = potential.gradient(start)
        self.proposals = self.accepted = 0

    def draw(self, y: Floats, rng: np.random.Generator) -> Floats:
        linear = y / self.step_size
        # Last step's gradient is close enough to place the anchor near the mode: one gradient per step.
        guess = linear - self.gradient + self.curvature * self.anchor
        self.anchor = self.body.project(guess / self.precision)
        self.gradient = self.potential.gradient(self.anchor)
        linear = linear - self.gradient + self.curvature * self.anchor
        result = np.empty_like(y)
        pending = np.arange(y.shape[1])
        height = np.full(y.shape[1], np.nan)
        while pending.size:
            chosen, found, height = self._propose(linear, pending, height, rng)
            result[:, pending[found]] = chosen[:, found]
            pending = pending[~found]
        return result

    def _propose(
        self, linear: Floats, pending: NDArray[np.intp], height: Floats, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.bool_], Floats]:
        """One block of proposals per pending chain; the first accepted one of each."""
        block = self._block(pending.size)
        columns = np.repeat(pending, block)
        x = self.body.gaussian(linear[:, columns], self.precision, rng)
        if np.isnan(height[pending[0]]):
            # the anchors' values ride along with the first block of proposals
            values = self.potential.value(np.concatenate([self.anchor, x], axis=1))
            height, values = values[: height.size], values[height.size :]
        else:
            values = self.potential.value(x)
        move = x - self.anchor[:, columns]
        lower = height[columns] + np.sum(
            (self.gradient[:, columns] + 0.5 * self.curvature * move) * move, axis=0
        )
        refuse_violation(lower - values, values)
        kept = (rng.standard_exponential(columns.size) >= values - lower).reshape(pending.size, block)
        first = np.argmax(kept, axis=1)
        found = kept[np.arange(pending.size), first]
        self.proposals += int(np.sum(np.where(found, first + 1, block)))
        self.accepted += int(np.sum(found))
        return x.reshape(x.shape[0], pending.size, block)[:, np.arange(pending.size), first], found, height

    def _block(self, chains: int) -> int:
        """Enough proposals for one acceptance in a single matrix product, for few chains."""
        if chains * 4 > _LARGEST_BLOCK:
            return 1
        rate = (self.accepted + 1) / (self.proposals + 2)
        return int(min(max(1, math.ceil(1.2 / rate)), _LARGEST_BLOCK // chains))
