"""docs/architecture.md lists the modules that a default fit passes through, and no others."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from types import FrameType

import numpy as np

from architecture._source import ROOT
from dplangevin import DPLogisticRegression
from dplangevin.accounting.conversions import gdp_mu

PACKAGE = "dplangevin."


def traced_modules(call: Callable[[], object]) -> set[str]:
    """The modules of which a call runs functions; bodies of modules and classes are not counted."""
    found: set[str] = set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_NEWLOCALS:
            name = frame.f_globals.get("__name__", "")
            if name.startswith(PACKAGE):
                found.add(name.removeprefix(PACKAGE))

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def test_the_page_lists_the_path_of_a_default_fit() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.3, 0.3, (2000, 8))
    y = (X[:, 0] > 0).astype(int)

    def fit() -> object:
        return DPLogisticRegression(data_norm=1.0, classes=[0, 1], random_state=0).fit(X, y)

    fit()  # what is imported and compiled once is no part of the path
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## The path of a default fit")[2].partition("\n|")[2].partition("\n\n")[0]
    listed = re.findall(r"`([a-z_.]+)`", table)
    assert len(listed) == len(set(listed))
    assert traced_modules(fit) == set(listed)


def test_the_trace_sees_a_further_module() -> None:
    assert "accounting.conversions" in traced_modules(lambda: gdp_mu(1.7, 1e-7))
