"""Contracts that every family is under, new ones too: they are read from the table and from the folders."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterable
from functools import cache

import grimp
import pytest

import dplangevin.mechanisms
from architecture._source import ROOT
from dplangevin.accounting import registry
from dplangevin.mechanisms.mechanism import Mechanism

SOLVERS = {"scipy", "dplangevin._search", "dplangevin.sampling"}


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("dplangevin", include_external_packages=True)


def chains(of: grimp.ImportGraph, sources: Iterable[str], targets: Iterable[str]) -> list[str]:
    found = [of.find_shortest_chain(source, target) for source in sources for target in targets]
    return [" -> ".join(chain) for chain in found if chain]


def proofs() -> set[str]:
    """The modules of specs and theorems, as the table names them."""
    return {
        f"{family}.{name.rpartition(':')[0] or home}"
        for family in registry.MECHANISM_PACKAGES
        for member in importlib.import_module(family).MECHANISM_ENTRIES
        for name, home in ((member.spec, "spec"), *((each, "spec") for each in member.theorems))
    }


def mechanisms() -> set[str]:
    """The modules that define a mechanism, whatever they are called and whether or not the table lists it."""
    for module in pkgutil.walk_packages(dplangevin.mechanisms.__path__, "dplangevin.mechanisms."):
        importlib.import_module(module.name)
    found: set[str] = set()
    left: list[type] = [Mechanism]
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        found.add(kind.__module__)
    return {name for name in found if name.startswith("dplangevin.mechanisms.")}


def mechanism_classes() -> list[type]:
    mechanisms()  # imports every module
    found: list[type] = [Mechanism]
    for kind in found:
        found += kind.__subclasses__()
    return [kind for kind in found if kind.__module__.startswith("dplangevin.mechanisms.")]


def test_mechanisms_know_no_sensitivity() -> None:
    """They draw the noise that the spec states; only a theorem divides a sensitivity by it."""
    for kind in mechanism_classes():
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
        names = {
            getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", None) or ""
            for node in ast.walk(tree)
        }
        assert not {name for name in names if "sensitivity" in name}, kind


def test_every_folder_is_in_the_registry() -> None:
    folders = {
        f"dplangevin.mechanisms.{each.name}"
        for each in pkgutil.iter_modules(dplangevin.mechanisms.__path__)
        if each.ispkg
    }
    assert folders == set(registry.MECHANISM_PACKAGES)


def test_the_page_on_the_architecture_names_every_mechanism() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert [name for name in registry.MECHANISM_PACKAGES if f"`{name.rpartition('.')[2]}`" not in page] == []


def test_what_is_proved_does_not_know_what_runs() -> None:
    assert len(proofs()) > 15
    assert len(mechanisms()) > 15
    assert chains(graph(), proofs(), mechanisms()) == []


@pytest.mark.parametrize("face", ["cli", "report", "ui"])
def test_faces_parse_call_and_show(face: str) -> None:
    """They solve nothing themselves: no solver, search or sampler is imported there."""
    inside = {name for name in graph().modules if name.startswith(f"dplangevin.{face}")}
    used = {other for name in inside for other in graph().find_modules_directly_imported_by(name) - inside}
    assert not {other for other in used if any(f"{other}.".startswith(f"{word}.") for word in SOLVERS)}


def test_the_detector_detects() -> None:
    made = grimp.ImportGraph()
    for name in ("a.theorem", "a.shared", "a.runs"):
        made.add_module(name)
    made.add_import(importer="a.theorem", imported="a.shared")
    assert chains(made, {"a.theorem"}, {"a.runs"}) == []
    made.add_import(importer="a.shared", imported="a.runs")
    assert chains(made, {"a.theorem"}, {"a.runs"}) == ["a.theorem -> a.shared -> a.runs"]
