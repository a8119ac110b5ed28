"""Who makes a ledger, and what opening one never does; names that could be taken for one another; older versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dplangevin.errors import BudgetExceeded, InvalidParameter, LedgerError
from dplangevin.ledger import Ledger
from dplangevin.ledger.entry import check_name, comparison_key
from unit._ledger import pure
from unit._ledger_version_1 import written


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(f"sqlite:///{tmp_path / 'ledger.db'}")


def test_opening_never_creates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Ledger.create("sqlite:///budgets.db").declare("census", epsilon=1, delta=0).charge(pure(1.0))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder, url in ((tmp_path, "sqlite:///budget.db"), (elsewhere, "sqlite:///budgets.db")):
        monkeypatch.chdir(folder)
        with pytest.raises(LedgerError, match=r"no ledger sqlite:///.*ledger init.*Nothing was created"):
            Ledger.open(url)
    assert list(elsewhere.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    assert Ledger.open("sqlite:///budgets.db").display_url == f"sqlite:///{tmp_path}/budgets.db"


def test_a_ledger_is_created_once(ledger: Ledger) -> None:
    ledger.declare("a", epsilon=1, delta=0).charge(pure(1.0))
    with pytest.raises(LedgerError, match=r"there is a file already.*Ledger\.open"):
        Ledger.create(ledger.url)
    assert Ledger.open(ledger.url).dataset("a").remaining().pure_epsilon == 0.0


def test_a_data_set_is_declared_and_then_opened(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match=r"no data set 'census'; it has: none.*declare"):
        ledger.dataset("census")
    assert not ledger.declare("census", epsilon=1, delta=0).strict
    assert ledger.declare("clinics", epsilon=1, delta=0, strict=True).strict
    with pytest.raises(InvalidParameter, match="does not change"):
        ledger.declare("census", strict=True)
    with pytest.raises(TypeError):
        ledger.dataset("census", epsilon=2.0)  # type: ignore[call-arg]
    with pytest.raises(LedgerError, match=r"no data set 'cens'; it has: 'census', 'clinics'"):
        ledger.dataset("cens")


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("census", "Census"),
        ("census", "CENSUS"),
        ("census", "\uff43ensus"),  # a full-width letter
        ("file1", "fileI"),
        ("model", "rnodel"),
        ("a-b", "a\u2013b"),
        ("co", "c0"),
        ("cope", "\u0441\u043e\u0440\u0435"),  # Cyrillic, every letter of it
        ("ao", "\u03b1\u03bf"),  # Greek
        ("straße", "STRASSE"),
        ("census", "\u1d04\u1d07\u0274\ua731\u1d1c\ua731"),  # small capitals
        ("a b", "a  b"),
        ("a-b", "a\u2212b"),  # a minus sign
        ("ada's", "ada\u2019s"),
        ("wave", "vvave"),
        ("d1", "d|"),
    ],
)
def test_names_that_look_alike_are_one_budget(ledger: Ledger, name: str, alike: str) -> None:
    first = ledger.declare(name, epsilon=1, delta=0, parts=[name])
    first.charge(pure(0.75))
    assert ledger.dataset(alike) == first
    assert ledger.declare(alike, epsilon=1, delta=0, parts=[alike]) == first
    assert ledger.dataset_names() == (name,)
    with pytest.raises(InvalidParameter, match="does not change"):
        ledger.declare(alike, epsilon=2, delta=0)
    with pytest.raises(BudgetExceeded):
        ledger.dataset(alike).for_part(alike).charge(pure(0.5))


@pytest.mark.parametrize(
    "letter", ["\ufe0f", "\u034f", "\u3164", "\u115f", "\u2800", "\u17b4", "\u180b", "\U000e0100"]
)
def test_invisible_letters_are_refused(ledger: Ledger, letter: str) -> None:
    ledger.declare("census", epsilon=1, delta=0)
    with pytest.raises(InvalidParameter, match="invisible"):
        ledger.declare(f"cen{letter}sus", epsilon=1, delta=0)
    with pytest.raises(InvalidParameter, match="invisible"):
        ledger.declare("census", parts=[f"a{letter}"])
    with pytest.raises(LedgerError, match="no data set"):
        ledger.dataset(f"census{letter}")


@pytest.mark.parametrize(
    "name", ["c\u0435nsus", "\u03b1bc", "cen\u0455us", "cen\u05e1us", "x\u0967", "\u09e6o"]
)
def test_mixed_alphabets_are_refused(ledger: Ledger, name: str) -> None:
    with pytest.raises(InvalidParameter, match="look alike"):
        ledger.declare(name, epsilon=1, delta=0)


def test_names_that_differ_stay_apart(ledger: Ledger) -> None:
    names = [
        "census 2020",
        "census 2021",
        "north",
        "south",
        "été",
        "ete",
        "данные",
        "데이터",
        "数据 x",
        "データ",
        "2020年",
        "نتائج",
    ]
    for name in names:
        ledger.declare(name, epsilon=1, delta=0)
    assert sorted(ledger.dataset_names()) == sorted(names)


@given(st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20))
def test_comparing_is_stable_and_blind_to_case(name: str) -> None:
    try:
        check_name("name", name)
    except InvalidParameter:
        return
    assert comparison_key(name.casefold()) == comparison_key(name)
    assert comparison_key(comparison_key(name)) == comparison_key(name)


# --- older versions ----------------------------------------------------------------------------------------------


def test_an_older_ledger_is_upgraded_with_every_charge(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    charges = [("a", "", f"token{i}", pure(0.25 * i)) for i in range(1, 4)]
    charges += [("b", "north", "other", pure(1.0)), ("B", "", "third", pure(2.0))]
    written(file, charges)
    with pytest.raises(LedgerError, match="ledger upgrade"):
        Ledger.open(f"sqlite:///{file}")
    words = Ledger.upgrade(f"sqlite:///{file}")
    ledger = Ledger.open(f"sqlite:///{file}")
    budget = ledger.dataset("a")
    assert [entry.guarantee.epsilon() for entry in budget.history()] == [0.25, 0.5, 0.75]
    assert {entry.release_hash for entry in budget.history()} == {"ab"}
    assert budget.remaining().pure_epsilon == 3.5
    assert budget.remaining().exceptions_text() == "the first 3 were admitted under the rule of fixed costs"
    assert budget.was_charged("token2")
    assert not budget.was_charged("other")
    assert ledger.dataset("b").for_part("north").remaining().pure_epsilon == 4.0
    assert ledger.dataset("B").remaining().pure_epsilon == 3.0  # two names of old stay what they were
    ledger.verify(*ledger.heads().values())
    budget.charge(pure(3.5))
    with pytest.raises(BudgetExceeded):
        budget.charge(pure(0.1))
    with pytest.raises(LedgerError, match="version 3 already"):
        Ledger.upgrade(ledger.url)
    kept = Path(words.rpartition(" ")[2])
    assert kept.is_file()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_names_that_would_be_refused_now_stay_open(tmp_path: Path) -> None:
    name = "c\u0435nsus"  # the second letter is Cyrillic
    written(tmp_path / "old.db", [(name, "n\u043erth", "t", pure(0.5))])
    Ledger.upgrade(f"sqlite:///{tmp_path}/old.db")
    ledger = Ledger.open(f"sqlite:///{tmp_path}/old.db")
    assert ledger.dataset(name).for_part("n\u043erth").remaining().pure_epsilon == 4.5
    assert ledger.dataset("census").name == name


def test_damage_is_found_before_an_upgrade(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    file = tmp_path / "old.db"
    written(file, [("a", "", "t", pure(0.5))])
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE dplangevin_guarantee SET content = replace(content, '0.5', '0.1')")
    with pytest.raises(LedgerError, match="altered"):
        Ledger.upgrade(f"sqlite:///{file}")
    with pytest.raises(LedgerError, match="ledger upgrade"):
        Ledger.open(f"sqlite:///{file}")
