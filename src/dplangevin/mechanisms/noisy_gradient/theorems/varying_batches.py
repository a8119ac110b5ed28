"""Hidden-state bounds for random batches whose step size or noise varies: S1 and S3 step by step.

With c_t, s_t, v_t and noise multiplier nm_t of step t, C_t = prod_{i > t} c_i and Z the distance of the two runs k
steps before the end, the proof of `hidden_state` gives at order alpha, for one fraction rho of each noise variance,

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
from dplangevin.accounting import sampled_gaussian as sg
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import NoisyGradientTheorem
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import (
    NOISE_SPLITS,
    DistanceMoment,
    batch_contraction,
    check_hidden_state_run,
    log_mixture,
)
from dplangevin.problem.constants import Constants

VARYING_NOISE_SPLITS: Floats = NOISE_SPLITS[2::5]
_MAX_NOISE_CLASSES = 16
_N_LEVELS = 200


@dataclass(frozen=True, kw_only=True)
class VaryingBatchRun:
    """theta <- project(phi_t(theta) + N(0, v_t^2 I)) with a fresh random batch each step; arrays over steps.

    multipliers, multiplier_index : the distinct noise multipliers, and the index of that (rounded down) of every
        step.
    oversized_probability : probability that some batch of the run is too large, for Poisson batches.
    """

    sampling: str
    rate: float
    shifts: Floats
    noises: Floats
    contractions: Floats
    multipliers: Floats
    multiplier_index: NDArray[np.int64]
    diameter: float
    oversized_probability: float

    def renyi_curve(self, orders: Floats, noise_multiplier: float) -> Floats:
        """Return the Renyi curve of one step."""
        curve = sg.renyi_poisson if self.sampling == "poisson" else sg.renyi_without_replacement
        return curve(orders, self.rate, noise_multiplier)


def make_varying_batch_run(
    theorem: NoisyGradientTheorem, constants: Constants, spec: NoisyGradientSpec
) -> VaryingBatchRun:
    """Check every hypothesis, and return the run step by step."""
    check_hidden_state_run(theorem, constants, spec, ("last-iterate",))
    size = spec.divisor(constants.n)
    steps, noises = spec.step_sizes(), spec.noise_stds()
    values, index = np.unique(steps, return_inverse=True)
    contractions_and_chances = [
        batch_contraction(theorem, constants, float(value), spec.sampling, size) for value in values.tolist()
    ]
    contractions = np.array([lipschitz for lipschitz, _ in contractions_and_chances])[index]
    if np.max(contractions) > 1:
        raise theorem.refuse(
            f"a step expands distances (contraction constant {float(np.max(contractions)):.6g} > 1)",
            f"Lower every step_size to at most 2 / smoothness = {2 / constants.smoothness:.6g}.",
        )
    oversized = float(np.sum(np.array([chance for _, chance in contractions_and_chances])[index])) * (
        1 + 1e-9
    )
    if oversized >= 1:
        raise theorem.refuse(
            "some Poisson batch is too large for its step size", "Lower step_size or the number of steps."
        )
    multipliers, multiplier_index = _group_multipliers(noises * (size / constants.gradient_sensitivity))
    return VaryingBatchRun(
        sampling=spec.sampling,
        rate=size / constants.n,
        shifts=steps * constants.gradient_sensitivity / size,
        noises=steps * noises,
        contractions=contractions,
        multipliers=multipliers,
        multiplier_index=multiplier_index,
        diameter=constants.diameter,
        oversized_probability=oversized,
    )


def _group_multipliers(multipliers: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Round the noise multipliers down to a few values; return these and the index of every step's."""
    kinds, index = np.unique(multipliers, return_inverse=True)
    if len(kinds) > _MAX_NOISE_CLASSES:
        edges = np.geomspace(kinds[0], kinds[-1], _MAX_NOISE_CLASSES + 1)[:-1]
        edges[0] = kinds[0]
        index = np.searchsorted(edges, multipliers, side="right") - 1
        kinds = edges
    return kinds * (1 - 1e-12), index.astype(np.int64)


@lru_cache(maxsize=4)
def _cached_varying_curves(
    sampling: str, rate: float, kinds: tuple[float, ...], orders: tuple[float, ...]
) -> Floats:
    """Return S at every noise multiplier and split, rho = 0 first: [multiplier, split, order]."""
    curve = sg.renyi_poisson if sampling == "poisson" else sg.renyi_without_replacement
    splits = np.append(0.0, VARYING_NOISE_SPLITS)
    return np.array(
        [[curve(np.array(orders), rate, kind * math.sqrt(1 - split)) for split in splits] for kind in kinds]
    )


