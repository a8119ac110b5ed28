"""B6: directed rounding against many digits, its two lemmas and the claim against exact walks whose maps vary."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from itertools import islice, pairwise

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from dplangevin.mechanisms.noisy_gradient.theorems import power_slopes
from dplangevin.mechanisms.noisy_gradient.theorems.block_recursion import (
    gdp_delta_upper,
    last_iterate_profile,
)
from dplangevin.mechanisms.noisy_gradient.theorems.optimal_shift import restart_mu, same_start_mu
from dplangevin.mechanisms.noisy_gradient.theorems.power_slopes import (
    PowerSlopes,
    SlopeRecursion,
    compute_power_slopes,
    make_slope_recursion,
)
from privacy._accountant_trials import walk_truth

CELLS = int(os.environ.get("DPLANGEVIN_FUZZ", "60"))
EPSILONS = (0.0, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 12.0)


def exact_slopes(width: float, contraction: float, steps: int) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    """lambda_k and the total variation between both ends, with 40 digits, by 24 nodes on each of several pieces."""
    with mpmath.workdps(40):
        end, c = mpmath.mpf(width) / 2, mpmath.mpf(contraction)
        pieces = max(2, math.ceil(width / 2))
        legendre = mpmath.calculus.quadrature.GaussLegendre(mpmath.mp).calc_nodes(3, 160)  # 24 nodes
        nodes, weights = [], []
        for i in range(pieces):
            for node, weight in legendre:
                nodes.append(end * (i + (node + 1) / 2) / pieces)
                weights.append(weight * end / (2 * pieces))
        moved = [c * x for x in (*nodes, end)]
        kernel = [
            [(mpmath.npdf(z - m) - mpmath.npdf(z + m)) * w for z, w in zip(nodes, weights, strict=True)]
            for m in moved
        ]
        walls = [mpmath.ncdf(m - end) - mpmath.ncdf(-m - end) for m in moved]
        value = [mpmath.ncdf(m) - mpmath.mpf(1) / 2 for m in moved]
        slopes, spreads = [c], [2 * value[-1]]
        for _ in range(steps - 1):
            slope = mpmath.fsum(
                2 * c * z * mpmath.npdf(z) * w * v for z, w, v in zip(nodes, weights, value, strict=False)
            )
            slopes.append(mpmath.sqrt(2 * mpmath.pi) * (slope + 2 * c * mpmath.npdf(end) * value[-1]))
            value = [
                mpmath.fdot(row, value[:-1]) + wall * value[-1]
                for row, wall in zip(kernel, walls, strict=True)
            ]
            spreads.append(2 * value[-1])
        return slopes, spreads


@pytest.mark.parametrize(("width", "contraction"), [(0.5, 1.0), (3.0, 1.0), (3.0, 0.7), (11.0, 1.0)])
def test_slopes_are_rounded_up(width: float, contraction: float) -> None:
    found = compute_power_slopes(width, contraction)
    steps = min(len(found.slopes), 8)
    for ours, exact in zip(
        (found.slopes, found.spreads), exact_slopes(width, contraction, steps), strict=True
    ):
        excess = [float(mpmath.mpf(float(a)) / b - 1) for a, b in zip(ours[1:], exact[1:], strict=False)]
        assert all(0 < each < 1e-9 for each in excess)
    assert found.slopes[0] >= contraction


@pytest.mark.parametrize("sigma", [1e-9, 0.2, 3.0])
def test_the_recursion_is_rounded_up(sigma: float) -> None:
    """m_k and the bound for any number of steps against 40 digits, from the same slopes."""
    found = compute_power_slopes(4.0, 1.0)
    mus = found.same_start_mus(sigma)
    with mpmath.workdps(40):
        mu = mpmath.mpf(sigma)
        for ours, slope in zip(mus[:-1], found.slopes, strict=True):
            assert mu <= mpmath.mpf(float(ours)) <= mu * (1 + 1e-9)
            mu = (mu + mpmath.mpf(float(slope)) * sigma) / mpmath.sqrt(1 + mpmath.mpf(float(slope)) ** 2)
        mu += float(found.slopes.sum()) * sigma * float(found.spreads[-1])  # of one round more
    assert mus[-1] >= mu
    assert np.all(np.diff(mus) >= 0)
    assert mus[-1] <= mus[-2] * (1 + 1e-4)


def test_nodes_and_weights_have_their_digits() -> None:
    """The rule is positive, sums to 1, and integrates powers and narrow bells as it must."""
    nodes, weights = power_slopes._half_quadrature()
    assert np.all(weights > 0)
    assert np.all((nodes > 0) & (nodes < 1))
    for power in (0, 2, 10, 100, 500):
        assert float(weights @ nodes**power) == pytest.approx(1 / (power + 1), rel=2e-13)
    half_width = power_slopes.MAX_WIDTH / 2
    for middle in (0.0, 3.0, 11.0, 20.0):
        bells = sum(np.exp(-((half_width * nodes - sign * middle) ** 2) / 2) for sign in (1, -1))
        found = half_width * float(weights @ bells) / math.sqrt(2 * math.pi)
        assert found == pytest.approx(
            float(ndtr(half_width - middle) - ndtr(-half_width - middle)), rel=1e-13
        )


def test_longer_walks_are_bounded_by_products() -> None:
    """Tables that stop early give more than the long table, for slopes' sums and for the spread."""
    full = compute_power_slopes(6.0, 0.98)
    for cut in (10, 30, 60):
        short = PowerSlopes(slopes=full.slopes[:cut], spreads=full.spreads[:cut])
        assert short.same_start_mus(0.3)[-1] >= full.same_start_mus(0.3)[-1] * (1 - 1e-9)
        for k in (1, cut, cut + 1, 2 * cut + 3, len(full.spreads)):
            assert short.probit_spread(k) >= full.probit_spread(k) * (1 - 1e-9)


