"""Draw noise of pure mechanisms in floating point: discrete Laplace, Gamma-norm, Wishart, truncated cube.

Gamma-norm noise has density proportional to exp(-|z| / scale): a Gamma norm times a uniform direction. Reference:
Chaudhuri, Monteleoni and Sarwate (2011), output perturbation.

Wishart differences are symmetric noise for sums of x x'. A Wishart matrix with p + 1 degrees of freedom has density
exp(-tr W) on the positive semidefinite matrices, as an exponential variable has on the positive numbers; the
difference of two is the matrix analogue of Laplace noise.

The truncated cube {|u|_inf <= 1, |u|_1 <= m} has volume 2^k P(S <= m), S a sum of k uniform numbers (Irwin-Hall).
Uniform points are drawn by rejection from whichever of three laws accepts most often, which k and m decide:
- the cube: accept when |u|_1 <= m;
- the cross-polytope |u|_1 <= m (m times a Dirichlet vector): accept when no coordinate exceeds 1;
- independent coordinates of density proportional to e^{-lambda u} on [0, 1]: the density of the target over that of
  the proposal is proportional to e^{lambda S} on S <= m, so accept with probability e^{lambda (S - m)}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin._rng import observe_labeled_noise
from dplangevin._search import bisect_arrays
from dplangevin.sampling.log_concave import sample_unit_directions


def sample_discrete_laplace(
    scale: float, size: int | tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw integers k with P(k) proportional to exp(-|k| / scale): the difference of two geometric variables."""
    success = -math.expm1(-1 / _check.check_integer_scale("scale", scale))
    difference: NDArray[np.float64] = (rng.geometric(success, size) - rng.geometric(success, size)).astype(
        float
    )
    return difference


