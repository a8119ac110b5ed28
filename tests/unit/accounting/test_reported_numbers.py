"""Reported numbers of a guarantee against closed forms, mpmath and each other; all rounded to the private side."""

from __future__ import annotations

import math
from time import process_time

import mpmath
import numpy as np
import pytest

from dplangevin.accounting import conversions as cv
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

CLOSED = (Pure(value=0.7), BoundedRange(value=0.7), Gaussian(mu=0.5), Concentrated(rho=0.1))


def make_guarantee(*parts: PrivacyPart, **changes: object) -> Guarantee:
    fields: dict[str, object] = {
        "parts": parts,
        "adjacency": "replace-one",
        "release": "draw",
        "theorem": "composition",
        "reference": "r",
    }
    return Guarantee(**(fields | changes))  # type: ignore[arg-type]


def test_renyi_divergences_of_closed_forms() -> None:
    orders = np.array([1.001, 1.5, 2.0, 8.0, 1e6])
    gaussian = make_guarantee(Gaussian(mu=0.3, count=4)).rdp(orders)
    assert np.all(gaussian >= orders * 0.18)
    assert gaussian == pytest.approx(orders * 0.18, rel=1e-11)
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf("0.7")))
        for order, found in zip(orders[:4], make_guarantee(Pure(value=0.7)).rdp(orders[:4]), strict=True):
            a = mpmath.mpf(order)
            exact = mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)) / (a - 1)
            assert float(exact) == pytest.approx(found, rel=1e-10)
    assert make_guarantee(Pure(value=0.7, count=2)).rdp(math.inf) == pytest.approx(1.4, rel=1e-11)
    assert make_guarantee(BoundedRange(value=0.4)).rdp(2.0) <= 2 * 0.16 / 8 * (1 + 1e-9)
    assert float(make_guarantee(Gaussian(mu=1.0)).rdp(math.inf)) == math.inf


def test_renyi_of_sums_is_the_sum_and_shapes_are_kept() -> None:
    orders = [2.0, 3.5, 16.0]
    parts = (*CLOSED, SampledGaussian(rate=0.1, noise_multiplier=2.0, sampling="poisson", count=7))
    total = make_guarantee(*parts).rdp(orders)
    assert total == pytest.approx(sum(make_guarantee(part).rdp(orders) for part in parts), rel=1e-9)
    assert np.shape(make_guarantee(*parts).rdp(2.0)) == ()
    known = RenyiCurve(orders=(2.0, 4.0), values=(0.1, 0.3))
    assert make_guarantee(known).rdp([2.0, 3.0, 4.0, 5.0]) == pytest.approx(
        [0.1, 0.3, 0.3, math.inf], rel=1e-9
    )


def test_what_is_not_proved_is_infinite_and_bad_orders_are_refused() -> None:
    for part in (Approximate(value=1.0, slack=1e-6), Profile(epsilons=(0.0, 1.0), deltas=(0.1, 0.0))):
        assert make_guarantee(part).rdp([2.0]).tolist() == [math.inf]
        assert make_guarantee(part).zcdp() == math.inf
    assert make_guarantee(Gaussian(mu=1.0), extra_delta=1e-9).rdp([2.0, 3.0]).tolist() == [math.inf] * 2
    assert make_guarantee(Gaussian(mu=1.0), extra_delta=1e-9).zcdp() == math.inf
    assert make_guarantee(RenyiCurve(orders=(2.0,), values=(0.1,))).zcdp() == math.inf
    for bad in (1.0, 0.5, [], math.nan):
        with pytest.raises(InvalidParameter, match="above 1"):
            make_guarantee(Gaussian(mu=1.0)).rdp(bad)
    with pytest.raises(NotPrivateError):
        NotPrivate("nothing").advantage()
    with pytest.raises(NotPrivateError):
        NotPrivate("nothing").rdp(2.0)


