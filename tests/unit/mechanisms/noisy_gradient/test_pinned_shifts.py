"""Constants of the shift bounds, each by hand from a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest

from _registered import THEOREMS
from dplangevin.accounting.parts import Gaussian
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import minorant_energy
from dplangevin.problem.constants import Constants


def mu_of(name: str, constants: Constants, spec: NoisyGradientSpec) -> float:
    (part,) = THEOREMS[name].certify(constants, spec).parts  # type: ignore[arg-type]
    assert isinstance(part, Gaussian)
    return part.mu


def test_what_is_not_a_number_costs_everything() -> None:
    assert minorant_energy(np.zeros(1), np.ones(1), np.array([math.nan])) == math.inf
    assert minorant_energy(np.zeros(2), np.ones(2), np.array([1.0, math.nan])) == math.inf


def test_every_checkpoint_is_paid() -> None:
    """Contraction 1, a checkpoint after each of 3 steps: mu^2 = 3 (Delta / (n sigma))^2 = 3 * 0.4^2."""
    spec = NoisyGradientSpec(
        step_size=1.0, noise_std=0.5, n_steps=3, release="checkpoints", checkpoints=(1, 2, 3)
    )
    constants = Constants(n=10, lipschitz=1.0, smoothness=1.0)
    assert mu_of("optimal-shift", constants, spec) == pytest.approx(0.4 * math.sqrt(3), rel=1e-8)


def test_a_segment_between_checkpoints_may_hold_more_participations_than_whole_epochs() -> None:
    """Two batches, checkpoints 3 steps apart, contraction 1: the record acts at steps 1 and 3 of each.

    y = (s, s, 2s) at x = (1, 2, 3) v^2; the minorant has slope s/2 over two steps and s over one: 1.5 (s/v)^2 each.
    """
    spec = NoisyGradientSpec(
        step_size=1.0,
        noise_std=0.5,
        n_steps=6,
        batch_size=5,
        sampling="cyclic",
        release="checkpoints",
        checkpoints=(3, 6),
    )
    constants = Constants(n=10, lipschitz=1.0, smoothness=1.0)
    assert mu_of("cyclic-shift", constants, spec) == pytest.approx(0.8 * math.sqrt(3), rel=1e-8)


def test_a_very_long_cyclic_run_remembers_an_unknown_start() -> None:
    """Two starts D apart on a quadratic: mu >= c^T D / (v sqrt((1 - c^2T) / (1 - c^2))), more than 200,000 epochs."""
    steps, ridge, noise, shift, diameter = 500_000, 1e-7, 1.0, 1e-6, 1e3
    spec = NoisyGradientSpec(
        step_size=1.0, noise_std=noise, n_steps=steps, batch_size=1, sampling="cyclic", start="unknown"
    )
    constants = Constants(n=2, lipschitz=shift / 2, smoothness=1.0, strong_convexity=ridge, diameter=diameter)
    power = math.exp(steps * math.log1p(-ridge))
    spread = noise * math.sqrt((1 - power**2) / (1 - (1 - ridge) ** 2))
    least = power * diameter / spread
    assert least == pytest.approx(1.379, abs=2e-3)
    assert mu_of("cyclic-shift", constants, spec) >= least
