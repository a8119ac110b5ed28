"""L2: free walks over random batches against sums over every outcome; never above a proved bound."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from _registered import THEOREMS
from dplangevin.errors import AssumptionFailed
from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.walk_laws import (
    BernoulliJumps,
    EpochJumps,
    bernstein_bound,
    gaussian_tails,
    walk_tails,
)
from dplangevin.problem.constants import Constants

FIXED = {"n": 12, "lipschitz": 1.0, "smoothness": 1.0}


def described(sampling, *, n_steps=6, step_size=0.5, noise_std=0.3, order="public", **constants):
    adjacency = "add-remove" if sampling == "poisson" else "replace-one"
    spec = NoisyGradientSpec(
        step_size=step_size,
        noise_std=noise_std,
        n_steps=n_steps,
        batch_size=4,
        sampling=sampling,
        order=order,
    )
    return Constants(**{**FIXED, "adjacency": adjacency, **constants}), spec


def exact_epsilon(shifts, odds, deviation, delta):
    """Largest log((P - delta) / Q) over a fine grid of half lines: a mixture against N(0, V), no Fourier series."""
    cuts = np.linspace(-9 * deviation, np.max(shifts) + 9 * deviation, 40_001)
    above = sum(p * ndtr((z - cuts) / deviation) for z, p in zip(shifts, odds, strict=True))
    below = sum(p * ndtr((cuts - z) / deviation) for z, p in zip(shifts, odds, strict=True))
    free, free_below = ndtr(-cuts / deviation), ndtr(cuts / deviation)
    ratios = [(above - delta) / free, (free_below - delta) / np.maximum(below, 1e-300)]
    return math.log(max(np.max(ratio) for ratio in ratios))


def enumerated(constants, spec):
    """Every outcome of the record's participation: (total shift, probability), and the standard deviation."""
    steps, noises = spec.step_sizes(), spec.noise_stds()
    factors = 1 - steps * constants.strong_convexity
    tails = np.array([np.prod(factors[t + 1 :]) for t in range(len(steps))])
    jumps = tails * steps * constants.gradient_sensitivity / 4
    deviation = math.sqrt(np.sum((tails * steps * noises) ** 2))
    if spec.sampling in ("poisson", "without-replacement"):
        bits = np.array(list(itertools.product((0, 1), repeat=len(steps))))
        return bits @ jumps, np.prod(np.where(bits, 1 / 3, 2 / 3), axis=1), deviation
    epochs = jumps.reshape(-1, 3)
    if spec.sampling == "cyclic":
        return epochs.sum(axis=0), np.full(3, 1 / 3), deviation
    places = np.array(list(itertools.product(range(3), repeat=len(epochs))))
    shifts = np.array([sum(epochs[e, j] for e, j in enumerate(row)) for row in places])
    return shifts, np.full(len(places), 3.0 ** -len(epochs)), deviation


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement", "shuffle", "cyclic"])
@pytest.mark.parametrize("ridge", [0.0, 0.4])
@pytest.mark.parametrize("varying", [False, True])
def test_every_outcome(sampling, ridge, varying):
    options = {"strong_convexity": ridge}
    if varying:
        options |= {
            "step_size": (0.5, 0.4, 0.9, 0.3, 0.7, 0.2),
            "noise_std": (0.3, 0.2, 0.5, 0.3, 0.4, 0.6),
        }
    constants, spec = described(sampling, order="secret", **options)
    for delta in (1e-2, 1e-6):
        exact = exact_epsilon(*enumerated(constants, spec), delta)
        found = lower_bound_epsilon(constants, spec, delta)
        assert exact * (1 - 2e-4) - 1e-6 <= found <= exact * (1 + 1e-6)


def test_a_million_records():
    """n = 1e6, b = 4096, 1000 epochs, noise multiplier 4: composition claims 2.328, the walk leaks 2.286."""
    n, b = 10**6, 4096
    steps = round(1000 * n / b)
    constants = Constants(n=n, lipschitz=1.0, smoothness=1.0, adjacency="add-remove")
    spec = NoisyGradientSpec(step_size=0.01, noise_std=4 / b, n_steps=steps, batch_size=b, sampling="poisson")
    counts = np.arange(600, 1500)
    exact = exact_epsilon(counts, binom.pmf(counts, steps, b / n), 4 * math.sqrt(steps), 1e-6)
    found = lower_bound_epsilon(constants, spec, 1e-6)
    assert found == pytest.approx(2.2863, abs=2e-4)
    assert exact * (1 - 1e-4) <= found <= exact * (1 + 1e-7)


