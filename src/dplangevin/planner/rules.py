"""The rules: step counts, clips and ridges from n, p, epsilon, delta and stated bounds. No data is involved.

Units: rows are scaled to norm 1 (theta' = B theta for row norm B), s = 1 (add-remove) or 2 (replace-one) and mu is the
GDP parameter of (epsilon, delta). Noise on the sum of gradients is s C sqrt(T) / mu per coordinate and step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

NOISY = 100.0  # below this signal-to-noise ratio the clip is halved
MOST_STEPS = 200


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a rule needs to know of a loss: curvature in the score, its reach, and the clips it may choose from."""

    curvature: float
    reach: float
    small_clip: float | None
    large_clip: float


SHAPES = {
    "logistic": Shape(curvature=0.25, reach=10.0, small_clip=0.5, large_clip=1.0),
    "multinomial": Shape(curvature=0.5, reach=10.0, small_clip=0.5, large_clip=1.0),
    "ridge": Shape(curvature=1.0, reach=3.0, small_clip=0.25, large_clip=1.0),
    "svc": Shape(curvature=1.0, reach=10.0, small_clip=0.5, large_clip=1.0),
    "poisson": Shape(curvature=math.nan, reach=10.0, small_clip=None, large_clip=math.nan),
    "huber": Shape(curvature=1.0, reach=3.0, small_clip=None, large_clip=math.nan),
    "quantile": Shape(curvature=math.nan, reach=3.0, small_clip=None, large_clip=math.nan),
}


def signal_to_noise(n: int, dimension: int, mu: float, sides: int) -> float:
    """snr = n mu / (s p)."""
    return n * mu / (sides * dimension)


def clip(shape: Shape, snr: float) -> float:
    """The smaller clip where noise dominates: it halves the noise and costs little signal there."""
    return shape.large_clip if shape.small_clip is None or snr >= NOISY else shape.small_clip


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Accelerated descent: T steps of size eta (for unit rows)."""

    n_steps: int
    step_size: float


def descent(
    n: int, mu: float, sides: int, snr: float, curvature: float, reach: float, bound: float
) -> Descent:
    """T = sqrt(4 M kappa n mu / s) and eta = min(1/M, 4 kappa n mu / (s T^2)), kappa = (reach / C) min(1, 0.4 snr).

    In a flat direction the output is (total time) x (gradient + noise); the rule fixes the size of that noise whatever
    n, p and epsilon are, and momentum makes T grow like sqrt(n mu) instead of n mu.
    """
    time = reach / bound * min(1.0, 0.4 * snr) * n * mu / sides
    steps = min(MOST_STEPS, max(2, math.ceil(math.sqrt(4 * curvature * time))))
    return Descent(n_steps=steps, step_size=min(1 / curvature, 4 * time / steps**2))


def objective_ridge(dimension: int, epsilon: float, sides: int, n: int, scale: float) -> float:
    """Lambda on the SUM of losses: k s sqrt(p) / epsilon, k = clip(0.3/sqrt(snr), 0.2, 1)."""
    snr = n * epsilon / (sides * dimension**1.5)
    return scale * min(1.0, max(0.2, 0.3 / math.sqrt(snr))) * sides * math.sqrt(dimension) / epsilon


def output_ridge(noise_square: float, curvature: float, radius: float) -> float:
    """Ridge m (per sample) minimising (M/2) noise_square / m^2 + m r^2 / 2 for output perturbation."""
    return float((2 * curvature * noise_square / radius**2) ** (1 / 3))
