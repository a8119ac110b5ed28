"""S1 and S3 with step sizes and noise that vary: exact chains both ways, the formulas written out, refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from dplangevin.accounting import sampled_gaussian as sg
from dplangevin.accounting.conversions import ORDERS
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.hidden_state import (
    VARYING_NOISE_SPLITS,
    HiddenStateSGD,
    ParticipationStart,
    _group_multipliers,
    _split_on_levels,
    make_varying_batch_run,
    max_distances,
    random_distance_costs,
    worst_distance_costs,
)
from dplangevin.problem.constants import Constants

SUBSET, POISSON = "without-replacement", "poisson"
FEW = np.array([1.1, 2.0, 6.0, 20.0])


def described(steps, noises, *, sampling=SUBSET, n=10, batch=2, ridge=0.0, diameter=math.inf, lipschitz=1.0):
    constants = Constants(
        n=n,
        lipschitz=lipschitz,
        smoothness=max(ridge, 1e-9),
        strong_convexity=ridge,
        diameter=diameter,
        adjacency="replace-one" if sampling == SUBSET else "add-remove",
    )
    spec = NoisyGradientSpec(
        step_size=tuple(steps),
        noise_std=tuple(noises),
        n_steps=len(steps),
        batch_size=batch,
        sampling=sampling,
    )
    return constants, spec


def chain(run, width, drift, jump):
    """Masses of w <- clip(c_t w + (drift or drift + jump) s_t + N(0, v_t^2)) at nodes and ends, step by step."""
    count = int(max(120, 7 * width / float(np.min(run.noises)) + 80))
    x, w = np.polynomial.legendre.leggauss(count)
    x, w = x * width / 2, w * width / 2
    places, law = np.zeros(1), np.ones(1)
    for factor, shift, noise in zip(run.contractions, run.shifts, run.noises, strict=True):
        kernel = np.zeros((count + 2, len(places)))
        for chance, move in ((1 - run.rate, drift), (run.rate, drift + jump)):
            mean = factor * places + shift * move
            kernel[1:-1] += (
                chance
                * np.exp(-(((x[:, None] - mean) / noise) ** 2) / 2)
                / (noise * math.sqrt(2 * math.pi))
                * w[:, None]
            )
            kernel[0] += chance * ndtr((-width / 2 - mean) / noise)
            kernel[-1] += chance * ndtr((mean - width / 2) / noise)
        places, law = np.concatenate([[-width / 2], x, [width / 2]]), kernel @ law
    assert abs(law.sum() - 1) < 1e-8
    return law


def renyi(p, q, order):
    keep = (p > 1e-200) & (q > 1e-200)
    logs = order * np.log(p[keep]) + (1 - order) * np.log(q[keep])
    return float((logs.max() + math.log(np.exp(logs - logs.max()).sum())) / (order - 1))


@pytest.mark.parametrize("seed", range(12))
def test_above_exact_chains(seed):
    """Random specs, ridges, sets and rates; the record jumps either way, the others drift; both directions."""
    rng = np.random.default_rng(seed)
    count, sampling = int(rng.integers(1, 14)), str(rng.choice([SUBSET, POISSON]))
    ridge, bounded = float(rng.choice([0.0, 0.1, 0.5])), bool(rng.random() < 0.6)
    steps, noises = rng.uniform(0.6, 1.4, count), rng.uniform(0.7, 1.5, count)
    width = (
        float(np.exp(rng.uniform(0, 2))) if bounded else 16 * math.sqrt(float(np.sum((steps * noises) ** 2)))
    )
    constants, spec = described(
        steps,
        noises,
        sampling=sampling,
        batch=int(rng.choice([1, 5, 10])),
        ridge=ridge,
        diameter=width if bounded else math.inf,
        lipschitz=float(np.exp(rng.uniform(-1, 1))),
    )
    run = make_varying_batch_run(HiddenStateSGD(), constants, spec)
    drift, jumps = 0.0, (1.0, 0.0)
    if sampling == SUBSET:
        drift, jumps = 0.1 * float(rng.normal()), ((1.0, 0.0), (0.5, -0.5), (-1.0, 0.0))[rng.integers(3)]
    p, q = (chain(run, width, drift, jump) for jump in jumps)
    bounds = worst_distance_costs(run, FEW), random_distance_costs(run, FEW)
    for i, order in enumerate(FEW):
        exact = max(renyi(p, q, order), renyi(q, p, order))
        for bound in bounds:
            assert exact <= bound[i] * (1 + 1e-7) + 1e-9


def test_the_formula_written_out():
    """Every restart and share by plain loops over steps: S1, without replacement."""
    rng = np.random.default_rng(7)
    steps, noises = rng.uniform(0.2, 1.0, 9), rng.choice([0.5, 0.8, 1.3], 9)
    constants, spec = described(steps, noises, ridge=0.3, diameter=2.0)
    factors, shifts = [max(1 - e * 0.3, 0.0) for e in steps], [e * 2.0 / 2 for e in steps]
    for order in (2.0, 8.0):
        best = sum(sg.renyi_without_replacement([order], 0.2, 2 * z / 2.0)[0] for z in noises)
        for begin in range(9):
            apart = 0.0
            for t in range(begin):
                apart = min(2.0, factors[t] * apart + shifts[t])
            tail = [math.prod(factors[t + 1 :]) for t in range(9)]
            start = math.prod(factors[begin:]) * apart
            weight = sum((tail[t] * steps[t] * noises[t]) ** 2 for t in range(begin, 9))
            for rho in VARYING_NOISE_SPLITS:
                cost = sum(
                    sg.renyi_without_replacement([order], 0.2, noises[t] * math.sqrt(1 - rho))[0]
                    for t in range(begin, 9)
                )
                best = min(best, cost + order * start**2 / (2 * rho * weight))
        found = worst_distance_costs(
            make_varying_batch_run(HiddenStateSGD(), constants, spec), np.array([order])
        )[0]
        assert found == pytest.approx(best, rel=1e-6)


def test_a_constant_spec_written_as_a_list():
    """The list shares one rho over all steps, so it is a little above the search for constant ones, never below."""
    constants = Constants(n=1000, lipschitz=1.0, smoothness=1.0, strong_convexity=0.5)
    plain = NoisyGradientSpec(step_size=0.1, noise_std=0.4, n_steps=2000, batch_size=50, sampling=SUBSET)
    listed = replace(plain, step_size=(0.1,) * 2000)
    for theorem in (HiddenStateSGD(), ParticipationStart()):
        one, many = (theorem.certify(constants, spec).epsilon(1e-5) for spec in (plain, listed))
        assert one * (1 - 1e-6) <= many <= 1.12 * one


def test_a_decaying_step_size_is_far_below_composition():
    """eta = 0.5 / sqrt(1 + t / 50), ridge 0.5: composition 0.855, from the random distance 0.160."""
    constants = Constants(n=1000, lipschitz=1.0, smoothness=1.0, strong_convexity=0.5)
    steps = tuple((0.5 / np.sqrt(1 + np.arange(2000) / 50)).tolist())
    spec = NoisyGradientSpec(step_size=steps, noise_std=0.4, n_steps=2000, batch_size=50, sampling=SUBSET)
    assert ParticipationStart().certify(constants, spec).epsilon(1e-5) == pytest.approx(0.1596, rel=5e-3)
    assert HiddenStateSGD().certify(constants, spec).epsilon(1e-5) == pytest.approx(0.2272, rel=5e-3)


def test_noise_is_rounded_down_to_few_classes():
    multipliers = np.exp(np.random.default_rng(0).uniform(-2, 2, 500))
    kinds, place = _group_multipliers(multipliers)
    assert len(kinds) <= 16
    assert np.all(kinds[place] <= multipliers)
    assert np.all(kinds[place] >= multipliers * math.exp(-4.0 / 16) * 0.99)


def test_levels_raise_convex_means_and_keep_the_sum():
    weights = np.exp(np.random.default_rng(3).uniform(-15, 0, 400))
    levels, uses = _split_on_levels(weights)
    assert float(levels @ uses) == pytest.approx(float(weights.sum()), rel=1e-9)
    for theta in (0.1, 1.0, 5.0, -3.0):
        exact = float(np.sum(np.log1p(0.2 * np.expm1(theta * weights))))
        found = float(np.log1p(0.2 * np.expm1(theta * levels)) @ uses)
        assert exact <= found + 1e-15
        assert found == pytest.approx(exact, rel=1e-2)


def test_distances_stop_at_the_diameter():
    constants, spec = described([1.0] * 8, [1.0] * 8, diameter=3.0)
    run = make_varying_batch_run(HiddenStateSGD(), constants, spec)
    assert max_distances(run) == pytest.approx([0, 1, 2, 3, 3, 3, 3, 3, 3])


def test_extreme_magnitudes_never_claim_too_little():
    """Tiny steps lose no digits: scaling all lengths changes nothing; a last step without noise is not forgotten."""
    constants, spec = described([0.5, 0.4, 0.3], [1.0, 2.0, 1.0], diameter=4.0)
    here = worst_distance_costs(make_varying_batch_run(HiddenStateSGD(), constants, spec), FEW)
    tiny = replace(spec, step_size=tuple(1e-55 * e for e in (0.5, 0.4, 0.3)))
    there = worst_distance_costs(
        make_varying_batch_run(HiddenStateSGD(), replace(constants, diameter=4e-55), tiny), FEW
    )
    assert there == pytest.approx(here, rel=1e-6)
    bare = replace(spec, noise_std=(1.0, 1.0, 1e-9))
    assert np.all(worst_distance_costs(make_varying_batch_run(HiddenStateSGD(), constants, bare), FEW) > 1e10)


@pytest.mark.parametrize("theorem", [HiddenStateSGD(), ParticipationStart()], ids=lambda t: t.name)
def test_each_broken_hypothesis_is_named(theorem):
    constants, spec = described([0.5, 0.4], [1.0, 1.0])
    assert theorem.certify(constants, spec).theorem == theorem.name
    for changes, word in [
        ({"release": "checkpoints", "checkpoints": (1,)}, "not covered"),
        ({"release": "trajectory"}, "whole path"),
        ({"momentum": True}, "momentum"),
        ({"start": "unknown"}, "starting point"),
    ]:
        with pytest.raises(AssumptionFailed, match=word):
            theorem.certify(constants, replace(spec, **changes))
    with pytest.raises(AssumptionFailed, match="expands"):
        theorem.certify(replace(constants, smoothness=30.0), spec)
    with pytest.raises(AssumptionFailed, match="too large"):
        theorem.certify(
            replace(constants, smoothness=3.0, adjacency="add-remove", gradient_sensitivity=1.0),
            replace(spec, sampling=POISSON),
        )


def test_too_large_poisson_batches_are_charged():
    constants = Constants(n=1000, lipschitz=1.0, smoothness=12.0, adjacency="add-remove", diameter=1.0)
    spec = NoisyGradientSpec(
        step_size=(0.1,) * 50, noise_std=0.4, n_steps=50, batch_size=50, sampling=POISSON
    )
    found = HiddenStateSGD().certify(constants, spec)
    largest = math.floor(2 / 0.1 * 50 / 12)
    from scipy.stats import binom

    assert found.extra_delta == pytest.approx(50 * binom.sf(largest - 1, 999, 0.05), rel=1e-6)
    assert len(ORDERS) == len(found.parts[0].orders)
