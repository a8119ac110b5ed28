"""The sampled Gaussian: published values, high-precision references, directions, extremes."""

from __future__ import annotations

import math
import time

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import ndtr

from dplangevin.accounting import conversions as cv, sampled_gaussian as sg
from dplangevin.accounting.compose import compose_delta, compose_epsilon, compose_pld
from dplangevin.accounting.conversions import ORDERS
from dplangevin.accounting.parts import SampledGaussian
from dplangevin.accounting.pld import sampled_gaussian_pld
from dplangevin.errors import InvalidParameter

VECTORS = [  # order, rate, noise multiplier, mix || N0, N0 || mix, without replacement
    (2, 0.01, 1, 1.718134221e-4, 1.602226498e-4, 2.806392913e-4),
    (8, 0.01, 1, 8.936439076e-4, 5.723888949e-4, 1.258827712e-3),
    (32, 0.01, 2, 5.028946469e-4, 4.141049292e-4, 6.371489735e-4),
    (1.5, 0.01, 1, 1.272537433e-4, 1.214759931e-4, 2.101879072e-4),
    (2.5, 0.1, 0.5, 1.288617965, 0.04882018908, 1.293656208),
    (10.3, 0.02, 1.3, 2.050089894e-3, 1.38440085e-3, 2.706983151e-3),
    (8, 0.05, 2.5, 1.831488965e-3, 1.612644651e-3, 2.238696781e-3),
]


@pytest.mark.parametrize(("order", "rate", "noise", "poisson", "reversed_", "subset"), VECTORS)
def test_published_values(order, rate, noise, poisson, reversed_, subset):
    assert sg.renyi_poisson(order, rate, noise)[0] == pytest.approx(poisson, rel=1e-8)
    assert sg.renyi_reversed(order, rate, noise)[0] == pytest.approx(reversed_, rel=1e-8)
    assert sg.renyi_without_replacement(order, rate, noise)[0] == pytest.approx(subset, rel=1e-8)


def reference(order: float, rate: float, noise: float, kind: str) -> mpmath.mpf:
    """The definitions, by 36-digit quadrature."""
    with mpmath.workdps(36):
        alpha, q, nm = mpmath.mpf(order), mpmath.mpf(rate), mpmath.mpf(noise)

        def gap(p: mpmath.mpf, x: mpmath.mpf) -> mpmath.mpf:
            r = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * nm * nm))
            return mpmath.npdf(x, 0, nm) * (r**p - 1 - p * (r - 1))

        def integral(f, low, high):
            pieces = max(6, int((high - low) / min(2 * nm, 3 * nm * nm)) + 1)
            return mpmath.quad(f, mpmath.linspace(low, high, pieces + 1), maxdegree=4)

        half, top = mpmath.mpf(0.5), alpha + 15 * nm
        if kind == "poisson":
            value = integral(lambda x: gap(alpha, x), -15 * nm, half) + integral(
                lambda x: gap(alpha, x), half, top
            )
        else:
            value = integral(lambda x: gap(alpha, x) + gap(1 - alpha, x), half, top)
        return mpmath.log1p(value) / (alpha - 1)


@pytest.mark.parametrize(
    ("order", "rate", "noise"),
    [
        (1.01, 1e-10, 1.0),
        (1.01, 0.3, 0.6),
        (9.7, 1e-10, 3.0),
        (2, 1e-8, 30.0),
        (30, 1e-6, 20.0),
        (3.3, 0.98, 0.5),
    ],
)
def test_tiny_and_large_values_keep_their_precision_and_are_never_low(order, rate, noise):
    for kind, curve in (("poisson", sg.renyi_poisson), ("subset", sg.renyi_without_replacement)):
        ratio = mpmath.mpf(float(curve(order, rate, noise)[0])) / reference(order, rate, noise, kind)
        assert 1 <= ratio < 1 + 3e-9, kind


@given(
    rate=st.floats(1e-10, 0.999),
    log_noise=st.floats(-3, 3),
    order=st.one_of(st.floats(1.02, 70), st.integers(2, 300).map(float)),
)
@settings(max_examples=120, deadline=None)
def test_directions_are_ordered_and_sampling_never_hurts(rate, log_noise, order):
    noise = math.exp(log_noise)
    poisson, subset = (f(order, rate, noise)[0] for f in (sg.renyi_poisson, sg.renyi_without_replacement))
    assert 0 < poisson <= subset * (1 + 1e-12) <= order / (2 * noise**2) * (1 + 1e-11)
    if order <= 40 and noise > 0.3:
        assert sg.renyi_reversed(order, rate, noise)[0] <= poisson * (1 + 1e-9)


