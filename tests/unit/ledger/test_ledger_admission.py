"""What the ledger admits: sums of exact fractions, filter charges of every kind of cost, programmes, old entries."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from dplangevin.accounting import conversions as cv, serialize
from dplangevin.accounting.filter import PrivacyFilter
from dplangevin.accounting.guarantee import CONDITION_KINDS, Condition, ConditionKind, Guarantee
from dplangevin.accounting.parts import Approximate, Gaussian, Pure, SampledGaussian
from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError, NotPrivateError
from dplangevin.ledger import Ledger, _admission
from dplangevin.ledger._admission import FilterStanding, replay_entry
from dplangevin.ledger._rows import read_stored_guarantee
from dplangevin.ledger.entry import format_rounded_down
from unit._ledger import gaussian, make_guarantee, pure, tiny_data, tiny_plan


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}")


@given(st.lists(st.floats(1e-3, 2.0), max_size=30), st.floats(0.1, 30))
@settings(max_examples=100, deadline=None)
def test_pure_budgets_are_sums_of_exact_fractions(values: list[float], epsilon: float) -> None:
    rule = PrivacyFilter(epsilon=epsilon, delta=0.0)
    state, spent = rule.start(), Fraction(0)
    for value in values:
        charged = rule.charge(state, pure(value))
        assert (charged is not None) == (spent + Fraction(value) <= Fraction(epsilon))
        if charged is not None:
            state, spent = charged[0], spent + Fraction(value)
    assert state.epsilon == Fraction(epsilon) - spent
    assert rule.largest_mu(state) == 0
    assert rule.charge(state, gaussian(1e-9)) is None


def test_slacks_of_pairs_add_up(ledger: Ledger) -> None:
    """Three pairs of slack 0.3 delta fit, a fourth does not, before the split and after it."""
    budget = ledger.declare("a", epsilon=9, delta=1e-5)
    pair = make_guarantee(Approximate(value=0.01, slack=3e-6))
    for _ in range(3):
        budget.charge(pair)
    with pytest.raises(BudgetExceeded, match="needs delta = 3e-06 at every epsilon, and 1e-06 is left"):
        budget.charge(pair)
    split = ledger.declare("b", epsilon=9, delta=1e-5, delta_share=0.5)
    split.charge(gaussian(0.1))
    split.charge(make_guarantee(Approximate(value=0.01, slack=2.6e-6)))
    with pytest.raises(BudgetExceeded, match="needs delta = "):
        split.charge(make_guarantee(Approximate(value=0.01, slack=2.6e-6)))


def test_an_additive_delta_is_charged_with_every_kind_of_part() -> None:
    """extra_delta x beside A costs x / (1 - TV(A)) of the slack, rounded up; exact in closed form."""
    rule = PrivacyFilter(epsilon=4.0, delta=1e-4, delta_fraction=0.5, split_at_once=True)
    start = rule.start()
    for parts, overlap in (
        ((Gaussian(mu=0.5),), 2 * 0.4012936743170763),
        ((Pure(value=0.3),), 2 / (1 + math.exp(0.3))),
        (
            (Gaussian(mu=0.5), Pure(value=0.3, count=2)),
            2 * 0.4012936743170763 * (2 / (1 + math.exp(0.3))) ** 2,
        ),
        ((Approximate(value=0.3, slack=1e-6),), 2 / (1 + math.exp(0.3))),
        ((), 1.0),
    ):
        plain, more = make_guarantee(*parts), make_guarantee(*parts, extra_delta=1e-5)
        without, charged = rule.charge(start, plain, "parts"), rule.charge(start, more, "parts")
        assert without is not None
        assert charged is not None
        extra = float(without[0].slack - charged[0].slack)
        assert 1e-5 / overlap <= extra <= 1e-5 / overlap * (1 + 1e-10)
        assert charged[0].mu_squared == without[0].mu_squared
    assert rule.charge(start, make_guarantee(extra_delta=6e-5)) is None
    curve = make_guarantee(
        SampledGaussian(rate=0.01, noise_multiplier=2.0, sampling="poisson"), extra_delta=6e-5
    )
    assert rule.charge(start, curve) is None  # slower than any closed form, and the same answer


@pytest.mark.parametrize(
    "endless",
    [
        pure(math.inf),
        gaussian(math.inf),
        make_guarantee(Approximate(value=math.inf, slack=0.0)),
        make_guarantee(Approximate(value=0.1, slack=1.0)),
        pure(1e12),
        make_guarantee(Pure(value=1.0, count=100_000)),
        gaussian(1e200),
        make_guarantee(extra_delta=1.0),
    ],
    ids=str,
)
def test_endless_costs_never_fit(endless: Guarantee) -> None:
    for delta in (0.0, 0.5):
        for at_once in (False, True):
            rule = PrivacyFilter(epsilon=10.0, delta=delta, split_at_once=at_once)
            assert rule.charge(rule.start(), endless) is None


@pytest.mark.parametrize("spent", [(), (gaussian(0.4),), (pure(1.0),), (gaussian(0.3), pure(0.1))], ids=len)
def test_what_is_left_fits_and_much_more_does_not(ledger: Ledger, spent: tuple[Guarantee, ...]) -> None:
    for name, release in (("p", pure), ("g", gaussian)):
        budget = ledger.declare(name, epsilon=3, delta=1e-6)
        for each in spent:
            budget.charge(each)
        left = budget.remaining()
        size = left.pure_epsilon if name == "p" else left.gaussian_mu
        with pytest.raises(BudgetExceeded):
            budget.charge(release(1.01 * size))
        budget.charge(release(size))


def test_a_fit_that_asks_for_what_is_left_in_epsilon_fits(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=3, delta=1e-6)
    budget.charge(gaussian(0.2))
    left = budget.remaining()
    assert (
        f"one fit of epsilon = {format_rounded_down(left.gaussian_epsilon)} at delta = 1e-06"
        in left.fitting_text()
    )
    budget.charge(gaussian(cv.gdp_mu(left.gaussian_epsilon, 1e-6)))


def test_about_so_many_more_is_about_right(ledger: Ledger) -> None:
    for name, cost in (("fits", gaussian(0.02)), ("counts", pure(0.02))):
        budget = ledger.declare(name, epsilon=0.5, delta=1e-6, expects=name)
        budget.charge(cost)
        more, count = budget.remaining().n_more_like_last, 0
        with contextlib.suppress(BudgetExceeded):
            while True:
                budget.charge(cost)
                count += 1
        assert more is not None
        assert 0.9 * count <= more <= 1.1 * count
        assert budget.remaining().n_more_like_last == 0


def test_a_refusal_names_what_would_have_fitted_before_the_split(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=1, delta=1e-6)
    budget.charge(pure(0.25))
    budget.charge(gaussian(0.05))
    with pytest.raises(BudgetExceeded, match=r"before the budget was split .*pure epsilon = 0\.75"):
        budget.charge(pure(0.5))
    kept = ledger.declare("b", epsilon=1, delta=1e-6, pure_reserve=0.5)
    kept.charge(gaussian(0.05))
    kept.charge(pure(0.5))
    assert kept.history()[1].plan["charged"] == "reserve"


@given(st.floats(1e-12, 1e12))
@settings(max_examples=200, deadline=None)
def test_printed_sizes_are_rounded_down(size: float) -> None:
    assert 0.998 * size <= float(format_rounded_down(size)) <= size


@pytest.mark.parametrize("noise", [1e-300, 1e-8, 1e8, 1e300])
def test_costs_of_extreme_sizes_are_composed_or_refused_in_words(ledger: Ledger, noise: float) -> None:
    budget = ledger.declare("a", epsilon=3, delta=1e-5)
    extreme = make_guarantee(SampledGaussian(rate=0.01, noise_multiplier=noise, sampling="poisson"))
    budget.enter_release(extreme, "ab")
    for cost in (pure(0.01), extreme, gaussian(0.01)):
        with contextlib.suppress(LedgerError, BudgetExceeded):
            budget.charge(cost)
    with contextlib.suppress(LedgerError):
        assert budget.remaining().pure_epsilon >= 0


@pytest.mark.parametrize("epsilon", [5e-324, 1e-61, 1e61, 1e308])
def test_a_budget_of_extreme_size_is_refused_when_it_is_declared(ledger: Ledger, epsilon: float) -> None:
    """Nothing could be composed against it: every question would fail afterwards."""
    with pytest.raises(InvalidParameter, match="double precision is trusted"):
        ledger.declare("people", epsilon=epsilon, delta=1e-6)
    for least in (1e-60, 1e60):
        assert ledger.declare(f"people{least}", epsilon=least, delta=1e-6).remaining().pure_epsilon == least


def test_a_guarantee_of_a_class_of_ones_own_pays_for_nothing(ledger: Ledger) -> None:
    class Cheap(Guarantee):
        def group(self, size: int) -> Guarantee:
            return make_guarantee(Gaussian(mu=1e-9))

    budget = ledger.declare("people", epsilon=1.0, delta=1e-6)
    dear = make_guarantee(Pure(value=50.0))
    fields = {"adjacency": dear.adjacency, "release": "draw", "theorem": dear.theorem, "reference": ""}
    with pytest.raises(NotPrivateError, match="no guarantee"):
        budget.charge(Cheap(parts=dear.parts, **fields))
    with pytest.raises(BudgetExceeded):
        budget.charge(dear)
    assert budget.history() == ()


def test_refused_then_smaller_and_two_threads(ledger: Ledger) -> None:
    """A refusal costs nothing, and of two spenders at the end of a budget one is refused."""
    budget = ledger.declare("a", epsilon=2, delta=1e-6)
    budget.charge(gaussian(0.1))
    before = budget.remaining()
    with pytest.raises(BudgetExceeded):
        budget.charge(gaussian(1.1 * before.gaussian_mu))
    assert budget.remaining() == before
    half = gaussian(0.8 * before.gaussian_mu)

    def spend(_: int) -> bool:
        try:
            budget.charge(half)
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(spend, range(2))) == [False, True]
    budget.charge(gaussian(0.5 * before.gaussian_mu))


# --- what an entry says ------------------------------------------------------------------------------------------


def test_an_entry_says_how_it_was_charged_and_is_believed_about_no_amount(ledger: Ledger) -> None:
    """A spender with a program of its own may write anything: only the choice between valid charges is its own."""
    rule = PrivacyFilter(epsilon=3.0, delta=1e-5)
    start = FilterStanding(states={"": rule.start()})
    honest = replay_entry(rule, start, 1, "", gaussian(0.3), "{}").states[""]
    lies = (
        '"curve:1e-30"',
        '"reserve"',
        '"nothing"',
        "7",
        "[]",
        '{"": "curve:nan"}',
        '"curve:-1"',
        "null",
        '"sum"',
    )
    for lie in lies:
        found = replay_entry(rule, start, 1, "", gaussian(0.3), f'{{"charged": {lie}, "item_of": 1}}').states[
            ""
        ]
        assert found == honest or (found.mu_squared or 0) <= (honest.mu_squared or 0)
    for lie in ("[1", '{"programme": [{"parts": "[]", "extra_delta": 0}]}', '{"programme": "x"}'):
        assert replay_entry(rule, start, 1, "", gaussian(0.3), lie).programs == {}


def test_parts_that_stand_differently_are_charged_each_in_its_own_way(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=2, delta=1e-6, parts=["north", "south"])
    budget.for_part("north").charge(gaussian(0.1))
    budget.charge(pure(0.05))
    assert budget.history()[1].plan["charged"] == {"": "sum", "north": "parts"}
    north, south = budget.for_part("north").remaining(), budget.for_part("south").remaining()
    assert south.pure_epsilon == pytest.approx(1.95)
    assert budget.remaining().pure_epsilon == north.pure_epsilon < south.pure_epsilon
    _admission.clear_caches()
    assert budget.for_part("north").remaining() == north
    assert budget.for_part("south").remaining() == south


# --- programmes --------------------------------------------------------------------------------------------------


def test_a_programme_is_paid_once_and_each_item_is_used_once(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=1, delta=1e-6)
    costs = [gaussian(0.05), pure(0.02), gaussian(0.05), gaussian(0.02, extra_delta=1e-9)]
    programme = budget.reserve_program(costs)
    left = budget.remaining()
    assert left.n_unused_items == 4
    for cost in (costs[3], costs[0], costs[2]):
        programme.charge(cost)
    copy = ledger.dataset("a").open_program(programme.program_number or 0)
    for spender in (programme, copy):
        with pytest.raises(BudgetExceeded, match="no unused release"):
            spender.charge(gaussian(0.05))
    _admission.clear_caches()
    copy.charge(pure(0.02))
    with pytest.raises(BudgetExceeded, match="0 others are unused"):
        programme.charge(pure(0.02))
    assert (budget.remaining().gaussian_mu, budget.remaining().n_unused_items) == (left.gaussian_mu, 0)
    with pytest.raises(InvalidParameter, match="no programme"):
        budget.open_program(2)
    with pytest.raises(InvalidParameter, match="one or more guarantees"):
        budget.reserve_program([])
    with pytest.raises(BudgetExceeded):
        budget.reserve_program([gaussian(0.3)] * 2)


def test_a_token_uses_an_item_once_and_threads_share_a_programme(ledger: Ledger) -> None:
    programme = ledger.declare("a", epsilon=1, delta=1e-6).reserve_program([gaussian(0.01)] * 5)
    for _ in range(2):
        programme.reserve_with_token("mine", _CertifiedSpec(gaussian(0.01)))
    assert len(programme.history()) == 2

    def spend(_: int) -> bool:
        try:
            programme.charge(gaussian(0.01))
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(spend, range(8))) == 4


class _CertifiedSpec:
    def __init__(self, guarantee: Guarantee) -> None:
        self.guarantee = guarantee


def test_a_forged_item_is_charged(ledger: Ledger) -> None:
    """An entry that says it belongs to a programme which does not hold it costs what it costs."""
    rule = PrivacyFilter(epsilon=3.0, delta=1e-5)
    standing = FilterStanding(states={"": rule.start()})
    forged = replay_entry(rule, standing, 1, "", gaussian(0.3), '{"item_of": 9}')
    honest = replay_entry(rule, standing, 1, "", gaussian(0.3), "{}")
    assert forged.states == honest.states


def test_a_run_pays_with_its_programme(ledger: Ledger) -> None:
    from dplangevin import run_plan

    plan = tiny_plan()
    programme = ledger.declare("a", epsilon=9, delta=1e-5).reserve_program([plan, plan])
    run_plan(plan, tiny_data(plan), ledger=programme)
    assert programme.history()[1].plan["item_of"] == 1
    assert programme.remaining().n_unused_items == 1


def test_a_programme_has_the_exact_composition(ledger: Ledger) -> None:
    """As many as the composition of a fixed list allows, which is more than the filter admits one by one."""
    cost, epsilon, delta = pure(0.3), 2.0, 1e-5
    most = max(k for k in range(1, 60) if (k * cost).delta(epsilon) <= delta)
    programme = ledger.declare("a", epsilon=epsilon, delta=delta).reserve_program([cost] * most)
    for _ in range(most):
        programme.charge(cost)
    with pytest.raises(BudgetExceeded):
        ledger.declare("b", epsilon=epsilon, delta=delta).reserve_program([cost] * (most + 1))


# --- older ledgers, persons, many entries ------------------------------------------------------------------------


def _as_version_2(url: str) -> None:
    """The file as version 2 wrote it: the same chain, and no word about a split."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        for column in ("expects", "delta_share", "pure_reserve", "fixed_cost_entries"):
            connection.execute(f"ALTER TABLE dplangevin_dataset DROP COLUMN {column}")
        connection.execute("UPDATE dplangevin_ledger SET value = '2' WHERE name = 'schema'")


