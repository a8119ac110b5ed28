"""Guarantee and composition: written once, tested against exact compositions."""

from __future__ import annotations

import json
import math
import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from dplangevin.accounting import conversions, conversions as cv
from dplangevin.accounting.guarantee import Guarantee, NotPrivate
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
from dplangevin.errors import InvalidParameter, NotPrivateError


def make_guarantee(*parts: PrivacyPart, **changes: object) -> Guarantee:
    fields: dict[str, object] = {
        "parts": parts,
        "adjacency": "replace-one",
        "release": "draw",
        "theorem": "t",
        "reference": "r",
    }
    return Guarantee(**(fields | changes))  # type: ignore[arg-type]


def gdp_profile(mu: float, points: int = 4000, top: float = 12.0) -> Profile:
    epsilons = np.linspace(0, top, points)
    return Profile(epsilons=tuple(epsilons.tolist()), deltas=tuple(cv.gdp_delta(mu, epsilons).tolist()))


PARTS = (
    Pure(value=0.3),
    BoundedRange(value=0.4),
    Gaussian(mu=0.5),
    Concentrated(rho=0.1),
    RenyiCurve(orders=tuple(cv.ORDERS), values=tuple(cv.ORDERS * 0.05)),
    SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="poisson"),
    SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="without-replacement"),
    gdp_profile(0.5, 300),
    Approximate(value=0.2, slack=1e-8),
)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_multiplication_is_repeated_addition(part: PrivacyPart) -> None:
    one = make_guarantee(part)
    three = one + one + one
    assert (3 * one).parts == three.parts
    assert (3 * one).epsilon(1e-5) == three.epsilon(1e-5)
    assert three.epsilon(1e-5) >= one.epsilon(1e-5)
    assert three.epsilon(1e-5) <= 3 * one.epsilon(1e-5 / 3) * (1 + 1e-6) + 1e-3


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_every_part_is_plain_data(part: PrivacyPart) -> None:
    g = make_guarantee(part, at_delta=1e-5)
    assert pickle.loads(pickle.dumps(g)) == g
    assert json.loads(json.dumps(g.to_dict()))["epsilon"] == g.epsilon()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_delta_and_epsilon_agree(part: PrivacyPart) -> None:
    g = make_guarantee(part)
    for delta in (1e-3, 1e-6):
        epsilon = g.epsilon(delta)
        if math.isfinite(epsilon):
            assert g.delta(epsilon) <= delta * (1 + 1e-6)


def test_ten_exponential_mechanisms_are_not_one() -> None:
    one = make_guarantee(Pure(value=1.0))
    assert (10 * one).epsilon(0.0) == 10.0
    assert (10 * one).delta(10.0) == 0.0
    p = 1 / (1 + math.exp(-1.0))
    counts = np.arange(11)
    log_mass = np.array([math.lgamma(11) - math.lgamma(k + 1) - math.lgamma(11 - k) for k in counts])
    first = np.exp(log_mass) * p**counts * (1 - p) ** (10 - counts)
    second = first[::-1]
    exact = float(np.sum(np.maximum(0, first - math.exp(5.0) * second)))
    assert (10 * one).delta(5.0) == pytest.approx(exact, rel=1e-3)
    assert (10 * one).delta(5.0) >= exact * (1 - 1e-6)


def test_gaussian_composition_is_exact_and_group_scales() -> None:
    g = make_guarantee(Gaussian(mu=0.3)) + make_guarantee(Gaussian(mu=0.4))
    assert g.mu == pytest.approx(0.5, rel=1e-15)
    assert make_guarantee(Gaussian(mu=0.25)).group(4).mu == 1.0
    assert make_guarantee(Pure(value=0.25)).group(4).epsilon(0.0) == 1.0


def test_profile_composes_through_its_dominating_pair() -> None:
    profile = make_guarantee(gdp_profile(0.5))
    exact = cv.gdp_epsilon(0.5 * math.sqrt(4), 1e-5)
    composed = (4 * profile).epsilon(1e-5)
    assert exact * (1 - 1e-6) <= composed <= exact * 1.01
    mixed = (profile + make_guarantee(Gaussian(mu=0.5))).epsilon(1e-5)
    assert (
        cv.gdp_epsilon(math.sqrt(0.5), 1e-5) * (1 - 1e-6)
        <= mixed
        <= cv.gdp_epsilon(math.sqrt(0.5), 1e-5) * 1.01
    )


