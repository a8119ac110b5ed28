"""Scores that are flat near the minimum: H(V - floor) with a threshold or a ramp, for laws of Rashomon sets, and the
proximal sampler of these laws, with an exact oracle made for their kink.

Everything is in units of V = beta F. With x = beta psi and t = beta tau, H(u) = 0 for u <= x, (u - x)^2 / (2 t) up to
u = x + t, then u - x - t/2; t = 0 is the sharp threshold max(u - x, 0). H is convex, nondecreasing and 1-Lipschitz, so
the score is convex where V is, though neither smooth (t = 0) nor strongly convex.

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
from dplangevin.samplers.potential import Potential


class ScorePotential:
    """H(V - floor), floor = V at the computed minimiser. Values and gradients are private.

    Examples
    --------
    >>> from dplangevin.samplers.potential import FunctionPotential
    >>> square = FunctionPotential(value_function=lambda x: x[0] ** 2, gradient_function=lambda x: 2 * x,
    ...                            smoothness=2.0)
    >>> score = ScorePotential(square, floor=0.0, threshold=1.0)
    >>> score.value(np.array([[0.5, 2.0]])).tolist(), score.gradient(np.array([[0.5, 2.0]])).tolist()
    ([0.0, 3.0], [[0.0, 4.0]])
    """

    def __init__(self, inner: Potential, floor: float, threshold: float, ramp: float = 0.0) -> None:
        self.inner, self.floor = inner, float(floor)
        self.threshold = _check.nonnegative("threshold", threshold)
        self.ramp = _check.nonnegative("ramp", ramp)

    @property
    def smoothness(self) -> float:
        return self.inner.smoothness + self.inner.lipschitz**2 / self.ramp if self.ramp > 0 else math.inf

    @property
    def strong_convexity(self) -> float:
        return 0.0

    @property
    def lipschitz(self) -> float:
        return self.inner.lipschitz

    def excess(self, theta: Floats) -> Floats:
        """u - x = V - floor - threshold at every column."""
        return np.asarray(self.inner.value(theta) - self.floor - self.threshold)

    def height(self, excess: Floats) -> Floats:
        """H as a function of u - x."""
        above = np.maximum(excess, 0.0)
        if self.ramp == 0:
            return above
        return np.asarray(np.where(above <= self.ramp, above**2 / (2 * self.ramp), above - self.ramp / 2))

    def slope(self, excess: Floats) -> Floats:
        """H' as a function of u - x, in [0, 1]; a subgradient at the kink."""
        if self.ramp == 0:
            return (excess > 0).astype(float)
        return np.clip(excess / self.ramp, 0.0, 1.0)

    def value(self, theta: Floats) -> Floats:
        """H at every column: [p, k] -> [k]."""
        return self.height(self.excess(theta))

    def gradient(self, theta: Floats) -> Floats:
        """H' grad V at every column; grad V is asked only where H' is not 0."""
        slope = self.slope(self.excess(theta))
        result = np.zeros(theta.shape)
        outside = slope > 0
        if np.any(outside):
            result[:, outside] = slope[outside] * self.inner.gradient(theta[:, outside])
        return result


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
