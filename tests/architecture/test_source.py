"""Rules on the text of the source: docstrings, randomness, imports, no traces of a machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from architecture._source import ROOT, modules, name, python_files, text_files, tree

GENERATORS = {"Generator", "default_rng", "SeedSequence", "RandomState", "BitGenerator", "PCG64", "Philox"}
# Brackets keep the pattern from matching its own text.
MACHINE = re.compile(r"(?<![\w.])/(w[o]rk|r[o]ot|h[o]me|U[s]ers|f[a]rm)/")


def global_random_calls(module: ast.AST) -> list[str]:
    """np.random.<distribution or seed> uses the hidden global state; generators do not."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            base = node.value
            numpy = isinstance(base.value, ast.Name) and base.value.id in ("np", "numpy")
            if numpy and base.attr == "random" and node.attr not in GENERATORS:
                found.append(node.attr)
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name == "random"]
        if isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
            found += [alias.name for alias in node.names if alias.name not in GENERATORS]
    return found


def private_sklearn_imports(module: ast.AST) -> list[str]:
    """Private modules and names of scikit-learn change with each of its releases."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [n for n in names if n.split(".")[0] == "sklearn" and "._" in n]
    return found


@pytest.mark.parametrize("path", modules(), ids=name)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert len((ast.get_docstring(tree(path)) or "").split()) >= 2


def test_a_class_name_exists_once() -> None:
    homes: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name(path))
    assert not {word: paths for word, paths in homes.items() if len(paths) > 1}


def test_only_charging_modules_charge() -> None:
    """Reserve and commit are called by charge_then_release, by a delivery, which defers its commit, and by the state of
    a resumed run; the ledger has its own."""
    allowed = {"charge.py", "delivery.py", "run_state.py"}
    guilty = [
        name(path)
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("reserve", "reserve_with_token", "commit")
        and path.name not in allowed
        and "ledger" not in path.parts
    ]
    assert not guilty


def test_randomness_comes_from_a_generator() -> None:
    guilty = {name(p): calls for p in python_files() if (calls := global_random_calls(tree(p)))}
    assert not guilty


def test_public_scikit_learn_only() -> None:
    guilty = {name(p): found for p in python_files() if (found := private_sklearn_imports(tree(p)))}
    assert not guilty


def test_no_paths_of_a_machine() -> None:
    guilty = [
        name(p) for p in text_files() if MACHINE.search(p.read_text(encoding="utf-8", errors="replace"))
    ]
    assert not guilty


def test_the_detectors_detect() -> None:
    assert global_random_calls(ast.parse("import numpy as np\nnp.random.seed(0)\nnp.random.normal()")) == [
        "seed",
        "normal",
    ]
    assert not global_random_calls(ast.parse("import numpy as np\nnp.random.default_rng(0).normal()"))
    assert private_sklearn_imports(ast.parse("from sklearn.linear_model._glm import glm"))
    assert private_sklearn_imports(ast.parse("from sklearn import _loss"))
    assert not private_sklearn_imports(ast.parse("from sklearn.utils.validation import validate_data"))
    assert MACHINE.search("see /" + "home/someone/data")
    assert not MACHINE.search("../shared/data")


def test_the_repository_was_found() -> None:
    assert (ROOT / "pyproject.toml").is_file()
    assert len(text_files()) > len(modules()) > 10