@given(rate=st.floats(1e-6, 0.9), log_noise=st.floats(-1.5, 3), factor=st.floats(1.01, 3))
@settings(max_examples=40, deadline=None)
def test_curves_grow_with_order_and_rate_and_fall_with_noise(rate, log_noise, factor):
    noise = math.exp(log_noise)
    for curve in (sg.renyi_poisson, sg.renyi_without_replacement):
        here = curve(ORDERS, rate, noise)
        assert np.all(np.isfinite(here))
        assert np.all(np.diff(here) >= -1e-9 * here[1:])
        assert np.all(curve(ORDERS, rate, noise * factor) <= here * (1 + 1e-9))
        assert np.all(curve(ORDERS, rate / factor, noise) <= here * (1 + 1e-9))


@pytest.mark.parametrize("noise", [1e-200, 1e-3, 0.04, 0.5, 5.0, 1e6, 1e200])
@pytest.mark.parametrize("rate", [1e-10, 0.3, 1 - 1e-12, 1.0])
def test_extremes_are_numbers_and_never_zero(noise, rate):
    orders = [1.0001, 1.5, 2, 3.3, 17.5, 4096, 20_000.5, 1e9]
    for curve in (sg.renyi_poisson, sg.renyi_without_replacement):
        values = curve(orders, rate, noise)
        assert not np.any(np.isnan(values))
        assert np.all(values > 0)
    deltas = sg.sampled_hockey_stick(rate, noise, [-1e4, -1.0, 0.0, 1e-9, 1.0, 1e4])
    assert np.all((deltas > 0) & (deltas <= 1))
    assert np.all(np.diff(deltas) <= 0)


def test_without_sampling_it_is_the_gaussian_mechanism():
    for curve in (sg.renyi_poisson, sg.renyi_without_replacement, sg.renyi_reversed):
        np.testing.assert_allclose(curve([2.0, 7.5], 1.0, 3.0), np.array([2.0, 7.5]) / 18, rtol=1e-15)


def test_the_direction_of_definition_2_5_would_be_a_false_claim():
    # one step, X has one gradient +L among -L, X' only -L: the law on X is mix, on X' it is N0
    assert sg.renyi_poisson(8, 0.01, 0.5)[0] == pytest.approx(10.737, rel=1e-3)
    assert sg.renyi_reversed(8, 0.01, 0.5)[0] == pytest.approx(0.00328, rel=1e-2)


def test_mironov_talwar_zhang_closed_form_is_above():
    assert sg.renyi_poisson(8, 0.01, 4)[0] == pytest.approx(2.5899123e-5, rel=1e-6)
    assert sg.renyi_poisson(8, 0.01, 4)[0] < 2 * 8 * 0.01**2 / 4**2