def varying_step_curves(run: VaryingBatchRun, orders: Floats) -> Floats:
    """Return S at every noise multiplier, split and order."""
    return _cached_varying_curves(
        run.sampling, run.rate, tuple(run.multipliers.tolist()), tuple(orders.tolist())
    )


def max_distances(run: VaryingBatchRun) -> Floats:
    """Return D_0, ..., D_T."""
    result = [0.0]
    for lipschitz, shift in zip(run.contractions.tolist(), run.shifts.tolist(), strict=True):
        result.append(min(run.diameter, (lipschitz * result[-1] + shift) * (1 + 1e-15)))
    return np.array(result)


VaryingStartMoment = Callable[[int], Callable[[Floats], Floats]]
"""k -> (lambda -> log E exp(lambda Z^2)), for the distance Z of the two runs k steps before the end."""


def cheapest_restart(
    run: VaryingBatchRun, orders: Floats, start: VaryingStartMoment, lengths: Floats
) -> Floats:
    """Return the smallest cost over restarts, splits and plain composition at every order."""
    curves, count = varying_step_curves(run, orders), len(run.multiplier_index)
    tails = np.append(np.cumprod(run.contractions[::-1])[::-1], 1.0)  # C_0, ..., C_T
    # weights[k - 1] is that of the last k steps; sums of positive terms, so no cancellation
    weights = np.cumsum(((tails[1:] * run.noises) ** 2)[::-1])
    restart_lengths = lengths.astype(int)
    used = np.cumsum(
        [_multiplier_counts(run, count - high, count - low) for low, high in pairwise([0, *restart_lengths])],
        axis=0,
    )
    best = _multiplier_counts(run, 0, count) @ curves[:, 0, :]
    shape = orders * (orders - 1) / 2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        for k, uses in zip(restart_lengths.tolist(), used, strict=True):
            leverage = (max(float(tails[count - k]), 1e-300) / np.sqrt(weights[k - 1])) ** 2
            leverage = np.maximum(leverage * (1 + 1e-15 * count), 1e-300)  # rounding of k factors; never zero
            cost = np.tensordot(uses, curves[:, 1:, :], axes=1)
            cost = cost + start(k)(shape * leverage / VARYING_NOISE_SPLITS[:, None]) / (orders - 1)
            best = np.fmin(best, np.fmin.reduce(cost, axis=0))
    return best


def _multiplier_counts(run: VaryingBatchRun, low: int, high: int) -> Floats:
    return np.bincount(run.multiplier_index[low:high], minlength=len(run.multipliers)).astype(float)


def worst_distance_costs(run: VaryingBatchRun, orders: Floats) -> Floats:
    """Return the costs by S1, from the largest distance the runs can have."""
    distances, count = max_distances(run), len(run.multiplier_index)

    def start_moment(k: int) -> Callable[[Floats], Floats]:
        square = float(distances[count - k]) ** 2
        return lambda scale: np.asarray(scale * square)

    return cheapest_restart(run, orders, start_moment, np.unique(np.round(np.geomspace(1, count, 160))))


def random_distance_costs(run: VaryingBatchRun, orders: Floats) -> Floats:
    """Return the costs by S3, from the random distance due to the record's participation."""
    distances, count = max_distances(run), len(run.multiplier_index)

    def start_moment(k: int) -> Callable[[Floats], Floats]:
        before = count - k
        square = float(distances[before]) ** 2
        if before == 0:
            return lambda scale: np.zeros_like(scale)
        decay = np.append(np.cumprod(run.contractions[before - 1 : 0 : -1])[::-1], 1.0)  # C_i / C_before
        weights = run.shifts[:before] * decay * (1 + 1e-15 * count)
        levels, uses = _split_on_levels(weights)

        def log_moment(theta: Floats) -> Floats:
            return np.asarray(log_mixture(np.multiply.outer(theta, levels), run.rate) @ uses)

        moment = DistanceMoment(float(weights.sum()), float(distances[before]), log_moment)
        return lambda scale: np.minimum(scale * square, moment(scale))

    return cheapest_restart(run, orders, start_moment, np.unique(np.round(np.geomspace(1, count, 24))))


def _split_on_levels(weights: Floats) -> tuple[Floats, Floats]:
    """Split each jump between its two neighbouring levels, which increases the mean of convex functions."""
    levels = np.append(0.0, np.geomspace(1e-4, 1.0, _N_LEVELS) * float(np.max(weights)) * (1 + 1e-15))
    upper = np.clip(np.searchsorted(levels, weights, side="left"), 1, _N_LEVELS)
    part = np.clip((weights - levels[upper - 1]) / (levels[upper] - levels[upper - 1]), 0.0, 1.0)
    uses = np.bincount(upper, part, _N_LEVELS + 1) + np.bincount(upper - 1, 1 - part, _N_LEVELS + 1)
    return levels, np.asarray(uses * (1 + 1e-13), np.float64)
