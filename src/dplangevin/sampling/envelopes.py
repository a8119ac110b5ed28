"""Envelopes for exact draws: of logistic-type losses, and of scores that are flat near the minimum (Rashomon sets).

The bound: with H the Hessian of the data term at a point t and rows of norm at most B (intercept column included),
F(t + d) >= F(t) + <gradient, d> + d'(kappa(B |d|) H + m I) d / 2, kappa(r) = 2 (e^-r + r - 1) / r^2.
Reference: Bach (2010), Proposition 1.

The elliptical envelope has a Gaussian core and an exponential tail. At an anchor t with data Hessian H (of V, so
inverse temperature included), A = kappa0 H + ridge I and rho the A-norm of x - t: V(x) - V(t) - <g, x - t> is at
least rho^2 / 2 while rho <= s, provided kappa0 <= kappa(B s / sqrt(lambda_min(A))), and at least s rho / 2 beyond, by
convexity along rays. On the support |x - t| is at most D = max_distance, so kappa0 <= kappa(B D) is enough too. An
inexact anchor costs the factor exp(-D |g|), g the gradient of V there.

The active-ball envelope is for a minimiser on the sphere |theta| = R. With nu the outer normal at the anchor,
gradient of V equal to -strength nu (KKT), x = anchor - t nu + d and d tangent: the ball forces t >= t0 = R - sqrt(R^2
- |d|^2) >= |d|^2 / 2R, and V(x) - V(anchor) >= strength t + d'S d / 2 with S the Schur complement of kappa(2 B R) H +
ridge I on the tangent space. So d ~ N(0, (S + strength I / R)^-1), corrected for t0; t = t0 + Exp(strength); then the
usual correction.

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
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaincc, gammaln, logsumexp

from dplangevin import _check, _progress
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem.problem import Ball
from dplangevin.sampling.log_concave import (
    check_envelope,
    sample_gamma_above,
    sample_gamma_below,
    sample_unit_directions,
)
from dplangevin.sampling.potential import CountingPotential, Potential, SamplerOutput
from dplangevin.sampling.rejection import BackwardOracle, Columns, check_start, sample_by_rejection
from dplangevin.sampling.supports import ConvexSupport


class Anchor(NamedTuple):
    """A point [p] of the support, and the curvature of V there.

    Parameters
    ----------
    data_hessian, ridge : of V at this point: beta times the data term's Hessian, beta times the ridge.
    row_norm : largest norm of a row, intercept column included.
    """

    point: NDArray[np.float64]
    data_hessian: ArrayLike
    ridge: float
    row_norm: float


def self_concordance_ratio(distance: ArrayLike) -> NDArray[np.float64]:
    """Return kappa(r) = 2 (e^-r + r - 1) / r^2, which decreases from 1 at r = 0.

    Examples
    --------
    >>> self_concordance_ratio([0.0, 0.5, 1.0, 2.0, 4.0]).round(4).tolist()
    [1.0, 0.8522, 0.7358, 0.5677, 0.3773]
    """
    r = np.asarray(distance, float)
    safe = np.where(r < 1e-3, 1.0, r)
    exact = 2 * (np.expm1(-safe) + safe) / safe**2
    return np.asarray(np.where(r < 1e-3, 1 - r / 3 + r**2 / 12 - r**3 / 60, exact))


def logistic_curvature_bounds(gram: ArrayLike, row_norm: float, radius: float) -> tuple[float, float, float]:
    """Return (smallest, mean, largest) curvature of the mean logistic loss on |theta| <= radius, from gram = X'X / n.

    Scores stay within row_norm * radius, so the second derivative is between s(1 - s) at that score and 1/4. The mean
    is for planning only. These numbers depend on the data: they certify the data set they were computed from, but
    they are private, and so is everything computed from them.
    """
    values = np.linalg.eigvalsh(np.atleast_2d(np.asarray(gram, float)))
    score = _check.check_positive("row_norm", row_norm) * _check.check_positive("radius", radius)
    least = np.exp(-score) / (1 + np.exp(-score)) ** 2
    rounding = 1e-12 * float(values[-1])
    low = max(float(values[0]) - rounding, 0.0)
    return float(least) * low, float(values.mean()) / 4, (float(values[-1]) + rounding) / 4


@dataclass(frozen=True, kw_only=True)
class EllipticalEnvelope:
    """The envelope exp(-rho^2 / 2) for rho <= core, exp(-core rho / 2) beyond, rho the norm of values and vectors."""

    values: Floats
    vectors: Floats
    core: float
    shrinkage: float

    @property
    def log_masses(self) -> tuple[float, float]:
        """Logs of the integrals of the core and of the tail over R^p."""
        p, s = self.values.size, self.core
        volume = -0.5 * float(np.sum(np.log(self.values)))
        core = (
            volume + p / 2 * math.log(2 * math.pi) + _log_or_minus_infinity(float(gammainc(p / 2, s * s / 2)))
        )
        if math.isinf(s):
            return core, -math.inf
        sphere = math.log(2) + p / 2 * math.log(math.pi) - float(gammaln(p / 2))
        tail = (
            volume
            + sphere
            + p * math.log(2 / s)
            + float(gammaln(p))
            + _log_or_minus_infinity(float(gammaincc(p, s * s / 2)))
        )
        return core, tail

    @property
    def log_mass(self) -> float:
        """Log of the integral of the envelope; it bounds the target's, relative to its value at the anchor."""
        return float(logsumexp(self.log_masses))

    def sample(self, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw displacements [p, size], and return them with the log of the envelope there."""
        p, s = self.values.size, self.core
        core, tail = self.log_masses
        in_core = rng.random(size) < 1 / (1 + math.exp(min(tail - core, 700.0)))
        rho = np.empty(size)
        n_core = int(in_core.sum())
        top = s * s / 2 if math.isfinite(s) else math.inf
        rho[in_core] = np.sqrt(2 * sample_gamma_below(p / 2, np.full(n_core, top), rng))
        if n_core < size:
            rho[~in_core] = 2 / s * sample_gamma_above(p, s * s / 2, size - n_core, rng)
        directions = sample_unit_directions(p, size, rng) * rho
        height = np.where(in_core, -(rho**2) / 2, -(s if math.isfinite(s) else 0.0) * rho / 2)
        return self.vectors @ (directions / np.sqrt(self.values)[:, None]), height


def _log_or_minus_infinity(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def fit_envelope(
    data_hessian: ArrayLike, ridge: float, row_norm: float, max_distance: float = math.inf
) -> EllipticalEnvelope:
    """Return the envelope of smallest mass over the core radius s; the inequality for kappa0 is checked, not assumed.

    data_hessian and ridge are those of V (inverse temperature times those of F); max_distance bounds |x - anchor| on
    the support.
    """
    values, vectors = np.linalg.eigh(np.atleast_2d(np.asarray(data_hessian, float)))
    values = np.maximum(values, 0.0)
    ridge = _check.check_nonnegative("ridge", ridge)
    row_norm = _check.check_positive("row_norm", row_norm)
    if values[0] + ridge <= 0:
        raise AssumptionFailed(
            "the elliptical envelope needs positive curvature at the anchor; add a ridge or use the proximal sampler."
        )
    p = values.size
    far_shrinkage = (
        float(self_concordance_ratio(row_norm * max_distance)) if math.isfinite(max_distance) else 0.0
    )
    candidates = (
        [_make_envelope(values, vectors, ridge, math.inf, far_shrinkage)] if far_shrinkage > 0 else []
    )
    for s in np.sqrt(p) * np.geomspace(0.5, 6.0, 60):
        shrinkage = max(_find_shrinkage(values, ridge, row_norm, float(s)), far_shrinkage)
        candidates.append(_make_envelope(values, vectors, ridge, float(s), shrinkage))
    return min(candidates, key=lambda envelope: envelope.log_mass)


def _make_envelope(
    values: Floats, vectors: Floats, ridge: float, s: float, shrinkage: float
) -> EllipticalEnvelope:
    # so that rounding does not lift the quadratic above its bound
    safe_shrinkage = shrinkage * (1 - 1e-12)
    return EllipticalEnvelope(
        values=safe_shrinkage * values + ridge, vectors=vectors, core=s, shrinkage=safe_shrinkage
    )


def _find_shrinkage(values: Floats, ridge: float, row_norm: float, s: float) -> float:
    """Return a largest kappa0 with kappa0 <= kappa(row_norm s / sqrt(lambda_min(kappa0 H + ridge))), by iteration."""

    def max_shrinkage(shrinkage: float) -> float:
        return float(self_concordance_ratio(row_norm * s / math.sqrt(shrinkage * float(values[0]) + ridge)))

    current = 1.0
    for _ in range(200):
        next_value = max_shrinkage(current)
        if current - next_value <= 1e-10 * current:
            break
        current = next_value
        if current * values[0] + ridge <= 0:
            return 0.0
    current *= 1 - 1e-8
    while current > 0 and current > max_shrinkage(current):
        current *= 0.99
    return current


def sample_elliptical_envelope(
    potential: Potential,
    support: ConvexSupport,
    anchor: Anchor,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> SamplerOutput:
    """Return `size` exact independent draws of exp(-V) on the support.

    Parameters
    ----------
    anchor : at any point of the support; the minimiser has the largest acceptance.
    max_proposals : None loops until done. A limit N changes the law by sup over data sets of (1 - acceptance)^N.
    """
    counted = CountingPotential(potential)
    center = np.asarray(anchor.point, float)
    if center.shape != (support.dimension,) or not bool(support.contains(center[:, None])[0]):
        raise InvalidParameter(
            f"anchor must be {support.dimension} numbers inside the support; project it first."
        )
    max_distance = support.farthest_distance(center)
    slope = float(np.linalg.norm(counted.gradient(center[:, None])))
    if slope > 0 and math.isinf(max_distance):
        raise AssumptionFailed("on an unbounded set the anchor must be an exact minimiser; bound the set.")
    loss = max_distance * slope if slope > 0 else 0.0
    envelope = fit_envelope(anchor.data_hessian, anchor.ridge, anchor.row_norm, max_distance)
    base = float(counted.value(center[:, None])[0])

    def propose(batch: int) -> tuple[Floats, Floats]:
        shift, height = envelope.sample(batch, rng)
        x = center[:, None] + shift
        inside = support.contains(x)
        x = support.project(x[:, inside])
        return x, base - counted.value(x) - height[inside] - loss

    theta, proposals = sample_by_rejection(propose, support.dimension, size, max_proposals, base, rng)
    return SamplerOutput(theta=theta, evaluations=counted.count, n_proposals=proposals)


def sample_active_ball(
    potential: Potential,
    radius: float,
    anchor: Anchor,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> SamplerOutput:
    """Return `size` exact independent draws of exp(-V) on the ball.

    The anchor must have norm exactly `radius` and a gradient that points inwards; a remaining tangential gradient g_T
    reduces the acceptance by the factor exp(-radius |g_T|).
    """
    radius = _check.check_positive("radius", radius)
    counted = CountingPotential(potential)
    center = np.asarray(anchor.point, float)
    normal = center / np.linalg.norm(center)
    if abs(np.linalg.norm(center) - radius) > 1e-12 * radius:
        raise InvalidParameter(
            f"the anchor must have norm exactly {radius!r}, got {float(np.linalg.norm(center))!r}; rescale it, or use "
            "the elliptical envelope when the minimiser is inside the ball."
        )
    center = radius * normal
    gradient = counted.gradient(center[:, None])[:, 0]
    strength = -float(gradient @ normal)
    if strength <= 0:
        raise AssumptionFailed(
            "the negative gradient at the anchor does not point outwards, so the constraint is not active there; use "
            "the elliptical envelope or the proximal sampler."
        )
    leftover = radius * float(np.linalg.norm(gradient + strength * normal))
    hessian = float(self_concordance_ratio(2 * anchor.row_norm * radius)) * np.atleast_2d(
        np.asarray(anchor.data_hessian, float)
    )
    basis, curvature = _tangent_space(normal, hessian + anchor.ridge * np.eye(normal.size))
    base = float(counted.value(center[:, None])[0])

    def propose(batch: int) -> tuple[Floats, Floats]:
        d, t, quadratic = _propose_on_sphere(curvature, strength, radius, batch, rng)
        x = Ball(radius).project(center[:, None] - normal[:, None] * t + basis @ d)
        return x, base - counted.value(x) + strength * t + quadratic - leftover

    theta, proposals = sample_by_rejection(propose, normal.size, size, max_proposals, base, rng)
    return SamplerOutput(theta=theta, evaluations=counted.count, n_proposals=proposals)


def _tangent_space(normal: Floats, quadratic: Floats) -> tuple[Floats, Floats]:
    """Return an orthonormal basis of the tangent space and the Schur complement of the quadratic form on it."""
    full, _ = np.linalg.qr(np.column_stack([normal, np.eye(normal.size)]))
    basis = full[:, 1 : normal.size]
    cross = basis.T @ quadratic @ normal
    pivot = float(normal @ quadratic @ normal)
    # a zero pivot of a positive semidefinite form has zero cross terms
    correction = np.outer(cross, cross) / pivot if pivot > 0 else np.zeros((cross.size, cross.size))
    return basis, basis.T @ quadratic @ basis - correction


def _propose_on_sphere(
    curvature: Floats, strength: float, radius: float, size: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Return tangent displacements, depths and d'S d / 2 of the proposals accepted for the curvature of the ball."""
    values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(values, 0.0)
    d = vectors @ (rng.standard_normal((values.size, size)) / np.sqrt(values + strength / radius)[:, None])
    square = np.sum(d * d, axis=0)
    within = square <= radius**2
    d, square = d[:, within], square[within]
    nearest = square / (radius + np.sqrt(radius**2 - square))
    mask = rng.standard_exponential(square.size) >= strength * (nearest - square / (2 * radius))
    d, square, nearest = d[:, mask], square[mask], nearest[mask]
    t = nearest + rng.standard_exponential(square.size) / strength
    inside = (radius - t) ** 2 + square <= radius**2
    d, t = d[:, inside], t[inside]
    quadratic = 0.5 * np.sum((np.sqrt(values)[:, None] * (vectors.T @ d)) ** 2, axis=0)
    return d, t, quadratic


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
