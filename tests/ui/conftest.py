"""Pages for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra [ui] is not installed")
pytest.importorskip("httpx", reason="httpx, with which pages are tested, is not installed")


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Any]:
    """A page in this process, its visitor, and a table of people."""
    from starlette.testclient import TestClient

    from dplangevin.ui.pages import PageRoutes
    from ui._page import ORIGIN, PORT, TOKEN, Visitor, write_people

    folder = tmp_path / "releases"
    folder.mkdir()
    routes = PageRoutes(tmp_path, folder, f"sqlite:///{folder / 'ledger.db'}")
    app = routes.build_app(TOKEN, PORT)
    client = TestClient(app, base_url=ORIGIN, client=("127.0.0.1", 50_000))
    table = write_people(tmp_path / "people.csv")
    visitor = Visitor(client, ORIGIN, f"/?token={TOKEN}")
    yield SimpleNamespace(
        routes=routes,
        app=app,
        client=client,
        visitor=visitor,
        table=table,
        folder=folder,
        ledger=routes.ledger,
    )
    for child in routes.runner._children:
        child.wait(60)
