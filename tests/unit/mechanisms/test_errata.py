"""Every numeric counterexample of docs/errata.md, computed again: the page may be cited, so it must stay true."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaincc
from scipy.stats import binom

from dplangevin.accounting.conversions import gdp_delta, gdp_epsilon, gdp_mu
from dplangevin.accounting.sampled_gaussian import renyi_poisson
from dplangevin.mechanisms.langevin.spec import langevin_last_iterate_guarantee
from dplangevin.papers import formulas as paper, formulas as ref
from dplangevin.papers.gallery.lower_bounds import overlapping_bumps
from dplangevin.problem.constants import Constants

PAGE = (Path(__file__).parents[3] / "docs" / "errata.md").read_text(encoding="utf-8")
FIGURE_2 = {"gradient_sensitivity": 4.0, "n": 5000, "step_size": 0.02, "sigma": 0.02}


def on_page(*numbers: str) -> None:
    """The numbers that this test computes are the ones that the page prints."""
    for number in numbers:
        assert number in PAGE, number


def test_chourasia_denominators() -> None:
    """eta^2 in the place of n^2 multiplies (57) and (68) by (n / eta)^2 = 6.25e10."""
    right = ref.chourasia_quadratic(order=10, n_steps=100, **FIGURE_2)
    lower = ref.chourasia_quadratic_lower(order=10, n_steps=100, **FIGURE_2)
    wrong = (5000 / 0.02) ** 2
    assert right == pytest.approx(0.00697, rel=1e-3)
    assert right * wrong == pytest.approx(4.35e8, rel=2e-3)
    assert lower * wrong == pytest.approx(2.2e8, rel=0.02)
    assert lower < ref.chourasia_composition(order=10, n_steps=100, **FIGURE_2)
    on_page("4.35e8", "0.00697", "2.2e8", "0.008")


def test_chourasia_lemma_5_start() -> None:
    variance = 0.5 / (2 * 0.02**2)  # lambda / (2 sigma^2), as printed
    assert (variance, round(1 / variance, 4), 2 * 0.02**2 / 0.5) == (625.0, 0.0016, 0.0016)
    on_page("625", "0.0016")


def test_chourasia_lemma_6_unrolling() -> None:
    options = {"lipschitz": 1.0, "strong_convexity": 0.1, "smoothness": 1.0, "dimension": 10, "sigma_squared": 1e-5,
               "step_size": 0.05, "n_steps": 2000}  # fmt: skip
    printed, right = (ref.lemma_6_risk(**options, tightened=which) for which in (False, True))  # type: ignore[arg-type]
    assert (round(printed, 5), round(right, 5)) == (0.01108, 0.01008)
    on_page("0.01008", "0.01108")


def test_figure_2_reading() -> None:
    for order in (10, 30):
        ahead = [
            k
            for k in range(1, 200)
            if ref.chourasia_quadratic(order=order, n_steps=k, **FIGURE_2)
            < ref.chourasia_composition(order=order, n_steps=k, **FIGURE_2)
        ]
        assert ahead[0] == 81
    ratios = [
        ref.chourasia_quadratic(order=10, n_steps=k, **FIGURE_2)
        / ref.quadratic_exact(order=10, n_steps=k, **FIGURE_2)
        for k in (10, 100, 500)
    ]
    assert [round(ratio, 2) for ratio in ratios] == [1.82, 1.15, 1.02]
    on_page("K = 81", "1.82, 1.15, 1.02")


def test_altschuler_definition_2_5() -> None:
    printed = ref.printed_definition_2_5(order=8, rate=0.01, noise_multiplier=0.5)
    true = float(renyi_poisson(np.array([8.0]), 0.01, 0.5)[0])
    assert (round(printed, 5), round(true, 3)) == (0.00328, 10.737)
    assert printed < 8 / 7 * math.log(1 / 0.99) < true
    on_page("0.00328", "10.737")


def test_altschuler_theorem_4_1() -> None:
    """(n / eta)^2 with n = 1000, eta = 0.1."""
    assert pytest.approx(1e8) == (1000 / 0.1) ** 2
    on_page("10^8")


def test_exponential_mechanism_factor_two() -> None:
    """E4: 55 records of slope 1, one of which turns round: beta = eps n / (L |C|) attains 2.56 > 1.3."""
    n, epsilon = 55, 1.3
    wrong = paper.paper_exponential_temperature(epsilon, n, 1.0, 1.0)

    def attained(beta: float) -> float:
        """|log ratio| at 1 of the laws e^{-beta x} and e^{-beta (1 - 2/n) x} on [0, 1]."""
        masses = [-math.expm1(-beta * slope) / (beta * slope) for slope in (1.0, 1 - 2 / n)]
        return 2 * beta / n + math.log(masses[0] / masses[1])

    assert attained(wrong) > epsilon
    assert attained(wrong / 2) <= epsilon
    assert attained(wrong) == pytest.approx(2.56, abs=0.01)
    on_page("2.56")


def test_sgld_calibration() -> None:
    """E7: Lemma 3.1 at (1, 1e-6)."""
    beta = paper.paper_sgld_temperature(1.0, 1e-6, 1.0, 1.0, 1)
    mu = beta * math.sqrt(1 / 2)  # beta Delta sqrt(eta K / 2)
    assert gdp_epsilon(mu, 1e-6) == pytest.approx(1.672, abs=1e-3)
    assert float(gdp_delta(mu, 1.0)) == pytest.approx(8.26e-4, rel=1e-3)
    on_page("1.672", "8.26e-4")


def test_dp_sgd_noise_fails_for_large_epsilon() -> None:
    """E9: mu = 2 L sqrt(T) / sigma = eps / sqrt(2 log(1/delta)) exceeds mu(eps, delta) from eps = 8.35 on."""

    def holds(epsilon: float) -> bool:
        mu = 2 / paper.paper_dp_sgd_noise(epsilon, 1e-6, 1.0, 1)
        return mu <= gdp_mu(epsilon, 1e-6)

    assert holds(8.3)
    assert not holds(8.4)
    on_page("8.35")


def test_gibbs_temperature_needs_epsilon_squared() -> None:
    """E11: with a constant c = 100 the nominal (0.01, 1e-6) is really delta = 6.65e-5."""
    beta = paper.paper_gibbs_temperature(0.01, 1e-6, 0.01, 1.0, 30_000)
    mu = 2 / 30_000 * math.sqrt(beta / 0.01)  # Delta sqrt(beta / m)
    assert float(gdp_delta(mu, 0.01)) == pytest.approx(6.65e-5, rel=2e-2)
    on_page("6.65e-5")


def test_threshold_sensitivity() -> None:
    """E5: F = theta^2/2, psi = 0.05: the gradient inside the set reaches sqrt(2 M psi), not sqrt(M psi / 2)."""
    assert round(math.sqrt(2 * 0.05), 3) == 0.316
    assert round(math.sqrt(0.05 / 2), 3) == 0.158
    on_page("0.316", "0.158")


def test_last_iterate_bound_is_twice_too_large() -> None:
    """E24: OU with beta = 40, m = 0.5, Delta = 0.1, T = 1, order 2."""
    constants = Constants(n=1, lipschitz=0.05, smoothness=0.5, strong_convexity=0.5)
    mu = langevin_last_iterate_guarantee(constants, 40.0, 1.0).mu
    assert mu is not None
    printed = paper.paper_last_iterate_divergence(2.0, 40.0, 0.1, 0.5, 1.0)
    assert printed / mu**2 == pytest.approx(2.0, abs=0.01)
    assert (round(mu**2, 2), round(printed, 2)) == (0.8, 1.6)
    on_page("0.80", "1.60")


def test_overlapping_bumps() -> None:
    middle, corner = overlapping_bumps(0.25)
    assert (round(middle, 4), round(corner, 4)) == (-0.4226, -0.3333)
    on_page("-0.4226", "-0.3333")


def test_thesis_exponent() -> None:
    """Example 7: 2 eps l / Delta in the place of eps l / (2 Delta): two answers whose losses differ by Delta."""
    loss = np.array([0.0, 1.0])
    first, second = (
        np.exp(-2 * row) / np.exp(-2 * row).sum() for row in (loss, loss[::-1])
    )  # eps = Delta = 1
    assert float(np.max(np.log(first / second))) == pytest.approx(2.0)
    many = np.r_[np.zeros(1), np.full(10**6, 1.0)]
    one, other = (np.exp(-2 * row) / np.exp(-2 * row).sum() for row in (many, 1 - many))
    assert float(np.max(np.abs(np.log(one / other)))) > 3.9  # towards 4 eps
    on_page("4 eps")


def test_thesis_triangle() -> None:
    """After Theorem 42: three (1, 0.001) links give delta = 0.0111 at 3 eps, not 0.003."""
    p3 = 0.001
    p2 = math.e * p3 + 0.001
    p1 = math.e * p2 + 0.001
    p0 = math.e * p1 + 0.001
    assert p0 - math.exp(3) * p3 == pytest.approx(0.0111, rel=1e-3)
    on_page("0.0111")


def test_thesis_exact_output() -> None:
    """Theorems 17 and 37: the exact answer leaves with probability Q(k/p, 2k/p)."""
    assert float(gammaincc(10 / 4, 20 / 4)) == pytest.approx(0.0752, abs=1e-4)
    assert float(gammaincc(100 / 4, 200 / 4)) == pytest.approx(3.45e-5, rel=1e-2)
    on_page("0.0752", "3.45e-5")


def test_thesis_lemma_51() -> None:
    """P[Y > y] = y^{-2/(1+g)}, g = 0.9: E[Y] = 20, the stated bounds are 2.76 and 4.22, the corrected one 40.7."""
    g = 0.9
    tail = 2 / (1 + g)
    mean = tail / (tail - 1)
    assert mean == pytest.approx(20.0)
    theta, moment = 2.0, 10 / 9
    assert mean > theta * (1 + g) / (theta * (1 + g) - 1) * moment
    on_page("E[Y] = 20")


def test_cyclic_whole_epoch_form() -> None:
    """Five batches, record in the third, 18 steps: the last use alone attains mu^2 = 1, the closed form says 0.933."""
    epochs, batches, place = 4, 5, 3
    assert round((epochs - 1) / batches + 1 / (batches - place + 1), 3) == 0.933
    assert place == 18 % 5  # the record is in the very last batch
    on_page("0.933")


def test_poisson_batches_expand() -> None:
    """A batch of twice the expected size is twice as steep; its probability at n = 1000, b = 50."""
    assert abs(1 - 2.0 * 2) > 1  # eta = 2/M, |B| = 2b
    assert float(binom.sf(99, 999, 0.05)) == pytest.approx(7.96e-11, rel=1e-3)
    on_page("7.96e-11")
