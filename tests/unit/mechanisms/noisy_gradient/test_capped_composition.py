"""B5: the lemma on random finite chains, the sweep against loops, exact walks, and how far it is from them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dplangevin.accounting.parts import Profile
from dplangevin.mechanisms.noisy_gradient.lower_bounds import lower_bound_epsilon
from dplangevin.mechanisms.noisy_gradient.spec import NoisyGradientSpec
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
    _CUT_FRACTIONS,
    block_profile,
    gdp_delta_upper,
    last_iterate_profile,
    make_dominating_pair,
    sweep_capped,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import restart_mu
from dplangevin.mechanisms.noisy_gradient.walk_laws import compute_walk_law, delta_between
from dplangevin.problem.constants import Constants


def stick(p, q, g):
    """H_g(p || q) of two finite laws."""
    return float(np.maximum(p - g * q, 0).sum())


def bound(p, q, kernel, other, g, cap, factor):
    """The lemma's right side, from its statement."""
    size = len(p)
    kept = np.minimum(p / q, cap)
    spare = np.maximum(g - factor * kept, 0)
    excess, reserve = stick(p, q, cap), float(q @ spare)
    total = 0.0
    for i in range(size):
        ratio = (g - spare[i]) / kept[i]
        total += q[i] * kept[i] * max(stick(kernel[j], other[j], ratio) for j in range(size))
    if excess > 0:
        ratio = reserve / excess
        total += excess * max(stick(first, second, ratio) for first in kernel for second in other)
    return total


def test_the_lemma_on_random_chains():
    """P K against P' K' for random laws and kernels on five points, any g, cap and factor: never above the bound."""
    rng = np.random.default_rng(1)
    tightest = 0.0
    for _ in range(1500):
        p, q = rng.dirichlet(np.full(5, 0.7), 2)
        kernel = rng.dirichlet(np.full(5, rng.choice([0.3, 1.0, 5.0])), 5)
        other = 0.8 * kernel + 0.2 * rng.dirichlet(np.ones(5), 5)
        g, cap, factor = (
            np.exp(rng.uniform(-0.5, 2)),
            np.exp(rng.uniform(0, 2)),
            np.exp(rng.uniform(-0.5, 1.5)),
        )
        claimed, truth = bound(p, q, kernel, other, g, cap, factor), stick(p @ kernel, q @ other, g)
        assert truth <= claimed + 1e-13
        tightest = max(tightest, truth / claimed if claimed > 1e-6 else 0.0)
    assert tightest > 0.9


def test_the_dominating_pair_has_the_profile():
    eps = np.arange(60) * 0.1
    deltas = gdp_delta_upper(1.2, eps)
    pair = make_dominating_pair(eps, deltas)
    assert pair.values == pytest.approx(deltas, rel=1e-12)
    for i in (0, 5, 30):  # E'[(r - gamma)_+], with the last value as the mass where P' is 0
        above = float(np.sum(pair.masses[i + 1 :] * (pair.gamma[i + 1 :] - pair.gamma[i])))
        assert above + pair.values[-1] == pytest.approx(pair.values[i], rel=1e-9)
        assert pair.tail_masses[i] == pytest.approx(float(np.sum(pair.masses[i + 1 :])), rel=1e-9)


def test_a_sweep_is_the_loop():
    """Every cap and factor written out from the definition, chords of H2 in e^eps included."""
    eps = np.arange(31) * 0.2
    start = gdp_delta_upper(1.5, eps)
    s, diameter, k = 0.05, 4.0, 20
    same, apart = math.sqrt(k) * s, restart_mu(s, 1.0, 1.0, diameter, k)
    long = 0.2 * np.arange(200)
    found = sweep_capped(start, eps, gdp_delta_upper(same, eps)[None], gdp_delta_upper(apart, long)[None])
    pair = make_dominating_pair(eps, start)

    def first(x):
        value = float(gdp_delta_upper(same, np.array([abs(x)]))[0])
        return value if x >= 0 else 1 - math.exp(x) + math.exp(x) * value

    table = gdp_delta_upper(apart, long)

    def second(x):
        return float(np.interp(math.exp(x), np.exp(long), table))

    for i in (3, 12, 25):
        best = start[i]
        for cut in {int(share * 30) for share in _CUT_FRACTIONS}:
            if cut > i:
                continue
            factor, g = math.exp(eps[i] - eps[cut]), math.exp(eps[i])
            reserve = factor * (pair.gamma[cut] - 1 + pair.values[cut])
            for cap in range(cut, 31):
                top = pair.gamma[cap]
                low = 1 - (pair.values[cut] + pair.gamma[cut] * pair.tail_masses[cut])
                total = low * first(math.log(factor))
                for j in range(cut + 1, cap + 1):
                    total += pair.masses[j] * pair.gamma[j] * first(math.log(g / pair.gamma[j]))
                total += pair.tail_masses[cap] * top * first(math.log(g / top))
                total += pair.values[cap] * second(math.log(reserve / pair.values[cap]))
                best = min(best, total)
        assert found[i] == pytest.approx(best, rel=1e-6)
        assert found[i] >= best


KINKS = {
    "drift": lambda x: x + 0.15,
    "spring": lambda x: 0.9 * x,
    "floor": lambda x: np.maximum(x, -1.0) - 0.1,
    "plateau": lambda x: np.clip(x, -2.0, -1.0) + np.clip(x, 1.0, 2.0),
}