def test_without_a_set_it_is_composition() -> None:
    """Far from the walls lambda_k = c^k / sqrt(1 + ... + c^(2k - 2)), and m_k is that of the optimal shift."""
    for contraction in (1.0, 0.9):
        found = make_slope_recursion(0.3, 1.0, contraction, 39.9)
        for k in (1, 2, 5, 20):
            assert found.same_start_mu(k) == pytest.approx(same_start_mu(0.3, 1.0, contraction, k), rel=1e-9)
            assert found.same_start_mu(k) >= same_start_mu(0.3, 1.0, contraction, k)


def test_wide_sets_take_several_steps_as_one() -> None:
    """Leaving projections out can only loosen: the joined recursion is above that of single steps, and near it."""
    for contraction in (1.0, 0.998):
        single = make_slope_recursion(0.05, 1.0, contraction, 36.0)
        kept = power_slopes.MAX_WIDTH
        make_slope_recursion.cache_clear()
        try:
            power_slopes.MAX_WIDTH = 18.0
            joined = make_slope_recursion(0.05, 1.0, contraction, 36.0)
        finally:
            power_slopes.MAX_WIDTH = kept
            make_slope_recursion.cache_clear()
        assert joined.joined >= 4
        for k in (1, 3, 4, 5, 100, 1000, math.inf):
            assert joined.same_start_mu(k) >= single.same_start_mu(k) * (1 - 1e-9)
            if math.isfinite(k):
                assert joined.two_starts_mu(k) >= single.two_starts_mu(k) * (1 - 1e-9)
        assert joined.same_start_mu(math.inf) <= 1.06 * single.same_start_mu(math.inf)


@pytest.mark.parametrize(
    "arguments", [(0.3, 1.0, 0.5, 1e4), (1.0, 1e-60, 0.999, 1e60), (1.0, 1e-120, 1.0, 1e120)]
)
def test_nothing_is_claimed_where_walls_are_not_felt(arguments: tuple[float, ...]) -> None:
    assert make_slope_recursion(*arguments) is None


def test_extreme_numbers() -> None:
    assert make_slope_recursion(1.0, 1.0, 0.0, 3.0).two_starts_mu(1) == pytest.approx(1.0)
    assert make_slope_recursion(1e60, 1e-60, 1.0, 1.0) is None or True
    wide = make_slope_recursion(1e-3, 1.0, 1.0, 1e60)
    assert wide.same_start_mu(math.inf) == pytest.approx(0.753e57, rel=0.01)
    assert wide.two_starts_mu(1e15) == math.inf
    with pytest.raises(ValueError, match="at most 1"):
        make_slope_recursion(0.1, 1.0, 1.01, 3.0)


def power_of(start_set: np.ndarray, maps: list[np.ndarray], grid: np.ndarray) -> np.ndarray:
    """The probability, from every point of the grid, to end in a union of cells after moving by each map."""
    middles = (grid[1:] + grid[:-1]) / 2
    edges = np.concatenate([[-np.inf], middles, [np.inf]])
    value = start_set
    for moved in reversed(maps):
        value = np.diff(ndtr(edges[None, :] - moved[:, None]), axis=1) @ value
    return value


