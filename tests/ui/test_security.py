"""Who may talk to the page: everybody else is refused, and nothing that a file says acts on the page."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ui._page import ORIGIN, TOKEN, find_error

FORM = {"content-type": "application/x-www-form-urlencoded"}
# Each attempt: the method, the path, and what is wrong with it.
ATTEMPTS: dict[str, dict[str, Any]] = {
    "no cookie": {"cookie": None},
    "no cookie, another page": {"cookie": None, "path": "/ledger"},
    "no cookie, a file": {"cookie": None, "path": "/static/page.js"},
    "an empty cookie": {"cookie": ""},
    "another cookie": {"cookie": "x" * len(TOKEN)},
    "a shorter cookie": {"cookie": TOKEN[:-1]},
    "a longer cookie": {"cookie": TOKEN + "x"},
    "a token in the address of another page": {"cookie": None, "path": f"/ledger?token={TOKEN}"},
    "a wrong token in the address": {"cookie": None, "path": "/?token=wrong"},
    "an empty token in the address": {"cookie": None, "path": "/?token="},
    "a token in the address of a form": {"cookie": None, "path": f"/?token={TOKEN}", "method": "POST"},
    "another host": {"host": "evil.example"},
    "another host at this port": {"host": "evil.example:8123"},
    "another port": {"host": "127.0.0.1:9000"},
    "no port": {"host": "127.0.0.1"},
    "a host that begins like this one": {"host": "127.0.0.1.evil.example:8123"},
    "a host that ends like this one": {"host": "evil-127.0.0.1:8123"},
    "an empty host": {"host": ""},
    "the address of another interface": {"host": "192.168.0.10:8123"},
    "another client": {"client": "192.168.0.10"},
    "no client": {"client": ""},
    "another site": {"headers": {"sec-fetch-site": "cross-site"}},
    "another port of this machine": {"headers": {"sec-fetch-site": "same-site"}},
    "another method": {"method": "DELETE"},
    "a method that asks": {"method": "OPTIONS"},
    "a form without origin": {"method": "POST", "origin": None},
    "a form of another origin": {"method": "POST", "origin": "http://evil.example"},
    "a form of a null origin": {"method": "POST", "origin": "null"},
    "a form of another port": {"method": "POST", "origin": "http://127.0.0.1:9000"},
    "a form of a secure origin": {"method": "POST", "origin": ORIGIN.replace("http", "https")},
    "a form of two origins": {"method": "POST", "origin": f"{ORIGIN} http://evil.example"},
    "a form without its token": {"method": "POST", "form_token": None},
    "a form with another token": {"method": "POST", "form_token": "0" * 64},
    "a form with the token of the cookie": {"method": "POST", "form_token": TOKEN},
    "a form that is JSON": {"method": "POST", "headers": {"content-type": "application/json"}},
    "a form that is plain text": {"method": "POST", "headers": {"content-type": "text/plain"}},
    "a form of two megabytes": {"method": "POST", "more": "x" * 2_000_000},
    "a form of a hundred thousand fields": {"method": "POST", "more": "&a=" * 100_000},
}


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_an_attempt_of_somebody_else_is_refused(page: Any, attempt: str) -> None:
    from starlette.testclient import TestClient

    options = ATTEMPTS[attempt]
    client = TestClient(page.app, base_url=ORIGIN, client=(options.get("client", "127.0.0.1"), 50_000))
    cookie = options.get("cookie", TOKEN)
    if cookie is not None:
        client.cookies.set("dplangevin-8123", cookie)
    headers = dict(options.get("headers", {}))
    if "host" in options:
        headers["host"] = options["host"]
    method, body = options.get("method", "GET"), ""
    if method == "POST":
        origin = options.get("origin", ORIGIN)
        headers = {**FORM, **({} if origin is None else {"origin": origin}), **headers}
        form_token = options.get("form_token", page.visitor.form_token)
        token_field = "" if form_token is None else f"form_token={form_token}"
        body = f"{token_field}&name=stolen&epsilon=1&delta=0.1&rows=1&adjacency=replace-one&{options.get('more', '')}"
    path = options.get("path", "/ledger/declare" if method == "POST" else "/")
    answer = client.request(method, path, headers=headers, content=body, follow_redirects=False)
    assert answer.status_code in (400, 403, 405, 413, 415), answer.text
    assert answer.text.startswith("Refused: ")
    assert len(answer.text.strip().splitlines()) == 1
    assert "set-cookie" not in answer.headers
    assert not (page.folder / "ledger.db").exists()


def test_there_are_thirty_attempts_and_the_honest_one_succeeds(page: Any) -> None:
    assert len(ATTEMPTS) >= 30
    answer = page.visitor.post(
        "/ledger/declare", name="mine", epsilon="1", delta="1e-6", rows="1", adjacency="replace-one"
    )
    assert answer.status_code == 200
    assert "mine" in answer.text
    assert (
        page.client.get(
            "/", headers={"host": "localhost:8123", "cookie": f"dplangevin-8123={TOKEN}"}
        ).status_code
        == 200
    )


def test_every_answer_forbids_what_the_page_does_not_need(page: Any) -> None:
    for path in ("/", "/ledger", "/account", "/rashomon", "/nowhere", "/static/page.js", "/static/page.css"):
        headers = page.visitor.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"


def test_the_cookie_is_for_this_server_alone(page: Any) -> None:
    page.client.cookies.clear()
    cookie = page.client.get(f"/?token={TOKEN}", follow_redirects=False).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert cookie.startswith("dplangevin-8123=")


def test_pages_name_no_other_server_and_run_no_inline_script(page: Any) -> None:
    draft = page.visitor.open_table(page.table)
    for path in ("/", "/ledger", "/account", "/rashomon", f"{draft}/columns", f"{draft}/model"):
        text = page.visitor.get(path).text
        assert "://" not in re.sub(r"sqlite:///", "", text)
        assert re.findall(r"<script[^>]*>", text) == ['<script src="/static/page.js" defer>']
        assert not re.search(r"\son\w+=|style=|javascript:", text)


HOSTILE = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "{{ 7 * 7 }}", "</fieldset><form action=/evil>",
    "\u202egnp.exe\u202d", "x" * 20_000, "&lt;b&gt;", "' or 1=1 --", "--epsilon=9", "a\tb\x07",
)  # fmt: skip


def test_hostile_column_names_are_shown_as_text(page: Any, tmp_path: Any) -> None:
    names = [*HOSTILE, "target"]
    quoted = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    table = tmp_path / "hostile.csv"
    table.write_text(f"{quoted}\n" + ",".join(["1"] * len(names)) + "\n")
    draft = page.visitor.open_table(table)
    roles = {f"role_{index}": "category" for index in range(len(HOSTILE))} | {
        f"role_{len(HOSTILE)}": "target"
    }
    listed = {
        f"listed_{index}": "<b>bold</b>\n</textarea><script>alert(3)</script>"
        for index in range(len(HOSTILE))
    }
    answer = page.visitor.post(f"{draft}/columns", **roles, **listed, rows="stated", n="5000")
    assert str(answer.url).endswith("/model"), find_error(answer.text)
    summary = page.visitor.review(draft, labels="<i>no</i>, yes\u202e")
    for text in (
        summary.text,
        *(page.visitor.get(f"{draft}/{step}").text for step in ("columns", "model", "budget")),
    ):
        assert text.count("<script") == 1
        assert "<img" not in text
        assert "<b>" not in text
        assert "<i>" not in text
        assert text.count("<form ") == len(re.findall(r'<form method="(?:post|get)"', text))
        assert "49" not in re.findall(r'<bdi class="name">([^<]*)</bdi>', text)
        assert "\u202e" not in re.sub(r"<textarea.*?</textarea>", "", text, flags=re.S)
        assert "x" * 200 not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in summary.text
    assert "⟨U+202E⟩gnp.exe" in summary.text
    arguments = page.routes.drafts.load(draft.rpartition("/")[2]).command_arguments(page.ledger)
    assert [word for word in arguments if word.startswith("--epsilon")] == ["--epsilon=1.0"]
