"""The ledger: what is charged and when, what is refused and with which words, and what copies do."""

from __future__ import annotations

import copy
import json
import math
import pickle
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dplangevin import __version__
from dplangevin.accounting import conversions as cv
from dplangevin.accounting.delivery import BudgetAccount
from dplangevin.accounting.guarantee import NotPrivate
from dplangevin.accounting.parts import Approximate, Profile, Pure
from dplangevin.data import ArrayDataset
from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError, NotPrivateError
from dplangevin.estimators import DPLogisticRegression
from dplangevin.ledger import DatasetBudget, Ledger
from dplangevin.mechanisms.mechanism import run_plan
from unit._ledger import gaussian, make_guarantee, pure, tiny_data, tiny_plan


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}")


def admitted(budget: DatasetBudget, guarantee: Any, most: int = 1000) -> int:
    """How many equal releases fit."""
    for done in range(most):
        try:
            budget.charge(guarantee)
        except BudgetExceeded:
            return done
    return most


# --- the admission rule ------------------------------------------------------------------------------------------


def test_five_pure_releases_of_one_fit_in_five(ledger: Ledger) -> None:
    assert admitted(ledger.declare("a", epsilon=5, delta=0), pure(1.0)) == 5


def test_pure_budgets_are_added_exactly(ledger: Ledger) -> None:
    # 10 * 0.1 rounds to 1.0 in doubles, but ten times the double 0.1 is more than 1
    assert admitted(ledger.declare("a", epsilon=1, delta=0), pure(0.1)) == 9
    assert admitted(ledger.declare("b", epsilon=1, delta=0), pure(math.nextafter(0.1, 0))) == 10
    assert admitted(ledger.declare("c", epsilon=0.125, delta=0), pure(2.0**-9)) == 64


@pytest.mark.parametrize(("epsilon", "delta", "mu"), [(5.0, 1e-5, 0.3), (1.0, 1e-6, 0.05), (3.0, 1e-9, 0.11)])
def test_gaussian_releases_fit_as_often_as_exact_composition_says(
    ledger: Ledger, epsilon: float, delta: float, mu: float
) -> None:
    expected = math.floor((cv.gdp_mu(epsilon, delta) / mu) ** 2)
    assert float(cv.gdp_delta(mu * math.sqrt(expected), epsilon)) <= delta
    assert float(cv.gdp_delta(mu * math.sqrt(expected + 1), epsilon)) > delta
    assert admitted(ledger.declare("a", epsilon=epsilon, delta=delta), gaussian(mu)) == expected


def test_a_release_of_the_whole_budget_fits_once(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=1.3, delta=1e-7)
    assert admitted(budget, gaussian(cv.gdp_mu(1.3, 1e-7))) == 1
    assert budget.remaining().gaussian_mu < 1e-15
    four = ledger.declare("b", epsilon=1.3, delta=1e-7)
    share = four.remaining()  # a part of delta is kept apart once a second release may come
    assert share.gaussian_mu == cv.gdp_mu(1.3, 1e-7)
    kept = 0.1 * 1e-7
    split = cv.gdp_mu(1.3, (1e-7 - kept) / (1 - kept) * (1 - 1e-15))
    assert admitted(four, gaussian(split / 2 * (1 - 1e-12))) == 4


def test_pairs_fit_by_basic_composition_exactly(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=0.375, delta=3e-6)  # 0.125 is off the grid of loss distributions
    assert admitted(budget, make_guarantee(Approximate(value=0.125, slack=1e-6))) == 3


def test_composition_beats_the_sum_of_epsilons(ledger: Ledger) -> None:
    one = pure(0.1)
    assert admitted(ledger.declare("sums", epsilon=2, delta=1e-5), one) == 20
    count = admitted(ledger.declare("a", epsilon=2, delta=1e-5, expects="counts"), one)
    programme = ledger.declare("b", epsilon=2, delta=1e-5).reserve_program([one] * 27)
    assert admitted(programme, one) == 27
    assert count > 20
    assert (count * one).delta(2.0) <= 1e-5


