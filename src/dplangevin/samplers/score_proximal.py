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
from numpy.typing import NDArray

from dplangevin import _check, _progress
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.log_concave import refuse_violation
from dplangevin.samplers.score import ScorePotential

Floats = NDArray[np.float64]
Columns = NDArray[np.intp]
_LARGEST_BLOCK = 64


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
    x = np.array(start, float)
    if x.ndim != 2 or x.shape[0] != body.dimension or not np.all(body.contains(x)):
        raise InvalidParameter(
            f"start must be [{body.dimension}, k] points inside the body; project them first."
        )
    oracle = _ScoreOracle(score, body, eta)
    for _ in _progress.progress(range(steps), "proximal steps"):
        x = oracle.draw(x + math.sqrt(eta) * rng.standard_normal(x.shape), rng)
    return x


class _ScoreOracle:
    """Exact backward draws. Anchors, slopes and block sizes come from the past only, so they never bias a draw."""

    def __init__(self, score: ScorePotential, body: Body, step_size: float) -> None:
        self.score, self.body, self.step_size = score, body, step_size
        self.proposals = self.accepted = 0

    def draw(self, y: Floats, rng: np.random.Generator) -> Floats:
        """One exact draw of the backward law at each column of y."""
        self.anchor = self.body.project(y)
        self.excess = np.zeros(y.shape[1])
        self.slope = np.zeros(y.shape[1])
        self.gradient = np.zeros(y.shape)
        pending, result = np.arange(y.shape[1]), np.empty_like(y)
        self._tangent(y, pending)
        while True:
            chosen, accepted = self._propose(y, pending, rng)
            result[:, pending[accepted]] = chosen[:, accepted]
            pending = pending[~accepted]
            if pending.size == 0:
                return result
            self._move_anchor(y, pending)

    def _move_anchor(self, y: Floats, columns: Columns) -> None:
        """To the mode of the envelope, for the chains outside the flat part."""
        columns = columns[self.slope[columns] > 0]
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

    def _propose(
        self, y: Floats, pending: Columns, rng: np.random.Generator
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """One block of proposals per pending chain; the first accepted one of each."""
        block = self._block(pending.size)
        columns = np.repeat(pending, block)
        slope, anchor, gradient = self.slope[columns], self.anchor[:, columns], self.gradient[:, columns]
        x = self.body.gaussian(y[:, columns] / self.step_size - slope * gradient, 1 / self.step_size, rng)
        height = self.score.height(self.score.excess(x))
        rise = self.excess[columns] + np.sum(gradient * (x - anchor), axis=0)
        lower = np.where(slope > 0, slope * rise - self.score.ramp * slope**2 / 2, 0.0)
        refuse_violation(lower - height, np.full(1, self.score.floor))
        kept = (rng.standard_exponential(columns.size) >= height - lower).reshape(pending.size, block)
        first = np.argmax(kept, axis=1)
        accepted = kept[np.arange(pending.size), first]
        self.proposals += int(np.sum(np.where(accepted, first + 1, block)))
        self.accepted += int(np.sum(accepted))
        return x.reshape(x.shape[0], pending.size, block)[:, np.arange(pending.size), first], accepted

    def _block(self, chains: int) -> int:
        """Enough proposals for one acceptance in a single matrix product, for few chains."""
        if chains * 4 > _LARGEST_BLOCK:
            return 1
        rate = (self.accepted + 1) / (self.proposals + 2)
        return int(min(max(1, math.ceil(1.2 / rate)), _LARGEST_BLOCK // chains))
