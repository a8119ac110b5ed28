"""Does it fit? Against exact rationals, closed forms, and the composition the rest of the library uses."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import binom

from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError, NotPrivateError
from dplangevin.ledger import Ledger
from dplangevin.ledger._admission import fits, largest_gaussian, largest_pure
from dplangevin.ledger._bill import (
    Bill,
    bill,
    root_rounded_up,
)
from dplangevin.ledger.entry import rounded_down
from dplangevin.privacy import compose, conversions as cv
from dplangevin.privacy.guarantee import Guarantee
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
from unit._ledger import gaussian, promise, pure

sizes = st.floats(1e-3, 2.0)


def on(*parts: Part) -> Bill:
    return Bill().plus(*parts)


@given(st.lists(sizes, max_size=30), st.floats(0.1, 30))
@settings(max_examples=200, deadline=None)
def test_pure_costs_are_compared_in_exact_rationals(values: list[float], epsilon: float) -> None:
    total = bill((pure(value), 1) for value in values)
    exact = sum((Fraction(value) for value in values), Fraction(0))
    assert fits(total, epsilon, 0.0) == (exact <= Fraction(epsilon))
    limit = float(exact)
    if limit > 0:
        assert fits(total, math.nextafter(limit, math.inf), 0.0)
        assert not fits(total, math.nextafter(limit, 0), 0.0)
    assert Fraction(total.epsilon(0.0)) >= exact
    assert total.epsilon(0.0) <= math.nextafter(limit, math.inf)


@given(st.lists(st.tuples(sizes, st.integers(1, 50)), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_gaussian_costs_merge_into_one_rounded_up_once(costs: list[tuple[float, int]]) -> None:
    total = bill((gaussian(mu), count) for mu, count in costs)
    (part,) = total.parts
    assert isinstance(part, Gaussian)
    exact = sum((count * Fraction(mu) ** 2 for mu, count in costs), Fraction(0))
    assert Fraction(part.mu) ** 2 >= exact > Fraction(math.nextafter(part.mu, 0)) ** 2


@given(st.floats(1e-150, 1e150))
@settings(max_examples=300, deadline=None)
def test_the_root_of_a_square_is_the_number(mu: float) -> None:
    assert root_rounded_up(Fraction(mu) ** 2) == mu


def test_concentrated_costs_merge() -> None:
    total = bill([(promise(Concentrated(rho=0.25)), 3), (promise(Concentrated(rho=0.125)), 2)])
    assert total.parts == (Concentrated(rho=1.0),)


def randomised_response(epsilon: float, count: int, at: float) -> float:
    """Exact delta of `count` uses of randomised response: the loss is epsilon (2 B - count), B binomial."""
    heads = 1 / (1 + math.exp(-epsilon))
    losses = [epsilon * (2 * wins - count) for wins in range(count + 1)]
    chances = binom.pmf(range(count + 1), count, heads)
    return sum(p * -math.expm1(at - loss) for p, loss in zip(chances, losses, strict=True) if loss > at)


@pytest.mark.parametrize(("each", "epsilon", "delta"), [(0.1, 2.0, 1e-5), (0.5, 5.0, 1e-3), (1.0, 5.0, 1e-5)])
def test_pure_costs_compose_as_randomised_response(each: float, epsilon: float, delta: float) -> None:
    exact = max(k for k in range(1, 500) if randomised_response(each, k, epsilon) <= delta)
    assert fits(on(Pure(value=each, count=exact)), epsilon, delta)
    assert not fits(on(Pure(value=each, count=exact + 1)), epsilon, delta)


ANY = [
    Pure(value=0.3),
    BoundedRange(value=0.4),
    Gaussian(mu=0.2),
    Concentrated(rho=0.01),
    Renyi(orders=(2.0, 4.0, 16.0, 64.0), values=(0.01, 0.02, 0.08, 0.4)),
    SampledGaussian(rate=0.05, noise_multiplier=1.5, sampling="poisson", count=20),
    Profile(epsilons=(0.0, 0.2, 0.5), deltas=(0.05, 1e-7, 0.0)),
    Approximate(value=0.2, slack=1e-7),
]


@pytest.mark.parametrize("first", ANY, ids=lambda part: type(part).__name__)
def test_what_fits_is_what_composition_says(first: Part) -> None:
    for second in (Gaussian(mu=0.1), Pure(value=0.2)):
        total = on(first, second)
        delta = compose.delta(total.parts, 1.0)
        assert fits(total, 1.0, min(0.9, delta * (1 + 1e-4) + 1e-300))
        if delta > 1e-14:
            assert not fits(total, 1.0, delta * 0.9)
        apart = compose.epsilon((first,), 5e-7) + compose.epsilon((second,), 5e-7)
        assert total.epsilon(1e-6) <= apart + 10 * total.grid


@pytest.mark.parametrize(
    "endless",
    [
        Pure(value=math.inf),
        BoundedRange(value=math.inf),
        Gaussian(mu=math.inf),
        Concentrated(rho=math.inf),
        Renyi(orders=(2.0,), values=(math.inf,)),
        Approximate(value=math.inf, slack=0.0),
        Approximate(value=0.1, slack=1.0),
        Pure(value=1e12),
        Pure(value=1.0, count=100_000),
        Gaussian(mu=1e200),
    ],
    ids=repr,
)
def test_endless_costs_never_fit(endless: Part) -> None:
    for total in (on(endless), on(endless, Gaussian(mu=0.1)), on(endless, Pure(value=0.1))):
        assert not fits(total, 10.0, 0.5)
        assert not fits(total, 10.0, 0.0)
    assert not fits(Bill(extra_delta=Fraction(1)), 10.0, 0.5)
    assert fits(Bill(), 1e-9, 0.0)


@pytest.mark.parametrize(
    "spent", [(), (Gaussian(mu=0.4),), (Pure(value=1.0),), (Gaussian(mu=0.3), Pure(value=0.5))]
)
def test_what_is_left_fits_and_much_more_does_not(spent: tuple[Part, ...]) -> None:
    total = on(*spent)
    epsilon, mu = largest_pure(total, 3.0, 1e-6), largest_gaussian(total, 3.0, 1e-6)
    assert fits(total.plus(Pure(value=epsilon)), 3.0, 1e-6)
    assert fits(total.plus(Gaussian(mu=mu)), 3.0, 1e-6)
    assert not fits(total.plus(Pure(value=1.3 * epsilon)), 3.0, 1e-6)
    assert not fits(total.plus(Gaussian(mu=1.3 * mu)), 3.0, 1e-6)
    assert largest_gaussian(total, 3.0, 0.0) == 0.0


def test_a_gaussian_budget_has_its_closed_form() -> None:
    limit = cv.gdp_mu(3.0, 1e-6)
    assert largest_gaussian(on(Gaussian(mu=0.3)), 3.0, 1e-6) == pytest.approx(
        math.sqrt(limit**2 - 0.09), rel=1e-9
    )


@given(st.floats(1e-12, 1e12))
@settings(max_examples=200, deadline=None)
def test_printed_sizes_are_rounded_down(size: float) -> None:
    assert 0.998 * size <= float(rounded_down(size)) <= size


def test_thousands_of_entries_stay_fast() -> None:
    costs = [(gaussian(1e-3 + 1e-7 * i), 2) for i in range(4000)] + [(pure(1e-3), 5000)]
    start = time.perf_counter()
    total = bill(costs)
    assert len(total.parts) == 2
    assert fits(total, 5.0, 1e-5)
    assert time.perf_counter() - start < 10  # 0.2 s on an idle machine


def test_a_release_made_three_times_adds_its_extra_delta_three_times() -> None:
    release = replace(gaussian(0.1), extra_delta=0.125)
    assert Bill().with_releases([(release, 3)]).extra_delta == Fraction(3, 8)
    assert Bill(extra_delta=Fraction(1, 8)).with_releases(
        [(release, 2), (release, 1)]
    ).extra_delta == Fraction(1, 2)


@pytest.mark.parametrize("noise", [1e-300, 1e-8, 1e8, 1e300])
def test_costs_of_extreme_sizes_are_composed_or_refused_in_words(tmp_path: Path, noise: float) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path / 'l.db'}").declare("a", epsilon=3, delta=1e-5)
    extreme = promise(SampledGaussian(rate=0.01, noise_multiplier=noise, sampling="poisson"))
    budget.enter(extreme, "ab")
    for cost in (pure(0.01), extreme, gaussian(0.01)):
        with contextlib.suppress(LedgerError, BudgetExceeded):
            budget.charge(cost)
    with contextlib.suppress(LedgerError):
        assert budget.remaining().spent_epsilon >= 0


@pytest.mark.parametrize("epsilon", [5e-324, 1e-61, 1e61, 1e308])
def test_a_budget_of_extreme_size_is_refused_when_it_is_declared(tmp_path: Path, epsilon: float) -> None:
    """Nothing could be composed against it: every question would fail afterwards."""
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    with pytest.raises(InvalidParameter, match="double precision is trusted"):
        ledger.declare("people", epsilon=epsilon, delta=1e-6)
    for least in (1e-60, 1e60):
        assert ledger.declare(f"people{least}", epsilon=least, delta=1e-6).remaining().spent_epsilon == 0


def test_a_guarantee_of_a_class_of_ones_own_pays_for_nothing(tmp_path: Path) -> None:
    class Cheap(Guarantee):
        def group(self, size: int) -> Guarantee:
            return promise(Gaussian(mu=1e-9))

    budget = Ledger.create(f"sqlite:///{tmp_path}/l.db").declare("people", epsilon=1.0, delta=1e-6)
    dear = promise(Pure(value=50.0))
    fields = {"adjacency": dear.adjacency, "release": "draw", "theorem": dear.theorem, "reference": ""}
    with pytest.raises(NotPrivateError, match="no guarantee"):
        budget.charge(Cheap(parts=dear.parts, **fields))
    with pytest.raises(BudgetExceeded):
        budget.charge(dear)
    assert budget.history() == ()