def test_mixed_currencies_compose(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=4, delta=1e-5)
    spent = [gaussian(0.3), pure(0.5), make_guarantee(Approximate(value=0.2, slack=1e-7)), gaussian(0.4)]
    for release in spent:
        budget.charge(release)
    total = spent[0] + spent[1] + spent[2] + spent[3] + gaussian(budget.remaining().gaussian_mu)
    assert total.delta(4.0) <= 1e-5
    assert total.epsilon(1e-5) > 3.5  # little is given away


def test_an_additive_delta_is_charged_each_time(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=10, delta=1e-5)
    assert (
        admitted(budget, gaussian(0.001, extra_delta=2**-22)) == 4
    )  # 2^-22 is 2.4e-7, a tenth of delta is 1e-6
    wide = ledger.declare("c", epsilon=10, delta=1e-5, delta_share=0.8)
    assert admitted(wide, gaussian(0.001, extra_delta=2**-18)) == 2  # 2^-18 is 3.8e-6
    assert admitted(ledger.declare("b", epsilon=10, delta=0), pure(0.1, extra_delta=1e-12)) == 0


def test_an_infinite_cost_fits_nowhere(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=100, delta=0.5)
    for endless in (pure(math.inf), gaussian(math.inf)):
        assert admitted(budget, endless) == 0
    assert admitted(budget, pure(1e9)) == 0
    with pytest.raises(NotPrivateError, match="no guarantee"):
        budget.charge(NotPrivate("diagnosed only"))  # type: ignore[arg-type]


def test_a_refusal_says_what_is_left_and_what_would_fit(ledger: Ledger) -> None:
    budget = ledger.declare("census", epsilon=1, delta=0)
    budget.charge(pure(0.75))
    with pytest.raises(BudgetExceeded) as refused:
        budget.charge(pure(0.5))
    text = str(refused.value)
    for words in (
        "'census'",
        "epsilon = 1",
        "after 1 releases",
        "pure epsilon = 0.25 or less would fit",
    ):
        assert words in text
    budget.charge(pure(0.25))
    with pytest.raises(BudgetExceeded, match="nothing more fits"):
        budget.charge(pure(0.5))
    with pytest.raises(BudgetExceeded, match="no finite pure epsilon"):
        budget.charge(gaussian(0.1))


def test_what_would_fit_does_fit(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=2, delta=1e-5)
    budget.charge(gaussian(0.3))
    with pytest.raises(BudgetExceeded) as refused:
        budget.charge(gaussian(0.6))
    words = str(refused.value).split("GDP mu = ")[2]
    size = float(words.split()[0])
    assert size == pytest.approx(math.sqrt(cv.gdp_mu(2, 0.9e-5) ** 2 - 0.09), rel=1e-3)
    budget.charge(gaussian(size))


def test_pickled_refusals_keep_their_words(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded) as refused:
        ledger.declare("a", epsilon=1, delta=0).charge(pure(2.0))
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


# --- before, and whatever happens afterwards ---------------------------------------------------------------------


class WatchedData(ArrayDataset):
    """Data that notes what the ledger holds when it is first read."""

    seen: list[int]
    budget: DatasetBudget

    def gradient_sum(self, *arguments: Any, **options: Any) -> Any:
        self.seen.append(len(self.budget.history()))
        return super().gradient_sum(*arguments, **options)


def test_the_cost_is_written_before_data_is_read(ledger: Ledger) -> None:
    plan, budget = tiny_plan(), ledger.declare("a", epsilon=9, delta=1e-5)
    rng = np.random.default_rng(0)
    data = WatchedData(rng.standard_normal((20, 2)), np.zeros(20), plan.problem)
    data.seen, data.budget = [], budget
    release = run_plan(plan, data, ledger=budget)
    assert data.seen == [1, 1, 1]
    assert budget.history()[0].release_hash == release.digest()


