"""Empirical-Bayes weights of the iterates: how far coefficients should be pulled to zero, read off the released path.

All of it is post-processing of noisy gradients that composition covers. Windows are means of the iterates (see
`response`); hypotheses say how large coefficients are (a normal prior of deviation sd each, rows of norm 1) and how
curved the risk is; their posterior, given the windows, weights the windows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dplangevin.families.whitened.excess import bend
from dplangevin.families.whitened.geometry import Geometry
from dplangevin.families.whitened.response import Path, response

Floats = NDArray[np.float64]
_Law = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
CENTRE = 5.0
"""The size of coefficients that the rules expect (half of the reach of logistic regression)."""
DEVIATIONS = 2.0 ** (np.arange(-6, 13) / 2)
CURVATURES = (1.0, 0.6, 0.36, 0.2)
"""The mean curvature of the loss as a share of its largest one."""
DECAYS = (0.0, 0.5, 1.0, 1.5, 2.5)
STRONG = 6.0
"""Up to this deviation effects count as weak."""


class Shrunk(NamedTuple):
    """The weighted answer, and the posterior probability that effects are weak."""

    value: Floats
    weak: float


def shrink(
    windows: Floats,
    geometry: Geometry,
    steps: Floats,
    noise: float,
    slope: float,
    path: Path,
    records: float,
) -> Shrunk:
    """lambda E[q | windows] + (1 - lambda) w_3, lambda the posterior probability that sd <= STRONG.

    windows : [3, p] in q. steps : step size of each coordinate. noise : standard deviation on a coordinate of the
    last gradient. slope : the largest curvature of the loss in the score. records : the public number of them, n: the
    minimiser over n records is off by 1 / (n curvature) in variance, which the windows cannot tell from a coefficient.
    """
    law = partial(_covariances, noise=noise, path=path, records=records)
    resolved = geometry.spectrum.resolved
    prior = 1 / np.einsum("ij,ij->j", geometry.frame.basis, geometry.frame.basis)
    logs = np.empty((len(CURVATURES), len(DECAYS), len(DEVIATIONS)))
    means = np.zeros((len(CURVATURES), len(DEVIATIONS), windows.shape[1]))
    parts = []
    for i, share in enumerate(CURVATURES):
        fit, means[i][:, resolved] = _resolved(
            windows[:, resolved], share * slope * geometry.moments[resolved], prior[resolved], steps[resolved],
            law,
        )  # fmt: skip
        for j, decay in enumerate(DECAYS):
            more, middle, right = _unresolved(
                windows[:, ~resolved], _guess(geometry, decay) * share * slope, prior[~resolved],
                steps[~resolved], law,
            )  # fmt: skip
            parts.append((middle, right))
            logs[i, j] = fit + more - np.log(DEVIATIONS / CENTRE) ** 2 / 2
    posterior = np.exp(logs - logsumexp(logs))
    weak = float(posterior[..., DEVIATIONS <= STRONG].sum())
    expected = np.einsum("id,idp->p", posterior.sum(axis=1), means)
    if not resolved.all():
        chances = posterior.reshape(len(parts), -1)
        middle = np.einsum("kd,kdjl->jl", chances, np.array([part[0] for part in parts]))
        right = np.einsum("kd,kdj->j", chances, np.array([part[1] for part in parts]))
        expected[~resolved] = solved(middle, right) @ windows[:, ~resolved]
    return Shrunk(weak * expected + (1 - weak) * windows[2], weak)


def shrink_tail(
    tail: Floats, geometry: Geometry, steps: Floats, noise: float, slope: float, path: Path, records: float
) -> Shrunk:
    """The same in white coordinates, where the tail has converged: it is the minimiser and noise of known size.

    Coefficients are alike along the axes of the rows; those of a second look are arbitrary: its eigenvalues are alike.
    The curvature follows from the scores, whose root mean square is |tail|.
    """
    _, lengths, axes = np.linalg.svd(geometry.frame.basis)
    seen, etas = axes @ tail, np.exp(axes**2 @ np.log(steps))
    curvature = slope * bend(float(np.linalg.norm(tail)))
    expected = response(path, np.minimum(etas * curvature, 2.0))
    reached, squares = expected.reached[:, -1], DEVIATIONS[:, None] ** 2 * lengths**-2
    spread = (etas * noise) ** 2 * expected.noise[:, -1, -1] + reached**2 / (records * curvature)
    joint = squares * reached**2 + spread
    logs = -(np.log(joint) + seen**2 / joint).sum(axis=1) / 2 - np.log(DEVIATIONS / CENTRE) ** 2 / 2
    posterior = np.exp(logs - logsumexp(logs))
    weak = float(posterior[DEVIATIONS <= STRONG].sum())
    pulled = weak * (posterior @ (squares * reached / joint) * seen - seen)
    return Shrunk(tail + pulled @ axes, weak)


def _guess(geometry: Geometry, decay: float) -> Floats:
    """Second moments of the unresolved coordinates if they fall off as i^-decay, none beyond the edge of the noise."""
    found = geometry.spectrum
    unresolved = ~found.resolved
    count = int(unresolved.sum())
    if not count:
        return np.empty(0)
    shape = np.arange(1.0, count + 1) ** -decay
    moments = shape / shape.sum() * geometry.moments[unresolved].sum()
    scale = geometry.moments[unresolved][0] / found.values[unresolved][0]
    return np.asarray(np.minimum(moments, found.edge * scale))


def _covariances(
    curvatures: Floats, steps: Floats, *, noise: float, path: Path, records: float
) -> tuple[Floats, Floats, Floats]:
    """For each coordinate phi phi', the covariance of what is no coefficient (noise and the sample), and phi."""
    seen = response(path, steps * curvatures)
    outer = seen.reached[:, :, None] * seen.reached[:, None, :]
    sample = (1 / (records * curvatures))[:, None, None] * outer
    return outer, ((steps * noise) ** 2)[:, None, None] * seen.noise + sample, seen.reached


