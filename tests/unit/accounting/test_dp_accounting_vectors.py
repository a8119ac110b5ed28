"""The numbers that dp-accounting's own tests expect, reproduced.

Source: google/differential-privacy, python/dp_accounting/dp_accounting (Apache-2.0), 0.6.0; each block names the
test file and test. Only numbers are taken. Ours are rounded up, and may be smaller where ours are tighter; both are
stated.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from dplangevin.accounting import conversions as cv, sampled_gaussian as sg
from dplangevin.accounting.generalized_gaussian import GeneralizedGaussian
from dplangevin.accounting.guarantee import Guarantee
from dplangevin.accounting.parts import (
    Approximate,
    Concentrated,
    Gaussian,
    PrivacyPart,
    Pure,
    SampledGaussian,
)


def make_guarantee(*parts: PrivacyPart) -> Guarantee:
    return Guarantee(
        parts=parts, adjacency="add-remove", release="draw", theorem="composition", reference="dp-accounting"
    )


def poisson(rate: float, noise_multiplier: float, count: int = 1) -> Guarantee:
    return make_guarantee(
        SampledGaussian(rate=rate, noise_multiplier=noise_multiplier, sampling="poisson", count=count)
    )


# pld/privacy_loss_mechanism_test.py, test_gaussian_get_delta_for_epsilon: (deviation, sensitivity, eps, delta)
GAUSSIAN = [
    (1.0, 1.0, 1.0, 0.12693674), (2.0, 2.0, 1.0, 0.12693674), (1.0, 3.0, 1.0, 0.78760074),
    (2.0, 6.0, 1.0, 0.78760074), (1.0, 1.0, 2.0, 0.02092364), (5.0, 5.0, 2.0, 0.02092364),
]  # fmt: skip


@pytest.mark.parametrize(("deviation", "sensitivity", "epsilon", "delta"), GAUSSIAN)
def test_gaussian_delta(deviation: float, sensitivity: float, epsilon: float, delta: float) -> None:
    g = make_guarantee(Gaussian(mu=sensitivity / deviation))
    assert g.delta(epsilon) == pytest.approx(delta, abs=6e-9)
    assert g.epsilon(delta) == pytest.approx(epsilon, rel=1e-6)


# the same test with sampling, REMOVE adjacency (the larger direction at eps > 0)
SAMPLED = [
    (1.0, 1.0, 0.8, 1.0, 0.0816951786585355), (2.0, 2.0, 0.8, 1.0, 0.0816951786585355),
    (1.0, 3.0, 0.7, 1.0, 0.5356298793262404), (2.0, 6.0, 0.4, 1.0, 0.2888308005139968),
    (1.0, 1.0, 0.3, 2.0, 0.0003341102928869332),
]  # fmt: skip


@pytest.mark.parametrize(("deviation", "sensitivity", "rate", "epsilon", "delta"), SAMPLED)
def test_poisson_sampled_gaussian_delta(
    deviation: float, sensitivity: float, rate: float, epsilon: float, delta: float
) -> None:
    assert poisson(rate, deviation / sensitivity).delta(epsilon) == pytest.approx(delta, rel=1e-6)


# pld/accountant_test.py, test_get_smallest_gaussian_noise and test_get_smallest_subsampled_gaussian_noise
def test_smallest_gaussian_noise() -> None:
    for sensitivity, count, deviation in ((1, 1, 1 / 3), (6, 25, 10.0)):
        found = sensitivity * math.sqrt(count) / cv.gdp_mu(1.0, 0.78760074)
        assert found == pytest.approx(deviation, rel=1e-7)


@pytest.mark.parametrize(
    ("rate", "count", "sensitivity", "deviation"),
    [(0.01, 1, 1, 0.67379294682), (0.001, 25, 6, 3.20956502598)],
)
def test_smallest_sampled_gaussian_noise(
    rate: float, count: int, sensitivity: float, deviation: float
) -> None:
    assert poisson(rate, deviation / sensitivity, count).epsilon(1e-5) == pytest.approx(1.0, rel=1e-4)


# pld/accountant_test.py, test_get_smallest_laplace_noise: (sensitivity, eps, delta, queries, scale within 0.1)
LAPLACE = [(21, 3, 0.0, 10, 70.0), (1, 1, 1e-4, 20, 13.6), (0.5, 1, 1e-4, 20, 6.8), (1, 1, 1e-4, 500, 71.0)]


@pytest.mark.parametrize(("sensitivity", "epsilon", "delta", "queries", "scale"), LAPLACE)
def test_smallest_laplace_noise(
    sensitivity: float, epsilon: float, delta: float, queries: int, scale: float
) -> None:
    def spent(width: float) -> float:
        part = GeneralizedGaussian(p=1.0, shift=sensitivity / width, changed=queries, answers=queries)
        return make_guarantee(part).epsilon(delta)

    assert spent(scale + 0.1) <= epsilon
    assert spent(scale - 0.1) > epsilon


# pld/accountant_test.py, test_advanced_composition: theirs is the best among eps (k - 2i), ours among all
ADVANCED = [
    (1.0, 0.0, 30, 0.0, 30.0), (1.0, 0.001, 30, 0.06, 22.0), (1.0, 0.001, 30, 0.1, 20.0),
    (1.0, 0.2, 1, 0.1, math.inf), (1.0, 0.01, 30, 0.26, math.inf), (0.25, 0.0, 50, 0.01, 5.0),
]  # fmt: skip


@pytest.mark.parametrize(("epsilon", "slack", "queries", "delta", "total"), ADVANCED)
def test_advanced_composition(epsilon: float, slack: float, queries: int, delta: float, total: float) -> None:
    part = Approximate(value=epsilon, slack=slack) if slack else Pure(value=epsilon)
    found = (queries * make_guarantee(part)).epsilon(delta)
    assert found <= total * (1 + 1e-6)
    assert found > total - 2 * epsilon if math.isfinite(total) else found == math.inf


# pld/pld_privacy_accountant_test.py, test_gaussian_basic, test_poisson_subsampled_gaussian (and self-composed),
# test_laplace_basic, test_randomized_response
def test_accountant_basics() -> None:
    three = 3 * make_guarantee(Gaussian(mu=1 / math.sqrt(3)))
    assert three.delta(1.0) == pytest.approx(0.126936, abs=1e-6)
    assert three.epsilon(0.126936) == pytest.approx(1.0, abs=1e-5)
    sampled = poisson(0.2, 0.5, 3)
    assert sampled.delta(1.0) == pytest.approx(0.15594, abs=2e-5)
    assert sampled.epsilon(0.15594) == pytest.approx(1.0, abs=1e-3)
    laplace = 3 * make_guarantee(
        GeneralizedGaussian(p=1.0, shift=1.0, changed=1, answers=1)
    ) + 2 * make_guarantee(GeneralizedGaussian(p=1.0, shift=0.5, changed=1, answers=1))
    assert laplace.epsilon(1e-14) == pytest.approx(4.0, abs=1e-6)
    assert make_guarantee(Pure(value=1.0)).delta(1.0) == 0


# rdp/rdp_privacy_accountant_test.py, test_compute_rdp_poisson_sampled_gaussian: 50 x (0.01, 2.5)
RENYI = [
    (2.5, 1.08548710e-03),
    (5, 2.18075656e-03),
    (50, 2.38460375e-02),
    (100, 1.67416308e02),
    (math.inf, math.inf),
]


@pytest.mark.parametrize(("order", "value"), RENYI)
def test_poisson_sampled_gaussian_renyi(order: float, value: float) -> None:
    assert float(poisson(0.01, 2.5, 50).rdp(order)) == pytest.approx(value, rel=1e-4)


def test_their_lowest_order_is_three_percent_high() -> None:
    """Order 1.5: they expect 6.70579741e-04; the integral itself, to thirty digits, is 3% below."""
    with mpmath.workdps(30):
        noise = mpmath.mpf("2.5")

        def term(x: mpmath.mpf) -> mpmath.mpf:
            ratio = mpmath.mpf("0.99") + mpmath.mpf("0.01") * mpmath.exp((2 * x - 1) / (2 * noise**2))
            return mpmath.npdf(x, 0, noise) * ratio ** mpmath.mpf("1.5")

        exact = float(50 * mpmath.log(mpmath.quad(term, mpmath.linspace(-40, 40, 17))) / mpmath.mpf("0.5"))
    found = float(poisson(0.01, 2.5, 50).rdp(1.5))
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-6)
    assert 6.70579741e-04 / exact == pytest.approx(1.03, abs=0.01)


# rdp/rdp_privacy_accountant_test.py, test_compute_rdp_randomized_response_replace_one: orders 1.5, 2.5, 5, 50, 100, inf
RESPONSES = [
    (0.3, 10, [2.6946320226546314, 2.983865364028855, 3.11316970070507, 3.1854244842182466, 3.1886682560677593,
               3.1918471524802814]),
    (0.05, 20, [5.850317703374384, 5.910360162307462, 5.930633082131939, 5.94180620835157, 5.942307807732949,
                5.942799375126701]),
    (0.01, 3, [5.684126770932727, 5.692634596034571, 5.695421239467805, 5.696956976543137, 5.697025920968522,
               5.697093486505405]),
]  # fmt: skip


@pytest.mark.parametrize(("noise", "buckets", "values"), RESPONSES)
def test_randomised_response_renyi(noise: float, buckets: int, values: list[float]) -> None:
    """Our worst case, two buckets with the same largest loss, is above theirs with many; equal at infinity."""
    largest = math.log((1 - noise + noise / buckets) / (noise / buckets))
    found = make_guarantee(Pure(value=largest)).rdp([1.5, 2.5, 5, 50, 100, math.inf])
    assert found[-1] == pytest.approx(values[-1], rel=1e-9)
    assert np.all(found >= np.array(values) * (1 - 1e-12))
    assert found[3:] == pytest.approx(values[3:], rel=1e-2)


# rdp/rdp_privacy_accountant_test.py, test_compute_epsilon_delta_pure_dp and test_compute_epsilon_delta_gaussian
def test_renyi_conversions() -> None:
    orders = np.arange(2, 33)
    curve = np.full(orders.shape, 1.1)
    assert cv.rdp_epsilon(orders, curve, 1e-5) == pytest.approx(1.32783806176, rel=1e-10)
    assert cv.rdp_delta(orders, curve, 1.32783806176) == pytest.approx(1e-5, rel=1e-8)
    rho = 1 / (2 * 4.530877117**2)
    assert make_guarantee(Concentrated(rho=rho)).epsilon(1e-6) == pytest.approx(1.0, rel=1e-5)
    assert make_guarantee(Concentrated(rho=rho)).delta(1.0) == pytest.approx(1e-6, rel=1e-4)


# rdp/rdp_privacy_accountant_test.py, test_compute_rdp_gaussian, ..._multi_gaussian, test_zcdp_matches_gaussian
def test_gaussian_renyi() -> None:
    first, second = Gaussian(mu=1 / 2.71828), Gaussian(mu=1 / 6.28319)
    assert float(make_guarantee(first).rdp(3.14159)) == pytest.approx(3.14159 / (2 * 2.71828**2), rel=1e-11)
    both = 3.14159 / (2 * 2.71828**2) + 3.14159 / (2 * 6.28319**2)
    assert float(make_guarantee(first, second).rdp(3.14159)) == pytest.approx(both, rel=1e-11)
    zcdp = make_guarantee(Concentrated(rho=1 / (2 * 3.14159**2)))
    assert float(zcdp.rdp(2.71828)) == pytest.approx(
        float(make_guarantee(Gaussian(mu=1 / 3.14159)).rdp(2.71828)), rel=1e-11
    )


# rdp/rdp_privacy_accountant_test.py, test_compute_log_a_equals_mp (whole orders: an exact sum)
@pytest.mark.parametrize(
    ("rate", "noise", "order"),
    [(1e-6, 0.1, 256), (1e-6, 1, 27), (1e-3, 1.0, 2), (0.01, 10, 20), (0.99, 0.1, 256)],
)
def test_sampled_gaussian_moments(rate: float, noise: float, order: int) -> None:
    with mpmath.workdps(60):
        q, s = mpmath.mpf(rate), mpmath.mpf(noise)
        total = sum(
            mpmath.binomial(order, k) * (1 - q) ** (order - k) * q**k * mpmath.exp(k * (k - 1) / (2 * s * s))
            for k in range(order + 1)
        )
        exact = float(mpmath.log(total) / (order - 1))
    found = float(sg.renyi_poisson(np.array([float(order)]), rate, noise)[0])
    assert found == pytest.approx(exact, rel=1e-4)


# gaussian_mechanism_test.py, test_get_sigma_gaussian_inverts_get_epsilon_gaussian: its grid, against the exact curve
@pytest.mark.parametrize("sigma", [1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e5])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.1, 0.5, 0.9])
def test_gaussian_epsilon_on_their_grid(sigma: float, delta: float) -> None:
    from dp_accounting import get_epsilon_gaussian

    ours, theirs = cv.gdp_epsilon(1 / sigma, delta), get_epsilon_gaussian(sigma, delta)
    assert ours == pytest.approx(theirs, rel=1e-6, abs=1e-12)
    if ours > 0:
        assert 1 / cv.gdp_mu(ours, delta) == pytest.approx(sigma, rel=1e-6)
