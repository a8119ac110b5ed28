"""Hidden-state bounds of noisy SGD: the last iterate of a run on fresh random batches (S1, S2, S3).

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
from dataclasses import replace

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting.conversions import ORDERS
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Gaussian, RenyiCurve
from dplangevin.accounting.theorem import round_up
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.composition import NoisyGradientTheorem
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import best_restart_mu, same_start_mu
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import (
    DistanceMoment,
    RandomBatchRun,
    RestartSplit,
    best_split,
    hidden_state_assumptions,
    log_mixture,
    make_random_batch_run,
    restart_lengths,
    step_renyi_curves,
)
from dplangevin.mechanisms.noisy_gradient.theorems.varying_batches import (
    make_varying_batch_run,
    random_distance_costs,
    worst_distance_costs,
)
from dplangevin.problem.constants import Constants


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