def attacked(base, s, diameter, steps, start, *, inward):
    """Two walks whose maps differ by at most s: pushed apart everywhere, or one of them pulled to the middle."""
    if inward:
        maps = [base, lambda w: base(w) - np.clip(w, -s, s)]
    else:
        maps = [lambda w: base(w) + s / 2, lambda w: base(w) - s / 2]
    return [compute_walk_law([(1.0, move)], 1.0, diameter, steps, start=start) for move in maps]


@pytest.mark.parametrize("name", list(KINKS))
def test_above_exact_walks_under_monotone_maps(name):
    """Any nondecreasing 1-Lipschitz map is a gradient step in one dimension; both directions, several starts."""
    rng = np.random.default_rng(len(name))
    checked = 0
    for _ in range(5):
        s, diameter = float(np.exp(rng.uniform(-3.5, -0.5))), float(rng.choice([2.0, 5.0, 9.0]))
        steps = [1, 4, 30, 200, math.inf][rng.integers(5)]
        epsilons, deltas = last_iterate_profile(s, 1.0, 1.0, diameter, steps)
        start = float(rng.choice([0.0, -diameter / 2]))
        pair = attacked(KINKS[name], s, diameter, steps, start, inward=rng.random() < 0.3)
        exact = delta_between(*pair, np.array(epsilons))
        assert np.all(exact <= np.array(deltas) * (1 + 1e-9) + 1e-13)
        checked += int(np.sum(exact > 1e-12))
    assert checked > 20


@pytest.mark.parametrize(
    ("kappa", "older", "newer"),
    [(0.05, 0.1213, 0.1169), (0.2, 0.5497, 0.5287), (1.0, 3.267, 3.088), (4.0, 15.75, 14.36)],
)
def test_how_loose_it_is(kappa, older, newer):
    """D / v = 20, T = infinity, delta = 1e-5: below the older recursion, and at most 1.5 times an admissible run."""
    epsilons, deltas = last_iterate_profile(kappa / 20, 1.0, 1.0, 20.0, math.inf)
    found = Profile(epsilons=epsilons, deltas=deltas).epsilon(1e-5)
    assert found <= 1.002 * newer
    plain = block_profile(kappa / 20, 1.0, 1.0, 20.0, [8, 40, 100, 200, 400, 800], np.array(epsilons) * 2)
    assert (
        Profile(epsilons=tuple(2 * e for e in epsilons), deltas=tuple(plain.tolist())).epsilon(1e-5)
        > 0.95 * older
    )
    constants = Constants(n=1000, lipschitz=1.0, smoothness=0.01, diameter=20.0)
    step = 500 * kappa / 20
    run = NoisyGradientSpec(step_size=step, noise_std=1 / step, n_steps=math.inf)
    lower = lower_bound_epsilon(constants, run, 1e-5)
    assert found <= (1.5 if kappa <= 1 else 1.7) * lower


def test_wide_grids_are_left_alone():
    eps = np.arange(30) * 10.0
    start = gdp_delta_upper(20.0, eps)
    assert sweep_capped(start, eps, start[None], np.ones((1, 100))) is start


def dual(deltas, eps, same, apart, g):
    """The largest over t0 of E' psi(r) (docs/theory, the second derivation of B5), from the trade-offs T1 and T2.

    Suprema are taken over finitely many t, so the result is at most the true one: no valid sweep is below it.
    """
    t = np.concatenate([[0.0], np.geomspace(1e-14, 1.0, 1500)])
    slopes = np.exp(np.linspace(-30, 30, 3001))

    def trade_off(mu):
        table = gdp_delta_upper(mu, np.abs(np.log(slopes)))
        table = np.where(slopes >= 1, table, 1 - slopes + slopes * table)
        return np.minimum(1.0, np.min(np.multiply.outer(t, slopes) + table, axis=1))

    first, second = trade_off(same), trade_off(apart)
    gamma = np.exp(np.concatenate([-eps[:0:-1], eps]))
    values = np.concatenate([(1 - np.exp(-eps) * (1 - deltas))[:0:-1], deltas])
    falls = -np.diff(np.concatenate([[1.0], values, values[-1:]])) / np.diff(
        np.concatenate([[0.0], gamma, [1e300]])
    )
    masses = np.maximum(-np.diff(falls), 0.0)  # P'(r = gamma_j); the rest of P' has r = 0 and adds nothing
    best = 0.0
    for place in range(0, len(t), 25):
        powers = np.minimum(first[place:], second[place])
        psi = np.max(np.multiply.outer(gamma, powers) - g * t[place:], axis=1)
        nothing = -g * t[place] * max(0.0, 1 - float(masses.sum()))
        best = max(best, float(masses @ psi) + nothing + values[-1] * second[place])
    return best


@pytest.mark.parametrize(("s", "diameter", "k", "mu"), [(0.05, 4.0, 20, 1.5), (0.3, 3.0, 5, 2.0)])
def test_no_sweep_is_below_the_dual(s, diameter, k, mu):
    """The two derivations against each other: the sweep is above the dual's value, and close to it."""
    eps = np.arange(41) * 0.15
    start = gdp_delta_upper(mu, eps)
    same, apart = math.sqrt(k) * s, restart_mu(s, 1.0, 1.0, diameter, k)
    long = 0.15 * np.arange(300)
    found = sweep_capped(start, eps, gdp_delta_upper(same, eps)[None], gdp_delta_upper(apart, long)[None])
    for i in (2, 8, 16, 24):
        value = dual(start, eps, same, apart, math.exp(eps[i]))
        assert value <= found[i] * (1 + 1e-6)
        assert value > 0.5 * found[i]
