"""Exact draws of a flat score for logistic-type losses: rejection from an ellipsoid with a flat core.

The elliptical envelope E(rho) of V (rho^2 / 2 up to s, s rho / 2 beyond) bounds V - floor + loss from below, loss
bounding <gradient, anchor - x> over the body (0 at an exact minimiser, on the boundary or not). So H(V - floor) >=
max(E - x, 0) with x = beta (psi + tau/2) + loss: the flat part is an ellipsoid of radius rho_0, E(rho_0) = x, then
come the rest of the Gaussian core and the tail.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln

from dplangevin._arrays import Floats
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.elliptical_envelope import EllipticalEnvelope, fit_envelope
from dplangevin.samplers.rejection import rejection
from dplangevin.samplers.score import ScorePotential
from dplangevin.samplers.self_concordance import Anchor
from dplangevin.samplers.truncated import gamma_above, gamma_below, unit_directions

MOST = 600.0
"""Largest beta (psi + tau/2) whose masses double precision can tell apart."""


def score_envelope(
    score: ScorePotential,
    body: Body,
    anchor: Anchor,
    size: int,
    rng: np.random.Generator,
) -> Floats:
    """`size` exact independent draws of exp(-score) on the body; loops until done.

    anchor : at the point of the body where score.floor was computed.
    """
    centre = np.asarray(anchor.point, float)
    if centre.shape != (body.dimension,) or not bool(body.contains(centre[:, None])[0]):
        raise InvalidParameter(f"anchor must be {body.dimension} numbers inside the body; project it first.")
    loss = body.drop(centre, score.inner.gradient(centre[:, None])[:, 0])
    level = score.threshold + score.ramp / 2 + loss
    if not level <= 1.1 * MOST:
        raise AssumptionFailed(
            f"exact draws need beta psi of at most {MOST:g} at a minimiser; use tier='certified' or 'pure'."
        )
    fitted = fit_envelope(anchor.data_hessian, anchor.ridge, anchor.row_norm, body.reach(centre))
    shape = FlatEnvelope(fitted, level)

    def propose(batch: int) -> tuple[Floats, Floats]:
        shift, height = shape.draw(batch, rng)
        x = centre[:, None] + shift
        inside = body.contains(x)
        x = body.project(x[:, inside])
        return x, -score.value(x) - height[inside]

    return rejection(propose, body.dimension, size, None, abs(score.floor), rng)[0]


class FlatEnvelope:
    """exp(-max(E(rho) - level, 0)), rho the norm of the elliptical envelope E."""

    def __init__(self, envelope: EllipticalEnvelope, level: float) -> None:
        self.envelope, self.level = envelope, level
        s = envelope.core
        inner = math.sqrt(2 * level)
        self.flat = inner if inner <= s else 2 * level / s

    def log_masses(self) -> tuple[float, float, float]:
        """log of the radial masses of the flat part, the Gaussian part and the tail (same volume factor for all)."""
        p, s, x = self.envelope.values.size, self.envelope.core, self.level
        flat = p * math.log(self.flat) - math.log(p) if self.flat > 0 else -math.inf
        core = tail = -math.inf
        if self.flat < s:
            high = float(gammainc(p / 2, s * s / 2)) if math.isfinite(s) else 1.0
            low, above = float(gammainc(p / 2, x)), float(gammaincc(p / 2, x))
            top = float(gammaincc(p / 2, s * s / 2)) if math.isfinite(s) else 0.0
            mass = high - low if x < p / 2 else above - top  # the difference that keeps its digits
            core = x + (p / 2 - 1) * math.log(2) + float(gammaln(p / 2)) + _log(mass)
        if math.isfinite(s):
            rest = float(gammaincc(p, s * max(s, self.flat) / 2))
            tail = x + p * math.log(2 / s) + float(gammaln(p)) + _log(rest)
        return flat, core, tail

    def draw(self, size: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Displacements [p, size] and log of the envelope there."""
        p, s = self.envelope.values.size, self.envelope.core
        logs = np.array(self.log_masses())
        shares = np.exp(logs - logs.max())
        part = rng.choice(3, size, p=shares / shares.sum())
        rho = np.empty(size)
        counts = [int(np.sum(part == i)) for i in range(3)]
        rho[part == 0] = self.flat * rng.random(counts[0]) ** (1 / p)
        rho[part == 1] = self._core(counts[1], rng)
        if counts[2]:
            rho[part == 2] = 2 / s * gamma_above(p, s * max(s, self.flat) / 2, counts[2], rng)
        energy = np.where(rho <= s, rho**2 / 2, (s if math.isfinite(s) else 0.0) * rho / 2)
        direction = unit_directions(p, size, rng) * rho
        moved = self.envelope.vectors @ (direction / np.sqrt(self.envelope.values)[:, None])
        return moved, -np.maximum(energy - self.level, 0.0)

    def _core(self, size: int, rng: np.random.Generator) -> Floats:
        """Chi with p degrees of freedom between the flat part and s, by rejection from whichever side is closer."""
        p, s = self.envelope.values.size, self.envelope.core
        bottom, top = self.level, (s * s / 2 if math.isfinite(s) else math.inf)
        result, filled = np.empty(size), 0
        while filled < size:
            if bottom > p / 2 >= 1:
                g = gamma_above(p / 2, bottom, size - filled, rng)
            else:
                g = gamma_below(p / 2, np.full(size - filled, top), rng)
            kept = g[(g >= bottom) & (g <= top)]
            result[filled : filled + kept.size] = kept
            filled += kept.size
        return np.sqrt(2 * result)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf
