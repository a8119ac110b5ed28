"""Composed losses on a grid never promise more than exact sums do, and little less."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom

from dplangevin.ledger import _lattice
from dplangevin.ledger._admission import admits, largest_gaussian, largest_pure
from dplangevin.ledger._bill import Bill, bill
from dplangevin.ledger._lattice import Lattice, grid_for
from dplangevin.privacy.parts import Approximate, BoundedRange, Gaussian, Part, Profile, Pure, SampledGaussian
from unit._ledger import gaussian, promise, pure


def exact_delta(pairs: list[tuple[float, float]], mu: float, epsilon: float) -> float:
    """delta of (eps, delta) pairs and one GDP release: every combination of signs, in 30 digits."""
    with mpmath.workdps(30):
        kept = mpmath.mpf(1)
        for _, slack in pairs:
            kept *= 1 - mpmath.mpf(slack)
        total = 1 - kept
        for signs in itertools.product((1, -1), repeat=len(pairs)):
            chance, loss = kept, mpmath.mpf(0)
            for sign, (value, _) in zip(signs, pairs, strict=True):
                chance *= 1 / (1 + mpmath.exp(-sign * mpmath.mpf(value)))
                loss += sign * mpmath.mpf(value)
            total += chance * hockey_stick(mu, mpmath.mpf(epsilon) - loss)
        return float(total)


def hockey_stick(mu: float, epsilon: mpmath.mpf) -> mpmath.mpf:
    if mu == 0:
        return max(mpmath.mpf(0), 1 - mpmath.exp(epsilon))
    size = mpmath.mpf(mu)
    near = mpmath.ncdf(size / 2 - epsilon / size)
    return near - mpmath.exp(epsilon) * mpmath.ncdf(-size / 2 - epsilon / size)


@given(
    st.lists(st.tuples(st.floats(1e-3, 1.5), st.sampled_from([0.0, 1e-9, 1e-6])), min_size=1, max_size=4),
    st.sampled_from([0.0, 0.05, 0.7]),
    st.floats(0.05, 4.0),
)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_pairs_and_a_gaussian_cost_what_exact_sums_say_and_never_less(
    pairs: list[tuple[float, float]], mu: float, epsilon: float
) -> None:
    total = Lattice.nothing(grid_for(epsilon))
    for value, slack in pairs:
        more = total.plus(Approximate(value=value, slack=slack) if slack else Pure(value=value))
        assert more is not None
        total = more
    exact = exact_delta(pairs, mu, epsilon)
    found = total.delta(epsilon, mu)
    assert found >= exact
    assert found <= exact_delta(pairs, mu, epsilon * (1 - 1e-2)) * (1 + 1e-6) + 1e-18


def test_a_law_that_rounds_losses_down_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: atoms moved to the grid point below promise too much."""

    def careless(value: float, slack: float, grid: float) -> Lattice:
        honest = honest_pair(value, slack, grid)
        assert honest is not None
        (law,) = honest.laws
        place = math.floor(value / grid)
        mass = np.zeros(2 * place + 2)
        mass[-1], mass[0] = 1 / (1 + math.exp(-value)), 1 / (1 + math.exp(value))
        return Lattice(grid, (_lattice.Law(-place - 1, mass, law.lost),))

    honest_pair = _lattice._pair
    monkeypatch.setattr(_lattice, "_pair", careless)
    _lattice._of.cache_clear()
    total = Lattice.nothing(grid_for(1.0)).plus(Pure(value=0.30005, count=4))
    _lattice._of.cache_clear()
    assert total is not None
    assert total.delta(1.0) < exact_delta([(0.30005, 0.0)] * 4, 0.0, 1.0)


