"""The discrete laws of secure mode: chi-square against exact probabilities, and OpenDP's sampler beside ours.

Bytes come from a fixed seed. Each chi-square and Kolmogorov-Smirnov test alarms below p = 1e-4: about 20 tests, so a
correct sampler with another seed would fail one of them with probability 2e-3.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from dplangevin.errors import InvalidParameter
from dplangevin.samplers.discrete import (
    _BLOCK,
    Uniform,
    _coins,
    _exponential,
    _geometric,
    discrete_gaussian,
    discrete_laplace,
)

ALARM = 1e-4


def _bytes(seed: int) -> object:
    return np.random.default_rng(seed).bytes


def _chi_square(draws: np.ndarray, logs: np.ndarray, support: np.ndarray) -> float:
    chances = np.exp(logs) / np.exp(logs).sum()
    common = chances * len(draws) > 10
    seen = np.array([(draws == value).sum() for value in support[common]])
    expected = chances[common] * len(draws)
    rest = len(draws) - expected.sum()
    return float(
        stats.chisquare(np.append(seen, len(draws) - seen.sum()), np.append(expected, rest)).pvalue  # type: ignore[attr-defined]
    )


@pytest.mark.parametrize("power", [0, 1, 2, 5])
@pytest.mark.parametrize(("margin", "count"), [(2.0**-40, 200_000), (2.0, 3_000)])
def test_discrete_gaussian_has_its_law(power: int, margin: float, count: int) -> None:
    """A margin of 2 sends every single coin through the exact comparison."""
    draws = discrete_gaussian(power, count, _bytes(power), margin=margin)  # type: ignore[arg-type]
    support = np.arange(-12 * 2**power, 12 * 2**power + 1)
    assert len(draws) == count
    assert _chi_square(draws, -(support**2) / (2 * 4.0**power), support) > ALARM


@pytest.mark.parametrize("power", [0, 1, 4])
@pytest.mark.parametrize(("margin", "count"), [(2.0**-40, 200_000), (2.0, 3_000)])
def test_discrete_laplace_has_its_law(power: int, margin: float, count: int) -> None:
    draws = discrete_laplace(power, count, _bytes(10 + power), margin=margin)  # type: ignore[arg-type]
    support = np.arange(-40 * 2**power, 40 * 2**power + 1)
    assert _chi_square(draws, -np.abs(support) / 2.0**power, support) > ALARM


def test_wide_noise_looks_like_its_limit() -> None:
    gauss = discrete_gaussian(30, 100_000, _bytes(1)) / 2.0**30  # type: ignore[arg-type]
    laplace = discrete_laplace(30, 100_000, _bytes(2)) / 2.0**30  # type: ignore[arg-type]
    assert stats.kstest(gauss, "norm").pvalue > ALARM
    assert stats.kstest(laplace, "laplace").pvalue > ALARM
    assert stats.kstest(gauss * 1.04, "norm").pvalue < ALARM  # the test sees a scale that is 4% off
    assert abs(np.corrcoef(gauss[:-1], gauss[1:])[0, 1]) < 4 / math.sqrt(len(gauss))


def test_low_bits_are_even() -> None:
    """A floating-point sampler leaves holes in the low-order bits; here every residue is as likely as another."""
    draws = discrete_gaussian(30, 100_000, _bytes(3))  # type: ignore[arg-type]
    for modulus in (2, 7, 64):
        assert stats.chisquare(np.bincount(draws % modulus, minlength=modulus)).pvalue > ALARM  # type: ignore[attr-defined]


def test_the_scale_of_a_sabotaged_sampler_is_noticed() -> None:
    draws = discrete_gaussian(2, 200_000, _bytes(4))  # type: ignore[arg-type]
    support = np.arange(-48, 49)
    assert _chi_square(draws, -(support**2) / (2 * 4.1**2), support) < ALARM


def test_opendp_draws_the_same_law() -> None:
    opendp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed here")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    theirs = np.array(opendp.m.make_gaussian(*space, scale=8.0)([0] * 20_000))
    ours = discrete_gaussian(3, 20_000, _bytes(5))  # type: ignore[arg-type]
    edges = np.arange(-24, 25, 4)
    table = np.array([np.histogram(np.clip(x, -24, 24), edges)[0] for x in (ours, theirs)])
    assert stats.chi2_contingency(table).pvalue > ALARM / 10  # theirs cannot be seeded: false alarms 1e-5
    rho = opendp.m.make_gaussian(*space, scale=8.0).map(3.0)
    assert rho == pytest.approx(9 / (2 * 64))


def test_coins_are_decided_exactly() -> None:
    """Uniform numbers a hair to either side of exp(-gamma) fall on the right side, where doubles cannot tell."""
    for gamma in (Fraction(1, 2**20), Fraction(1, 2), Fraction(1), Fraction(37, 8), Fraction(729, 2)):
        with mpmath.workdps(60 + int(gamma)):
            exact = mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator)
            first = int(mpmath.floor(exact * 2**64))
            second = int(mpmath.floor((exact * 2**64 - first) * 2**64))
        for later, below in ((second - 1, True), (second + 1, False)):
            if not 0 <= later < 2**64 or not 0 <= first < 2**64:
                continue
            number = Uniform(first, lambda size, later=later: later.to_bytes(size, "big"))
            assert number.below(gamma) is below
    assert Uniform(2**64 - 1, np.random.default_rng(0).bytes).below(Fraction(0))
    assert not Uniform(1, np.random.default_rng(0).bytes).below(Fraction(10**9))


def test_the_margin_covers_the_error_of_doubles() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        power, size = int(rng.integers(0, 41)), float(rng.uniform(0, 27))
        scale = 1 << power
        away = int(size * scale)
        double = float(np.exp(-((away / scale) ** 2) / 2))
        with mpmath.workdps(40):
            exact = mpmath.exp(-(mpmath.mpf(away) ** 2) / (2 * mpmath.mpf(scale) ** 2))
            assert abs(double - exact) < 2.0**-50
    low, high = _exponential(Fraction(3, 8), 40)
    with mpmath.workdps(60):
        value = mpmath.exp(-mpmath.mpf(3) / 8)
        assert (
            mpmath.mpf(low.numerator) / low.denominator
            < value
            < mpmath.mpf(high.numerator) / high.denominator
        )


def test_a_broken_source_is_noticed_and_sizes_are_checked() -> None:
    with pytest.raises(InvalidParameter, match="source of random bytes is broken"):
        discrete_laplace(0, 1, lambda size: bytes(size))
    with pytest.raises(InvalidParameter, match="log2_scale"):
        discrete_gaussian(41, 1)
    with pytest.raises(InvalidParameter, match="size"):
        discrete_gaussian(3, -1)
    assert discrete_gaussian(3, 0).shape == (0,)
    assert discrete_gaussian(3, _BLOCK + 5).shape == (_BLOCK + 5,)


def test_geometric_levels_and_coins_agree_with_doubles() -> None:
    source = np.random.default_rng(9).bytes
    levels = _geometric(100_000, source, 2.0**-40)
    assert _chi_square(levels, -np.arange(0.0, 40.0), np.arange(40)) > ALARM
    heads = _coins(np.full(100_000, math.exp(-0.5)), lambda i: Fraction(1, 2), source, 2.0**-40)
    assert abs(heads.mean() - math.exp(-0.5)) < 5 * 0.5 / math.sqrt(100_000)
