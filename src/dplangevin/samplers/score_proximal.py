"""The proximal sampler of a flat score, with an exact oracle made for its kink.

    forward:   y ~ N(x, step_size I)
    backward:  x' ~ density proportional to exp(-H(V(x') - floor) - |x' - y|^2 / (2 step_size)) on the body

For every slope l in [0, 1] and every anchor a in the body, Fenchel's inequality for H and convexity of V give
H(u) >= l (u - x) - t l^2 / 2 and V(x') >= V(a) + <g, x' - a>: an affine minorant, whose Gaussian on the body is an
envelope. A subgradient of the score at a is the special case l in {0, 1} for the sharp threshold; near the wall of
the set a slope in between accepts far more often. Any choice of l and a is exact.
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.samplers._proposals import BackwardOracle, Columns, checked_start
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.log_concave import refuse_violation
from dplangevin.samplers.score import ScorePotential


def score_proximal(
    score: ScorePotential,
    body: Body,
    start: Floats,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
) -> Floats:
    """Run one independent chain per column of start for n_steps and return the last points.

    V must be convex on the body. Proposals are made until one is accepted: their number depends on the data, the number
    of steps does not.
    """
    eta, steps = _check.positive("step_size", step_size), _check.count("n_steps", n_steps)
    x = checked_start(start, body)
    oracle = _ScoreOracle(score, body, eta)
    for _ in _progress.progress(range(steps), "proximal steps"):
        x = oracle.draw(x + math.sqrt(eta) * rng.standard_normal(x.shape), rng)
    return x


class _ScoreOracle(BackwardOracle):
    """Affine envelopes. Anchors and slopes come from the past only, so they never bias a draw."""

    def __init__(self, score: ScorePotential, body: Body, step_size: float) -> None:
        super().__init__(body, step_size)
        self.score = score

    def _begin(self, y: Floats, pending: Columns) -> None:
        self.anchor = self.body.project(y)
        self.excess = np.zeros(y.shape[1])
        self.slope = np.zeros(y.shape[1])
        self.gradient = np.zeros(y.shape)
        self._tangent(y, pending)

    def _improve(self, y: Floats, pending: Columns) -> None:
        """Anchors to the mode of the envelope, for the chains outside the flat part."""
        columns = pending[self.slope[pending] > 0]
        if columns.size:
            pull = self.step_size * self.slope[columns] * self.gradient[:, columns]
            self.anchor[:, columns] = self.body.project(y[:, columns] - pull)
            self._tangent(y, columns)

    def _tangent(self, y: Floats, columns: Columns) -> None:
        """Value and gradient at the anchors, and the slope whose envelope has the largest minimum."""
        anchor = self.anchor[:, columns]
        self.excess[columns] = self.score.excess(anchor)
        near = (
            self.excess[columns] + self.score.inner.lipschitz * np.linalg.norm(y[:, columns] - anchor, axis=0)
            > 0
        )
        self.slope[columns] = 0.0
        columns = columns[near]
        if columns.size == 0:
            return
        anchor = self.anchor[:, columns]
        gradient = self.score.inner.gradient(anchor)
        self.gradient[:, columns] = gradient
        rise = self.excess[columns] + np.sum(gradient * (y[:, columns] - anchor), axis=0)
        curve = self.step_size * np.sum(gradient**2, axis=0) + self.score.ramp
        self.slope[columns] = np.clip(rise / np.maximum(curve, 1e-300), 0.0, 1.0)

    def _proposed(
        self, y: Floats, pending: Columns, columns: Columns, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        slope, anchor, gradient = self.slope[columns], self.anchor[:, columns], self.gradient[:, columns]
        x = self.body.gaussian(y[:, columns] / self.step_size - slope * gradient, 1 / self.step_size, rng)
        height = self.score.height(self.score.excess(x))
        rise = self.excess[columns] + np.sum(gradient * (x - anchor), axis=0)
        lower = np.where(slope > 0, slope * rise - self.score.ramp * slope**2 / 2, 0.0)
        refuse_violation(lower - height, np.full(1, self.score.floor))
        return x, height - lower
