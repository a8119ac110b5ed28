"""The shape of a region: the ellipsoid of a noisy majorant, its directions, and the scales that the slack certifies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.noisy_answers.curvature import contrasts


@dataclass(frozen=True, kw_only=True, eq=False)
class Ellipsoid:
    """S = V diag(max(lam, q) + m) V' on the columns of a row, with lam, V those of the noisy majorant.

    For K classes it is S (x) I on K - 1 contrasts of the classes. unidentified : eigenvectors whose curvature is within
    the noise: there the region is only as wide as the noise allows.
    """

    values: Floats
    vectors: Floats
    classes: int
    unidentified: Floats

    @classmethod
    def of(cls, matrix: Floats, floor: float, ridge: float, classes: int) -> Ellipsoid:
        """The shape of a noisy matrix whose noise hides eigenvalues up to `floor`."""
        values, vectors = np.linalg.eigh(matrix)
        hidden = values <= floor
        return cls(
            values=np.maximum(values, floor) + ridge,
            vectors=vectors,
            classes=classes,
            unidentified=vectors[:, hidden].T,
        )

    @property
    def matrix(self) -> Floats:
        """S, on the columns of a row."""
        return np.asarray((self.vectors * self.values) @ self.vectors.T)

    def ends(self, rows: Floats, weights: Floats | None = None) -> Floats:
        """Unit directions S^-1 x / sqrt(x' S^-1 x) of each row [k, columns], flat [dimension, k].

        With K classes the direction moves the classes by `weights` [k, K], centred (they sum to 0).
        """
        turned = self.vectors @ ((self.vectors.T @ rows.T) / self.values[:, None])
        sizes = np.sqrt(np.maximum((rows.T * turned).sum(axis=0), 1e-300))
        found = np.asarray(turned / sizes)
        if self.classes == 1:
            return found
        assert weights is not None
        length = np.sqrt(np.square(weights).sum(axis=1))
        return np.asarray(np.einsum("pk,kc->pck", found, weights / length[:, None])).reshape(-1, len(rows))

    def along(self, gradients: Floats) -> Floats:
        """Unit directions S^-1 g / |g|_(S^-1) of gradients [dimension, k]: where a linear function is largest."""
        columns = len(self.values)
        cube = gradients.reshape(columns, self.classes, -1)
        if self.classes > 1:
            cube = cube - cube.mean(axis=1, keepdims=True)
        turned = np.einsum("pj,jck->pck", (self.vectors / self.values) @ self.vectors.T, cube)
        sizes = np.sqrt(np.maximum((cube * turned).sum(axis=(0, 1)), 1e-300))
        return np.asarray(turned / sizes).reshape(gradients.shape)

    def spread(self, rows: Floats) -> Floats:
        """x' S^-1 x of each row."""
        return np.asarray(np.square(self.vectors.T @ rows.T / np.sqrt(self.values)[:, None]).sum(axis=0))

    def uniform(self, count: int, rng: np.random.Generator) -> Floats:
        """S^-1/2 z with z uniform in the unit ball, flat [dimension, count]."""
        columns, free = len(self.values), max(self.classes - 1, 1)
        size = columns * free
        normal = rng.standard_normal((size, count))
        normal *= rng.random(count) ** (1 / size) / np.sqrt(np.square(normal).sum(axis=0))
        root = self.vectors / np.sqrt(self.values)
        cube = np.einsum("pj,jck->pck", root, normal.reshape(columns, free, count))
        basis = contrasts(self.classes)
        return np.asarray(np.einsum("pfk,cf->pck", cube, basis)).reshape(-1, count)


def scales(slack: float, thresholds: Floats, limits: Floats) -> Floats:
    """sc = psi / (psi + tau Lam), 1 where tau <= 0: F(c + sc (v - c)) <= F(c) + psi whenever T <= tau, by convexity.

    Examples
    --------
    >>> scales(0.03, np.array([0.02]), np.array([[0.7391822818]])).round(10).tolist()
    [[0.4742093149]]
    """
    worst = max(slack, 0.0) * limits
    return np.asarray(thresholds[:, None] / (thresholds[:, None] + worst))


def whole_radius(gap: float, threshold: float, *, best: bool) -> float:
    """r such that EVERY model with |d|_U <= r is in the set, given gap >= F(c) - F(best); U = A~ + (q + m) I.

    F(c + d) - F* <= (r / sqrt 2 + sqrt gap)^2 and F(c + d) - F(c) <= r^2 / 2 + r sqrt(2 gap), solved for r.

    Examples
    --------
    >>> round(whole_radius(0.002, 0.02, best=True) ** 2 / 2, 12), round(whole_radius(0.002, 0.02, best=False), 12)
    (0.009350889359, 0.146516216431)
    """
    if best:
        return math.sqrt(2) * max(0.0, math.sqrt(threshold) - math.sqrt(gap))
    return math.sqrt(2 * gap + 2 * threshold) - math.sqrt(2 * gap)
