"""Noise of secure answers: rounded ideal laws against exact probabilities, and every decision at the edge of a cell.

Bytes come from a fixed seed. Each test alarms below p = 1e-4: about 30 tests, so that a correct sampler with another
seed would fail one of them with probability 3e-3.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dplangevin.errors import InvalidParameter
from dplangevin.sampling.exact_noise import (
    DECISION_MARGIN,
    _decide_cell,
    _survival_function,
    add_rounded_noise,
    gaussian_density_scale,
    sample_exact_cells,
    sample_geometric_noise,
    sample_rounded_noise,
    survival_bounds,
)

ALARM = 1e-4
POWERS = (1.0, 1.5, 2.0, 3.65, 9.0)


def _bytes(seed: int) -> object:
    return np.random.default_rng(seed).bytes


def rounded_law(scale: float, p: float, fraction: float, support: np.ndarray) -> np.ndarray:
    """P(round(f + X) = x), by scipy's distribution of X rather than by the sampler's."""
    law = stats.gennorm(p, scale=scale)
    edges = np.append(support - 0.5, support[-1] + 0.5) - fraction
    return np.where(edges[1:] <= 0, np.diff(law.cdf(edges)), -np.diff(law.sf(edges)))


def _chi_square(draws: np.ndarray, support: np.ndarray, chances: np.ndarray) -> float:
    common = chances * len(draws) > 10
    seen = np.bincount(draws - support[0], minlength=len(support))[: len(support)][common]
    expected = chances[common] * len(draws)
    rest = max(len(draws) - expected.sum(), 1e-9)
    observed, wanted = np.append(seen, len(draws) - seen.sum()), np.append(expected, rest)
    return float(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)  # type: ignore[attr-defined]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("fraction", [0.0, 0.3125])
@pytest.mark.parametrize(("margin", "count"), [(DECISION_MARGIN, 100_000), (2.0, 1_000)])
def test_rounded_noise_has_its_law(p: float, fraction: float, margin: float, count: int) -> None:
    """A margin of 2 sends every draw through the exact comparison."""
    support = np.arange(-90, 91)
    fractions = np.full(count, fraction)
    seed = [int(10 * p), int(16 * fraction), count]
    source = np.random.default_rng(seed).bytes
    draws = sample_rounded_noise(4.3, p, count, fractions, source, margin=margin)
    assert _chi_square(draws, support, rounded_law(4.3, p, fraction, support)) > ALARM
    if margin == DECISION_MARGIN:  # the test sees a scale that is 5% off
        assert _chi_square(draws, support, rounded_law(4.3 * 1.05, p, fraction, support)) < ALARM


@pytest.mark.parametrize(
    ("scale", "margin", "count"),
    [(0.7, DECISION_MARGIN, 100_000), (6.1, DECISION_MARGIN, 100_000), (2.2, 2.0, 1_000)],
)
def test_geometric_noise_has_its_law(scale: float, margin: float, count: int) -> None:
    support = np.arange(-300, 301)
    chances = np.exp(-np.abs(support) / scale) * math.tanh(1 / (2 * scale))
    draws = sample_geometric_noise(scale, count, np.random.default_rng(int(10 * scale)).bytes, margin=margin)
    assert _chi_square(draws, support, chances) > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("p", [1.0, 2.0, 3.65])
def test_the_law_of_secure_counts_at_a_million_draws_and_its_tail_at_ten_million(p: float) -> None:
    support = np.arange(-4000, 4001)
    draws = sample_rounded_noise(60.7, p, 1_000_000, source=_bytes(int(100 * p)))  # type: ignore[arg-type]
    assert _chi_square(draws, support, rounded_law(60.7, p, 0.0, support)) > ALARM
    beyond, scale, total = 0, 2.0**20 * 1.37, 10_000_000
    deviation = scale * math.sqrt(special.gamma(3 / p) / special.gamma(1 / p))
    edge = math.ceil(3 * deviation)
    for part in range(10):
        found = sample_rounded_noise(scale, p, total // 10, source=_bytes(7 + part))  # type: ignore[arg-type]
        beyond += int((np.abs(found) > edge).sum())
    chance = float(2 * stats.gennorm(p, scale=scale).sf(edge + 0.5))
    assert stats.binomtest(beyond, total, chance).pvalue > ALARM


@pytest.mark.parametrize("p", [1.0, 2.0, 3.65])
def test_the_tail_beyond_three_deviations(p: float) -> None:
    scale, total = 2.0**20 * 1.37, 200_000
    deviation = scale * math.sqrt(special.gamma(3 / p) / special.gamma(1 / p))
    found = sample_rounded_noise(scale, p, total, source=_bytes(3))  # type: ignore[arg-type]
    edge = math.ceil(3 * deviation)
    chance = float(2 * stats.gennorm(p, scale=scale).sf(edge + 0.5))
    assert stats.binomtest(int((np.abs(found) > edge).sum()), total, chance).pvalue > ALARM
    assert stats.kstest(found / scale, stats.gennorm(p).cdf).pvalue > ALARM
    for modulus in (2, 7, 64):
        assert stats.chisquare(np.bincount(found % modulus, minlength=modulus)).pvalue > ALARM  # type: ignore[attr-defined]


def test_doubles_are_far_within_the_margin_and_decimals_hold_the_truth() -> None:
    rng = np.random.default_rng(0)
    for p in (1.0, 1.01, 1.3, 2.0, 2.01, 2.6, 3.65, 9.0, 50.0):
        edges = [*rng.uniform(0, 3, 12), *10 ** rng.uniform(-7, 0, 8), *rng.uniform(3, 8, 4)]
        for edge in edges:
            with mpmath.workdps(60):
                a, x = 1 / mpmath.mpf(p), mpmath.mpf(float(edge)) ** mpmath.mpf(p)
                exact = mpmath.gammainc(a, x, regularized=True)
                low, high = survival_bounds(Fraction(float(edge)), p, 45)
                assert _real(low) <= exact <= _real(high)
                assert high - low <= Fraction(3, 10**45)
                assert abs(_survival_function(p, np.array([edge]))[0] - exact) < DECISION_MARGIN / 64


def test_a_number_at_the_edge_of_a_cell_falls_on_its_side() -> None:
    """Digits of the uniform number a hair below and above S(edge), where doubles cannot tell."""
    for p, scale, offset, cell in [(1.0, 3.7, 0.0, 5), (2.0, 2.5, -0.25, 3), (3.65, 700.3, 0.5, 900)]:
        edge = Fraction(cell) + Fraction(1, 2) + Fraction(offset)
        low, _ = survival_bounds(edge / Fraction(scale), p, 80)
        first, rest = divmod(int(low * 2**128), 2**64)
        for later, beyond in ((rest - 1, True), (rest + 1, False)):
            source = lambda size, later=later: later.to_bytes(size, "big")  # noqa: E731
            for guess in (cell - 1, cell, cell + 2):
                assert _decide_cell(first, scale, p, offset, guess, source) == cell + beyond


def test_a_broken_source_is_noticed() -> None:
    for count in (1, 100):
        with pytest.raises(InvalidParameter, match="source of random bytes is broken"):
            sample_geometric_noise(1.0, count, lambda size: bytes(size))


@pytest.mark.slow
def test_opendp_draws_nearly_the_same_law() -> None:
    """Its discrete Gaussian and our rounded one differ by 1/12 in the variance, which 20,000 draws do not show."""
    opendp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed here")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    theirs = np.array(opendp.m.make_gaussian(*space, scale=8.0)([0] * 20_000))
    ours = sample_rounded_noise(math.sqrt(2) * 8, 2.0, 20_000, source=_bytes(5))  # type: ignore[arg-type]
    edges = np.arange(-24, 25, 4)
    table = np.array([np.histogram(np.clip(x, -24, 24), edges)[0] for x in (ours, theirs)])
    assert stats.chi2_contingency(table).pvalue > ALARM / 10  # theirs cannot be seeded: false alarms 1e-5


def test_sums_are_rounded_after_the_noise() -> None:
    """Sums that are no multiples of the grid: the law is that of round(sum + noise), whatever the low bits of a sum."""
    whole = np.full(100_000, 5 * 2**25 + 12345)
    draws = add_rounded_noise(whole, 1.0, 2.0**40, 2.0, np.random.default_rng(1).bytes)
    assert np.array_equal(draws, np.rint(draws / 2**20) * 2**20)
    assert stats.kstest((draws - whole[0]) / 2.0**40, stats.gennorm(2).cdf).pvalue > ALARM
    near = add_rounded_noise(np.full(50_000, 3), 2.0**-22, 1.0, 2.0, np.random.default_rng(2).bytes)
    assert near.mean() == pytest.approx(3 * 2.0**-22, abs=5 * math.sqrt(0.5 / 50_000))


def test_what_the_sampler_refuses() -> None:
    with pytest.raises(InvalidParameter, match="no exact sampler"):
        sample_exact_cells(1.0, 51.0, np.zeros(1))
    with pytest.raises(InvalidParameter, match="no exact sampler"):
        sample_rounded_noise(2.0**51, 2.0, 1)
    with pytest.raises(InvalidParameter, match="fractions"):
        sample_rounded_noise(1.0, 2.0, 2, np.array([0.0, 1.0]))
    assert sample_rounded_noise(1.0, 2.0, 0).shape == (0,)
    assert sample_rounded_noise(1.0, 1.0, 70_000).shape == (70_000,)


def _real(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


@pytest.mark.parametrize("deviation", [0.3, 1.0, 7.0, 2.0**20])
def test_the_scale_of_gaussian_noise_has_its_deviation_or_a_hair_more(deviation: float) -> None:
    """exp(-(x / a)^2) has the variance a^2 / 2, in exact arithmetic."""
    ratio = Fraction(gaussian_density_scale(deviation)) ** 2 / 2 / Fraction(deviation) ** 2
    assert 1 <= ratio < 1 + Fraction(1, 10**14)