def _resolved(
    windows: Floats, curvatures: Floats, prior: Floats, steps: Floats, law: _Law
) -> tuple[Floats, Floats]:
    """Log-likelihood and posterior means, for each deviation."""
    squares = DEVIATIONS**2
    outer, spread, reached = law(curvatures, steps)
    joint = _regular(squares[:, None, None, None] * prior[:, None, None] * outer + spread)  # [d, p, 3, 3]
    values = windows.T[None, :, :, None]
    inverse = np.linalg.solve(joint, np.broadcast_to(values, (*joint.shape[:2], 3, 1)))[..., 0]
    fit = np.einsum("dpj,jp->dp", inverse, windows) + np.linalg.slogdet(joint)[1]
    means = squares[:, None] * prior * np.einsum("dpj,pj->dp", inverse, reached)
    return -fit.sum(axis=1) / 2, means


def _unresolved(
    windows: Floats, curvatures: Floats, prior: Floats, steps: Floats, law: _Law
) -> tuple[Floats, Floats, Floats]:
    """Log-likelihood of coordinates whose curvatures are known up to their order, and the parts of their weights."""
    if not windows.size:
        zero = np.zeros(len(DEVIATIONS))
        return zero, np.zeros((len(zero), 3, 3)), np.zeros((len(zero), 3))
    outer, spread, reached = law(curvatures, steps)
    return weighted_fit(
        windows, curvatures, prior[:, None, None] * outer, spread, prior[:, None] * reached, DEVIATIONS
    )


def weighted_fit(
    windows: Floats, curvatures: Floats, outer: Floats, spread: Floats, right: Floats, deviations: Floats
) -> tuple[Floats, Floats, Floats]:
    """-(p/2) log det K - tr(K^-1 W W')/2 for each deviation, and B, c of the weights B^-1 c that minimise the expected
    curvature-weighted error."""
    squares, count = deviations**2, windows.shape[1]
    joint = _regular(squares[:, None, None] * outer.mean(axis=0) + spread.mean(axis=0))
    gram = windows @ windows.T
    fit = np.trace(np.linalg.solve(joint, np.broadcast_to(gram, joint.shape)), axis1=1, axis2=2)
    log = -(count * np.linalg.slogdet(joint)[1] + fit) / 2
    weighted = curvatures[:, None, None]
    middle = squares[:, None, None] * (weighted * outer).sum(axis=0) + (weighted * spread).sum(axis=0)
    return log, middle, squares[:, None] * (curvatures[:, None] * right).sum(axis=0)


def solved(middle: Floats, right: Floats) -> Floats:
    """B^-1 c."""
    return np.asarray(np.linalg.solve(_regular(middle), right))


def _regular(matrices: Floats) -> Floats:
    """With a trace of a ridge: windows of few steps are nearly alike."""
    scale = np.trace(matrices, axis1=-2, axis2=-1)[..., None, None]
    return np.asarray(matrices + 1e-9 / 3 * scale * np.eye(3))
