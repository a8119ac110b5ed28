"""The filter's charges against 50 digits, dense grids of epsilon and exact rationals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.special import ndtr, ndtri

from dplangevin.accounting import conversions as cv, filter
from dplangevin.accounting.filter import PrivacyFilter, _square_root_down, pure_remainder
from dplangevin.accounting.generalized_gaussian import GeneralizedGaussian
from dplangevin.accounting.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    PrivacyPart,
    Profile,
    Pure,
    RenyiCurve,
    SampledGaussian,
)
from dplangevin.accounting.plan import CertifiedSpec
from dplangevin.errors import InvalidParameter
from dplangevin.mechanisms.repeated_selection.spec import RepeatedSelectionSpec
from unit._ledger import gaussian, make_guarantee, pure


def _overlap(value: float, v: mpmath.mpf) -> mpmath.mpf:
    """1 - TV of a value-DP release with v-GDP, over 2."""
    e = mpmath.mpf(value)
    if v == 0:
        return 1 / (1 + mpmath.exp(e))
    return (mpmath.ncdf(e / v - v / 2) + mpmath.exp(e) * mpmath.ncdf(-e / v - v / 2)) / (1 + mpmath.exp(e))


@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_pure_charge_is_safe_and_sharp_in_50_digits(count: int) -> None:
    rng, checked = np.random.default_rng(0), 0
    with mpmath.workdps(50):
        for _ in range(count):
            value = 10 ** rng.uniform(-3, 1.2)
            tight = 2 * float(-ndtri(1 / (1 + math.exp(value))))
            square = min((tight * 10 ** rng.uniform(1e-6, 1.8)) ** 2, 6000.0)
            left = pure_remainder(value, Fraction(square))
            if left is None:
                continue
            checked += 1
            v, target = (
                mpmath.sqrt(mpmath.mpf(left.numerator) / left.denominator),
                mpmath.ncdf(-mpmath.sqrt(mpmath.mpf(square)) / 2),
            )
            assert _overlap(value, v) >= target
            if v > 0.01 * tight:
                assert _overlap(value, v * mpmath.mpf("1.001")) < target
    assert checked > 0.9 * count


@pytest.mark.parametrize("count", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_only_epsilon_zero_decides(count: int) -> None:
    """Theorem 3: where total variations meet, hockey sticks agree at 4,001 epsilons to 1e-12 of their size."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        value = 10 ** rng.uniform(-2, 0.8)
        tight = 2 * float(-ndtri(1 / (1 + math.exp(value))))
        square = min((tight * 10 ** rng.uniform(0.01, 1.2)) ** 2, 60.0)
        left = pure_remainder(value, Fraction(square))
        assert left is not None
        v, p = _square_root_down(left), 1 / (1 + math.exp(-value))
        epsilons = np.linspace(0, value + 8 * math.sqrt(square) + square / 2, 4001)
        both = p * cv.gdp_delta(v, epsilons - value) + (1 - p) * cv.gdp_delta(v, epsilons + value)
        whole = cv.gdp_delta(math.sqrt(square), epsilons)
        large = whole > 1e-13
        # gdp_delta rounds each side up by 5e-12 at most
        assert np.max(both[large] / whole[large]) <= 1 + 2e-11


def test_the_plain_pure_charge_is_never_too_small() -> None:
    """e-DP is sqrt(pi / 2) e-GDP: a disc lies in its square."""
    for value in 10 ** np.linspace(-6, 1.5, 60):
        tight = 2 * -mpmath.mpf(float(ndtri(1 / (1 + math.exp(value)))))
        assert tight <= math.sqrt(math.pi / 2) * value * (1 + 1e-9)
    tiny = Fraction(1, 10**40)
    assert pure_remainder(1e-25, tiny) is not None  # below what log Phi can tell apart
    assert pure_remainder(0.0, tiny) == tiny
    assert pure_remainder(math.inf, Fraction(1)) is None


