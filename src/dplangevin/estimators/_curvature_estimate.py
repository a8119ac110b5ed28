"""What is expected of a curvature matrix after its noisy release, and how far each entry may still be off.

Its diagonal stands well above the noise; most of what lies beside it, on the scale of correlations, is near 0, and some
is not. So the entries beside the diagonal, divided by the roots of the diagonal's, are taken as draws from a mixture of
normals around 0 with the variances VARIANCES, whose shares are fitted to the released entries themselves (Stephens
2017, False discovery rates: a new deal). Each entry becomes its mean given what was released, and keeps the variance
that is left. All of it is post-processing.
"""

from __future__ import annotations

import numpy as np

from dplangevin._arrays import Floats

VARIANCES = np.array([1e-6, 0.001, 0.004, 0.016, 0.064, 0.25])
FLOOR = 2.0
"""The diagonal counts for at least so many deviations; an eigenvalue below so many counts as 0."""
_ROUNDS = 200


def expected(matrix: Floats, deviation: float) -> tuple[Floats, Floats]:
    """(mean, variances of the entries) of a positive semidefinite matrix from its noisy release.

    deviation : of the noise on the diagonal; beside it the variance is half as large.
    """
    size = len(matrix)
    diagonal = np.maximum(np.diag(matrix), max(FLOOR * deviation, 1e-300))
    scale = np.sqrt(np.outer(diagonal, diagonal))
    first, second = np.triu_indices(size, 1)
    mean, left = _shrunk((matrix / scale)[first, second], (deviation / scale[first, second]) ** 2 / 2)
    whole, doubt = np.eye(size), np.zeros((size, size))
    whole[first, second] = whole[second, first] = mean
    doubt[first, second] = doubt[second, first] = left
    values, vectors = np.linalg.eigh(whole * scale)
    return (
        np.asarray((vectors * np.where(values > FLOOR * deviation, values, 0.0)) @ vectors.T),
        np.asarray(doubt * scale**2 + deviation**2 * np.eye(size)),
    )


def _shrunk(entries: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Means and variances given the entries, whose noise has these variances."""
    if not len(entries) or not noise.any():
        return entries, np.zeros(len(entries))
    total = noise[:, None] + VARIANCES
    logs = -0.5 * (np.log(total) + entries[:, None] ** 2 / total)
    likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares = np.full(len(VARIANCES), 1 / len(VARIANCES))
    for _ in range(_ROUNDS):
        chance = likelihood * shares
        chance /= chance.sum(axis=1, keepdims=True)
        shares = (chance.sum(axis=0) + 0.5) / (len(entries) + 0.5 * len(shares))
    means = entries[:, None] * VARIANCES / total
    mean = (chance * means).sum(axis=1)
    return mean, (chance * (noise[:, None] * VARIANCES / total + means**2)).sum(axis=1) - mean**2
