"""Convex bodies on which isotropic Gaussians are drawn exactly and their masses bounded.

Everything is in natural parameters: the law with density exp(<linear, x> - precision |x|^2 / 2) on the body.
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
from dplangevin.problem import constraints
from dplangevin.samplers import log_concave
from dplangevin.samplers.log_concave import Columns, draw_log_concave
from dplangevin.samplers.truncated import gamma_below, truncated_normal


class Body(ABC):
    """A closed convex subset of R^dimension."""

    dimension: int

    @property
    @abstractmethod
    def diameter(self) -> float:
        """Largest distance between two points; infinity when unbounded."""

    @abstractmethod
    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        """Whether each column lies in the body."""

    @abstractmethod
    def project(self, theta: Floats) -> Floats:
        """Nearest point of the body, column by column."""

    @abstractmethod
    def reach(self, point: Floats) -> float:
        """Largest distance from a point [dimension] of the body to another."""

    @abstractmethod
    def gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        """One exact draw of exp(<linear, x> - precision |x|^2 / 2) on the body per column of linear."""

    @abstractmethod
    def log_mass(self, linear: Floats, precision: float) -> tuple[float, float]:
        """Proved bounds (lower, upper) of log of the integral of that density; precision 0 is allowed when bounded."""

    def drop(self, point: Floats, gradient: Floats) -> float:
        """An upper bound of <gradient, point - x> over the body: 0 at an exact minimiser; infinity when unknown."""
        return 0.0 if not np.any(gradient) else math.inf

    def uniform(self, size: int, rng: np.random.Generator) -> Floats:
        """Uniform draws; only for bounded bodies."""
        raise InvalidParameter(
            "a uniform start needs a bounded body; constrain the parameter to a ball or box."
        )


@dataclass(frozen=True, kw_only=True)
class WholeSpaceBody(Body):
    """R^dimension."""

    dimension: int

    @property
    def diameter(self) -> float:
        return math.inf

    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        return np.ones(theta.shape[1], bool)

    def project(self, theta: Floats) -> Floats:
        return theta

    def reach(self, point: Floats) -> float:
        return math.inf

    def gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        return np.asarray(linear / precision + rng.standard_normal(linear.shape) / math.sqrt(precision))

    def log_mass(self, linear: Floats, precision: float) -> tuple[float, float]:
        if precision == 0:
            return math.inf, math.inf
        value = (
            self.dimension / 2 * math.log(2 * math.pi / precision) + float(linear @ linear) / precision / 2
        )
        slack = 1e-9 + 1e-12 * abs(value)
        return value - slack, value + slack


@dataclass(frozen=True, kw_only=True)
class BoxBody(Body):
    """low <= x <= high, coordinate by coordinate."""

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
        _check.put(self, low=low, high=high)

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

    def reach(self, point: Floats) -> float:
        return float(np.linalg.norm(np.maximum(point - self.low, self.high - point)))

    def drop(self, point: Floats, gradient: Floats) -> float:
        return float(np.sum(np.maximum(gradient * (point - self.low), gradient * (point - self.high))))

    def gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        scale = 1 / math.sqrt(precision)
        return truncated_normal(linear / precision, scale, self.low[:, None], self.high[:, None], rng)

    def log_mass(self, linear: Floats, precision: float) -> tuple[float, float]:
        sides = [
            _interval_mass(float(b), precision, float(lo), float(hi))
            for b, lo, hi in zip(linear, self.low, self.high, strict=True)
        ]
        return math.fsum(low for low, _ in sides), math.fsum(high for _, high in sides)

    def uniform(self, size: int, rng: np.random.Generator) -> Floats:
        return self.low[:, None] + (self.high - self.low)[:, None] * rng.random((self.dimension, size))


def _interval_mass(b: float, precision: float, low: float, high: float) -> tuple[float, float]:
    """Bounds on log of the integral of exp(b t - precision t^2 / 2) over [low, high].

    By tangents and chords: the closed form subtracts numbers of size b^2 / precision.
    """

    def height(t: Floats, columns: Columns) -> Floats:
        return np.asarray((b - precision * t / 2) * t)

    def slope(t: Floats, columns: Columns) -> Floats:
        return np.asarray(b - precision * t)

    return log_concave.mass_bounds(height, slope, low, high)


@dataclass(frozen=True, kw_only=True)
class BallBody(Body):
    """|x| <= radius, centred at 0.

    The coordinate t along `linear` has the log-concave density
    exp(|linear| t - precision t^2 / 2) P((p - 1)/2, precision (radius^2 - t^2) / 2) on [-radius, radius], P the
    regularised incomplete Gamma function; the rest has a truncated chi radius and a uniform direction.
    """

    dimension: int
    radius: float

    def __post_init__(self) -> None:
        _check.each(self, dimension=_check.count, radius=_check.positive)

    @property
    def diameter(self) -> float:
        return 2 * self.radius

    def contains(self, theta: Floats) -> NDArray[np.bool_]:
        return np.asarray(np.linalg.norm(theta, axis=0) <= self.radius * (1 + 1e-12))

    def project(self, theta: Floats) -> Floats:
        return constraints.Ball(self.radius).project(theta)

    def reach(self, point: Floats) -> float:
        return self.radius + float(np.linalg.norm(point))

    def drop(self, point: Floats, gradient: Floats) -> float:
        return max(float(gradient @ point) + self.radius * float(np.linalg.norm(gradient)), 0.0)

    def gaussian(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        if self.dimension == 1:
            scale = 1 / math.sqrt(precision)
            return truncated_normal(linear / precision, scale, -self.radius, self.radius, rng)
        result = np.empty(linear.shape)
        pending = np.arange(linear.shape[1])
        # Plain proposals first, the structured draw for the rest: each is exact, so any mixture is.
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
            result[:, pending] = self._structured(linear[:, pending], precision, rng)
        return self.project(result)

    def _structured(self, linear: Floats, precision: float, rng: np.random.Generator) -> Floats:
        strength = np.linalg.norm(linear, axis=0)
        axis = np.where(strength > 0, linear / np.maximum(strength, 1e-300), np.eye(self.dimension)[:, :1])
        height, slope = self._coordinate(strength, precision)
        end = np.full(strength.size, self.radius)
        t = draw_log_concave(height, slope, -end, end, 1, rng)[0]
        room = (self.radius - t) * (self.radius + t)
        rest = np.sqrt(2 / precision * gamma_below((self.dimension - 1) / 2, precision * room / 2, rng))
        normal = rng.standard_normal(linear.shape)
        normal -= axis * np.sum(axis * normal, axis=0)
        return np.asarray(axis * t + normal * (rest / np.linalg.norm(normal, axis=0)))

    def _coordinate(self, strength: Floats, precision: float) -> tuple[log_concave.Curve, log_concave.Curve]:
        shape = (self.dimension - 1) / 2

        def height(t: Floats, columns: Columns) -> Floats:
            room = precision * (self.radius - t) * (self.radius + t) / 2
            return np.asarray(strength[columns] * t - precision * t**2 / 2 + log_lower_gamma(shape, room))

        def slope(t: Floats, columns: Columns) -> Floats:
            room = precision * (self.radius - t) * (self.radius + t) / 2
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                log_hazard = (shape - 1) * np.log(room) - room - gammaln(shape) - log_lower_gamma(shape, room)
                return np.asarray(strength[columns] - precision * t * (1 + np.exp(log_hazard)))

        return height, slope

    def log_mass(self, linear: Floats, precision: float) -> tuple[float, float]:
        strength = np.array([float(np.linalg.norm(linear))])
        if self.dimension == 1:
            return _interval_mass(float(strength[0]), precision, -self.radius, self.radius)
        # A tiny precision stands in for 0: it changes the log mass by at most precision radius^2 / 2.
        small = max(precision, 1e-9 / self.radius**2)
        height, slope = self._coordinate(strength, small)
        low, high = log_concave.mass_bounds(height, slope, -self.radius, self.radius)
        rest = (self.dimension - 1) / 2 * math.log(2 * math.pi / small)
        gap = (small - precision) * self.radius**2 / 2
        return low + rest, high + rest + gap

    def uniform(self, size: int, rng: np.random.Generator) -> Floats:
        normal = rng.standard_normal((self.dimension, size))
        lengths = self.radius * rng.random(size) ** (1 / self.dimension)
        return np.asarray(normal * (lengths / np.linalg.norm(normal, axis=0)))


def log_lower_gamma(shape: float, x: Floats) -> Floats:
    """log P(shape, x), also where P itself underflows.

    There x is far below shape and P = x^shape e^-x / Gamma(shape + 1) (1 + x/(shape + 1) + ...), a fast series.
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


def body_of(constraint: constraints.ConstraintSet, dimension: int) -> Body:
    """The body of a constraint set, for the sets whose Gaussians are drawn exactly: ball, finite box, whole space."""
    if isinstance(constraint, constraints.Ball):
        return BallBody(dimension=dimension, radius=constraint.radius)
    if isinstance(constraint, constraints.Box):
        low, high = (
            np.broadcast_to(np.asarray(side, float), (dimension,))
            for side in (constraint.low, constraint.high)
        )
        return BoxBody(low=low, high=high)
    if isinstance(constraint, constraints.WholeSpace):
        return WholeSpaceBody(dimension=dimension)
    raise InvalidParameter(
        f"no exact Gaussian draw is known on the {constraint.name}; constrain the parameter to a ball or a box."
    )
