"""No public name is there for its own tests alone: it has a caller, a place in the documentation, or an export."""

from __future__ import annotations

import ast
import re

import dplangevin
from architecture._source import ROOT, modules, name, text_files, tree
from dplangevin.accounting import registry

WORD = re.compile(r"[A-Za-z_]\w*")


def _used() -> set[str]:
    """Names that the package's code reads, in code or in the strings of lazy tables."""
    found: set[str] = set()
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                # an entry of a mechanism's package (one-step is planned by plan_one_step), or of the gallery
                entry = path.parent.parent.name in ("mechanisms", "papers")
                if path.name != "__init__.py" or entry:
                    value = node.value.replace("-", "_") if entry else node.value
                    found.update(WORD.findall(value) if re.fullmatch(r"[\w.:]+", value) else ())
                    found.update((f"plan_{value}", f"read_{value}_options") if entry else ())
    return found


def _listed() -> set[str]:
    """Classes that the table of mechanisms leads to."""
    kinds = registry.spec_types()
    theorems = [theorem for kind in kinds for theorem in registry.theorems_for(kind).values()]
    return {type(each).__name__ for each in (*theorems, *map(registry.mechanism_for, kinds))}


def _documented() -> set[str]:
    homes = ("docs", "examples", "benchmarks", "README.md")
    paths = [path for path in text_files() if path.relative_to(ROOT).parts[0] in homes]
    return {
        word
        for path in paths
        if path.suffix in (".md", ".py")
        for word in WORD.findall(path.read_text(encoding="utf-8"))
    }


def _commands(node: ast.AST) -> bool:
    """Registered by its decorator: the decorator is the caller."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
        and each.func.attr in ("command", "callback") for each in node.decorator_list
    )  # fmt: skip


def test_every_public_name_is_used_documented_or_exported() -> None:
    known = _used() | _listed() | _documented() | set(dplangevin.__all__)
    dead = [
        f"{name(path)}: {node.name}"
        for path in modules()
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and node.name not in known
        and not _commands(node)
    ]
    assert dead == []