@pytest.mark.parametrize(("each", "count", "at"), [(0.01, 3000, 2.0), (0.1, 200, 4.0), (0.5, 40, 8.0)])
def test_many_equal_releases_cost_what_the_binomial_law_says(each: float, count: int, at: float) -> None:
    heads = 1 / (1 + math.exp(-each))
    wins = np.arange(count + 1)
    losses = each * (2 * wins - count)
    exact = float(binom.pmf(wins, count, heads) @ -np.expm1(np.minimum(at - losses, 0)))
    at_once = Bill(grid=grid_for(at)).plus(Pure(value=each, count=count)).delta(at)
    total = Bill(grid=grid_for(at))
    for _ in range(count // 20):  # as a ledger does, some at a time
        total = total.plus(Pure(value=each, count=20))
        total.losses()
    for found in (at_once, total.delta(at)):
        assert exact * (1 - 1e-9) <= found <= exact * 1.02 + 1e-12


@pytest.mark.parametrize(
    "part",
    [
        SampledGaussian(rate=0.05, noise_multiplier=1.5, sampling="poisson", count=20),
        SampledGaussian(rate=0.05, noise_multiplier=1.5, sampling="without-replacement", count=5),
        Profile(epsilons=(0.0, 0.2, 0.5), deltas=(0.05, 1e-7, 0.0), count=3),
        BoundedRange(value=0.4, count=5),
    ],
    ids=lambda part: type(part).__name__,
)
def test_other_parts_agree_with_dp_accounting(part: Part) -> None:
    from dplangevin.privacy import compose

    parts = (part, Pure(value=0.1), Gaussian(mu=0.3))
    losses = Bill(grid=grid_for(1.5)).plus(*parts).losses()
    theirs = compose.loss_distribution(parts)
    assert losses is not None
    assert theirs is not None
    ours = losses.delta(1.5, 0.3)
    assert ours == pytest.approx(theirs.get_delta_for_epsilon(1.5), rel=2e-3, abs=1e-12)


def mixed(count: int, seed: int = 0) -> list[Part]:
    """Distinct releases of every common kind."""
    rng = np.random.default_rng(seed)
    kinds = [
        lambda: Gaussian(mu=float(rng.uniform(0.001, 0.01))),
        lambda: Pure(value=float(rng.uniform(0.001, 0.02))),
        lambda: BoundedRange(value=float(rng.uniform(0.001, 0.02))),
        lambda: Approximate(value=float(rng.uniform(0.001, 0.01)), slack=1e-13),
        lambda: SampledGaussian(
            rate=0.01, noise_multiplier=float(rng.choice([8.0, 10.0])), sampling="poisson"
        ),
    ]
    return [kinds[i % len(kinds)]() for i in range(count)]


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_one_more_release_after_many_mixed_ones_is_cheap(count: int) -> None:
    spent = bill(((promise(part), 1) for part in mixed(count)), grid=grid_for(5.0))
    spent.losses()
    times = []
    for release in (gaussian(0.004), pure(0.003), promise(Approximate(value=0.001, slack=1e-13))):
        start = time.process_time()
        assert admits(spent, release, 5.0, 1e-6)
        times.append(time.process_time() - start)
    start = time.process_time()
    epsilon = spent.epsilon(1e-6)
    largest_pure(spent, 5.0, 1e-6)
    largest_gaussian(spent, 5.0, 1e-6)
    left = time.process_time() - start
    assert min(times) < 0.1
    assert left < 5  # 0.1 s on an idle machine
    assert epsilon < 5


def test_what_is_remembered_is_what_is_composed_at_once() -> None:
    parts = mixed(60)
    at_once = Bill(grid=grid_for(2.0)).plus(*parts)
    slowly = Bill(grid=grid_for(2.0))
    for part in parts:
        slowly = slowly.plus(part)
        slowly.losses()
    # the bound on the transforms' error depends on their order
    assert slowly.delta(0.2) == pytest.approx(at_once.delta(0.2), rel=1e-6, abs=2e-11)
    assert slowly.pairs == at_once.pairs
    assert slowly.mu == at_once.mu
    assert slowly.extra_delta == at_once.extra_delta == Fraction(0)
