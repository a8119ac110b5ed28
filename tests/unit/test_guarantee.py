"""Guarantee and composition: written once, tested against exact compositions."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dplangevin.errors import InvalidParameter, NotPrivateError
from dplangevin.privacy import conversions as cv
from dplangevin.privacy.guarantee import Guarantee, NotPrivate
from dplangevin.privacy.parts import (
    Approximate,
    BoundedRange,
    Concentrated,
    Gaussian,
    Part,
    Profile,
    Pure,
    Renyi,
    SampledGaussian,
)


def promise(*parts: Part, **changes: object) -> Guarantee:
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
    Renyi(orders=tuple(cv.ORDERS), values=tuple(cv.ORDERS * 0.05)),
    SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="poisson"),
    SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="without-replacement"),
    gdp_profile(0.5, 300),
    Approximate(value=0.2, slack=1e-8),
)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_multiplication_is_repeated_addition(part: Part) -> None:
    one = promise(part)
    three = one + one + one
    assert (3 * one).parts == three.parts
    assert (3 * one).epsilon(1e-5) == three.epsilon(1e-5)
    assert three.epsilon(1e-5) >= one.epsilon(1e-5)
    assert three.epsilon(1e-5) <= 3 * one.epsilon(1e-5 / 3) * (1 + 1e-6) + 1e-3


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_every_part_is_plain_data(part: Part) -> None:
    g = promise(part, at_delta=1e-5)
    assert pickle.loads(pickle.dumps(g)) == g
    assert json.loads(json.dumps(g.to_dict()))["epsilon"] == g.epsilon()


@pytest.mark.parametrize("part", PARTS, ids=lambda part: type(part).__name__)
def test_delta_and_epsilon_agree(part: Part) -> None:
    g = promise(part)
    for delta in (1e-3, 1e-6):
        epsilon = g.epsilon(delta)
        if math.isfinite(epsilon):
            assert g.delta(epsilon) <= delta * (1 + 1e-6)


def test_ten_exponential_mechanisms_are_not_one() -> None:
    one = promise(Pure(value=1.0))
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
    g = promise(Gaussian(mu=0.3)) + promise(Gaussian(mu=0.4))
    assert g.mu == pytest.approx(0.5, rel=1e-15)
    assert promise(Gaussian(mu=0.25)).group(4).mu == 1.0
    assert promise(Pure(value=0.25)).group(4).epsilon(0.0) == 1.0


def test_profile_composes_through_its_dominating_pair() -> None:
    profile = promise(gdp_profile(0.5))
    exact = cv.gdp_epsilon(0.5 * math.sqrt(4), 1e-5)
    composed = (4 * profile).epsilon(1e-5)
    assert exact * (1 - 1e-6) <= composed <= exact * 1.01
    mixed = (profile + promise(Gaussian(mu=0.5))).epsilon(1e-5)
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
    g = promise(Concentrated(rho=0.05)) + promise(Pure(value=0.1))
    assert promise(Pure(value=0.1)).epsilon(0.0) < g.epsilon(1e-5) < cv.zcdp_epsilon(0.05, 1e-5) + 0.1 + 1e-9
    loose = promise(Concentrated(rho=0.05)) + promise(gdp_profile(0.3))
    assert math.isfinite(loose.epsilon(1e-5))
    assert loose.delta(loose.epsilon(1e-5)) <= 1e-5 * (1 + 1e-6)


@settings(max_examples=6, deadline=None)
@given(rate=st.floats(0.01, 0.5), noise=st.floats(0.8, 5), count=st.integers(1, 50))
def test_poisson_composition_is_never_below_dp_accounting(rate: float, noise: float, count: int) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    g = promise(
        SampledGaussian(rate=rate, noise_multiplier=noise, sampling="poisson", count=count),
        adjacency="add-remove",
    )
    theirs = (
        pld.from_gaussian_mechanism(noise, sampling_prob=rate).self_compose(count).get_epsilon_for_delta(1e-5)
    )
    assert g.epsilon(1e-5) == pytest.approx(theirs, rel=1e-3, abs=1e-4)


def test_extra_delta_is_charged_once_per_release() -> None:
    g = promise(Gaussian(mu=0.5), extra_delta=1e-6)
    assert g.epsilon(1e-6) == math.inf
    assert g.epsilon(1e-7) == math.inf
    assert g.epsilon(2e-6) == pytest.approx(cv.gdp_epsilon(0.5, 1e-6), rel=1e-9)
    assert g.mu is None
    assert (2 * g).extra_delta == 2e-6


def test_adjacencies_do_not_mix_and_nothing_private_stays_unpriced() -> None:
    with pytest.raises(InvalidParameter, match="replace-one"):
        promise(Gaussian(mu=1.0)) + promise(Gaussian(mu=1.0), adjacency="add-remove")
    nothing = NotPrivate("diagnosed only")
    with pytest.raises(NotPrivateError, match="diagnosed only"):
        nothing.epsilon(1e-5)
    assert (promise(Gaussian(mu=1.0)) + nothing) is nothing
    assert nothing.to_dict()["epsilon"] is None
    for bad in (-0.1, 1.0, math.nan):
        with pytest.raises(InvalidParameter, match="delta"):
            promise(Gaussian(mu=1.0)).epsilon(bad)


def test_export_to_dp_accounting() -> None:
    from dp_accounting.pld import PLDAccountant

    g = promise(Gaussian(mu=0.5)) + 3 * promise(
        SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="poisson")
    )
    assert PLDAccountant().compose(g.to_dp_event()).get_epsilon(1e-5) == pytest.approx(
        g.epsilon(1e-5), rel=1e-3
    )
    with pytest.raises(InvalidParameter, match="no event"):
        promise(gdp_profile(0.5, 10)).to_dp_event()


def test_huge_counts_stay_cheap() -> None:
    many = promise(Pure(value=1.0, count=100_000))
    assert many.epsilon(0.0) == 100_000
    assert many.epsilon(1e-5) < 50_000
    steps = promise(
        SampledGaussian(rate=0.05, noise_multiplier=10.0, sampling="without-replacement", count=10**7)
    )
    assert 200 < steps.epsilon(1e-5) < 212  # the Renyi route gives 211.5


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-9, 1e9), st.floats(1e-12, 0.5))
def test_a_printed_promise_is_never_better_than_the_proved_one(epsilon: float, delta: float) -> None:
    found = promise(Pure(value=epsilon), at_delta=delta)
    shown = str(found).split(")", 1)[0].lstrip("(").split(", ")
    assert float(shown[0]) >= found.epsilon()
    assert float(shown[0]) <= found.epsilon() + 1e-6 * (1 + 1e-9)
    assert float(shown[1]) == delta


def test_a_printed_promise_names_what_it_rests_on() -> None:
    text = str(promise(Gaussian(mu=1.0), assumptions=("rows are clipped",)))
    assert text.splitlines() == [
        "no finite epsilon at delta = 0.0; ask epsilon(delta); replace-one; may be seen: draw",
        "by t: r",
        "- assumes: rows are clipped",
    ]
