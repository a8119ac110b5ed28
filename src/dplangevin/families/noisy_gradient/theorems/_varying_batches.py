"""Random batches whose step size or noise varies from step to step: S1 and S3 step by step.

With c_t, s_t, v_t and noise multiplier nm_t of step t, C_t = prod_{i > t} c_i and Z the distance of the two runs k
steps before the end, the proof of `hidden_state_sgd` gives at order alpha, for one share rho of every step's noise,

    sum_{t > T-k} S(nm_t sqrt(1 - rho)) + log E exp(lambda Z^2) / (alpha - 1),
    lambda = alpha (alpha - 1) C_{T-k}^2 / (2 rho sum_{t > T-k} C_t^2 v_t^2).

Z is at most D_{T-k} (S1), where D_0 = 0 and D_t = min(D, c_t D_{t-1} + s_t); given the batches it is at most
sum_{i <= T-k} (C_i / C_{T-k}) s_i R_i, R_i independent Bernoulli (S3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems._distance_moment import DistanceMoment, log_mixture
from dplangevin.families.noisy_gradient.theorems._noise_split import SHARES
from dplangevin.families.noisy_gradient.theorems._random_batches import check_run, contraction_of
from dplangevin.privacy import sampled_gaussian as sg
from dplangevin.problem.constants import Constants

VARYING_SHARES: Floats = SHARES[2::5]
_MOST_CLASSES = 16
_LEVELS = 200


@dataclass(frozen=True, kw_only=True)
class VaryingRun:
    """theta <- project(phi_t(theta) + N(0, v_t^2 I)) with a fresh random batch each step; arrays over steps.

    kinds, classes : noise multipliers on offer, and the one (rounded down) of every step.
    bad : probability that some batch of the run is too large, for Poisson batches.
    """

    sampling: str
    rate: float
    shifts: Floats
    noises: Floats
    contractions: Floats
    kinds: Floats
    classes: NDArray[np.int64]
    diameter: float
    bad: float

    def curve(self, orders: Floats, noise_multiplier: float) -> Floats:
        """The Renyi curve of one step."""
        found = sg.renyi_poisson if self.sampling == "poisson" else sg.renyi_without_replacement
        return found(orders, self.rate, noise_multiplier)


def varying_run(
    theorem: NoisyGradientTheorem, constants: Constants, schedule: NoisyGradientSchedule
) -> VaryingRun:
    """The run step by step, after every hypothesis has been checked."""
    check_run(theorem, constants, schedule, ("last-iterate",))
    size = schedule.divisor(constants.n)
    steps, noises = schedule.step_sizes(), schedule.noise_stds()
    values, place = np.unique(steps, return_inverse=True)
    found = [
        contraction_of(theorem, constants, float(value), schedule.sampling, size) for value in values.tolist()
    ]
    contractions = np.array([lipschitz for lipschitz, _ in found])[place]
    if np.max(contractions) > 1:
        raise theorem.refuse(
            f"a step expands distances (contraction constant {float(np.max(contractions)):.6g} > 1)",
            f"Lower every step_size to at most 2 / smoothness = {2 / constants.smoothness:.6g}.",
        )
    bad = float(np.sum(np.array([chance for _, chance in found])[place])) * (1 + 1e-9)
    if bad >= 1:
        raise theorem.refuse(
            "some Poisson batch is too large for its step size", "Lower step_size or the number of steps."
        )
    kinds, classes = _classes(noises * (size / constants.gradient_sensitivity))
    return VaryingRun(
        sampling=schedule.sampling,
        rate=size / constants.n,
        shifts=steps * constants.gradient_sensitivity / size,
        noises=steps * noises,
        contractions=contractions,
        kinds=kinds,
        classes=classes,
        diameter=constants.diameter,
        bad=bad,
    )


def _classes(multipliers: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """At most a few noise multipliers, every step's rounded down to one of them (less noise costs more)."""
    kinds, place = np.unique(multipliers, return_inverse=True)
    if len(kinds) > _MOST_CLASSES:
        edges = np.geomspace(kinds[0], kinds[-1], _MOST_CLASSES + 1)[:-1]
        edges[0] = kinds[0]
        place = np.searchsorted(edges, multipliers, side="right") - 1
        kinds = edges
    return kinds * (1 - 1e-12), place.astype(np.int64)


@lru_cache(maxsize=4)
def _curves(sampling: str, rate: float, kinds: tuple[float, ...], orders: tuple[float, ...]) -> Floats:
    """S at every noise multiplier and share, rho = 0 first: [kind, share, order]."""
    curve = sg.renyi_poisson if sampling == "poisson" else sg.renyi_without_replacement
    shares = np.append(0.0, VARYING_SHARES)
    return np.array(
        [[curve(np.array(orders), rate, kind * math.sqrt(1 - share)) for share in shares] for kind in kinds]
    )


