"""The block recursion for noisy SGD: a delta(eps) profile of the last iterate on a bounded set (S4).

The lemma is that of `block_recursion`: k steps from one common start cost at most theta1_k(eps), k steps from any two
starts in the set at most theta2_k(eps), and a profile d that holds for every number of steps gives another,

    d'(eps1 + eps2) = theta1_k(eps2) + e theta2_k(eps2 + log((e^{eps1} - 1 + e) / e)),   e = d(eps1).

Here theta1_k comes from the Renyi curve k S(1) of the sampled Gaussian, theta2_k from the curve of `hidden_state_sgd`
with a restart D apart, min over rho of k S(1 - rho) + alpha D^2 c^{2k} / (2 v^2 rho sum_{j<k} c^{2j}). The sharper
form of `_capped_composition` takes the same two curves and is iterated last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.families.noisy_gradient.schedule import NoisyGradientSchedule
from dplangevin.families.noisy_gradient.theorems._base import NoisyGradientTheorem
from dplangevin.families.noisy_gradient.theorems._capped_composition import capped_sweep
from dplangevin.families.noisy_gradient.theorems._noise_split import constant_split, step_curves
from dplangevin.families.noisy_gradient.theorems._random_batches import (
    RandomBatchRun,
    random_batch_run,
    words,
)
from dplangevin.families.noisy_gradient.theorems.block_recursion import (
    SMALLEST_DELTA,
    _interpolated,
    _sweep,
    block_lengths,
    iterated,
    winning_blocks,
)
from dplangevin.families.noisy_gradient.theorems.hidden_state_sgd import contracting_steps, hidden_state_split
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.conversions import ORDERS
from dplangevin.privacy.guarantee import Guarantee
from dplangevin.privacy.parts import Profile
from dplangevin.privacy.theorem import inflated
from dplangevin.problem.constants import Constants

_SWEEPS = 40


def renyi_deltas(values: Floats, epsilons: Floats) -> Floats:
    """Tight conversion of a Renyi curve at ORDERS to delta at every eps, rounded up and never zero."""
    slope = ORDERS - 1
    level = slope * (values + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    keep = np.isfinite(level)
    if not keep.any():
        return np.ones_like(epsilons)
    level = (level + 1e-15 * np.abs(level))[keep]  # rounding, here and in the slope
    logs = np.min(level - np.multiply.outer(epsilons, slope[keep] * (1 - 1e-15)), axis=1)
    return np.asarray(np.exp(np.clip(logs + 1e-12, -680.0, 0.0)))


class BlockTables:
    """theta1_k and theta2_k of every block length k as Renyi curves."""

    def __init__(self, run: RandomBatchRun, curves: Floats) -> None:
        self.lengths = block_lengths(run.noise, run.diameter, run.n_steps)
        self.same = [np.array([inflated(float(x)) for x in k * curves[0]]) for k in self.lengths]
        self.apart = []
        for k in self.lengths:
            split = constant_split(
                run, ORDERS, curves, lambda _, scale: scale * run.diameter**2, np.array([float(k)])
            )
            self.apart.append(np.array([inflated(float(x)) for x in split.values]))
        self.bad = run.bad_step
        self.winning = winning_blocks(self.lengths, run.noise, run.contraction, run.diameter)

    def profile(self, start: Floats, epsilons: Floats, tolerance: float) -> Floats:
        """The recursion from valid deltas at a uniform grid of eps, until no log delta moves by `tolerance`."""
        spacing, size = float(epsilons[1]), 2 * len(epsilons) + 2
        size += int(-math.log(max(float(start[-1]), 1e-18)) / spacing)
        table = spacing * np.arange(min(size, 30_000), dtype=np.float64)
        first = np.array([renyi_deltas(values, epsilons) for values in self.same])
        second = np.array([renyi_deltas(values, table) for values in self.apart])
        second = np.minimum(1.0, second + self.bad * np.array(self.lengths)[:, None])
        deltas = iterated(lambda d: _sweep(d, epsilons, spacing, first, second), start, _SWEEPS, tolerance)
        few, far = first[self.winning], second[self.winning]
        deltas = iterated(lambda d: capped_sweep(d, epsilons, few, far), deltas, _SWEEPS, 10 * tolerance)
        return np.minimum(1.0, deltas * (1 + 1e-9))


Known = Callable[[Floats], Floats]


def hidden_state_deltas(run: RandomBatchRun) -> tuple[Known, Floats]:
    """delta(eps) of the hidden-state bound for this number of steps, and its Renyi curve."""
    split = hidden_state_split(run, ORDERS, step_curves(run, ORDERS))
    values = np.array([inflated(float(x)) for x in split.values])
    extra = run.bad_step * contracting_steps(run, split.lengths)

    def known(epsilons: Floats) -> Floats:
        return np.minimum(1.0, renyi_deltas(values, epsilons) + extra)

    return known, values


def block_profile_sgd(run: RandomBatchRun) -> tuple[Floats, Floats]:
    """The recursion, which holds for every number of steps, and the hidden-state bound for this one."""
    epsilons, deltas = endless_profile_sgd(replace(run, n_steps=math.inf))
    if math.isinf(run.n_steps):
        return epsilons, deltas
    known, values = hidden_state_deltas(run)
    if len(epsilons) == 1:  # nothing was computed; the hidden-state bound alone
        top = cv.rdp_epsilon(ORDERS, values, SMALLEST_DELTA)
        if math.isfinite(top) and top > 0:
            epsilons = np.linspace(0.0, top, 1601)
            deltas = np.ones_like(epsilons)
    return epsilons, np.minimum.accumulate(np.minimum(known(epsilons), deltas))


@lru_cache(maxsize=64)
def endless_profile_sgd(run: RandomBatchRun) -> tuple[Floats, Floats]:
    """Valid (eps, delta) pairs: coarse over the range of the hidden-state bound, then fine over the recursion's own."""
    known, values = hidden_state_deltas(run)
    top = cv.rdp_epsilon(ORDERS, values, SMALLEST_DELTA)
    if not math.isfinite(top):
        return np.zeros(1), np.ones(1)
    if not top / 1600 > 0:
        return np.zeros(1), known(np.zeros(1))
    tables = BlockTables(run, step_curves(run, ORDERS))
    coarse = np.linspace(0.0, top, 121)
    deltas = tables.profile(known(coarse), coarse, 1e-3)
    small = np.flatnonzero(deltas <= max(SMALLEST_DELTA, 1.01 * float(deltas[-1])))
    high = float(coarse[max(small[0], 1)])
    fine = np.linspace(0.0, high, 161)
    deltas = tables.profile(np.minimum(known(fine), _interpolated(fine, coarse, deltas)), fine, 1e-3)
    finer = np.linspace(0.0, high, 1601)
    found = np.minimum(known(finer), _interpolated(finer, fine, deltas))
    tail = np.linspace(high, max(cv.rdp_epsilon(ORDERS, values, 1e-60), 2 * high), 101)[1:]
    return np.append(finer, tail), np.minimum.accumulate(np.append(found, known(tail)))


class BlockSGD(NoisyGradientTheorem, name="block-sgd", proof="docs/theory/noisy_sgd.md, section 4, S4"):
    """Last iterate of noisy SGD on random batches and a bounded set: a profile delta(eps), no Renyi curve.

    Far below hidden-state-sgd once the run is long: with n = 1000, batches of 50, D = 1, nm = 10 and delta = 1e-5, an
    endless run costs eps 0.71 instead of 3.3.
    """

    reference = (
        "Hockey-stick recursion over blocks of steps (docs/theory/noisy_sgd.md, S4 and B5), on "
        "Altschuler and Talwar (2022)"
    )

    def promise(self, constants: Constants, schedule: NoisyGradientSchedule) -> Guarantee:
        run = random_batch_run(self, constants, schedule)
        if math.isinf(run.diameter):
            raise self.refuse("the iterates are not confined to a bounded set", "State a finite diameter.")
        epsilons, deltas = block_profile_sgd(run)
        part = Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))
        return self.guarantee(constants, schedule, (part,), words(constants, run.sampling))
