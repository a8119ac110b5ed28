"""Packages whose public names are loaded on first use.

The names are written once, as imports `from module import Name as Name` under `if TYPE_CHECKING:`, where type checkers
see them and `attach` reads them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """(__getattr__, __dir__, __all__) of a package, from the imports under its `if TYPE_CHECKING:`."""
    spec: Any = sys.modules[package].__spec__
    source: str = spec.loader.get_data(spec.origin).decode()  # lighter than pkgutil, and good in a zip too
    typed = source.partition("\nif TYPE_CHECKING:\n")[2].partition("\n\n")[0]
    homes = {
        name: module
        for module, names in re.findall(r"from (\S+) import (\([^)]*\)|.*)", typed)
        for name in re.findall(r"(\w+) as \1\b", names)
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    names = sorted(homes)
    return load, lambda: names, names
