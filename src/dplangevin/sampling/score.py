"""Scores H(V - floor) that are flat near the minimum, for Rashomon sets, and samplers of their laws.

Everything is in units of V = beta F. With x = beta psi and t = beta tau, H(u) = 0 for u <= x, (u - x)^2 / (2 t) up to
u = x + t, then u - x - t/2; t = 0 is the sharp threshold max(u - x, 0). H is convex, nondecreasing and 1-Lipschitz,
so the score is convex where V is, though neither smooth (t = 0) nor strongly convex.

The proximal sampler has an exact oracle made for the kink:

    forward:   y ~ N(x, step_size I)
    backward:  x' ~ density proportional to exp(-H(V(x') - floor) - |x' - y|^2 / (2 step_size)) on the support

For every slope l in [0, 1] and every anchor a of the support, Fenchel's inequality for H and convexity of V give H(u)
>= l (u - x) - t l^2 / 2 and V(x') >= V(a) + <g, x' - a>: an affine minorant, whose Gaussian on the support is an
envelope. A subgradient of the score at a is the special case l in {0, 1} for the sharp threshold; near the boundary
of the set a slope in between accepts far more often. Any choice of l and a is exact.

The exact sampler for logistic-type losses rejects from an ellipsoid with a flat core. The elliptical envelope E(rho)
of V (rho^2 / 2 up to s, s rho / 2 beyond) bounds V - floor + loss from below, where loss bounds <gradient, anchor -
x> over the support (0 at an exact minimiser, on the boundary or not). So H(V - floor) >= max(E - x, 0) with x = beta
(psi + tau/2) + loss: the flat part is an ellipsoid of radius rho_0, E(rho_0) = x, followed by the rest of the
Gaussian core and the tail.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.sampling.log_concave import (
    check_envelope,
    sample_gamma_above,
    sample_gamma_below,
    sample_unit_directions,
)
from dplangevin.sampling.logistic_envelope import (
    Anchor,
    EllipticalEnvelope,
    _log_or_minus_infinity,
    fit_envelope,
)
from dplangevin.sampling.potential import Potential
from dplangevin.sampling.proximal import BackwardOracle, Columns, check_start
from dplangevin.sampling.rejection import sample_by_rejection
from dplangevin.sampling.supports import ConvexSupport


class ScorePotential:
    """The score H(V - floor), with floor = V at the computed minimiser. Values and gradients are private.

    With a cap, chains sample the law on the convex set {V - floor <= threshold + cap}, whose diameter is small.

    Examples
    --------
    >>> from dplangevin.sampling.potential import FunctionPotential
    >>> square = FunctionPotential(value_function=lambda x: x[0] ** 2, gradient_function=lambda x: 2 * x,
    ...                            smoothness=2.0)
    >>> score = ScorePotential(square, floor=0.0, threshold=1.0)
    >>> score.value(np.array([[0.5, 2.0]])).tolist(), score.gradient(np.array([[0.5, 2.0]])).tolist()
    ([0.0, 3.0], [[0.0, 4.0]])
    """

    def __init__(
        self, inner: Potential, floor: float, threshold: float, ramp: float = 0.0, cap: float = math.inf
    ) -> None:
        self.inner, self.floor, self.cap = inner, float(floor), cap
        self.threshold = _check.check_nonnegative("threshold", threshold)
        self.ramp = _check.check_nonnegative("ramp", ramp)

    @property
    def smoothness(self) -> float:
        return self.inner.smoothness + self.inner.lipschitz**2 / self.ramp if self.ramp > 0 else math.inf

    @property
    def strong_convexity(self) -> float:
        return 0.0

    @property
    def lipschitz(self) -> float:
        return self.inner.lipschitz

    def excess_value(self, theta: Floats) -> Floats:
        """Return u - x = V - floor - threshold at every column."""
        return np.asarray(self.inner.value(theta) - self.floor - self.threshold)

    def flat_score(self, excess: Floats) -> Floats:
        """Return H as a function of u - x."""
        above = np.maximum(excess, 0.0)
        if self.ramp == 0:
            return above
        return np.asarray(np.where(above <= self.ramp, above**2 / (2 * self.ramp), above - self.ramp / 2))

    def flat_slope(self, excess: Floats) -> Floats:
        """Return H' as a function of u - x, in [0, 1]; a subgradient at the kink."""
        if self.ramp == 0:
            return (excess > 0).astype(float)
        return np.clip(excess / self.ramp, 0.0, 1.0)

    def value(self, theta: Floats) -> Floats:
        """Return H at every column: [p, k] -> [k]."""
        return self.flat_score(self.excess_value(theta))

    def gradient(self, theta: Floats) -> Floats:
        """Return H' grad V at every column; grad V is evaluated only where H' is not 0."""
        slope = self.flat_slope(self.excess_value(theta))
        result = np.zeros(theta.shape)
        outside = slope > 0
        if np.any(outside):
            result[:, outside] = slope[outside] * self.inner.gradient(theta[:, outside])
        return result


