"""B3: vectors, validity against exact walks in both directions, hypotheses, invariances."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting import conversions as cv
from dplangevin.accounting.parts import Profile
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
    BlockRecursion,
    block_profile,
    candidate_block_lengths,
    gdp_delta_upper,
    last_iterate_mu,
    last_iterate_profile,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import OptimalShift
from dplangevin.mechanisms.noisy_gradient.theorems.power_slopes import make_slope_recursion
from dplangevin.mechanisms.noisy_gradient.walk_laws import affine_map, compute_walk_law, delta_between
from dplangevin.problem.constants import Constants
from privacy._accountant_trials import walk_truth

UNIT = Constants(n=1, lipschitz=0.5, smoothness=1.0, diameter=4.0)  # s = step_size, v = step_size * noise_std


def run(**changes):
    return NoisyGradientSpec(**{"step_size": 0.1, "noise_std": 10.0, "n_steps": math.inf, **changes})


def profile(*arguments):
    epsilons, deltas = last_iterate_profile(*arguments)
    return Profile(epsilons=epsilons, deltas=deltas)


def test_vector_45():
    deltas = block_profile(0.1, 1.0, 1.0, 4.0, [1, 2, 4, 8, 16, 32, 64], np.arange(121) * 0.05)
    assert deltas[[20, 40, 60]] == pytest.approx([9.5246e-4, 1.43292e-8, 2.2107e-16], rel=0.01)


def test_vector_44():
    assert BlockRecursion().certify(UNIT, run()).epsilon(1e-5) == pytest.approx(
        1.353, abs=0.01
    )  # B3 alone: 2.18, B5 without B6: 1.495
    assert OptimalShift().certify(UNIT, run()).epsilon(1e-5) == pytest.approx(5.75948147, rel=1e-6)


def test_table_7_convex_row():
    assert profile(0.3, 1.0, 1.0, 10.0, 200).epsilon(1e-5) <= 15.52


def test_finite_runs_start_from_the_shift_bound():
    for steps in (1, 7, 60):
        mu = last_iterate_mu(0.1, 1.0, 1.0, 4.0, steps)
        assert profile(0.1, 1.0, 1.0, 4.0, steps).epsilon(1e-6) <= cv.gdp_epsilon(mu, 1e-6) * 1.002


def test_rounding_is_upwards():
    eps = np.linspace(0, 30, 200)
    for mu in (1e-6, 0.1, 3.0, 40.0):
        assert np.all(gdp_delta_upper(mu, eps) >= cv.gdp_delta(mu, eps) * (1 - 2e-11))  # itself rounded up
        assert np.all(gdp_delta_upper(mu, eps) > 0)
    assert np.all(gdp_delta_upper(math.inf, eps) == 1)


def test_interpolated_table_never_undercuts_direct_evaluation():
    """One sweep, every theta computed directly: the tabulated sweep is above it, and by less than 6%."""
    s, v, diameter, lengths = 0.1, 1.0, 4.0, [3, 10, 40]
    slopes = make_slope_recursion(s, v, 1.0, diameter)
    eps = np.arange(81) * 0.08
    start = gdp_delta_upper(last_iterate_mu(s, v, 1.0, diameter, math.inf), eps)
    direct = start.copy()
    with np.errstate(divide="ignore"):
        offset = np.log((np.expm1(eps) + start) / start)
    for k in lengths:
        same = cv.gdp_delta(min(math.sqrt(k) * s / v, slopes.same_start_mu(k)), eps)
        apart_mu = min((k * s + diameter) / (math.sqrt(k) * v), slopes.two_starts_mu(k))
        for j in range(len(eps)):
            rest = len(eps) - j
            apart = cv.gdp_delta(apart_mu, eps[j] + offset[:rest])
            direct[j:] = np.minimum(direct[j:], same[j] + start[:rest] * apart)
    direct = np.minimum.accumulate(direct)
    swept = block_profile(s, v, 1.0, diameter, lengths, eps, sweeps=1)
    assert np.all(swept >= direct)
    assert np.all(swept[:50] <= direct[:50] * 1.06)


def test_read_out_is_infinite_below_the_computed_deltas():
    found = BlockRecursion().certify(UNIT, run())
    assert found.epsilon(1e-40) == math.inf
    assert 0 < found.epsilon(1e-14) < math.inf


def test_extreme_settings_never_claim_zero_delta():
    for arguments in [
        (1e-14, 1.0, 1.0, 1.0, math.inf),
        (50.0, 1.0, 1.0, 1e4, math.inf),
        (1e3, 1e-3, 0.0, 1.0, 5),
    ]:
        epsilons, deltas = last_iterate_profile(*arguments)
        assert min(deltas) > 0
        assert not np.any(np.isnan(deltas))
        assert np.all(np.diff(deltas) <= 0)
        assert epsilons[0] == 0


def test_overflow_claims_nothing():
    assert last_iterate_profile(1e200, 1e-200, 1.0, 1e200, math.inf) == ((0.0,), (1.0,))


def test_certified_profile():
    guarantee = BlockRecursion().certify(UNIT, run())
    assert guarantee.kind == "approximate"
    assert guarantee.theorem == "block-recursion"
    assert any("projected exactly" in words for words in guarantee.assumptions)


@pytest.mark.parametrize(
    ("constants", "spec", "word"),
    [
        ({}, {"sampling": "cyclic", "batch_size": 1}, "full batch"),
        ({}, {"momentum": True}, "momentum"),
        ({}, {"release": "trajectory"}, "whole path"),
        ({}, {"release": "average", "n_steps": 5}, "whole path"),
        ({}, {"release": "checkpoints", "checkpoints": (1, 2)}, "not the last iterate"),
        ({}, {"n_steps": 2, "step_size": (0.1, 0.2)}, "varies"),
        ({}, {"start": "unknown"}, "starting point"),
        ({"diameter": math.inf}, {}, "bounded set"),
        ({"smoothness": math.inf}, {}, "smoothness"),
        ({"projection_error": 1e-9}, {}, "inexact"),
        ({"convex": False}, {}, "expands"),
        ({"smoothness": 21.0}, {}, "expands"),
    ],
)
def test_each_broken_hypothesis_is_named(constants, spec, word):
    values = {"n": 1, "lipschitz": 0.5, "smoothness": 1.0, "diameter": 4.0, **constants}
    with pytest.raises(AssumptionFailed, match=word):
        BlockRecursion().certify(Constants(**values), run(**spec))


@pytest.mark.parametrize("grid", [[0.0], [0.1, 0.2], [0.0, 0.1, 0.3], [[0.0, 0.1]]])
def test_bad_grids_are_refused(grid):
    with pytest.raises(InvalidParameter, match="epsilons"):
        block_profile(0.1, 1.0, 1.0, 4.0, [1], grid)


def test_blocks_fit_the_run():
    assert candidate_block_lengths(1.0, 20.0, 6) == [1, 2, 3, 5]
    assert max(candidate_block_lengths(1.0, 20.0, math.inf)) == 4800
    assert min(candidate_block_lengths(1.0, 1e-9, math.inf)) == 1


@settings(max_examples=4, deadline=None)
@given(
    shift=st.floats(0.005, 1.0),
    diameter=st.floats(0.3, 8.0),
    contraction=st.sampled_from([1.0, 0.99, 0.7]),
    steps=st.sampled_from([1, 4, 50, math.inf]),
    scale=st.floats(0.01, 100.0),
)
def test_laws(shift, diameter, contraction, steps, scale):
    """Scale invariance; less noise, a wider set or more steps never help (to within the grid's 0.2%)."""
    eps = profile(shift, 1.0, contraction, diameter, steps).epsilon(1e-6)
    scaled = profile(scale * shift, scale, contraction, scale * diameter, steps).epsilon(1e-6)
    assert scaled == pytest.approx(eps, rel=1e-6, abs=1e-9)
    assert profile(shift, 1.1, contraction, diameter, steps).epsilon(1e-6) <= eps * 1.002
    assert profile(shift, 1.0, contraction, 1.1 * diameter, steps).epsilon(1e-6) >= eps * 0.998
    assert profile(shift, 1.0, contraction, diameter, 2 * steps).epsilon(1e-6) >= eps * 0.998


@pytest.mark.slow  # the fuzzer of the accountant compares exact walks too
def test_against_exact_walks_in_both_directions():
    """Seeded stress test: no exact delta of a walk exceeds the profile; drifts, starts and run lengths vary."""
    rng = np.random.default_rng(20240611)
    worst = 0.0
    for _ in range(15):
        diameter, shift = np.exp(rng.uniform(np.log([0.3, 0.01]), np.log([12.0, 1.5]))).tolist()
        contraction = 1.0 if rng.random() < 0.5 else float(rng.uniform(0.3, 0.999))
        steps = [2, 5, 30, 300, math.inf][rng.integers(5)]
        epsilons, deltas = (
            np.array(x) for x in last_iterate_profile(shift, 1.0, contraction, diameter, steps)
        )
        chosen = np.unique(np.linspace(0, len(epsilons) - 1, 20).astype(int))
        chosen = chosen[deltas[chosen] > 1e-12]
        for factor, drift in [
            (contraction, 0.0),
            (contraction, rng.uniform(0, 7) / diameter),
            (-contraction, 0.0),
        ]:
            start = rng.uniform(-0.5, 0.5) * diameter
            walks = [
                compute_walk_law(
                    [(1.0, affine_map(factor, drift + sign * shift / 2))], 1.0, diameter, steps, start=start
                )
                for sign in (1, -1)
            ]
            exact = delta_between(walks[0], walks[1], epsilons[chosen])
            worst = max(worst, float(np.max(exact / deltas[chosen])))
    assert 0.3 < worst <= 1.0


def test_a_drift_that_varies_leaks_more_than_a_constant_one_and_no_more_than_is_proved():
    """D = 6 v, kappa = 1, delta = 1e-5: tails of both walks are rounded outwards, so what is attained is proved."""
    width, delta, steps = 6.0, 1e-5, 60
    epsilons, deltas = (np.array(x) for x in last_iterate_profile(1 / width, 1.0, 1.0, width, math.inf))
    claimed = epsilons[np.argmax(deltas <= delta)]

    def attained(drifts):
        moves = [[((1.0, 1.0, sign / width / 2 - drift),) for drift in drifts] for sign in (1, -1)]
        truth = walk_truth(moves[0], moves[1], np.ones(steps), width, (0.0, 0.0))
        return max(eps for eps in np.arange(1.0, 5.0, 0.02) if truth(eps) >= delta)

    left = np.arange(steps, 0, -1)
    varying = attained(np.where(left < 20, 0.8 * np.sqrt(-math.log(delta) / 2 / left), 0.0))
    constant = max(attained(np.full(steps, drift)) for drift in (0.4, 0.6, 0.8))
    assert 1.4 * constant < varying <= claimed < 1.6 * varying