def test_a_ledger_of_version_2_is_replayed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dplangevin.ledger._rows.declared_budget", _declared_before)
    budget = ledger.declare("a", epsilon=1, delta=1e-6)
    monkeypatch.undo()
    _as_version_2(ledger.url)
    with pytest.raises(LedgerError, match="older version 2"):
        budget.remaining()
    assert "upgraded" in Ledger.upgrade(ledger.url)
    full = gaussian(cv.gdp_mu(1, 1e-6) / 2)
    for _ in range(3):
        budget.charge(full)
    head = budget.head()
    with pytest.raises(BudgetExceeded):
        budget.charge(full)
    budget.enter_release(full, "ab")  # what the rule of fixed costs admitted
    _as_version_2(ledger.url)
    Ledger.upgrade(ledger.url)
    _admission.clear_caches()
    left = budget.remaining()
    assert (left.n_fixed_cost_entries, left.n_over_budget, left.gaussian_mu, left.pure_epsilon) == (
        4,
        1,
        0,
        0,
    )
    assert left.exceptions_text() == (
        "the first 4 were admitted under the rule of fixed costs; 1 do not fit the filter"
    )
    Ledger.open(ledger.url, expect=head)
    with pytest.raises(BudgetExceeded, match="nothing more fits"):
        budget.charge(gaussian(0.01))


