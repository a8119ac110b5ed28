"""Two mixtures with opposite second components, against sixty digits and by hand."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import norm

from dplangevin.accounting import parts as om, sampled_gaussian as sg
from dplangevin.accounting.parts import OppositeMixtures


def exact(rate: float, noise: float, epsilon: float) -> mp.mpf:
    """H by the best half-line, in 60 digits."""
    q, s, g = mp.mpf(rate), mp.mpf(noise), mp.exp(abs(mp.mpf(epsilon)))
    c, common = q * mp.exp(-1 / (2 * s * s)), (1 - q) * (g - 1)
    t = s * s * mp.log((common + mp.sqrt(common**2 + 4 * g * c * c)) / (2 * c))
    above = q * mp.ncdf((1 - t) / s) - g * q * mp.ncdf((-1 - t) / s) - common * mp.ncdf(-t / s)
    return above if epsilon >= 0 else 1 - 1 / g + above / g


@pytest.mark.parametrize("rate", [1e-9, 0.01, 0.3, 0.999])
@pytest.mark.parametrize("noise", [0.05, 0.3, 1.0, 4.0, 1e3, 1e7])
def test_the_curve_is_rounded_up(rate: float, noise: float) -> None:
    span = om.max_mixture_loss(rate, noise)
    assert om.mixture_hockey_stick(rate, noise, span) <= 1e-30
    with mp.workdps(60):
        for epsilon in (0.0, 1e-6, 0.1, 1.0, 10.0, -0.1, -3.0, 0.3 * span, 0.8 * span):
            true, ours = exact(rate, noise, epsilon), float(om.mixture_hockey_stick(rate, noise, epsilon))
            if true < mp.mpf(10) ** -290:
                continue
            assert mp.mpf(ours) >= true * (1 - mp.mpf(10) ** -15)
            if ours > 1e-30:
                assert mp.mpf(ours) <= true * (1 + mp.mpf(10) ** -4)


def test_by_hand() -> None:
    """At eps = 0 the half-line begins in the middle: delta = q (Phi(1/s) - Phi(-1/s)); with q = 1, two normal laws."""
    assert float(om.mixture_hockey_stick(0.25, 2.0, 0.0)) == pytest.approx(
        0.25 * (2 * norm.cdf(0.5) - 1), rel=1e-8
    )
    assert float(om.mixture_hockey_stick(1.0, 2.0, 0.7)) == pytest.approx(
        norm.cdf(0.5 - 0.7) - math.exp(0.7) * norm.cdf(-0.5 - 0.7), rel=1e-8
    )
    part = OppositeMixtures(rate=0.3, noise_multiplier=2.0)
    assert part.zcdp() == pytest.approx(0.5, rel=1e-12)
    assert part.rdp(np.array([1e5]))[0] <= 1e5 * part.zcdp() * (1 + 1e-9)
    whole = OppositeMixtures(rate=1.0, noise_multiplier=2.0).pld(1e-3)
    assert whole.get_delta_for_epsilon(0.7) == pytest.approx(
        float(om.mixture_hockey_stick(1.0, 2.0, 0.7)), rel=1e-3
    )
    assert OppositeMixtures(rate=1.0, noise_multiplier=2.0).rdp(np.array([3.0]))[0] == pytest.approx(1.5)


def test_divergences_by_a_plain_sum() -> None:
    """q = 1/2, s = 1: log of the sum of p^alpha q^{1 - alpha} over a fine grid, written out."""
    x = np.linspace(-12, 30, 100_001)
    p, q = (0.5 * norm.pdf(x) + 0.5 * norm.pdf(x, sign) for sign in (1, -1))
    for order in (1.5, 2.0, 7.3, 15.0):
        true = math.log(float(np.sum(p * (p / q) ** (order - 1)) * (x[1] - x[0]))) / (order - 1)
        assert om.renyi_opposite_mixtures([order], 0.5, 1.0)[0] == pytest.approx(true, rel=2e-9)


@pytest.mark.parametrize(("rate", "noise"), [(1e-6, 0.7), (0.01, 0.3), (0.01, 2.0), (0.9, 30.0)])
def test_divergences_in_25_digits_and_never_above_the_older_curve(rate: float, noise: float) -> None:
    orders = [1.01, 2.5, 20.0]
    ours = om.renyi_opposite_mixtures(orders, rate, noise)
    assert np.all(ours <= sg.renyi_without_replacement(orders, rate, noise / 2))
    with mp.workdps(25):
        q, s = mp.mpf(rate), mp.mpf(noise)
        step = min(s * s / 8, s / 8)
        totals = [mp.mpf(0)] * len(orders)
        for i in range(int((22 + 24 * s) / step)):
            x = -1 - 12 * s + i * step
            here, there = (1 - q + q * mp.exp((2 * y - 1) / (2 * s * s)) for y in (x, -x))
            weight, ratio = step * mp.npdf(x, 0, s) * there, here / there
            for k, order in enumerate(orders):
                totals[k] += weight * (ratio ** mp.mpf(order) - 1 - order * (ratio - 1))
        for order, total, found in zip(orders, totals, ours, strict=True):
            assert 0 <= found / float(mp.log1p(total) / (mp.mpf(order) - 1)) - 1 < 2e-9


def test_small_orders_of_tiny_rates_are_of_second_order() -> None:
    """D_2 ~ q^2 E[(e^{l} - e^{-l'})^2]: quartered when the rate is halved."""
    first, second = (
        om.renyi_opposite_mixtures([2.0], 1e-5, 1.0)[0],
        om.renyi_opposite_mixtures([2.0], 5e-6, 1.0)[0],
    )
    assert first / second == pytest.approx(4.0, rel=1e-4)
    # chi^2 of two unit shifts in opposite directions, with density N(0, 1): 2 (e - 1/e)
    assert first == pytest.approx(1e-10 * 2 * (math.e - 1 / math.e), rel=1e-4)
