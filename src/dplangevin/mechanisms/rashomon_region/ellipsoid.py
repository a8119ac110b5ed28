"""The ellipsoid of a region: that of the noisy majorant, its directions, and the scales that the slack certifies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.mechanisms.noisy_answers.curvature import class_contrasts


@dataclass(frozen=True, kw_only=True, eq=False)
class Ellipsoid:
    """The ellipsoid of S = V diag(max(lam, q) + m) V'; lam, V are the eigenvalues and -vectors of the noisy majorant.

    For K classes it is S (x) I on K - 1 contrasts of the classes.

    Parameters
    ----------
    values, vectors : eigenvalues and eigenvectors of S. n_classes : K, 1 for a single score.
    unidentified : eigenvectors whose eigenvalues do not stand above the noise: along them the noise sets the width of
        the region.
    """

    values: Floats
    vectors: Floats
    n_classes: int
    unidentified: Floats

    @classmethod
    def from_matrix(cls, matrix: Floats, floor: float, ridge: float, n_classes: int) -> Ellipsoid:
        """Build the ellipsoid of a noisy matrix whose eigenvalues up to `floor` do not stand above the noise."""
        values, vectors = np.linalg.eigh(matrix)
        below_noise = values <= floor
        return cls(
            values=np.maximum(values, floor) + ridge,
            vectors=vectors,
            n_classes=n_classes,
            unidentified=vectors[:, below_noise].T,
        )

    @property
    def matrix(self) -> Floats:
        """S, a square matrix over the columns of a row."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)

    def row_directions(self, rows: Floats, weights: Floats | None = None) -> Floats:
        """Return the unit directions S^-1 x / sqrt(x' S^-1 x) of each row [k, columns], flat [dimension, k].

        With K classes the direction changes the class scores in proportion to `weights` [k, K], centred (summing to
        0).
        """
        scaled = self.vectors @ ((self.vectors.T @ rows.T) / self.values[:, None])
        sizes = np.sqrt(np.maximum((rows.T * scaled).sum(axis=0), 1e-300))
        directions = np.asarray(scaled / sizes)
        if self.n_classes == 1:
            return directions
        assert weights is not None
        length = np.sqrt(np.square(weights).sum(axis=1))
        return np.asarray(np.einsum("pk,kc->pck", directions, weights / length[:, None])).reshape(
            -1, len(rows)
        )

    def gradient_directions(self, gradients: Floats) -> Floats:
        """Return the unit directions S^-1 g / |g|_(S^-1) of gradients [dimension, k], the maximizers of g'd."""
        columns = len(self.values)
        cube = gradients.reshape(columns, self.n_classes, -1)
        if self.n_classes > 1:
            cube = cube - cube.mean(axis=1, keepdims=True)
        scaled = np.einsum("pj,jck->pck", (self.vectors / self.values) @ self.vectors.T, cube)
        sizes = np.sqrt(np.maximum((cube * scaled).sum(axis=(0, 1)), 1e-300))
        return np.asarray(scaled / sizes).reshape(gradients.shape)

    def inverse_norms(self, rows: Floats) -> Floats:
        """Return x' S^-1 x of each row."""
        return np.asarray(np.square(self.vectors.T @ rows.T / np.sqrt(self.values)[:, None]).sum(axis=0))

    def sample_uniform(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw S^-1/2 z with z uniform in the unit ball, flat [dimension, count]."""
        columns, free = len(self.values), max(self.n_classes - 1, 1)
        size = columns * free
        normal = rng.standard_normal((size, count))
        normal *= rng.random(count) ** (1 / size) / np.sqrt(np.square(normal).sum(axis=0))
        root = self.vectors / np.sqrt(self.values)
        cube = np.einsum("pj,jck->pck", root, normal.reshape(columns, free, count))
        basis = class_contrasts(self.n_classes)
        return np.asarray(np.einsum("pfk,cf->pck", cube, basis)).reshape(-1, count)


def certified_scales(slack: float, thresholds: Floats, limits: Floats) -> Floats:
    """Return sc = psi / (psi + tau Lam), 1 where tau <= 0: F(c + sc (v - c)) <= F(c) + psi whenever T <= tau.

    This follows from convexity; tau is the slack, Lam the limits.

    Examples
    --------
    >>> certified_scales(0.03, np.array([0.02]), np.array([[0.7391822818]])).round(10).tolist()
    [[0.4742093149]]
    """
    worst = max(slack, 0.0) * limits
    return np.asarray(thresholds[:, None] / (thresholds[:, None] + worst))


def inner_radius(gap: float, threshold: float, *, best: bool) -> float:
    """Return r such that EVERY model with |d|_U <= r is in the set, given gap >= F(c) - F(best); U = A~ + (q + m) I.

    F(c + d) - F* <= (r / sqrt 2 + sqrt gap)^2 and F(c + d) - F(c) <= r^2 / 2 + r sqrt(2 gap), solved for r.

    Examples
    --------
    >>> round(inner_radius(0.002, 0.02, best=True) ** 2 / 2, 12), round(inner_radius(0.002, 0.02, best=False), 12)
    (0.009350889359, 0.146516216431)
    """
    if best:
        return math.sqrt(2) * max(0.0, math.sqrt(threshold) - math.sqrt(gap))
    return math.sqrt(2 * gap + 2 * threshold) - math.sqrt(2 * gap)
