"""Links of HTML forms to the documentation: absent without an address, and to pages that the site has with one."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

import dplangevin
from dplangevin import rashomon
from dplangevin.estimators import DPRidge, SchemaEncoder, _documentation

ESTIMATORS = [
    kind
    for package in (dplangevin, rashomon)
    for kind in (getattr(package, name) for name in package.__all__)
    if inspect.isclass(kind) and issubclass(kind, BaseEstimator)
]


def test_the_package_states_no_address_yet() -> None:
    assert DPRidge()._get_doc_link() == ""
    assert SchemaEncoder({"columns": {"a": {"range": [0, 1]}}})._get_doc_link() == ""


def test_every_estimator_links_to_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_documentation, "documentation_address", lambda: "https://docs.test/")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "tools"))
    from reference import public_names

    assert len(ESTIMATORS) > 10
    pages = {f"{module}.{name}" for module, names in public_names().items() for name in names}
    for kind in ESTIMATORS:
        if kind.__module__.startswith("sklearn"):
            continue
        link = kind._get_doc_link(kind.__new__(kind))
        assert link.startswith("https://docs.test/reference/api/"), kind
        assert link.removeprefix("https://docs.test/reference/api/").removesuffix(".html") in pages
    assert "reference" in sys.modules