def run_score_chain(
    score: ScorePotential,
    support: ConvexSupport,
    start: Floats,
    step_size: float,
    n_steps: int,
    rng: np.random.Generator,
) -> Floats:
    """Run one independent chain per column of start for n_steps and return the last points.

    V must be convex on the support. Each step draws proposals until one is accepted: their number depends on the
    data, the number of steps does not.
    """
    eta, steps = _check.check_positive("step_size", step_size), _check.check_count("n_steps", n_steps)
    x = check_start(start, support)
    oracle = _ScoreOracle(score, support, eta)
    for _ in _progress.iterate_with_progress(range(steps), "proximal steps"):
        x = oracle.sample(x + math.sqrt(eta) * rng.standard_normal(x.shape), rng)
    return x


class _ScoreOracle(BackwardOracle):
    """Affine envelopes. Anchors and slopes come from the past only, so they never bias a draw."""

    def __init__(self, score: ScorePotential, support: ConvexSupport, step_size: float) -> None:
        super().__init__(support, step_size)
        self.score = score

    def _place_envelopes(self, y: Floats, pending: Columns) -> None:
        self.anchor = self.support.project(y)
        self.excess = np.zeros(y.shape[1])
        self.slope = np.zeros(y.shape[1])
        self.gradient = np.zeros(y.shape)
        self._update_tangents(y, pending)

    def _improve_envelopes(self, y: Floats, pending: Columns) -> None:
        """Move the anchors to the mode of the envelope, for the chains outside the flat part."""
        columns = pending[self.slope[pending] > 0]
        if columns.size:
            pull = self.step_size * self.slope[columns] * self.gradient[:, columns]
            self.anchor[:, columns] = self.support.project(y[:, columns] - pull)
            self._update_tangents(y, columns)

    def _update_tangents(self, y: Floats, columns: Columns) -> None:
        """Compute value and gradient at the anchors, and the slope whose envelope has the largest minimum."""
        anchor = self.anchor[:, columns]
        self.excess[columns] = self.score.excess_value(anchor)
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

    def _sample_proposals(
        self, y: Floats, pending: Columns, columns: Columns, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        slope, anchor, gradient = self.slope[columns], self.anchor[:, columns], self.gradient[:, columns]
        x = self.support.sample_gaussian(
            y[:, columns] / self.step_size - slope * gradient, 1 / self.step_size, rng
        )
        excess = self.score.excess_value(x)
        height = np.where(excess <= self.score.cap, self.score.flat_score(excess), np.inf)
        rise = self.excess[columns] + np.sum(gradient * (x - anchor), axis=0)
        lower = np.where(slope > 0, slope * rise - self.score.ramp * slope**2 / 2, 0.0)
        check_envelope(lower - height, np.full(1, self.score.floor))
        return x, height - lower


MAX_SCORE_LEVEL = 600.0
"""Maximum of beta (psi + tau/2) for which double precision represents the masses of the envelope's parts."""


def sample_score_envelope(
    score: ScorePotential,
    support: ConvexSupport,
    anchor: Anchor,
    size: int,
    rng: np.random.Generator,
) -> Floats:
    """Return `size` exact independent draws of exp(-score) on the support.

    anchor : at the point of the support where score.floor was computed.
    """
    center = np.asarray(anchor.point, float)
    if center.shape != (support.dimension,) or not bool(support.contains(center[:, None])[0]):
        raise InvalidParameter(
            f"anchor must be {support.dimension} numbers inside the support; project it first."
        )
    loss = support.frank_wolfe_gap(center, score.inner.gradient(center[:, None])[:, 0])
    level = score.threshold + score.ramp / 2 + loss
    if not level <= 1.1 * MAX_SCORE_LEVEL:
        raise AssumptionFailed(
            f"exact draws need beta psi of at most {MAX_SCORE_LEVEL:g} at a minimiser; use tier='certified' or 'pure'."
        )
    fitted = fit_envelope(
        anchor.data_hessian, anchor.ridge, anchor.row_norm, support.farthest_distance(center)
    )
    envelope = FlatEnvelope(fitted, level)

    def propose(batch: int) -> tuple[Floats, Floats]:
        shift, height = envelope.sample(batch, rng)
        x = center[:, None] + shift
        inside = support.contains(x)
        x = support.project(x[:, inside])
        return x, -score.value(x) - height[inside]

    return sample_by_rejection(propose, support.dimension, size, None, abs(score.floor), rng)[0]


class FlatEnvelope:
    """The envelope exp(-max(E(rho) - level, 0)), rho the norm of the elliptical envelope E."""

    def __init__(self, envelope: EllipticalEnvelope, level: float) -> None:
        self.envelope, self.level = envelope, level
        s = envelope.core
        inner = math.sqrt(2 * level)
        self.flat_radius = inner if inner <= s else 2 * level / s

    def log_masses(self) -> tuple[float, float, float]:
        """Return the log radial masses of the flat part, the Gaussian part and the tail (same volume factor)."""
        p, s, x = self.envelope.values.size, self.envelope.core, self.level
        flat = p * math.log(self.flat_radius) - math.log(p) if self.flat_radius > 0 else -math.inf
        core = tail = -math.inf
        if self.flat_radius < s:
            high = float(gammainc(p / 2, s * s / 2)) if math.isfinite(s) else 1.0
            low, above = float(gammainc(p / 2, x)), float(gammaincc(p / 2, x))
            top = float(gammaincc(p / 2, s * s / 2)) if math.isfinite(s) else 0.0
            mass = high - low if x < p / 2 else above - top  # the difference without cancellation
            core = x + (p / 2 - 1) * math.log(2) + float(gammaln(p / 2)) + _log_or_minus_infinity(mass)
        if math.isfinite(s):
            rest = float(gammaincc(p, s * max(s, self.flat_radius) / 2))
            tail = x + p * math.log(2 / s) + float(gammaln(p)) + _log_or_minus_infinity(rest)
        return flat, core, tail

    def sample(self, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw displacements [p, size], and return them with the log of the envelope there."""
        p, s = self.envelope.values.size, self.envelope.core
        logs = np.array(self.log_masses())
        weights = np.exp(logs - logs.max())
        part = rng.choice(3, size, p=weights / weights.sum())
        rho = np.empty(size)
        counts = [int(np.sum(part == i)) for i in range(3)]
        rho[part == 0] = self.flat_radius * rng.random(counts[0]) ** (1 / p)
        rho[part == 1] = self._sample_core(counts[1], rng)
        if counts[2]:
            rho[part == 2] = 2 / s * sample_gamma_above(p, s * max(s, self.flat_radius) / 2, counts[2], rng)
        energy = np.where(rho <= s, rho**2 / 2, (s if math.isfinite(s) else 0.0) * rho / 2)
        direction = sample_unit_directions(p, size, rng) * rho
        displacement = self.envelope.vectors @ (direction / np.sqrt(self.envelope.values)[:, None])
        return displacement, -np.maximum(energy - self.level, 0.0)

    def _sample_core(self, size: int, rng: np.random.Generator) -> Floats:
        """Draw chi with p degrees of freedom between the flat part and s, by rejection from the closer side."""
        p, s = self.envelope.values.size, self.envelope.core
        bottom, top = self.level, (s * s / 2 if math.isfinite(s) else math.inf)
        result, filled = np.empty(size), 0
        while filled < size:
            if bottom > p / 2 >= 1:
                g = sample_gamma_above(p / 2, bottom, size - filled, rng)
            else:
                g = sample_gamma_below(p / 2, np.full(size - filled, top), rng)
            accepted = g[(g >= bottom) & (g <= top)]
            result[filled : filled + accepted.size] = accepted
            filled += accepted.size
        return np.sqrt(2 * result)