def step_curves(run: VaryingRun, orders: Floats) -> Floats:
    """S of every kind of step at every share and order."""
    return _curves(run.sampling, run.rate, tuple(run.kinds.tolist()), tuple(orders.tolist()))


def distances(run: VaryingRun) -> Floats:
    """D_0, ..., D_T."""
    found = [0.0]
    for lipschitz, shift in zip(run.contractions.tolist(), run.shifts.tolist(), strict=True):
        found.append(min(run.diameter, (lipschitz * found[-1] + shift) * (1 + 1e-15)))
    return np.array(found)


Start = Callable[[int], Callable[[Floats], Floats]]
"""k -> (lambda -> log E exp(lambda Z^2)), for the distance Z of the two runs k steps before the end."""


def cheapest(run: VaryingRun, orders: Floats, start: Start, lengths: Floats) -> Floats:
    """The smallest cost over restarts, shares and plain composition at every order."""
    curves, count = step_curves(run, orders), len(run.classes)
    tails = np.append(np.cumprod(run.contractions[::-1])[::-1], 1.0)  # C_0, ..., C_T
    weights = np.cumsum(
        ((tails[1:] * run.noises) ** 2)[::-1]
    )  # of the last k steps, k = 1..T: sums of positive terms
    looks = lengths.astype(int)
    used = np.cumsum(
        [_histogram(run, count - high, count - low) for low, high in pairwise([0, *looks])], axis=0
    )
    best = _histogram(run, 0, count) @ curves[:, 0, :]
    shape = orders * (orders - 1) / 2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        for k, uses in zip(looks.tolist(), used, strict=True):
            left = (max(float(tails[count - k]), 1e-300) / np.sqrt(weights[k - 1])) ** 2
            left = np.maximum(left * (1 + 1e-15 * count), 1e-300)  # rounding of k factors; never zero
            cost = np.tensordot(uses, curves[:, 1:, :], axes=1)
            cost = cost + start(k)(shape * left / VARYING_SHARES[:, None]) / (orders - 1)
            best = np.fmin(best, np.fmin.reduce(cost, axis=0))
    return best


def _histogram(run: VaryingRun, low: int, high: int) -> Floats:
    return np.bincount(run.classes[low:high], minlength=len(run.kinds)).astype(float)


def certain_split(run: VaryingRun, orders: Floats) -> Floats:
    """S1: from the largest distance the runs can have."""
    apart, count = distances(run), len(run.classes)

    def start(k: int) -> Callable[[Floats], Floats]:
        square = float(apart[count - k]) ** 2
        return lambda scale: np.asarray(scale * square)

    return cheapest(run, orders, start, np.unique(np.round(np.geomspace(1, count, 160))))


def random_split(run: VaryingRun, orders: Floats) -> Floats:
    """S3: from the random distance that the record's participation makes."""
    apart, count = distances(run), len(run.classes)

    def start(k: int) -> Callable[[Floats], Floats]:
        before = count - k
        square = float(apart[before]) ** 2
        if before == 0:
            return lambda scale: np.zeros_like(scale)
        decay = np.append(np.cumprod(run.contractions[before - 1 : 0 : -1])[::-1], 1.0)  # C_i / C_before
        weights = run.shifts[:before] * decay * (1 + 1e-15 * count)
        levels, uses = _levelled(weights)

        def log_moment(theta: Floats) -> Floats:
            return np.asarray(log_mixture(np.multiply.outer(theta, levels), run.rate) @ uses)

        moment = DistanceMoment(float(weights.sum()), float(apart[before]), log_moment)
        return lambda scale: np.minimum(scale * square, moment(scale))

    return cheapest(run, orders, start, np.unique(np.round(np.geomspace(1, count, 24))))


def _levelled(weights: Floats) -> tuple[Floats, Floats]:
    """Jumps on a few levels: one between two levels is shared by them, which raises the mean of convex functions."""
    levels = np.append(0.0, np.geomspace(1e-4, 1.0, _LEVELS) * float(np.max(weights)) * (1 + 1e-15))
    upper = np.clip(np.searchsorted(levels, weights, side="left"), 1, _LEVELS)
    part = np.clip((weights - levels[upper - 1]) / (levels[upper] - levels[upper - 1]), 0.0, 1.0)
    uses = np.bincount(upper, part, _LEVELS + 1) + np.bincount(upper - 1, 1 - part, _LEVELS + 1)
    return levels, np.asarray(uses * (1 + 1e-13), np.float64)
