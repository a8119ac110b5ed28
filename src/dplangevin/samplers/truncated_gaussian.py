"""exp(-V) for a quadratic V on a convex body: a Gaussian conditioned on the body, drawn exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dplangevin import _check
from dplangevin._arrays import Floats
from dplangevin.errors import InvalidParameter
from dplangevin.samplers.bodies import Body
from dplangevin.samplers.rejection import rejection


def isotropic_gaussian(
    mean: ArrayLike, variance: float, body: Body, size: int, rng: np.random.Generator
) -> Floats:
    """`size` draws of N(mean, variance I) conditioned on a body that draws isotropic Gaussians exactly."""
    variance = _check.positive("variance", variance)
    centre = _vector("mean", mean, body)
    return body.gaussian(np.tile((centre / variance)[:, None], size), 1 / variance, rng)


def quadratic_gaussian(
    mean: ArrayLike,
    precision: ArrayLike,
    body: Body,
    size: int,
    rng: np.random.Generator,
    max_proposals: int | None = None,
) -> Floats:
    """`size` draws of N(mean, precision^-1) conditioned on the body, by rejection.

    The acceptance probability is the Gaussian's mass of the body. Without a cap the draw is exact; a cap of N
    proposals changes the law by sup over data sets of (1 - acceptance)^N, which the caller must account for.
    """
    centre = _vector("mean", mean, body)
    matrix = np.atleast_2d(np.asarray(precision, float))
    if matrix.shape != (body.dimension, body.dimension) or not np.allclose(matrix, matrix.T):
        raise InvalidParameter(
            f"precision must be a symmetric matrix of size {body.dimension}, got {matrix.shape}."
        )
    values, vectors = np.linalg.eigh(matrix)
    if values[0] <= 0:
        raise InvalidParameter(
            f"precision must be positive definite; its smallest eigenvalue is {values[0]!r}."
        )

    def propose(batch: int) -> tuple[Floats, Floats]:
        normal = rng.standard_normal((body.dimension, batch)) / np.sqrt(values)[:, None]
        x = centre[:, None] + vectors @ normal
        x = body.project(x[:, body.contains(x)])
        return x, np.zeros(x.shape[1])

    return rejection(propose, body.dimension, size, max_proposals, 0.0, rng)[0]


def _vector(name: str, value: ArrayLike, body: Body) -> Floats:
    vector = np.atleast_1d(np.asarray(value, float))
    if vector.shape != (body.dimension,) or not np.all(np.isfinite(vector)):
        raise InvalidParameter(f"{name} must be {body.dimension} finite numbers, got {value!r}.")
    return vector