def random_map(rng: np.random.Generator, grid: np.ndarray) -> np.ndarray:
    """A nonexpansive map of the grid: slopes between -1 and 1, as gradient steps have, and a drift."""
    kind = rng.integers(4)
    if kind == 0:
        slopes = np.ones(len(grid) - 1)
    elif kind == 1:
        slopes = np.full(len(grid) - 1, rng.uniform(-1, 1))
    else:
        slopes = np.interp(
            grid[1:], np.sort(rng.choice(grid, 4)), rng.uniform(-1 if kind == 2 else 0.5, 1, 4)
        )
    moved = np.concatenate([[0.0], np.cumsum(slopes * np.diff(grid))])
    middle = len(grid) // 2
    return moved - moved[middle] + grid[middle] + rng.normal(0, rng.choice([0.0, 0.3, 2.0]))


def test_no_walk_has_steeper_probits() -> None:
    """Lemma 1: random nonexpansive maps that vary from step to step, random final sets, at all levels of probability.

    A grid walk is itself a sum over a grid, so differences within two cells are left out and 1% is allowed.
    """
    rng = np.random.default_rng(6)
    steepest = 0.0
    for trial in range(CELLS):
        width = float(rng.choice([1.0, 3.0, 8.0]))
        grid = np.linspace(-width / 2, width / 2, 241)
        steps = int(rng.integers(2, 14))
        maps = [random_map(rng, grid) for _ in range(steps)]
        if trial % 4 == 0:  # the walk that is claimed to be the worst
            maps, final = [grid] * steps, (grid > 0).astype(float)
        elif trial % 2:
            final = (grid > rng.uniform(-width / 2, width / 2)).astype(float)
        else:
            final = np.repeat(rng.integers(0, 2, 31), 8)[: len(grid)].astype(float)
        value = power_of(final, maps, grid)
        inside = (value > 1e-13) & (value < 1 - 1e-9)
        if inside.sum() < 3:
            continue
        probits, at = ndtri(value[inside]), grid[inside]
        bound = compute_power_slopes(width, 1.0)
        slope = float(bound.slopes[steps - 1]) if steps <= len(bound.slopes) else math.inf
        found = float(np.max(np.abs(probits[3:] - probits[:-3]) / (at[3:] - at[:-3]), initial=0.0))
        assert found <= slope * 1.01
        assert np.ptp(probits) <= bound.probit_spread(steps) * 1.01
        steepest = max(steepest, found / slope)
    assert steepest > 0.98


def test_a_step_costs_at_most_what_lemma_2_says() -> None:
    """Random W of slope at most lambda, not only lines, W' = W - m, on the line with noise 1, at several levels."""
    rng = np.random.default_rng(8)
    z = np.linspace(-12, 12, 2401)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    nearest = 0.0
    for _ in range(40 * CELLS):
        slope, sigma = float(np.exp(rng.uniform(-2, 0.5))), float(np.exp(rng.uniform(-4, 1)))
        m = sigma / slope * rng.uniform(0, 1.5)
        if rng.random() < 0.3:
            w = slope * z
        else:
            signs = np.repeat(rng.uniform(-1, 1, 100), 25)[: len(z)]
            w = slope * np.cumsum(np.clip(signs + rng.choice([0.0, 1.0]), -1, 1)) * 0.01
            w -= w[1200]
        w = w + rng.normal(0, 3)
        moved = np.interp(z + sigma, z, w)  # the ends are held, which keeps the slope
        first, second = float(density @ ndtr(moved)), float(density @ ndtr(w - m))
        if not 1e-12 < second <= first < 1 - 1e-9:
            continue
        table = PowerSlopes(slopes=np.array([slope, slope]), spreads=np.array([0.5, 0.1]))
        unused = max(slope * m - sigma, 0.0)
        claimed = math.hypot(m + slope * sigma, unused) / math.hypot(1.0, slope)
        assert ndtri(first) - ndtri(second) <= claimed * (1 + 1e-6) + 1e-9
        nearest = max(nearest, float(ndtri(first) - ndtri(second)) / claimed)
        assert table.same_start_mus(sigma)[1] >= math.sqrt(2) * sigma * min(1.0, slope) * 0.5
    assert nearest > 0.999