def test_tails_are_within_their_error():
    """Ten jumps of different size, 1024 outcomes; and a thousand equal ones against the binomial law."""
    rng = np.random.default_rng(5)
    weights, cuts = rng.uniform(0, 3, 10), np.linspace(-8, 30, 200)
    found = walk_tails(BernoulliJumps(rate=0.7, weights=weights, counts=np.ones(10)), 1.3, cuts)
    bits = np.array(list(itertools.product((0, 1), repeat=10)))
    odds = np.prod(np.where(bits, 0.7, 0.3), axis=1)
    exact = ndtr(((bits @ weights)[:, None] - cuts) / math.sqrt(1.3)).T @ odds
    assert np.max(np.abs(found.above - exact)) <= found.error + 1e-15
    assert found.error < 1e-13
    many = walk_tails(
        BernoulliJumps(rate=0.02, weights=np.array([0.05]), counts=np.array([1000.0])), 2.0, cuts
    )
    k = np.arange(1001)
    exact = ndtr((0.05 * k[:, None] - cuts) / math.sqrt(2.0)).T @ binom.pmf(k, 1000, 0.02)
    assert np.max(np.abs(many.above - exact)) <= many.error + 1e-15


def test_the_geometric_tail_is_the_list():
    listed = BernoulliJumps(rate=0.3, weights=0.2 * 0.97 ** np.arange(900), counts=np.ones(900))
    closed = BernoulliJumps(
        rate=0.3,
        weights=0.2 * 0.97 ** np.arange(100),
        counts=np.ones(100),
        tail_first=0.2 * 0.97**100,
        tail_ratio=0.97,
        tail_count=800,
    )
    cuts = np.linspace(-5, 10, 50)
    first, second = walk_tails(listed, 1.0, cuts), walk_tails(closed, 1.0, cuts)
    assert np.max(np.abs(first.above - second.above)) <= first.error + second.error


def test_epochs_of_equal_places_are_gaussian():
    found = walk_tails(
        EpochJumps(rows=np.full((5, 3), 0.4), odds=np.full(3, 1 / 3)), 1.0, np.linspace(-3, 5, 9)
    )
    exact = gaussian_tails(np.linspace(-3, 5, 9) - 2.0, 1.0)
    assert np.max(np.abs(found.above - exact.above)) <= found.error
    assert np.max(np.abs(found.below - exact.below)) <= found.error


def test_bernstein_covers_the_binomial_tail():
    for n, q in [(100, 0.01), (10_000, 0.004), (50, 0.5)]:
        assert binom.sf(bernstein_bound(n * q, n * q, 1.0, n), n, q) < math.exp(-40)


@pytest.mark.parametrize("sampling", ["poisson", "without-replacement", "shuffle", "cyclic", "full"])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_endless_is_above_every_number_of_steps(sampling, ridge):
    constants, _ = described("poisson", strong_convexity=ridge, diameter=20.0)
    options = {"step_size": 0.5, "noise_std": 1.0, "sampling": sampling}
    if sampling != "full":
        options["batch_size"] = 4
    if sampling != "poisson":
        constants = Constants(**FIXED, strong_convexity=ridge, diameter=20.0)
    endless = lower_bound_epsilon(constants, NoisyGradientSpec(n_steps=math.inf, **options), 1e-5)
    for steps in (3, 30, 99, 1000):
        found = lower_bound_epsilon(constants, NoisyGradientSpec(n_steps=steps, **options), 1e-5)
        assert (found or 0.0) <= endless * (1 + 1e-3), steps


@pytest.mark.slow  # the contracts of theorems compare both sides too
def test_never_above_a_proved_bound():
    """Seeded sweep over samplings, ridges, sets, specs: every theorem that applies is at least the walk."""
    rng = np.random.default_rng(2)
    worst, compared = 0.0, 0
    for i in range(24):
        sampling = ["poisson", "without-replacement", "shuffle", "cyclic"][i % 4]
        steps = int(rng.choice([3, 12, 60]))
        varying = rng.random() < 0.3
        constants, spec = described(
            sampling,
            n_steps=steps,
            step_size=tuple(rng.uniform(0.1, 0.6, steps)) if varying else float(rng.uniform(0.1, 0.6)),
            noise_std=float(np.exp(rng.uniform(-2, 2))),
            order=str(rng.choice(["public", "secret"])),
            strong_convexity=float(rng.choice([0.0, 0.3])),
            diameter=float(rng.choice([math.inf, 30.0])),
        )
        delta = float(10 ** rng.uniform(-8, -2))
        lower = lower_bound_epsilon(constants, spec, delta)
        if not lower:
            continue
        for theorem in (
            THEOREMS[name] for name in THEOREMS if name != "block-sgd"
        ):  # slow, and in its own tests
            try:
                upper = theorem.certify(constants, spec).epsilon(delta)
            except AssumptionFailed:
                continue
            compared += 1
            worst = max(worst, lower / upper if upper else math.inf)
    assert compared > 30
    assert 0.9 < worst <= 1.0
