"""The noise with the smallest error for counts: a search over its shape, before any record is read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from dplangevin._search import golden
from dplangevin.families.noisy_answers.error_laws import IndependentError, error_law
from dplangevin.privacy.generalized_gaussian import absolute_moment, fisher_information, smallest_sigma
from dplangevin.samplers.cut_cube import cube_sampler
from dplangevin.samplers.norm_lattice import lattice_acceptance

Objective = Literal["max", "rmse"]
_SHAPES = (1.0, 1.3, 1.6, 2.0, 2.6, 3.4, 4.5, 6.0, 9.0)
_GAIN = 0.995  # dependent noise composes worse: it has to win by more than this
_LARGEST_COST = 5e8  # numbers drawn, on average, for one release
_LARGEST_SECURE_COST = 1e7
_MOST_SECURE = 2**17  # so that sums of sizes stay within 64 bits


def norm_scale(epsilon: float, delta: float, *, secure: bool = False) -> float:
    """The smallest scale of the noise exp(-|x|_K / scale): that of one Laplace answer; on a grid it is pure."""
    if secure:  # a hair more, for the rounding of the cost
        return smallest_sigma(1.0, 1, epsilon, 0.0) * (1 + 2e-9)
    return smallest_sigma(1.0, 1, epsilon, delta)


def within_reach(k: int, changed: int, *, secure: bool = False) -> bool:
    """Whether the noise of the largest norm is drawn in seconds."""
    if secure:
        return k <= min(_MOST_SECURE, _LARGEST_SECURE_COST * lattice_acceptance(k, changed)[1])
    return k <= _LARGEST_COST * cube_sampler(k, float(changed)).acceptance


def best_noise(
    k: int, changed: int, epsilon: float, delta: float, objective: Objective, *, secure: bool
) -> float:
    """The p with the smallest error, inf among them. When one count changes, p = inf is p = 1."""
    p = 1.0 if delta == 0 else best_shape(k, changed, epsilon, delta, objective)
    if changed == 1:
        return p

    def size(shape: float) -> float:
        law = error_law(k, changed, shape)
        return law.expected_maximum() if objective == "max" else law.power_mean(2.0)

    most = _GAIN * smallest_sigma(p, changed, epsilon, delta) * size(p)
    scale = norm_scale(epsilon, delta, secure=secure)
    if delta > 0 and scale * changed / 4 > most:  # both errors are at least changed / 4: see the theory page
        return p
    return math.inf if within_reach(k, changed, secure=secure) and scale * size(math.inf) < most else p


def best_shape(k: int, changed: int, epsilon: float, delta: float, objective: Objective) -> float:
    """The p with the smallest error: a rough search, then p = 1 and p = 2 as candidates beside its result."""

    def size(p: float) -> float:
        return (
            IndependentError(k, p).expected_maximum()
            if objective == "max"
            else math.sqrt(absolute_moment(p, 2))
        )

    def loss(p: float, *, rough: bool = True) -> float:
        return smallest_sigma(p, changed, epsilon, delta, rough=rough) * size(p)

    if changed >= 10_000:  # the loss is Gaussian enough: sigma grows as sqrt(I(p))
        found = golden(lambda p: math.sqrt(fisher_information(p)) * size(p), 1.0, 12.0, 0.05)
    else:
        found = golden(loss, *_bracket(loss), 0.05)
    candidates = {round(found, 2), 1.0, 2.0}
    good = 1.005 * min(loss(p) for p in candidates)  # rough losses are off by 0.1% or less
    return min((p for p in candidates if loss(p) <= good), key=lambda p: loss(p, rough=False))


def _bracket(function: Callable[[float], float]) -> tuple[float, float]:
    """Neighbours of the best shape on the list, walking downhill from p = 2."""
    values = {3: function(_SHAPES[3])}
    for step in (1, -1):
        place = 3 + step
        while 0 <= place < len(_SHAPES):
            values[place] = function(_SHAPES[place])
            if values[place] > values[place - step]:
                break
            place += step
    best = min(values, key=values.__getitem__)
    return _SHAPES[max(best - 1, 0)], _SHAPES[min(best + 1, len(_SHAPES) - 1)]