def test_profile_chord_is_above_the_curve() -> None:
    coarse = gdp_profile(1.0, points=60)
    grid = np.linspace(0, 11.9, 777)
    chord = np.array([coarse.delta(float(e)) for e in grid])
    assert np.all(chord >= cv.gdp_delta(1.0, grid) * (1 - 1e-12))
    for delta in (0.3, 1e-2, 1e-5):
        assert cv.gdp_epsilon(1.0, delta) <= coarse.epsilon(delta) <= cv.gdp_epsilon(1.0, delta) + 0.21
    assert coarse.epsilon(1e-60) == math.inf


def test_mixed_currencies_without_a_dominating_pair() -> None:
    g = make_guarantee(Concentrated(rho=0.05)) + make_guarantee(Pure(value=0.1))
    assert (
        make_guarantee(Pure(value=0.1)).epsilon(0.0)
        < g.epsilon(1e-5)
        < cv.zcdp_epsilon(0.05, 1e-5) + 0.1 + 1e-9
    )
    loose = make_guarantee(Concentrated(rho=0.05)) + make_guarantee(gdp_profile(0.3))
    assert math.isfinite(loose.epsilon(1e-5))
    assert loose.delta(loose.epsilon(1e-5)) <= 1e-5 * (1 + 1e-6)


@settings(max_examples=6, deadline=None)
@given(rate=st.floats(0.01, 0.5), noise=st.floats(0.8, 5), count=st.integers(1, 50))
def test_poisson_composition_is_never_below_dp_accounting(rate: float, noise: float, count: int) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    g = make_guarantee(
        SampledGaussian(rate=rate, noise_multiplier=noise, sampling="poisson", count=count),
        adjacency="add-remove",
    )
    theirs = (
        pld.from_gaussian_mechanism(noise, sampling_prob=rate).self_compose(count).get_epsilon_for_delta(1e-5)
    )
    assert g.epsilon(1e-5) == pytest.approx(theirs, rel=1e-3, abs=1e-4)


def test_extra_delta_is_charged_once_per_release() -> None:
    g = make_guarantee(Gaussian(mu=0.5), extra_delta=1e-6)
    assert g.epsilon(1e-6) == math.inf
    assert g.epsilon(1e-7) == math.inf
    assert g.epsilon(2e-6) == pytest.approx(cv.gdp_epsilon(0.5, 1e-6), rel=1e-9)
    assert g.mu is None
    assert (2 * g).extra_delta == 2e-6


def test_adjacencies_do_not_mix_and_nothing_private_stays_unpriced() -> None:
    with pytest.raises(InvalidParameter, match="replace-one"):
        make_guarantee(Gaussian(mu=1.0)) + make_guarantee(Gaussian(mu=1.0), adjacency="add-remove")
    nothing = NotPrivate("diagnosed only")
    with pytest.raises(NotPrivateError, match="diagnosed only"):
        nothing.epsilon(1e-5)
    assert (make_guarantee(Gaussian(mu=1.0)) + nothing) is nothing
    assert nothing.to_dict()["epsilon"] is None
    for bad in (-0.1, 1.0, math.nan):
        with pytest.raises(InvalidParameter, match="delta"):
            make_guarantee(Gaussian(mu=1.0)).epsilon(bad)


def test_export_to_dp_accounting() -> None:
    from dp_accounting.pld import PLDAccountant

    g = make_guarantee(Gaussian(mu=0.5)) + 3 * make_guarantee(
        SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="poisson")
    )
    assert PLDAccountant().compose(g.to_dp_event()).get_epsilon(1e-5) == pytest.approx(
        g.epsilon(1e-5), rel=1e-3
    )
    with pytest.raises(InvalidParameter, match="no event"):
        make_guarantee(gdp_profile(0.5, 10)).to_dp_event()


def test_pure_and_bounded_range_parts_export_as_randomised_response() -> None:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    for part in (Pure(value=0.3, count=3), BoundedRange(value=0.3, count=3)):
        g = make_guarantee(part)
        theirs = PLDAccountant(NeighboringRelation.REPLACE_ONE).compose(g.to_dp_event())
        assert theirs.get_epsilon(1e-3) >= g.epsilon(1e-3) * (1 - 1e-3)
        assert theirs.get_epsilon(1e-3) == pytest.approx(
            make_guarantee(Pure(value=0.3, count=3)).epsilon(1e-3), rel=1e-3
        )
    assert type(make_guarantee(Pure(value=0.0)).to_dp_event()).__name__ == "NoOpDpEvent"
    assert make_guarantee(Pure(value=math.inf)).to_dp_event().noise_parameter == 0