def _declared_before(owner: object) -> tuple[object, ...]:
    names = ("epsilon", "delta", "adjacency", "max_rows_per_person")
    return (*(getattr(owner, name) for name in names), int(owner.strict), owner.created)  # type: ignore[attr-defined]


def test_the_declared_split_cannot_be_altered(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=1, delta=1e-6, expects="fits")
    ledger.declare("a", expects="fits", delta_share=0.01)
    for other in ({"expects": "counts"}, {"delta_share": 0.5}, {"pure_reserve": 0.1}):
        with pytest.raises(InvalidParameter, match="does not change"):
            ledger.declare("a", **other)  # type: ignore[arg-type]
    for wrong in ({"expects": "all"}, {"delta_share": 1.0}, {"pure_reserve": 1.0}, {"pure_reserve": -1}):
        with pytest.raises(InvalidParameter):
            ledger.declare("b", epsilon=1, delta=1e-6, **wrong)  # type: ignore[arg-type]
    with closing(sqlite3.connect(ledger.url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE dplangevin_dataset SET delta_share = 0.9")
    with pytest.raises(LedgerError, match="not the one that was declared"):
        budget.remaining()


def test_admission_and_what_is_left_stay_fast(ledger: Ledger) -> None:
    """After many entries a charge takes milliseconds: the state is four numbers, however long the books are."""
    budget = ledger.declare("a", epsilon=5, delta=1e-6)
    budget.charge(gaussian(0.01))
    for i in range(60):
        budget.charge(pure(1e-3) if i % 2 else gaussian(1e-3))
    times = []
    for _ in range(10):
        start = time.process_time()
        budget.charge(pure(2e-3))
        times.append(time.process_time() - start)
    start = time.process_time()
    budget.remaining()
    assert time.process_time() - start < 0.5  # 0.02 s on an idle machine
    assert min(times) < 0.05  # 0.003 s on an idle machine


def test_a_person_of_several_rows_pays_for_the_group(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=4, delta=1e-5, max_rows_per_person=3, delta_share=0.5)
    budget.charge(gaussian(0.1, extra_delta=1e-8))
    (entry,) = budget.history()
    assert entry.guarantee.parts == (Gaussian(mu=cv.multiply_up(0.1, 3)),)
    assert entry.guarantee.extra_delta == cv.gdp_group_delta(0.1, 1e-8, 3) > 3e-8


@pytest.mark.parametrize("kind", CONDITION_KINDS)
def test_a_strict_data_set_charges_no_conditional_guarantee(kind: ConditionKind, tmp_path: Path) -> None:
    """Whoever asks: the ledger itself looks, not only estimators; how the text is spelled decides nothing."""
    ledger = Ledger.create(f"sqlite:///{tmp_path}/l.db")
    cost = replace(gaussian(0.1), conditions=(Condition(kind=kind, text="anything"),))
    with pytest.raises(InvalidParameter, match="strict"):
        ledger.declare("strict", epsilon=3.0, delta=1e-5, strict=True).charge(cost)
    assert not ledger.dataset("strict").history()
    other = ledger.declare("other", epsilon=3.0, delta=1e-5)
    assert other.charge(cost)
    assert other.history()[0].guarantee.conditions == cost.conditions
    harmless = replace(gaussian(0.1), assumptions=("CONDITIONAL on nothing: a sentence decides nothing",))
    assert ledger.dataset("strict").charge(harmless)


def test_a_programme_of_a_strict_data_set_holds_no_guarantee_with_a_hole(tmp_path: Path) -> None:
    strict = Ledger.create(f"sqlite:///{tmp_path}/strict.db").declare("s", epsilon=1, delta=1e-6, strict=True)
    with pytest.raises(InvalidParameter, match="strict"):
        strict.reserve_program(
            [pure(0.1), pure(0.1, conditions=(Condition(kind="public-labels", text="labels"),))]
        )
    assert not strict.history()


def test_an_item_is_used_on_the_part_of_its_programme(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/parts.db").declare(
        "s", epsilon=1, delta=0, parts=["a", "b"]
    )
    grid = budget.for_part("a").reserve_program([pure(0.1)])
    with pytest.raises(BudgetExceeded, match="no unused release"):
        replace(grid, part_name="b").charge(pure(0.1))


def test_a_token_pays_for_one_cost(tmp_path: Path) -> None:
    budget = Ledger.create(f"sqlite:///{tmp_path}/token.db").declare("s", epsilon=1, delta=0)
    budget.reserve_with_token("0" * 32, SimpleNamespace(guarantee=pure(0.1)))
    with pytest.raises(LedgerError, match="another release"):
        budget.reserve_with_token("0" * 32, SimpleNamespace(guarantee=pure(0.2)))
    assert len(budget.history()) == 1


def test_an_entry_of_the_first_version_keeps_its_conditions() -> None:
    """Its text is part of the chain and is not rewritten: the two marks of that version are read, once, here."""
    words = (
        "CONDITIONAL on labels",
        "a solver may fail; that event is outside the promise",
        "conditional on nothing",
    )
    plain = serialize.guarantee_to_plain(replace(gaussian(0.1), assumptions=words))
    del plain["conditions"]
    found = read_stored_guarantee(json.dumps({**plain, "version": 1}))
    assert [condition.text for condition in found.conditions] == ["labels", words[1]]
    assert {condition.kind for condition in found.conditions} == {"stated-in-words"}
    assert found.assumptions == words[2:]
    assert found.parts == gaussian(0.1).parts
    with pytest.raises(InvalidParameter):  # a text of this version without the field is damaged
        read_stored_guarantee(json.dumps(plain))
