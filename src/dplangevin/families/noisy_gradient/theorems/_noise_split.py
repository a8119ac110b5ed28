"""The search behind the bounds for random batches: how far back to restart, and how to split the noise of each step.

Of the variance v^2 of each of the last k steps, the share rho_t shifts one run onto the other and 1 - rho_t hides the
batch. With S the Renyi curve of one step and Z the distance of the two runs k steps before the end, order alpha costs

    sum_t S(1 - rho_t) + log E exp(lambda Z^2) / (alpha - 1),
    lambda = alpha (alpha - 1) c^{2k} / (2 v^2 sum_t c^{2(T-t)} rho_t).

Every choice of k and rho_t is valid at every order. The grids do not depend on T, so the result grows with T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import expit

from dplangevin._arrays import Floats
from dplangevin.families.noisy_gradient.theorems._random_batches import RandomBatchRun

Start = Callable[[float, Floats], Floats]
"""(k, lambda) -> log E exp(lambda Z^2), or a bound of it, for the distance Z of the two runs k steps before the end."""

SHARES: Floats = expit(np.arange(-34, 25) * 0.175)
"""The rho on offer, 0.003 to 0.985: within 0.2% of the best."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Costs at every order and the number k of final steps each uses."""

    values: Floats
    lengths: Floats

    def better(self, other: Split) -> Split:
        """The cheaper of the two at every order."""
        first = self.values <= other.values
        return Split(
            values=np.where(first, self.values, other.values),
            lengths=np.where(first, self.lengths, other.lengths),
        )


def step_curves(run: RandomBatchRun, orders: Floats, shares: Floats = SHARES) -> Floats:
    """S(1 - rho) for rho = 0 and every share (rows) at every order (columns); several theorems ask for the same."""
    return _step_curves(
        replace(run, n_steps=1, diameter=math.inf, bad_step=0.0),
        tuple(orders.tolist()),
        tuple(shares.tolist()),
    )


@lru_cache(maxsize=16)
def _step_curves(run: RandomBatchRun, orders: tuple[float, ...], shares: tuple[float, ...]) -> Floats:
    curves = np.array([run.divergence(np.array(orders), share) for share in (0.0, *shares)])
    curves.flags.writeable = False
    return curves


def restart_lengths(run: RandomBatchRun) -> Floats:
    """The k on offer: all small ones, then 4% apart; with contraction no further than it forgets everything."""
    grid = np.unique(np.round(np.geomspace(1, 1e15, 900)))
    top = float(run.n_steps)
    if run.contraction < 1:
        top = min(top, max(8.0, -40 / math.log(run.contraction)))
    return grid[grid <= top]


def constant_split(
    run: RandomBatchRun,
    orders: Floats,
    curves: Floats,
    start: Start,
    lengths: Floats,
    shares: Floats = SHARES,
) -> Split:
    """The cheapest k and constant rho at every order."""
    scale = orders * (orders - 1) / (2 * run.noise**2 * shares[:, None])

    def costs(k: float) -> Floats:
        return k * curves[1:] + start(float(k), scale * float(run.leverage(k))) / (orders - 1)

    with np.errstate(over="ignore", invalid="ignore"):
        return _cheapest(costs, lengths, orders)


def _cheapest(costs: Callable[[float], Floats], lengths: Floats, orders: Floats) -> Split:
    """The k whose best row of costs is the smallest, at every order."""
    best, chosen = np.full(orders.shape, np.inf), np.zeros(orders.shape)
    for k in lengths:
        value = np.fmin.reduce(costs(k), axis=0)
        chosen = np.where(value < best, k, chosen)
        best = np.fmin(best, value)
    return Split(values=best, lengths=chosen)


def varying_split(
    run: RandomBatchRun, orders: Floats, curves: Floats, start: Start, lengths: Floats
) -> Split:
    """The cheapest k and rho_t that grow towards the end, for c < 1.

    For a price y of weight, step t takes the rho minimising S(1 - rho) - y c^{2(T-t)} rho: the i-th share as long as
    y c^{2(T-t)} is above the first i slopes of the curve. `counts` has the number of steps above each slope.
    """
    rho, curves, lengths = np.append(0.0, SHARES[::2]), curves[np.r_[0, 1 : len(curves) : 2]], lengths[::2]
    decay = -2 * math.log(run.contraction)
    rises, gains = np.maximum(np.diff(curves, axis=0), 0.0), np.diff(rho)[:, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        slopes = np.maximum.accumulate(rises / gains, axis=0)
        counts = np.ceil(np.log(slopes[:, None] / slopes[None]) / decay + 1e-9)  # [price, slope, order]
        counts = np.where(counts > 0, counts, 0.0)
        weights = np.expm1(-decay * counts) / math.expm1(-decay)

        def costs(k: float) -> Floats:
            steps = k * curves[0] + (np.minimum(counts, k) * rises).sum(axis=1)
            total = (np.minimum(weights, math.expm1(-decay * k) / math.expm1(-decay)) * gains).sum(axis=1)
            scale = orders * (orders - 1) * math.exp(-decay * k) / (2 * run.noise**2 * total)
            return np.asarray(steps + start(float(k), scale) / (orders - 1))

        return _cheapest(costs, lengths, orders)


def cheapest_split(
    run: RandomBatchRun, orders: Floats, curves: Floats, start: Start, lengths: Floats
) -> Split:
    """The better of both; composition, which restarts nowhere and needs no contraction, has length 0."""
    best = constant_split(run, orders, curves, start, lengths)
    if run.contraction < 1:
        best = best.better(varying_split(run, orders, curves, start, lengths))
    if math.isinf(run.n_steps):
        return best
    return Split(values=run.n_steps * curves[0], lengths=np.zeros_like(orders)).better(best)
