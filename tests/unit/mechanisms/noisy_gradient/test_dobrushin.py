"""B4: vectors, the recursion step by step, validity against exact walks, hypotheses."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import ndtr

from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
    MIXING_FRACTIONS,
    Dobrushin,
    dobrushin_rdp,
)
from dplangevin.mechanisms.noisy_gradient.walk_laws import affine_map, compute_walk_law, renyi_divergence
from dplangevin.problem.constants import Constants

SMALL = Constants(n=1, lipschitz=0.5, smoothness=1.0, diameter=1.0)


def run(**changes):
    return NoisyGradientSpec(**{"step_size": 0.02, "noise_std": 50.0, "n_steps": math.inf, **changes})


def test_vector_46():
    assert dobrushin_rdp(0.02, 1.0, 1.0, math.inf, [2.0])[0] == pytest.approx(0.00154522, rel=1e-3)
    walks = [compute_walk_law([(1.0, affine_map(1.0, sign * 0.01))], 1.0, 1.0, math.inf) for sign in (1, -1)]
    assert renyi_divergence(*walks, 2.0) == pytest.approx(0.00068237, rel=1e-4)


@pytest.mark.parametrize("steps", [1, 2, 7, 40])
def test_closed_form_is_the_recursion(steps):
    for order in (1.5, 4.0, 20.0):
        best = math.inf
        for share in MIXING_FRACTIONS:
            gain = math.exp(order * (order - 1) * 0.05**2 / (2 * (1 - share)))
            beta = float(2 * ndtr(2.0 / (2 * math.sqrt(share))) - 1)
            h = 1.0
            for _ in range(steps):
                h = min(float(gain * (1 + beta * (h - 1))), 1e250)
            best = min(best, math.log(h) / (order - 1) if h < 1e250 else math.inf)
        assert dobrushin_rdp(0.05, 1.0, 2.0, steps, [order])[0] == pytest.approx(best, rel=1e-8)


def test_infinite_runs_are_the_limit_or_infinite():
    assert dobrushin_rdp(0.1, 1.0, 1.0, 10**6, [3.0]) == pytest.approx(
        dobrushin_rdp(0.1, 1.0, 1.0, math.inf, [3.0]), rel=1e-9
    )
    assert dobrushin_rdp(5.0, 1.0, 1.0, math.inf, [8.0])[0] == math.inf
    assert dobrushin_rdp(1.0, 1.0, 1e9, 10**9, [8.0])[0] == math.inf


def test_no_contraction_is_composition_with_a_split():
    """beta = 1: the best split puts all the noise it may on hiding the shift."""
    value = dobrushin_rdp(0.1, 1.0, 1e6, 50, [4.0])[0]
    assert value == pytest.approx(50 * 4.0 * 0.1**2 / 2 / 0.98, rel=1e-6)


def test_expansive_maps_pay_with_the_diameter():
    """0.1.9: c > 1 uses the diameter c D."""
    bent = Constants(n=1, lipschitz=0.5, smoothness=10.0, diameter=1.0, convex=False)
    part = Dobrushin().certify(bent, run()).parts[0]
    assert part.values[0] == pytest.approx(
        float(dobrushin_rdp(0.02, 1.0, 1.2, math.inf, [part.orders[0]])[0])
    )


def test_certified_curve():
    guarantee = Dobrushin().certify(SMALL, run())
    assert guarantee.kind == "rdp"
    assert guarantee.epsilon(1e-5) < 0.3
    assert guarantee.parts[0].rdp(np.array([2.0]))[0] == pytest.approx(0.00154522, rel=1e-3)


@pytest.mark.parametrize(
    ("constants", "spec", "word"),
    [
        ({}, {"sampling": "cyclic", "batch_size": 1}, "full batch"),
        ({}, {"release": "checkpoints", "checkpoints": (1, 2)}, "not the last iterate"),
        ({}, {"start": "unknown"}, "starting point"),
        ({"diameter": math.inf}, {}, "bounded set"),
        ({"smoothness": math.inf}, {}, "smoothness"),
        ({"projection_error": 1e-9}, {}, "inexact"),
        ({"diameter": 1e4}, {}, "too wide"),
    ],
)
def test_each_broken_hypothesis_is_named(constants, spec, word):
    values = {"n": 1, "lipschitz": 0.5, "smoothness": 1.0, "diameter": 1.0, **constants}
    with pytest.raises(AssumptionFailed, match=word):
        Dobrushin().certify(Constants(**values), run(**spec))


@settings(max_examples=40, deadline=None)
@given(
    shift=st.floats(1e-4, 2.0),
    diameter=st.floats(0.01, 10.0),
    steps=st.sampled_from([1, 5, 1000, math.inf]),
    scale=st.floats(1e-3, 1e3),
)
def test_laws(shift, diameter, steps, scale):
    orders = [1.2, 2.0, 9.0]
    value = dobrushin_rdp(shift, 1.0, diameter, steps, orders)
    assert np.all(value > 0)
    assert dobrushin_rdp(scale * shift, scale, scale * diameter, steps, orders) == pytest.approx(
        value, rel=1e-6
    )
    assert np.all(dobrushin_rdp(shift, 1.1, diameter, steps, orders) <= value)
    assert np.all(dobrushin_rdp(shift, 1.0, 1.1 * diameter, steps, orders) >= value)
    assert np.all(dobrushin_rdp(shift, 1.0, diameter, 2 * steps, orders) >= value)


def test_against_exact_walks_in_both_directions():
    """Seeded stress test with contractions and expansions: no exact Renyi divergence exceeds the bound."""
    rng = np.random.default_rng(7)
    worst = 0.0
    for _ in range(15):
        diameter, shift = np.exp(rng.uniform(np.log([0.2, 0.01]), np.log([5.0, 1.0]))).tolist()
        steps = [1, 3, 20, 300, math.inf][rng.integers(5)]
        for factor in (1.0, float(rng.uniform(-1, 1)), float(rng.uniform(1.0, 1.5))):
            drift = float(rng.uniform(0, 0.3))
            walks = [
                compute_walk_law([(1.0, affine_map(factor, drift + sign * shift / 2))], 1.0, diameter, steps)
                for sign in (1, -1)
            ]
            for order in (1.5, 2.0, 8.0):
                bound = dobrushin_rdp(shift, 1.0, abs(factor) * diameter, steps, [order])[0]
                if math.isinf(bound):
                    continue
                both = max(renyi_divergence(*walks, order), renyi_divergence(*walks[::-1], order))
                worst = max(worst, (both - 1e-11) / bound)
    assert 0.1 < worst <= 1.0