@pytest.mark.parametrize(
    "part",
    [*CLOSED, SampledGaussian(rate=0.05, noise_multiplier=1.5, sampling="without-replacement")],
    ids=lambda part: type(part).__name__,
)
def test_zcdp_is_above_every_divergence(part: PrivacyPart) -> None:
    g = make_guarantee(part) + make_guarantee(part)
    orders = np.array([1.0001, 1.1, 2.0, 7.0, 60.0, 2000.0])
    assert np.all(g.rdp(orders) <= g.zcdp() * orders * (1 + 1e-9))


def test_zcdp_of_closed_forms_by_hand() -> None:
    assert make_guarantee(Gaussian(mu=0.5, count=4)).zcdp() == pytest.approx(0.5, rel=1e-11)
    assert make_guarantee(Pure(value=0.2)).zcdp() == pytest.approx(0.02, rel=1e-11)
    assert make_guarantee(Pure(value=5.0)).zcdp() == pytest.approx(5.0, rel=1e-11)
    assert make_guarantee(BoundedRange(value=0.4)).zcdp() == pytest.approx(0.02, rel=1e-11)
    assert make_guarantee(Concentrated(rho=0.3, count=2)).zcdp() == pytest.approx(0.6, rel=1e-11)
    both = make_guarantee(Pure(value=0.2)) + make_guarantee(Gaussian(mu=0.2))
    assert both.zcdp() == pytest.approx(0.04, rel=1e-11)
    assert make_guarantee(Gaussian(mu=1e-200)).zcdp() > 0


@pytest.mark.parametrize("mu", [1e-12, 1e-3, 0.5, 3.0, 40.0])
def test_gaussian_tradeoff_is_never_above_the_exact_curve(mu: float) -> None:
    alphas = np.array([0.0, 1e-300, 1e-12, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9, 1.0])
    found = make_guarantee(Gaussian(mu=mu)).tradeoff(alphas)
    assert found[0] == pytest.approx(1.0, abs=1e-11)
    assert found[-1] == 0
    with mpmath.workdps(50):
        for alpha, value in zip(alphas[2:-1], found[2:-1], strict=True):
            quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(alpha))
            exact = mpmath.ncdf(quantile - mu)
            assert value <= exact
            assert value >= exact * (1 - mpmath.mpf("1e-9")) - mpmath.mpf("1e-300")


def test_tradeoff_of_pure_and_approximate_guarantees() -> None:
    alphas = np.linspace(0, 1, 21)
    e = math.exp(0.7)
    exact = np.maximum(0, np.maximum(1 - e * alphas, (1 - alphas) / e))
    found = make_guarantee(Pure(value=0.7)).tradeoff(alphas)
    assert np.all(found <= exact)
    assert found == pytest.approx(exact, abs=1e-2)
    slack = make_guarantee(Approximate(value=0.7, slack=0.1)).tradeoff(alphas)
    shifted = np.maximum(0, np.maximum(0.9 - e * alphas, (0.9 - alphas) / e))
    assert np.all(slack <= np.maximum(shifted, slack * 0) + 1e-2)
    assert np.all(slack <= found + 1e-15)
    with pytest.raises(InvalidParameter, match="between 0 and 1"):
        make_guarantee(Pure(value=0.7)).tradeoff(1.5)


def test_composed_tradeoff_is_below_the_exact_one_and_symmetric() -> None:
    """Two randomised responses: the exact curve from their three outcomes, by Neyman and Pearson."""
    p = 1 / (1 + math.exp(-0.7))
    first = np.array([p * p, 2 * p * (1 - p), (1 - p) ** 2])  # in falling order of likelihood ratio
    second = first[::-1]
    alphas = np.linspace(0, 1, 33)
    power = np.interp(
        alphas, np.concatenate([[0], np.cumsum(second)]), np.concatenate([[0], np.cumsum(first)])
    )
    found = make_guarantee(Pure(value=0.7, count=2)).tradeoff(alphas)
    assert np.all(found <= 1 - power + 1e-12)
    assert found == pytest.approx(1 - power, abs=1e-2)