CURVES = [
    make_guarantee(BoundedRange(value=0.4)),
    make_guarantee(Concentrated(rho=0.02)),
    make_guarantee(RenyiCurve(orders=(2.0, 4.0, 16.0, 64.0), values=(0.01, 0.02, 0.08, 0.4))),
    make_guarantee(SampledGaussian(rate=0.05, noise_multiplier=1.5, sampling="poisson", count=20)),
    make_guarantee(Profile(epsilons=(0.0, 0.2, 0.5), deltas=(0.05, 1e-7, 0.0))),
    make_guarantee(Gaussian(mu=0.2), Pure(value=0.1, count=3), extra_delta=1e-8),
]


def _least_chords(epsilons: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    """The lower convex hull in e^eps of the curve in both directions, chord by chord."""
    g = np.concatenate([[0.0], np.exp(-epsilons[:0:-1]), np.exp(epsilons)])
    sticks = np.concatenate([[1.0], 1 - np.exp(-epsilons[:0:-1]) * (1 - deltas[:0:-1]), deltas])
    best = []
    for at, known in zip(np.exp(epsilons), deltas, strict=True):
        low, high = np.flatnonzero(g < at), np.flatnonzero(g > at)
        share = (at - g[low])[:, None] / (g[high][None, :] - g[low][:, None])
        chords = sticks[low][:, None] + share * (sticks[high][None, :] - sticks[low][:, None])
        best.append(min(known, chords.min(initial=1.0)))
    return np.array(best)


def _composed(cost: Any, mu: float, epsilons: np.ndarray) -> np.ndarray:
    """delta of the cost with mu-GDP as the mean of the cost's own profile over the loss of mu-GDP, N(mu^2/2, mu^2)."""
    nodes = np.linspace(-9, 9, 801)
    weights = np.exp(-(nodes**2) / 2) / np.sum(np.exp(-(nodes**2) / 2))
    points = np.linspace(0, 3, 150)
    deltas = _least_chords(points, np.array([cost.delta(float(point)) for point in points]))
    at = epsilons[:, None] - (mu * mu / 2 + mu * nodes)
    ahead = np.interp(np.exp(np.abs(at)), np.exp(points), deltas)
    sticks = np.where(at >= 0, ahead, 1 - np.exp(-np.abs(at)) * (1 - ahead))
    return np.asarray(sticks @ weights)


@pytest.mark.parametrize("cost", CURVES, ids=lambda cost: type(cost.parts[0]).__name__)
def test_a_curve_and_what_it_leaves_lie_under_the_gaussian(cost: Any) -> None:
    """Theorem 5 by the other integral, at 200 epsilons; with 6% more the pair is refuted."""
    epsilons, slack, square = np.linspace(0, 2.5, 200), 1e-6, 1.0
    left = filter.remaining_square(cost, slack, Fraction(square))
    assert left is not None
    v, mu = math.sqrt(left), math.sqrt(square)
    limit = slack + (1 - slack) * cv.gdp_delta(mu, epsilons)
    assert 0 < v < mu
    # chords between 150 points lie a little above those of the curve itself
    assert np.all(_composed(cost, v, epsilons) <= limit * 1.01)
    assert np.any(_composed(cost, 1.06 * v, epsilons) > limit * 1.01)


def test_a_gaussian_curve_leaves_what_a_gaussian_leaves() -> None:
    """Its profile on a grid is slightly above it; the budget that is split at it is that of the sum of squares."""
    points = np.linspace(0, 3, 400)
    cost = make_guarantee(
        Profile(epsilons=tuple(points), deltas=tuple(np.minimum(1, cv.gdp_delta(0.3, points))))
    )
    left = filter.remaining_square(cost, 1e-7, Fraction(1))
    assert left is not None
    assert 0.88 < left <= 0.91
    rule = PrivacyFilter(epsilon=3.0, delta=1e-5)
    split = rule._split_state(rule.start())
    charged = rule.charge(rule.start(), cost)
    assert charged is not None
    assert split is not None
    assert charged[1].startswith("curve:")
    mixed = (charged[0].mu_squared or 0) + Fraction(0.09)
    assert 0.97 < mixed / (split.mu_squared or 1) <= 1


def test_the_split_keeps_the_budget_at_its_epsilon() -> None:
    for reserve in (0.0, 0.2, 0.5):
        rule = PrivacyFilter(
            epsilon=1.0, delta=1e-5, delta_fraction=0.2, pure_reserve=reserve, split_at_once=True
        )
        state = rule.start()
        mu, slack, e = (
            _square_root_down(state.mu_squared or Fraction(0)),
            float(state.slack),
            float(state.epsilon),
        )
        assert (e, slack) == (reserve, pytest.approx(2e-6))
        p = 1 / (1 + math.exp(-e))
        near, far = cv.gdp_delta(mu, np.array([1 - e, 1 + e]))
        kept = slack + (1 - slack) * (p * near + (1 - p) * far)
        assert 0.999e-5 <= kept <= 1e-5


def test_a_large_count_of_pure_uses_is_charged_quickly() -> None:
    rule = PrivacyFilter(epsilon=3.0, delta=1e-5, split_at_once=True)
    few = rule.charge(rule.start(), make_guarantee(Pure(value=1e-3, count=1000)), "parts")
    many = rule.charge(rule.start(), make_guarantee(Pure(value=1e-3, count=100_000)), "parts")
    assert few is not None
    assert many is not None
    assert (rule.start().mu_squared or 0) - (many[0].mu_squared or 0) == pytest.approx(
        math.pi / 2 * 0.1, rel=1e-9
    )


# --- groups ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_group_costs_its_size_in_exact_rationals(size: int) -> None:
    for value in (0.1, 0.7, 1 / 3, 1e-9):
        exact = size * Fraction(value)
        for part, name in (
            (Pure(value=value), "value"),
            (BoundedRange(value=value), "value"),
            (Gaussian(mu=value), "mu"),
        ):
            (found,) = make_guarantee(part).group(size).parts
            assert exact <= Fraction(getattr(found, name)) <= exact * (1 + Fraction(1, 2**52))
        (rho,) = make_guarantee(Concentrated(rho=value, count=4)).group(size).parts
        assert (
            size**2 * Fraction(value)
            <= Fraction(rho.rho)
            <= size**2 * Fraction(value) * (1 + Fraction(1, 2**52))
        )  # type: ignore[attr-defined]
        assert rho.count == 4
        (noise,) = (
            make_guarantee(GeneralizedGaussian(p=2.0, shift=value, changed=1, answers=5)).group(size).parts
        )
        assert exact <= Fraction(noise.shift) <= exact * (1 + Fraction(1, 2**52))  # type: ignore[attr-defined]
        assert noise.changed == size  # type: ignore[attr-defined]
    (profile,) = make_guarantee(Profile(epsilons=(0.0, 0.1, 0.5), deltas=(0.1, 1e-3, 1e-6))).group(size).parts
    with mpmath.workdps(40):
        for epsilon, delta, e, d in zip(
            profile.epsilons, profile.deltas, (0.0, 0.1, 0.5), (0.1, 1e-3, 1e-6), strict=True
        ):  # type: ignore[attr-defined]
            growth = mpmath.fsum(mpmath.exp(j * mpmath.mpf(e)) for j in range(size))
            assert Fraction(epsilon) >= size * Fraction(e)
            assert min(mpmath.mpf(1), growth * mpmath.mpf(d)) <= delta <= growth * d * (1 + 1e-12)
    for part in (
        RenyiCurve(orders=(2.0,), values=(0.1,)),
        SampledGaussian(rate=0.1, noise_multiplier=1.0, sampling="poisson"),
        Approximate(value=0.1, slack=1e-6),
    ):
        if size > 1:
            with pytest.raises(InvalidParameter, match="no group guarantee"):
                make_guarantee(part).group(size)


@pytest.mark.parametrize("size", [2, 3, 8])
def test_an_additive_delta_in_a_group(size: int) -> None:
    """Above the exact worst case, iterating a -> x + (1 - x) g(a / (1 - x)), and above 50 digits of its own formula."""
    rng = np.random.default_rng(size)
    with mpmath.workdps(50):
        for _ in range(20):
            mu, extra = float(10 ** rng.uniform(-2, 0.3)), float(10 ** rng.uniform(-12, -2))
            found = cv.gdp_group_delta(mu, extra, size)
            levels = 10 ** np.linspace(-14, -1e-9, 60)
            power = levels.copy()
            for _ in range(size):
                power = np.minimum(
                    1, extra + (1 - extra) * ndtr(ndtri(np.minimum(1, power / (1 - extra))) + mu)
                )
            assert np.all(power <= np.minimum(1, found + ndtr(ndtri(levels) + size * mu)) * (1 + 1e-9))
            x = mpmath.mpf(extra)
            start = mpmath.sqrt(2) * mpmath.erfinv(2 * x - 1)
            exact = mpmath.fsum(mpmath.ncdf(start + j * mpmath.mpf(mu)) for j in range(size))
            assert min(1, exact) <= found <= exact * (1 + mpmath.mpf("1e-10"))
    grouped = gaussian(0.1, extra_delta=1e-9).group(size)
    assert grouped.extra_delta == cv.gdp_group_delta(0.1, 1e-9, size)
    assert grouped.rows_per_person == size
    with pytest.raises(InvalidParameter, match="not GDP"):
        pure(0.1, extra_delta=1e-9).group(size)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("part", [Gaussian(mu=0.1), Pure(value=0.05), Approximate(value=0.05, slack=1e-8)])
def test_uses_in_one_guarantee_cost_what_they_cost_one_by_one(part: PrivacyPart, split: bool) -> None:
    """A part that counts for three is charged three times, in every amount that is kept."""
    rule = PrivacyFilter(epsilon=3.0, delta=1e-5, split_at_once=split)
    together = rule.charge(rule.start(), make_guarantee(part.repeat(3)))
    one_by_one = rule.start()
    for _ in range(3):
        charged = rule.charge(one_by_one, make_guarantee(part))
        assert charged is not None
        one_by_one = charged[0]
    assert together is not None
    assert together[0] == one_by_one
    assert one_by_one != rule.start()


def test_every_charge_takes_what_it_says_of_the_amounts() -> None:
    """Slack that a curve took is gone, and of the pure reserve every use takes its epsilon."""
    rule = PrivacyFilter(epsilon=4.0, delta=1e-5, pure_reserve=1.0, split_at_once=True)
    start, slack = rule.start(), 1e-7
    after = rule.charge(start, make_guarantee(Concentrated(rho=1e-3)), f"curve:{slack!r}")
    assert after is not None
    assert start.slack - after[0].slack == Fraction(slack)
    assert start.mu_squared is not None
    assert after[0].mu_squared is not None
    assert after[0].mu_squared < start.mu_squared
    spent = rule.charge(start, 3 * pure(0.125), "reserve")
    assert spent is not None
    assert start.epsilon - spent[0].epsilon == Fraction(3, 8)
    whole = PrivacyFilter(epsilon=4.0, delta=1e-5)
    last = whole.charge(whole.start(), gaussian(0.9), "whole")
    assert last is not None
    assert last[0].epsilon == 0


def test_the_grid_of_a_comparison_does_not_show() -> None:
    """Neither in budgets of thousands of epsilons nor where the slack is barely above a rare event of the release."""
    losses, rare = np.linspace(0.0, 1.0, 41), 1.05e-6
    deltas = tuple(np.maximum(0.02 * (1 - losses), rare))
    cost = make_guarantee(Profile(epsilons=tuple(losses), deltas=deltas))
    used = []
    for square in (Fraction(4), Fraction(400), Fraction(444) ** 2):
        left = filter.remaining_square(cost, 1e-5, square)
        assert left is not None
        used.append(float(square - left))
    assert max(used) < 1.2 * min(used)


# --- what no filter can admit (docs/theory/privacy_filter.md, "Why not more") ----------------------------------------


def _search(mu: float, repetitions: float, delta: float) -> Any:
    spec = RepeatedSelectionSpec(mu=mu, repetitions=repetitions, law="geometric", adjacency="replace-one")
    return CertifiedSpec(spec=spec, delta=delta).guarantee


@pytest.mark.parametrize(
    ("epsilon", "delta", "mu", "repetitions"),
    [(8.0, 1e-6, 0.2, 10.0), (3.0, 1e-5, 0.1, 100.0), (3.0, 1e-5, 0.05, 10.0)],
)
def test_a_gaussian_remainder_leaves_what_the_total_variation_allows(
    epsilon: float, delta: float, mu: float, repetitions: float
) -> None:
    """The comparison at eps = 0 is necessary, and the charge is within 2% of what it asks for."""
    cost, slack, size = _search(mu, repetitions, delta), 1e-3 * delta, cv.gdp_mu(epsilon, delta)
    left = filter.remaining_square(cost, slack, Fraction(size) ** 2)
    pair = filter.dominating_pair(cost.parts, cost.extra_delta, slack)
    assert left is not None
    assert pair is not None
    goal = slack + (1 - slack) * float(cv.gdp_delta(size, np.zeros(1))[0])
    charge = size**2 - float(left)
    smaller = math.sqrt(size**2 - 0.98 * charge)
    assert float(pair.composed_delta(smaller, np.zeros(1))[0]) > goal


def _profile_from_below(pair: Any, count: int, epsilons: np.ndarray, step: float = 2e-4) -> np.ndarray:
    """Return a lower bound on delta of `count` copies of a pair at these epsilons: losses are rounded down."""
    cells = np.floor(pair.losses / step).astype(int)
    one = np.zeros(cells.max() - cells.min() + 1)
    np.add.at(one, cells - cells.min(), pair.masses)
    total = np.ones(1)
    for _ in range(count):
        total = np.maximum(fftconvolve(total, one) - 1e-16, 0.0)
    losses = (np.arange(len(total)) + count * cells.min()) * step
    above = np.searchsorted(losses, epsilons, side="right")
    first = np.append(np.cumsum(total[::-1])[::-1], 0.0)[above]
    second = np.append(np.cumsum((total * np.exp(-losses))[::-1])[::-1], 0.0)[above]
    return np.maximum(first - np.exp(epsilons) * second, 0.0) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("cell", "share", "spent", "searches"),
    [
        ((8.0, 1e-6, 0.2, 10.0), 1.0, 0.25, 7),
        ((8.0, 1e-6, 0.2, 10.0), 0.75, 0.1, 9),
        ((3.0, 1e-5, 0.1, 100.0), 0.75, 0.1, 4),
        ((3.0, 1e-5, 0.1, 100.0), 0.75, 0.5, 2),
    ],
)
def test_a_filter_that_gives_fits_their_composition_cannot_give_searches_theirs(
    cell: tuple[float, float, float, float], share: float, spent: float, searches: int
) -> None:
    """After fits of m^2 the analyst looks at the loss and takes the rest of the fits, or the searches.

    Both alternatives are within the budget when they are fixed in advance; the better of both is above it.
    """
    epsilon, delta, mu, repetitions = cell
    cost, square = _search(mu, repetitions, delta), cv.gdp_mu(epsilon, share * delta) ** 2
    first = math.sqrt(spent * square)
    assert (gaussian(first) + searches * cost).delta(epsilon) <= delta
    pair = filter.dominating_pair(cost.parts, cost.extra_delta, 1e-3 * delta)
    edges = np.linspace(-9, 9, 60_001)
    masses, left = np.diff(ndtr(edges)), epsilon - (first * edges[:-1] + first**2 / 2)  # losses rounded down
    fits = np.maximum(cv.gdp_delta(math.sqrt(square - first**2), left), 0.0)
    assert float(masses @ fits) <= delta

    def attained(count: int) -> float:
        return float(masses @ np.maximum(fits, _profile_from_below(pair, count, left)))

    assert attained(searches) > 1.05 * delta
    assert attained(searches - 1) < 1.01 * delta