def drawn_walk(rng: np.random.Generator):
    """(s, c, D, steps, start, delta at eps of the walks): noise 1, drifts that vary from step to step."""
    kind, steps = int(rng.integers(4)), int(rng.choice([1, 2, 2, 3, 3, 4, 6, 9]))
    if kind < 2:
        steps *= int(rng.choice([1, 5]))  # steps of one drift share their work
    width, shift = (
        float(np.exp(rng.uniform(math.log(0.3), math.log(12)))),
        float(np.exp(rng.uniform(-4, 0.7))),
    )
    contraction = float(rng.choice([1.0, 1.0, rng.uniform(0.3, 1.0)]))
    drift = {
        0: np.full(steps, rng.uniform(-1, 1)),
        1: np.zeros(steps),
        2: -rng.uniform(0, 2) / np.sqrt(np.arange(steps, 0, -1)),
        3: rng.normal(0, 1, steps),
    }[kind]
    start = float(rng.choice([-width / 2, 0.0, width / 2]))
    moves = [[((1.0, contraction, float(g) + sign * shift / 2),) for g in drift] for sign in (1, -1)]
    truth = walk_truth(moves[0], moves[1], np.ones(steps), width, (start, start))
    return shift, contraction, width, steps, truth


def compare_walks(rng: np.random.Generator) -> Iterator[float]:
    """Attained over claimed delta of m_k-GDP: both tails of both neighbours, power rounded down and size up."""
    while True:
        shift, contraction, width, steps, truth = drawn_walk(rng)
        claimed = gdp_delta_upper(
            make_slope_recursion(shift, 1.0, contraction, width).same_start_mu(steps), np.array(EPSILONS)
        )
        for eps, delta in zip(EPSILONS, claimed, strict=True):
            yield truth(eps) / (delta * (1 + 1e-9) + 1e-15)


def test_no_walk_of_varying_drift_attains_more() -> None:
    ratios = list(islice(compare_walks(np.random.default_rng(3)), max(CELLS, 160)))
    assert max(ratios) <= 1
    assert max(ratios) > 0.95


@pytest.mark.parametrize("broken", ["slopes", "damping", "shift"])
def test_a_broken_recursion_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes of a set a third as wide, two percent off mu after the first step, or a tenth off later shifts."""
    make_slope_recursion.cache_clear()
    if broken == "slopes":
        whole = compute_power_slopes
        monkeypatch.setattr(power_slopes, "compute_power_slopes", lambda width, c: whole(width / 3, c))
    else:
        kept = PowerSlopes.same_start_mus

        def changed(self: PowerSlopes, sigma: float) -> np.ndarray:
            if broken == "shift":
                return np.maximum(kept(self, 0.9 * sigma), sigma)
            return np.concatenate([[sigma], kept(self, sigma)[1:] * 0.98])

        monkeypatch.setattr(PowerSlopes, "same_start_mus", changed)
    try:
        assert any(ratio > 1 for ratio in islice(compare_walks(np.random.default_rng(4)), 1600))
    finally:
        make_slope_recursion.cache_clear()


def test_two_starts_are_covered() -> None:
    """Both runs pushed apart from opposite ends, for as many steps as a block has, against m_k + omega_k."""
    rng = np.random.default_rng(5)
    nearest = 0.0
    for _ in range(max(CELLS // 4, 15)):
        width, shift, steps = (
            float(rng.choice([1.0, 3.0, 6.0])),
            float(np.exp(rng.uniform(-4, 0))),
            int(rng.integers(1, 9)),
        )
        drift = -rng.uniform(0, 1.5) / np.sqrt(np.arange(steps, 0, -1))
        moves = [[((1.0, 1.0, float(g) + sign * shift / 2),) for g in drift] for sign in (1, -1)]
        truth = walk_truth(moves[0], moves[1], np.ones(steps), width, (width / 2, -width / 2))
        found = make_slope_recursion(shift, 1.0, 1.0, width)
        mu = min(found.two_starts_mu(steps), restart_mu(shift, 1.0, 1.0, width, steps))
        for eps in EPSILONS:
            claimed = float(gdp_delta_upper(mu, np.array([eps]))[0])
            assert truth(eps) <= claimed * (1 + 1e-9) + 1e-15
            nearest = max(nearest, truth(eps) / claimed) if claimed > 1e-9 else nearest
    assert nearest > 0.9


def test_profiles_are_below_both_older_ones() -> None:
    """Used in every block: below mu of B6 alone, for endless and for finite runs, and the longer run costs no less."""
    for steps in (3, 50, math.inf):
        epsilons, deltas = (np.array(each) for each in last_iterate_profile(0.1, 1.0, 1.0, 6.0, steps))
        alone = gdp_delta_upper(make_slope_recursion(0.1, 1.0, 1.0, 6.0).same_start_mu(steps), epsilons)
        assert np.all(deltas <= alone * (1 + 1e-6))
    mus = [make_slope_recursion(0.1, 1.0, 1.0, 6.0).same_start_mu(k) for k in (1, 2, 10, 100, 1e6, math.inf)]
    assert all(a <= b for a, b in pairwise(mus))
    assert isinstance(make_slope_recursion(0.1, 1.0, 1.0, 6.0), SlopeRecursion)
