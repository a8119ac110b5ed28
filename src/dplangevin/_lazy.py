"""Packages whose public names are loaded on first use.

The names are written once, as imports under `if TYPE_CHECKING:`, where type checkers see them and `attach` reads them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """(__getattr__, __dir__, __all__) of a package, from the imports under its `if TYPE_CHECKING:`."""
    spec: Any = sys.modules[package].__spec__
    source: bytes = spec.loader.get_data(spec.origin)  # lighter than pkgutil or get_source, and good in a zip too
    homes = {
        alias.asname or alias.name: (str(statement.module), alias.name)
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes[name]
        value = getattr(import_module(module), attribute)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(homes)
    return load, lambda: names, names
