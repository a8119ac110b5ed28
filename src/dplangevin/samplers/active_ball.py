"""Exact draws for logistic-type losses whose minimiser lies on the sphere |theta| = R.

With nu the outer normal at the anchor, gradient of V equal to -strength nu (KKT), x = anchor - t nu + d
and d tangent: the ball forces t >= t0 = R - sqrt(R^2 - |d|^2) >= |d|^2 / 2R, and V(x) - V(anchor) >=
strength t + d'S d / 2 with S the Schur complement of kappa(2 B R) H + ridge I on the tangent space. So d ~
N(0, (S + strength I / R)^-1), corrected for t0; t = t0 + Exp(strength); then the usual correction.
"""

from __future__ import annotations

import numpy as np

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.problem.constraints import Ball
from dplangevin.samplers.potential import Counted, Draws, Potential
from dplangevin.samplers.rejection import rejection
from dplangevin.samplers.self_concordance import Anchor, kappa


def active_ball(
    potential: Potential,
    radius: float,
    anchor: Anchor,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> Draws:
    """`size` exact independent draws of exp(-V) on the ball.

    The anchor must have norm exactly `radius` and a gradient that points inwards; whatever tangential gradient g_T is
    left over is paid for with the factor exp(-radius |g_T|) in the acceptance.
    """
    radius = _check.positive("radius", radius)
    counted = Counted(potential)
    centre = np.asarray(anchor.point, float)
    normal = centre / np.linalg.norm(centre)
    if abs(np.linalg.norm(centre) - radius) > 1e-12 * radius:
        raise InvalidParameter(
            f"the anchor must have norm exactly {radius!r}, got {float(np.linalg.norm(centre))!r}; rescale it, or use "
            "the elliptical envelope when the minimiser is inside the ball."
        )
    centre = radius * normal
    gradient = counted.gradient(centre[:, None])[:, 0]
    strength = -float(gradient @ normal)
    if strength <= 0:
        raise AssumptionFailed(
            "the gradient at the anchor does not push outwards, so the constraint is not active there; use the "
            "elliptical envelope or the proximal sampler."
        )
    leftover = radius * float(np.linalg.norm(gradient + strength * normal))
    hessian = float(kappa(2 * anchor.row_norm * radius)) * np.atleast_2d(
        np.asarray(anchor.data_hessian, float)
    )
    basis, curvature = _tangent(normal, hessian + anchor.ridge * np.eye(normal.size))
    base = float(counted.value(centre[:, None])[0])

    def propose(batch: int) -> tuple[Floats, Floats]:
        d, t, bend = _propose(curvature, strength, radius, batch, rng)
        x = Ball(radius).project(centre[:, None] - normal[:, None] * t + basis @ d)
        return x, base - counted.value(x) + strength * t + bend - leftover

    theta, proposals = rejection(propose, normal.size, size, max_proposals, base, rng)
    return Draws(theta=theta, evaluations=counted.count, proposals=proposals)


def _tangent(normal: Floats, quadratic: Floats) -> tuple[Floats, Floats]:
    """An orthonormal basis of the tangent space and the Schur complement of the quadratic form on it."""
    full, _ = np.linalg.qr(np.column_stack([normal, np.eye(normal.size)]))
    basis = full[:, 1 : normal.size]
    cross = basis.T @ quadratic @ normal
    pivot = float(normal @ quadratic @ normal)
    # a zero pivot of a positive semidefinite form has zero cross terms
    correction = np.outer(cross, cross) / pivot if pivot > 0 else np.zeros((cross.size, cross.size))
    return basis, basis.T @ quadratic @ basis - correction


def _propose(
    curvature: Floats, strength: float, radius: float, size: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Tangent displacements, depths and d'S d / 2 of the proposals that survive the curvature of the ball."""
    values, vectors = np.linalg.eigh(curvature)
    values = np.maximum(values, 0.0)
    d = vectors @ (rng.standard_normal((values.size, size)) / np.sqrt(values + strength / radius)[:, None])
    square = np.sum(d * d, axis=0)
    within = square <= radius**2
    d, square = d[:, within], square[within]
    nearest = square / (radius + np.sqrt(radius**2 - square))
    kept = rng.standard_exponential(square.size) >= strength * (nearest - square / (2 * radius))
    d, square, nearest = d[:, kept], square[kept], nearest[kept]
    t = nearest + rng.standard_exponential(square.size) / strength
    inside = (radius - t) ** 2 + square <= radius**2
    d, t = d[:, inside], t[inside]
    bend = 0.5 * np.sum((np.sqrt(values)[:, None] * (vectors.T @ d)) ** 2, axis=0)
    return d, t, bend
