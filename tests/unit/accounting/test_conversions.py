"""Conversions against closed forms, published vectors and mpmath."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting import conversions as cv


def test_published_vectors() -> None:
    assert float(cv.gdp_delta(1, 1)) == pytest.approx(0.1269367375, rel=1e-9)
    assert cv.gdp_epsilon(1, 1e-5) == pytest.approx(4.377178096, rel=1e-9)
    assert cv.gdp_epsilon(0.1, 1e-6) == pytest.approx(0.3968573776, rel=1e-9)
    assert cv.gdp_epsilon(5, 1e-10) == pytest.approx(43.66290387, rel=1e-9)
    assert cv.gdp_mu(1, 1e-6) == pytest.approx(0.2367043807, rel=1e-9)
    assert cv.gdp_epsilon(0.03482894936, 1e-6) == pytest.approx(0.1285476642, rel=1e-7)
    for epsilon, mu in ((0.5, 0.12411), (2, 0.44833), (4, 0.83786)):
        assert cv.gdp_mu(epsilon, 1e-6) == pytest.approx(mu, rel=1e-4)


def test_renyi_line_conversion_vector() -> None:
    orders = np.array([1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16])
    assert cv.rdp_epsilon(orders, orders / 2, 1e-5) == pytest.approx(4.75272834, rel=1e-8)
    old = np.min(orders / 2 + math.log(1e5) / (orders - 1))
    assert old == pytest.approx(5.302585093, rel=1e-8)
    assert cv.gdp_epsilon(1, 1e-5) < cv.rdp_epsilon(orders, orders / 2, 1e-5) < old


def test_conversions_are_ordered() -> None:
    gdp, zcdp = cv.gdp_epsilon(0.2, 1e-6), cv.zcdp_epsilon(0.02, 1e-6)
    assert gdp == pytest.approx(0.834118, rel=1e-5)
    assert zcdp == pytest.approx(0.899935, rel=1e-4)
    assert gdp < zcdp < 1.071304


def test_bounded_range_vectors_and_two_point_laws() -> None:
    for epsilon, delta in ((0, 0.244919), (0.25, 0.154698), (0.5, 0.0774047), (0.9, 0.00376284)):
        assert cv.bounded_range_delta(1.0, epsilon) == pytest.approx(delta, rel=1e-5)
        shifts = np.linspace(1e-4, 1 - 1e-4, 4001)  # two-point laws with log ratios shift - 1 and shift
        high = -np.expm1(shifts - 1) / (np.exp(shifts) - np.exp(shifts - 1))  # mass of the second law there
        brute = np.max(high * (np.exp(shifts) - math.exp(epsilon)))
        assert brute <= cv.bounded_range_delta(1.0, epsilon) * (1 + 1e-9)
        assert brute == pytest.approx(cv.bounded_range_delta(1.0, epsilon), rel=1e-3)


def test_gdp_delta_against_mpmath_in_the_tails() -> None:
    mpmath.mp.dps = 60
    for mu, epsilon in ((0.01, 0.1), (0.5, 6.0), (3.0, 40.0), (20.0, 1.0), (20.0, 500.0)):
        exact = mpmath.ncdf(-epsilon / mpmath.mpf(mu) + mpmath.mpf(mu) / 2) - mpmath.e ** mpmath.mpf(
            epsilon
        ) * (mpmath.ncdf(-epsilon / mpmath.mpf(mu) - mpmath.mpf(mu) / 2))
        assert float(cv.gdp_delta(mu, epsilon)) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


def exact_gdp_delta(mu: float, epsilon: float) -> mpmath.mpf:
    m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
    root = mpmath.sqrt(2)
    return (mpmath.erfc((e / m - m / 2) / root) - mpmath.exp(e) * mpmath.erfc((e / m + m / 2) / root)) / 2


@pytest.mark.parametrize(
    "mu", [1e-300, 1e-30, 1e-12, 1e-8, 1e-5, 1e-3, 0.03, 0.7, 1.3, 20.0, 400.0, 1e5, 1e9]
)
def test_gdp_delta_and_epsilon_are_never_low_and_hardly_high(mu: float) -> None:
    near = np.random.default_rng(7).uniform(-6, 36, 12)
    for epsilon in [0.0, *(mu * (near + mu / 2)).tolist()]:
        if epsilon < 0:
            continue
        with mpmath.workdps(80 if mu > 1e-20 else 700):
            exact = exact_gdp_delta(mu, epsilon)
            found = mpmath.mpf(float(cv.gdp_delta(mu, epsilon)))
            assert exact <= found
            loose = mpmath.mpf("2e-11") if mu < 1e3 else mpmath.mpf(mu * 1e-13)
            assert found <= exact * (1 + loose) + mpmath.mpf("1e-300")
            if 1e-290 < found < 0.9:
                back = cv.gdp_epsilon(mu, float(found))
                assert exact_gdp_delta(mu, back) <= mpmath.mpf(float(found))
                assert back <= epsilon * (1 + 1e-9) + 1e-9 * mu


def test_gdp_delta_beyond_doubles_is_never_zero() -> None:
    assert float(cv.gdp_delta(1e-6, 1.0)) == 5e-324
    assert float(cv.gdp_delta(1e-320, 1.0)) == 5e-324
    assert 0 < float(cv.gdp_delta(1e-320, 0.0)) < 1e-320
    assert float(cv.gdp_delta(1e200, 1e300)) == 1.0
    assert float(cv.gdp_delta(1.0, math.inf)) == 0.0


def test_gdp_delta_below_zero_is_the_other_direction() -> None:
    for mu, epsilon in ((1e-4, -1e-4), (0.5, -0.3), (3.0, -2.0)):
        with mpmath.workdps(60):
            exact = exact_gdp_delta(mu, epsilon)
            assert exact <= float(cv.gdp_delta(mu, epsilon)) <= exact * (1 + mpmath.mpf("2e-11"))


@settings(max_examples=60, deadline=None)
@given(mu=st.floats(1e-3, 50), log_delta=st.floats(-40, -0.5))
def test_gdp_round_trip_is_on_the_private_side(mu: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    epsilon = cv.gdp_epsilon(mu, delta)
    assert float(cv.gdp_delta(mu, epsilon)) <= delta
    if epsilon > 0:
        assert cv.gdp_mu(epsilon, delta) == pytest.approx(mu, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(epsilon0=st.floats(1e-3, 20), fraction=st.floats(0, 1))
def test_pure_delta_is_that_of_randomised_response(epsilon0: float, fraction: float) -> None:
    epsilon = fraction * epsilon0
    with mpmath.workdps(60):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon0)))
        exact = max(mpmath.mpf(0), p - mpmath.exp(mpmath.mpf(epsilon)) * (1 - p))
        # of 60 digits some cancel
        assert (
            exact - mpmath.mpf("1e-50")
            <= cv.pure_delta(epsilon0, epsilon)
            <= exact * (1 + mpmath.mpf("1e-14"))
        )


def test_overflow_never_means_private() -> None:
    assert cv.gdp_epsilon(math.inf, 1e-6) == math.inf
    assert float(cv.gdp_delta(math.inf, 1.0)) == 1.0
    assert cv.rdp_epsilon([2.0], [math.nan], 1e-6) == math.inf
    assert cv.rdp_delta([2.0], [math.nan], 1.0) == 1.0
    assert cv.gdp_epsilon(1.0, 0.0) == math.inf
    assert cv.zcdp_delta(math.inf, 1.0) == 1.0


@pytest.mark.parametrize("mu", [0.01, 0.03, 0.1, 0.25, 0.5, 0.99])
def test_many_points_of_a_gaussian_curve_at_once_are_above_it_and_close(mu: float) -> None:
    rng = np.random.default_rng(0)
    epsilons = np.concatenate([[0.0], rng.uniform(-14, 14, 60) * mu])
    found = cv.gdp_delta(mu, epsilons, fast=True)
    with mpmath.workdps(80):
        for epsilon, value in zip(epsilons, found, strict=True):
            exact = exact_gdp_delta(mu, float(epsilon))
            assert exact <= value <= exact * (1 + 1e-8) + mpmath.mpf(10) ** -45
