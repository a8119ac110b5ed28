"""Noisy SGD from a random distance: the last iterate, with the differing record's participation averaged out (S3).

The bits R_i = 1[differing record in batch i] are independent, Pr[R_i = 1] = q, and given them the two runs are at most
Z = min(D, sum_j c^j s R_{tau-j}) apart after tau steps. By joint convexity, with the last k = T - tau steps as in
`hidden_state_sgd`, order alpha costs

    sum_t S(1 - rho_t) + log E exp(lambda Z^2) / (alpha - 1),
    lambda = alpha (alpha - 1) c^{2k} / (2 v^2 sum_t c^{2(T-t)} rho_t).

The moment is computed without a grid of distances (`_distance_moment`). Varying schedules: `_varying_batches`.
"""

from __future__ import annotations

import math

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems._distance_moment import DistanceMoment, log_mixture
from dplangevin.families.noisy_gradient.theorems._noise_split import (
    Split,
    cheapest_split,
    restart_lengths,
    step_curves,
)
from dplangevin.families.noisy_gradient.theorems._random_batches import (
    RandomBatchRun,
    random_batch_run,
    words,
)
from dplangevin.families.noisy_gradient.theorems._varying_batches import random_split, varying_run
from dplangevin.families.noisy_gradient.theorems.hidden_state_sgd import (
    bad_batches,
    check_forgetting,
    check_not_expansive,
    renyi_part,
)
from dplangevin.privacy.conversions import ORDERS
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.problem.constants import Constants

_FRACTIONS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.87, 0.93, 0.97, 1.0)


def log_exponential_moment(run: RandomBatchRun, steps: float, theta: Floats) -> Floats:
    """log E exp(theta sum_{j < steps} c^j s R_j) = sum_j f(theta s c^j), f(x) = log(1 - q + q e^x), or slightly above.

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


def distance_moment(run: RandomBatchRun, steps: float) -> DistanceMoment:
    """The distance after `steps` steps from a common start."""
    reach = run.shift * steps
    if run.contraction < 1:
        reach = run.shift * math.expm1(steps * math.log(run.contraction)) / (run.contraction - 1)
    return DistanceMoment(reach, run.diameter, lambda theta: log_exponential_moment(run, steps, theta))


def participation_split(run: RandomBatchRun, orders: Floats, curves: Floats) -> Split:
    """The cheapest restart at every order; the time of the restart is rounded up to one of a few."""
    if math.isinf(run.n_steps):
        times = [math.inf]
    else:
        times = sorted({math.ceil(fraction * run.n_steps) for fraction in _FRACTIONS})
    settled = math.inf if run.contraction == 1 else -20 / math.log(run.contraction)
    times = [time for time in times if time <= settled] + [math.inf] * (times[-1] > settled)
    moments = (
        {time: distance_moment(run, time) for time in times}
        if run.contraction < 1 or times[-1] < math.inf
        else {}
    )

    def start(k: float, scale: Floats) -> Floats:
        before = run.n_steps - k
        if before == 0:
            return np.zeros_like(scale)
        if not moments:
            return np.asarray(scale * run.diameter**2)
        certain = scale * float(run.distance(before)) ** 2
        return np.minimum(certain, moments[next(time for time in times if time >= before)](scale))

    return cheapest_split(run, orders, curves, start, restart_lengths(run))


class ParticipationStart(
    NoisyGradientTheorem, name="participation-start", proof="docs/theory/noisy_sgd.md, section 4, S3"
):
    """Renyi curve of the last iterate of noisy SGD on random batches, from a random distance at the restart.

    Never above hidden-state-sgd by more than its grids, and far below it when a record is seldom in a batch: with
    n = 1000, batches of 50, c = 0.95 and nm = 10, order 8 costs 0.0050 instead of 0.0109.
    """

    reference = (
        "Joint convexity over the batches of Altschuler and Talwar (2022) (docs/theory/noisy_sgd.md, S3)"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        if not schedule.constant:
            steps = varying_run(self, constants, schedule)
            part = renyi_part(ORDERS, random_split(steps, ORDERS))
            return self.guarantee(constants, schedule, (part,), words(constants, steps.sampling), steps.bad)
        run = random_batch_run(self, constants, schedule)
        check_forgetting(self, run)
        check_not_expansive(self, run)
        extra = bad_batches(self, run, run.n_steps)
        split = participation_split(run, ORDERS, step_curves(run, ORDERS))
        return self.guarantee(
            constants, schedule, (renyi_part(ORDERS, split.values),), words(constants, run.sampling), extra
        )