def triple(first: np.ndarray, second: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Densities of (1 - q) N(0, I) + q N(v, I) for two v in the plane, on a grid with its cell area."""
    x, width = np.linspace(-9, 10, 1201, retstep=True)
    bell = lambda v: np.exp(-((x[:, None] - v[0]) ** 2 + (x[None] - v[1]) ** 2) / 2) / (2 * math.pi)  # noqa: E731
    zero = bell((0.0, 0.0))
    return (1 - rate) * zero + rate * bell(first), (1 - rate) * zero + rate * bell(second), float(width**2)


def test_profile_bounds_sixty_degrees_and_the_plain_pair_does_not():
    rate, g = 0.01, np.array([0.9, 0.99, 0.995, 0.999, 1.0, 1.005, 1.02, 1.2])
    p, q, area = triple(np.array([1.0, 0.0]), np.array([0.5, math.sqrt(0.75)]), rate)
    exact = np.array([np.maximum(p - gamma * q, 0).sum() * area for gamma in g])
    profile = sg.sampled_hockey_stick(rate, 1.0, np.log(g))
    assert np.all(exact <= profile + 1e-9)
    cut = 0.5 + np.log(np.maximum((g - 1 + rate) / rate, 1e-300))  # H_g(mix || N0) also below g = 1
    plain = (1 - rate - g) * ndtr(-cut) + rate * ndtr(1 - cut)
    assert np.any(exact > plain + 1e-5)
    order2 = math.log((p * p / q).sum() * area)
    assert order2 == pytest.approx(2.0507e-4, rel=1e-4)
    assert sg.renyi_poisson(2, rate, 1)[0] < order2 < sg.renyi_without_replacement(2, rate, 1)[0]


def test_composed_profile_covers_the_known_counterexample():
    # 20,000 steps of the 60 degree triple have delta(6) = 0.01139; the plain pair's distribution claims 0.0043
    subset, poisson = (
        SampledGaussian(rate=0.01, noise_multiplier=1.0, sampling=s, count=20_000)
        for s in ("without-replacement", "poisson")
    )
    assert subset.pld(1e-3).self_compose(20_000).get_delta_for_epsilon(6.0) >= 0.01139
    assert poisson.pld(1e-3).self_compose(20_000).get_delta_for_epsilon(6.0) == pytest.approx(
        0.00427, rel=0.05
    )


def test_sensitivity_must_cover_all_pairs_of_records():
    # others at 0, the differing record at 20 or 21: the two neighbours differ by 1 but the sensitivity is 21
    x, width = np.linspace(-12, 34, 40_001, retstep=True)
    bell = lambda v: np.exp(-((x - v) ** 2) / 2) / math.sqrt(2 * math.pi)  # noqa: E731
    p, q = (0.99 * bell(0) + 0.01 * bell(v) for v in (20, 21))
    exact = math.log((p * p / q).sum() * width)
    assert exact == pytest.approx(0.01704, rel=1e-3)
    assert sg.renyi_without_replacement(2, 0.01, 1.0)[0] < exact
    assert sg.renyi_without_replacement(2, 0.01, 1 / 21)[0] > exact


def test_hockey_stick_is_the_definition():
    rate, noise = 0.2, 0.7
    x, width = np.linspace(-12, 13, 200_001, retstep=True)
    bell = lambda v: np.exp(-(((x - v) / noise) ** 2) / 2) / (noise * math.sqrt(2 * math.pi))  # noqa: E731
    zero, mix = bell(0), (1 - rate) * bell(0) + rate * bell(1)
    for eps in (-2.0, -0.3, -0.01, 0.0, 0.01, 0.5, 3.0):
        p, q = (mix, zero) if eps >= 0 else (zero, mix)
        exact = np.maximum(p - math.exp(eps) * q, 0).sum() * width
        assert float(sg.sampled_hockey_stick(rate, noise, eps)) == pytest.approx(exact, rel=1e-6, abs=1e-12)
        assert float(sg.sampled_hockey_stick(rate, noise, eps)) >= exact * (1 - 1e-7)


def exact_directed_hockey_stick(rate: float, noise: float, eps: float, removed: bool) -> mpmath.mpf:
    """P(S) - g Q(S) for the half-line S where P's density is above g times Q's, in 60 digits."""
    with mpmath.workdps(60):
        q, nm, g = mpmath.mpf(rate), mpmath.mpf(noise), mpmath.exp(mpmath.mpf(eps))
        ratio = ((g if removed else 1 / g) - 1 + q) / q  # of N1 to N0 at the end of the half-line
        if ratio <= 0:
            return max(1 - g, mpmath.mpf(0))
        end = nm**2 * mpmath.log(ratio) + mpmath.mpf(1) / 2
        side = -1 if removed else 1  # a record that was there makes large values likely
        zero, one = mpmath.ncdf(side * end / nm), mpmath.ncdf(side * (end - 1) / nm)
        mix = (1 - q) * zero + q * one
        return mix - g * zero if removed else zero - g * mix


def test_both_directions_are_exact_and_never_below() -> None:
    rng = np.random.default_rng(36)
    for _ in range(150):
        rate, noise = float(np.exp(rng.uniform(-11, -0.001))), float(np.exp(rng.uniform(-1.6, 3.4)))
        removed, far = bool(rng.integers(2)), 8 / noise
        eps = rng.choice([-1, 1], 8) * np.exp(rng.uniform(-14, math.log(far), 8))
        found = sg.directed_hockey_stick(rate, noise, eps, removed=removed)
        for value, at in zip(found, eps, strict=True):
            exact = exact_directed_hockey_stick(rate, noise, float(at), removed)
            assert value >= exact * (1 - 1e-14) - 1e-17, (rate, noise, at, removed)
            assert value <= exact * (1 + 1e-11) + 3e-15, (rate, noise, at, removed)
    assert not np.isnan(
        sg.directed_hockey_stick(0.3, 0.01, np.linspace(-6000, 6000, 999), removed=True)
    ).any()
    assert not np.isnan(
        sg.directed_hockey_stick(0.3, 0.01, np.linspace(-6000, 6000, 999), removed=False)
    ).any()


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 2.0), (0.2, 0.7), (0.9, 1.3), (1e-4, 0.5)])
def test_the_distribution_of_a_step_is_that_of_dp_accounting(rate: float, noise: float) -> None:
    """Within its rounding; and never below the exact curve, with a shaved variant that is."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    ours, theirs = sampled_gaussian_pld(rate, noise, 1e-3), pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=1e-3
    )  # fmt: skip
    for count in (1, 50):
        first, second = (each.self_compose(count) if count > 1 else each for each in (ours, theirs))
        for eps in (0.0, 0.0123, 0.5, 2.0):
            assert first.get_delta_for_epsilon(eps) == pytest.approx(
                second.get_delta_for_epsilon(eps), rel=1e-7, abs=1e-13
            )
    shaved = sampled_gaussian_pld(rate * 0.99, noise, 1e-3)
    for removed, own, less in (
        (True, ours._pmf_remove, shaved._pmf_remove),
        (False, ours._pmf_add, shaved._pmf_add),
    ):
        exact = [exact_directed_hockey_stick(rate, noise, eps, removed) for eps in (0.0, 1e-4, 5e-4, 5e-3)]
        at = [own.get_delta_for_epsilon(eps) for eps in (0.0, 1e-4, 5e-4, 5e-3)]
        assert all(value >= bound - 1e-15 for value, bound in zip(at, exact, strict=True))
        assert less.get_delta_for_epsilon(0.0) < exact[0]


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 1.0), (0.5, 0.3), (1e-9, 4.0), (1.0, 2.0)])
def test_beyond_the_largest_loss_nothing_is_left(rate, noise):
    assert float(sg.sampled_hockey_stick(rate, noise, sg.max_sampled_loss(rate, noise))) <= 1e-30


