"""Constants of shuffled and blocked bounds, by hand: what inequalities let drift."""

from __future__ import annotations

import numpy as np
import pytest

from dplangevin.accounting.conversions import ORDERS
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import BlockTables
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import average_profiles
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import RandomBatchRun, step_renyi_curves


def test_equal_positions_count_as_often_as_they_occur() -> None:
    """delta at eps = 0 of mu-GDP is 2 Phi(mu/2) - 1: .382924923 for 1, .682689492 for 2."""
    profile = average_profiles(np.array([1.0, 1.0, 2.0]))
    assert profile.deltas[0] == pytest.approx((2 * 0.3829249225480262 + 0.6826894921370859) / 3, rel=1e-6)


def test_two_starts_at_the_ends_cost_their_squared_distance() -> None:
    """All noise of k steps spent on a shift of D costs alpha D^2 / (2 k v^2) at order alpha; any split costs more."""
    run = RandomBatchRun(
        sampling="without-replacement", rate=1e-3, noise_multiplier=50.0, shift=0.02, noise=1.0, contraction=1.0,
        diameter=12.0, n_steps=10**6,
    )  # fmt: skip
    tables = BlockTables(run, step_renyi_curves(run, ORDERS))
    for length, cost in zip(tables.lengths, tables.restart_curves, strict=True):
        least = np.asarray(ORDERS) * run.diameter**2 / (2 * length * run.noise**2)
        assert np.all(cost >= least)
    assert tables.restart_curves[0][0] <= 1.3 * float(ORDERS[0]) * 144 / (2 * tables.lengths[0])
