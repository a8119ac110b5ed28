"""Packages know each other by objects: no mechanism by its name, no call upwards by a string, no private module."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from architecture._source import modules, name, tree
from dplangevin.accounting import registry

PACKAGE = "dplangevin"
OTHER_MEANINGS = {
    "composition": "a field of guarantees and of what is written about them",
    "exponential": "the growth of a Poisson loss, and a distribution of NumPy",
    "generalized-gaussian": "a kind of privacy part in files",
    "public-mirror-descent": "a figure of papers/gallery",
    "rashomon": "a command, and a format of reports",
    "underdamped": "a chain of samplers, and a column of a figure",
}
"""Names of mechanisms or theorems that are also other things, which these files speak of."""
SPEAKING_OF_THEM = {
    "audit/replay.py",
    "cli/main.py",
    "data/exact_sums.py",
    "mechanisms/exact_minimizer.py",
    "ledger/_rows.py",
    "mechanisms/exponential/mechanism.py",
    "mechanisms/whitened/curvature.py",
    "mechanisms/whitened/one_step.py",
    "papers/gallery/__init__.py",
    "papers/gallery/langevin.py",
    "papers/gallery/noisy_descent.py",
    "accounting/serialize.py",
    "problem/losses/base.py",
    "report/file_schemas.py",
    "problem/losses/regression.py",
    "report/answer.py",
    "report/plots.py",
    "report/rashomon.py",
    "report/release.py",
    "ui/drafts.py",
}
IMPORTING_BY_NAME = {
    "_lazy.py": "public names of a package, below it",
    "cli/report.py": "a module of the user's",
    "papers/gallery/__init__.py": "its own figures",
    "accounting/registry.py": "the mechanisms",
    "queries/row_queries.py": "an optional dependency",
    "tables/files.py": "an optional dependency",
}


def inside(path: Path) -> str:
    """The path of a module inside the package."""
    return name(path).partition(f"{PACKAGE}/")[2]


def texts(module: ast.AST) -> Iterator[str]:
    """The strings of a module, those in pieces too; docstrings are none."""
    docstrings = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def mechanism_names() -> dict[str, set[str]]:
    """Mechanisms, planners, options and theorems by name, each with the mechanism packages that own the name."""
    owners: dict[str, set[str]] = {}
    for kind in registry.spec_types():
        home = kind.__module__.split(".")[2]
        member = registry._entry_for(kind)[1]
        listed = [entry.name for entry in member.planners] + list(member.options)
        for each in (
            kind.mechanism,
            *registry.theorems_for(kind),
            *(one.rpartition(":")[2] for one in listed),
        ):
            owners.setdefault(each, set()).add(home)
    return owners


def names_in(module: ast.AST, names: Mapping[str, set[str]]) -> set[str]:
    """Names that are a string of the module, or are quoted inside one."""
    return {each for text in texts(module) for each in names if text == each or f"'{each}'" in text}


def private_imports(module: ast.AST, home: str) -> set[str]:
    """Modules and names that begin with _ and belong to another package, or to another file."""
    found = set()
    own = home.removesuffix(".py").split("/")
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        else:
            continue
        for each in imported:
            root, *parts = each.split(".")
            private = [i for i, part in enumerate(parts) if part.startswith("_")]
            # modules at the top of the package are shared by all of it
            if root == PACKAGE and private and private[0] > 0 and own[: private[0]] != parts[: private[0]]:
                found.add(each)
    return found


def test_mechanisms_are_named_in_their_package_only() -> None:
    names = mechanism_names()
    guilty = {}
    for path in modules():
        where = inside(path).split("/")
        own = {each for each in names if where[0] == "mechanisms" and where[1] in names[each]}
        found = names_in(tree(path), names) - own
        if inside(path) in SPEAKING_OF_THEM:
            found -= set(OTHER_MEANINGS)
        if found and inside(path) != "accounting/registry.py":
            guilty[inside(path)] = found
    assert not guilty


def test_only_the_registry_calls_upwards_by_name() -> None:
    found = {
        inside(path)
        for path in modules()
        for node in ast.walk(tree(path))
        if (isinstance(node, ast.Name) and node.id in ("import_module", "__import__"))
        or (isinstance(node, ast.Attribute) and node.attr == "import_module")
    }
    assert found == set(IMPORTING_BY_NAME)
    calls = [
        node
        for path in modules()
        if inside(path) == "accounting/registry.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Name) and node.id == "import_module"
    ]
    assert len(calls) == 1
    spelled = {
        inside(path): text
        for path in modules()
        for text in texts(tree(path))
        if text.startswith(f"{PACKAGE}.") and inside(path) != "accounting/registry.py"
    }
    assert not {
        where: text for where, text in spelled.items() if where.startswith(("accounting/", "planner/"))
    }


def test_what_begins_with_an_underscore_is_imported_in_its_own_package_only() -> None:
    found = {inside(path): private_imports(tree(path), inside(path)) for path in modules()}
    assert not {where: names for where, names in found.items() if names}


def test_the_detectors_detect() -> None:
    names = {"one-step": {"one_step"}}
    assert names_in(ast.parse("x = 'one-step'"), names) == {"one-step"}
    assert names_in(ast.parse("x = f\"use mechanism='one-step' or {y}\""), names) == {"one-step"}
    assert not names_in(ast.parse("'''one-step'''\nx = 'one-step-ahead'"), names)
    private = "from dplangevin.estimators._base import A"
    assert private_imports(ast.parse(private), "rashomon/region.py")
    assert not private_imports(ast.parse(private), "estimators/linear_models.py")
    assert private_imports(
        ast.parse("from dplangevin.accounting.plan import _offers"), "accounting/compose.py"
    )
    assert not private_imports(ast.parse("from dplangevin._files import a"), "accounting/compose.py")