def sample_gamma_norm(
    dimension: int, scale: float, size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw columns z with density proportional to exp(-|z| / scale): |z| ~ Gamma(dimension, scale)."""
    dimension, size = _check.check_count("dimension", dimension), _check.check_count("size", size)
    scale = _check.check_positive("scale", scale)
    columns = sample_unit_directions(dimension, size, rng) * (scale * rng.standard_gamma(dimension, size))
    labeled: NDArray[np.float64] = observe_labeled_noise(columns, "norm", scale) if size == 1 else columns
    return labeled


def sample_wishart_difference(size: int, scale: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw scale (V - W), with V and W independent [size, size] Wishart matrices of density exp(-tr).

    Its log density is Lipschitz in the nuclear norm with constant 1 / scale.
    """
    size, scale = _check.check_count("size", size), _check.check_positive("scale", scale)
    first, second = rng.standard_normal((2, size, size + 1))
    noise: NDArray[np.float64] = (first @ first.T - second @ second.T) * (scale / 2)
    labeled: NDArray[np.float64] = observe_labeled_noise(np.asarray(noise), "nuclear", scale)
    return labeled


_MAX_DIRECT_DIMENSION = 30  # up to here the alternating sum loses fewer than four digits
_CONTOUR_NODES = np.arange(0.0, 40.0, 1 / 8)


def log_irwin_hall(k: int, t: ArrayLike) -> Floats:
    """Return log P(S <= t) for the sum S of k independent uniform numbers in [0, 1].

    Up to t = 1, P = t^k / k!. Below the mean, for large k, it is the inverse Laplace transform (1 / 2 pi i) int e^{z
    t} phi(z)^k dz / z, phi(z) = (1 - e^{-z}) / z, by the trapezoidal rule on the line through the saddle point, where
    it converges geometrically. Above the mean symmetry is used.

    Examples
    --------
    >>> log_irwin_hall(2, [1.0, 2.0]).round(6).tolist()
    [-0.693147, 0.0]
    """
    points = np.atleast_1d(np.asarray(t, float))
    result = np.full(points.shape, -np.inf)
    result[points >= k] = 0.0
    small = (points > 0) & (points <= min(1.0, k))
    result[small] = k * np.log(points[small]) - gammaln(k + 1)
    high = (points > max(1.0, k / 2)) & (points < k)
    if high.any():
        result[high] = np.log1p(-np.exp(log_irwin_hall(k, k - points[high])))
    low = (points > 1) & (points <= k / 2)
    if low.any():
        result[low] = (
            _alternating_sum(k, points[low])
            if k <= _MAX_DIRECT_DIMENSION
            else _invert_transform(k, points[low])
        )
    return result


def _alternating_sum(k: int, t: Floats) -> Floats:
    total = np.zeros_like(t)
    for j in range(k + 1):
        total += (-1) ** j * math.comb(k, j) * np.maximum(t - j, 0.0) ** k
    return np.log(total) - gammaln(k + 1)


def _invert_transform(k: int, t: Floats) -> Floats:
    # the saddle point is the zero of t - k mean(lambda) - 1 / lambda, which increases with lambda
    def is_rising(log: Floats) -> NDArray[np.bool_]:
        return np.asarray(t - k * _tilted_mean(np.exp(log)) - 1 / np.exp(log) > 0)

    saddle_point = np.exp(
        bisect_arrays(is_rising, np.log(2 * (k + 1) / t), np.full(t.shape, -40.0), rounds=70)
    )
    width = 1 / np.sqrt(k * _tilted_variance(saddle_point) + saddle_point**-2)
    z = saddle_point[:, None] + 1j * width[:, None] * _CONTOUR_NODES
    exponent = z * t[:, None] + k * (np.log(-np.expm1(-z)) - np.log(z)) - np.log(z)
    peak = exponent[:, 0].real
    values = np.exp(exponent - peak[:, None]).real
    area = width * (_CONTOUR_NODES[1] - _CONTOUR_NODES[0]) * (values.sum(axis=1) - values[:, 0] / 2) / np.pi
    return np.asarray(peak + np.log(area))


def _tilted_mean(tilt: Floats) -> Floats:
    """Return the mean of the density proportional to e^{-tilt u} on [0, 1]."""
    with np.errstate(over="ignore"):
        return np.where(tilt < 1e-4, 0.5 - tilt / 12, 1 / tilt - 1 / np.expm1(np.maximum(tilt, 1e-4)))


def _tilted_variance(tilt: Floats) -> Floats:
    bounded_tilt = np.clip(tilt, 1e-2, 700.0)
    return np.where(tilt < 1e-2, 1 / 12, bounded_tilt**-2 - 0.25 / np.sinh(bounded_tilt / 2) ** 2)


@dataclass(frozen=True)
class CubeSampler:
    """A rejection sampler on the truncated cube: method "cube", "simplex" or "tilted", and its acceptance."""

    k: int
    l1_bound: float
    method: str
    tilt: float
    acceptance: float

    def sample(self, rng: np.random.Generator) -> Floats:
        """Draw one uniform point of {|u|_inf <= 1, |u|_1 <= l1_bound}."""
        is_accepted = False
        while not is_accepted:
            if self.method == "cube":
                sizes = rng.random(self.k)
                is_accepted = self.l1_bound >= self.k or bool(sizes.sum() <= self.l1_bound)
            elif self.method == "simplex":
                spacings = rng.standard_exponential(self.k)
                sizes = spacings * (self.l1_bound / (spacings.sum() + rng.standard_exponential()))
                is_accepted = bool(sizes.max() <= 1)
            else:
                sizes = -np.log1p(rng.random(self.k) * math.expm1(-self.tilt)) / self.tilt
                short = self.l1_bound - float(sizes.sum())
                is_accepted = short >= 0 and rng.standard_exponential() >= self.tilt * short
        return np.where(rng.random(self.k) < 0.5, -sizes, sizes)


@lru_cache(maxsize=64)
def make_cube_sampler(k: int, l1_bound: float) -> CubeSampler:
    """Return the sampler with the best acceptance for {|u|_inf <= 1, |u|_1 <= l1_bound} in k dimensions."""
    volume = float(log_irwin_hall(k, l1_bound)[0])
    candidates = [CubeSampler(k, l1_bound, "cube", 0.0, math.exp(volume))]
    simplex = volume - (k * math.log(l1_bound) - float(gammaln(k + 1)))
    candidates.append(CubeSampler(k, l1_bound, "simplex", 0.0, math.exp(min(0.0, simplex))))
    if l1_bound < k / 2:
        low, high = 1e-9, 2 * k / l1_bound
        for _ in range(100):
            tilt = (low + high) / 2
            low, high = (tilt, high) if float(_tilted_mean(np.array(tilt))) > l1_bound / k else (low, tilt)
        tilted = volume - tilt * l1_bound - k * math.log(-math.expm1(-tilt) / tilt)
        candidates.append(CubeSampler(k, l1_bound, "tilted", tilt, math.exp(min(0.0, tilted))))
    return max(candidates, key=lambda sampler: sampler.acceptance)
