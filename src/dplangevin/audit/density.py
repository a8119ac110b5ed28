"""Density-ratio audit: laws that can be integrated are compared without sampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import logsumexp

from dplangevin._arrays import Floats
from dplangevin.audit.attack import _mu, allowed_points, checked_delta
from dplangevin.audit.claim import as_guarantee, trade_off
from dplangevin.audit.result import AuditResult
from dplangevin.errors import InvalidParameter
from dplangevin.privacy.guarantee import Guarantee

LogDensity = Callable[[Floats], Floats]
_NODES = 4
_CELLS = {1: 20_000, 2: 500}
_SLACK = 1e-9


def density_attack(
    first: LogDensity,
    second: LogDensity,
    box: Sequence[tuple[float, float]],
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    canary: str = "",
) -> AuditResult:
    """Compare two laws given by log densities (up to a constant) on an interval or a rectangle.

    The box is cut into cells whose masses are integrated by Gauss-Legendre rules of four nodes a side; the tests are
    unions of cells in the order of their mass ratio, so that each is a real set. Exact up to quadrature error.

    Parameters
    ----------
    first, second : log densities of points [count, dimension] -> [count].
    box : (low, high) of each of the one or two coordinates; it must hold the whole of both laws.

    Examples
    --------
    >>> result = density_attack(lambda x: -abs(x[:, 0]), lambda x: -abs(x[:, 0] - 1), [(-40.0, 41.0)], (1.0, 0.0),
    ...                         delta=0.0)
    >>> round(result.epsilon_lower, 6), result.refuted
    (1.0, False)
    """
    if len(box) not in _CELLS:
        raise InvalidParameter(f"box must have one or two sides, got {len(box)}; use method='many-run'.")
    p, q = _masses(first, box), _masses(second, box)
    tests = [np.array([[0.0], [0.0]])]
    for one, other in ((p, q), (q, p)):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(other > 0, one / other, np.where(one > 0, np.inf, 0.0))
        order = np.argsort(-ratio, kind="stable")
        tests.append(np.array([np.cumsum(other[order]), np.cumsum(one[order])]))
    sizes, powers = np.concatenate(tests, axis=1)
    return from_tests(sizes, powers, claim, delta=delta, canary=canary)


def _masses(density: LogDensity, box: Sequence[tuple[float, float]]) -> Floats:
    """Probabilities of the cells of the box."""
    cells = _CELLS[len(box)]
    x, w = np.polynomial.legendre.leggauss(_NODES)
    sides = []
    for low, high in box:
        if not low < high:
            raise InvalidParameter(f"box has a side from {low!r} to {high!r}; low must be below high.")
        width = (high - low) / cells
        centres = low + width * (np.arange(cells) + 0.5)
        sides.append(centres[:, None] + width / 2 * x[None, :])
    if len(box) == 1:
        values, weights = density(sides[0].reshape(-1, 1)).reshape(cells, _NODES), np.log(w)
        logs = logsumexp(values + weights, axis=1)
    else:
        points = np.stack(np.meshgrid(sides[0].ravel(), sides[1].ravel(), indexing="ij"), axis=-1)
        square = density(points.reshape(-1, 2)).reshape(cells, _NODES, cells, _NODES)
        logs = logsumexp(square + np.log(w)[None, :, None, None] + np.log(w), axis=(1, 3)).ravel()
    if np.isnan(logs).any():
        raise InvalidParameter("a log density is NaN inside the box.")
    return np.asarray(np.exp(logs - logsumexp(logs)))


def from_tests(
    sizes: Floats,
    powers: Floats,
    claim: Guarantee | tuple[float, float] | None,
    *,
    delta: float,
    canary: str = "",
) -> AuditResult:
    """The audit that a family of tests with known size and power makes."""
    promise = as_guarantee(claim)
    delta = checked_delta(delta, promise)
    size, power = (np.clip(value, 0, 1) for value in (sizes * (1 + _SLACK) + 1e-14, powers * (1 - _SLACK)))
    with np.errstate(divide="ignore"):
        epsilons = np.log(np.maximum(power - delta, 0.0)) - np.log(size)
    curve = None if promise is None else trade_off(promise)
    place, refuted = int(np.argmax(epsilons)), False
    if curve is not None:
        above = power - curve.power(size)
        place = int(np.argmax(above))
        refuted = bool(above[place] > 0)
    kept = np.argsort(sizes)[:: max(1, len(sizes) // 100)]
    return AuditResult(
        epsilon_lower=max(0.0, float(np.max(epsilons))),
        mu_lower=max(0.0, _largest_mu(size, power)),
        delta=delta,
        confidence=1.0,
        runs=0,
        refuted=refuted,
        method="density",
        canary=canary,
        claimed=None if promise is None else promise.to_dict(delta),
        tested=(float(size[place]), float(power[place])),
        measured=tuple((float(sizes[i]), float(powers[i])) for i in kept),
        allowed=allowed_points(curve),
    )


def _largest_mu(size: Floats, power: Floats) -> float:
    """From tests whose rates are well above the slack, so that rounding does not speak."""
    clear = (size > 1e3 * _SLACK) & (power < 1 - 1e3 * _SLACK) & (power > size)
    return float(np.max(_mu(size[clear], power[clear]))) if clear.any() else -math.inf
