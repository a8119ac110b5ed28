"""Hidden-state bounds of noisy SGD: the last iterate of a run on fresh random batches (S1, S2, S3).

With c_t, s_t, v_t and noise multiplier nm_t of step t, C_t = prod_{i > t} c_i and Z the distance of the two runs k
steps before the end, the proof of `hidden_state` gives at order alpha, for one fraction rho of each noise variance,

    sum_{t > T-k} S(nm_t sqrt(1 - rho)) + log E exp(lambda Z^2) / (alpha - 1),
    lambda = alpha (alpha - 1) C_{T-k}^2 / (2 rho sum_{t > T-k} C_t^2 v_t^2).

Z is at most D_{T-k} (S1), where D_0 = 0 and D_t = min(D, c_t D_{t-1} + s_t); given the batches it is at most
sum_{i <= T-k} (C_i / C_{T-k}) s_i R_i, R_i independent Bernoulli (S3).

S1. Both runs are kept within z_t of each other, starting D_{T-k} apart (the farthest they can be) k steps before the
end. Each of the last k steps costs S(1 - rho_t) for its secret batch, and alpha a_t^2 / (2 rho_t v^2) for a shift a_t
that uses the fraction rho_t of its noise variance. With a_t proportional to c^{T-t} rho_t the runs meet at the end:
order alpha costs

    sum_t S(1 - rho_t) + alpha c^{2k} D_{T-k}^2 / (2 v^2 sum_t c^{2(T-t)} rho_t).

Only Lipschitz constants of the first data set's batch maps enter, so c > 1 is allowed on a bounded set. S is the
curve of the sampled Gaussian in the direction that holds for a step; Definition 2.5 of the paper states the other.

S2 (`EveryStepShift`) is as if the differing record were in every batch.

S3: a random distance at the restart, with the differing record's participation averaged out. The bits
R_i = 1[differing record in batch i] are independent, Pr[R_i = 1] = q, and given them the two runs are at most
Z = min(D, sum_j c^j s R_{tau-j}) apart after tau steps. By joint convexity, with the last k = T - tau steps as in S1,
order alpha costs

    sum_t S(1 - rho_t) + log E exp(lambda Z^2) / (alpha - 1),
    lambda = alpha (alpha - 1) c^{2k} / (2 v^2 sum_t c^{2(T-t)} rho_t).

The moment is computed without a grid of distances (`DistanceMoment`). Varying steps: `varying_batches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dplangevin._arrays import Floats
from dplangevin.accounting import sampled_gaussian as sg
from dplangevin.accounting.conversions import ORDERS
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, RenyiCurve
from dplangevin.accounting.plan import round_up
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import NoisyGradientTheorem
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import best_restart_mu, same_start_mu
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import (
    NOISE_SPLITS,
    DistanceMoment,
    RandomBatchRun,
    RestartSplit,
    batch_contraction,
    best_split,
    check_hidden_state_run,
    hidden_state_assumptions,
    log_mixture,
    make_random_batch_run,
    restart_lengths,
    step_renyi_curves,
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


def hidden_state_split(run: RandomBatchRun, orders: Floats, curves: Floats) -> RestartSplit:
    """Return the cheapest restart at every order.

    If Poisson batches can be too large, restarts begin from the whole set: then only the later steps must contract.
    """

    restarts_anywhere = bool(run.oversized_probability) and math.isfinite(run.diameter)

    def start_moment(k: float, scale: Floats) -> Floats:
        distance = run.diameter if restarts_anywhere else float(run.max_distance(run.n_steps - k))
        return np.asarray(scale * distance**2)

    return best_split(run, orders, curves, start_moment, restart_lengths(run))


def n_contracting_steps(run: RandomBatchRun, lengths: Floats) -> float:
    """Return how many steps must contract for restarts of these lengths (0: no restart).

    On a bounded set, those after the restart; otherwise the distance at the restart requires the earlier ones too.
    """
    longest = float(np.max(lengths))
    return longest if longest == 0 or math.isfinite(run.diameter) else float(run.n_steps)


def oversized_batch_delta(theorem: NoisyGradientTheorem, run: RandomBatchRun, steps: float) -> float:
    """Return the probability, added to delta, of a too large Poisson batch in `steps` steps; refuse 1 or more."""
    chance = steps * run.oversized_probability if run.oversized_probability else 0.0
    if chance >= 1:
        raise theorem.refuse(
            f"a Poisson batch is too large for this step size with probability {run.oversized_probability:.2g} a step",
            "Lower step_size or the number of steps.",
        )
    return chance


def check_forgetting(theorem: NoisyGradientTheorem, run: RandomBatchRun) -> None:
    """Refuse an endless run on whose neighbouring data sets the iterates are never forced together."""
    if math.isfinite(run.n_steps) or math.isfinite(run.diameter):
        return
    if run.contraction >= 1:
        raise theorem.refuse(
            "the two runs are never forced together (no strong convexity and no bounded set)",
            "Add a ridge, state a diameter, or give a finite number of steps.",
        )
    if run.oversized_probability:
        raise theorem.refuse(
            "some Poisson batch of an endless run is too large for this step size",
            "Lower step_size, state a diameter, or give a finite number of steps.",
        )


def check_not_expansive(theorem: NoisyGradientTheorem, run: RandomBatchRun) -> None:
    """Refuse a step that expands distances."""
    if run.contraction > 1:
        raise theorem.refuse(
            f"the gradient step expands distances (contraction constant {run.contraction:.6g} > 1)",
            "Lower step_size to at most 2 / smoothness (convex losses only), or use hidden-state-sgd.",
        )


def make_renyi_part(orders: Floats, values: Floats) -> RenyiCurve:
    """Return the Renyi curve, rounded up."""
    return RenyiCurve(orders=tuple(orders.tolist()), values=tuple(round_up(float(value)) for value in values))


class HiddenStateSGD(
    NoisyGradientTheorem, name="hidden-state-sgd", proof="docs/theory/noisy_sgd.md, section 4, S1"
):
    """Renyi curve of the last iterate (or of checkpoints) of noisy SGD on random batches.

    It grows like composition at first and is constant from about 2 D n / (eta L) steps on; with strong convexity it
    levels off without a bounded set. Checkpoints add up: given one, both runs continue from the same point.
    """

    reference = (
        "Altschuler and Talwar (2022), Theorem 3.1 and equation (3.3), with the direction of the sampled Gaussian "
        "corrected and contraction added (docs/theory/noisy_sgd.md, S1); Mironov, Talwar and Zhang (2019)"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        if not spec.is_constant:
            steps = make_varying_batch_run(self, constants, spec)
            part = make_renyi_part(ORDERS, worst_distance_costs(steps, ORDERS))
            return self.guarantee(
                constants,
                spec,
                (part,),
                hidden_state_assumptions(constants, steps.sampling),
                steps.oversized_probability,
            )
        run = make_random_batch_run(self, constants, spec, ("last-iterate", "checkpoints"))
        released, gaps = "the last iterate", np.array([run.n_steps])
        if spec.release == "checkpoints":
            released, gaps = "the iterates at the checkpoints", np.diff((0, *spec.checkpoints))
        else:
            check_forgetting(self, run)
        curves = step_renyi_curves(run, ORDERS)
        total, needed = np.zeros_like(ORDERS), 0.0
        for length, uses in zip(*np.unique(gaps, return_counts=True), strict=True):
            segment = replace(run, n_steps=float(length))
            split = hidden_state_split(segment, ORDERS, curves)
            total += uses * split.values
            needed += uses * n_contracting_steps(segment, split.lengths)
        extra = oversized_batch_delta(self, run, needed)
        assumptions = hidden_state_assumptions(constants, run.sampling, released)
        return self.guarantee(constants, spec, (make_renyi_part(ORDERS, total),), assumptions, extra)


class EveryStepShift(
    NoisyGradientTheorem, name="every-step-shift", proof="docs/theory/noisy_sgd.md, section 4, S2"
):
    """mu-GDP of the last iterate as if the differing record were in every batch: no amplification by sampling.

    Given the batches, the maps of the two runs differ by at most eta Delta / b at every step, so the optimal shift
    sequence applies; the batches have the same law in both runs. It is rarely the smallest bound, but it composes
    exactly.
    """

    reference = "Bok, Su and Altschuler (2024), shifted interpolation (docs/theory/noisy_sgd.md, S2)"

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        run = make_random_batch_run(self, constants, spec)
        check_forgetting(self, run)
        check_not_expansive(self, run)
        extra = oversized_batch_delta(self, run, run.n_steps)
        mu = best_restart_mu(run.shift, run.noise, run.contraction, run.diameter, run.n_steps)
        if run.contraction < 1 or math.isfinite(run.n_steps):
            mu = min(mu, same_start_mu(run.shift, run.noise, run.contraction, run.n_steps))
        return self.guarantee(
            constants,
            spec,
            (Gaussian(mu=round_up(mu)),),
            hidden_state_assumptions(constants, run.sampling),
            extra,
        )


_RESTART_FRACTIONS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87, 0.93, 0.97, 1.0)


def log_exponential_moment(run: RandomBatchRun, steps: float, theta: Floats) -> Floats:
    """Bound log E exp(theta sum_{j < steps} c^j s R_j) = sum_j f(theta s c^j), f(x) = log(1 - q + q e^x), from above.

    f is convex: steps with nearly equal c^j are bounded together by a chord. From c^j = 1e-4 on, f(x) <= q x e^x.
    """
    log_c = math.log(run.contraction)
    if log_c == 0:
        return steps * log_mixture(theta * run.shift, run.rate)
    followed = min(steps, math.ceil(math.log(1e-4) / log_c))
    size = max(1, math.floor(-0.05 / log_c))
    edges = np.append(np.arange(0, followed, size), followed).astype(float)
    counts, high, low = np.diff(edges), np.exp(log_c * edges[:-1]), np.exp(log_c * (edges[1:] - 1))
    sums = (high - np.exp(log_c * edges[1:])) / -math.expm1(log_c)
    gap = np.where(counts > 1, high - low, 1.0)
    upper = np.where(counts > 1, np.clip((sums - counts * low) / gap, 0.0, counts), counts)
    total = log_mixture(np.multiply.outer(theta * run.shift, high), run.rate) @ upper
    total += log_mixture(np.multiply.outer(theta * run.shift, low), run.rate) @ (counts - upper)
    if steps > followed:
        first = theta * run.shift * math.exp(log_c * followed)
        rest = first * (math.expm1(log_c * (steps - followed)) / math.expm1(log_c))
        with np.errstate(over="ignore"):
            total += run.rate * rest * np.exp(first)
    return np.asarray(total)


def make_distance_moment(run: RandomBatchRun, steps: float) -> DistanceMoment:
    """Return the moments of the distance after `steps` steps from a common start."""
    max_distance = run.shift * steps
    if run.contraction < 1:
        max_distance = run.shift * math.expm1(steps * math.log(run.contraction)) / (run.contraction - 1)
    return DistanceMoment(max_distance, run.diameter, lambda theta: log_exponential_moment(run, steps, theta))


def best_participation_split(run: RandomBatchRun, orders: Floats, curves: Floats) -> RestartSplit:
    """Return the cheapest restart at every order; the time of the restart is rounded up to one of a few."""
    if math.isinf(run.n_steps):
        times = [math.inf]
    else:
        times = sorted({math.ceil(fraction * run.n_steps) for fraction in _RESTART_FRACTIONS})
    forgetting_time = math.inf if run.contraction == 1 else -20 / math.log(run.contraction)
    times = [time for time in times if time <= forgetting_time] + [math.inf] * (times[-1] > forgetting_time)
    moments = (
        {time: make_distance_moment(run, time) for time in times}
        if run.contraction < 1 or times[-1] < math.inf
        else {}
    )

    def start_moment(k: float, scale: Floats) -> Floats:
        before = run.n_steps - k
        if before == 0:
            return np.zeros_like(scale)
        if not moments:
            return np.asarray(scale * run.diameter**2)
        certain = scale * float(run.max_distance(before)) ** 2
        return np.minimum(certain, moments[next(time for time in times if time >= before)](scale))

    return best_split(run, orders, curves, start_moment, restart_lengths(run))


class ParticipationStart(
    NoisyGradientTheorem, name="participation-start", proof="docs/theory/noisy_sgd.md, section 4, S3"
):
    """Renyi curve of the last iterate of noisy SGD on random batches, from a random distance at the restart.

    Never above hidden-state-sgd except by the error of its grids, and far below it if a record is rarely sampled:
    with n = 1000, batches of 50, c = 0.95 and nm = 10, order 8 costs 0.0050 instead of 0.0109.
    """

    reference = (
        "Joint convexity over the batches of Altschuler and Talwar (2022) (docs/theory/noisy_sgd.md, S3)"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        if not spec.is_constant:
            steps = make_varying_batch_run(self, constants, spec)
            part = make_renyi_part(ORDERS, random_distance_costs(steps, ORDERS))
            return self.guarantee(
                constants,
                spec,
                (part,),
                hidden_state_assumptions(constants, steps.sampling),
                steps.oversized_probability,
            )
        run = make_random_batch_run(self, constants, spec)
        check_forgetting(self, run)
        check_not_expansive(self, run)
        extra = oversized_batch_delta(self, run, run.n_steps)
        split = best_participation_split(run, ORDERS, step_renyi_curves(run, ORDERS))
        return self.guarantee(
            constants,
            spec,
            (make_renyi_part(ORDERS, split.values),),
            hidden_state_assumptions(constants, run.sampling),
            extra,
        )
