"""Packages whose public names are loaded on first use.

The names are written once, as imports `from module import Name as Name` under `if TYPE_CHECKING:`, where type
checkers see them and `attach_lazy_names` reads them. (The package lazy_loader needs every name twice, or a stub file
beside each package.)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach_lazy_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return (__getattr__, __dir__, __all__) for a package, from the imports under its `if TYPE_CHECKING:`."""
    spec: Any = sys.modules[package].__spec__
    # lighter than pkgutil, and works in a zip file too
    source: str = spec.loader.get_data(spec.origin).decode()
    import_block = source.partition("\nif TYPE_CHECKING:\n")[2].partition("\n\n")[0]
    modules_by_name = {
        name: module
        for module, names in re.findall(r"from (\S+) import (\([^)]*\)|.*)", import_block)
        for name in re.findall(r"(\w+) as \1\b", names)
    }

    def load(name: str) -> Any:
        if name not in modules_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules_by_name[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(modules_by_name)
    return load, lambda: names, names