def test_advantage_of_a_pure_guarantee_by_hand() -> None:
    found = make_guarantee(Pure(value=math.log(3.0))).advantage(prior=0.5)
    assert found.advantage == pytest.approx(0.5, rel=1e-12)  # (e - 1) / (e + 1) with e = 3
    assert found.accuracy == pytest.approx(0.75, rel=1e-12)
    assert found.posterior == pytest.approx(0.75, rel=1e-12)
    assert found.exceeded == 0
    rare = make_guarantee(Pure(value=math.log(3.0))).advantage(prior=0.01)
    assert rare.posterior == pytest.approx(0.03 / (0.03 + 0.99), rel=1e-12)
    assert rare.accuracy == pytest.approx(0.99, rel=1e-12)  # guessing "no" cannot be beaten at odds 99 : 1
    words = str(rare)
    assert "1%" in words
    assert "99%" in words
    assert "2.9412%" in words  # 2.94117...% rounded up
    assert "whatever is released" in words


def test_advantage_of_a_gaussian_guarantee_against_the_exact_posterior() -> None:
    mu, tail = 1.0, 1e-4
    found = make_guarantee(Gaussian(mu=mu), at_delta=tail).advantage()
    assert found.advantage == pytest.approx(2 * 0.6914624612740131 - 1, rel=1e-10)
    assert found.accuracy == pytest.approx(0.6914624612740131, rel=1e-10)
    assert found.exceeded == tail
    # the loss is N(mu^2/2, mu^2): its exact upper quantile, and the belief that belongs to it
    loss = mu * mu / 2 + mu * 3.719016485455709
    exact = 1 / (1 + math.exp(-loss))
    assert exact <= found.posterior <= 1 / (1 + math.exp(-loss - 0.8))
    assert make_guarantee(Gaussian(mu=mu), extra_delta=1e-3, at_delta=1e-4).advantage().posterior == 1.0
    with pytest.raises(InvalidParameter, match="prior"):
        make_guarantee(Gaussian(mu=mu)).advantage(prior=1.0)


def test_the_best_guess_against_brute_force() -> None:
    """Guessing which of N(0, 1), N(mu, 1) with prior 0.2: the exact Bayes rule thresholds the sample."""
    mu, prior = 0.8, 0.2
    cut = mu / 2 + math.log((1 - prior) / prior) / mu
    from scipy.stats import norm

    exact = prior * norm.sf(cut - mu) + (1 - prior) * norm.cdf(cut)
    found = make_guarantee(Gaussian(mu=mu)).advantage(prior=prior).accuracy
    assert exact <= found <= exact * (1 + 1e-9)


@pytest.mark.parametrize("part", CLOSED, ids=lambda part: type(part).__name__)
def test_read_outs_of_closed_forms_are_quick(part: PrivacyPart) -> None:
    g = make_guarantee(part, at_delta=1e-6)
    g.advantage(), g.tradeoff(0.1)  # imports and caches
    fresh = make_guarantee(
        type(part)(**{name: value * 1.01 for name, value in vars(part).items() if name != "count"})
    )
    for read in (lambda: fresh.rdp([2, 8]), fresh.zcdp, lambda: fresh.tradeoff(0.05), fresh.advantage):
        best = math.inf
        for _ in range(3):
            start = process_time()
            read()
            best = min(best, process_time() - start)
        assert best < 0.05


def test_a_larger_cost_never_reports_a_smaller_number() -> None:
    small, large = make_guarantee(Gaussian(mu=0.5)), make_guarantee(Gaussian(mu=0.6))
    assert small.zcdp() < large.zcdp()
    assert np.all(small.tradeoff([0.01, 0.5]) > large.tradeoff([0.01, 0.5]))
    assert small.advantage().posterior < large.advantage().posterior
    assert cv.square_ratio_up(0.0, 2) == 0


def test_an_order_just_above_a_known_one_takes_the_next() -> None:
    """Divergences may be infinite right above a known order, so nothing is rounded down to it."""
    part = RenyiCurve(orders=(2.0, 3.0), values=(0.1, 5.0))
    assert part.rdp(np.array([2.0, math.nextafter(2.0, 3.0), 3.0, 3.1])).tolist() == [0.1, 5.0, 5.0, math.inf]
