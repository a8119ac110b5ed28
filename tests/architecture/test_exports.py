"""The public names of every package exist, are documented, and are all that documentation and examples import."""

from __future__ import annotations

import ast
import re
import types
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest

from architecture._source import ROOT, SOURCE, name, text_files

PACKAGES = ["dplangevin"] + [
    f"dplangevin.{module.name}"
    for module in iter_modules([str(SOURCE)])
    if module.ispkg and module.name not in ("cli", "planner", "ui")
]
IN_CODE = re.compile(r"^```(?:python|py)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def deep_imports(code: str) -> list[str]:
    """Modules below the sub-packages that Python code imports."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            found += [node.module or ""]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return [module for module in found if module.startswith("dplangevin.") and module.count(".") > 1]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists_and_is_documented(package: str) -> None:
    module = import_module(package)
    assert module.__all__
    for exported in module.__all__:
        value = getattr(module, exported)
        kinds = (type, types.FunctionType, types.ModuleType)
        assert not isinstance(value, kinds) or (value.__doc__ or "").strip(), exported
        assert exported in dir(module)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_export_has_the_name_of_a_module_of_its_package_unless_it_is_imported_at_once(
    package: str,
) -> None:
    """A module that is imported later would take the place of the name."""
    module: Any = import_module(package)
    if "__getattr__" in vars(module):
        inside = {each.name for each in iter_modules(module.__path__)}
        assert not inside & set(module.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_unknown_names_are_refused(package: str) -> None:
    module = import_module(package)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        module.nonsense  # noqa: B018


def test_documentation_and_examples_import_from_the_package_or_one_sub_package() -> None:
    shown = [
        path for path in text_files() if path.relative_to(ROOT).parts[0] in ("docs", "examples", "README.md")
    ]
    guilty = {}
    for path in shown:
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".py":
            found = deep_imports(text)
        elif path.suffix == ".md" and path.name != "adding_a_mechanism.md":
            found = [each for block in IN_CODE.findall(text) for each in deep_imports(block)]
            found += re.findall(r"`dplangevin\.[a-z_]+\.[a-z_]+\.\w+", text)
        else:
            continue
        if found:
            guilty[name(path)] = found
    assert not guilty


def test_the_detector_detects() -> None:
    assert deep_imports("from dplangevin.accounting.plan import Plan") == ["dplangevin.accounting.plan"]
    assert not deep_imports("from dplangevin.accounting import Plan\nimport dplangevin")