def test_a_run_that_fails_stays_charged(ledger: Ledger) -> None:
    class Broken(WatchedData):
        def gradient_sum(self, *arguments: Any, **options: Any) -> Any:
            raise OSError("the disk went away")

    plan, budget = tiny_plan(), ledger.declare("a", epsilon=9, delta=1e-5)
    with pytest.raises(OSError, match="went away"):
        run_plan(plan, Broken(np.zeros((20, 2)), np.zeros(20), plan.problem), ledger=budget)
    (entry,) = budget.history()
    assert entry.release_hash is None
    kept, mu = cv.gdp_mu(9, 0.9e-5), plan.guarantee.mu
    assert mu is not None
    assert budget.remaining().gaussian_mu == pytest.approx(math.sqrt(kept**2 - mu**2), rel=1e-5)


def test_a_refused_run_reads_nothing(ledger: Ledger) -> None:
    plan, budget = tiny_plan(), ledger.declare("a", epsilon=1e-3, delta=1e-5)
    data = WatchedData(np.zeros((20, 2)), np.zeros(20), plan.problem)
    data.seen, data.budget = [], budget
    with pytest.raises(BudgetExceeded):
        run_plan(plan, data, ledger=budget)
    assert data.seen == []
    assert budget.history() == ()


def test_an_entry_tells_who_what_and_when(ledger: Ledger) -> None:
    plan = tiny_plan()
    budget = ledger.declare("a", epsilon=9, delta=1e-5).with_label("Ada: first look")
    release = run_plan(plan, tiny_data(plan), ledger=budget)
    (entry,) = budget.history()
    assert (entry.sequence, entry.label, entry.part) == (1, "Ada: first look", "")
    assert (entry.guarantee.theorem, entry.library) == ("composition", __version__)
    assert entry.guarantee == plan.guarantee
    assert entry.plan["mechanism"] == plan.spec.mechanism
    assert entry.plan["spec"]["noise_std"] == 0.5
    assert entry.plan["constants"]["n"] == 20
    assert entry.release_hash == release.digest()
    assert entry.created <= (entry.released or "")


def test_tokens_are_for_one_release(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=9, delta=0)
    token = budget.charge(pure(1.0))
    budget.commit(token, "aa")
    budget.commit(token, "aa")
    with pytest.raises(LedgerError, match="another release"):
        budget.commit(token, "bb")
    with pytest.raises(LedgerError, match="never charged"):
        budget.commit("no such token", "aa")
    with pytest.raises(LedgerError, match="never charged"):
        ledger.declare("b", epsilon=9, delta=0).commit(token, "aa")
    with pytest.raises(InvalidParameter, match="release_hash"):
        budget.commit(token, "a\n")
    assert [entry.release_hash for entry in budget.history()] == ["aa"]