def test_renyi_curve_is_that_of_the_profile():
    # E_alpha = 1 + int alpha (alpha - 1) g^(alpha - 2) [H_g - (1 - g)_+] dg for the profile that holds both ways
    rate, noise, order = 0.1, 1.2, 3.0
    eps, width = np.linspace(-12, 12, 240_001, retstep=True)
    g = np.exp(eps)
    excess = sg.sampled_hockey_stick(rate, noise, eps) - np.maximum(1 - g, 0)
    moment = (order * (order - 1) * g ** (order - 1) * excess).sum() * width
    value = math.log1p(moment) / (order - 1)
    assert value == pytest.approx(sg.renyi_without_replacement(order, rate, noise)[0], rel=1e-5)


def test_bad_values_are_named():
    with pytest.raises(InvalidParameter, match="orders"):
        sg.renyi_poisson([1.0], 0.1, 1.0)
    with pytest.raises(InvalidParameter, match="rate"):
        sg.renyi_without_replacement([2.0], 1.2, 1.0)
    with pytest.raises(InvalidParameter, match="noise_multiplier"):
        sg.sampled_hockey_stick(0.1, 0.0, 1.0)


@pytest.mark.slow
def test_whole_grid_is_faster_than_the_public_accountant():
    from dp_accounting import dp_event
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    def best(task) -> float:
        times = []
        for _ in range(7):
            begin = time.process_time()
            task()
            times.append(time.process_time() - begin)
        return min(times)

    event = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    theirs = best(lambda: rdp.RdpAccountant().compose(event, 1000))
    assert best(lambda: sg.renyi_without_replacement(ORDERS, 0.01, 1.0)) < theirs


def test_no_delta_is_below_what_fourier_transforms_round() -> None:
    """Where the truth is far below 1e-15 their sums come out negative: no epsilon follows from such a delta."""
    part = SampledGaussian(rate=2 / 23, noise_multiplier=3.349, sampling="without-replacement", count=40)
    losses, epsilons = compose_pld((part,)), (1.0, 2.0, 4.0, 8.0)
    assert losses is not None
    assert min(losses.get_delta_for_epsilon(epsilon) for epsilon in epsilons) < 0
    deltas = [compose_delta((part,), epsilon) for epsilon in epsilons]
    assert min(deltas) > 0
    assert deltas == sorted(deltas, reverse=True)
    # where sums are no more than rounding, another bound answers
    renyi = cv.rdp_epsilon(ORDERS, 40 * part.rdp(ORDERS), 1e-14)
    assert compose_epsilon((part,), 1e-14) == pytest.approx(renyi, rel=1e-9)
