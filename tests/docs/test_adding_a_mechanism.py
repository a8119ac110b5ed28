"""docs/adding_a_mechanism.md builds: its package beside the others, its line, and all that it shows."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dplangevin.mechanisms
from contracts import _theorem_cases, test_registered as wiring, test_theorems as laws
from docs._blocks import ROOT, blocks
from dplangevin.accounting import registry
from dplangevin.errors import InvalidParameter

BLOCKS = blocks(ROOT / "docs" / "adding_a_mechanism.md", "py")
FILES = {
    match[1]: body
    for body in BLOCKS
    if (match := re.match(r"# mechanisms/one_step/(\w+\.py)\n", body)) is not None
}
PACKAGE = "dplangevin.mechanisms.one_step"


def _starting(words: str) -> str:
    [body] = [body for body in BLOCKS if body.startswith(words)]
    return body


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The folder and the line, for one test."""
    folder = tmp_path / "mechanisms" / "one_step"
    folder.mkdir(parents=True)
    for name, body in FILES.items():
        (folder / name).write_text(body, encoding="utf-8")
    monkeypatch.setattr(
        dplangevin.mechanisms, "__path__", [*dplangevin.mechanisms.__path__, str(folder.parent)]
    )
    line = _starting("# one line in MECHANISM_PACKAGES").splitlines()[1].strip('(),"')
    assert line == PACKAGE
    monkeypatch.setattr(registry, "MECHANISM_PACKAGES", (*registry.MECHANISM_PACKAGES, line))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    yield importlib.import_module(PACKAGE)
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]
    vars(dplangevin.mechanisms).pop("one_step", None)
    registry.theorems_for.cache_clear()


def test_a_folder_and_a_line_are_enough(family: Any) -> None:
    exec(compile(_starting("import numpy"), "adding_a_mechanism.md", "exec"), {"__name__": "__main__"})


def test_the_laws_of_theorems_hold_for_it(
    family: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.import_module(f"{PACKAGE}.spec").OneStepSpec
    case = eval(_starting("# a case in"), {**vars(_theorem_cases), "OneStepSpec": spec})
    key = (spec, "one-step")
    monkeypatch.setitem(laws.CASES, key, case)
    monkeypatch.setitem(laws.THEOREMS_BY_SPEC, spec, registry.theorems_for(spec))
    tried = 0
    for law in vars(laws).values():
        marks = getattr(law, "pytestmark", ())
        if any(mark.args[1:] == (laws.KEYS,) for mark in marks if mark.name == "parametrize"):
            known = {"key": key, "tmp_path": tmp_path, "monkeypatch": monkeypatch}
            with contextlib.suppress(
                pytest.skip.Exception
            ):  # a law about steps, or about what is released besides
                law(**{name: known[name] for name in inspect.signature(law).parameters})
            tried += 1
    assert tried >= 8


def test_its_noise_is_what_its_guarantee_says(family: Any) -> None:
    """The laws over the registry find it by its line alone, and they find half the noise."""
    assert "one-step" in registry.plannable_mechanisms()
    assert wiring.assert_wired("one-step", ("svc", "ridge")) == 4
    mechanism = importlib.import_module(f"{PACKAGE}.mechanism")
    honest, broken = "spec.noise_std * inputs.rng", "spec.noise_std / 2 * inputs.rng"
    assert FILES["mechanism.py"].count(honest) == 1
    exec(compile(FILES["mechanism.py"].replace(honest, broken), "half", "exec"), vars(mechanism))
    with pytest.raises(AssertionError, match="the releases attain"):
        wiring.assert_wired("one-step", ("svc", "ridge"))


def test_the_laws_miss_a_mechanism_without_a_case(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.import_module(f"{PACKAGE}.spec").OneStepSpec
    monkeypatch.setitem(laws.THEOREMS_BY_SPEC, spec, registry.theorems_for(spec))
    with pytest.raises(AssertionError):
        laws.test_every_theorem_on_offer_has_a_case()


def test_errors_name_it(family: Any) -> None:
    from dplangevin import account, plan_fit

    with pytest.raises(InvalidParameter, match="lipschitz is missing for mechanism='one-step'"):
        account(mechanism="one-step", n=10, noise_std=1.0, delta=1e-6)
    with pytest.raises(InvalidParameter, match="state a delta"):
        plan_fit(
            model="logistic", n=100, n_features=2, epsilon=1.0, delta=0.0, adjacency="replace-one", data_norm=1.0,
            fit_intercept=False, mechanism="one-step",
        )  # fmt: skip


def test_without_the_line_nobody_knows_it() -> None:
    assert "one-step" not in registry.plannable_mechanisms()
    assert "one-step" not in registry.accountable_mechanisms()
