"""Exact draws for logistic-type losses: rejection from an ellipsoid with Gaussian core and exponential tail.

At an anchor t with data Hessian H (of V, so inverse temperature included), A = kappa0 H + ridge I and rho the
A-norm of x - t: V(x) - V(t) - <g, x - t> is at least rho^2 / 2 while rho <= s, provided
kappa0 <= kappa(B s / sqrt(lambda_min(A))), and at least s rho / 2 beyond, by convexity along rays. Inside the body
|x - t| is at most `reach`, so kappa0 <= kappa(B reach) is enough too. An inexact anchor costs the factor
exp(-reach |g|), g the gradient of V there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammainc, gammaincc, gammaln, logsumexp

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.potential import Counted, Draws, Potential
from dplangevin.samplers.rejection import rejection
from dplangevin.samplers.self_concordance import Anchor, kappa
from dplangevin.samplers.truncated import gamma_above, gamma_below, unit_directions


@dataclass(frozen=True, kw_only=True)
class EllipticalEnvelope:
    """exp(-rho^2 / 2) for rho <= core, exp(-core rho / 2) beyond; rho the norm given by values and vectors."""

    values: Floats
    vectors: Floats
    core: float
    shrinkage: float

    @property
    def log_masses(self) -> tuple[float, float]:
        """log of the integral of the core and of the tail over R^p."""
        p, s = self.values.size, self.core
        volume = -0.5 * float(np.sum(np.log(self.values)))
        core = volume + p / 2 * math.log(2 * math.pi) + _log(float(gammainc(p / 2, s * s / 2)))
        if math.isinf(s):
            return core, -math.inf
        sphere = math.log(2) + p / 2 * math.log(math.pi) - float(gammaln(p / 2))
        tail = (
            volume + sphere + p * math.log(2 / s) + float(gammaln(p)) + _log(float(gammaincc(p, s * s / 2)))
        )
        return core, tail

    @property
    def log_mass(self) -> float:
        """log of the integral of the envelope: an upper bound of the target's, relative to its value at the anchor."""
        return float(logsumexp(self.log_masses))

    def draw(self, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Displacements [p, size] and log of the envelope there."""
        p, s = self.values.size, self.core
        core, tail = self.log_masses
        in_core = rng.random(size) < 1 / (1 + math.exp(min(tail - core, 700.0)))
        rho = np.empty(size)
        n_core = int(in_core.sum())
        top = s * s / 2 if math.isfinite(s) else math.inf
        rho[in_core] = np.sqrt(2 * gamma_below(p / 2, np.full(n_core, top), rng))
        if n_core < size:
            rho[~in_core] = 2 / s * gamma_above(p, s * s / 2, size - n_core, rng)
        directions = unit_directions(p, size, rng) * rho
        height = np.where(in_core, -(rho**2) / 2, -(s if math.isfinite(s) else 0.0) * rho / 2)
        return self.vectors @ (directions / np.sqrt(self.values)[:, None]), height


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def fit_envelope(
    data_hessian: ArrayLike, ridge: float, row_norm: float, reach: float = math.inf
) -> EllipticalEnvelope:
    """The envelope of smallest mass, over the core radius s; the inequality for kappa0 is checked, not assumed.

    data_hessian and ridge belong to V (inverse temperature times those of F); reach bounds |x - anchor| on
    the body.
    """
    values, vectors = np.linalg.eigh(np.atleast_2d(np.asarray(data_hessian, float)))
    values = np.maximum(values, 0.0)
    ridge = _check.nonnegative("ridge", ridge)
    row_norm = _check.positive("row_norm", row_norm)
    if values[0] + ridge <= 0:
        raise AssumptionFailed(
            "the elliptical envelope needs positive curvature at the anchor; add a ridge or use the proximal sampler."
        )
    p = values.size
    far = float(kappa(row_norm * reach)) if math.isfinite(reach) else 0.0
    candidates = [_with_core(values, vectors, ridge, math.inf, far)] if far > 0 else []
    for s in np.sqrt(p) * np.geomspace(0.5, 6.0, 60):
        shrinkage = max(_shrinkage(values, ridge, row_norm, float(s)), far)
        candidates.append(_with_core(values, vectors, ridge, float(s), shrinkage))
    return min(candidates, key=lambda envelope: envelope.log_mass)


def _with_core(
    values: Floats, vectors: Floats, ridge: float, s: float, shrinkage: float
) -> EllipticalEnvelope:
    # rounding may not lift the quadratic above its bound
    kept = shrinkage * (1 - 1e-12)
    return EllipticalEnvelope(values=kept * values + ridge, vectors=vectors, core=s, shrinkage=kept)


def _shrinkage(values: Floats, ridge: float, row_norm: float, s: float) -> float:
    """The largest kappa0 found with kappa0 <= kappa(row_norm s / sqrt(lambda_min(kappa0 H + ridge)))."""

    def allowed(shrinkage: float) -> float:
        return float(kappa(row_norm * s / math.sqrt(shrinkage * float(values[0]) + ridge)))

    current = 1.0
    for _ in range(200):
        following = allowed(current)
        if current - following <= 1e-10 * current:
            break
        current = following
        if current * values[0] + ridge <= 0:
            return 0.0
    current *= 1 - 1e-8
    while current > 0 and current > allowed(current):
        current *= 0.99
    return current


def elliptical_envelope(
    potential: Potential,
    body: Body,
    anchor: Anchor,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> Draws:
    """`size` exact independent draws of exp(-V) on the body.

    Parameters
    ----------
    anchor : at any point of the body; the minimiser makes acceptance largest.
    max_proposals : None loops until done. A cap changes the law by sup over data sets of (1 - acceptance)^N.
    """
    counted = Counted(potential)
    centre = np.asarray(anchor.point, float)
    if centre.shape != (body.dimension,) or not bool(body.contains(centre[:, None])[0]):
        raise InvalidParameter(f"anchor must be {body.dimension} numbers inside the body; project it first.")
    reach = body.reach(centre)
    slope = float(np.linalg.norm(counted.gradient(centre[:, None])))
    if slope > 0 and math.isinf(reach):
        raise AssumptionFailed("on an unbounded set the anchor must be an exact minimiser; bound the set.")
    loss = reach * slope if slope > 0 else 0.0
    envelope = fit_envelope(anchor.data_hessian, anchor.ridge, anchor.row_norm, reach)
    base = float(counted.value(centre[:, None])[0])

    def propose(batch: int) -> tuple[Floats, Floats]:
        shift, height = envelope.draw(batch, rng)
        x = centre[:, None] + shift
        inside = body.contains(x)
        x = body.project(x[:, inside])
        return x, base - counted.value(x) - height[inside] - loss

    theta, proposals = rejection(propose, body.dimension, size, max_proposals, base, rng)
    return Draws(theta=theta, evaluations=counted.count, proposals=proposals)
