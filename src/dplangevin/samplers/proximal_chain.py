"""The proximal sampler with an exact oracle: no discretisation bias, and a rate with explicit constants.

    forward:   y ~ N(x, step_size I)
    backward:  x' ~ density proportional to exp(-V(x') - |x' - y|^2 / (2 step_size)) on the body

Both are conditionals of one joint law, so exp(-V) is stationary whatever the step size. The backward draw
is exact: for any anchor a in the body, V(x) >= V(a) + <g, x - a> + m |x - a|^2 / 2, which makes an
isotropic Gaussian on the body an envelope. What the chain's output may claim is in
`privacy.proximal_certificate`; nothing is claimed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.samplers._proposals import BackwardOracle, Columns, checked_start
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.log_concave import refuse_violation
from dplangevin.samplers.potential import Counted, Draws, Potential

Progress = Callable[[int, int], None]


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
    x = checked_start(start, body)
    counted = Counted(potential)
    oracle = _Oracle(counted, body, step_size, x)
    done: int
    for done in _progress.progress(range(1, n_steps + 1), "proximal steps"):
        y = x + math.sqrt(step_size) * rng.standard_normal(x.shape)
        x = oracle.draw(y, rng)
        if progress is not None:
            progress(done, n_steps)
    return Draws(theta=x, evaluations=counted.count, proposals=oracle.proposals)


class _Oracle(BackwardOracle):
    """Envelopes from the tangent at an anchor. Anchors come from the past only, so they never bias a draw."""

    def __init__(self, potential: Counted, body: Body, step_size: float, start: Floats) -> None:
        super().__init__(body, step_size)
        self.potential = potential
        self.curvature = potential.strong_convexity
        self.precision = 1 / step_size + self.curvature
        self.anchor = start
        self.gradient = potential.gradient(start)
        self.height = np.empty(start.shape[1])

    def _begin(self, y: Floats, pending: Columns) -> None:
        # Last step's gradient usually places the anchor near the mode: one gradient per step.
        guess = y / self.step_size - self.gradient + self.curvature * self.anchor
        self.anchor = self.body.project(guess / self.precision)
        self.gradient = self.potential.gradient(self.anchor)
        self.height = np.full(y.shape[1], np.nan)
        self._refine(y, pending, allowed=10.0, n_steps=20)

    def _improve(self, y: Floats, pending: Columns) -> None:
        self._refine(y, pending, allowed=0.5, n_steps=4)

    def _refine(self, y: Floats, columns: Columns, allowed: float, n_steps: int) -> None:
        """Proximal gradient steps for the anchors that cost more than `allowed` in log acceptance."""
        if math.isinf(self.potential.smoothness):
            return
        step = 1 / (self.potential.smoothness + 1 / self.step_size)
        for _ in range(n_steps):
            anchor = self.anchor[:, columns]
            slope = self.gradient[:, columns] + (anchor - y[:, columns]) / self.step_size
            moved = self.body.project(anchor - step * slope)
            offset = np.linalg.norm(moved - anchor, axis=0) / (step * self.precision)
            far = self.potential.smoothness * offset**2 / 2 > allowed
            if not np.any(far):
                return
            columns = columns[far]
            self.anchor[:, columns] = moved[:, far]
            self.gradient[:, columns] = self.potential.gradient(moved[:, far])
            self.height[columns] = np.nan

    def _proposed(
        self, y: Floats, pending: Columns, columns: Columns, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        anchor, gradient = self.anchor[:, columns], self.gradient[:, columns]
        linear = y[:, columns] / self.step_size - gradient + self.curvature * anchor
        x = self.body.gaussian(linear, self.precision, rng)
        # unknown values at anchors ride along with the proposals
        unknown = pending[np.isnan(self.height[pending])]
        values = self.potential.value(np.concatenate([self.anchor[:, unknown], x], axis=1))
        self.height[unknown], values = values[: unknown.size], values[unknown.size :]
        move = x - anchor
        lower = self.height[columns] + np.sum((gradient + 0.5 * self.curvature * move) * move, axis=0)
        refuse_violation(lower - values, values)
        return x, values - lower
