"""Exact draws for logistic-type losses, by rejection from envelopes that a quadratic lower bound provides.

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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaincc, gammaln, logsumexp

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem.constraints import Ball
from dplangevin.sampling.log_concave import sample_gamma_above, sample_gamma_below, sample_unit_directions
from dplangevin.sampling.potential import CountingPotential, Potential, SamplerOutput
from dplangevin.sampling.rejection import sample_by_rejection
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
