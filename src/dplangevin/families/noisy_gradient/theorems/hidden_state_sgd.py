"""Hidden states of noisy SGD: the last iterate of a run on fresh random batches (S1, S2).

Both runs are kept within z_t of each other, starting D_{T-k} apart (the farthest they can be) k steps before the end.
Each of the last k steps pays for its secret batch, S(1 - rho_t), and for a shift a_t taken from the share rho_t of its
noise, alpha a_t^2 / (2 rho_t v^2). With a_t proportional to c^{T-t} rho_t the runs meet at the end: order alpha costs

    sum_t S(1 - rho_t) + alpha c^{2k} D_{T-k}^2 / (2 v^2 sum_t c^{2(T-t)} rho_t).

Only Lipschitz constants of the first data set's batch maps enter, so c > 1 is allowed on a bounded set. S is the curve
of the sampled Gaussian in the direction that is true of a step; the paper prints the other one (its Definition 2.5).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
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
from dplangevin.families.noisy_gradient.theorems._varying_batches import certain_split, varying_run
from dplangevin.families.noisy_gradient.theorems.optimal_shift import best_restart_mu, same_start_mu
from dplangevin.privacy.conversions import ORDERS
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Gaussian, Renyi
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants


def hidden_state_split(run: RandomBatchRun, orders: Floats, curves: Floats) -> Split:
    """The cheapest restart at every order.

    With too large Poisson batches about, restarts begin from the whole set: only the steps after one must contract.
    """

    whole_set = bool(run.bad_step) and math.isfinite(run.diameter)

    def start(k: float, scale: Floats) -> Floats:
        apart = run.diameter if whole_set else float(run.distance(run.n_steps - k))
        return np.asarray(scale * apart**2)

    return cheapest_split(run, orders, curves, start, restart_lengths(run))


def contracting_steps(run: RandomBatchRun, lengths: Floats) -> float:
    """How many steps must contract for restarts of these lengths (0: none restarts).

    Those after the restart when the set is bounded; otherwise the distance at the restart needs the earlier ones too.
    """
    longest = float(np.max(lengths))
    return longest if longest == 0 or math.isfinite(run.diameter) else float(run.n_steps)


def bad_batches(theorem: NoisyGradientTheorem, run: RandomBatchRun, steps: float) -> float:
    """Probability, added to delta, of a too large Poisson batch among `steps` steps; refused when it is certain."""
    chance = steps * run.bad_step if run.bad_step else 0.0
    if chance >= 1:
        raise theorem.refuse(
            f"a Poisson batch is too large for this step size with probability {run.bad_step:.2g} a step",
            "Lower step_size or the number of steps.",
        )
    return chance


def check_forgetting(theorem: NoisyGradientTheorem, run: RandomBatchRun) -> None:
    """Refuse an endless run whose two copies are never forced together."""
    if math.isfinite(run.n_steps) or math.isfinite(run.diameter):
        return
    if run.contraction >= 1:
        raise theorem.refuse(
            "the two runs are never forced together (no strong convexity and no bounded set)",
            "Add a ridge, state a diameter, or give a finite number of steps.",
        )
    if run.bad_step:
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


def renyi_part(orders: Floats, values: Floats) -> Renyi:
    """The curve, rounded up."""
    return Renyi(orders=tuple(orders.tolist()), values=tuple(inflated(float(value)) for value in values))


class HiddenStateSGD(
    NoisyGradientTheorem, name="hidden-state-sgd", proof="docs/theory/noisy_sgd.md, section 4, S1"
):
    """Renyi curve of the last iterate (or of checkpoints) of noisy SGD on random batches.

    Grows like composition at first and is flat from about 2 D n / (eta L) steps on; with strong convexity it is flat
    without a bounded set. Checkpoints add up: given one, both runs continue from the same point.
    """

    reference = (
        "Altschuler and Talwar (2022), Theorem 3.1 and equation (3.3), with the direction of the sampled Gaussian "
        "corrected and contraction added (docs/theory/noisy_sgd.md, S1); Mironov, Talwar and Zhang (2019)"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        if not schedule.constant:
            steps = varying_run(self, constants, schedule)
            part = renyi_part(ORDERS, certain_split(steps, ORDERS))
            return self.guarantee(constants, schedule, (part,), words(constants, steps.sampling), steps.bad)
        run = random_batch_run(self, constants, schedule, ("last-iterate", "checkpoints"))
        released, gaps = "the last iterate", np.array([run.n_steps])
        if schedule.release == "checkpoints":
            released, gaps = "the iterates at the checkpoints", np.diff((0, *schedule.checkpoints))
        else:
            check_forgetting(self, run)
        curves = step_curves(run, ORDERS)
        total, needed = np.zeros_like(ORDERS), 0.0
        for length, uses in zip(*np.unique(gaps, return_counts=True), strict=True):
            segment = replace(run, n_steps=float(length))
            split = hidden_state_split(segment, ORDERS, curves)
            total += uses * split.values
            needed += uses * contracting_steps(segment, split.lengths)
        extra = bad_batches(self, run, needed)
        listed = words(constants, run.sampling, released)
        return self.guarantee(constants, schedule, (renyi_part(ORDERS, total),), listed, extra)


class EveryStepShift(
    NoisyGradientTheorem, name="every-step-shift", proof="docs/theory/noisy_sgd.md, section 4, S2"
):
    """mu-GDP of the last iterate as if the differing record were in every batch: no amplification by sampling.

    Given the batches, the maps of the two runs differ by at most eta Delta / b at every step, so the optimal shift
    sequence applies; the batches have the same law in both runs. Rarely the smallest, but it composes exactly.
    """

    reference = "Bok, Su and Altschuler (2024), shifted interpolation (docs/theory/noisy_sgd.md, S2)"

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        run = random_batch_run(self, constants, schedule)
        check_forgetting(self, run)
        check_not_expansive(self, run)
        extra = bad_batches(self, run, run.n_steps)
        mu = best_restart_mu(run.shift, run.noise, run.contraction, run.diameter, run.n_steps)
        if run.contraction < 1 or math.isfinite(run.n_steps):
            mu = min(mu, same_start_mu(run.shift, run.noise, run.contraction, run.n_steps))
        return self.guarantee(
            constants, schedule, (Gaussian(mu=inflated(mu)),), words(constants, run.sampling), extra
        )
