"""Noisy SGD on random batches: published values, laws and guards (exact chains: test_sgd_exact_chains)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting import sampled_gaussian as sg
from dplangevin.errors import AssumptionFailed, InvalidParameter
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import BlockSGD
from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import (
    EveryStepShift,
    HiddenStateSGD,
    ParticipationStart,
    best_participation_split,
    hidden_state_split,
    log_exponential_moment,
    make_distance_moment,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import best_restart_mu
from dplangevin.mechanisms.noisy_gradient.theorems.random_batches import (
    NOISE_SPLITS,
    RandomBatchRun,
    best_constant_split,
    make_random_batch_run,
    oversized_batch_probability,
    restart_lengths,
    step_renyi_curves,
)
from dplangevin.problem.constants import Constants

INFINITY = math.inf
SUBSET, POISSON = "without-replacement", "poisson"
ALL = (HiddenStateSGD(), EveryStepShift(), ParticipationStart(), BlockSGD())


def described(
    *,
    n=1000,
    size=50,
    step=0.1,
    noise=0.4,
    steps=1e6,
    diameter=1.0,
    ridge=0.0,
    smooth=1.0,
    sampling=SUBSET,
    **more,
):
    """Set G of the theory: n = 1000, b = 50, L = 1, eta = 0.1, D = 1, sigma = 0.4."""
    constants = Constants(
        n=n,
        lipschitz=1.0,
        smoothness=smooth + ridge,
        strong_convexity=ridge,
        diameter=diameter,
        adjacency="add-remove" if sampling == POISSON else "replace-one",
    )
    spec = NoisyGradientSpec(
        step_size=step, noise_std=noise, n_steps=steps, batch_size=size, sampling=sampling, **more
    )
    return constants, spec


def units(**options) -> RandomBatchRun:
    return make_random_batch_run(HiddenStateSGD(), *described(**options))


def certain(run: RandomBatchRun):
    return lambda k, scale: scale * float(run.max_distance(run.n_steps - k)) ** 2


def constant(run: RandomBatchRun, order: float, shares=NOISE_SPLITS, lengths=None, curves=None) -> float:
    orders, shares = np.array([order]), np.asarray(shares, float)
    curves = step_renyi_curves(run, orders, shares) if curves is None else curves
    lengths = restart_lengths(run) if lengths is None else np.asarray(lengths, float)
    return float(best_constant_split(run, orders, curves, certain(run), lengths, shares).values[0])


def at_order(guarantee, order: float) -> float:
    (part,) = guarantee.parts
    return dict(zip(part.orders, part.values, strict=True))[order]


# ---------------------------------------------------------------- published values


def test_objective_and_optimum_of_set_g():
    assert constant(units(), 8.0, [0.4864], [4866]) == pytest.approx(2.112571523, rel=1e-8)
    for steps in (1e5, 1e6):
        fine = constant(units(steps=steps), 8.0, np.linspace(0.45, 0.52, 71))
        assert fine == pytest.approx(2.11257152, rel=1e-5)
        assert fine >= 2.11257152 * (1 - 1e-7)


def test_certified_values_of_set_g():
    value = at_order(HiddenStateSGD().certify(*described()), 8.0)
    assert 2.11257152 <= value < 2.11257152 * 1.002
    short = at_order(HiddenStateSGD().certify(*described(steps=1000)), 8.0)
    assert short == pytest.approx(0.1080365009, rel=1e-8)
    poisson = at_order(HiddenStateSGD().certify(*described(sampling=POISSON)), 8.0)
    assert 1.001963516 * (1 - 1e-6) <= poisson < 1.001963516 * 1.002


def test_the_printed_direction_is_never_returned():
    run, orders = units(), np.array([8.0])
    shares = np.linspace(0.45, 0.65, 201)
    scales = run.noise_multiplier * np.sqrt(1 - np.append(0.0, shares))
    printed = np.array([sg.renyi_reversed(orders, run.rate, nm) for nm in scales])
    claim = constant(run, 8.0, shares, np.arange(3000, 7000, 10), printed)
    assert claim == pytest.approx(2.00137, rel=1e-5)
    for theorem in (HiddenStateSGD(), ParticipationStart()):
        assert at_order(theorem.certify(*described()), 8.0) > claim * 1.05


FIGURE_1 = {
    2.0: (0.0555104, 0.555104, 2.77552, 5.55104, 10.0905, 10.0905, 10.0905),
    8.0: (0.223870, 2.23870, 11.1935, 22.3870, 40.9410, 40.9410, 40.9410),
}


def test_figure_1_of_altschuler_and_talwar():
    orders = np.array([2.0, 8.0])
    for i, steps in enumerate((100, 1e3, 5e3, 1e4, 2e4, 1e5, 1e6)):
        run = units(noise=0.1, steps=steps)
        values = hidden_state_split(run, orders, step_renyi_curves(run, orders)).values
        for order, value in zip(orders, values, strict=True):
            printed = FIGURE_1[float(order)][i]
            assert printed * (1 - 1e-5) <= value < printed * 1.002


def test_strongly_convex_run():
    run, orders = units(steps=2000, diameter=INFINITY, ridge=0.5), np.array([8.0])
    assert run.contraction == pytest.approx(0.95)
    curves = step_renyi_curves(run, orders)
    assert constant(run, 8.0) == pytest.approx(0.012327, rel=1e-3)
    assert hidden_state_split(run, orders, curves).values[0] == pytest.approx(0.010899, rel=3e-3)
    assert best_participation_split(run, orders, curves).values[0] == pytest.approx(0.0050193, rel=1e-2)
    assert best_participation_split(run, orders, curves).values[0] > 0.0038995  # the exact walk


def test_block_profile_of_set_g():
    assert 0.1275 < BlockSGD().certify(*described(steps=1e7)).epsilon(1e-5) <= 1.0
    assert 2.007 < BlockSGD().certify(*described(steps=1e7, noise=0.1)).epsilon(1e-5) <= 16.0
    assert HiddenStateSGD().certify(*described(steps=1e7)).epsilon(1e-5) == pytest.approx(3.289, rel=1e-3)


def test_probability_of_a_too_large_batch():
    assert oversized_batch_probability(1000, 0.05, 100.0) == pytest.approx(7.960046849e-11, rel=1e-8)
    assert oversized_batch_probability(1000, 0.05, 100.9) == oversized_batch_probability(1000, 0.05, 100.0)
    assert oversized_batch_probability(10, 0.5, 0.5) == 1
    assert oversized_batch_probability(10, 0.5, 10.0) == 0
    assert oversized_batch_probability(10, 0.5, 9.7) == pytest.approx(0.5**9)


@pytest.mark.parametrize(("diameter", "expected"), [(1.0, 16.0), (200.0, 3200.0)])
def test_without_sampling_it_is_the_optimal_shift(diameter, expected):
    run = RandomBatchRun(
        sampling=SUBSET, rate=1.0, noise_multiplier=1.0, shift=1.0, noise=1.0, contraction=1.0, diameter=diameter,
        n_steps=INFINITY,
    )  # fmt: skip
    assert constant(run, 8.0, [0.5], [diameter]) == pytest.approx(expected, rel=1e-12)
    assert 4 * best_restart_mu(1.0, 1.0, 1.0, diameter, INFINITY) ** 2 == pytest.approx(expected, rel=1e-12)
    assert expected <= constant(run, 8.0) < expected * 1.001


# ---------------------------------------------------------------- laws

ORDERS_FEW = np.array([1.5, 4.0, 16.0])


def hidden(run: RandomBatchRun) -> np.ndarray:
    return hidden_state_split(run, ORDERS_FEW, step_renyi_curves(run, ORDERS_FEW)).values


@given(
    noise=st.floats(0.03, 3),
    diameter=st.floats(0.01, 10),
    ridge=st.sampled_from([0.0, 0.01, 1.0]),
    steps=st.sampled_from([1, 17, 400, 10_000, INFINITY]),
    sampling=st.sampled_from([SUBSET, POISSON]),
)
@settings(max_examples=8, deadline=None)
def test_less_is_never_more(noise, diameter, ridge, steps, sampling):
    options = {
        "noise": noise,
        "diameter": diameter,
        "ridge": ridge,
        "steps": steps,
        "sampling": sampling,
        "smooth": 0.9,
    }
    here = hidden(units(**options)) * (1 + 1e-6)
    assert np.all(hidden(units(**(options | {"noise": 1.3 * noise}))) <= here)
    assert np.all(hidden(units(**(options | {"diameter": diameter / 2}))) <= here)
    assert np.all(hidden(units(**(options | {"steps": 200}))) <= here) or steps < 200
    assert np.all(hidden(units(**(options | {"n": 3000, "smooth": 0.3}))) <= here)
    if math.isfinite(steps):
        assert np.all(here >= 0)
        assert np.all(here <= steps * units(**options).renyi_curve(ORDERS_FEW) * (1 + 1e-5))


def test_scale_invariance():
    run = units(noise=0.1, steps=10_000, ridge=0.02)
    scaled = replace(run, shift=7 * run.shift, noise=7 * run.noise, diameter=7 * run.diameter)
    np.testing.assert_allclose(hidden(scaled), hidden(run), rtol=1e-9)


def test_participation_start_is_never_above_by_more_than_rounding():
    for options in (
        {"steps": 3000},
        {"steps": INFINITY},
        {"ridge": 0.3, "steps": 500},
        {"ridge": 0.01, "diameter": INFINITY},
    ):
        run = units(**options)
        curves = step_renyi_curves(run, ORDERS_FEW)
        assert np.all(
            best_participation_split(run, ORDERS_FEW, curves).values
            <= hidden_state_split(run, ORDERS_FEW, curves).values * (1 + 1e-12)
        )


def test_distance_moment_is_from_above_and_close():
    rng = np.random.default_rng(5)
    for contraction, rate, steps in itertools.product((1.0, 0.4, 0.97, 0.9999), (0.02, 0.5, 1.0), (1, 9)):
        run = RandomBatchRun(
            sampling=POISSON, rate=rate, noise_multiplier=1.0, shift=0.7, noise=1.0, contraction=contraction,
            diameter=INFINITY, n_steps=100,
        )  # fmt: skip
        bits = np.array(list(itertools.product((0, 1), repeat=steps)))
        chance = np.prod(np.where(bits == 1, rate, 1 - rate), axis=1)
        distance = 0.7 * bits @ contraction ** np.arange(steps)
        scale = np.exp(rng.uniform(-12, 5, 8)) / distance.max() ** 2
        exact = np.log1p(np.expm1(np.multiply.outer(scale, distance**2)) @ chance)
        ratio = make_distance_moment(run, steps)(scale) / exact
        assert np.all(ratio >= 1 - 1e-12)
        assert np.all(ratio < 1.02)


def test_checkpoints_add_up():
    guarantee = HiddenStateSGD().certify(
        *described(release="checkpoints", checkpoints=(1000, 3000, 4000), steps=9000)
    )
    one, two = (at_order(HiddenStateSGD().certify(*described(steps=t)), 8.0) for t in (1000, 2000))
    assert at_order(guarantee, 8.0) == pytest.approx(2 * one + two, rel=1e-8)


# ---------------------------------------------------------------- guards


@pytest.mark.parametrize("theorem", ALL, ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"momentum": True}, "momentum"),
        ({"release": "trajectory"}, "trajectory"),
        ({"start": "unknown"}, "starting point"),
        ({"step": (0.1, 0.2), "steps": 2}, "varies"),
        ({"sampling": "cyclic"}, "cyclic"),
        ({"smooth": INFINITY}, "smoothness"),
        ({"diameter": INFINITY, "steps": INFINITY}, "bounded set"),
    ],
)
def test_each_broken_hypothesis_is_named(theorem, options, word):
    if word == "varies" and theorem.name in ("hidden-state-sgd", "participation-start"):
        assert theorem.certify(*described(**options)).theorem == theorem.name  # proved step by step
        return
    with pytest.raises(AssumptionFailed, match=word):
        theorem.certify(*described(**options))


@pytest.mark.parametrize("theorem", ALL, ids=lambda t: t.name)
def test_adjacency_projection_and_batch_size_are_checked(theorem):
    constants, spec = described()
    with pytest.raises(AssumptionFailed, match="adjacency"):
        theorem.certify(replace(constants, adjacency="add-remove", gradient_sensitivity=1.0), spec)
    with pytest.raises(AssumptionFailed, match="adjacency"):
        theorem.certify(constants, replace(spec, sampling=POISSON))
    with pytest.raises(AssumptionFailed, match="projection"):
        theorem.certify(replace(constants, projection_error=1e-9), spec)
    with pytest.raises(InvalidParameter, match="batch_size"):
        theorem.certify(constants, replace(spec, batch_size=1001))


def test_checkpoints_are_refused_where_they_are_not_proved():
    for theorem in ALL[1:]:
        with pytest.raises(AssumptionFailed, match="checkpoints"):
            theorem.certify(*described(release="checkpoints", checkpoints=(10, 20)))


def test_poisson_step_size_must_hold_for_every_batch():
    # eta <= 2 / M is not enough: the largest batch is n / b = 20 times the expected one
    safe = units(sampling=POISSON, smooth=1.0)
    assert safe.oversized_probability == 0
    assert safe.contraction == 1
    # eta (M n / b + 2 m) = 0.1 (11 * 20) > 2; batches above 2 * 50 / (0.1 * 11) = 90.9 are too large
    risky = units(sampling=POISSON, smooth=11.0)
    assert risky.oversized_probability == pytest.approx(
        oversized_batch_probability(1000, 0.05, 90.0), rel=1e-12
    )
    assert risky.oversized_probability > 0
    with pytest.raises(AssumptionFailed, match="too large"):
        units(sampling=POISSON, smooth=19.0)
    ridged = units(sampling=POISSON, smooth=0.5, ridge=1.0)
    assert ridged.contraction == pytest.approx(0.9)


def test_poisson_bad_batches_are_charged_to_the_steps_that_need_contraction():
    options = {"sampling": POISSON, "smooth": 9.0, "steps": 10**6}
    bad = units(**options).oversized_probability
    bounded = HiddenStateSGD().certify(*described(**options))
    assert 0 < bounded.extra_delta < 0.1 * 10**6 * bad  # only the steps after the restart from the whole set
    for theorem in (EveryStepShift(), ParticipationStart()):
        assert theorem.certify(*described(**options)).extra_delta == pytest.approx(10**6 * bad, rel=1e-9)
        with pytest.raises(AssumptionFailed):
            theorem.certify(*described(**(options | {"steps": INFINITY})))
    free = options | {"ridge": 0.5, "diameter": INFINITY}
    assert HiddenStateSGD().certify(*described(**free)).extra_delta == pytest.approx(
        10**6 * units(**free).oversized_probability, rel=1e-9
    )
    with pytest.raises(AssumptionFailed, match="endless"):
        HiddenStateSGD().certify(*described(**(free | {"steps": INFINITY})))


def test_block_profile_carries_bad_batches():
    # where contraction is needed, a too large batch counts; from a common start nothing need contract
    clean, risky = (
        BlockSGD().certify(*described(sampling=POISSON, smooth=m, steps=INFINITY)) for m in (1.0, 12.0)
    )
    assert risky.epsilon(1e-10) > 1.005 * clean.epsilon(1e-10)
    assert all(risky.delta(eps) >= clean.delta(eps) * 0.99 for eps in (0.05, 0.1, 0.3, 0.5))


def test_the_moment_of_a_contracting_distance_counts_every_step() -> None:
    """Summed one by one; what is left of the shift after c^j = 1e-4 counts too. Each piece is one step at c = 0.9."""
    run = RandomBatchRun(
        sampling="poisson", rate=0.3, noise_multiplier=1.0, shift=2.0, noise=1.0, contraction=0.9,
        diameter=math.inf, n_steps=200,
    )  # fmt: skip
    theta = np.array([0.1, 1.0, 3.0])
    for steps in (1, 5, 88, 100, 200):
        shifts = np.multiply.outer(theta, 2.0 * 0.9 ** np.arange(steps))
        exact = np.log1p(0.3 * np.expm1(shifts)).sum(axis=1)
        bound = log_exponential_moment(run, steps, theta)
        assert np.all(bound >= exact * (1 - 1e-13))
        np.testing.assert_allclose(bound, exact, rtol=1e-6)
