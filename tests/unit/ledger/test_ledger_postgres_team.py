"""PostgreSQL for a team: three real roles, lines that stall or are cut, other search paths, older versions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from dplangevin.accounting import serialize
from dplangevin.errors import InvalidParameter, LedgerError
from dplangevin.ledger import DatasetBudget, Ledger, _postgres as postgres_store
from dplangevin.ledger.ledger import inspect_ledger
from unit._ledger import pure
from unit._ledger_version_1 import TABLES, statements
from unit._postgres import server
from unit._proxy import Proxy, proxy


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with server() as url:
        for role in ("owner", "spender", "reader", "stranger"):
            execute(url, f"CREATE ROLE {role} LOGIN")
        yield url


@pytest.fixture
def url(server_url: str) -> str:
    execute(server_url, "DROP SCHEMA IF EXISTS other CASCADE")
    execute(server_url, "DROP SCHEMA IF EXISTS public CASCADE")
    execute(server_url, "CREATE SCHEMA public AUTHORIZATION owner")
    return server_url


def execute(url: str, statement: str, *values: Any) -> list[Any]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(statement, values or None)  # type: ignore[call-overload]
        return found.fetchall() if found.description else []


def as_role(url: str, role: str) -> str:
    return url.replace("//ledger@", f"//{role}@")


@pytest.fixture
def roles(url: str) -> dict[str, str]:
    """URLs of the owner of a ledger with one data set, a spender, a reader and a stranger."""
    found = {role: as_role(url, role) for role in ("owner", "spender", "reader", "stranger")}
    ledger = Ledger.create(found["owner"])
    ledger.declare("a", epsilon=5, delta=0, parts=["north"])
    ledger.grant("spender", "spender")
    ledger.grant("reader", "reader")
    return found


# --- roles -------------------------------------------------------------------------------------------------------


def test_spenders_spend_and_readers_read(roles: dict[str, str]) -> None:
    spender = Ledger.open(roles["spender"]).dataset("a", label="Ada")
    token = spender.charge(pure(1.0))
    other = spender.for_part("north").charge(pure(0.5))
    assert spender.commit(token, "ab") == spender.history()[0].head
    reader = Ledger.open(roles["reader"])
    assert reader.dataset("a").remaining().entries == 2
    reader.verify(spender.head())
    assert reader.export()["datasets"][0]["entries"][0]["label"] == "Ada"
    with pytest.raises(LedgerError, match="may not do that"):
        reader.dataset("a").charge(pure(0.5))
    with pytest.raises(LedgerError, match="charged, not released"):
        reader.dataset("a").commit(other, "cd")
    with pytest.raises(LedgerError, match=r"may not do that|no ledger"):
        Ledger.open(roles["stranger"]).dataset("a")
    assert len(spender.history()) == 2


@pytest.mark.parametrize("role", ["spender", "reader"])
def test_only_the_owner_declares_and_grants(roles: dict[str, str], role: str) -> None:
    ledger = Ledger.open(roles[role])
    for ask in (
        lambda: ledger.declare("b", epsilon=9, delta=0),
        lambda: ledger.declare("a", parts=["south"]),
        lambda: ledger.grant("stranger", "spender"),
    ):
        with pytest.raises(LedgerError, match=r"may not do that|only the owner"):
            ask()
    assert Ledger.open(roles["owner"]).dataset_names() == ("a",)
    with pytest.raises(LedgerError, match=r"may not do that|no ledger"):
        Ledger.open(roles["stranger"]).dataset("a").charge(pure(0.1))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE dplangevin_dataset SET epsilon = 100",
        "UPDATE dplangevin_dataset SET entries = 0, head = genesis",
        "DELETE FROM dplangevin_entry",
        "UPDATE dplangevin_entry SET label = 'Bob'",
        "UPDATE dplangevin_guarantee SET content = ''",
        "INSERT INTO dplangevin_part VALUES ('a', 'fresh', 'fresh')",
        "INSERT INTO dplangevin_dataset VALUES ('b', 9, 0, 'replace-one', 1, 'now', 0, 'b', 0, 'x', 'x')",
        "INSERT INTO dplangevin_ledger VALUES ('x', 'y')",
        "DROP TABLE dplangevin_entry",
        "TRUNCATE dplangevin_entry",
        "ALTER TABLE dplangevin_dataset DISABLE TRIGGER ALL",
        "CREATE OR REPLACE FUNCTION dplangevin_note(text, text, text, text) RETURNS void LANGUAGE sql AS 'SELECT'",
        "ALTER FUNCTION dplangevin_note(text, text, text, text) SECURITY INVOKER",
    ],
)
def test_a_spender_cannot_touch_the_tables(roles: dict[str, str], statement: str) -> None:
    import psycopg

    budget = Ledger.open(roles["spender"]).dataset("a")
    budget.charge(pure(1.0))
    head = budget.head()
    for role in ("spender", "reader", "stranger"):
        with pytest.raises(psycopg.Error):
            execute(roles[role], statement)
    Ledger.open(roles["reader"], expect=head)
    assert budget.remaining().epsilon == 5


_RAISES = "LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'UPDATE public.dplangevin_dataset SET epsilon = 100'; RETURN {}; END $$"
_HIJACKS = (  # each fits the library's call better than the system's own function does
    "convert_to(text, text) RETURNS bytea " + _RAISES.format("pg_catalog.convert_to($1, 'UTF8'::name)"),
    f"concat_ws({', '.join(['text'] * 10)}) RETURNS text " + _RAISES.format("'x'"),
    "concat(text, text, text) RETURNS text " + _RAISES.format("'x'"),
    "quote_ident(name) RETURNS text " + _RAISES.format("pg_catalog.quote_ident($1::text)"),
    "has_schema_privilege(text, text, text) RETURNS boolean " + _RAISES.format("true"),
)


@pytest.mark.parametrize("hijack", _HIJACKS, ids=lambda text: text.partition("(")[0])
def test_functions_beside_the_ledger_never_run_with_the_owners_rights(
    roles: dict[str, str], url: str, hijack: str
) -> None:
    """Up to PostgreSQL 14 everybody may create in the schema `public`."""
    budget = Ledger.open(roles["spender"]).dataset("a")
    token, content = budget.charge(pure(1.0)), serialize.guarantee_to_json(pure(0.1))
    head = budget.head().partition("-")[2]
    execute(url, "GRANT CREATE ON SCHEMA public TO spender")
    execute(roles["spender"], f"CREATE FUNCTION public.{hijack}")
    # straight at the functions, past this library
    values = ["a", head, "ab" * 32, "", "", "now", postgres_digest(content), content, "{}", "x"]
    assert execute(
        roles["spender"], "SELECT dplangevin_append(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)", *values
    ) == [(True,)]
    execute(roles["spender"], "SELECT dplangevin_note('a', %s, 'ab', 'now')", token)
    for ask in (
        lambda: Ledger.open(roles["owner"]).grant("stranger", "reader"),
        lambda: Ledger.open(roles["owner"]).declare("b", epsilon=1, delta=0),
        lambda: Ledger.open(roles["reader"]).dataset("a"),
        lambda: budget.charge(pure(0.1)),
    ):
        with pytest.raises(LedgerError, match="REVOKE CREATE ON SCHEMA public FROM spender"):
            ask()
    assert execute(url, "SELECT epsilon FROM public.dplangevin_dataset") == [(5.0,)]
    execute(url, "REVOKE CREATE ON SCHEMA public FROM spender")
    assert [entry.release_hash for entry in budget.history()] == ["ab", None]


def test_no_ledger_is_made_where_everybody_may_create(url: str) -> None:
    execute(url, "GRANT USAGE, CREATE ON SCHEMA public TO PUBLIC")
    with pytest.raises(LedgerError, match="REVOKE CREATE ON SCHEMA public FROM PUBLIC"):
        Ledger.create(as_role(url, "owner"))
    execute(url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    Ledger.create(as_role(url, "owner")).declare("a", epsilon=1, delta=0)


def test_a_role_that_can_become_the_owner_is_no_spender(roles: dict[str, str], url: str) -> None:
    execute(url, "DROP ROLE IF EXISTS sly")
    execute(url, "CREATE ROLE sly LOGIN NOINHERIT")
    execute(url, "GRANT owner TO sly")
    ledger = Ledger.open(roles["owner"])
    for role in ("sly", "owner", "ledger"):
        with pytest.raises(InvalidParameter, match="can do everything"):
            ledger.grant(role, "spender")
    execute(url, "REVOKE owner FROM sly")
    execute(url, "GRANT UPDATE ON public.dplangevin_dataset TO PUBLIC")
    with pytest.raises(LedgerError, match="no other rights"):
        ledger.grant("sly", "spender")
    execute(url, "REVOKE UPDATE ON public.dplangevin_dataset FROM PUBLIC")
    ledger.grant("sly", "spender")
    Ledger.open(as_role(url, "sly")).dataset("a").charge(pure(0.5))
    ledger.grant("sly", "nothing")
    execute(url, "DROP OWNED BY sly")


def test_a_spender_can_append_only_true_links(roles: dict[str, str]) -> None:
    import psycopg

    budget = Ledger.open(roles["spender"]).dataset("a")
    budget.charge(pure(1.0))
    head, content = budget.head().partition("-")[2], serialize.guarantee_to_json(pure(0.1))
    call = "SELECT dplangevin_append(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
    good = ["a", head, "ab" * 32, "", "", "now", "", content, "{}", "x"]
    for place, lie in (
        (6, "00" * 32),
        (2, "short"),
        (3, "fresh part"),
        (4, "two\nlines"),
        (4, None),
        (7, None),
    ):
        values = list(good)
        values[6] = postgres_digest(content)
        values[place] = lie
        with pytest.raises(psycopg.Error):
            execute(roles["spender"], call, *values)
    good[6] = postgres_digest(content)
    assert execute(roles["spender"], call, *["0" * 64 if word == head else word for word in good]) == [
        (False,)
    ]
    assert len(budget.history()) == 1
    others = execute(roles["spender"], "SELECT token FROM dplangevin_entry")[0][0]
    execute(
        roles["spender"], "SELECT dplangevin_note('a', %s, 'ff', 'now')", others
    )  # the hash is not the token
    assert budget.history()[0].release_hash is None


def postgres_digest(content: str) -> str:
    from dplangevin.ledger._rows import content_digest

    return content_digest(content)


def test_the_doctor_knows_the_roles(roles: dict[str, str]) -> None:
    for role, state in (("owner", "warning"), ("spender", "ok"), ("reader", "ok")):
        found = {each.subject: each for each in inspect_ledger(roles[role])}
        assert found["ledger permissions"].message.startswith(f"role {role} is {role}")
        assert (found["ledger permissions"].status, found["server clock"].status) == (state, "ok")
    assert [each.status for each in inspect_ledger(roles["stranger"])] == ["failure"]


def test_a_grant_is_taken_back(roles: dict[str, str]) -> None:
    owner = Ledger.open(roles["owner"])
    owner.grant("spender", "nothing")
    with pytest.raises(LedgerError, match=r"may not do that|no ledger"):
        Ledger.open(roles["spender"])
    with pytest.raises(InvalidParameter, match="one of spender, reader, nothing"):
        owner.grant("spender", "king")
    with pytest.raises(InvalidParameter, match="no role"):
        owner.grant("nobody at all", "reader")
    with pytest.raises(InvalidParameter, match="pg_dump"):
        owner.backup("x.db")


# --- where it is -------------------------------------------------------------------------------------------------


def test_another_search_path_is_no_new_ledger(url: str) -> None:
    Ledger.create(url).declare("a", epsilon=1, delta=0)
    execute(url, "CREATE SCHEMA other")
    elsewhere = f"{url}?options=-c%20search_path%3Dother"
    with pytest.raises(LedgerError, match="but one in schema public: set search_path"):
        Ledger.open(elsewhere)
    with pytest.raises(LedgerError, match=r"holds a ledger already \(in schema public\)"):
        Ledger.create(elsewhere)
    assert execute(url, "SELECT COUNT(*) FROM pg_class WHERE relname = 'dplangevin_ledger'") == [(1,)]


def test_an_older_ledger_is_upgraded(url: str) -> None:
    import psycopg

    for statement in TABLES.split(";"):
        if statement.strip():
            execute(url, statement)
    for statement, values in statements([("a", "n", "one", pure(1.0)), ("a", "", "two", pure(2.0))]):
        execute(url, statement.replace("?", "%s"), *values)
    for role in ("spender", "PUBLIC"):
        execute(url, f"GRANT SELECT, INSERT, UPDATE ON dplangevin_dataset, dplangevin_entry TO {role}")
    with pytest.raises(LedgerError, match="ledger upgrade"):
        Ledger.open(url)
    Ledger.upgrade(url)
    execute(url, "GRANT USAGE ON SCHEMA public TO spender")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(as_role(url, "spender"), "UPDATE dplangevin_dataset SET epsilon = 100")
    budget = Ledger.open(url).dataset("a")
    assert budget.remaining().pure_epsilon == 2.0
    assert budget.remaining().n_fixed_cost_entries == 2
    assert budget.was_charged("two")
    budget.charge(pure(2.0))
    Ledger.open(url).verify(budget.head())


# --- stalls and cuts ---------------------------------------------------------------------------------------------


@pytest.fixture
def line(url: str) -> Iterator[tuple[Proxy, DatasetBudget, DatasetBudget]]:
    """A budget behind a line that can go dead, and the same one on a good line."""
    port = urlsplit(url).port
    assert port is not None
    direct = Ledger.create(url).declare("a", epsilon=1000, delta=0)
    with proxy(port) as found:
        yield found, replace(direct, url=url.replace(f":{port}", f":{found.port}")), direct


def test_a_silent_server_is_not_waited_for_without_end(
    line: tuple[Proxy, DatasetBudget, DatasetBudget], monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, budget, direct = line
    monkeypatch.setattr(postgres_store, "WAIT_SECONDS", 1)
    monkeypatch.setattr(postgres_store, "_GRACE_SECONDS", 0.5)
    start = time.monotonic()
    dead.trouble(b"dplangevin_entry", "stall", passed=True)
    with pytest.raises(LedgerError, match="Nothing was charged"):
        budget.charge(pure(0.1))
    dead.trouble(b"dplangevin_append", "stall", passed=False)
    with pytest.raises(LedgerError, match="Nothing was charged"):
        budget.charge(pure(0.1))
    assert time.monotonic() - start < 20
    assert dead.suffered == 2
    direct.charge(pure(0.1))
    budget.charge(pure(0.1))
    assert len(direct.history()) == 2


def test_a_spender_that_stalls_in_its_transaction_blocks_nobody(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_store, "WAIT_SECONDS", 1)
    budget = Ledger.create(url).declare("a", epsilon=5, delta=0)
    held, go_on = threading.Event(), threading.Event()
    failed: list[str] = []

    def stall() -> None:
        with suppress(LedgerError), postgres_store.PostgresStore(url).transaction(write=True) as session:
            session.query("SELECT * FROM dplangevin_dataset FOR UPDATE")
            held.set()
            go_on.wait(30)
            session.query("SELECT 1")
            failed.append("the stalled transaction went on")

    stalling = threading.Thread(target=stall)
    stalling.start()
    assert held.wait(30)
    monkeypatch.setattr(postgres_store, "WAIT_SECONDS", 20)
    budget.charge(pure(0.5))  # the server has ended the other one
    go_on.set()
    stalling.join(30)
    assert failed == []
    assert len(budget.history()) == 1


def attempt(budget: DatasetBudget) -> tuple[str, LedgerError | None]:
    try:
        return budget.charge(pure(0.1)), None
    except LedgerError as error:
        return "", error


@pytest.mark.parametrize(
    ("what", "rounds"),
    [
        ("cut", 6),
        ("stall", 2),
        pytest.param("cut", 100, marks=pytest.mark.slow),
        pytest.param("stall", 100, marks=pytest.mark.slow),
    ],
)
def test_lines_that_die_anywhere_lose_no_charge_and_make_none_twice(
    line: tuple[Proxy, DatasetBudget, DatasetBudget], monkeypatch: pytest.MonkeyPatch, what: str, rounds: int
) -> None:
    dead, budget, direct = line
    monkeypatch.setattr(postgres_store, "WAIT_SECONDS", 1)
    monkeypatch.setattr(postgres_store, "_GRACE_SECONDS", 0.2)
    words = (b"COMMIT", b"dplangevin_append", b"dplangevin_guarantee", b"set_config", b"user")
    charged: set[str] = set()
    for turn in range(rounds):
        times = 1 + turn % 3  # the second attempt may suffer as well
        before = len(direct.history())
        dead.trouble(words[turn % len(words)], what, passed=turn % 2 == 0, times=times)
        token, error = attempt(budget)
        if error is None:
            assert direct.was_charged(token)
        elif error.token is None:
            assert "Nothing was charged" in str(error)
            assert len(direct.history()) == before
        else:
            assert "perhaps charged" in str(error)
            time.sleep(0.05)
            assert len(direct.history()) - before == int(direct.was_charged(error.token))
        dead.times = 0
        charged |= {entry.chain for entry in direct.history()}
        assert len(direct.history()) - before in (0, 1)
    assert len(charged) == len(direct.history())
    assert dead.suffered >= rounds / 2
    Ledger.open(direct.url).verify()
