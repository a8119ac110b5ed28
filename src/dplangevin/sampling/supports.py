"""Convex supports on which isotropic Gaussians are drawn exactly and their masses bounded.

Everything is in natural parameters: the law with density exp(<linear, x> - precision |x|^2 / 2) on the support.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaln

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.problem import problem
from dplangevin.sampling import log_concave
from dplangevin.sampling.log_concave import (
    Columns,
    sample_gamma_below,
    sample_log_concave,
    sample_truncated_normal,
)


class ConvexSupport(ABC):
    """A closed convex subset of R^dimension."""

    dimension: int

    @property
    @abstractmethod
    def diameter(self) -> float:
        """The largest distance between two points; infinity when unbounded."""

    @abstractmethod
    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        """Return whether each column lies in the support."""

    @abstractmethod
    def project(self, theta: Floats) -> Floats:
        """Return the nearest point of the support to each column."""

    @abstractmethod
    def farthest_distance(self, point: Floats) -> float:
        """Return the largest distance from a point [dimension] of the support to another."""

    @abstractmethod
    def sample_gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        """Return one exact draw of exp(<linear, x> - precision |x|^2 / 2) on the support per column of linear."""

    @abstractmethod
    def log_mass_bounds(self, linear: Floats, precision: float) -> tuple[float, float]:
        """Return bounds (lower, upper) on log of the integral of that density; precision 0 needs a bounded set."""

    def frank_wolfe_gap(self, point: Floats, gradient: Floats) -> float:
        """Bound <gradient, point - x> over the support: 0 at an exact minimiser, infinity if unknown."""
        return 0.0 if not np.any(gradient) else math.inf

    def sample_uniform(self, size: int, rng: np.random.Generator) -> Floats:
        """Return uniform draws; only for bounded supports."""
        raise InvalidParameter(
            "a uniform start needs a bounded set; constrain the parameter to a ball or box."
        )


@dataclass(frozen=True, kw_only=True)
class WholeSpaceSupport(ConvexSupport):
    """All of R^dimension."""

    dimension: int

    @property
    def diameter(self) -> float:
        return math.inf

    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        return np.ones(theta.shape[1], bool)

    def project(self, theta: Floats) -> Floats:
        return theta

    def farthest_distance(self, point: Floats) -> float:
        return math.inf

    def sample_gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        return np.asarray(linear / precision + rng.standard_normal(linear.shape) / math.sqrt(precision))

    def log_mass_bounds(self, linear: Floats, precision: float) -> tuple[float, float]:
        if precision == 0:
            return math.inf, math.inf
        value = (
            self.dimension / 2 * math.log(2 * math.pi / precision) + float(linear @ linear) / precision / 2
        )
        slack = 1e-9 + 1e-12 * abs(value)
        return value - slack, value + slack


@dataclass(frozen=True, kw_only=True)
class BoxSupport(ConvexSupport):
    """The box low <= x <= high, coordinate by coordinate."""

    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        low, high = np.atleast_1d(np.asarray(self.low, float)), np.atleast_1d(np.asarray(self.high, float))
        if (
            low.shape != high.shape
            or low.ndim != 1
            or not np.all(low < high)
            or not np.all(np.isfinite(high - low))
        ):
            raise InvalidParameter(
                f"a box needs finite low < high of one length, got low = {self.low!r}, high = {self.high!r}."
            )
        _check.set_frozen(self, low=low, high=high)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        return int(self.low.size)

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self.high - self.low))

    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.all((theta >= self.low[:, None]) & (theta <= self.high[:, None]), axis=0))

    def project(self, theta: Floats) -> Floats:
        return np.clip(theta, self.low[:, None], self.high[:, None])

    def farthest_distance(self, point: Floats) -> float:
        return float(np.linalg.norm(np.maximum(point - self.low, self.high - point)))

    def frank_wolfe_gap(self, point: Floats, gradient: Floats) -> float:
        return float(np.sum(np.maximum(gradient * (point - self.low), gradient * (point - self.high))))

    def sample_gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        scale = 1 / math.sqrt(precision)
        return sample_truncated_normal(linear / precision, scale, self.low[:, None], self.high[:, None], rng)

    def log_mass_bounds(self, linear: Floats, precision: float) -> tuple[float, float]:
        sides = [
            _interval_mass_bounds(float(b), precision, float(lo), float(hi))
            for b, lo, hi in zip(linear, self.low, self.high, strict=True)
        ]
        return math.fsum(low for low, _ in sides), math.fsum(high for _, high in sides)

    def sample_uniform(self, size: int, rng: np.random.Generator) -> Floats:
        return self.low[:, None] + (self.high - self.low)[:, None] * rng.random((self.dimension, size))


def _interval_mass_bounds(b: float, precision: float, low: float, high: float) -> tuple[float, float]:
    """Return bounds on log of the integral of exp(b t - precision t^2 / 2) over [low, high].

    They come from tangents and chords, because the closed form subtracts numbers of size b^2 / precision.
    """

    def height(t: Floats, columns: Columns) -> Floats:
        return np.asarray((b - precision * t / 2) * t)

    def slope(t: Floats, columns: Columns) -> Floats:
        return np.asarray(b - precision * t)

    return log_concave.log_mass_bounds(height, slope, low, high)


@dataclass(frozen=True, kw_only=True)
class BallSupport(ConvexSupport):
    """The ball |x| <= radius.

    The coordinate t along `linear` has the log-concave density
    exp(|linear| t - precision t^2 / 2) P((p - 1)/2, precision (radius^2 - t^2) / 2) on [-radius, radius], P the
    regularised incomplete Gamma function; the rest has a truncated chi radius and a uniform direction.
    """

    dimension: int
    radius: float

    def __post_init__(self) -> None:
        _check.validate_fields(self, dimension=_check.check_count, radius=_check.check_positive)

    @property
    def diameter(self) -> float:
        return 2 * self.radius

    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.linalg.norm(theta, axis=0) <= self.radius * (1 + 1e-12))

    def project(self, theta: Floats) -> Floats:
        return problem.Ball(self.radius).project(theta)

    def farthest_distance(self, point: Floats) -> float:
        return self.radius + float(np.linalg.norm(point))

    def frank_wolfe_gap(self, point: Floats, gradient: Floats) -> float:
        return max(float(gradient @ point) + self.radius * float(np.linalg.norm(gradient)), 0.0)

    def sample_gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        if self.dimension == 1:
            scale = 1 / math.sqrt(precision)
            return sample_truncated_normal(linear / precision, scale, -self.radius, self.radius, rng)
        result = np.empty(linear.shape)
        pending = np.arange(linear.shape[1])
        # Plain rejection first, then the draw by coordinate for the rest: each is exact, hence so is the mixture.
        hopeless = np.linalg.norm(linear, axis=0) / precision > self.radius + 2 / math.sqrt(precision)
        for _ in range(2):
            trial = pending[~hopeless[pending]]
            if trial.size == 0:
                break
            noise = rng.standard_normal((self.dimension, trial.size))
            x = linear[:, trial] / precision + noise / math.sqrt(precision)
            inside = np.linalg.norm(x, axis=0) <= self.radius
            result[:, trial[inside]] = x[:, inside]
            pending = np.setdiff1d(pending, trial[inside], assume_unique=True)
        if pending.size:
            result[:, pending] = self._sample_by_coordinate(linear[:, pending], precision, rng)
        return self.project(result)

    def _sample_by_coordinate(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        strength = np.linalg.norm(linear, axis=0)
        axis = np.where(strength > 0, linear / np.maximum(strength, 1e-300), np.eye(self.dimension)[:, :1])
        height, slope = self._coordinate_law(strength, precision)
        end = np.full(strength.size, self.radius)
        t = sample_log_concave(height, slope, -end, end, 1, rng)[0]
        squared_rest = (self.radius - t) * (self.radius + t)
        rest = np.sqrt(
            2 / precision * sample_gamma_below((self.dimension - 1) / 2, precision * squared_rest / 2, rng)
        )
        normal = rng.standard_normal(linear.shape)
        normal -= axis * np.sum(axis * normal, axis=0)
        return np.asarray(axis * t + normal * (rest / np.linalg.norm(normal, axis=0)))

    def _coordinate_law(
        self, strength: Floats, precision: float
    ) -> tuple[log_concave.LineFunction, log_concave.LineFunction]:
        shape = (self.dimension - 1) / 2

        def height(t: Floats, columns: Columns) -> Floats:
            squared_rest = precision * (self.radius - t) * (self.radius + t) / 2
            return np.asarray(
                strength[columns] * t - precision * t**2 / 2 + log_lower_gamma(shape, squared_rest)
            )

        def slope(t: Floats, columns: Columns) -> Floats:
            squared_rest = precision * (self.radius - t) * (self.radius + t) / 2
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                log_hazard = (
                    (shape - 1) * np.log(squared_rest)
                    - squared_rest
                    - gammaln(shape)
                    - log_lower_gamma(shape, squared_rest)
                )
                return np.asarray(strength[columns] - precision * t * (1 + np.exp(log_hazard)))

        return height, slope

    def log_mass_bounds(self, linear: Floats, precision: float) -> tuple[float, float]:
        strength = np.array([float(np.linalg.norm(linear))])
        if self.dimension == 1:
            return _interval_mass_bounds(float(strength[0]), precision, -self.radius, self.radius)
        # A tiny precision replaces 0: it changes the log mass by at most precision radius^2 / 2.
        small = max(precision, 1e-9 / self.radius**2)
        height, slope = self._coordinate_law(strength, small)
        low, high = log_concave.log_mass_bounds(height, slope, -self.radius, self.radius)
        rest = (self.dimension - 1) / 2 * math.log(2 * math.pi / small)
        gap = (small - precision) * self.radius**2 / 2
        return low + rest, high + rest + gap

    def sample_uniform(self, size: int, rng: np.random.Generator) -> Floats:
        normal = rng.standard_normal((self.dimension, size))
        lengths = self.radius * rng.random(size) ** (1 / self.dimension)
        return np.asarray(normal * (lengths / np.linalg.norm(normal, axis=0)))


def log_lower_gamma(shape: float, x: Floats) -> Floats:
    """Return log P(shape, x), also where P itself underflows.

    There x is far below shape, and P = x^shape e^-x / Gamma(shape + 1) (1 + x/(shape + 1) + ...) converges fast.
    """
    plain = gammainc(shape, x)
    with np.errstate(divide="ignore"):
        result = np.log(plain)
    tiny = plain < 1e-290
    if np.any(tiny):
        small = x[tiny]
        total, term = np.ones_like(small), np.ones_like(small)
        for j in range(1, 400):
            term = term * small / (shape + j)
            total += term
            if np.all(term < 1e-17 * total):
                break
        with np.errstate(divide="ignore"):
            result[tiny] = shape * np.log(small) - small - gammaln(shape + 1) + np.log(total)
    return np.asarray(result)


def support_of(constraint: problem.ConstraintSet, dimension: int) -> ConvexSupport:
    """Return the support of a set on which Gaussians are drawn exactly: ball, finite box or whole space."""
    if isinstance(constraint, problem.Ball):
        return BallSupport(dimension=dimension, radius=constraint.radius)
    if isinstance(constraint, problem.Box):
        low, high = (
            np.broadcast_to(np.asarray(side, float), (dimension,))
            for side in (constraint.low, constraint.high)
        )
        return BoxSupport(low=low, high=high)
    if isinstance(constraint, problem.WholeSpace):
        return WholeSpaceSupport(dimension=dimension)
    raise InvalidParameter(
        f"no exact Gaussian draw is known on the {constraint.name}; constrain the parameter to a ball or a box."
    )


@dataclass(frozen=True, kw_only=True)
class LensSupport(ConvexSupport):
    """The intersection of {x : |x| <= outer} and {x : |x - center| <= inner}, center a point of the first ball.

    These are the sets of the iterated exponential mechanism. Gaussians are drawn exactly on one of the two balls,
    alternately, and accepted when they lie in the other: every accepted point has the law on the lens, whichever ball
    it was drawn on.
    """

    center: Floats
    outer: float
    inner: float

    def __post_init__(self) -> None:
        center = np.asarray(self.center, float)
        outer, inner = _check.check_positive("outer", self.outer), _check.check_positive("inner", self.inner)
        if center.ndim != 1 or float(np.linalg.norm(center)) > outer * (1 + 1e-12):
            raise InvalidParameter(
                "the second ball's centre must be a point of the first ball; project it first."
            )
        _check.set_frozen(self, center=center, outer=outer, inner=inner)

    @property
    def dimension(self) -> int:  # type: ignore[override]
        return int(self.center.size)

    @property
    def diameter(self) -> float:
        return 2 * min(self.outer, self.inner)

    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        first = np.linalg.norm(theta, axis=0) <= self.outer * (1 + 1e-12)
        return np.asarray(
            first & (np.linalg.norm(theta - self.center[:, None], axis=0) <= self.inner * (1 + 1e-12))
        )

    def project(self, theta: Floats) -> Floats:
        """Return the nearest point: that of one ball if it lies in the other, else on the sphere where both meet."""
        shift = self.center[:, None]
        on_first = self._balls[0].project(theta)
        on_second = self._balls[1].project(theta - shift) + shift
        result = np.where(self.contains(on_first), on_first, on_second)
        corner = ~self.contains(on_first) & ~self.contains(on_second)
        if np.any(corner):
            result[:, corner] = self._project_on_edge(theta[:, corner])
        return np.asarray(result)

    def _project_on_edge(self, theta: Floats) -> Floats:
        length = float(np.linalg.norm(self.center))
        axis = (self.center / length)[:, None]
        height = (self.outer**2 - self.inner**2 + length**2) / (2 * length)
        rest = theta - axis * (axis.T @ theta)
        size = np.maximum(np.linalg.norm(rest, axis=0), 1e-300)
        return np.asarray(
            axis * height + rest / size * math.sqrt(max(self.outer**2 - height**2, 0.0)) * (1 - 1e-13)
        )

    def farthest_distance(self, point: Floats) -> float:
        second = self.inner + float(np.linalg.norm(point - self.center))
        return min(self.outer + float(np.linalg.norm(point)), second)

    def frank_wolfe_gap(self, point: Floats, gradient: Floats) -> float:
        """Bound it by splitting the gradient into the outer normals of the two balls and a rest."""
        normals = np.column_stack([point, point - self.center])
        from scipy.optimize import nnls  # slow to import

        coefficients = nnls(normals, -gradient)[0]
        first, second = -coefficients[0] * point, -coefficients[1] * (point - self.center)
        rest = gradient - first - second
        total = self._balls[0].frank_wolfe_gap(point, first) + self._balls[1].frank_wolfe_gap(
            point - self.center, second
        )
        return total + self.farthest_distance(point) * float(np.linalg.norm(rest))

    def sample_gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        shift = self.center[:, None]
        result = np.empty(linear.shape)
        pending, turn = np.arange(linear.shape[1]), 0
        while pending.size:
            block = linear[:, pending]
            if turn % 2 == 0:
                x = self._balls[0].sample_gaussian(block, precision, rng)
            else:
                x = self._balls[1].sample_gaussian(block - precision * shift, precision, rng) + shift
            mask = self.contains(x)
            result[:, pending[mask]] = x[:, mask]
            pending, turn = pending[~mask], turn + 1
        return result

    def log_mass_bounds(self, linear: Floats, precision: float) -> tuple[float, float]:
        """Return (-inf, upper bound), the latter the smaller of the two balls' bounds."""
        shift = float(linear @ self.center) - precision * float(self.center @ self.center) / 2
        first = self._balls[0].log_mass_bounds(linear, precision)[1]
        second = self._balls[1].log_mass_bounds(linear - precision * self.center, precision)[1] + shift
        return -math.inf, min(first, second)

    @property
    def _balls(self) -> tuple[BallSupport, BallSupport]:
        p = self.dimension
        return BallSupport(dimension=p, radius=self.outer), BallSupport(dimension=p, radius=self.inner)