def test_a_clock_that_goes_backwards_is_harmless(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = ledger.declare("a", epsilon=3, delta=0)
    times = iter(["2030-01-01", "1970-01-01", "2025-06-01"])
    monkeypatch.setattr("dplangevin.ledger.budget._timestamp", lambda: next(times))
    for size in (0.25, 0.5, 0.75):
        budget.charge(pure(size))
    assert [entry.sequence for entry in budget.history()] == [1, 2, 3]
    assert [entry.guarantee.epsilon() for entry in budget.history()] == [0.25, 0.5, 0.75]
    assert budget.remaining().pure_epsilon == 1.5


# --- copies ------------------------------------------------------------------------------------------------------


def test_copies_charge_the_same_row(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = ledger.declare("a", epsilon=5, delta=0)
    estimator = clone(DPLogisticRegression(ledger=budget))
    monkeypatch.chdir(tmp_path.parent)
    copies = [
        copy.copy(budget),
        copy.deepcopy(budget),
        pickle.loads(pickle.dumps(budget)),
        estimator.ledger,
        ledger.dataset("a"),
    ]
    for spender in copies:
        assert isinstance(spender, BudgetAccount)
        assert spender == budget
        spender.charge(pure(1.0))
    with pytest.raises(BudgetExceeded):
        budget.charge(pure(1.0))


def test_a_relative_path_means_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    budget = Ledger.create("sqlite:///ledger.db").declare("a", epsilon=5, delta=0)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    pickle.loads(pickle.dumps(budget)).charge(pure(1.0))
    assert budget.remaining().pure_epsilon == 4.0
    assert not (tmp_path / "elsewhere" / "ledger.db").exists()


# --- declarations ------------------------------------------------------------------------------------------------


def test_a_declared_budget_does_not_change(ledger: Ledger) -> None:
    ledger.declare("a", epsilon=1, delta=1e-6, adjacency="add-remove")
    ledger.dataset("a")
    ledger.declare("a", epsilon=1.0, delta=1e-6)
    for other in ({"epsilon": 2}, {"delta": 1e-5}, {"adjacency": "replace-one"}, {"max_rows_per_person": 2}):
        with pytest.raises(InvalidParameter, match="does not change"):
            ledger.declare("a", **other)  # type: ignore[arg-type]
    assert ledger.dataset_names() == ("a",)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": -1, "delta": 0}, "epsilon"),
        ({"epsilon": 0, "delta": 0}, "epsilon"),
        ({"epsilon": math.inf, "delta": 0}, "epsilon"),
        ({"epsilon": math.nan, "delta": 0}, "epsilon"),
        ({"epsilon": "1", "delta": 0}, "epsilon"),
        ({"epsilon": 1, "delta": -1e-9}, "delta"),
        ({"epsilon": 1, "delta": 1}, "delta"),
        ({"epsilon": 1, "delta": False}, "delta"),
        ({"epsilon": 1}, "delta missing"),
        ({"delta": 0}, "epsilon missing"),
        ({}, "epsilon and delta missing"),
        ({"epsilon": 1, "delta": 0, "adjacency": "swap"}, "adjacency"),
        ({"epsilon": 1, "delta": 0, "max_rows_per_person": 0}, "max_rows_per_person"),
        ({"epsilon": 1, "delta": 0, "strict": "yes"}, "strict"),
        ({"epsilon": 1, "delta": 0, "parts": ["north", "so\x1b[31muth"]}, "part"),
    ],
)
def test_bad_declarations_are_refused(ledger: Ledger, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        ledger.declare("a", **options)
    assert ledger.dataset_names() == ()


@pytest.mark.parametrize(
    "label", ["a\tb", "\x00", "a\x1b[2J", "\u202eabc", "a\u2028b", "\ud800", " a", "a" * 201, 3, None, b"a"]
)
def test_labels_are_one_visible_line(ledger: Ledger, label: Any) -> None:
    budget = ledger.declare("a", epsilon=1, delta=0)
    with pytest.raises(InvalidParameter, match="label"):
        budget.with_label(label)
    with pytest.raises(InvalidParameter, match="label"):
        DatasetBudget(url=budget.url, name="a", label=label).charge(pure(0.5))
    assert budget.history() == ()


def test_labels_may_use_any_script(ledger: Ledger) -> None:
    budget = ledger.declare("données 中文", epsilon=1, delta=0).with_label("Ødegård: été")
    budget.charge(pure(0.5))
    assert ledger.dataset("donne\u0301es 中文").history()[0].label == "Ødegård: été"


def test_another_adjacency_is_refused(ledger: Ledger) -> None:
    plan, budget = tiny_plan("add-remove"), ledger.declare("a", epsilon=9, delta=1e-5)
    with pytest.raises(InvalidParameter, match=r"add-remove.*replace-one"):
        run_plan(plan, tiny_data(plan), ledger=budget)
    assert budget.history() == ()


def test_an_unknown_data_set_is_an_error(ledger: Ledger) -> None:
    stray = DatasetBudget(url=ledger.url, name="nowhere")
    for ask in (stray.history, stray.remaining, lambda: stray.charge(pure(0.1))):
        with pytest.raises(LedgerError, match="no data set 'nowhere'"):
            ask()


def test_a_person_with_several_rows(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=6, delta=0, max_rows_per_person=3)
    assert admitted(budget, pure(0.5)) == 4
    assert budget.history()[0].guarantee.epsilon() == 1.5
    with pytest.raises(InvalidParameter, match="group"):
        budget.charge(pure(0.1, extra_delta=1e-9))


# --- disjoint parts ----------------------------------------------------------------------------------------------


def test_disjoint_parts_do_not_add_up(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=2, delta=0, parts=["north", "south"])
    north, south = budget.for_part("north"), budget.for_part("south")
    budget.charge(pure(0.5))
    assert admitted(north, pure(0.5)) == 3
    assert admitted(south, pure(0.25)) == 6
    assert admitted(budget, pure(0.125)) == 0  # every record of the north has spent all
    assert [entry.part for entry in budget.history()] == [""] + ["north"] * 3 + ["south"] * 6
    assert budget.remaining().pure_epsilon == 0.0


def test_the_whole_pays_for_the_part_that_spent_most(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=2, delta=0, parts=["north", "south"])
    budget.for_part("north").charge(pure(1.5))
    budget.for_part("south").charge(pure(1.0))
    assert budget.remaining().pure_epsilon == 0.5
    assert budget.for_part("south").remaining().pure_epsilon == 1.0
    budget.charge(pure(0.5))
    with pytest.raises(BudgetExceeded, match="part 'north'"):
        budget.for_part("north").charge(pure(0.1))
    budget.for_part("south").charge(pure(0.5))


def test_parts_are_declared_by_name(ledger: Ledger) -> None:
    budget = ledger.declare("a", epsilon=2, delta=0, parts=["north"])
    with pytest.raises(InvalidParameter, match="no part 'Norther'"):
        budget.for_part("Norther")
    assert budget.for_part("North") == budget.for_part("north")
    with pytest.raises(InvalidParameter, match="no part 'west'"):
        DatasetBudget(url=budget.url, name="a", part_name="west").charge(pure(0.1))
    ledger.declare("a", parts="west").for_part("west").charge(pure(0.1))
    copied = pickle.loads(pickle.dumps(budget.for_part("north")))
    copied.charge(pure(0.1))
    assert [entry.part for entry in budget.history()] == ["west", "north"]


# --- many entries, export ----------------------------------------------------------------------------------------


def test_equal_guarantees_are_kept_once(ledger: Ledger, tmp_path: Path) -> None:
    budget = ledger.declare("a", epsilon=50, delta=0)
    for _ in range(20):
        budget.charge(pure(0.5))
    budget.charge(pure(0.25))
    with sqlite3.connect(tmp_path / "ledger.db") as connection:
        assert connection.execute("SELECT COUNT(*) FROM dplangevin_guarantee").fetchone() == (2,)
    connection.close()


def test_export_is_complete_json(ledger: Ledger) -> None:
    curve = make_guarantee(Profile(epsilons=(0.0, 1.0), deltas=(1e-7, 0.0)), Pure(value=0.1))
    first = ledger.declare("a", epsilon=2, delta=1e-5, parts=["n"])
    first.for_part("n").with_label("x").charge(curve)
    ledger.declare("b", epsilon=1, delta=0, adjacency="add-remove")
    plain = json.loads(json.dumps(ledger.export(), allow_nan=False))
    assert (plain["format"], plain["version"]) == ("dplangevin-ledger", 3)
    a, b = plain["datasets"]
    assert (a["name"], a["epsilon"], a["delta"], a["parts"]) == ("a", 2.0, 1e-5, ["n"])
    assert b["entries"] == []
    assert a["entries"] == [entry.to_dict() for entry in first.history()]
    assert "token" not in a["entries"][0]