def test_concentrated_parts_export_and_what_has_no_event_is_refused_by_name() -> None:
    from dp_accounting.rdp import RdpAccountant

    g = make_guarantee(Concentrated(rho=0.1, count=2))
    assert RdpAccountant().compose(g.to_dp_event()).get_epsilon(1e-5) == pytest.approx(
        g.epsilon(1e-5), rel=2e-2
    )
    for bad in (RenyiCurve(orders=(2.0,), values=(0.1,)), Approximate(value=0.1, slack=1e-6)):
        with pytest.raises(InvalidParameter, match=f"no event for .*{type(bad).__name__}"):
            make_guarantee(bad).to_dp_event()
    with pytest.raises(InvalidParameter, match="additive delta"):
        make_guarantee(Gaussian(mu=1.0), extra_delta=1e-9).to_dp_event()


@pytest.mark.parametrize("value", [1e-9, 1e-6, 1e-5, 1.0])
def test_a_trillion_pure_releases_are_quick_small_and_right(value: float) -> None:
    """Against the central limit: the loss of k responses is within 4e-3 of Gaussian here, and never below it."""
    import tracemalloc
    from time import perf_counter

    many = 10**12 * make_guarantee(Pure(value=value))
    tracemalloc.start()
    start = perf_counter()
    found = many.epsilon(1e-6)
    elapsed, peak = perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert elapsed < 5  # a second on an idle machine; tracing alone doubles it
    assert peak < 20e6
    if value < 1e-4:
        limit = cv.gdp_epsilon(value * 1e6, 1e-6)
        assert limit * (1 - 1e-6) <= found <= limit * 1.001
    else:  # mean k eps tanh(eps/2), standard deviation 2 eps sqrt(k p q)
        p = 1 / (1 + math.exp(-value))
        limit = 1e12 * value * math.tanh(value / 2) + 2 * value * 1e6 * math.sqrt(p * (1 - p)) * 4.753424
        assert limit * (1 - 1e-9) <= found <= limit * (1 + 5e-9)


def exact_responses(value: float, count: int, epsilon: float) -> mpmath.mpf:
    p, total = 1 / (1 + mpmath.exp(-mpmath.mpf(value))), mpmath.mpf(0)
    for j in range(count + 1):
        loss = (2 * j - count) * mpmath.mpf(value)
        if loss > epsilon:
            total += (
                mpmath.binomial(count, j) * p**j * (1 - p) ** (count - j) * (1 - mpmath.exp(epsilon - loss))
            )
    return total


@pytest.mark.parametrize(
    ("value", "count"), [(1.0, 10), (0.1, 100), (0.01, 800), (3.0, 7), (0.5, 1), (20.0, 3)]
)
def test_composed_responses_against_the_exact_sum(value: float, count: int) -> None:
    for fraction in (0.0, 0.01, 0.1, 0.3, 0.7, 0.999):
        epsilon = fraction * value * count
        with mpmath.workdps(50):
            exact = exact_responses(value, count, epsilon)
            found = conversions.response_delta(value, count, epsilon)
            assert exact <= found <= exact * (1 + mpmath.mpf("1e-8")) + mpmath.mpf("1e-299")
            if 1e-200 < found < 1:
                back = conversions.response_epsilon(value, count, float(found))
                assert exact_responses(value, count, back) <= found
                assert back <= epsilon + 1e-5 * value * count


def test_blocks_of_responses_are_above_the_exact_sum_and_close() -> None:
    """20,000 responses need blocks (6,000): against the sum over every j."""
    value, count = 0.01, 20_000
    counts = np.arange(count + 1)
    log_mass = stats.binom.logpmf(counts, count, 1 / (1 + math.exp(-value)))
    for epsilon in (0.5, 2.0, 6.0):
        gain = -np.expm1(np.minimum(epsilon - value * (2 * counts - count), 0.0))
        exact = float(np.sum(np.exp(log_mass) * gain))
        assert exact * (1 - 1e-9) <= conversions.response_delta(value, count, epsilon) <= exact * 1.02


def test_approximate_parts_reach_the_loss_distribution() -> None:
    """30 x (1, 0.001): each fails with probability 0.001, else answers as randomised response does."""
    many = make_guarantee(Approximate(value=1.0, slack=1e-3, count=30))
    failed = 1 - (1 - 1e-3) ** 30
    found = many.epsilon(0.06)
    assert found <= 22.0
    for epsilon in (0.0, 10.0, 18.0, found):
        exact = failed + (1 - failed) * float(exact_responses(1.0, 30, epsilon))
        assert exact * (1 - 1e-9) <= many.delta(epsilon) <= exact * (1 + 2e-3)
    assert many.epsilon(failed * 0.999) == math.inf
    mixed = many + make_guarantee(Concentrated(rho=0.1))
    assert found < mixed.epsilon(0.06) < found + 0.7


