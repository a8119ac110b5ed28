"""The block recursion for noisy SGD: a delta(eps) profile of the last iterate on a bounded set (S4).

The lemma is that of `block_recursion`: k steps from one common start cost at most theta1_k(eps), k steps from any two
starts in the set at most theta2_k(eps), and a profile d that holds for every number of steps gives another,

    d'(eps1 + eps2) = theta1_k(eps2) + e theta2_k(eps2 + log((e^{eps1} - 1 + e) / e)),   e = d(eps1).

Here theta1_k comes from the Renyi curve k S(1) of the sampled Gaussian, theta2_k from the curve of `hidden-state-sgd`
with a restart at distance D, min over rho of k S(1 - rho) + alpha D^2 c^{2k} / (2 v^2 rho sum_{j<k} c^{2j}). The
sharper form B5 (`sweep_capped`) uses the same two curves and is iterated last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dplangevin._arrays import Floats
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.conversions import ORDERS
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import Profile
from dplangevin.accounting.theorem import round_up
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
    MIN_PROFILE_DELTA,
    blocks_to_cap,
    candidate_block_lengths,
    interpolate_deltas,
    repeat_sweep,
    sweep_capped,
    sweep_splits,
)
from dplangevin.mechanisms.noisy_gradient.theorems.composition import NoisyGradientTheorem
from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import (
    hidden_state_split,
    n_contracting_steps,
)
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import (
    RandomBatchRun,
    best_constant_split,
    hidden_state_assumptions,
    make_random_batch_run,
    step_renyi_curves,
)
from dplangevin.problem.constants import Constants

_MAX_SWEEPS = 40


def renyi_deltas(values: Floats, epsilons: Floats) -> Floats:
    """Convert a Renyi curve at ORDERS tightly to delta at every eps, rounded up and never zero."""
    slope = ORDERS - 1
    level = slope * (values + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    mask = np.isfinite(level)
    if not mask.any():
        return np.ones_like(epsilons)
    level = (level + 1e-15 * np.abs(level))[mask]  # for the rounding of the level and of the slope
    logs = np.min(level - np.multiply.outer(epsilons, slope[mask] * (1 - 1e-15)), axis=1)
    return np.asarray(np.exp(np.clip(logs + 1e-12, -680.0, 0.0)))


class BlockTables:
    """theta1_k and theta2_k of every block length k as Renyi curves."""

    def __init__(self, run: RandomBatchRun, curves: Floats) -> None:
        self.lengths = candidate_block_lengths(run.noise, run.diameter, run.n_steps)
        self.same_start_curves = [np.array([round_up(float(x)) for x in k * curves[0]]) for k in self.lengths]
        self.restart_curves = []
        for k in self.lengths:
            split = best_constant_split(
                run, ORDERS, curves, lambda _, scale: scale * run.diameter**2, np.array([float(k)])
            )
            self.restart_curves.append(np.array([round_up(float(x)) for x in split.values]))
        self.oversized_probability = run.oversized_probability
        self.capped_blocks = blocks_to_cap(self.lengths, run.noise, run.contraction, run.diameter)

    def refine_profile(self, start: Floats, epsilons: Floats, tolerance: float) -> Floats:
        """Apply the recursion to valid deltas on a uniform grid of eps, until no log delta moves by `tolerance`."""
        spacing, size = float(epsilons[1]), 2 * len(epsilons) + 2
        size += int(-math.log(max(float(start[-1]), 1e-18)) / spacing)
        table = spacing * np.arange(min(size, 30_000), dtype=np.float64)
        first = np.array([renyi_deltas(values, epsilons) for values in self.same_start_curves])
        second = np.array([renyi_deltas(values, table) for values in self.restart_curves])
        second = np.minimum(1.0, second + self.oversized_probability * np.array(self.lengths)[:, None])
        deltas = repeat_sweep(
            lambda d: sweep_splits(d, epsilons, spacing, first, second), start, _MAX_SWEEPS, tolerance
        )
        capped_first, capped_second = first[self.capped_blocks], second[self.capped_blocks]
        deltas = repeat_sweep(
            lambda d: sweep_capped(d, epsilons, capped_first, capped_second),
            deltas,
            _MAX_SWEEPS,
            10 * tolerance,
        )
        return np.minimum(1.0, deltas * (1 + 1e-9))


DeltaCurve = Callable[[Floats], Floats]


def hidden_state_deltas(run: RandomBatchRun) -> tuple[DeltaCurve, Floats]:
    """Return delta(eps) of the hidden-state bound for this number of steps, and its Renyi curve."""
    split = hidden_state_split(run, ORDERS, step_renyi_curves(run, ORDERS))
    values = np.array([round_up(float(x)) for x in split.values])
    extra = run.oversized_probability * n_contracting_steps(run, split.lengths)

    def delta_curve(epsilons: Floats) -> Floats:
        return np.minimum(1.0, renyi_deltas(values, epsilons) + extra)

    return delta_curve, values


def block_profile_sgd(run: RandomBatchRun) -> tuple[Floats, Floats]:
    """Return the smaller of the recursion, valid for any number of steps, and the hidden-state bound."""
    epsilons, deltas = unbounded_run_profile_sgd(replace(run, n_steps=math.inf))
    if math.isinf(run.n_steps):
        return epsilons, deltas
    delta_curve, values = hidden_state_deltas(run)
    if len(epsilons) == 1:  # nothing was computed; the hidden-state bound alone
        top = cv.rdp_epsilon(ORDERS, values, MIN_PROFILE_DELTA)
        if math.isfinite(top) and top > 0:
            epsilons = np.linspace(0.0, top, 1601)
            deltas = np.ones_like(epsilons)
    return epsilons, np.minimum.accumulate(np.minimum(delta_curve(epsilons), deltas))


@lru_cache(maxsize=64)
def unbounded_run_profile_sgd(run: RandomBatchRun) -> tuple[Floats, Floats]:
    """Return the profile of the recursion, on a coarse grid over the hidden-state bound, then on a fine one."""
    delta_curve, values = hidden_state_deltas(run)
    top = cv.rdp_epsilon(ORDERS, values, MIN_PROFILE_DELTA)
    if not math.isfinite(top):
        return np.zeros(1), np.ones(1)
    if not top / 1600 > 0:
        return np.zeros(1), delta_curve(np.zeros(1))
    tables = BlockTables(run, step_renyi_curves(run, ORDERS))
    coarse = np.linspace(0.0, top, 121)
    deltas = tables.refine_profile(delta_curve(coarse), coarse, 1e-3)
    small = np.flatnonzero(deltas <= max(MIN_PROFILE_DELTA, 1.01 * float(deltas[-1])))
    high = float(coarse[max(small[0], 1)])
    fine = np.linspace(0.0, high, 161)
    deltas = tables.refine_profile(
        np.minimum(delta_curve(fine), interpolate_deltas(fine, coarse, deltas)), fine, 1e-3
    )
    finer = np.linspace(0.0, high, 1601)
    deltas_on_finer = np.minimum(delta_curve(finer), interpolate_deltas(finer, fine, deltas))
    tail = np.linspace(high, max(cv.rdp_epsilon(ORDERS, values, 1e-60), 2 * high), 101)[1:]
    return np.append(finer, tail), np.minimum.accumulate(np.append(deltas_on_finer, delta_curve(tail)))


class BlockSGD(NoisyGradientTheorem, name="block-sgd", proof="docs/theory/noisy_sgd.md, section 4, S4"):
    """Last iterate of noisy SGD on random batches and a bounded set: a profile delta(eps), no Renyi curve.

    Far below hidden-state-sgd once the run is long: with n = 1000, batches of 50, D = 1, nm = 10 and delta = 1e-5, an
    endless run costs eps 0.71 instead of 3.3.
    """

    reference = (
        "Hockey-stick recursion over blocks of steps (docs/theory/noisy_sgd.md, S4 and B5), on "
        "Altschuler and Talwar (2022)"
    )

    def derive_guarantee(self, constants: Constants, spec: NoisyGradientSpec) -> Guarantee:
        run = make_random_batch_run(self, constants, spec)
        if math.isinf(run.diameter):
            raise self.refuse("the iterates are not confined to a bounded set", "State a finite diameter.")
        epsilons, deltas = block_profile_sgd(run)
        part = Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(deltas.tolist()))
        return self.guarantee(constants, spec, (part,), hidden_state_assumptions(constants, run.sampling))
