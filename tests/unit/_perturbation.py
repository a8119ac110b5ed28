"""Exact densities of objective perturbation, and random neighbouring records, for tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dplangevin.problem import Clipped, DataBounds, Huber, Logistic, Loss, Problem, Squared

Floats = NDArray[np.float64]
LOSSES: dict[str, tuple[Loss, dict[str, Any]]] = {
    "logistic": (Logistic(), {"classes": 2}),
    "clipped logistic": (Clipped(Logistic(), 0.5), {"classes": 2}),
    "clipped squared": (Clipped(Squared(), 0.7), {"target": (-1, 1)}),
    "huber": (Huber(transition=0.3), {"target": (-1, 1)}),
}


def slopes_and_curvatures(name: str, score: Floats, y: Floats) -> tuple[Floats, Floats]:
    """h' and h'', written out independently of the library."""
    if "logistic" in name:
        chance = 1 / (1 + np.exp(-np.clip(score, -700, 700)))
        slope, curvature = chance - y, chance * (1 - chance)
    else:
        slope, curvature = score - y, np.ones(np.broadcast_shapes(score.shape, y.shape))
    clip = {"logistic": math.inf, "clipped logistic": 0.5, "clipped squared": 0.7, "huber": 0.3}[name]
    return np.clip(slope, -clip, clip), curvature * (np.abs(slope) < clip)


@dataclass(frozen=True)
class Pair:
    """Two neighbouring data sets: shared records, and one (or none) of their own each."""

    name: str
    shared: tuple[Floats, Floats]
    first: tuple[Floats, Floats]
    second: tuple[Floats, Floats] | None

    def sides(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        join = lambda a, b: (np.vstack([a[0], b[0]]), np.append(a[1], b[1]))  # noqa: E731
        return join(self.shared, self.first), self.shared if self.second is None else join(
            self.shared, self.second
        )


def problem(
    name: str, norm: float, n: int, dimension: int, total_ridge: float, adjacency: str, **more: Any
) -> Problem:
    loss, label = LOSSES[name]
    return Problem(
        loss=loss,
        bounds=DataBounds(data_norm=norm, **label),
        n=n,
        n_features=dimension,
        ridge=total_ridge / n,
        fit_intercept=False,
        adjacency=adjacency,  # type: ignore[arg-type]
        **more,
    )


def random_pair(
    name: str, norm: float, n: int, dimension: int, adjacency: str, rng: np.random.Generator
) -> Pair:
    """n - 1 shared records and one that differs; labels often extreme."""

    def records(size: int) -> tuple[Floats, Floats]:
        rows = rng.standard_normal((size, dimension))
        rows *= (
            norm / np.linalg.norm(rows, axis=1, keepdims=True) * np.where(rng.random((size, 1)) < 0.7, 1, 0.3)
        )
        labels = rng.integers(0, 2, size).astype(float) if "logistic" in name else rng.uniform(-1, 1, size)
        return rows, labels

    return Pair(name, records(n - 1), records(1), records(1) if adjacency == "replace-one" else None)


def log_density(
    name: str, data: tuple[Floats, Floats], theta: Floats, ridge: float, log_noise: Any
) -> Floats:
    """log density of argmin sum loss + ridge/2 |t|^2 + <b, t> at theta[k, p], for log_noise(b) the density of b."""
    rows, labels = data
    slope, curvature = slopes_and_curvatures(name, theta @ rows.T, labels)
    gradient = slope @ rows + ridge * theta
    hessian = np.einsum("ki,ia,ib->kab", curvature, rows, rows) + ridge * np.eye(theta.shape[1])
    return np.asarray(log_noise(-gradient) + np.linalg.slogdet(hessian)[1])


def gamma_norm_density(scale: float, dimension: int) -> Any:
    """log of exp(-|b| / scale) up to a constant that neighbours share."""
    return lambda b: -np.linalg.norm(b, axis=1) / scale


def gaussian_density(scale: float, dimension: int) -> Any:
    """log density of N(0, scale^2 I)."""
    constant = dimension * math.log(scale * math.sqrt(2 * math.pi))
    return lambda b: -(b**2).sum(axis=1) / (2 * scale**2) - constant


def log_density_of_minimiser(
    rows: Floats, weights: Floats, at: Floats, ridge: float, scale: float, slope: float
) -> float:
    """Return the log density of the minimiser at a point, rows multiplied by the signs of their labels."""
    sizes = expit(-rows @ at)
    curvatures = np.where(sizes < slope, sizes * (1 - sizes), 0.0)
    gradient = ridge * at - (weights * np.minimum(sizes, slope)) @ rows
    hessian = ridge * np.eye(len(at)) + (rows * (weights * curvatures)[:, None]).T @ rows
    return float(-np.linalg.norm(gradient) / scale + np.linalg.slogdet(hessian)[1])


def worst_logistic_ratio(
    ridge: float, scale: float, slope: float, adjacency: str, far: float = 100.0, points: int = 120
) -> float:
    """Return the log ratio of the family that attains the cost: docs/theory/planner.md, section 1.

    The record is e_1 and the point (-t, far), so that its slope is that of the score -t. Many equal records of small
    slope make the gradient of the others e_1 there, and add almost no curvature along e_1. The record in its place is
    nearly -e_1, tilted so that its slope is at its bound.
    """
    best = 0.0
    for size in np.linspace(0.5, min(slope, 0.9999), points)[:-1]:
        t = math.log(size / (1 - size))
        pull = np.array([1.5 + ridge * t, ridge * far])
        length = float(np.linalg.norm(pull))
        at, row = np.array([-t, far]), np.array([-pull[0], pull[1]]) / length
        weight = length * (1 + math.exp(float(row @ at)))
        angle = (t + 0.01 + min(9.0, math.log(slope / (1 - slope + 1e-9)))) / far
        neighbour = [[-math.cos(angle), -math.sin(angle)]][: int(adjacency == "replace-one")]
        tables = [np.array([row, *more]) for more in ([[1.0, 0.0]], neighbour)]
        one, other = (
            log_density_of_minimiser(
                table, np.append(weight, np.ones(len(table) - 1)), at, ridge, scale, slope
            )
            for table in tables
        )
        best = max(best, one - other)
    return best