def test_ten_block_recursions_reach_the_loss_distribution() -> None:
    """D/v = 20, kappa = 4, any number of steps: basic composition gives 165.3 at delta = 1e-6."""
    from dplangevin.mechanisms.account import account

    one = account(
        n=10, lipschitz=1.0, smoothness=0.25, step_size=1.0, n_steps=math.inf, diameter=20.0, noise_std=1.0,
        delta=1e-6, theorem="block-recursion",
    )  # fmt: skip
    found = (10 * one).epsilon(1e-6)
    assert 10 * one.epsilon(1e-7) > 165
    assert 3 * one.epsilon(1e-6) < found < 78.8


def test_bounded_range_parts_compose_by_their_own_curve() -> None:
    """Three bounded-range laws, by brute force over two-point laws: the composed curve is above all of them."""
    value, count = 0.4, 3
    three = make_guarantee(BoundedRange(value=value, count=count))
    pure = make_guarantee(Pure(value=value, count=count))
    for epsilon in (0.3, 0.6, 0.9):
        worst = 0.0
        for shift in np.linspace(0.02, 0.98, 25) * value:
            high = -math.expm1(shift - value) / (math.exp(shift) - math.exp(shift - value))
            masses = np.array(
                [1 - high, high]
            )  # of the second law, where the log ratio is shift - value, shift
            ratios = np.exp(np.array([shift - value, shift]))
            q, r = masses, ratios
            for _ in range(count - 1):
                q, r = np.outer(q, masses).ravel(), np.outer(r, ratios).ravel()
            worst = max(worst, float(np.sum(q * np.maximum(0.0, r - math.exp(epsilon)))))
        assert worst <= three.delta(epsilon) < pure.delta(epsilon)


def test_huge_losses_compose_without_a_loss_distribution() -> None:
    both = make_guarantee(BoundedRange(value=5000.0)) + make_guarantee(BoundedRange(value=300.0))
    assert 5000 < both.epsilon(1e-3) <= 5300
    assert both.delta(100.0) == 1.0


def test_gaussian_squares_do_not_underflow() -> None:
    tiny = make_guarantee(Gaussian(mu=1e-170)) + make_guarantee(Gaussian(mu=2e-170))
    assert tiny.mu == pytest.approx(math.sqrt(5) * 1e-170, rel=1e-14)
    assert tiny.epsilon(1e-175) > 0
    assert (10**12 * make_guarantee(Gaussian(mu=1e-180))).mu == pytest.approx(1e-174, rel=1e-14)


def test_huge_counts_stay_cheap() -> None:
    many = make_guarantee(Pure(value=1.0, count=100_000))
    assert many.epsilon(0.0) == 100_000
    assert many.epsilon(1e-5) < 50_000
    steps = make_guarantee(
        SampledGaussian(rate=0.05, noise_multiplier=10.0, sampling="without-replacement", count=10**7)
    )
    assert 200 < steps.epsilon(1e-5) < 212  # the Renyi route gives 211.5


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-9, 1e9), st.floats(1e-12, 0.5))
def test_a_printed_guarantee_is_never_better_than_the_proved_one(epsilon: float, delta: float) -> None:
    found = make_guarantee(Pure(value=epsilon), at_delta=delta)
    shown = str(found).split(")", 1)[0].lstrip("(").split(", ")
    assert float(shown[0]) >= found.epsilon()
    assert float(shown[0]) <= found.epsilon() + 1e-6 * (1 + 1e-9)
    assert float(shown[1]) == delta


def test_a_printed_guarantee_names_what_it_rests_on() -> None:
    text = str(make_guarantee(Gaussian(mu=1.0), assumptions=("rows are clipped",)))
    assert text.splitlines() == [
        "no finite epsilon at delta = 0.0; ask epsilon(delta); replace-one; released: draw",
        "by t (unstated): r",
        "- assumes: rows are clipped",
    ]


def test_a_pair_known_at_a_large_epsilon_alone_keeps_its_curve_below_it() -> None:
    """(3, 0.01)-DP: delta(eps) = 0.01 + 0.99 (1 - e^(eps - 3)) / (1 + e^-3), at 0 (and at 1) far above a half."""
    from dplangevin.accounting.pld import connect_the_dots

    made = connect_the_dots(np.array([3.0]), np.array([0.01]), 1e-3)
    for eps in (0.0, 1.0, 2.5):
        exact = 0.01 + 0.99 * -math.expm1(eps - 3) / (1 + math.exp(-3))
        assert exact * (1 - 1e-9) <= made.get_delta_for_epsilon(eps) <= exact + 1e-3  # type: ignore[union-attr]
